// SPDX-License-Identifier: Apache-2.0
/*
 * Job control stops (man 7 signal, 2 wait).
 *
 * A stop signal that is delivered to one thread stops the group: group_stop is set and each thread parks at
 * its next signal_deliver(). The last one to park completes the stop, and the parent is told once. A thread
 * that has parked for this stop carries stop_parked; a traced one stops in ptrace_group_stop() instead and may be
 * resumed by its tracer while the rest stays stopped.
 *
 * SIGCONT ends the stop when it is sent, not when it is delivered, so it works when blocked or ignored. Telling the
 * parent takes tasks_mu, which the sender may not take: the first thread to run again does that (tg.notify).
 *
 * Lock order: kernel.tasks_mu > sighand.mu.
 */
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/kernel/signal_priv.h"
#include "sentry/time/clock.h"
#include "sentry/time/cputimer.h"

#define NSEC_PER_TICK (NSEC_PER_SEC / 100) /* USER_HZ */

void signal_stop_begin_locked(struct task *t, int sig)
{
	struct tgroup *tg = t->tg;
	struct task *i;

	tg->group_stop = true;
	tg->stop_complete = false;
	tg->stop_reported = false;
	tg->continued = false;
	tg->stop_signal = sig;
	tg->stopped_threads = 0;
	list_for_each(i, &tg->threads, tg_node) {
		i->stop_parked = false;
		if (i != t)
			signal_wake_locked(i);
	}
}

void signal_continue_locked(struct tgroup *tg)
{
	struct task *i;

	if (!tg->group_stop)
		return;
	if (tg->stop_complete) {
		tg->notify = SIGNAL_NOTIFY_CONTINUED;
		tg->continued = true;
	} else { /* the parent is told of the stop that didn't quite come to be */
		tg->notify = SIGNAL_NOTIFY_STOPPED;
	}
	tg->group_stop = false;
	tg->stop_complete = false;
	tg->stop_reported = false;
	tg->stopped_threads = 0;
	list_for_each(i, &tg->threads, tg_node) {
		i->stop_parked = false;
		signal_wake_locked(i);
	}
}

bool signal_stop_check_locked(struct tgroup *tg)
{
	struct task *i;
	unsigned n = 0;

	if (!tg->group_stop || tg->stop_complete)
		return false;
	list_for_each(i, &tg->threads, tg_node) {
		if (task_is_exiting(i))
			continue;
		if (!i->stop_parked)
			return false;
		n++;
	}
	if (n == 0)
		return false;
	tg->stop_complete = true;
	tg->notify = SIGNAL_NOTIFY_STOPPED;
	return true;
}

/* Still to be parked? */
static bool stopped(struct task *t)
{
	struct sighand *sh = signal_lock(t);
	bool r;

	if (!sh)
		return false;
	r = t->tg->group_stop && t->stop_parked && !t->tg->group_exit &&
	    !atomic_load(&t->exiting);
	signal_unlock(sh);
	return r;
}

/* Until the stop ends, or we are to die. Context: stop_parked is set. */
static void wait_in_stop(struct task *t, int sig)
{
	for (;;) {
		if (ptrace_active(t)) {
			atomic_store(&t->state, TASK_RUNNING);
			if (ptrace_group_stop(t, sig)) {
				/* before a SIGCONT is delivered */
				ptrace_pending_stops(t);
				break;
			}
		}
		task_sleep_prepare(t);
		freeze_give_fp(t);
		if (!stopped(t))
			break;
		freeze_safe_begin();
		task_sleep_unmasked(t, TASK_STOPPED);
		freeze_safe_end(t);
	}
	atomic_store(&t->state, TASK_RUNNING);
	cputimer_task_resumed(t);
}

