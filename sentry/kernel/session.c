// SPDX-License-Identifier: Apache-2.0
/*
 * Process groups and sessions (man 2 setpgid, 2 setsid, 7 credentials).
 *
 * A group or session exists as long as some group of threads is in its list on the struct pid. All under
 * kernel.tasks_mu.
 */
#include <errno.h>

#include "sentry/fs/devpts/tty.h"
#include "sentry/kernel/process.h"

/* A group is orphaned when no member has a parent in another group of the same session. */
bool pgrp_is_orphaned_locked(struct pid *pgrp, const struct tgroup *ignored)
{
	struct tgroup *i;

	mutex_assert_held(&kernel.tasks_mu);
	list_for_each(i, &pgrp->pgrp, pgrp_node) {
		if (i == ignored || i->zombie || !i->parent)
			continue;
		if (i->parent->pgrp != pgrp && i->parent->session == i->session)
			return false;
	}
	return true;
}

bool pgrp_has_stopped_locked(struct pid *pgrp)
{
	struct tgroup *i;

	list_for_each(i, &pgrp->pgrp, pgrp_node)
		if (i->stop_complete)
			return true;
	return false;
}

/* @pid 0: the caller. ESRCH unless it is the caller or its child; EACCES after the child's exec; EPERM for a
 * session leader, another session, or a group that isn't in the session. */
static long setpgid_locked(struct task *t, pid_t pid, pid_t pgid)
{
	struct pid *p = pid ? pid_find_locked(task_pidns(t), pid) : t->tg->pid;
	struct tgroup *tg = p ? p->tgroup : NULL;
	struct pid *pgrp;

	if (!tg)
		return p && p->task ? -EINVAL : -ESRCH; /* a thread, not a process */
	if (tg->parent == t->tg) {
		if (tg->session != t->tg->session)
			return -EPERM;
		if (tg->did_exec)
			return -EACCES;
	} else if (tg != t->tg) {
		return -ESRCH;
	}
	if (tg->session == tg->pid)
		return -EPERM;
	pgrp = tg->pid;
	if (pgid && pgid != pid_nr(tg->pid, task_pidns(t))) {
		struct tgroup *member;

		pgrp = pid_find_locked(task_pidns(t), pgid);
		if (!pgrp || list_empty(&pgrp->pgrp))
			return -EPERM;
		member = list_first(&pgrp->pgrp, struct tgroup, pgrp_node);
		if (member->session != t->tg->session)
			return -EPERM;
	}
	if (tg->pgrp != pgrp)
		tgroup_set_pgrp_locked(tg, pgrp);
	return 0;
}

long session_setpgid(struct task *t, pid_t pid, pid_t pgid)
{
	if (pgid < 0)
		return -EINVAL;

	AUTO_LOCK(&kernel.tasks_mu);
	return setpgid_locked(t, pid, pgid);
}

/* Unlike setpgid, a thread's number is fine here, as in Linux. */
static struct tgroup *find_group_locked(struct task *t, pid_t pid)
{
	struct pid *p;

	if (!pid)
		return t->tg;
	p = pid_find_locked(task_pidns(t), pid);
	if (!p)
		return NULL;
	return p->tgroup ? p->tgroup : p->task ? p->task->tg : NULL;
}

long session_getpgid(struct task *t, pid_t pid)
{
	AUTO_LOCK(&kernel.tasks_mu);
	struct tgroup *tg = find_group_locked(t, pid);

	return tg && tg->pgrp ? pid_nr(tg->pgrp, task_pidns(t)) : -ESRCH;
}

long session_getsid(struct task *t, pid_t pid)
{
	AUTO_LOCK(&kernel.tasks_mu);
	struct tgroup *tg = find_group_locked(t, pid);

	return tg && tg->session ? pid_nr(tg->session, task_pidns(t)) : -ESRCH;
}

/* EPERM for a group leader, or when a group with our number exists. */
long session_setsid(struct task *t)
{
	struct tgroup *tg = t->tg;
	struct tty *tty;
	long ret;

	mutex_lock(&kernel.tasks_mu);
	if (tg->session == tg->pid || !list_empty(&tg->pid->pgrp)) {
		mutex_unlock(&kernel.tasks_mu);
		return -EPERM;
	}
	tgroup_set_session_locked(tg, tg->pid);
	tgroup_set_pgrp_locked(tg, tg->pid);
	tty = tty_detach_locked(tg);
	ret = pid_nr(tg->pid, task_pidns(t));
	mutex_unlock(&kernel.tasks_mu);
	tty_put(tty);
	return ret;
}
