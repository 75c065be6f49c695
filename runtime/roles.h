// SPDX-License-Identifier: Apache-2.0
/* The processes of a sandbox as roles of the one binary: argv[1] names the role. */
#ifndef RUNTIME_ROLES_H
#define RUNTIME_ROLES_H

#include <stdbool.h>

#define ROLE_SENTRY "sentry-role"
#define ROLE_GOFER "gofer-role"

int role_sentry(bool debug);
/* @letters: "d" if there is a directory for files on disk, then one for each attach point, see launch.c. @memory: bytes that the sandbox's memory files may hold. */
int role_gofer(const char *letters, bool debug, const char *memory);

#endif
