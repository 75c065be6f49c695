// SPDX-License-Identifier: Apache-2.0
/*
 * The end of tasks: exit(2), exit_group(2), zombies, reparenting, orphaned process groups, the death of a
 * pid namespace, release.
 *
 * The exiting thread drops everything heavy itself, without locks (memory, files, namespaces), and then
 * changes the tree under tasks_mu in one step (exit_notify). A group becomes a zombie when all its
 * threads have exited and all but the leader have been released; only then is its parent told.
 *
 * A group without a parent (first process of a container, or its orphans after that is gone) is released
 * at once; tgroup_wait_exit() reads the status from the group that its caller holds.
 *
 * Lock order: kernel.tasks_mu > sighand.mu.
 */
#include <errno.h>
#include <linux/ptrace.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/kernel/futex.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/usermem.h"
#include "sentry/time/cputimer.h"
#include "sentry/time/posix_timer.h"

#define SIG_IGN_GUEST 1

/* ---- asking for it ---- */

/* Marks every thread; a first status stays. */
void tgroup_kill_locked(struct tgroup *tg, int status)
{
	struct sighand *sh = signal_lock_tgroup(tg);
	struct task *i;

	if (sh) {
		if (!tg->group_exit) {
			tg->group_exit = true;
			tg->group_exit_code = status;
			tg->group_stop = false;
		}
		signal_unlock(sh);
	}
	list_for_each(i, &tg->threads, tg_node) {
		if (atomic_load(&i->state) >= TASK_ZOMBIE)
			continue;
		atomic_store(&i->exiting, true);
		atomic_store(&i->sigpending, true);
		task_interrupt(i);
		if (current_task() != i)
			task_doom(i);
	}
}

void task_group_exit(struct task *t, int status)
{
	AUTO_LOCK(&kernel.tasks_mu);

	tgroup_kill_locked(t->tg, status);
}

void task_exit_thread(struct task *t, int status)
{
	t->exit_code = status;
	atomic_store(&t->exiting, true);
}

int tgroup_exit_status(struct tgroup *tg)
{
	return tg->group_exit_code;
}

/*
 * exec: kills the other threads of the caller's group and waits until they are released; the caller may
 * be any thread. -EAGAIN: the group is dying or another thread is already in exec (the caller is being
 * killed itself).
 */
int task_kill_others(struct task *t)
{
	struct tgroup *tg = t->tg;
	struct task *i;
	AUTO_LOCK(&kernel.tasks_mu);

	if (tg->exec_task || atomic_load(&t->exiting))
		return -EAGAIN;
	tg->exec_task = t;
	list_for_each(i, &tg->threads, tg_node) {
		if (i == t || atomic_load(&i->state) >= TASK_ZOMBIE)
			continue;
		i->killed_by_exec = true;
		i->exit_code = SIGKILL;
		atomic_store(&i->exiting, true);
		atomic_store(&i->sigpending, true);
		task_interrupt(i);
	}
	while (tg->nthreads > 1)
		cond_wait(&kernel.tasks_cond, &kernel.tasks_mu);
	return 0;
}

/* ---- release ---- */

static void release_leader_locked(struct tgroup *tg, struct task *t)
{
	struct sighand *sh = signal_lock_tgroup(tg);

	if (sh) {
		tg->sighand = NULL;
		signal_unlock(sh);
	}
	for (struct pidns *ns = t->pid->ns; ns; ns = ns->parent)
		if (ns->init == t)
			ns->init = NULL;
	tg->released = true;
	tg->pid->tgroup = NULL;
	tgroup_set_pgrp_locked(tg, NULL);
	tgroup_set_session_locked(tg, NULL);
	tgroup_set_parent_locked(tg, NULL, NULL);
	tg->leader = NULL;
	tgroup_put(tg); /* the table's; @t keeps one */
	task_put(t);    /* tg->leader's; the table's is still there */
}

void task_release_locked(struct task *t)
{
	struct tgroup *tg = t->tg;

	mutex_assert_held(&kernel.tasks_mu);
	if (atomic_load(&t->state) == TASK_DEAD)
		return;
	atomic_store(&t->state, TASK_DEAD);
	ptrace_unlink_locked(t);
	mutex_lock(&t->sighand->mu);
	list_del(&t->tg_node);
	mutex_unlock(&t->sighand->mu);
	list_del(&t->all_node);
	t->pid->task = NULL;
	pid_count_task_locked(t->pid, -1);
	atomic_fetch_sub(&kernel.ntasks, 1);
	if (tg->leader == t)
		release_leader_locked(tg, t);
	cond_broadcast(&kernel.tasks_cond);
	task_put(t);
}

/* ---- telling the parent ---- */

static void status_to_cld(int status, int *ret_code, int *ret_status)
{
	if (WIFSIGNALED(status)) {
		*ret_code = WCOREDUMP(status) ? CLD_DUMPED : CLD_KILLED;
		*ret_status = WTERMSIG(status);
	} else {
		*ret_code = CLD_EXITED;
		*ret_status = WEXITSTATUS(status);
	}
}

