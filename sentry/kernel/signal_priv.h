// SPDX-License-Identifier: Apache-2.0
/* Shared by kernel/signal_*.c only. */
#ifndef SENTRY_KERNEL_SIGNAL_PRIV_H
#define SENTRY_KERNEL_SIGNAL_PRIV_H

#include "sentry/kernel/signal.h"
#include "sentry/kernel/task.h"

#define __SIGRTMIN_G 32 /* the kernel's; libc keeps the first two for itself */

#define SIG_DFL_G 0ULL
#define SIG_IGN_G 1ULL

#define SIGSET_STOP (SIGBIT(SIGSTOP) | SIGBIT(SIGTSTP) | SIGBIT(SIGTTIN) | SIGBIT(SIGTTOU))
#define SIGSET_KERNEL_ONLY (SIGBIT(SIGKILL) | SIGBIT(SIGSTOP))
/* default action: nothing */
#define SIGSET_DEFAULT_IGNORE                                                            \
	(SIGBIT(SIGCONT) | SIGBIT(SIGCHLD) | SIGBIT(SIGWINCH) | SIGBIT(SIGURG))
#define SIGSET_SYNCHRONOUS                                                               \
	(SIGBIT(SIGSEGV) | SIGBIT(SIGBUS) | SIGBIT(SIGILL) | SIGBIT(SIGTRAP) |             \
	 SIGBIT(SIGFPE) | SIGBIT(SIGSYS))

/* signal_queue.c. All with sighand.mu held. */
struct sigqueue_entry *sigqueue_alloc(struct task *t, int sig, bool override_limit);
void sigqueue_free(struct sigqueue_entry *e);
/* Drops every queued signal of @mask. */
void sigpending_remove(struct sigpending *p, sigset_g mask);
/* Takes @sig out of @p. Fills *info (made up when there was no entry) and *timer. */
void sigpending_collect(struct sigpending *p, int sig, struct l_siginfo *info,
			struct posix_timer **timer);
/* Takes one entry out; the signal isn't pending any more if that was its last. */
void sigpending_detach(struct sigpending *p, struct sigqueue_entry *e);
/* Lowest signal of @set not in @blocked, synchronous faults first; 0: none. */
int sigset_next(sigset_g set, sigset_g blocked);
/* signal_dequeue() with the lock held. */
int signal_dequeue_locked(struct task *t, sigset_g mask, struct l_siginfo *ret);

/* signal_send.c; sighand.mu held */
int signal_send_locked(struct tgroup *tg, struct task *t, int sig, const struct l_siginfo *info,
		       bool force);
void signal_wake_locked(struct task *t);
bool tgroup_unkillable_locked(const struct tgroup *tg);
/* Other threads that may take shared signals of @set that @t doesn't any more. */
void signal_retarget_locked(struct task *t, sigset_g set);

/* signal_stop.c; sighand.mu held */
void signal_stop_begin_locked(struct task *t, int sig);
void signal_continue_locked(struct tgroup *tg);
/* True when every live thread is parked and this is news: the caller has to call signal_tell_parent(). */
bool signal_stop_check_locked(struct tgroup *tg);
/* No locks held. */
void signal_stop_park(struct task *t);
void signal_tell_parent(struct tgroup *tg);

static inline bool ptrace_traced(const struct task *t)
{
	return t->ptrace != NULL;
}

static inline bool task_is_exiting(struct task *t)
{
	return atomic_load(&t->exiting) || atomic_load(&t->state) >= TASK_ZOMBIE;
}

#endif
