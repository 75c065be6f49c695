// SPDX-License-Identifier: Apache-2.0
/* Changing the size of a running sandbox's memory files' tmpfs; see memlimit.c. */
#ifndef RUNTIME_MEMLIMIT_H
#define RUNTIME_MEMLIMIT_H

#include <stdint.h>
#include <sys/types.h>

#include "runtime/statedir.h"

/* Notes which process holds the tmpfs. Without the note `update` can't change the limit, which it says. */
void memlimit_remember(struct statedir *s, pid_t gofer);
/* 0, or -1 with *ret_why: -EINVAL of the host is "more is in use". @used is for that message. */
int memlimit_set(struct statedir *s, uint64_t bytes, uint64_t used, char **ret_why);

#endif
