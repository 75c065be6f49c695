// SPDX-License-Identifier: Apache-2.0
/*
 * Tasks and thread groups as objects: construction, references, the process tree's links, and access to
 * other tasks' parts. What happens in a task's life is in task_clone.c, task_exec.c, task_exit.c and
 * task_run.c.
 *
 * References: a task's place in the tables (pid->task) holds one, its sentry thread holds another, and
 * group->leader a third on the leader. A task holds its group. A group's place in the tables
 * (pid->tgroup) holds one. The cycle leader -> group -> leader is broken by task_release_locked().
 *
 * The list of a group's threads changes with tasks_mu and sighand.mu held, so either suffices to walk it.
 *
 * task_put() and tgroup_put() take no lock below RANK_TASK, so they may be called with tasks_mu held:
 * everything heavy (mm, files, ...) is dropped by the exiting thread itself, before.
 */
#include "sentry/kernel/task.h"

#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/mm/mm.h"
#include "sentry/vfs/vfs.h"

/* ---- construction ---- */

struct task *task_alloc(void)
{
	struct task *t = kzalloc(sizeof(*t));

	ref_init(&t->ref);
	mutex_init(&t->mu, RANK_TASK);
	list_init(&t->tg_node);
	list_init(&t->all_node);
	list_init(&t->tracees);
	list_init(&t->tracee_node);
	sigpending_init(&t->pending);
	t->state = TASK_NEW;
	t->exit_signal = -1;
	t->altstack.ss_flags = SS_DISABLE;
	t->regs.orig_rax = (uint64_t)-1;
	return t;
}

struct tgroup *tgroup_alloc(void)
{
	struct tgroup *tg = kzalloc(sizeof(*tg));

	ref_init(&tg->ref);
	list_init(&tg->threads);
	list_init(&tg->children);
	list_init(&tg->sibling);
	list_init(&tg->pgrp_node);
	list_init(&tg->session_node);
	sigpending_init(&tg->pending);
	waitq_init(&tg->child_wq);
	waitq_init(&tg->sig_wq);
	waitq_init(&tg->exec_wq);
	mutex_init(&tg->exec_mu, RANK_EXEC);
	mutex_init(&tg->rlim_mu, RANK_TASK);
	return tg;
}

struct task *task_get(struct task *t)
{
	ref_get(&t->ref);
	return t;
}

void task_put(struct task *t)
{
	if (!t || !ref_put(&t->ref))
		return;
	tgroup_put(t->tg);
	pid_put(t->pid);
	cred_put(t->cred);
	sighand_put(t->sighand);
	seccomp_put(t->seccomp);
	free(t->start_fp);
	free(t->ptrace);
	mutex_fini(&t->mu);
	free(t);
}

struct tgroup *tgroup_get(struct tgroup *tg)
{
	ref_get(&tg->ref);
	return tg;
}

void tgroup_put(struct tgroup *tg)
{
	if (!tg || !ref_put(&tg->ref))
		return;
	pid_put(tg->pid);
	pid_put(tg->pgrp);
	pid_put(tg->session);
	pid_put(tg->tty_old_pgrp);
	tgroup_put(tg->parent);
	waitq_fini(&tg->child_wq);
	waitq_fini(&tg->sig_wq);
	waitq_fini(&tg->exec_wq);
	mutex_fini(&tg->exec_mu);
	mutex_fini(&tg->rlim_mu);
	free(tg);
}

void task_doom(struct task *t)
{
	AUTO_LOCK(&t->mu);

	if (!t->mm || t->doomed)
		return;
	t->doomed = true;
	mm_doom(t->mm);
}

void task_undoom_locked(struct task *t)
{
	mutex_assert_held(&t->mu);
	if (t->mm && t->doomed)
		mm_undoom(t->mm);
	t->doomed = false;
}

/* Drops what a task shares. The pointers go under t->mu, so that task_*_get() of others is safe; the
 * puts, which may take any lock, come after. */
void task_drop_shared(struct task *t)
{
	struct mm *mm;
	struct files *files;
	struct fsctx *fs;
	struct nsproxy *ns;

	mutex_lock(&t->mu);
	mm = t->mm;
	files = t->files;
	fs = t->fs;
	ns = t->ns;
	task_undoom_locked(t);
	t->mm = NULL;
	t->files = NULL;
	t->fs = NULL;
	t->ns = NULL;
	mutex_unlock(&t->mu);
	if (files)
		files_put(files);
	if (mm)
		mm_unuse(mm);
	if (fs)
		fsctx_put(fs);
	if (ns)
		nsproxy_put(ns);
}

void task_discard(struct task *t)
{
	task_drop_shared(t);
	task_put(t);
}

/* ---- the tree. Context: tasks_mu ---- */

void task_attach_locked(struct task *t, struct tgroup *tg, bool leader)
{
	mutex_assert_held(&kernel.tasks_mu);
	if (!t->tg)
		t->tg = tgroup_get(tg);
	mutex_lock(&t->sighand->mu);
	if (leader)
		tg->sighand = t->sighand;
	list_add_tail(&tg->threads, &t->tg_node);
	mutex_unlock(&t->sighand->mu);
	list_add_tail(&kernel.all_tasks, &t->all_node);
	tg->nthreads++;
	tg->nlive_threads++;
	if (leader) {
		tg->leader = task_get(t);
		tg->pid->tgroup = tgroup_get(tg);
	}
	t->pid->task = task_get(t);
	pid_count_task_locked(t->pid, 1);
	atomic_fetch_add(&kernel.ntasks, 1);
}

