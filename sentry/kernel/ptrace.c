// SPDX-License-Identifier: Apache-2.0
/*
 * ptrace(2): links between tracers and tracees, and the tracee's side of stops. The requests are in
 * ptrace_req.c.
 *
 * A tracee stops in ptrace_stop() on its own thread and sleeps there until its tracer resumes it, detaches,
 * or it is killed. A tracer may vanish at any time, so the tracee looks at t->ptrace only with tasks_mu
 * held (but for the "am I traced at all" test of the fast path).
 *
 * FP state belongs to the tracee's thread, so it is fetched at each stop and loaded again if changed.
 */
#include "sentry/kernel/ptrace.h"

#include <linux/ptrace.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"

#define EFLAGS_TF 0x100u

/* ---- links ---- */

void ptrace_link_locked(struct task *tracer, struct task *tracee, bool seize,
			uint32_t options)
{
	struct ptrace_state *pt = kzalloc(sizeof(*pt));

	mutex_assert_held(&kernel.tasks_mu);
	pt->seized = seize;
	pt->options = options;
	tracee->tracer = tracer;
	tracee->ptrace = pt;
	list_add_tail(&tracer->tracees, &tracee->tracee_node);
}

void ptrace_unlink_locked(struct task *tracee)
{
	struct ptrace_state *pt = tracee->ptrace;

	mutex_assert_held(&kernel.tasks_mu);
	if (!pt)
		return;
	if (pt->tf_set)
		tracee->regs.eflags &= ~(uint64_t)EFLAGS_TF;
	list_del(&tracee->tracee_node);
	tracee->tracer = NULL;
	tracee->ptrace = NULL;
	if (pt->stopped)
		freeze_hand_over(tracee);
	free(pt->fp);
	free(pt);
	task_wake_killable(tracee);
}

void ptrace_tracer_exit_locked(struct task *t)
{
	struct task *c, *tmp;

	list_for_each_safe(c, tmp, &t->tracees, tracee_node) {
		bool kill = c->ptrace->options & PTRACE_O_EXITKILL;
		bool zombie = atomic_load(&c->state) >= TASK_ZOMBIE;

		c->ptrace_resume_sig = 0;
		ptrace_unlink_locked(c);
		if (kill)
			tgroup_kill_locked(c->tg, SIGKILL);
		if (zombie && c != c->tg->leader)
			task_release_locked(c);
		else if (zombie)
			tgroup_check_zombie_locked(c->tg);
	}
}

void ptrace_notify_tracer_locked(struct task *t, int why, int status)
{
	struct tgroup *tg = t->tracer->tg;
	struct l_siginfo info = { .si_signo = SIGCHLD, .si_code = why };
	struct cred *c = task_cred_get(t), *tc = task_cred_get(t->tracer);

	info.chld.pid = pid_nr(t->pid, tg->pid->ns);
	info.chld.uid = userns_show_uid(tc->userns, c->uid);
	info.chld.status = status;
	cred_put(c);
	cred_put(tc);
	(void)signal_send_tgroup(tg, SIGCHLD, &info);
	waitq_wake(&tg->child_wq, EPOLLIN);
}

void ptrace_clone_locked(struct task *t, struct task *child, int event)
{
	(void)event;
	ptrace_link_locked(t->tracer, child, t->ptrace->seized, t->ptrace->options);
	if (t->ptrace->seized)
		child->ptrace->interrupt = true; /* PTRACE_EVENT_STOP */
	else
		child->pending.set |= SIGBIT(SIGSTOP);
	atomic_store(&child->sigpending, true);
}

/* ---- stopping ---- */

/*
 * Linux' JOBCTL_TRAP_NOTIFY: the group stopped or went on after this stop began. A seized tracee stops once more to
 * tell its tracer. Read without sighand's lock: whoever changes group_stop wakes us afterwards.
 */
bool ptrace_group_changed_locked(const struct task *t)
{
	const struct ptrace_state *pt = t->ptrace;

	mutex_assert_held(&kernel.tasks_mu);
	return pt && pt->seized && pt->stop_code >> 8 == PTRACE_EVENT_STOP &&
	       (pt->kind == PT_STOP_GROUP) != READ_ONCE(t->tg->group_stop);
}

