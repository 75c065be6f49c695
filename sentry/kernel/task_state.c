// SPDX-License-Identifier: Apache-2.0
/*
 * Saving and loading tasks and signal handlers. Processes, which own the lists of their threads and all
 * queues of pending signals, are in tgroup_state.c.
 *
 * A task is saved as it stands at its loop's top or in one of the sleeps that count as such: its registers,
 * whether it is in the middle of a call (then the call is made again, see freeze.c), in a job-control stop, or
 * waiting for its vfork child, or stopped for its tracer. Stops that tell of a fork, exec or exit come in the
 * middle of that, and are refused, by name.
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/fp_state.h"
#include "sentry/kernel/kernel_state.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/kernel/signal_priv.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/mm_state.h"
#include "sentry/vfs/vfs.h"

/* Flags that user code can have set: CF PF AF ZF SF TF IF DF OF NT AC ID, and the one that is always set. */
#define EFLAGS_USER 0x244fd7u
#define EFLAGS_ALWAYS 0x202u /* IF, and bit 1 */
#define ADDR_END 0x800000000000ULL

static void addr_field(struct state *s, gaddr_t *a)
{
	uint64_t v = gaddr_u64(*a);

	state_u64(s, &v);
	*a = gaddr(v); /* any value: whoever uses it checks it as it would the guest's own */
}

/* An enum or a small int by way of its range. */
static void int_field(struct state *s, int *v, int64_t min, int64_t max)
{
	int64_t x = *v;

	state_range_i64(s, &x, min, max);
	*v = (int)x;
}

/* ---- registers ---- */

static void regs_fields(struct state *s, struct regs *r)
{
	state_bytes(s, r, sizeof(*r));
	if (!state_loading(s))
		return;
	r->cs = GUEST_CS;
	r->ss = GUEST_SS;
	r->ds = r->es = 0;
	r->eflags = (r->eflags & EFLAGS_USER) | EFLAGS_ALWAYS;
	if (r->fs_base >= ADDR_END || r->gs_base >= ADDR_END || r->rip >= ADDR_END ||
	    r->fs > UINT16_MAX || r->gs > UINT16_MAX)
		state_fail(s, "registers that no program can have");
	r->fs = r->gs = 0;
}

static void fp_field(struct state *s, struct task *t)
{
	struct fpstate *fp = t->freeze.fp && t->freeze.fp->size ? t->freeze.fp : t->start_fp;

	state_fp(s, &fp);
	if (state_loading(s))
		t->start_fp = fp;
}

/* ---- calls ---- */

static void restart_fields(struct state *s, struct restart_block *r)
{
	int64_t kind = r->kind;

	state_range_i64(s, &kind, 0, RESTART_KIND_COUNT - 1);
	r->kind = (enum restart_kind)kind;
	switch (r->kind) {
	case RESTART_NANOSLEEP:
		state_i32(s, &r->nanosleep.clock);
		state_i64(s, &r->nanosleep.deadline_ns);
		addr_field(s, &r->nanosleep.rem);
		break;
	case RESTART_FUTEX:
		addr_field(s, &r->futex.uaddr);
		state_u32(s, &r->futex.val);
		state_u32(s, &r->futex.bitset);
		state_i32(s, &r->futex.op);
		state_i64(s, &r->futex.deadline_ns);
		break;
	case RESTART_POLL:
		addr_field(s, &r->poll.fds);
		state_u64(s, &r->poll.nfds);
		state_i64(s, &r->poll.deadline_ns);
		break;
	case RESTART_NONE:
	case RESTART_KIND_COUNT:
		break;
	}
}

static void call_fields(struct state *s, struct task *t)
{
	int64_t sysno = t->sysno;
	uint64_t progress = t->freeze.progress;
	int vfork_nr = t->vfork_nr;
	bool vfork_done = atomic_load(&t->vfork_done);

	state_bool(s, &t->in_syscall);
	state_i64(s, &sysno);
	t->sysno = sysno;
	restart_fields(s, &t->restart);
	state_bool(s, &t->freeze.redo);
	state_i64(s, &t->freeze.deadline_ns);
	state_u64(s, &progress);
	t->freeze.progress = progress;
	int_field(s, &vfork_nr, 0, PID_MAX_DEFAULT);
	t->vfork_nr = vfork_nr;
	state_bool(s, &vfork_done);
	atomic_store(&t->vfork_done, vfork_done);
	state_ref(s, &state_task, &t->vfork_waiter);
	if (state_loading(s) && t->in_syscall && (int64_t)t->regs.orig_rax < 0 && t->freeze.redo)
		state_fail(s, "a call without a number");
}

/* ---- signals ---- */

