// SPDX-License-Identifier: Apache-2.0
/*
 * Messages: SOCK_DGRAM, and the data of SOCK_SEQPACKET. A message is one buffer in the receiver's queue,
 * charged to its sender until it is read; a receiver that isn't connected back takes at most
 * UNIX_DGRAM_QLEN + 1 of them (as Linux's queue check does).
 *
 * A connected SOCK_DGRAM is in its peer's list of clients, so that room in the peer's queue can be
 * told to those who poll for it. Lock order: unix_bind_mu > socket.mu; never two
 * sockets' mutexes at once.
 */
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/unix/unix_priv.h"
#include "sentry/state/state.h"

#define MSG_OVERHEAD 256u /* charged for each message, so that empty ones are bounded, too */

static struct unix_sock *peer_get(struct unix_sock *u)
{
	AUTO_LOCK(&u->sk.mu);
	return u->peer ? unix_get(u->peer) : NULL;
}

/* ---------------------------------------------------------------- connect */

/* Makes @p (reference taken over; NULL: nobody) the default destination. unix_bind_mu serialises it, so
 * that the socket is in one list of clients only. */
static void set_peer(struct unix_sock *u, struct unix_sock *p)
{
	struct unix_sock *old;

	mutex_lock(&unix_bind_mu);
	mutex_lock(&u->sk.mu);
	old = u->peer;
	u->peer = p;
	u->state = p ? UNIX_CONNECTED : UNIX_FREE;
	mutex_unlock(&u->sk.mu);
	if (old) {
		mutex_lock(&old->sk.mu);
		list_del(&u->client_node);
		mutex_unlock(&old->sk.mu);
	}
	if (p) {
		mutex_lock(&p->sk.mu);
		list_add_tail(&p->clients, &u->client_node);
		mutex_unlock(&p->sk.mu);
	}
	mutex_unlock(&unix_bind_mu);
	unix_put(old);
	sock_wake(&u->sk, EPOLLOUT | EPOLLWRNORM);
}

void unix_dgram_disconnect(struct unix_sock *u)
{
	if (u->peer)
		set_peer(u, NULL);
}

/* man 7 unix: one that is connected to somebody takes messages only from it. */
static bool may_send(struct unix_sock *u, struct unix_sock *p)
{
	AUTO_LOCK(&p->sk.mu);
	return !p->peer || p->peer == u;
}

static int dgram_connect(struct task *t, struct socket *s, const struct sock_addr *addr, bool nonblock)
{
	struct unix_sock *u = unix_of(s), *p;

	(void)nonblock;
	if (addr->len >= sizeof(sa_family_t) && addr->ss.ss_family == AF_UNSPEC) {
		unix_dgram_disconnect(u);
		return 0;
	}
	if ((s->flags & SOCKF_PASSCRED) && !u->name) {
		int err = unix_autobind(t, u);

		if (err)
			return err;
	}
	p = unix_find(t, s->net, addr, SOCK_DGRAM);
	if (is_err(p))
		return (int)ptr_err(p);
	if (!may_send(u, p)) {
		unix_put(p);
		return -EPERM;
	}
	set_peer(u, p);
	return 0;
}

/* ---------------------------------------------------------------- send */

static struct unix_buf *message_create(struct unix_sock *u, struct sock_msg *m)
{
	size_t len = m->it->left;
	struct unix_buf *b = unix_buf_alloc(len);
	ssize_t r;

	if (!b)
		return err_ptr(-ENOBUFS);
	b->len = len;
	b->cap = len + MSG_OVERHEAD;
	r = len ? iter_copy_from(m->it, b->data, len) : 0;
	if (r != (ssize_t)len) {
		unix_buf_free(b);
		return err_ptr(-EFAULT);
	}
	b->from = unix_get(u);
	atomic_fetch_add(&u->wmem, b->cap);
	return b;
}

static bool queue_full_locked(struct unix_sock *u, struct unix_sock *p)
{
	return u->sk.type == SOCK_DGRAM && p->peer != u && p->rq_msgs > UNIX_DGRAM_QLEN;
}

static bool has_room(struct unix_sock *u, struct unix_sock *p)
{
	AUTO_LOCK(&p->sk.mu);
	return p->dead || p->rcv_shut || u->snd_shut || !queue_full_locked(u, p);
}

static bool own_room(struct unix_sock *u)
{
	return u->wmem < u->sk.sndbuf || u->snd_shut;
}

