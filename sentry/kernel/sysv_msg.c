// SPDX-License-Identifier: Apache-2.0
/*
 * System V message queues (man 2 msgget, msgop, msgctl). Senders that find the queue full and receivers that
 * find nothing sleep on the queue's two wait queues and try again.
 *
 * Lock: sysv_mu; message bodies are copied to and from guests without it.
 */
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/list.h"
#include "sentry/kernel/kmem.h"
#include "sentry/kernel/sysv_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/usermem.h"
#include "sentry/vfs/vfs.h"

#define L_MSG_STAT_ANY 13
#define L_MSG_COPY 040000

static struct msg_queue *to_queue(struct ipc_obj *o)
{
	return (struct msg_queue *)(void *)o;
}

/* NULL: out of memory. */
struct msg *msg_alloc(size_t size)
{
	struct msg *m;

	if (!kmem_charge(sizeof(*m) + size))
		return NULL;
	m = kzalloc(sizeof(*m) + size);
	m->size = size;
	return m;
}

static void msg_free(struct msg *m)
{
	kmem_uncharge(sizeof(*m) + m->size);
	free(m);
}

struct msg_queue *msg_queue_alloc(void)
{
	struct msg_queue *q = kzalloc(sizeof(*q));

	ref_init(&q->o.ref);
	list_init(&q->msgs);
	waitq_init(&q->send_wq);
	waitq_init(&q->recv_wq);
	return q;
}

void msg_queue_put(struct msg_queue *q)
{
	struct msg *m, *tmp;

	if (!ref_put(&q->o.ref))
		return;
	list_for_each_safe(m, tmp, &q->msgs, node) {
		list_del(&m->node);
		msg_free(m);
	}
	waitq_fini(&q->send_wq);
	waitq_fini(&q->recv_wq);
	free(q);
}

long sysv_msgget(struct task *t, int32_t key, int flags)
{
	struct msg_queue *q = msg_queue_alloc();
	struct ipcns *ns = task_ipcns(t);
	struct ipc_obj *o;
	long r;

	q->qbytes = (uint64_t)sysv_limits.msgmnb;
	mutex_lock(&sysv_mu);
	r = ipc_get_existing_locked(t, ns, IPC_MSG, key, flags, &o);
	if (!o && r == 0) {
		r = ipc_insert_locked(t, ns, IPC_MSG, &q->o, key, flags,
				      (unsigned)sysv_limits.msgmni);
		if (r >= 0)
			q = NULL;
	}
	mutex_unlock(&sysv_mu);
	if (q)
		msg_queue_put(q);
	return r;
}

/* Reference, access checked. */
static struct msg_queue *queue_get(struct task *t, int id, uint32_t mask, long *ret_err)
{
	struct msg_queue *q;
	AUTO_LOCK(&sysv_mu);

	q = to_queue(ipc_find_locked(task_ipcns(t), IPC_MSG, id));
	*ret_err = q ? ipc_access(t, &q->o, mask) : -EINVAL;
	if (*ret_err < 0)
		return NULL;
	ref_get(&q->o.ref);
	return q;
}

/* ---- sending ---- */

/* 0: queued. -EAGAIN: full. -EIDRM. */
static long try_send(struct task *t, struct msg_queue *q, struct msg *m)
{
	AUTO_LOCK(&sysv_mu);

	if (q->o.removed)
		return -EIDRM;
	if (q->cbytes + m->size > q->qbytes || q->qnum + 1 > q->qbytes)
		return -EAGAIN;
	list_add_tail(&q->msgs, &m->node);
	q->cbytes += m->size;
	q->qnum++;
	q->lspid = task_tgid(t);
	q->stime_s = ipc_now_s();
	waitq_wake(&q->recv_wq, ~0u);
	return 0;
}

static long send(struct task *t, struct msg_queue *q, struct msg *m, int flags)
{
	long r = try_send(t, q, m), w;

	if (r != -EAGAIN || (flags & IPC_NOWAIT))
		return r;
	w = wait_event(t, &q->send_wq, ~0u, DEADLINE_NONE, (r = try_send(t, q, m)) != -EAGAIN);
	return w == -ERESTARTSYS ? -ERESTARTNOHAND : r;
}

long sysv_msgsnd(struct task *t, int id, gaddr_t msgp, size_t size, int flags)
{
	struct msg_queue *q;
	struct msg *m;
	int64_t type;
	long r;

	if (copyin_obj(t, &type, msgp) < 0)
		return -EFAULT;
	if (size > (uint64_t)sysv_limits.msgmax || id < 0 || type < 1)
		return -EINVAL;
	m = msg_alloc(size);
	if (!m)
		return -ENOMEM;
	m->type = type;
	if (copyin(t, m->data, gaddr_off(msgp, sizeof(type)), size) < 0) {
		msg_free(m);
		return -EFAULT;
	}
	q = queue_get(t, id, 0222, &r);
	if (q) {
		r = send(t, q, m, flags);
		msg_queue_put(q);
	}
	if (r < 0)
		msg_free(m);
	return r;
}

