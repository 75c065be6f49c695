// SPDX-License-Identifier: Apache-2.0
/*
 * System V semaphores (man 2 semget, semop, semctl). A semop is all or nothing; who can't proceed sleeps on the
 * set's wait queue and tries again after each change of the set.
 *
 * SEM_UNDO: a list per task (shared by CLONE_SYSVSEM) of adjustments per set, applied when its last user exits.
 *
 * Lock: sysv_mu.
 */
#include <errno.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/list.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/sysv_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/usermem.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"

#define L_SEM_STAT_ANY 20

struct sem_set *sem_set_alloc(void)
{
	struct sem_set *s = kzalloc(sizeof(*s));

	ref_init(&s->o.ref);
	waitq_init(&s->wq);
	list_init(&s->undos);
	return s;
}

void sem_set_put(struct sem_set *s)
{
	if (!ref_put(&s->o.ref))
		return;
	waitq_fini(&s->wq);
	free(s->sem);
	free(s);
}

static struct sem_set *to_set(struct ipc_obj *o)
{
	return (struct sem_set *)(void *)o;
}

long sysv_semget(struct task *t, int32_t key, int nsems, int flags)
{
	struct ipcns *ns = task_ipcns(t);
	struct sem_set *s = NULL;
	struct ipc_obj *o;
	int r;

	if (nsems < 0 || nsems > SEMMSL_G)
		return -EINVAL;
	if (nsems > 0) { /* maybe for nothing: no allocation under the lock */
		s = sem_set_alloc();
		s->nsems = (unsigned)nsems;
		s->sem = kcalloc((size_t)nsems, sizeof(s->sem[0]));
	}
	mutex_lock(&sysv_mu);
	r = ipc_get_existing_locked(t, ns, IPC_SEM, key, flags, &o);
	if (o && (unsigned)nsems > to_set(o)->nsems)
		r = -EINVAL;
	if (!o && r == 0) {
		if (!s)
			r = -EINVAL;
		else if (ns->total_sems + s->nsems > SEMMNS_G)
			r = -ENOSPC;
		else
			r = ipc_insert_locked(t, ns, IPC_SEM, &s->o, key, flags, SEMMNI_G);
		if (r >= 0 && s) {
			ns->total_sems += s->nsems;
			s = NULL;
		}
	}
	mutex_unlock(&sysv_mu);
	if (s)
		sem_set_put(s);
	return r;
}

/* ---- undo ---- */

static struct sem_undo *undo_find(struct sem_undo_list *l, const struct sem_set *s)
{
	struct sem_undo *u;

	list_for_each(u, &l->undos, node)
		if (u->set == s)
			return u;
	return NULL;
}

/* Context: sysv_mu. The task's adjustments for @s, made on first use. */
static struct sem_undo *undo_get_locked(struct task *t, struct sem_set *s)
{
	struct sem_undo *u;

	if (!t->sem_undo) {
		t->sem_undo = kzalloc(sizeof(*t->sem_undo));
		ref_init(&t->sem_undo->ref);
		list_init(&t->sem_undo->undos);
	}
	u = undo_find(t->sem_undo, s);
	if (u)
		return u;
	u = kzalloc(sizeof(*u) + s->nsems * sizeof(u->adj[0]));
	u->set = s;
	u->n = s->nsems;
	list_add_tail(&t->sem_undo->undos, &u->node);
	list_add_tail(&s->undos, &u->set_node);
	return u;
}

void sem_undo_clone(struct task *t, struct task *child, bool share)
{
	child->sem_undo = NULL;
	if (!share)
		return;
	mutex_lock(&sysv_mu);
	if (!t->sem_undo) {
		t->sem_undo = kzalloc(sizeof(*t->sem_undo));
		ref_init(&t->sem_undo->ref);
		list_init(&t->sem_undo->undos);
	}
	ref_get(&t->sem_undo->ref);
	child->sem_undo = t->sem_undo;
	mutex_unlock(&sysv_mu);
}

static void undo_apply_locked(struct task *t, struct sem_undo *u)
{
	struct sem_set *s = u->set;

	for (unsigned i = 0; i < u->n; i++) {
		int v = s->sem[i].val + u->adj[i];

		if (!u->adj[i])
			continue;
		s->sem[i].val = (uint16_t)(v < 0 ? 0 : v > SEMVMX_G ? SEMVMX_G : v);
		s->sem[i].pid = task_tgid(t);
	}
	s->otime_s = ipc_now_s();
	waitq_wake(&s->wq, ~0u);
}

