// SPDX-License-Identifier: Apache-2.0
/*
 * Message queues: sending, receiving, notification, and the text that reading a queue's node gives.
 *
 * Notification by a thread (SIGEV_THREAD) needs a netlink socket to tell the C library, which isn't there: it is
 * refused with EINVAL.
 *
 * Lock order: mq.mu (RANK_SOCK) > waitq; guest memory isn't touched under it, signals are sent after it.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/fs/mqueue/mqueue_priv.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/kmem.h"
#include "sentry/vfs/vfs_state.h"

/* A notification that is due; filled under mq.mu, sent after it. */
struct due {
	struct pid *pid;
	struct l_sigevent ev;
};

static void clear_notify_locked(struct mq *q)
{
	pid_put(q->notify_pid);
	q->notify_pid = NULL;
}

static void notify_locked(struct mq *q, struct due *d)
{
	if (!q->notify_pid || q->receivers)
		return;
	d->pid = q->notify_pid;
	d->ev = q->notify;
	q->notify_pid = NULL;
}

static void send_due(struct task *t, struct due *d)
{
	struct l_siginfo info = { .si_signo = d->ev.signo, .si_code = SI_MESGQ };
	struct tgroup *tg = NULL;

	if (!d->pid)
		return;
	mutex_lock(&kernel.tasks_mu);
	if (d->pid->tgroup)
		tg = tgroup_get(d->pid->tgroup);
	mutex_unlock(&kernel.tasks_mu);
	pid_put(d->pid);
	if (!tg)
		return;
	if (d->ev.notify == SIGEV_SIGNAL) {
		info.kill.pid = task_tgid(t);
		info.kill.uid = task_cred(t)->uid;
		info.kill.value = d->ev.value;
		signal_send_tgroup(tg, d->ev.signo, &info);
	}
	tgroup_put(tg);
}

static void insert_locked(struct mq *q, struct mq_msg *m)
{
	struct list *at = q->msgs.prev;

	/* behind the last one of the same or a higher priority */
	while (at != &q->msgs && list_entry(at, struct mq_msg, node)->prio < m->prio)
		at = at->prev;
	list_insert_between(&m->node, at, at->next);
	q->curmsgs++;
	q->qsize += m->len;
}

static bool try_send(struct task *t, struct mq *q, struct mq_msg *m)
{
	struct due due = { 0 };

	mutex_lock(&q->mu);
	if (q->curmsgs >= q->maxmsg) {
		mutex_unlock(&q->mu);
		return false;
	}
	insert_locked(q, m);
	if (q->curmsgs == 1)
		notify_locked(q, &due);
	mutex_unlock(&q->mu);
	waitq_wake(&q->wq, EPOLLIN | EPOLLRDNORM);
	send_due(t, &due);
	return true;
}

static bool writable(struct mq *q)
{
	AUTO_LOCK(&q->mu);
	return q->curmsgs < q->maxmsg;
}

static bool readable(struct mq *q)
{
	AUTO_LOCK(&q->mu);
	return q->curmsgs > 0;
}

long mqueue_send(struct task *t, struct file *f, void *buf, size_t len, unsigned prio,
		 int64_t deadline_ns)
{
	struct mq *q = mq_of(f->inode);
	struct mq_msg *m;
	long r;

	if (!kmem_charge(mq_msg_heap(len)))
		return -ENOMEM;
	m = kzalloc(sizeof(*m));
	m->prio = prio;
	m->len = len;
	m->data = buf;
	while (!try_send(t, q, m)) {
		r = f->flags & O_NONBLOCK ? -EAGAIN :
					    wait_event(t, &q->wq, EPOLLOUT, deadline_ns, writable(q));
		if (r < 0) {
			kmem_uncharge(mq_msg_heap(len));
			free(m);
			return r;
		}
	}
	return 0;
}

static struct mq_msg *try_receive(struct mq *q)
{
	struct mq_msg *m = NULL;

	mutex_lock(&q->mu);
	if (q->curmsgs) {
		m = list_first(&q->msgs, struct mq_msg, node);
		list_del(&m->node);
		q->curmsgs--;
		q->qsize -= m->len;
	}
	mutex_unlock(&q->mu);
	if (m)
		waitq_wake(&q->wq, EPOLLOUT | EPOLLWRNORM);
	return m;
}

static void count_receiver(struct mq *q, int d)
{
	AUTO_LOCK(&q->mu);
	q->receivers += (unsigned)d;
}

