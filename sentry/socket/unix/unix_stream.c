// SPDX-License-Identifier: Apache-2.0
/*
 * Data of SOCK_STREAM: a list of buffers in the receiver's queue. Small writes collect in the last buffer
 * when they carry nothing that has to stay apart (files, other credentials).
 *
 * The sender copies straight from guest memory into the receiver's queue under the receiver's mutex;
 * its own sndbuf bounds the queue. A stream's peer is set once, so a call on the socket may use it
 * without the lock; the reference goes when the file does.
 */
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/unix/unix_priv.h"
#include "sentry/state/state.h"

/* ---------------------------------------------------------------- send */

static bool can_append(const struct unix_buf *b, const struct scm *scm)
{
	if (b->scm && b->scm->nfiles)
		return false;
	if (scm && scm->nfiles)
		return false;
	return b->off + b->len < b->cap && scm_same_cred(b->scm, scm);
}

static struct scm *scm_cred_copy(const struct scm *scm)
{
	struct scm *c;

	if (!scm || !scm->has_cred)
		return NULL;
	c = kzalloc(sizeof(*c));
	list_init(&c->node);
	c->cred = scm->cred;
	if (c->cred.pid)
		pid_get(c->cred.pid);
	c->has_cred = true;
	return c;
}

/* Copies up to @max bytes into the queue of @p. @scm: files go with the first bytes (*scm becomes a
 * copy without files). Bytes, -EFAULT, -ENOMEM. Context: p->sk.mu. */
static ssize_t append_locked(struct unix_sock *p, struct iter *it, size_t max, struct scm **scm)
{
	struct unix_buf *b = NULL;
	size_t n = MIN(it->left, max), cap;
	ssize_t r;

	if (!list_empty(&p->rq)) {
		b = list_last(&p->rq, struct unix_buf, node);
		if (!can_append(b, *scm))
			b = NULL;
	}
	if (b) {
		n = MIN(n, b->cap - b->off - b->len);
		r = iter_copy_from(it, b->data + b->off + b->len, n);
		if (r <= 0)
			return r;
		b->len += (size_t)r;
		p->rq_bytes += (size_t)r;
		return r;
	}
	n = MIN(n, (size_t)UNIX_BUF_MAX);
	cap = MAX(n, (size_t)UNIX_BUF_MIN);
	b = unix_buf_alloc(cap);
	if (!b)
		return -ENOMEM;
	b->cap = cap;
	r = iter_copy_from(it, b->data, n);
	if (r <= 0) {
		unix_buf_free(b);
		return r;
	}
	b->len = (size_t)r;
	b->scm = *scm;
	*scm = scm_cred_copy(b->scm);
	list_add_tail(&p->rq, &b->node);
	p->rq_bytes += (size_t)r;
	p->rq_msgs++;
	return r;
}

static bool send_ready(struct unix_sock *u, struct unix_sock *p)
{
	AUTO_LOCK(&p->sk.mu);
	return u->snd_shut || p->dead || p->rcv_shut || p->rq_bytes < u->sk.sndbuf;
}

/* One go: bytes, 0: no room, -EPIPE, -EFAULT, -ENOMEM. */
static ssize_t send_once(struct unix_sock *u, struct unix_sock *p, struct iter *it, struct scm **scm)
{
	ssize_t done = 0, r = 0;

	mutex_lock(&p->sk.mu);
	if (p->dead || p->rcv_shut || u->snd_shut) {
		mutex_unlock(&p->sk.mu);
		return -EPIPE;
	}
	while (it->left && p->rq_bytes < u->sk.sndbuf) {
		r = append_locked(p, it, u->sk.sndbuf - p->rq_bytes, scm);
		if (r <= 0)
			break;
		done += r;
	}
	mutex_unlock(&p->sk.mu);
	if (done)
		sock_wake(&p->sk, EPOLLIN | EPOLLRDNORM);
	return done ? done : r;
}

static ssize_t send_all(struct task *t, struct unix_sock *u, struct unix_sock *p, struct iter *it,
			struct scm **scm, int flags)
{
	int64_t deadline = DEADLINE_NONE;
	ssize_t done = (ssize_t)task_call_progress(t);
	struct scm *none = NULL;