void sem_undo_exit(struct task *t)
{
	struct sem_undo_list *l = t->sem_undo;
	struct sem_undo *u, *tmp;

	if (!l)
		return;
	t->sem_undo = NULL;
	if (!ref_put(&l->ref))
		return;
	mutex_lock(&sysv_mu);
	list_for_each_safe(u, tmp, &l->undos, node) {
		if (u->set) {
			undo_apply_locked(t, u);
			list_del(&u->set_node);
		}
		list_del(&u->node);
		free(u);
	}
	mutex_unlock(&sysv_mu);
	free(l);
}

/* SETVAL and SETALL forget what was to be undone. @num < 0: all. */
static void undo_clear_locked(struct sem_set *s, int num)
{
	struct sem_undo *u;

	list_for_each(u, &s->undos, set_node) {
		if (num >= 0)
			u->adj[num] = 0;
		else
			memset(u->adj, 0, u->n * sizeof(u->adj[0]));
	}
}

/* ---- semop ---- */

static void apply_op(struct sem_set *s, struct sem_undo *u, const struct l_sembuf *op, int sign)
{
	struct sem *sem = &s->sem[op->num];

	sem->val = (uint16_t)(sem->val + sign * op->op);
	if (u && (op->flg & SEM_UNDO))
		u->adj[op->num] = (int16_t)(u->adj[op->num] - sign * op->op);
}

/*
 * Tries all of @ops, with their adjustments in @u (may be NULL if none has SEM_UNDO): each op is checked
 * against what the ones before it left. 0: done. 1: blocks at *ret_at. -ERANGE: a value or an
 * adjustment out of range. Unless 0, nothing is changed.
 */
static int try_ops_locked(struct sem_set *s, struct sem_undo *u, const struct l_sembuf *ops,
			  unsigned n, unsigned *ret_at)
{
	unsigned i = 0;
	int r = 0;

	for (; i < n; i++) {
		struct sem *sem = &s->sem[ops[i].num];
		int v = sem->val + ops[i].op, adj = 0;

		if (u && (ops[i].flg & SEM_UNDO))
			adj = u->adj[ops[i].num] - ops[i].op;
		if ((ops[i].op == 0 && sem->val) || v < 0)
			r = 1;
		else if (v > SEMVMX_G || adj < -SEMVMX_G - 1 || adj > SEMVMX_G)
			r = -ERANGE;
		if (r)
			break;
		apply_op(s, u, &ops[i], 1);
	}
	if (r == 0)
		return 0;
	*ret_at = i;
	while (i-- > 0) /* undo in reverse order */
		apply_op(s, u, &ops[i], -1);
	return r;
}

static void commit_locked(struct task *t, struct sem_set *s, const struct l_sembuf *ops, unsigned n)
{
	bool changed = false;

	for (unsigned i = 0; i < n; i++) {
		s->sem[ops[i].num].pid = task_tgid(t);
		changed |= ops[i].op != 0;
	}
	s->otime_s = ipc_now_s();
	if (changed)
		waitq_wake(&s->wq, ~0u);
}

/* One try; the set is known to be alive. */
static int attempt_locked(struct task *t, struct sem_set *s, const struct l_sembuf *ops, unsigned n,
			  unsigned *ret_at)
{
	struct sem_undo *u = NULL;
	int r;

	for (unsigned i = 0; i < n && !u; i++)
		if (ops[i].flg & SEM_UNDO)
			u = undo_get_locked(t, s);
	r = try_ops_locked(s, u, ops, n, ret_at);
	if (r == 0)
		commit_locked(t, s, ops, n);
	else if (r == 1 && (ops[*ret_at].flg & IPC_NOWAIT))
		r = -EAGAIN;
	return r;
}

static int semop_check_locked(struct task *t, struct sem_set *s, const struct l_sembuf *ops,
			      unsigned n)
{
	bool alter = false;

	for (unsigned i = 0; i < n; i++) {
		if (ops[i].num >= s->nsems)
			return -EFBIG;
		alter |= ops[i].op != 0;
	}
	return ipc_access(t, &s->o, alter ? 0222 : 0444);
}

static long semop_wait(struct task *t, struct sem_set *s, const struct l_sembuf *ops, unsigned n,
		       int64_t deadline_ns)
{
	struct waiter w;
	unsigned at = 0;
	long r, slept = 0;

	waiter_init_task(&w, t, ~0u);
	waitq_add(&s->wq, &w);
	for (;;) {
		unsigned *count = NULL;

		task_sleep_prepare(t);
		mutex_lock(&sysv_mu);
		r = s->o.removed ? -EIDRM : attempt_locked(t, s, ops, n, &at);
		if (r == 1 && slept == 0) {
			count = ops[at].op ? &s->sem[ops[at].num].ncnt : &s->sem[ops[at].num].zcnt;
			(*count)++;
		}
		mutex_unlock(&sysv_mu);
		if (r != 1)
			break;
		if (slept < 0) { /* semop isn't restarted (man 7 signal) */
			r = slept == -ETIMEDOUT ? -EAGAIN : -EINTR;
			break;
		}
		slept = task_sleep(t, deadline_ns);
		mutex_lock(&sysv_mu);
		(*count)--;
		mutex_unlock(&sysv_mu);
	}
	waitq_remove(&s->wq, &w);
	return r;
}

