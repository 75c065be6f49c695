// SPDX-License-Identifier: Apache-2.0
/*
 * Saving and loading processes: the tree, lists of threads, job control, limits, timers, and all queues of
 * pending signals (of its threads, too, as an entry may be one of its timers').
 *
 * finish() enters a process and its threads into all tables with the functions that clone uses; what a new
 * process has none of (zombies, counts of exited threads) is put right after that.
 */
#include "base/alloc.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/kernel/kernel_state.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/signal_priv.h"
#include "sentry/time/cputimer.h"
#include "sentry/time/itimer.h"
#include "sentry/time/posix_timer.h"

#define THREADS_MAX 1000000u
#define QUEUE_MAX 4000000u

/* ---- pending signals ---- */

static void entry_fields(struct state *s, struct tgroup *tg, struct sigpending *p,
			 struct sigqueue_entry *e)
{
	int32_t timer = e && e->timer ? posix_timer_id(e->timer) : -1;

	state_i32(s, &timer);
	if (state_loading(s)) {
		e = timer < 0 ? kzalloc(sizeof(*e)) : posix_timer_entry(tg, timer);
		if (!e || (timer >= 0 && !list_empty(&e->node))) {
			state_fail(s, "an expiry of no timer");
			return;
		}
		list_add_tail(&p->queue, &e->node);
	}
	state_bytes(s, &e->info, sizeof(e->info));
	if (e->info.si_signo < 1 || e->info.si_signo > NSIG_GUEST)
		state_fail(s, "signal %d", e->info.si_signo);
	if (!e->timer)
		state_ref(s, &state_cred, &e->charged);
}

static void pending_fields(struct state *s, struct tgroup *tg, struct sigpending *p)
{
	struct sigqueue_entry *e;
	uint32_t n = 0;

	state_u64(s, &p->set);
	if (state_loading(s)) {
		n = state_count(s, 0, QUEUE_MAX);
		while (n-- && state_ok(s))
			entry_fields(s, tg, p, NULL);
		return;
	}
	list_for_each(e, &p->queue, node)
		n++;
	(void)state_count(s, n, QUEUE_MAX);
	list_for_each(e, &p->queue, node)
		entry_fields(s, tg, p, e);
}

static void pending_finish(struct state *s, struct sigpending *p)
{
	struct sigqueue_entry *e;

	list_for_each(e, &p->queue, node) {
		if (!(p->set & SIGBIT(e->info.si_signo)))
			state_fail(s, "a queued signal that isn't pending");
		if (e->timer)
			continue;
		if (!e->charged) {
			state_fail(s, "a queued signal of nobody");
			return;
		}
		sigqueue_charge_loaded(e);
	}
}

/* ---- fields ---- */

/* Between fields() and finish() the threads hang on the list, and belong to nothing yet. */
static void thread_fields(struct state *s, struct tgroup *tg, struct task *t)
{
	state_ptr(s, &state_task, &t);
	if (state_loading(s)) {
		if (!t || !list_empty(&t->tg_node)) {
			state_fail(s, "a thread of two processes");
			return;
		}
		list_add_tail(&tg->threads, &t->tg_node);
	}
	pending_fields(s, tg, &t->pending);
}

static void threads_fields(struct state *s, struct tgroup *tg)
{
	struct task *t;
	uint32_t n = 0;

	if (state_loading(s)) {
		n = state_count(s, 0, THREADS_MAX);
		while (n-- && state_ok(s))
			thread_fields(s, tg, NULL);
		return;
	}
	list_for_each(t, &tg->threads, tg_node)
		n++;
	(void)state_count(s, n, THREADS_MAX);
	list_for_each(t, &tg->threads, tg_node)
		thread_fields(s, tg, t);
}

static void job_control_fields(struct state *s, struct tgroup *tg)
{
	state_bool(s, &tg->init_killable);
	state_bool(s, &tg->group_stop);
	state_bool(s, &tg->stop_reported);
	state_bool(s, &tg->continued);
	state_i32(s, &tg->stop_signal);
	state_u32(s, &tg->stopped_threads);
	state_bool(s, &tg->stop_complete);
	state_u8(s, &tg->notify);
	state_bool(s, &tg->group_exit);
	state_i32(s, &tg->group_exit_code);
	state_bool(s, &tg->zombie);
	state_bool(s, &tg->released);
	if (tg->notify > SIGNAL_NOTIFY_CONTINUED || tg->stop_signal < 0 ||
	    tg->stop_signal > NSIG_GUEST)
		state_fail(s, "job control that can't be");
}