	if (done)
		scm = &none; /* it went with the first byte */
	iter_advance(it, (size_t)done);
	while (it->left) {
		ssize_t r = send_once(u, p, it, scm);
		long w;

		if (r < 0)
			return done ? done : r;
		done += r;
		if (it->left == 0)
			break;
		if (r > 0)
			continue;
		if (flags & MSG_DONTWAIT)
			return done ? done : -EAGAIN;
		if (deadline == DEADLINE_NONE)
			deadline = sock_deadline(&u->sk.sndtimeo_ns);
		w = wait_event(t, &u->sk.wq, EPOLLOUT | EPOLLHUP, deadline, send_ready(u, p));
		if (w < 0 && done)
			return w == -ETIMEDOUT ? done : task_call_partial(t, done);
		if (w < 0)
			return w == -ETIMEDOUT ? -EAGAIN : sock_intr(&u->sk.sndtimeo_ns);
	}
	return done;
}

static ssize_t stream_sendmsg(struct task *t, struct socket *s, struct sock_msg *m, int flags)
{
	struct unix_sock *u = unix_of(s), *p = u->peer;
	struct scm *scm;
	ssize_t r;

	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (m->addr.len)
		return u->state == UNIX_CONNECTED ? -EISCONN : -EOPNOTSUPP;
	if (!p)
		return -ENOTCONN;
	r = scm_send(t, u, m, &scm);
	if (r < 0)
		return r;
	/* A reset peer is EPIPE to a writer; the reader gets ECONNRESET. */
	r = u->snd_shut ? 0 : sock_take_err(s);
	if (r == 0)
		r = send_all(t, u, p, m->it, &scm, flags);
	scm_free(scm);
	return r;
}

/* ---------------------------------------------------------------- receive */

static bool recv_ready(struct unix_sock *u)
{
	AUTO_LOCK(&u->sk.mu);
	return !list_empty(&u->rq) || u->rcv_shut || u->sk.err;
}

struct recv_state {
	struct list done;  /* emptied buffers, to be freed without the lock */
	struct scm *scm;   /* what goes to the guest: owned, or borrowed from a buffer when peeking */
	bool own_scm, have_scm;
	bool stop;         /* the next byte may not join this call's */
	size_t skip;       /* SO_PEEK_OFF */
};

/* May @b's bytes follow what was copied already? Notes @b's ancillary data. Context: mu. */
static bool join_locked(struct unix_sock *u, struct unix_buf *b, struct recv_state *rs, bool peek)
{
	if (rs->have_scm && (u->sk.flags & SOCKF_PASSCRED) && !scm_same_cred(rs->scm, b->scm))
		return false;
	/* As in Linux bytes without files may come before those with some, but none after. */
	if (rs->have_scm && !(b->scm && b->scm->nfiles))
		return true;
	if (rs->own_scm)
		scm_free(rs->scm); /* of the earlier bytes: credentials alone, the same */
	rs->own_scm = false;
	rs->have_scm = true;
	rs->scm = b->scm;
	if (!b->scm)
		return true;
	if (b->scm->nfiles)
		rs->stop = true;
	if (!peek) { /* the files leave with the first bytes; later ones still show who sent them */
		b->scm = scm_cred_copy(rs->scm);
		rs->own_scm = true;
	}
	return true;
}

static ssize_t copy_locked(struct unix_sock *u, struct iter *it, struct recv_state *rs, bool peek)
{
	struct unix_buf *b, *tmp;
	ssize_t done = 0;

	list_for_each_safe (b, tmp, &u->rq, node) {
		size_t skip = MIN(rs->skip, b->len), n = MIN(b->len - skip, it->left);
		ssize_t r;

		rs->skip -= skip;
		if (skip == b->len)
			continue;
		if (!join_locked(u, b, rs, peek)) {
			rs->stop = true;
			break;
		}
		r = iter_copy_to(it, b->data + b->off + skip, n);
		if (r < 0)
			return done ? done : r;
		done += r;
		if (!peek) {
			b->off += (size_t)r;
			b->len -= (size_t)r;
			u->rq_bytes -= (size_t)r;
			if (b->len == 0) {
				list_del(&b->node);
				u->rq_msgs--;
				list_add_tail(&rs->done, &b->node);
			}
		}
		if (it->left == 0 || (size_t)r < n || rs->stop)
			break;
	}
	return done;
}

/* What is there, or -EAGAIN. Hands ancillary data over; frees what was used up. */
static ssize_t recv_once(struct task *t, struct unix_sock *u, struct sock_msg *m, int flags,
			 struct recv_state *rs)
{
	bool peek = flags & MSG_PEEK;
	struct unix_sock *p = u->peer;
	ssize_t r;
	bool wake;