static bool resumed(struct task *t)
{
	AUTO_LOCK(&kernel.tasks_mu);

	return !t->ptrace || !t->ptrace->stopped ||
	       (t->ptrace->listening && ptrace_group_changed_locked(t));
}

/* PTRACE_EVENT_EXIT: the task is exiting anyway, only a SIGKILL hurries it. */
static bool sigkill_pending(struct task *t)
{
	return (READ_ONCE(t->pending.set) | READ_ONCE(t->tg->pending.set)) &
	       SIGBIT(SIGKILL);
}

static bool resumed_or_killed(struct task *t)
{
	return sigkill_pending(t) || resumed(t);
}

struct stop {
	enum ptrace_kind kind;
	bool exiting;
	int code;
	struct l_siginfo *info;
	enum ptrace_sysstop sysstop;
	bool has_msg;
	uint64_t msg;
};

static bool stop_begin(struct task *t, const struct stop *s, struct fpstate *fp)
{
	struct ptrace_state *pt;
	AUTO_LOCK(&kernel.tasks_mu);

	pt = t->ptrace;
	if (!pt || (s->exiting ? sigkill_pending(t) : signal_fatal_pending(t)))
		return false;
	if (pt->tf_set) {
		t->regs.eflags &= ~(uint64_t)EFLAGS_TF;
		pt->tf_set = false;
	}
	free(pt->fp);
	pt->fp = fp;
	pt->fp_dirty = false;
	pt->kind = s->kind;
	pt->stop_code = s->code;
	pt->info = s->info;
	pt->sysstop = s->sysstop;
	if (s->has_msg)
		pt->eventmsg = s->msg;
	pt->reported = false;
	pt->listening = false;
	pt->stopped = true;
	t->ptrace_resume_sig = 0;
	atomic_store(&t->state, TASK_TRACED);
	ptrace_notify_tracer_locked(
		t, s->kind == PT_STOP_GROUP ? CLD_STOPPED : CLD_TRAPPED, s->code & 0x7f);
	return true;
}

/* The tracer has resumed us, detached, or vanished. The signal that we go on with. */
static int stop_end(struct task *t, const struct stop *s)
{
	struct fpstate *load = NULL;
	int sig;

	mutex_lock(&kernel.tasks_mu);
	sig = t->ptrace_resume_sig;
	if (t->ptrace) {
		if (s->kind == PT_STOP_GROUP && ptrace_group_changed_locked(t))
			t->ptrace->interrupt = true; /* a stop with SIGTRAP tells of it */
		t->ptrace->stopped = false;
		t->ptrace->listening = false;
		t->ptrace->info = NULL;
		if (t->ptrace->fp_dirty)
			load = t->ptrace->fp;
		else
			free(t->ptrace->fp);
		t->ptrace->fp = NULL;
	}
	atomic_store(&t->state, TASK_RUNNING);
	freeze_take_over(t);
	mutex_unlock(&kernel.tasks_mu);
	if (load && t->ctx)
		(void)plat->ctx_set_fp(
			t->ctx, load); /* a state that the CPU refuses is dropped */
	free(load);
	return sig;
}

/* The signal that the tracer resumed us with, 0 if none. */
static int ptrace_stop(struct task *t, const struct stop *s)
{
	struct fpstate *fp = kzalloc(sizeof(*fp));

	if (!t->ctx || plat->ctx_get_fp(t->ctx, fp))
		fp->size = 0;
	if (!stop_begin(t, s, fp)) {
		free(fp);
		return s->kind == PT_STOP_SIGNAL ? s->code : 0;
	}
	if (s->exiting)
		task_wait_done(t, resumed_or_killed);
	else
		(void)task_wait_killable(t, resumed);
	return stop_end(t, s);
}

static void trap_info(struct task *t, struct l_siginfo *info, int code)
{
	memset(info, 0, sizeof(*info));
	info->si_signo = SIGTRAP;
	info->si_code = code;
	info->kill.pid = task_tgid(t);
	info->kill.uid = userns_show_uid(t->cred->userns, t->cred->uid);
}

/* man 2 ptrace: another signal than the one it stopped for looks as if the tracer sent it. */
static int replace_signal(int ret, int sig, struct l_siginfo *info)
{
	if (ret && ret != sig) {
		memset(info, 0, sizeof(*info));
		info->si_signo = ret;
		info->si_code = SI_USER;
	}
	return ret;
}