long sysv_semop(struct task *t, int id, const struct l_sembuf *ops, unsigned n, int64_t deadline_ns)
{
	struct sem_set *s;
	unsigned at = 0;
	long r;

	mutex_lock(&sysv_mu);
	s = to_set(ipc_find_locked(task_ipcns(t), IPC_SEM, id));
	r = s ? semop_check_locked(t, s, ops, n) : -EINVAL;
	if (r == 0)
		r = attempt_locked(t, s, ops, n, &at);
	if (r == 1)
		ref_get(&s->o.ref);
	mutex_unlock(&sysv_mu);
	if (r != 1)
		return r;
	r = semop_wait(t, s, ops, n, deadline_ns);
	sem_set_put(s);
	return r;
}

/* ---- semctl ---- */

static void remove_locked(struct ipcns *ns, struct sem_set *s)
{
	struct sem_undo *u, *tmp;

	ipc_unlink_locked(ns, IPC_SEM, &s->o);
	ns->total_sems -= s->nsems;
	list_for_each_safe(u, tmp, &s->undos, set_node) {
		list_del(&u->set_node);
		u->set = NULL;
	}
	waitq_wake(&s->wq, ~0u);
	sem_set_put(s);
}

void sem_destroy_all(struct ipcns *ns)
{
	AUTO_LOCK(&sysv_mu);

	for (unsigned i = 0; i < ns->ids[IPC_SEM].nslots; i++)
		if (ns->ids[IPC_SEM].slot[i])
			remove_locked(ns, to_set(ns->ids[IPC_SEM].slot[i]));
}

static long ctl_stat(struct task *t, int id, int cmd, gaddr_t buf)
{
	struct l_semid_ds ds = { 0 };
	struct ipc_obj *o;
	long r;

	mutex_lock(&sysv_mu);
	r = ipc_find_stat_locked(t, IPC_SEM, id, cmd == IPC_STAT, cmd == L_SEM_STAT_ANY, &o);
	if (r == 0) {
		ipc_show_perm(t, o, &ds.perm);
		ds.otime = to_set(o)->otime_s;
		ds.ctime = o->ctime_s;
		ds.nsems = to_set(o)->nsems;
		if (cmd != IPC_STAT)
			r = o->id;
	}
	mutex_unlock(&sysv_mu);
	if (r >= 0 && copyout_obj(t, buf, &ds) < 0)
		return -EFAULT;
	return r;
}

static long ctl_info(struct task *t, int cmd, gaddr_t buf)
{
	struct ipcns *ns = task_ipcns(t);
	struct seminfo si = {
		.semmap = SEMMNS_G, .semmni = SEMMNI_G, .semmns = SEMMNS_G, .semmnu = SEMMNS_G,
		.semmsl = SEMMSL_G, .semopm = SEMOPM_G, .semume = SEMOPM_G, .semusz = 20,
		.semvmx = SEMVMX_G, .semaem = SEMVMX_G,
	};
	int max;

	mutex_lock(&sysv_mu);
	if (cmd == SEM_INFO) {
		si.semusz = (int)ns->ids[IPC_SEM].in_use;
		si.semaem = (int)ns->total_sems;
	}
	max = ipc_max_index_locked(&ns->ids[IPC_SEM]);
	mutex_unlock(&sysv_mu);
	return copyout_obj(t, buf, &si) < 0 ? -EFAULT : max;
}

static long ctl_set_or_remove(struct task *t, int id, int cmd, gaddr_t buf)
{
	struct l_semid_ds ds;
	struct sem_set *s;
	long r;

	if (cmd == IPC_SET && copyin_obj(t, &ds, buf) < 0)
		return -EFAULT;
	AUTO_LOCK(&sysv_mu);
	s = to_set(ipc_find_locked(task_ipcns(t), IPC_SEM, id));
	if (!s)
		return -EINVAL;
	r = ipc_owner(t, &s->o);
	if (r < 0)
		return r;
	if (cmd == IPC_SET)
		return ipc_set_perm(t, &s->o, &ds.perm);
	remove_locked(task_ipcns(t), s);
	return 0;
}

