// SPDX-License-Identifier: Apache-2.0
/*
 * Signals (man 7 signal): sending, queues, masks, delivery and frames.
 *
 * Lock: sighand.mu (RANK_SIGHAND) guards the actions, the shared pending queue of the thread group, the
 * pending queues and blocked masks of all its tasks, and its job-control state. A sighand is shared
 * by CLONE_SIGHAND. kernel.tasks_mu > sighand.mu.
 */
#ifndef SENTRY_KERNEL_SIGNAL_H
#define SENTRY_KERNEL_SIGNAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/gaddr.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/ref.h"

struct task;
struct tgroup;
struct pid;
struct cred;
struct posix_timer;

#define NSIG_GUEST 64
typedef uint64_t sigset_g; /* bit (signo - 1), as in the kernel's sigset_t */
#define SIGBIT(sig) (1ULL << ((sig)-1))
#define SIGSET_UNBLOCKABLE (SIGBIT(SIGKILL) | SIGBIT(SIGSTOP))

/* Guest's siginfo_t, 128 bytes. */
struct l_siginfo {
	int32_t si_signo, si_errno, si_code, pad0;
	union {
		uint8_t raw[112];
		struct {
			int32_t pid;
			uint32_t uid;
			uint64_t value; /* si_value for rt signals and mesgq */
		} kill;
		struct {
			int32_t tid, overrun;
			uint64_t value;
			int32_t sys_private;
		} timer;
		struct {
			int32_t pid;
			uint32_t uid;
			int32_t status, pad;
			int64_t utime, stime;
		} chld;
		struct {
			uint64_t addr;
			int16_t addr_lsb;
		} fault;
		struct {
			int64_t band;
			int32_t fd;
		} poll;
		struct {
			uint64_t call_addr;
			int32_t syscall;
			uint32_t arch;
		} sys;
	};
};
_Static_assert(sizeof(struct l_siginfo) == 128, "siginfo_t is 128 bytes");

struct l_sigaction { /* struct kernel_sigaction */
	uint64_t handler;
	uint64_t flags;
	uint64_t restorer;
	sigset_g mask;
};

struct l_stack { /* stack_t */
	uint64_t ss_sp;
	int32_t ss_flags, pad;
	uint64_t ss_size;
};

struct sigqueue_entry {
	struct list node;
	struct l_siginfo info;
	struct posix_timer *timer; /* preallocated entry of a timer, or NULL */
	struct cred *charged;      /* whose RLIMIT_SIGPENDING pays */
};

struct sigpending {
	sigset_g set;
	struct list queue; /* of sigqueue_entry */
};

struct sighand {
	struct ref ref;
	struct mutex mu;
	struct l_sigaction action[NSIG_GUEST]; /* (m) index signo - 1 */
};

/* ---- sending. @info NULL: SI_USER from the caller is not implied, an SI_KERNEL info is made. ---- */

/* Process- and thread-directed. Locks: takes sighand.mu; may be called with tasks_mu held. 0,
 * -EAGAIN (queue full for a real-time signal), -ESRCH. No permission check. */
int signal_send_tgroup(struct tgroup *tg, int sig, const struct l_siginfo *info);
int signal_send_task(struct task *t, int sig, const struct l_siginfo *info);
/* To each process of a group, a session's foreground group, ... Takes tasks_mu. */
int signal_send_pgrp(struct pid *pgrp, int sig, const struct l_siginfo *info);
/* A fault of @t's own making: can't be blocked or ignored; a blocked or ignored one kills. */
void signal_force(struct task *t, int sig, const struct l_siginfo *info);
void signal_force_fault(struct task *t, int sig, int code, uint64_t addr);
/* kill(2)'s permission rule. 0 or -EPERM. */
int signal_may_send(struct task *t, struct task *target, int sig);
/* SIGKILL to a whole group: exit_group, fatal signals, OOM. */
void signal_kill_tgroup(struct tgroup *tg);

/* siginfo of a kill/tkill by @t as @receiver's namespaces show it. */
void siginfo_user(struct l_siginfo *info, struct task *t, int sig, int code);

/* ---- state of the calling task ---- */

/* Is there a signal to act upon, or a stop, or a kill? Cheap; used by task_sleep(). */
bool signal_pending(struct task *t);
bool signal_fatal_pending(struct task *t);
/* Recomputes the flag behind signal_pending(). Context: sighand.mu held. */
void signal_recalc_locked(struct task *t);
void signal_set_blocked(struct task *t, sigset_g set);
/* For pselect, ppoll, sigsuspend, epoll_pwait: installs a mask that holds until the call is over and its
 * signal (if any) was delivered; then the saved one comes back. */