int ptrace_signal_stop_slow(struct task *t, int sig, struct l_siginfo *info)
{
	struct stop s = { .kind = PT_STOP_SIGNAL, .code = sig, .info = info };

	return replace_signal(ptrace_stop(t, &s), sig, info);
}

/* ---- saved while stopped ---- */

bool ptrace_stop_savable(const struct ptrace_state *pt)
{
	switch (pt->kind) {
	case PT_STOP_SIGNAL:
	case PT_STOP_GROUP:
		return true;
	case PT_STOP_SYSCALL:
		return pt->sysstop == PT_SYS_ENTRY || pt->sysstop == PT_SYS_EXIT;
	case PT_STOP_EVENT: /* others come in the middle of a call */
		return pt->stop_code >> 8 == PTRACE_EVENT_STOP;
	}
	return false;
}

bool ptrace_any_unsavable(void)
{
	struct task *t;
	AUTO_LOCK(&kernel.tasks_mu);

	list_for_each(t, &kernel.all_tasks, all_node)
		if (t->ptrace && t->ptrace->stopped && !ptrace_stop_savable(t->ptrace))
			return true;
	return false;
}

struct ptrace_rejoin *ptrace_rejoin_prepare(struct ptrace_state *pt)
{
	struct ptrace_rejoin *r = kzalloc(sizeof(*r));

	r->kind = pt->kind;
	r->code = pt->stop_code;
	r->sysstop = pt->sysstop;
	r->sysemu = pt->sysemu;
	if (pt->info)
		r->info = *pt->info;
	free(pt->info);
	pt->info = &r->info; /* as if on the tracee's stack: until stop_end() */
	return r;
}

/* The second half of ptrace_stop(); the tracer may have resumed us already. */
int ptrace_rejoin_stop(struct task *t, struct ptrace_rejoin *r)
{
	struct stop s = { .kind = r->kind, .code = r->code };
	int sig;

	atomic_store(&t->state, TASK_TRACED);
	(void)task_wait_killable(t, resumed);
	sig = stop_end(t, &s);
	if (r->kind == PT_STOP_SIGNAL)
		sig = replace_signal(sig, r->code, &r->info);
	else if (sig && r->kind == PT_STOP_SYSCALL)
		(void)signal_send_task(t, sig, NULL);
	return sig;
}

bool ptrace_group_stop(struct task *t, int sig)
{
	struct l_siginfo info;
	struct stop s = { .kind = PT_STOP_GROUP, .code = sig };
	bool traced, seized = false;

	mutex_lock(&kernel.tasks_mu);
	traced = t->ptrace != NULL;
	if (traced) {
		seized = t->ptrace->seized;
		t->ptrace->interrupt = false;
	}
	mutex_unlock(&kernel.tasks_mu);
	if (!traced)
		return false;
	if (seized) {
		trap_info(t, &info, sig | PTRACE_EVENT_STOP << 8);
		s.info = &info;
		s.code = sig | PTRACE_EVENT_STOP << 8;
	}
	(void)ptrace_stop(t, &s);
	return true;
}

/* ---- system calls ---- */

static bool want_syscall(struct task *t, bool exit, bool *ret_sysemu, int *ret_code)
{
	struct ptrace_state *pt;
	bool want;
	AUTO_LOCK(&kernel.tasks_mu);

	pt = t->ptrace;
	if (!pt)
		return false;
	*ret_sysemu = pt->sysemu && !exit;
	want = pt->trace_syscalls || *ret_sysemu;
	*ret_code = pt->options & PTRACE_O_TRACESYSGOOD ? SIGTRAP | 0x80 : SIGTRAP;
	return want;
}

static void syscall_stop(struct task *t, enum ptrace_sysstop which, int code)
{
	struct l_siginfo info;
	struct stop s = { .kind = PT_STOP_SYSCALL,
			  .code = code,
			  .info = &info,
			  .sysstop = which,
			  .has_msg = true,
			  .msg = which == PT_SYS_ENTRY ? PTRACE_EVENTMSG_SYSCALL_ENTRY
						       : PTRACE_EVENTMSG_SYSCALL_EXIT };
	int sig;

	trap_info(t, &info, code);
	sig = ptrace_stop(t, &s);
	if (sig)
		(void)signal_send_task(t, sig, NULL);
}