void tgroup_set_pgrp_locked(struct tgroup *tg, struct pid *pgrp)
{
	struct pid *old = tg->pgrp;

	mutex_assert_held(&kernel.tasks_mu);
	list_del(&tg->pgrp_node);
	tg->pgrp = pgrp ? pid_get(pgrp) : NULL;
	if (pgrp)
		list_add_tail(&pgrp->pgrp, &tg->pgrp_node);
	pid_put(old);
}

void tgroup_set_session_locked(struct tgroup *tg, struct pid *session)
{
	struct pid *old = tg->session;

	mutex_assert_held(&kernel.tasks_mu);
	list_del(&tg->session_node);
	tg->session = session ? pid_get(session) : NULL;
	if (session)
		list_add_tail(&session->session, &tg->session_node);
	pid_put(old);
}

void tgroup_set_parent_locked(struct tgroup *child, struct tgroup *parent,
			      struct task *thread)
{
	struct tgroup *old = child->parent;

	mutex_assert_held(&kernel.tasks_mu);
	list_del(&child->sibling);
	child->parent = parent ? tgroup_get(parent) : NULL;
	child->parent_task = thread;
	if (parent)
		list_add_tail(&parent->children, &child->sibling);
	tgroup_put(old);
}

void tgroup_attach_locked(struct tgroup *tg, struct tgroup *parent,
			  struct task *parent_task, struct pid *pgrp, struct pid *session)
{
	tgroup_set_parent_locked(tg, parent, parent_task);
	tgroup_set_pgrp_locked(tg, pgrp);
	tgroup_set_session_locked(tg, session);
}

/* ---- numbers ---- */

struct pidns *task_pidns(struct task *t)
{
	return t->pid->ns;
}

pid_t task_tid(struct task *t)
{
	return t->pid->nr[t->pid->level];
}

pid_t task_tgid(struct task *t)
{
	return t->tg->pid->nr[t->tg->pid->level];
}

pid_t task_tid_for(struct task *t, struct task *viewer)
{
	return pid_nr(t->pid, task_pidns(viewer));
}

pid_t tgroup_pid_for(struct tgroup *tg, struct task *viewer)
{
	return pid_nr(tg->pid, task_pidns(viewer));
}

struct task *task_find(struct task *viewer, pid_t tid)
{
	AUTO_LOCK(&kernel.tasks_mu);
	struct pid *p = pid_find_locked(task_pidns(viewer), tid);

	return p && p->task ? task_get(p->task) : NULL;
}

struct tgroup *tgroup_find(struct task *viewer, pid_t pid)
{
	AUTO_LOCK(&kernel.tasks_mu);
	struct pid *p = pid_find_locked(task_pidns(viewer), pid);

	return p && p->tgroup ? tgroup_get(p->tgroup) : NULL;
}

/* ---- other tasks' parts ---- */

struct mm *task_mm_get(struct task *t)
{
	AUTO_LOCK(&t->mu);

	return t->mm ? mm_get(t->mm) : NULL;
}

struct files *task_files_get(struct task *t)
{
	AUTO_LOCK(&t->mu);

	return t->files ? files_get(t->files) : NULL;
}

struct fsctx *task_fs_get(struct task *t)
{
	AUTO_LOCK(&t->mu);

	return t->fs ? fsctx_get(t->fs) : NULL;
}

struct nsproxy *task_ns_get(struct task *t)
{
	AUTO_LOCK(&t->mu);

	return t->ns ? nsproxy_get(t->ns) : NULL;
}

void task_get_comm(struct task *t, char comm[TASK_COMM_LEN])
{
	AUTO_LOCK(&t->mu);

	memcpy(comm, t->comm, TASK_COMM_LEN);
}

void task_set_comm(struct task *t, const char *comm)
{
	size_t len = strnlen(comm, TASK_COMM_LEN - 1);
	AUTO_LOCK(&t->mu);

	memset(t->comm, 0, sizeof(t->comm));
	memcpy(t->comm, comm, len);
}

/* ---- limits ---- */

uint64_t task_rlimit(struct task *t, int resource)
{
	/* One aligned word: no lock needed for a current value. */
	return READ_ONCE(t->tg->rlim[resource].cur);
}

void tgroup_get_rlimit(struct tgroup *tg, int resource, struct rlimit_g *ret)
{
	AUTO_LOCK(&tg->rlim_mu);

	*ret = tg->rlim[resource];
}

/*
 * Makes @t look at its flags soon. The order matters: the flags are set before in_guest is read, and
 * the task sets in_guest before it reads the flags, so one of the two sees the other (all seq_cst).
 * t->mu keeps the context from being destroyed under us.
 */
void task_interrupt(struct task *t)
{
	atomic_store(&t->interrupted, true);
	if (atomic_load(&t->in_guest)) {
		mutex_lock(&t->mu);
		if (t->ctx)
			plat->ctx_interrupt(t->ctx);
		mutex_unlock(&t->mu);
	}
	if (atomic_load(&t->kill_waiting))
		task_wake_killable(t);
	task_wake(t);
}