/* ---- receiving ---- */

static bool matches(const struct msg *m, int64_t type, int flags)
{
	if (type == 0)
		return true;
	if (type > 0)
		return (flags & MSG_EXCEPT) ? m->type != type : m->type == type;
	return m->type <= (type == INT64_MIN ? INT64_MAX : -type);
}

/* @type < 0: the lowest type that is small enough. */
static struct msg *choose_locked(struct msg_queue *q, int64_t type, int flags)
{
	struct msg *m, *best = NULL;

	if (flags & L_MSG_COPY) { /* @type is an index */
		list_for_each(m, &q->msgs, node)
			if (type-- == 0)
				return m;
		return NULL;
	}
	list_for_each(m, &q->msgs, node) {
		if (!matches(m, type, flags))
			continue;
		if (type >= 0)
			return m;
		if (!best || m->type < best->type)
			best = m;
	}
	return best;
}

/* 0 and *ret: the caller's message. -ENOMSG, -E2BIG, -EIDRM. */
static long try_recv(struct task *t, struct msg_queue *q, size_t size, int64_t type, int flags,
		     struct msg **ret)
{
	struct msg *m;
	AUTO_LOCK(&sysv_mu);

	if (q->o.removed)
		return -EIDRM;
	m = choose_locked(q, type, flags);
	if (!m)
		return -ENOMSG;
	if (m->size > size && !(flags & MSG_NOERROR))
		return -E2BIG;
	if (flags & L_MSG_COPY) {
		*ret = msg_alloc(m->size);
		if (!*ret)
			return -ENOMEM;
		memcpy(*ret, m, sizeof(*m) + m->size);
		return 0;
	}
	list_del(&m->node);
	q->cbytes -= m->size;
	q->qnum--;
	q->lrpid = task_tgid(t);
	q->rtime_s = ipc_now_s();
	waitq_wake(&q->send_wq, ~0u);
	*ret = m;
	return 0;
}

static long receive(struct task *t, struct msg_queue *q, size_t size, int64_t type, int flags,
		    struct msg **ret)
{
	long r = try_recv(t, q, size, type, flags, ret), w;

	if (r != -ENOMSG || (flags & IPC_NOWAIT))
		return r;
	w = wait_event(t, &q->recv_wq, ~0u, DEADLINE_NONE,
		       (r = try_recv(t, q, size, type, flags, ret)) != -ENOMSG);
	return w == -ERESTARTSYS ? -ERESTARTNOHAND : r;
}

long sysv_msgrcv(struct task *t, int id, gaddr_t msgp, size_t size, int64_t type, int flags)
{
	struct msg_queue *q;
	struct msg *m = NULL;
	long r;

	if (id < 0 || (ssize_t)size < 0)
		return -EINVAL;
	if ((flags & L_MSG_COPY) && ((flags & MSG_EXCEPT) || !(flags & IPC_NOWAIT)))
		return -EINVAL;
	q = queue_get(t, id, 0444, &r);
	if (!q)
		return r;
	r = receive(t, q, size, type, flags, &m);
	msg_queue_put(q);
	if (r < 0)
		return r;
	size = MIN(size, m->size);
	/* a bad buffer loses the message, as on Linux */
	if (copyout_obj(t, msgp, &m->type) < 0 ||
	    copyout(t, gaddr_off(msgp, sizeof(m->type)), m->data, size) < 0)
		r = -EFAULT;
	msg_free(m);
	return r < 0 ? r : (long)size;
}

/* ---- msgctl ---- */

static void remove_locked(struct ipcns *ns, struct msg_queue *q)
{
	ipc_unlink_locked(ns, IPC_MSG, &q->o);
	waitq_wake(&q->send_wq, ~0u);
	waitq_wake(&q->recv_wq, ~0u);
	msg_queue_put(q);
}

void msg_destroy_all(struct ipcns *ns)
{
	AUTO_LOCK(&sysv_mu);

	for (unsigned i = 0; i < ns->ids[IPC_MSG].nslots; i++)
		if (ns->ids[IPC_MSG].slot[i])
			remove_locked(ns, to_queue(ns->ids[IPC_MSG].slot[i]));
}

