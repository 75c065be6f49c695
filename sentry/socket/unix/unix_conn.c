// SPDX-License-Identifier: Apache-2.0
/*
 * Connections of SOCK_STREAM and SOCK_SEQPACKET: listen, connect, accept, socketpair.
 *
 * connect() makes the server's end at once and queues it on the listener; both sides can use it before
 * accept() gives it a file. Lock order: a listener's mutex before the client's, which can't be a
 * listener, as its state is UNIX_CONNECTING.
 */
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/unix/unix_priv.h"

int unix_listen(struct task *t, struct socket *s, int backlog)
{
	struct unix_sock *u = unix_of(s);

	if (s->type == SOCK_DGRAM)
		return -EOPNOTSUPP;
	if (!u->name)
		return -EINVAL;
	mutex_lock(&s->mu);
	if (u->state != UNIX_FREE && u->state != UNIX_LISTEN) {
		mutex_unlock(&s->mu);
		return -EINVAL;
	}
	u->backlog = (unsigned)backlog > SOCK_SOMAXCONN ? SOCK_SOMAXCONN : (unsigned)backlog;
	u->state = UNIX_LISTEN;
	unix_set_peercred(u, t);
	mutex_unlock(&s->mu);
	waitq_wake(&u->room_wq, EPOLLOUT); /* a bigger backlog lets more in */
	return 0;
}

/* ---------------------------------------------------------------- connect */

static int begin_connect(struct unix_sock *u)
{
	AUTO_LOCK(&u->sk.mu);
	switch ((enum unix_state)u->state) {
	case UNIX_FREE:
		u->state = UNIX_CONNECTING;
		return 0;
	case UNIX_CONNECTED:
		return -EISCONN;
	case UNIX_CONNECTING:
		return -EALREADY;
	case UNIX_LISTEN:
		return -EINVAL;
	}
	return -EINVAL;
}

static void abort_connect(struct unix_sock *u)
{
	AUTO_LOCK(&u->sk.mu);
	u->state = UNIX_FREE;
}

static bool has_place(struct unix_sock *l)
{
	AUTO_LOCK(&l->sk.mu);
	return l->dead || l->rcv_shut || l->accept_n <= l->backlog;
}

/* The server's end takes its name from the listener. */
static void embryo_name(struct unix_sock *e, const struct unix_sock *l)
{
	struct sockaddr_un *copy = kzalloc(sizeof(*copy));

	*copy = *l->name;
	e->name_len = l->name_len;
	e->name = copy;
}

/* 0: connected. 1: the queue is full. -ECONNREFUSED. Both @l and @u get linked to @e under their locks. */
static int queue_on(struct unix_sock *l, struct unix_sock *u, struct unix_sock *e)
{
	AUTO_LOCK(&l->sk.mu);
	if (l->dead || l->state != UNIX_LISTEN || l->rcv_shut)
		return -ECONNREFUSED;
	if (l->accept_n > l->backlog)
		return 1;
	embryo_name(e, l);
	atomic_fetch_or(&e->sk.flags, l->sk.flags & SOCKF_PASSCRED);
	e->peer = unix_get(u);
	e->state = UNIX_CONNECTED;
	mutex_lock_nested(&u->sk.mu);
	unix_copy_peercred(u, l);
	u->peer = unix_get(e);
	u->state = UNIX_CONNECTED;
	mutex_unlock(&u->sk.mu);
	list_add_tail(&l->accept_q, &unix_get(e)->accept_node);
	l->accept_n++;
	return 0;
}

static int try_connect(struct task *t, struct unix_sock *u, struct unix_sock *l, struct unix_sock *e,
		       bool nonblock)
{
	int64_t deadline = sock_deadline(&u->sk.sndtimeo_ns);

	for (;;) {
		int err = queue_on(l, u, e);
		long r;

		if (err <= 0)
			return err;
		if (nonblock)
			return -EAGAIN;
		r = wait_event(t, &l->room_wq, EPOLLOUT | EPOLLHUP, deadline, has_place(l));
		if (r == -ETIMEDOUT)
			return -EAGAIN;
		if (r < 0)
			return (int)sock_intr(&u->sk.sndtimeo_ns);
	}
}

int unix_connect(struct task *t, struct socket *s, const struct sock_addr *addr, bool nonblock)
{
	struct unix_sock *u = unix_of(s), *l, *e;
	int err = 0;

	if ((s->flags & SOCKF_PASSCRED) && !u->name)
		err = unix_autobind(t, u);
	if (err)
		return err;
	l = unix_find(t, s->net, addr, s->type);
	if (is_err(l))
		return (int)ptr_err(l);
	err = begin_connect(u);
	if (err) {
		unix_put(l);
		return err;
	}
	e = unix_alloc(s->net, s->type);
	unix_set_peercred(e, t);
	err = try_connect(t, u, l, e, nonblock);
	if (err) {
		abort_connect(u);
	} else {
		if (waitq_empty(&l->sk.wq) == false)
			waitq_wake_one(&l->sk.wq, EPOLLIN | EPOLLRDNORM);
		sock_wake(s, EPOLLOUT | EPOLLWRNORM);
	}
	unix_put(e);
	unix_put(l);
	return err;
}

/* ---------------------------------------------------------------- accept */

static bool acceptable(struct unix_sock *l)
{
	AUTO_LOCK(&l->sk.mu);
	return !list_empty(&l->accept_q) || l->rcv_shut || l->dead;
}

/* Takes one from the queue. NULL: none. err_ptr(-EINVAL): not listening (any more). */
static struct unix_sock *dequeue(struct unix_sock *l)
{
	struct unix_sock *e;

	AUTO_LOCK(&l->sk.mu);
	if (l->state != UNIX_LISTEN)
		return err_ptr(-EINVAL);
	if (list_empty(&l->accept_q))
		return l->rcv_shut ? err_ptr(-EINVAL) : NULL;
	e = list_first(&l->accept_q, struct unix_sock, accept_node);
	list_del(&e->accept_node);
	l->accept_n--;
	return e;
}

struct socket *unix_accept(struct task *t, struct socket *s, bool nonblock)
{
	struct unix_sock *l = unix_of(s), *e;
	int64_t deadline = sock_deadline(&s->rcvtimeo_ns);

	if (s->type == SOCK_DGRAM)
		return err_ptr(-EOPNOTSUPP);
	for (;;) {
		long r;

		e = dequeue(l);
		if (e)
			break;
		if (nonblock)
			return err_ptr(-EAGAIN);
		r = wait_event(t, &s->wq, EPOLLIN | EPOLLHUP, deadline, acceptable(l));
		if (r == -ETIMEDOUT)
			return err_ptr(-EAGAIN);
		if (r < 0)
			return err_ptr(sock_intr(&s->rcvtimeo_ns));
	}
	if (is_err(e))
		return err_ptr(ptr_err(e));
	waitq_poke(&l->room_wq, EPOLLOUT);
	return &e->sk;
}

int unix_socketpair(struct task *t, struct socket *a, struct socket *b)
{
	struct unix_sock *ua = unix_of(a), *ub = unix_of(b);

	ua->peer = unix_get(ub);
	ub->peer = unix_get(ua);
	unix_set_peercred(ua, t);
	unix_set_peercred(ub, t);
	ua->state = ub->state = UNIX_CONNECTED;
	if (a->type == SOCK_DGRAM) {
		list_add(&ua->clients, &ub->client_node);
		list_add(&ub->clients, &ua->client_node);
	}
	return 0;
}