static void signal_fields(struct state *s, struct task *t)
{
	state_u64(s, &t->blocked);
	state_u64(s, &t->saved_blocked);
	t->blocked &= ~SIGSET_UNBLOCKABLE;
	t->saved_blocked &= ~SIGSET_UNBLOCKABLE;
	state_bool(s, &t->has_saved_blocked);
	state_u64(s, &t->altstack.ss_sp);
	state_i32(s, &t->altstack.ss_flags);
	state_u64(s, &t->altstack.ss_size);
	state_bool(s, &t->stop_parked);
	state_u64(s, &t->trap.err);
	state_u64(s, &t->trap.trapno);
	state_u64(s, &t->trap.cr2);
}

/* ---- tracing ---- */

static void refuse_stopped(struct state *s, struct task *t)
{
	state_fail(s, "process %d (%s) is stopped for its tracer %d (%s)",
		   pid_nr(t->pid, kernel.init_pidns), t->comm,
		   t->tracer ? pid_nr(t->tracer->pid, kernel.init_pidns) : 0,
		   t->tracer ? t->tracer->comm : "");
}

/* Where the tracee stands, and what its tracer has read or changed of it. */
static void stop_fields(struct state *s, struct ptrace_state *pt)
{
	int64_t kind = pt->kind, sysstop = pt->sysstop;
	bool info = pt->info != NULL;

	state_bool(s, &pt->reported);
	state_bool(s, &pt->listening);
	state_range_i64(s, &kind, PT_STOP_SIGNAL, PT_STOP_GROUP);
	pt->kind = (enum ptrace_kind)kind;
	state_range_i64(s, &sysstop, PT_SYS_NONE, PT_SYS_SECCOMP);
	pt->sysstop = (enum ptrace_sysstop)sysstop;
	state_fp(s, &pt->fp);
	state_bool(s, &pt->fp_dirty);
	state_bool(s, &info);
	if (state_loading(s) && info)
		pt->info = kzalloc(sizeof(*pt->info));
	if (info)
		state_bytes(s, pt->info, sizeof(*pt->info));
	if (!ptrace_stop_savable(pt) ||
	    (pt->kind == PT_STOP_SIGNAL && (pt->stop_code < 1 || pt->stop_code > NSIG_GUEST)))
		state_fail(s, "a stop that can't be");
}

static void ptrace_fields(struct state *s, struct task *t)
{
	struct ptrace_state *pt = t->ptrace;
	bool traced = pt != NULL;

	if (pt && pt->stopped && !ptrace_stop_savable(pt))
		refuse_stopped(s, t);
	state_bool(s, &traced);
	if (!traced)
		return;
	if (state_loading(s))
		pt = t->ptrace = kzalloc(sizeof(*pt));
	state_ptr(s, &state_task, &t->tracer);
	state_bool(s, &pt->seized);
	state_u32(s, &pt->options);
	state_bool(s, &pt->trace_syscalls);
	state_bool(s, &pt->singlestep);
	state_bool(s, &pt->sysemu);
	state_bool(s, &pt->interrupt);
	state_bool(s, &pt->tf_set);
	state_i32(s, &pt->stop_code);
	state_u64(s, &pt->eventmsg);
	state_i32(s, &t->ptrace_resume_sig);
	state_bool(s, &pt->stopped);
	if (pt->stopped)
		stop_fields(s, pt);
}

/* ---- attributes ---- */

void state_usage(struct state *s, struct task_usage *u)
{
	uint64_t *v[] = { &u->utime_ns, &u->stime_ns, &u->minflt, &u->majflt, &u->inblock,
			  &u->oublock,  &u->nvcsw,    &u->nivcsw, &u->maxrss_kb };

	for (unsigned i = 0; i < ARRAY_SIZE(v); i++)
		state_u64(s, v[i]);
}

static void usage_fields(struct state *s, struct task *t)
{
	struct task_usage u = t->usage;

	if (!state_loading(s))
		task_usage_get(t, &u);
	state_usage(s, &u);
	if (!state_loading(s))
		return;
	t->usage = u;
	t->utime_base_ns = u.utime_ns;
	t->stime_base_ns = u.stime_ns;
}

static void attribute_fields(struct state *s, struct task *t)
{
	int_field(s, &t->nice, -20, 19);
	int_field(s, &t->sched_policy, 0, 7);
	int_field(s, &t->sched_prio, 0, 99);
	state_bool(s, &t->sched_reset_on_fork);
	state_u64(s, &t->cpumask);
	state_i32(s, &t->mempolicy);
	state_u64(s, &t->timer_slack_ns);
	state_u64(s, &t->timer_slack_default_ns);
	state_bool(s, &t->no_new_privs);
	int_field(s, &t->pdeath_signal, 0, NSIG_GUEST);
	state_u32(s, &t->personality);
	state_u32(s, &t->ioprio);
	state_ref(s, &state_seccomp, &t->seccomp);
	int_field(s, &t->seccomp_mode, 0, 2);
	addr_field(s, &t->rseq);
	state_u32(s, &t->rseq_len);
	state_u32(s, &t->rseq_sig);
	state_ref(s, &state_sem_undo, &t->sem_undo);
}