static void tree_fields(struct state *s, struct tgroup *tg)
{
	state_ref(s, &state_pid, &tg->pid);
	state_ptr(s, &state_task, &tg->leader);
	state_ref(s, &state_tgroup, &tg->parent);
	state_weak(s, &state_task, &tg->parent_task);
	state_ref(s, &state_pid, &tg->pgrp);
	state_ref(s, &state_pid, &tg->session);
	state_ref(s, &state_tty, &tg->tty);
	state_ref(s, &state_pid, &tg->tty_old_pgrp);
}

static void limits_fields(struct state *s, struct tgroup *tg)
{
	for (int i = 0; i < RLIM_COUNT; i++) {
		state_u64(s, &tg->rlim[i].cur);
		state_u64(s, &tg->rlim[i].max);
		if (tg->rlim[i].cur > tg->rlim[i].max)
			state_fail(s, "a limit above its maximum");
	}
	state_usage(s, &tg->dead_usage);
	state_usage(s, &tg->child_usage);
	state_bool(s, &tg->child_subreaper);
	state_i32(s, &tg->oom_score_adj);
	state_bool(s, &tg->did_exec);
}

static void tgroup_fields(struct state *s, void *obj)
{
	struct tgroup *tg = obj;

	if (!state_loading(s) && tg->exec_task)
		state_fail(s, "process %d is in the middle of an exec",
			   pid_nr(tg->pid, kernel.init_pidns));
	tree_fields(s, tg);
	job_control_fields(s, tg);
	limits_fields(s, tg);
	posix_timers_fields(s, tg);
	itimers_fields(s, tg);
	pending_fields(s, tg, &tg->pending);
	threads_fields(s, tg);
}

/* ---- finish ---- */

static bool threads_ok(const struct tgroup *tg)
{
	const struct task *t;
	bool leader = false;

	list_for_each(t, &tg->threads, tg_node) {
		if (t->tg != tg || !t->pid || !t->sighand || !tg->leader ||
		    t->sighand != tg->leader->sighand || t->pid->task ||
		    atomic_load(&t->state) == TASK_DEAD)
			return false;
		leader |= t == tg->leader;
	}
	return leader && tg->leader->pid == tg->pid && !tg->pid->tgroup;
}

/* Into the tables, in the order of the list. Context: tasks_mu. */
static void attach_threads(struct tgroup *tg)
{
	struct list threads;
	struct task *t, *tmp, *leader = tg->leader;

	list_init(&threads);
	list_splice_tail(&threads, &tg->threads);
	tg->leader = NULL;
	list_for_each_safe(t, tmp, &threads, tg_node) {
		list_del(&t->tg_node);
		task_attach_locked(t, tg, t == leader);
		if (atomic_load(&t->state) < TASK_ZOMBIE)
			continue;
		tg->nthreads--;
		tg->nlive_threads--;
	}
}

static void enter_tree(struct tgroup *tg)
{
	struct pid *pgrp = tg->pgrp, *session = tg->session;
	struct tgroup *parent = tg->parent;

	/* as if from nowhere: the setters take references of their own, and drop the old ones */
	tg->pgrp = tg->session = NULL;
	tg->parent = NULL;
	tgroup_attach_locked(tg, parent, tg->parent_task, pgrp, session);
	pid_put(pgrp);
	pid_put(session);
	tgroup_put(parent);
}

static void tgroup_finish(struct state *s, void *obj)
{
	struct tgroup *tg = obj;
	struct task *t;
	struct sighand *sh;

	tg->container = kernel_loaded_container();
	if (tg->released) { /* held by whoever waits for its status */
		if (!list_empty(&tg->threads) || !tg->pid || tg->parent)
			state_fail(s, "a released process that isn't");
		return;
	}
	if (!tg->pid || !threads_ok(tg)) {
		state_fail(s, "threads that don't belong together");
		return;
	}
	posix_timers_loaded(s, tg);
	pending_finish(s, &tg->pending);
	list_for_each(t, &tg->threads, tg_node)
		pending_finish(s, &t->pending);
	mutex_lock(&kernel.tasks_mu);
	attach_threads(tg);
	enter_tree(tg);
	mutex_unlock(&kernel.tasks_mu);
	sh = tg->leader->sighand;
	mutex_lock(&sh->mu);
	list_for_each(t, &tg->threads, tg_node)
		signal_recalc_locked(t);
	mutex_unlock(&sh->mu);
}

static void *tgroup_alloc_obj(struct state *s)
{
	(void)s;
	return tgroup_alloc();
}

static void *tgroup_get_obj(void *obj)
{
	return tgroup_get(obj);
}

static void tgroup_put_obj(void *obj)
{
	tgroup_put(obj);
}

const struct state_type state_tgroup = {
	.id = STATE_TGROUP,
	.version = 1,
	.name = "process",
	.alloc = tgroup_alloc_obj,
	.fields = tgroup_fields,
	.finish = tgroup_finish,
	.get = tgroup_get_obj,
	.put = tgroup_put_obj,
	.phase = 6,
};