/* 0: queued. 1: full. -ECONNREFUSED, -EPIPE, -EPERM. */
static int deliver(struct unix_sock *u, struct unix_sock *p, struct unix_buf *b)
{
	AUTO_LOCK(&p->sk.mu);
	if (u->snd_shut)
		return -EPIPE;
	if (p->dead)
		return u->sk.type == SOCK_SEQPACKET ? -EPIPE : -ECONNREFUSED;
	if (p->rcv_shut)
		return -EPIPE;
	if (u->sk.type == SOCK_DGRAM && p->peer && p->peer != u)
		return -EPERM;
	if (queue_full_locked(u, p))
		return 1;
	list_add_tail(&p->rq, &b->node);
	p->rq_bytes += b->len;
	p->rq_msgs++;
	return 0;
}

static int send_failed(struct unix_sock *u, long r)
{
	return (int)(r == -ETIMEDOUT ? -EAGAIN : sock_intr(&u->sk.sndtimeo_ns));
}

static int send_to(struct task *t, struct unix_sock *u, struct unix_sock *p, struct unix_buf *b,
		   int flags)
{
	int64_t deadline = sock_deadline(&u->sk.sndtimeo_ns);

	if (p->sink) {
		p->sink(p->sink_arg, b->data, b->len);
		unix_buf_free(b);
		return 0;
	}
	for (;;) {
		int err = deliver(u, p, b);
		long r;

		if (err == 0)
			sock_wake(&p->sk, EPOLLIN | EPOLLRDNORM);
		if (err <= 0)
			return err;
		if (flags & MSG_DONTWAIT)
			return -EAGAIN;
		r = wait_event(t, &p->room_wq, EPOLLOUT | EPOLLHUP, deadline, has_room(u, p));
		if (r < 0)
			return send_failed(u, r);
	}
}

static int wait_own_room(struct task *t, struct unix_sock *u, int flags)
{
	long r;

	if (own_room(u))
		return 0;
	if (flags & MSG_DONTWAIT)
		return -EAGAIN;
	r = wait_event(t, &u->sk.wq, EPOLLOUT | EPOLLHUP, sock_deadline(&u->sk.sndtimeo_ns),
		       own_room(u));
	return r < 0 ? send_failed(u, r) : 0;
}

/* Where the message goes: reference or err_ptr. */
static struct unix_sock *destination(struct task *t, struct unix_sock *u, struct sock_msg *m)
{
	struct unix_sock *p;

	if (u->sk.type == SOCK_DGRAM && m->addr.len)
		return t ? unix_find(t, u->sk.net, &m->addr, SOCK_DGRAM) : err_ptr(-EAGAIN);
	p = peer_get(u);
	return p ? p : err_ptr(-ENOTCONN);
}

static ssize_t message_send(struct task *t, struct unix_sock *u, struct unix_sock *p,
			    struct sock_msg *m, struct scm *scm, int flags)
{
	size_t len = m->it->left;
	struct unix_buf *b;
	int err;

	if (len > u->sk.sndbuf - 32)
		err = -EMSGSIZE;
	else
		err = wait_own_room(t, u, flags);
	b = err ? err_ptr(err) : message_create(u, m);
	if (is_err(b)) {
		scm_free(scm);
		return ptr_err(b);
	}
	b->scm = scm;
	err = send_to(t, u, p, b, flags);
	if (err == 0)
		return (ssize_t)len;
	unix_buf_free(b);
	return err;
}

static ssize_t dgram_sendmsg(struct task *t, struct socket *s, struct sock_msg *m, int flags)
{
	struct unix_sock *u = unix_of(s), *p;
	struct scm *scm;
	ssize_t r;

	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (s->type == SOCK_SEQPACKET) {
		if (u->state != UNIX_CONNECTED)
			return -ENOTCONN;
		m->addr.len = 0; /* ignored, as on Linux */
	}
	if (t && (s->flags & SOCKF_PASSCRED) && !u->name) {
		r = unix_autobind(t, u);
		if (r < 0)
			return r;
	}
	r = sock_take_err(s);
	if (r < 0)
		return r;
	p = destination(t, u, m);
	if (is_err(p))
		return ptr_err(p);
	r = scm_send(t, u, m, &scm);
	if (r == 0)
		r = message_send(t, u, p, m, scm, flags);
	if (r == -ECONNREFUSED && !m->addr.len && u->peer == p)
		unix_dgram_disconnect(u);
	unix_put(p);
	return r;
}

/* ---------------------------------------------------------------- receive */

