// SPDX-License-Identifier: Apache-2.0
/* What the signal system calls do, after their arguments are in: kernel/signal_kill.c. */
#ifndef SENTRY_KERNEL_SIGNAL_KILL_H
#define SENTRY_KERNEL_SIGNAL_KILL_H

#include "sentry/kernel/signal.h"

struct task;

/* kill(2): all forms of @pid. 0, -EINVAL, -ESRCH, -EPERM. */
long signal_kill(struct task *t, int pid, int sig);
/* tkill (@tgid 0), tgkill, rt_tgsigqueueinfo (@info not NULL, the guest's: checked here). */
long signal_tgkill(struct task *t, int tgid, int tid, int sig, struct l_siginfo *info);
/* rt_sigqueueinfo(2) */
long signal_queueinfo(struct task *t, int pid, int sig, struct l_siginfo *info);
/* sigaction(2); @new may be NULL. @sig is valid. */
void signal_set_action(struct task *t, int sig, const struct l_sigaction *new,
		       struct l_sigaction *ret_old);
/* sigtimedwait(2): the signal, -EAGAIN at the deadline, -EINTR. */
long signal_wait_for(struct task *t, sigset_g set, int64_t deadline_ns, struct l_siginfo *ret);

#endif
