// SPDX-License-Identifier: Apache-2.0
/* The signal mask argument of ppoll, pselect6 and epoll_pwait. */
#ifndef SYSCALLS_SYS_POLL_H
#define SYSCALLS_SYS_POLL_H

#include <stddef.h>

#include "base/gaddr.h"

struct task;

/* Installs the mask at @sigmask (nothing when it is NULL). 0, -EINVAL (size), -EFAULT. */
long temp_mask_begin(struct task *t, gaddr_t sigmask, size_t size);
/* The call ends with @ret: unless a signal interrupted it the old mask comes back now. */
void temp_mask_end(struct task *t, gaddr_t sigmask, long ret);

/* Goes on with the interrupted poll in t->restart. */
long poll_restart(struct task *t);

#endif