/* GETVAL, GETPID, GETNCNT, GETZCNT, SETVAL */
static long ctl_one(struct task *t, int id, int num, int cmd, int val)
{
	struct sem_set *s;
	struct sem *sem;
	long r;
	AUTO_LOCK(&sysv_mu);

	s = to_set(ipc_find_locked(task_ipcns(t), IPC_SEM, id));
	if (!s)
		return -EINVAL;
	if (cmd == SETVAL && (val < 0 || val > SEMVMX_G))
		return -ERANGE;
	r = ipc_access(t, &s->o, cmd == SETVAL ? 0222 : 0444);
	if (r < 0)
		return r;
	if (num < 0 || (unsigned)num >= s->nsems)
		return -EINVAL;
	sem = &s->sem[num];
	switch (cmd) {
	case GETVAL:
		return sem->val;
	case GETPID:
		return sem->pid;
	case GETNCNT:
		return sem->ncnt;
	case GETZCNT:
		return sem->zcnt;
	default:
		break;
	}
	sem->val = (uint16_t)val;
	sem->pid = task_tgid(t);
	undo_clear_locked(s, num);
	s->o.ctime_s = ipc_now_s();
	waitq_wake(&s->wq, ~0u);
	return 0;
}

/* Reference, with the number of semaphores to copy. */
static struct sem_set *set_get(struct task *t, int id, uint32_t mask, long *ret_err)
{
	struct sem_set *s;
	AUTO_LOCK(&sysv_mu);

	s = to_set(ipc_find_locked(task_ipcns(t), IPC_SEM, id));
	*ret_err = s ? ipc_access(t, &s->o, mask) : -EINVAL;
	if (*ret_err < 0)
		return NULL;
	ref_get(&s->o.ref);
	return s;
}

static long ctl_all(struct task *t, int id, int cmd, gaddr_t buf)
{
	AUTO_FREE uint16_t *v = NULL;
	struct sem_set *s;
	long r;

	s = set_get(t, id, cmd == SETALL ? 0222 : 0444, &r);
	if (!s)
		return r;
	v = kcalloc(s->nsems, sizeof(*v));
	if (cmd == SETALL) {
		r = copyin(t, v, buf, s->nsems * sizeof(*v));
		for (unsigned i = 0; r == 0 && i < s->nsems; i++)
			if (v[i] > SEMVMX_G)
				r = -ERANGE;
	}
	mutex_lock(&sysv_mu);
	if (r == 0 && s->o.removed)
		r = -EIDRM;
	for (unsigned i = 0; r == 0 && i < s->nsems; i++) {
		if (cmd == GETALL) {
			v[i] = s->sem[i].val;
			continue;
		}
		s->sem[i].val = v[i];
		s->sem[i].pid = task_tgid(t);
	}
	if (r == 0 && cmd == SETALL) {
		undo_clear_locked(s, -1);
		s->o.ctime_s = ipc_now_s();
		waitq_wake(&s->wq, ~0u);
	}
	mutex_unlock(&sysv_mu);
	if (r == 0 && cmd == GETALL)
		r = copyout(t, buf, v, s->nsems * sizeof(*v));
	sem_set_put(s);
	return r;
}

long sysv_semctl(struct task *t, int id, int num, int cmd, uint64_t arg)
{
	if (id < 0)
		return -EINVAL;
	switch (cmd) {
	case IPC_INFO:
	case SEM_INFO:
		return ctl_info(t, cmd, gaddr(arg));
	case IPC_STAT:
	case SEM_STAT:
	case L_SEM_STAT_ANY:
		return ctl_stat(t, id, cmd, gaddr(arg));
	case IPC_SET:
	case IPC_RMID:
		return ctl_set_or_remove(t, id, cmd, gaddr(arg));
	case GETALL:
	case SETALL:
		return ctl_all(t, id, cmd, gaddr(arg));
	case GETVAL:
	case GETPID:
	case GETNCNT:
	case GETZCNT:
	case SETVAL:
		return ctl_one(t, id, num, cmd, (int)(uint32_t)arg);
	default:
		return -EINVAL;
	}
}

void sysv_show_sem(struct ipcns *ns, struct seqbuf *out)
{
	AUTO_LOCK(&sysv_mu);

	seq_printf(out, "       key      semid perms      nsems   uid   gid  cuid  cgid      "
			"otime      ctime\n");
	for (unsigned i = 0; i < ns->ids[IPC_SEM].nslots; i++) {
		const struct ipc_obj *o = ns->ids[IPC_SEM].slot[i];
		const struct sem_set *s;

		if (!o)
			continue;
		s = to_set(ns->ids[IPC_SEM].slot[i]);
		seq_printf(out, "%10d %10d  %4o %10u %5u %5u %5u %5u %10lld %10lld\n", o->key, o->id,
			   o->mode, s->nsems, o->uid, o->gid, o->cuid, o->cgid,
			   (long long)s->otime_s, (long long)o->ctime_s);
	}
}