static long ctl_stat(struct task *t, int id, int cmd, gaddr_t buf)
{
	struct l_msqid_ds ds = { 0 };
	struct msg_queue *q;
	struct ipc_obj *o;
	long r;

	mutex_lock(&sysv_mu);
	r = ipc_find_stat_locked(t, IPC_MSG, id, cmd == IPC_STAT, cmd == L_MSG_STAT_ANY, &o);
	if (r == 0) {
		q = to_queue(o);
		ipc_show_perm(t, o, &ds.perm);
		ds.stime = q->stime_s;
		ds.rtime = q->rtime_s;
		ds.ctime = o->ctime_s;
		ds.cbytes = q->cbytes;
		ds.qnum = q->qnum;
		ds.qbytes = q->qbytes;
		ds.lspid = q->lspid;
		ds.lrpid = q->lrpid;
		r = cmd == IPC_STAT ? 0 : o->id;
	}
	mutex_unlock(&sysv_mu);
	if (r >= 0 && copyout_obj(t, buf, &ds) < 0)
		return -EFAULT;
	return r;
}

static long ctl_info(struct task *t, int cmd, gaddr_t buf)
{
	struct ipcns *ns = task_ipcns(t);
	int mmax = (int)sysv_limits.msgmax, mnb = (int)sysv_limits.msgmnb;
	int mni = (int)sysv_limits.msgmni;
	struct msginfo mi = { .msgpool = (int)MIN((int64_t)mni * mnb / 1024, (int64_t)INT32_MAX),
			      .msgmap = mnb, .msgmax = mmax, .msgmnb = mnb, .msgmni = mni,
			      .msgssz = 16, .msgtql = mnb, .msgseg = 0xffff };
	int max;

	mutex_lock(&sysv_mu);
	if (cmd == MSG_INFO) {
		mi.msgpool = (int)ns->ids[IPC_MSG].in_use;
		mi.msgmap = 0;
		mi.msgtql = 0;
		for (unsigned i = 0; i < ns->ids[IPC_MSG].nslots; i++) {
			if (!ns->ids[IPC_MSG].slot[i])
				continue;
			mi.msgmap += (int)to_queue(ns->ids[IPC_MSG].slot[i])->qnum;
			mi.msgtql += (int)to_queue(ns->ids[IPC_MSG].slot[i])->cbytes;
		}
	}
	max = ipc_max_index_locked(&ns->ids[IPC_MSG]);
	mutex_unlock(&sysv_mu);
	return copyout_obj(t, buf, &mi) < 0 ? -EFAULT : max;
}

static long ctl_change(struct task *t, int id, int cmd, gaddr_t buf)
{
	struct l_msqid_ds ds;
	struct msg_queue *q;
	long r;

	if (cmd == IPC_SET && copyin_obj(t, &ds, buf) < 0)
		return -EFAULT;
	AUTO_LOCK(&sysv_mu);
	q = to_queue(ipc_find_locked(task_ipcns(t), IPC_MSG, id));
	if (!q)
		return -EINVAL;
	r = ipc_owner(t, &q->o);
	if (r < 0)
		return r;
	if (cmd == IPC_RMID) {
		remove_locked(task_ipcns(t), q);
		return 0;
	}
	if (ds.qbytes > (uint64_t)sysv_limits.msgmnb && !task_capable(t, CAP_SYS_RESOURCE))
		return -EPERM;
	r = ipc_set_perm(t, &q->o, &ds.perm);
	if (r < 0)
		return r;
	q->qbytes = ds.qbytes;
	/* the limits or rights of those who wait may have changed */
	waitq_wake(&q->send_wq, ~0u);
	waitq_wake(&q->recv_wq, ~0u);
	return 0;
}

long sysv_msgctl(struct task *t, int id, int cmd, gaddr_t buf)
{
	if (id < 0)
		return -EINVAL;
	switch (cmd) {
	case IPC_INFO:
	case MSG_INFO:
		return ctl_info(t, cmd, buf);
	case IPC_STAT:
	case MSG_STAT:
	case L_MSG_STAT_ANY:
		return ctl_stat(t, id, cmd, buf);
	case IPC_SET:
	case IPC_RMID:
		return ctl_change(t, id, cmd, buf);
	default:
		return -EINVAL;
	}
}

void sysv_show_msg(struct ipcns *ns, struct seqbuf *out)
{
	AUTO_LOCK(&sysv_mu);

	seq_printf(out, "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid"
			"  cgid      stime      rtime      ctime\n");
	for (unsigned i = 0; i < ns->ids[IPC_MSG].nslots; i++) {
		const struct ipc_obj *o = ns->ids[IPC_MSG].slot[i];
		const struct msg_queue *q;

		if (!o)
			continue;
		q = to_queue(ns->ids[IPC_MSG].slot[i]);
		seq_printf(out, "%10d %10d  %4o  %10llu %10llu %5d %5d %5u %5u %5u %5u %10lld %10lld "
				"%10lld\n",
			   o->key, o->id, o->mode, (unsigned long long)q->cbytes,
			   (unsigned long long)q->qnum, q->lspid, q->lrpid, o->uid, o->gid, o->cuid,
			   o->cgid, (long long)q->stime_s, (long long)q->rtime_s,
			   (long long)o->ctime_s);
	}
}
