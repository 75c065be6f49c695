// SPDX-License-Identifier: Apache-2.0
/* What happens when the sandbox's memory limit is reached: sentry/kernel/oom.c. */
#ifndef SENTRY_KERNEL_OOM_H
#define SENTRY_KERNEL_OOM_H

#include <stdbool.h>
#include <stdint.h>

struct task;

/* Is so little left that touching a fresh page may fail? One cheap host call. */
bool oom_short(void);
/*
 * For a caller that failed to touch guest memory, on behalf of @t (or NULL). True: there is memory again (a
 * process was killed for it, if need be), try once more. False: @t is to die itself, or nobody is left who
 * could give any. Context: no mm.mu held; other locks may be. May sleep for a bounded time.
 */
bool oom_relieve(struct task *t);
/* Processes killed so far. */
uint64_t oom_kills(void);

#endif
