// SPDX-License-Identifier: Apache-2.0
/*
 * ptrace(2) of guests by guests. A tracee stops on its own sentry thread, in ptrace_stop(), at well
 * defined points of its loop, where all its registers are in struct task; the tracer reads and writes
 * them there. Everything of the link (task.tracer, tracees, task.ptrace) is guarded by tasks_mu.
 *
 * The fast path of an untraced task is one load of t->ptrace.
 */
#ifndef SENTRY_KERNEL_PTRACE_H
#define SENTRY_KERNEL_PTRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/gaddr.h"
#include "sentry/kernel/task.h"

enum ptrace_sysstop {
	PT_SYS_NONE,
	PT_SYS_ENTRY,
	PT_SYS_EXIT,
	PT_SYS_SECCOMP
};

/* Why a tracee is stopped; decides what PTRACE_LISTEN, GETSIGINFO and the resume signal mean. */
enum ptrace_kind {
	PT_STOP_SIGNAL,
	PT_STOP_EVENT,
	PT_STOP_SYSCALL,
	PT_STOP_GROUP
};

struct ptrace_state {
	bool seized;
	uint32_t options;    /* PTRACE_O_* */
	bool trace_syscalls; /* resumed with PTRACE_SYSCALL */
	bool singlestep;     /* resumed with PTRACE_SINGLESTEP */
	bool sysemu;         /* resumed with PTRACE_SYSEMU(_SINGLESTEP) */
	bool stopped;        /* in ptrace_stop() and the tracer may work on it */
	bool reported;       /* the tracer's wait has seen this stop */
	bool listening;      /* PTRACE_LISTEN */
	bool interrupt;      /* PTRACE_INTERRUPT or a group-stop to report */
	bool killed;         /* PTRACE_KILL */
	enum ptrace_kind kind;
	enum ptrace_sysstop sysstop;
	int stop_code;      /* signal | event << 8, as wait shows it above bit 8 */
	bool tf_set;        /* we set the trap flag, not the guest */
	struct fpstate *fp; /* FP state of the stop; heap */
	bool fp_dirty;      /* to be loaded on resume */
	uint64_t eventmsg;
	struct l_siginfo *info; /* of the stop; on the tracee's stack */
};

static inline bool ptrace_active(const struct task *t)
{
	return t->ptrace != NULL;
}

/*
 * Signal-delivery-stop: called by signal_deliver() with each dequeued signal but SIGKILL, no locks held.
 * Returns the signal to go on with (0: suppressed), possibly another one, and *info for it.
 */
int ptrace_signal_stop_slow(struct task *t, int sig, struct l_siginfo *info);
static inline int ptrace_signal_stop(struct task *t, int sig, struct l_siginfo *info)
{
	return ptrace_active(t) ? ptrace_signal_stop_slow(t, sig, info) : sig;
}

/*
 * Group-stop of a traced thread: in place of sleeping in TASK_STOPPED, @sig being the stop signal.
 * Returns when the tracer resumed it. No locks held. False: not traced, do the normal stop.
 */
bool ptrace_group_stop(struct task *t, int sig);

/*
 * Around a system call. enter: false when the call must be skipped (the tracer set orig_rax to -1, or
 * SYSEMU), with regs.rax as the result.
 */
bool ptrace_syscall_enter_slow(struct task *t);
void ptrace_syscall_exit_slow(struct task *t);
static inline bool ptrace_syscall_enter(struct task *t)
{
	return ptrace_active(t) ? ptrace_syscall_enter_slow(t) : true;
}
static inline void ptrace_syscall_exit(struct task *t)
{
	if (ptrace_active(t))
		ptrace_syscall_exit_slow(t);
}

/* PTRACE_EVENT_* stop if its option is set. @event's number as in <linux/ptrace.h>. */
void ptrace_event(struct task *t, int event, uint64_t msg);
bool ptrace_event_enabled(struct task *t, int event);
/* After a successful exec: PTRACE_EVENT_EXEC, or the historic SIGTRAP. @old_tid: former tid. */
void ptrace_exec_done(struct task *t, uint64_t old_tid);
/* Has the group-stop ended, or begun, since the PTRACE_EVENT_STOP that seized @t is in? tasks_mu held. */
bool ptrace_group_changed_locked(const struct task *t);

/* Seccomp's RET_TRACE. False: nobody listens (the call fails with ENOSYS), or it is to be skipped. */
bool ptrace_seccomp_stop(struct task *t, uint16_t data);
/* Stops asked for by PTRACE_INTERRUPT, and new children that start stopped. Loop's top. */
void ptrace_pending_stops(struct task *t);
/* Sets or clears the trap flag before the guest runs. */
void ptrace_prepare_run(struct task *t);
/* A new child of a traced @t, before it starts: attaches it to the same tracer. tasks_mu held. */
void ptrace_clone_locked(struct task *t, struct task *child, int event);

/* ---- links; tasks_mu held ---- */
void ptrace_link_locked(struct task *tracer, struct task *tracee, bool seize,
			uint32_t options);
void ptrace_unlink_locked(struct task *tracee);
/* @t, a tracer, exits: detaches (or kills, PTRACE_O_EXITKILL) its tracees. */
void ptrace_tracer_exit_locked(struct task *t);
/* Tells the tracer (SIGCHLD, its child_wq) about @t's stop. @why: CLD_TRAPPED or CLD_STOPPED. */
void ptrace_notify_tracer_locked(struct task *t, int why, int status);

/* ---- saving a tracee that is stopped: kernel/task_state.c, task_run.c ---- */

/* Is all of the stop in @pt and the task? */
bool ptrace_stop_savable(const struct ptrace_state *pt);
/* Is some tracee stopped where it can't be saved? While frozen. Takes tasks_mu. */
bool ptrace_any_unsavable(void);
struct ptrace_rejoin {
	enum ptrace_kind kind;
	enum ptrace_sysstop sysstop;
	int code;
	bool sysemu;
	struct l_siginfo info; /* of the stop; PT_STOP_SIGNAL: of the signal to deliver */
};
/* What a loaded task has to know of the stop that it is in; heap. */
struct ptrace_rejoin *ptrace_rejoin_prepare(struct ptrace_state *pt);
/* It goes back into its stop, and comes out of it here: the signal that it goes on with. */
int ptrace_rejoin_stop(struct task *t, struct ptrace_rejoin *r);

/* ptrace(2). */
long ptrace_call(struct task *t, int request, int pid, uint64_t addr, uint64_t data);

#endif
