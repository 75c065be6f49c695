// SPDX-License-Identifier: Apache-2.0
/*
 * wait4(2) and waitid(2). One scan over the children and tracees under tasks_mu finds something to
 * report, or tells whether there is anything to wait for at all.
 *
 * Two kinds of candidates: child processes of the caller's group (with __WNOTHREAD: of the calling
 * thread), and single threads that the caller's group traces. A child that is traced by another process
 * reports its exit to the tracer first; until then it exists for the parent but has nothing to say.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/err.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/ptrace.h"

enum verdict {
	W_NONE,
	W_ELIGIBLE,
	W_FOUND
};

static bool matches(const struct wait_opts *o, const struct pid *pid,
		    const struct tgroup *tg)
{
	switch (o->type) {
	case P_PID:
		return pid == o->pid;
	case P_PGID:
		return tg->pgrp == o->pid;
	default:
		return true;
	}
}

static bool clone_rule(const struct wait_opts *o, const struct task *leader, bool traced)
{
	if (traced || (o->options & __WALL))
		return true;
	return (leader->exit_signal != SIGCHLD) == !!((unsigned)o->options & __WCLONE);
}

static void fill(struct task *t, struct task *child, struct wait_result *r, int code,
		 int status)
{
	struct cred *c = task_cred_get(child);

	memset(r, 0, sizeof(*r));
	r->pid = pid_nr(child->pid, task_pidns(t));
	r->uid = userns_show_uid(t->cred->userns, c->uid);
	r->code = code;
	r->cld_status = status;
	cred_put(c);
}

static void fill_exit(struct task *t, struct task *child, struct wait_result *r,
		      int status)
{
	bool sig = WIFSIGNALED(status);

	fill(t, child, r,
	     sig ? (WCOREDUMP(status) ? CLD_DUMPED : CLD_KILLED) : CLD_EXITED,
	     sig ? WTERMSIG(status) : WEXITSTATUS(status));
	r->status = status;
}

/* ---- processes ---- */

static void reap_locked(struct task *t, struct tgroup *c, struct wait_result *r)
{
	task_usage_add(&t->tg->child_usage, &r->usage);
	task_release_locked(c->leader);
}

static enum verdict try_zombie(struct task *t, struct tgroup *c,
			       const struct wait_opts *o, struct wait_result *r)
{
	if (!(o->options & WEXITED))
		return W_ELIGIBLE;
	fill_exit(t, c->leader, r, tgroup_exit_status(c));
	r->usage = c->dead_usage;
	task_usage_add(&r->usage, &c->child_usage);
	if (!(o->options & WNOWAIT))
		reap_locked(t, c, r);
	return W_FOUND;
}

/* Stopped and continued reports. sighand.mu guards both. */
static enum verdict try_jobctl(struct task *t, struct tgroup *c,
			       const struct wait_opts *o, struct wait_result *r)
{
	struct sighand *sh = signal_lock_tgroup(c);
	bool keep = o->options & WNOWAIT, stopped, cont;
	int sig;

	if (!sh)
		return W_ELIGIBLE;
	sig = c->stop_signal;
	stopped = (o->options & WUNTRACED) && c->group_stop && c->stop_complete &&
		  !c->stop_reported;
	cont = !stopped && (o->options & WCONTINUED) && c->continued;
	if (stopped && !keep)
		c->stop_reported = true;
	if (cont && !keep)
		c->continued = false;
	signal_unlock(sh);
	if (stopped) {
		fill(t, c->leader, r, CLD_STOPPED, sig);
		r->status = sig << 8 | 0x7f;
		return W_FOUND;
	}
	if (cont) {
		fill(t, c->leader, r, CLD_CONTINUED, SIGCONT);
		r->status = 0xffff;
		return W_FOUND;
	}
	return W_ELIGIBLE;
}

static enum verdict try_child(struct task *t, struct tgroup *c, const struct wait_opts *o,
			      struct wait_result *r)
{
	struct task *leader = c->leader;

	if (!matches(o, c->pid, c) || !clone_rule(o, leader, false))
		return W_NONE;
	if (leader->tracer && leader->tracer->tg != t->tg)
		return c->zombie ? W_ELIGIBLE : try_jobctl(t, c, o, r);
	if (leader->tracer) /* our own tracee: try_tracee() reports it, but for the exit */
		return c->zombie ? try_zombie(t, c, o, r) : W_ELIGIBLE;
	return c->zombie ? try_zombie(t, c, o, r) : try_jobctl(t, c, o, r);
}