ssize_t mqueue_receive(struct task *t, struct file *f, size_t size, int64_t deadline_ns,
		       void **ret_buf, unsigned *ret_prio)
{
	struct mq *q = mq_of(f->inode);
	struct mq_msg *m;
	ssize_t len;
	long r;

	if (size < (size_t)q->msgsize)
		return -EMSGSIZE;
	while (!(m = try_receive(q))) {
		if (f->flags & O_NONBLOCK)
			return -EAGAIN;
		count_receiver(q, 1);
		r = wait_event(t, &q->wq, EPOLLIN, deadline_ns, readable(q));
		count_receiver(q, -1);
		if (r < 0)
			return r;
	}
	*ret_buf = m->data;
	*ret_prio = m->prio;
	len = (ssize_t)m->len;
	kmem_uncharge(mq_msg_heap(m->len));
	free(m);
	return len;
}

bool mqueue_notify_ok(const struct l_sigevent *ev)
{
	return ev->notify == SIGEV_NONE ||
	       (ev->notify == SIGEV_SIGNAL && ev->signo >= 0 && ev->signo <= NSIG_GUEST);
}

long mqueue_notify(struct task *t, struct file *f, const struct l_sigevent *ev)
{
	struct mq *q = mq_of(f->inode);

	AUTO_LOCK(&q->mu);
	if (!ev) {
		if (q->notify_pid == t->tg->pid)
			clear_notify_locked(q);
		return 0;
	}
	if (q->notify_pid)
		return -EBUSY;
	q->notify_pid = pid_get(t->tg->pid);
	q->notify = *ev;
	return 0;
}

void mqueue_getattr(struct file *f, struct l_mq_attr *ret)
{
	struct mq *q = mq_of(f->inode);
	AUTO_LOCK(&q->mu);

	memset(ret, 0, sizeof(*ret));
	ret->mq_flags = f->flags & O_NONBLOCK;
	ret->mq_maxmsg = q->maxmsg;
	ret->mq_msgsize = q->msgsize;
	ret->mq_curmsgs = q->curmsgs;
}

int mqueue_is(const struct file *f)
{
	return f->ops == &mq_fops;
}

size_t mqueue_msgsize(struct file *f)
{
	return (size_t)mq_of(f->inode)->msgsize;
}

/* ---- as a file ---- */

static ssize_t mq_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct mq *q = mq_of(f->inode);
	AUTO_FREE char *text = NULL;
	size_t len, at;
	ssize_t n;

	mutex_lock(&q->mu);
	text = kasprintf("QSIZE:%-10lu NOTIFY:%-5d SIGNO:%-5d NOTIFY_PID:%-6d\n",
			 (unsigned long)q->qsize, q->notify_pid ? q->notify.notify : 0,
			 q->notify_pid && q->notify.notify == SIGEV_SIGNAL ? q->notify.signo : 0,
			 q->notify_pid && t ? pid_nr(q->notify_pid, task_pidns(t)) : 0);
	mutex_unlock(&q->mu);
	len = strlen(text);
	if (*pos < 0 || (uint64_t)*pos >= len)
		return 0;
	at = (size_t)*pos;
	n = iter_copy_to(it, text + at, MIN(len - at, it->left));
	if (n > 0)
		*pos += n;
	return n;
}

static uint32_t mq_poll(struct file *f)
{
	struct mq *q = mq_of(f->inode);
	AUTO_LOCK(&q->mu);
	uint32_t ev = 0;

	if (q->curmsgs)
		ev |= EPOLLIN | EPOLLRDNORM;
	if (q->curmsgs < q->maxmsg)
		ev |= EPOLLOUT | EPOLLWRNORM;
	return ev;
}

static struct waitq *mq_waitq(struct file *f)
{
	return &mq_of(f->inode)->wq;
}

/* Closing any descriptor of the queue takes the process's registration back (man 3 mq_close). */
static void mq_flush(struct file *f, struct files *owner)
{
	struct mq *q = mq_of(f->inode);
	struct task *t = current_task();

	(void)owner;
	if (!t)
		return;
	AUTO_LOCK(&q->mu);
	if (q->notify_pid == t->tg->pid)
		clear_notify_locked(q);
}

const struct file_ops mq_fops = {
	.name = "mqueue",
	.flush = mq_flush,
	.read = mq_read,
	.llseek = generic_llseek,
	.poll = mq_poll,
	.waitq = mq_waitq,
	.state = &file_state_mqueue,
};