void signal_stop_park(struct task *t)
{
	struct tgroup *tg = t->tg;
	struct sighand *sh = signal_lock(t);
	bool tell;
	int sig;

	if (!sh)
		return;
	if (!tg->group_stop || tg->group_exit || t->stop_parked) {
		signal_unlock(sh);
		return;
	}
	t->stop_parked = true;
	tg->stopped_threads++;
	sig = tg->stop_signal;
	/* so that whoever sees the stop complete finds the right state */
	atomic_store(&t->state, TASK_STOPPED);
	tell = signal_stop_check_locked(tg);
	signal_unlock(sh);
	if (tell)
		signal_tell_parent(tg);
	wait_in_stop(t, sig);
}

void signal_stop_rejoin(struct task *t)
{
	wait_in_stop(t, READ_ONCE(t->tg->stop_signal));
}

/* ---- the parent ---- */

void signal_tell_parent(struct tgroup *tg)
{
	struct sighand *sh;
	uint8_t notify = 0;
	int sig = 0;
	AUTO_LOCK(&kernel.tasks_mu);

	sh = signal_lock_tgroup(tg);
	if (sh) {
		notify = tg->notify;
		sig = tg->stop_signal;
		tg->notify = 0;
		signal_unlock(sh);
	}
	if (notify == SIGNAL_NOTIFY_STOPPED)
		signal_notify_parent(tg, CLD_STOPPED, sig);
	else if (notify == SIGNAL_NOTIFY_CONTINUED)
		signal_notify_parent(tg, CLD_CONTINUED, SIGCONT);
}

static bool is_job_control(int code)
{
	return code == CLD_STOPPED || code == CLD_CONTINUED;
}

/* SA_NOCLDSTOP, or SIGCHLD ignored: no signal, but wait still works. */
static bool wants_no_stops(struct tgroup *parent)
{
	struct sighand *sh = signal_lock_tgroup(parent);
	const struct l_sigaction *sa;
	bool r;

	if (!sh)
		return true;
	sa = &sh->action[SIGCHLD - 1];
	r = sa->handler == SIG_IGN_G || (sa->flags & SA_NOCLDSTOP);
	signal_unlock(sh);
	return r;
}

static void fill_child_info(struct tgroup *tg, struct tgroup *parent, int code, int status,
			    struct l_siginfo *info)
{
	struct cred *c = task_cred_get(tg->leader), *pc;
	struct task_usage u;

	info->si_code = code;
	info->chld.pid = pid_nr(tg->pid, parent->pid->ns);
	if (parent->leader) {
		pc = task_cred_get(parent->leader);
		info->chld.uid = userns_show_uid(pc->userns, c->uid);
		cred_put(pc);
	}
	cred_put(c);
	info->chld.status = status;
	if (is_job_control(code)) /* the leader's time, as in Linux */
		task_usage_get(tg->leader, &u);
	else /* every thread is in there, the leader, too */
		u = tg->dead_usage;
	info->chld.utime = (int64_t)u.utime_ns / NSEC_PER_TICK;
	info->chld.stime = (int64_t)u.stime_ns / NSEC_PER_TICK;
}

void signal_notify_parent(struct tgroup *tg, int code, int status)
{
	struct tgroup *parent = tg->parent;
	struct l_siginfo info = { 0 };
	int sig;

	if (!parent || !tg->leader)
		return;
	sig = is_job_control(code) ? SIGCHLD : tg->leader->exit_signal;
	if (sig > 0 && sig <= NSIG_GUEST && !(is_job_control(code) && wants_no_stops(parent))) {
		info.si_signo = sig;
		fill_child_info(tg, parent, code, status, &info);
		(void)signal_send_tgroup(parent, sig, &info); /* a dying parent needs none */
	}
	waitq_wake(&parent->child_wq, EPOLLIN);
}

void signal_exit_task(struct task *t)
{
	struct sighand *sh = signal_lock(t);
	bool tell;

	if (!sh)
		return;
	signal_retarget_locked(t, ~t->blocked);
	sigpending_flush(&t->pending);
	tell = signal_stop_check_locked(t->tg);
	signal_unlock(sh);
	if (tell)
		signal_tell_parent(t->tg);
}
