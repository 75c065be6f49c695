// SPDX-License-Identifier: Apache-2.0
/*
 * Errors of the host in words, spelled as callers of OCI runtimes look for them: Docker and Podman take
 * their exit codes 126 and 127 from "permission denied" and "no such file or directory" in a message,
 * with small letters, because runc's come from Go.
 */
#ifndef RUNTIME_ERRNO_TEXT_H
#define RUNTIME_ERRNO_TEXT_H

/* The text of @err (an errno, not negative); valid until the same thread asks for another. */
const char *errno_text(int err);

#endif