	mutex_lock(&u->sk.mu);
	if (list_empty(&u->rq)) {
		r = sock_take_err(&u->sk);
		if (!r)
			r = u->rcv_shut ? 0 : u->state != UNIX_CONNECTED ? -EINVAL : -EAGAIN;
		rs->stop = r == 0;
		mutex_unlock(&u->sk.mu);
		return r;
	}
	r = copy_locked(u, m->it, rs, peek);
	if (peek && u->sk.peek_off >= 0 && r > 0)
		u->sk.peek_off += (int)r;
	else if (!peek && u->sk.peek_off > 0 && r > 0)
		u->sk.peek_off = (int)MAX((ssize_t)u->sk.peek_off - r, (ssize_t)0);
	if (peek && rs->scm) {
		/* Under the lock: the buffer keeps its own reference of the files. */
		scm_recv(t, &u->sk, m, rs->scm, flags, true);
		rs->scm = NULL;
	}
	wake = !peek && p && unix_writable(u->rq_bytes, p->sk.sndbuf);
	mutex_unlock(&u->sk.mu);
	if (wake && r > 0)
		sock_wake(&p->sk, EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
	while (!list_empty(&rs->done)) {
		struct unix_buf *b = list_first(&rs->done, struct unix_buf, node);

		list_del(&b->node);
		unix_buf_free(b);
	}
	return r;
}

static ssize_t recv_loop(struct task *t, struct unix_sock *u, struct sock_msg *m, int flags,
			 struct recv_state *rs)
{
	int64_t deadline = sock_deadline(&u->sk.rcvtimeo_ns);
	size_t want = flags & MSG_WAITALL ? m->it->left : 1;
	ssize_t done = flags & MSG_WAITALL ? (ssize_t)task_call_progress(t) : 0;

	iter_advance(m->it, (size_t)done);
	for (;;) {
		ssize_t r = recv_once(t, u, m, flags, rs);
		long w;

		if (r != -EAGAIN) {
			if (r < 0)
				return done ? done : r;
			done += r;
			if ((size_t)done >= want || rs->stop || r == 0 || (flags & MSG_PEEK))
				return done;
			continue;
		}
		if (flags & MSG_DONTWAIT)
			return done ? done : -EAGAIN;
		w = wait_event(t, &u->sk.wq, EPOLLIN | EPOLLHUP | EPOLLERR, deadline,
			       recv_ready(u));
		/* What came along with the first part would be lost. */
		if (w < 0 && done)
			return w == -ETIMEDOUT || rs->scm || (u->sk.flags & SOCKF_PASSCRED) ? done : task_call_partial(t, done);
		if (w < 0)
			return w == -ETIMEDOUT ? -EAGAIN : sock_intr(&u->sk.rcvtimeo_ns);
	}
}

static ssize_t stream_recvmsg(struct task *t, struct socket *s, struct sock_msg *m, int flags)
{
	struct unix_sock *u = unix_of(s);
	struct recv_state rs = { 0 };
	ssize_t r;

	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	list_init(&rs.done);
	if ((flags & MSG_PEEK) && s->peek_off > 0)
		rs.skip = (size_t)s->peek_off;
	r = recv_loop(t, u, m, flags, &rs);
	if (r >= 0 && !(flags & MSG_PEEK) && (rs.scm || (rs.have_scm && (s->flags & SOCKF_PASSCRED))))
		scm_recv(t, s, m, rs.scm, flags, false);
	if (rs.own_scm)
		scm_free(rs.scm);
	if (r >= 0 && m->want_addr && u->peer) {
		unix_addr_of(u->peer, &m->addr);
		if (m->addr.len <= sizeof(sa_family_t))
			m->addr.len = 0;
	}
	return r;
}

const struct proto_ops unix_stream_ops = {
	.name = "UNIX-STREAM",
	.destroy = unix_destroy,
	.release = unix_release,
	.bind = unix_bind,
	.connect = unix_connect,
	.socketpair = unix_socketpair,
	.listen = unix_listen,
	.accept = unix_accept,
	.getname = unix_getname,
	.shutdown = unix_shutdown,
	.sendmsg = stream_sendmsg,
	.recvmsg = stream_recvmsg,
	.poll = unix_poll,
	.ioctl = unix_ioctl,
	.getsockopt = unix_getsockopt,
	.state = &state_sock_unix,
};