bool ptrace_syscall_enter_slow(struct task *t)
{
	bool sysemu = false;
	int code = 0;

	if (!want_syscall(t, false, &sysemu, &code))
		return true;
	syscall_stop(t, PT_SYS_ENTRY, code);
	t->sysno = (long)t->regs.orig_rax;
	return !sysemu && (int64_t)t->regs.orig_rax >= 0 && !atomic_load(&t->exiting);
}

void ptrace_syscall_exit_slow(struct task *t)
{
	bool sysemu = false;
	int code = 0;

	if (want_syscall(t, true, &sysemu, &code))
		syscall_stop(t, PT_SYS_EXIT, code);
}

/* ---- events ---- */

bool ptrace_event_enabled(struct task *t, int event)
{
	AUTO_LOCK(&kernel.tasks_mu);

	return t->ptrace && (t->ptrace->options & (1u << event));
}

static void event_stop(struct task *t, int event, uint64_t msg,
		       enum ptrace_sysstop sysstop)
{
	struct l_siginfo info;
	struct stop s = { .kind = PT_STOP_EVENT,
			  .code = SIGTRAP | event << 8,
			  .info = &info,
			  .sysstop = sysstop,
			  .has_msg = true,
			  .msg = msg,
			  .exiting = event == PTRACE_EVENT_EXIT };

	trap_info(t, &info, s.code);
	(void)ptrace_stop(t, &s);
}

void ptrace_event(struct task *t, int event, uint64_t msg)
{
	if (ptrace_event_enabled(t, event))
		event_stop(t, event, msg, PT_SYS_NONE);
}

void ptrace_exec_done(struct task *t, uint64_t old_tid)
{
	bool seized;

	if (ptrace_event_enabled(t, PTRACE_EVENT_EXEC)) {
		event_stop(t, PTRACE_EVENT_EXEC, old_tid, PT_SYS_NONE);
		return;
	}
	mutex_lock(&kernel.tasks_mu);
	seized = !t->ptrace || t->ptrace->seized;
	mutex_unlock(&kernel.tasks_mu);
	if (!seized)
		(void)signal_send_task(t, SIGTRAP, NULL);
}

bool ptrace_seccomp_stop(struct task *t, uint16_t data)
{
	if (!ptrace_active(t) || !ptrace_event_enabled(t, PTRACE_EVENT_SECCOMP)) {
		t->regs.rax = (uint64_t)-ENOSYS;
		return false;
	}
	event_stop(t, PTRACE_EVENT_SECCOMP, data, PT_SYS_SECCOMP);
	t->sysno = (long)t->regs.orig_rax;
	return (int64_t)t->regs.orig_rax >= 0 && !atomic_load(&t->exiting);
}

static bool take_interrupt(struct task *t, bool *ret_group)
{
	AUTO_LOCK(&kernel.tasks_mu);

	*ret_group = READ_ONCE(t->tg->group_stop);
	if (!t->ptrace || !t->ptrace->interrupt ||
	    (*ret_group && !READ_ONCE(t->stop_parked)))
		return false;
	t->ptrace->interrupt = false;
	return true;
}

/*
 * As Linux' do_jobctl_trap(): the stop carries the signal that has the group stopped, else SIGTRAP. A group-stop that
 * this thread has yet to join reports itself.
 */
void ptrace_pending_stops(struct task *t)
{
	bool group = false;

	/* again and again: what ends such a stop may ask for the next */
	while (take_interrupt(t, &group)) {
		if (group)
			(void)ptrace_group_stop(t, READ_ONCE(t->tg->stop_signal));
		else
			event_stop(t, PTRACE_EVENT_STOP, 0, PT_SYS_NONE);
	}
}

void ptrace_prepare_run(struct task *t)
{
	AUTO_LOCK(&kernel.tasks_mu);

	if (!t->ptrace || !t->ptrace->singlestep || (t->regs.eflags & EFLAGS_TF))
		return;
	t->regs.eflags |= EFLAGS_TF;
	t->ptrace->tf_set = true;
}