/* ---- tracees ---- */

static enum verdict try_traced_exit(struct task *t, struct task *c,
				    const struct wait_opts *o, struct wait_result *r)
{
	struct tgroup *tg = c->tg;
	bool leader = tg->leader == c;

	if (leader && !tg->zombie)
		return W_ELIGIBLE; /* its other threads come first */
	if (leader && tg->parent == t->tg)
		return W_ELIGIBLE; /* also our child: try_child() */
	if (!(o->options & WEXITED))
		return W_ELIGIBLE;
	fill_exit(t, c, r, leader ? tgroup_exit_status(tg) : c->exit_code);
	r->usage = leader ? tg->dead_usage : c->usage;
	if (o->options & WNOWAIT)
		return W_FOUND;
	ptrace_unlink_locked(c);
	if (!leader) {
		tgroup_get(tg);
		task_release_locked(c);
		tgroup_check_zombie_locked(tg);
		tgroup_put(tg);
	} else if (exit_notify_parent_locked(tg)) {
		task_release_locked(c);
	}
	return W_FOUND;
}

static enum verdict try_tracee(struct task *t, struct task *c, const struct wait_opts *o,
			       struct wait_result *r)
{
	struct ptrace_state *pt = c->ptrace;

	if (!matches(o, c->pid, c->tg) || !clone_rule(o, c, true))
		return W_NONE;
	if (atomic_load(&c->state) >= TASK_ZOMBIE)
		return try_traced_exit(t, c, o, r);
	if (!pt || !pt->stopped || pt->reported || pt->listening)
		return W_ELIGIBLE;
	if (!(o->options & WNOWAIT))
		pt->reported = true;
	fill(t, c, r, pt->kind == PT_STOP_GROUP ? CLD_STOPPED : CLD_TRAPPED,
	     pt->stop_code);
	r->status = pt->stop_code << 8 | 0x7f;
	return W_FOUND;
}

static enum verdict scan_tracees(struct task *t, struct task *tracer,
				 const struct wait_opts *o, struct wait_result *r)
{
	enum verdict best = W_NONE;
	struct task *c, *tmp;

	list_for_each_safe(c, tmp, &tracer->tracees, tracee_node) {
		enum verdict v = try_tracee(t, c, o, r);

		if (v == W_FOUND)
			return v;
		best = MAX(best, v);
	}
	return best;
}

/* ---- the call ---- */

static enum verdict scan_children(struct task *t, const struct wait_opts *o,
				  struct wait_result *r)
{
	enum verdict best = W_NONE;
	struct tgroup *c, *tmp;

	list_for_each_safe(c, tmp, &t->tg->children, sibling) {
		enum verdict v;

		if ((o->options & __WNOTHREAD) && c->parent_task != t)
			continue;
		v = try_child(t, c, o, r);
		if (v == W_FOUND)
			return v;
		best = MAX(best, v);
	}
	return best;
}

static enum verdict scan(struct task *t, const struct wait_opts *o, struct wait_result *r)
{
	enum verdict best, v;
	struct task *i;
	AUTO_LOCK(&kernel.tasks_mu);

	best = scan_children(t, o, r);
	if (best == W_FOUND)
		return best;
	if (o->options & __WNOTHREAD)
		return MAX(best, scan_tracees(t, t, o, r));
	list_for_each(i, &t->tg->threads, tg_node) {
		v = scan_tracees(t, i, o, r);
		if (v == W_FOUND)
			return v;
		best = MAX(best, v);
	}
	return best;
}

long task_wait(struct task *t, const struct wait_opts *o, struct wait_result *r)
{
	enum verdict v = scan(t, o, r);
	long err;

	if (v == W_ELIGIBLE && o->nohang_pidfd)
		return -EAGAIN;
	if (v == W_ELIGIBLE && !(o->options & WNOHANG)) {
		err = wait_event(t, &t->tg->child_wq, ~0u, DEADLINE_NONE,
				 (v = scan(t, o, r)) != W_ELIGIBLE);
		if (err)
			return err;
	}
	switch (v) {
	case W_NONE:
		return -ECHILD;
	case W_FOUND:
		return r->pid;
	case W_ELIGIBLE:
		break;
	}
	return 0;
}