static void life_fields(struct state *s, struct task *t)
{
	bool exiting = atomic_load(&t->exiting);

	addr_field(s, &t->clear_child_tid);
	addr_field(s, &t->robust_list);
	state_u64(s, &t->robust_len);
	addr_field(s, &t->set_child_tid);
	state_i32(s, &t->exit_code);
	int_field(s, &t->exit_signal, -1, NSIG_GUEST);
	state_bool(s, &exiting);
	atomic_store(&t->exiting, exiting);
	state_bool(s, &t->killed_by_exec);
	state_u64(s, &t->start_ns);
}

/* ---- the task ---- */

static void *task_alloc_obj(struct state *s)
{
	(void)s;
	return task_alloc();
}

/* A frozen task is alive and running, whatever it was doing, or a zombie, or one that is to be started. */
static void state_field(struct state *s, struct task *t)
{
	int64_t st = atomic_load(&t->state);

	if (!state_loading(s) && st != TASK_NEW && st < TASK_ZOMBIE)
		st = TASK_RUNNING;
	state_range_i64(s, &st, TASK_NEW, TASK_DEAD);
	atomic_store(&t->state, (int)st);
}

static void task_fields(struct state *s, void *obj)
{
	struct task *t = obj;

	state_ref(s, &state_pid, &t->pid);
	state_ref(s, &state_tgroup, &t->tg);
	state_field(s, t);
	state_str(s, t->comm, sizeof(t->comm));
	state_ref(s, &state_cred, &t->cred);
	state_ref(s, &state_sighand, &t->sighand);
	state_ref(s, &state_mm, &t->mm);
	state_ref(s, &state_files, &t->files);
	state_ref(s, &state_fsctx, &t->fs);
	state_ref(s, &state_nsproxy, &t->ns);
	regs_fields(s, &t->regs);
	fp_field(s, t);
	call_fields(s, t);
	signal_fields(s, t);
	ptrace_fields(s, t);
	usage_fields(s, t);
	attribute_fields(s, t);
	life_fields(s, t);
}

static bool task_ok(const struct task *t)
{
	bool live = atomic_load(&t->state) < TASK_ZOMBIE;

	if (!t->pid || !t->tg || !t->cred || !t->sighand)
		return false;
	if (live != !!t->mm || live != !!t->files || live != !!t->fs || live != !!t->ns)
		return false;
	if (t->seccomp_mode == 2 && !t->seccomp)
		return false;
	return !t->ptrace || t->tracer;
}

static void task_finish(struct state *s, void *obj)
{
	struct task *t = obj;

	if (!task_ok(t)) {
		state_fail(s, "a part is missing, or too much");
		return;
	}
	if (t->ptrace) {
		list_add_tail(&t->tracer->tracees, &t->tracee_node);
		if (t->ptrace->stopped)
			t->rejoin = ptrace_rejoin_prepare(t->ptrace);
	}
	if (!t->mm)
		return;
	mm_state_use(t->mm);
	t->loaded = true;
	t->need_spare = true;
	atomic_store(&t->interrupted, true); /* looks around first */
}

static void *task_get_obj(void *obj)
{
	return task_get(obj);
}

static void task_put_obj(void *obj)
{
	task_put(obj);
}

const struct state_type state_task = {
	.id = STATE_TASK,
	.version = 1,
	.name = "task",
	.alloc = task_alloc_obj,
	.fields = task_fields,
	.finish = task_finish,
	.get = task_get_obj,
	.put = task_put_obj,
	.phase = 6,
};

/* ---- signal handlers ---- */

static void *sighand_alloc(struct state *s)
{
	(void)s;
	return sighand_create();
}

static void sighand_fields(struct state *s, void *obj)
{
	struct sighand *sh = obj;

	for (int i = 0; i < NSIG_GUEST; i++) {
		struct l_sigaction *sa = &sh->action[i];

		state_u64(s, &sa->handler);
		state_u64(s, &sa->flags);
		state_u64(s, &sa->restorer);
		state_u64(s, &sa->mask);
		sa->mask &= ~SIGSET_UNBLOCKABLE;
		if ((SIGSET_UNBLOCKABLE & SIGBIT(i + 1)) && sa->handler != SIG_DFL_G)
			state_fail(s, "a handler for signal %d", i + 1);
	}
}

static void *sighand_get_obj(void *obj)
{
	return sighand_get(obj);
}

static void sighand_put_obj(void *obj)
{
	sighand_put(obj);
}

const struct state_type state_sighand = {
	.id = STATE_SIGHAND,
	.version = 1,
	.name = "signal handlers",
	.alloc = sighand_alloc,
	.fields = sighand_fields,
	.get = sighand_get_obj,
	.put = sighand_put_obj,
};