/* man 2 wait: SIGCHLD ignored, or SA_NOCLDWAIT: children leave no zombie. */
static bool parent_autoreaps(struct tgroup *parent)
{
	struct sighand *sh = signal_lock_tgroup(parent);
	bool r;

	if (!sh)
		return true;
	r = sh->action[SIGCHLD - 1].handler == SIG_IGN_GUEST ||
	    (sh->action[SIGCHLD - 1].flags & SA_NOCLDWAIT);
	signal_unlock(sh);
	return r;
}

bool exit_notify_parent_locked(struct tgroup *tg)
{
	bool autoreap;
	int code, status;

	if (!tg->parent || tg->parent->released)
		return true;
	autoreap = tg->leader->exit_signal == SIGCHLD && parent_autoreaps(tg->parent);
	status_to_cld(tg->group_exit_code, &code, &status);
	signal_notify_parent(tg, code, status);
	return autoreap;
}

/* A traced leader belongs to its tracer's wait first, unless tracer and parent are one process. */
static bool leader_traced_elsewhere(const struct tgroup *tg)
{
	return tg->leader->tracer && tg->leader->tracer->tg != tg->parent;
}

void tgroup_check_zombie_locked(struct tgroup *tg)
{
	int code, status;

	if (tg->released || tg->nthreads || !tg->leader)
		return;
	if (tg->threads.next != &tg->leader->tg_node ||
	    tg->threads.prev != &tg->leader->tg_node)
		return; /* traced threads that nobody has waited for */
	tg->zombie = true;
	waitq_wake(&tg->pid->exit_wq, EPOLLIN | EPOLLRDNORM);
	cond_broadcast(&kernel.tasks_cond);
	if (leader_traced_elsewhere(tg)) {
		status_to_cld(tg->group_exit_code, &code, &status);
		ptrace_notify_tracer_locked(tg->leader, code, status);
		return;
	}
	if (exit_notify_parent_locked(tg))
		task_release_locked(tg->leader);
}

/* ---- orphans ---- */

/*
 * @tg leaves its group (exit, @parent NULL) or gets a new parent instead of @parent: if that was the
 * group's last link to its session, and members are stopped, they get SIGHUP and SIGCONT (POSIX, man 2
 * setpgid).
 */
void pgrp_check_orphaned_locked(struct tgroup *tg, struct tgroup *parent)
{
	struct tgroup *ignored = parent ? NULL : tg, *i, *tmp;
	struct pid *pgrp = tg->pgrp;

	if (!parent)
		parent = tg->parent;
	if (!pgrp || !parent || parent->pgrp == pgrp || parent->session != tg->session)
		return;
	if (!pgrp_is_orphaned_locked(pgrp, ignored) || !pgrp_has_stopped_locked(pgrp))
		return;
	list_for_each_safe(i, tmp, &pgrp->pgrp, pgrp_node) {
		(void)signal_send_tgroup(i, SIGHUP, NULL);
		(void)signal_send_tgroup(i, SIGCONT, NULL);
	}
}

static struct task *live_thread(struct tgroup *tg, const struct task *except)
{
	struct task *i;

	list_for_each(i, &tg->threads, tg_node)
		if (i != except && !atomic_load(&i->exiting) &&
		    atomic_load(&i->state) < TASK_ZOMBIE)
			return i;
	return NULL;
}

/* Who inherits the children of @t: a sibling thread, the nearest subreaper, the namespace's init. */
static struct task *find_reaper(struct task *t)
{
	struct task *init = task_pidns(t)->init, *r = live_thread(t->tg, t);

	if (r)
		return r;
	for (struct tgroup *p = t->tg->parent; p && init && p != init->tg;
	     p = p->parent) {
		if (p->pid->ns != task_pidns(t))
			break;
		r = p->child_subreaper ? live_thread(p, NULL) : NULL;
		if (r)
			return r;
	}
	return init && init->tg != t->tg ? live_thread(init->tg, NULL) : NULL;
}

static void send_pdeath(struct tgroup *child)
{
	struct task *i;

	list_for_each(i, &child->threads, tg_node)
		if (i->pdeath_signal)
			(void)signal_send_tgroup(child, i->pdeath_signal, NULL);
}

static void reparent_locked(struct task *t)
{
	struct task *reaper = find_reaper(t);
	struct tgroup *c, *tmp;

	list_for_each_safe(c, tmp, &t->tg->children, sibling) {
		if (c->parent_task && c->parent_task != t)
			continue;
		send_pdeath(c);
		if (reaper && reaper->tg == t->tg) {
			c->parent_task = reaper;
			continue;
		}
		tgroup_get(c);
		tgroup_set_parent_locked(c, reaper ? reaper->tg : NULL, reaper);
		c->leader->exit_signal = SIGCHLD;
		if (c->zombie && !leader_traced_elsewhere(c) &&
		    exit_notify_parent_locked(c))
			task_release_locked(c->leader);
		else
			pgrp_check_orphaned_locked(c, t->tg);
		tgroup_put(c);
	}
}