void signal_set_temp_mask(struct task *t, sigset_g set);
/* A ppoll-like call returned without being interrupted: put the saved mask back now. */
void signal_restore_temp_mask(struct task *t);
/* Is @sig blocked or ignored by @t (SIGTTIN/SIGTTOU rule)? */
bool signal_blocked_or_ignored(struct task *t, int sig);

/*
 * Before @t goes back to its guest: delivers one signal after another: default actions, stops, frames
 * (regs point into the handler), restart of an interrupted call (@in_syscall: regs->rax holds its
 * result, possibly -ERESTART*). Does not return to the guest if the task is to die: sets t->exit state
 * through task_group_exit() and returns.
 */
void signal_deliver(struct task *t, bool in_syscall);

/* A loaded task that was parked in a job-control stop: goes on waiting for its end. */
void signal_stop_rejoin(struct task *t);

/* signal_deliver(), beginning with @sig (0: none), which the tracer has let through already. */
void signal_deliver_allowed(struct task *t, bool in_syscall, int sig, const struct l_siginfo *info);

/* fork: child starts with empty queues and (unless CLONE_SIGHAND) copied actions. */
struct sighand *sighand_create(void);
struct sighand *sighand_dup(struct sighand *old);
struct sighand *sighand_get(struct sighand *s);
void sighand_put(struct sighand *s);
/* exec: handlers to default, ignored stay ignored; altstack off. */
void signal_exec(struct task *t);
void sigpending_init(struct sigpending *p);
void sigpending_flush(struct sigpending *p);
/* @t is about to exit: frees its queue, hands shared signals to another thread, completes a group stop that
 * waited for it. Context: no locks held; t->exiting set. Before t leaves tg->threads. */
void signal_exit_task(struct task *t);

/*
 * Locks the sighand of @t (of @tg). NULL when it has none any more; else signal_unlock() it. A sighand is
 * never returned to the heap (freed ones are reused), so a stale pointer may be locked and rechecked.
 */
struct sighand *signal_lock(struct task *t);
struct sighand *signal_lock_tgroup(struct tgroup *tg);
void signal_unlock(struct sighand *sh);

/*
 * Tells @tg's parent with SIGCHLD (its leader's exit_signal for the CLD_ codes of an exit) and wakes its
 * wait4. Job control calls it from kernel/signal_stop.c, exit from kernel/task_exit.c; kernel/wait.c
 * uses the state in struct tgroup. SA_NOCLDSTOP is obeyed here; auto-reaping is the caller's business.
 * Context: kernel.tasks_mu held, no sighand.mu.
 */
void signal_notify_parent(struct tgroup *tg, int code, int status);
#define SIGNAL_NOTIFY_STOPPED 1
#define SIGNAL_NOTIFY_CONTINUED 2

/* signalfd and sigtimedwait: takes one pending signal out of @mask. Its number (0: none), *ret filled. */
int signal_dequeue(struct task *t, sigset_g mask, struct l_siginfo *ret);

/* ---- frames: kernel/signal_frame.c ---- */

/* Pushes the frame of @sig's handler and points the registers into it. 0 or -EFAULT. */
int signal_setup_frame(struct task *t, int sig, const struct l_sigaction *sa,
		       const struct l_siginfo *info, sigset_g oldmask);
/* rt_sigreturn(2); a bad frame forces SIGSEGV. Returns the new rax. */
long signal_return(struct task *t);
/* Bytes of the CPU's XSAVE area in a frame: AT_MINSIGSTKSZ is this plus SIGNAL_FRAME_FIXED. */
uint32_t signal_frame_fp_size(void);
#define SIGNAL_FRAME_FIXED 1024 /* frame, alignment, red zone, MAGIC2 */
/* sigaltstack(2) on kernel copies; @sp: current stack pointer. 0, -EPERM, -EINVAL, -ENOMEM. */
int signal_set_altstack(struct task *t, const struct l_stack *ss, uint64_t sp);
void signal_get_altstack(const struct task *t, uint64_t sp, struct l_stack *ret);

/* Queues a timer's own entry (no allocation). Context: sighand.mu of @tg held. False: ignored. */
bool signal_queue_timer_locked(struct tgroup *tg, struct task *t, struct sigqueue_entry *e);
/* RLIMIT_SIGPENDING accounting for preallocated entries; err: -EAGAIN. */
int sigqueue_charge(struct task *t, struct sigqueue_entry *e);
void sigqueue_uncharge(struct sigqueue_entry *e);
/* Counts an entry that was loaded with e->charged set. */
void sigqueue_charge_loaded(struct sigqueue_entry *e);
/* Number of queued signals charged to @t's user, for /proc/PID/status. */
unsigned signal_queued_count(struct task *t);

#endif
