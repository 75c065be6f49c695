// SPDX-License-Identifier: Apache-2.0
/*
 * kill(2) and its relatives: whom a number means, who may, and what siginfo they carry; sigaction(2) and
 * sigtimedwait(2).
 *
 * Lock order: kernel.tasks_mu > sighand.mu; permission checks take task.mu below them.
 */
#include "sentry/kernel/signal_kill.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/signal_priv.h"

/* One process. Context: tasks_mu held. */
static int kill_tgroup_locked(struct task *t, struct tgroup *tg, int sig,
			      const struct l_siginfo *info)
{
	int r;

	if (!tg->leader)
		return -ESRCH;
	r = signal_may_send(t, tg->leader, sig);
	if (r < 0 || sig == 0)
		return r;
	return signal_send_tgroup(tg, sig, info);
}

static long kill_process(struct task *t, int nr, int sig, const struct l_siginfo *info)
{
	struct pid *p;
	AUTO_LOCK(&kernel.tasks_mu);

	p = pid_find_locked(task_pidns(t), nr);
	if (!p)
		return -ESRCH;
	if (!p->tgroup) { /* a thread's number names its process here, too (man 2 kill, BUGS) */
		if (!p->task)
			return -ESRCH;
		return kill_tgroup_locked(t, p->task->tg, sig, info);
	}
	return kill_tgroup_locked(t, p->tgroup, sig, info);
}

static long kill_pgrp(struct task *t, int nr, int sig, const struct l_siginfo *info)
{
	struct tgroup *tg;
	struct pid *p;
	long r = -ESRCH;
	bool sent = false;
	AUTO_LOCK(&kernel.tasks_mu);

	p = nr == 0 ? t->tg->pgrp : pid_find_locked(task_pidns(t), nr);
	if (!p)
		return -ESRCH;
	list_for_each(tg, &p->pgrp, pgrp_node) {
		r = kill_tgroup_locked(t, tg, sig, info);
		if (r == 0)
			sent = true;
	}
	return sent ? 0 : r;
}

/* Everybody in the caller's pid namespace but init and the caller's own process. */
static long kill_all(struct task *t, int sig, const struct l_siginfo *info)
{
	struct pidns *ns = task_pidns(t);
	long r = 0, one;
	bool any = false;
	struct pid *p;
	pid_t nr = 2;

	while ((p = pid_next(ns, nr)) != NULL) {
		nr = pid_nr(p, ns) + 1;
		mutex_lock(&kernel.tasks_mu);
		if (p->tgroup && p->tgroup != t->tg) {
			any = true;
			one = kill_tgroup_locked(t, p->tgroup, sig, info);
			if (one != -EPERM)
				r = one;
		}
		mutex_unlock(&kernel.tasks_mu);
		pid_put(p);
	}
	return any ? r : -ESRCH;
}

long signal_kill(struct task *t, int pid, int sig)
{
	struct l_siginfo info;

	if (sig < 0 || sig > NSIG_GUEST)
		return -EINVAL;
	siginfo_user(&info, t, sig, SI_USER);
	if (pid > 0)
		return kill_process(t, pid, sig, &info);
	if (pid == -1)
		return kill_all(t, sig, &info);
	if (pid == INT32_MIN) /* can't be negated */
		return -ESRCH;
	return kill_pgrp(t, -pid, sig, &info);
}

long signal_tgkill(struct task *t, int tgid, int tid, int sig, struct l_siginfo *info)
{
	struct l_siginfo own;
	struct task *target;
	long r;

	/* somebody else's signal must not look like the kernel's or kill's (man 2 rt_sigqueueinfo) */
	if (info && (info->si_code >= 0 || info->si_code == SI_TKILL) && task_tid(t) != tid)
		return -EPERM;
	target = task_find(t, tid);
	if (!target || !target->pid->task ||
	    (tgid && tgroup_pid_for(target->tg, t) != tgid)) {
		task_put(target);
		return -ESRCH;
	}
	if (info)
		info->si_signo = sig;
	else
		siginfo_user(&own, t, sig, SI_TKILL);
	if (sig < 0 || sig > NSIG_GUEST)
		r = -EINVAL;
	else
		r = signal_may_send(t, target, sig);
	if (r == 0 && sig)
		r = signal_send_task(target, sig, info ? info : &own);
	task_put(target);
	return r;
}

long signal_queueinfo(struct task *t, int pid, int sig, struct l_siginfo *info)
{
	if ((info->si_code >= 0 || info->si_code == SI_TKILL) && task_tgid(t) != pid)
		return -EPERM;
	if (sig < 0 || sig > NSIG_GUEST)
		return -EINVAL;
	if (pid <= 0)
		return -ESRCH;
	info->si_signo = sig;
	return kill_process(t, pid, sig, info);
}

void signal_set_action(struct task *t, int sig, const struct l_sigaction *new,
		       struct l_sigaction *ret_old)
{
	struct sighand *sh = signal_lock(t);
	struct task *i;
	bool ignored;

	memset(ret_old, 0, sizeof(*ret_old));
	if (!sh)
		return;
	*ret_old = sh->action[sig - 1];
	if (new) {
		sh->action[sig - 1] = *new;
		sh->action[sig - 1].mask &= ~SIGSET_UNBLOCKABLE;
		ignored = new->handler == SIG_IGN_G ||
			  (new->handler == SIG_DFL_G && (SIGSET_DEFAULT_IGNORE & SIGBIT(sig)));
		if (ignored) { /* POSIX: pending ones go, blocked or not */
			sigpending_remove(&t->tg->pending, SIGBIT(sig));
			list_for_each(i, &t->tg->threads, tg_node)
				sigpending_remove(&i->pending, SIGBIT(sig));
		}
	}
	signal_unlock(sh);
}

long signal_wait_for(struct task *t, sigset_g set, int64_t deadline_ns, struct l_siginfo *ret)
{
	sigset_g blocked = t->blocked;
	long r;
	int sig;

	sig = signal_dequeue(t, set, ret);
	if (sig)
		return sig;
	/* Unblocked while we wait, so that senders choose and wake this thread; saved_blocked tells them
	 * that such a signal must not kill (signal_send.c). */
	signal_set_temp_mask(t, blocked & ~set);
	do {
		task_sleep_prepare(t);
		r = signal_pending(t) ? -ERESTARTSYS : task_sleep(t, deadline_ns);
	} while (r == 0);
	/* Blocked again before we look: nobody else takes what came for us. */
	signal_restore_temp_mask(t);
	sig = signal_dequeue(t, set, ret);
	if (sig)
		return sig;
	return r == -ETIMEDOUT ? -EAGAIN : -EINTR;
}