static bool recv_ready(struct unix_sock *u)
{
	AUTO_LOCK(&u->sk.mu);
	return !list_empty(&u->rq) || u->rcv_shut || u->sk.err;
}

/* Who polls for room in our queue. Context: u->sk.mu. */
static void wake_clients_locked(struct unix_sock *u)
{
	struct unix_sock *c;

	list_for_each (c, &u->clients, client_node)
		waitq_poke(&c->sk.wq, EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
}

/* The bytes of @b to the guest, and what recvmsg says about them. */
static ssize_t give(struct task *t, struct unix_sock *u, struct unix_buf *b, struct sock_msg *m,
		    int flags, size_t skip)
{
	size_t avail = b->len - MIN(skip, b->len), n = MIN(avail, m->it->left);
	ssize_t r = n ? iter_copy_to(m->it, b->data + MIN(skip, b->len), n) : 0;

	if (r < 0 || (size_t)r < n)
		return -EFAULT;
	if (n < avail)
		m->flags_out |= MSG_TRUNC;
	if (m->want_addr && b->from) {
		unix_addr_of(b->from, &m->addr);
		if (m->addr.len <= sizeof(sa_family_t))
			m->addr.len = 0;
	}
	scm_recv(t, &u->sk, m, b->scm, flags, flags & MSG_PEEK);
	return flags & MSG_TRUNC ? (ssize_t)avail : r;
}

static ssize_t recv_once(struct task *t, struct unix_sock *u, struct sock_msg *m, int flags)
{
	struct unix_buf *b;
	bool was_full;
	ssize_t r;

	mutex_lock(&u->sk.mu);
	if (list_empty(&u->rq)) {
		r = sock_take_err(&u->sk);
		if (!r && u->sk.type == SOCK_SEQPACKET && u->state != UNIX_CONNECTED)
			r = -ENOTCONN;
		if (!r)
			r = u->rcv_shut ? 0 : -EAGAIN;
		mutex_unlock(&u->sk.mu);
		return r;
	}
	b = list_first(&u->rq, struct unix_buf, node);
	if (flags & MSG_PEEK) {
		int off = u->sk.peek_off;

		r = give(t, u, b, m, flags, off > 0 ? (size_t)off : 0);
		if (off >= 0 && r > 0)
			u->sk.peek_off = off + (int)r;
		mutex_unlock(&u->sk.mu);
		return r;
	}
	was_full = u->rq_msgs > UNIX_DGRAM_QLEN;
	list_del(&b->node);
	u->rq_bytes -= b->len;
	u->rq_msgs--;
	if (u->sk.peek_off > 0)
		u->sk.peek_off = MAX(u->sk.peek_off - (int)b->len, 0);
	if (was_full)
		wake_clients_locked(u);
	mutex_unlock(&u->sk.mu);
	if (was_full)
		waitq_poke(&u->room_wq, EPOLLOUT);
	r = give(t, u, b, m, flags, 0);
	unix_buf_free(b);
	return r;
}

static ssize_t dgram_recvmsg(struct task *t, struct socket *s, struct sock_msg *m, int flags)
{
	struct unix_sock *u = unix_of(s);
	int64_t deadline = sock_deadline(&s->rcvtimeo_ns);

	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	for (;;) {
		ssize_t r = recv_once(t, u, m, flags);
		long w;

		if (r != -EAGAIN || (flags & MSG_DONTWAIT))
			return r;
		w = wait_event(t, &s->wq, EPOLLIN | EPOLLHUP | EPOLLERR, deadline, recv_ready(u));
		if (w < 0)
			return w == -ETIMEDOUT ? -EAGAIN : sock_intr(&s->rcvtimeo_ns);
	}
}

#define UNIX_MESSAGE_OPS                                                                 \
	.destroy = unix_destroy, .release = unix_release, .bind = unix_bind,             \
	.socketpair = unix_socketpair, .getname = unix_getname, .shutdown = unix_shutdown, \
	.sendmsg = dgram_sendmsg, .recvmsg = dgram_recvmsg, .poll = unix_poll,           \
	.ioctl = unix_ioctl, .getsockopt = unix_getsockopt

const struct proto_ops unix_dgram_ops = {
	UNIX_MESSAGE_OPS,
	.name = "UNIX",
	.connect = dgram_connect,
	.state = &state_sock_unix,
};

const struct proto_ops unix_seqpacket_ops = {
	UNIX_MESSAGE_OPS,
	.name = "UNIX-SEQPACKET",
	.connect = unix_connect,
	.listen = unix_listen,
	.accept = unix_accept,
	.state = &state_sock_unix,
};