/* ---- the death of a pid namespace ---- */

static unsigned threads_locked(const struct tgroup *tg)
{
	unsigned n = 0;

	for (const struct list *l = tg->threads.next; l != &tg->threads; l = l->next)
		n++;
	return n;
}

/* The init of @ns is going: so is everybody else in it; init waits for that (man 7 pid_namespaces). */
static void zap_pidns(struct task *t)
{
	struct pidns *ns = task_pidns(t);
	struct tgroup *c, *tmp;
	struct task *i;
	AUTO_LOCK(&kernel.tasks_mu);

	if (!ns->init || ns->init->tg != t->tg)
		return;
	pidns_kill_locked(ns);
	list_for_each(i, &kernel.all_tasks, all_node)
		if (i->tg != t->tg && pid_nr(i->pid, ns))
			tgroup_kill_locked(i->tg, SIGKILL);
	cond_broadcast(&kernel.tasks_cond); /* who waits to be started hears of it */
	for (;;) {
		list_for_each_safe(c, tmp, &t->tg->children, sibling)
			if (c->zombie)
				task_release_locked(c->leader);
		if (ns->ntasks <= threads_locked(t->tg))
			break;
		cond_wait(&kernel.tasks_cond, &kernel.tasks_mu);
	}
}

/* ---- the exit itself ---- */

void task_vfork_release(struct task *t)
{
	struct task *w;

	mutex_lock(&kernel.tasks_mu);
	w = t->vfork_waiter;
	t->vfork_waiter = NULL;
	mutex_unlock(&kernel.tasks_mu);
	if (!w)
		return;
	atomic_store(&w->vfork_done, true);
	task_wake_killable(w);
	task_put(w);
}

/* True for the last thread. Settles the exit code, too. */
static bool leave_group(struct task *t)
{
	struct tgroup *tg = t->tg;
	AUTO_LOCK(&kernel.tasks_mu);

	if (tg->group_exit)
		t->exit_code = tg->group_exit_code;
	return --tg->nlive_threads == 0;
}

static void drop_user_side(struct task *t)
{
	struct plat_ctx *ctx;
	uint32_t zero = 0;

	if (t->mm) {
		futex_exit_task(t);
		if (!gaddr_is_null(t->clear_child_tid) &&
		    copyout_obj(t, t->clear_child_tid, &zero) == 0)
			futex_wake_addr(t, t->clear_child_tid, 1);
	}
	task_usage_freeze(t);
	if (t->tg->group_exit)
		task_doom(t); /* the others are, already */
	mutex_lock(&t->mu);
	ctx = t->ctx;
	t->ctx = NULL;
	mutex_unlock(&t->mu);
	if (ctx)
		plat->ctx_destroy(ctx);
	if (sem_undo_exit)
		sem_undo_exit(t);
	task_drop_shared(t);
	task_vfork_release(t);
}

static void last_thread_exits(struct task *t)
{
	struct tgroup *tg = t->tg;

	posix_timers_exit(tg);
	cputimers_destroy(tg);
	tty_session_exit(tg);
	zap_pidns(t);
}

static void exit_notify(struct task *t, bool last)
{
	struct tgroup *tg = t->tg;
	AUTO_LOCK(&kernel.tasks_mu);

	ptrace_tracer_exit_locked(t);
	reparent_locked(t);
	task_usage_add(&tg->dead_usage, &t->usage);
	atomic_store(&t->state, TASK_ZOMBIE);
	tg->nthreads--;
	/* A process that ends thread by thread has its leader's status. */
	if (t == tg->leader && !tg->group_exit)
		tg->group_exit_code = t->exit_code;
	if (last)
		pgrp_check_orphaned_locked(tg, NULL);
	if (t != tg->leader) {
		if (t->tracer && !t->killed_by_exec)
			ptrace_notify_tracer_locked(t, CLD_EXITED, t->exit_code);
		else
			task_release_locked(t);
	}
	cond_broadcast(&kernel.tasks_cond);
	tgroup_check_zombie_locked(tg);
}

void task_do_exit(struct task *t)
{
	bool last;

	if (ptrace_active(t))
		ptrace_event(t, PTRACE_EVENT_EXIT,
			     (uint64_t)(t->tg->group_exit ? t->tg->group_exit_code
							  : t->exit_code));
	last = leave_group(t);
	drop_user_side(t);
	if (last)
		last_thread_exits(t);
	signal_exit_task(t);
	exit_notify(t, last);
}

/* ---- waiting from outside the sandbox ---- */

int tgroup_wait_exit(struct tgroup *tg)
{
	AUTO_LOCK(&kernel.tasks_mu);

	while (!tg->zombie)
		cond_wait(&kernel.tasks_cond, &kernel.tasks_mu);
	return tgroup_exit_status(tg);
}
