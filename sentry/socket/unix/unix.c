// SPDX-License-Identifier: Apache-2.0
/*
 * AF_UNIX: life of a socket, credentials of the other side, poll, options, ioctl.
 *
 * Two connected sockets hold references on each other; release of one side's file drops its own, so the
 * pair doesn't keep itself alive. Lock order: unix_priv.h.
 */
#include "sentry/socket/unix/unix.h"

#include <linux/sockios.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include "base/alloc.h"
#include "sentry/kernel/kmem.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/netns.h"
#include "sentry/socket/unix/unix_priv.h"

/* ---------------------------------------------------------------- credentials */

void unix_cred_fill(struct task *t, struct unix_cred *c)
{
	const struct cred *cr = task_cred(t);

	*c = (struct unix_cred){ pid_get(t->tg->pid), cr->euid, cr->egid };
}

void unix_cred_put(struct unix_cred *c)
{
	if (c->pid)
		pid_put(c->pid);
	c->pid = NULL;
}

void unix_set_peercred(struct unix_sock *u, struct task *t)
{
	unix_cred_put(&u->peercred);
	unix_cred_fill(t, &u->peercred);
	if (u->peergroups)
		cred_put(u->peergroups);
	u->peergroups = task_cred_get(t);
}

void unix_copy_peercred(struct unix_sock *to, const struct unix_sock *from)
{
	unix_cred_put(&to->peercred);
	to->peercred = from->peercred;
	if (to->peercred.pid)
		pid_get(to->peercred.pid);
	if (to->peergroups)
		cred_put(to->peergroups);
	to->peergroups = from->peergroups ? cred_get(from->peergroups) : NULL;
}

/* ---------------------------------------------------------------- life */

struct unix_sock *unix_alloc(struct netns *net, int type)
{
	struct unix_sock *u = unix_alloc_bare();

	unix_set_type(u, type);
	u->sk.net = netns_get(net);
	unix_enter_net(u);
	return u;
}

void unix_set_type(struct unix_sock *u, int type)
{
	u->sk.type = type;
	if (type == SOCK_DGRAM)
		u->sk.ops = &unix_dgram_ops;
	else if (type == SOCK_SEQPACKET)
		u->sk.ops = &unix_seqpacket_ops;
}

void unix_enter_net(struct unix_sock *u)
{
	AUTO_LOCK(&unix_bind_mu);
	list_add_tail(&u->sk.net->unix_socks, &u->net_node);
}

struct unix_sock *unix_alloc_bare(void)
{
	struct unix_sock *u = kzalloc(sizeof(*u));

	socket_init(&u->sk, &unix_stream_ops, NULL, AF_UNIX, SOCK_STREAM, 0);
	list_init(&u->net_node);
	list_init(&u->rq);
	list_init(&u->clients);
	list_init(&u->client_node);
	list_init(&u->accept_q);
	list_init(&u->accept_node);
	list_init(&u->gc_node);
	waitq_init(&u->room_wq);
	return u;
}

static int unix_create(struct task *t, struct netns *net, int type, int protocol,
		       struct socket **ret)
{
	(void)t;
	if (protocol && protocol != PF_UNIX)
		return -EPROTONOSUPPORT;
	if (type == SOCK_RAW) /* an old alias */
		type = SOCK_DGRAM;
	if (type != SOCK_STREAM && type != SOCK_DGRAM && type != SOCK_SEQPACKET)
		return -ESOCKTNOSUPPORT;
	*ret = &unix_alloc(net, type)->sk;
	return 0;
}

static const struct sock_family unix_family = { .family = AF_UNIX, .create = unix_create };

void unix_init(void)
{
	mutex_init(&unix_bind_mu, RANK_SOCK_BIND);
	unix_gc_init();
	sock_register(&unix_family);
}

/* The bytes stop counting against their sender. */
static void uncharge(struct unix_sock *from, size_t len)
{
	size_t left = atomic_fetch_sub(&from->wmem, len) - len;

	if (unix_writable(left, from->sk.sndbuf))
		sock_wake(&from->sk, EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
}

/* Room for @cap bytes; all else is zero. NULL: out of memory. */
struct unix_buf *unix_buf_alloc(size_t cap)
{
	size_t size = sizeof(struct unix_buf) + cap;
	struct unix_buf *b = kmem_charge(size) ? kmalloc_guest(size) : NULL;

	if (b)
		*b = (struct unix_buf){ .heap = size };
	return b;
}

void unix_buf_free(struct unix_buf *b)
{
	kmem_uncharge(b->heap);
	scm_free(b->scm);
	if (b->from) {
		uncharge(b->from, b->cap);
		unix_put(b->from);
	}
	free(b);
}

/* Tells the other end of a connection that @u is gone. */
static void hang_up(struct unix_sock *peer, bool reset)
{
	mutex_lock(&peer->sk.mu);
	peer->rcv_shut = peer->snd_shut = true;
	if (reset)
		peer->sk.err = ECONNRESET;
	mutex_unlock(&peer->sk.mu);
	sock_wake(&peer->sk, EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLHUP | EPOLLRDHUP |
				     (reset ? EPOLLERR : 0u));
}

static void free_queue(struct list *q)
{
	while (!list_empty(q)) {
		struct unix_buf *b = list_first(q, struct unix_buf, node);

		list_del(&b->node);
		unix_buf_free(b);
	}
}

/* @embryo: a connection that nobody accepted; its client sees a reset. */
static void do_release(struct unix_sock *u, bool embryo)
{
	struct list rq, waiting;
	struct unix_sock *peer, *c;
	bool unread;

	unix_unbind(u);
	if (u->sk.type == SOCK_DGRAM)
		unix_dgram_disconnect(u);
	list_init(&rq);
	list_init(&waiting);
	mutex_lock(&u->sk.mu);
	u->dead = true;
	u->rcv_shut = u->snd_shut = true;
	unread = !list_empty(&u->rq);
	list_splice_tail(&rq, &u->rq);
	u->rq_bytes = u->rq_msgs = 0;
	list_splice_tail(&waiting, &u->accept_q);
	list_for_each (c, &u->clients, client_node) /* they may send again: to be refused */
		waitq_poke(&c->sk.wq, EPOLLOUT | EPOLLWRNORM);
	peer = u->peer;
	u->peer = NULL;
	mutex_unlock(&u->sk.mu);
	waitq_wake(&u->room_wq, EPOLLOUT | EPOLLHUP);
	if (peer) {
		hang_up(peer, unread || embryo);
		unix_put(peer);
	}
	while (!list_empty(&waiting)) {
		c = list_first(&waiting, struct unix_sock, accept_node);
		list_del(&c->accept_node);
		do_release(c, true); /* one level: an embryo is no listener */
		unix_put(c);
	}
	free_queue(&rq);
}

void unix_release(struct socket *s)
{
	do_release(unix_of(s), false);
	unix_gc();
}

void unix_destroy(struct socket *s)
{
	struct unix_sock *u = unix_of(s);

	mutex_lock(&unix_bind_mu);
	list_del(&u->net_node);
	mutex_unlock(&unix_bind_mu);
	unix_cred_put(&u->peercred);
	if (u->peergroups)
		cred_put(u->peergroups);
	free(u->name);
	waitq_fini(&u->room_wq);
	socket_fini(s);
	free(u);
}

/* ---------------------------------------------------------------- state */

int unix_shutdown(struct socket *s, int how)
{
	struct unix_sock *u = unix_of(s), *peer;
	bool rd = how != SHUT_WR, wr = how != SHUT_RD;
	uint32_t ev = EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLRDHUP | EPOLLHUP;

	mutex_lock(&s->mu);
	u->rcv_shut |= rd;
	u->snd_shut |= wr;
	peer = s->type != SOCK_DGRAM && u->peer ? unix_get(u->peer) : NULL;
	mutex_unlock(&s->mu);
	sock_wake(s, ev);
	if (peer) {
		mutex_lock(&peer->sk.mu);
		peer->snd_shut |= rd;
		peer->rcv_shut |= wr;
		mutex_unlock(&peer->sk.mu);
		sock_wake(&peer->sk, ev);
		unix_put(peer);
	}
	return 0;
}

void unix_addr_of(struct unix_sock *u, struct sock_addr *ret)
{
	struct sockaddr_un *name = u->name; /* set once; freed with the socket */

	if (name) {
		memcpy(&ret->ss, name, u->name_len);
		ret->len = u->name_len;
	} else {
		ret->ss.ss_family = AF_UNIX;
		ret->len = sizeof(sa_family_t);
	}
}

int unix_getname(struct socket *s, bool peer, struct sock_addr *ret)
{
	struct unix_sock *u = unix_of(s);

	if (!peer) {
		unix_addr_of(u, ret);
		return 0;
	}
	mutex_lock(&s->mu);
	u = u->peer ? unix_get(u->peer) : NULL;
	mutex_unlock(&s->mu);
	if (!u)
		return -ENOTCONN;
	unix_addr_of(u, ret);
	unix_put(u);
	return 0;
}

/* Room for a connected sender: depends on the other side's queue. */
static bool poll_writable(struct unix_sock *u, struct unix_sock *peer)
{
	bool ok;

	if (u->sk.type != SOCK_STREAM && !unix_writable(u->wmem, u->sk.sndbuf))
		return false;
	if (!peer)
		return true;
	mutex_lock(&peer->sk.mu);
	if (u->sk.type == SOCK_STREAM)
		ok = unix_writable(peer->rq_bytes, u->sk.sndbuf);
	else
		ok = u->sk.type != SOCK_DGRAM || peer->peer == u ||
		     peer->rq_msgs <= UNIX_DGRAM_QLEN || peer->dead;
	mutex_unlock(&peer->sk.mu);
	return ok;
}

uint32_t unix_poll(struct socket *s)
{
	struct unix_sock *u = unix_of(s), *peer;
	uint32_t ev = 0;
	bool listening;

	mutex_lock(&s->mu);
	listening = u->state == UNIX_LISTEN;
	if (s->err)
		ev |= EPOLLERR;
	if (u->rcv_shut && u->snd_shut)
		ev |= EPOLLHUP;
	if (u->rcv_shut)
		ev |= EPOLLRDHUP | EPOLLIN | EPOLLRDNORM;
	if (!list_empty(&u->rq) || !list_empty(&u->accept_q))
		ev |= EPOLLIN | EPOLLRDNORM;
	if (s->type != SOCK_DGRAM && (u->state == UNIX_FREE || u->state == UNIX_CONNECTING))
		ev |= EPOLLHUP;
	peer = u->peer ? unix_get(u->peer) : NULL;
	mutex_unlock(&s->mu);
	if (!listening && poll_writable(u, peer))
		ev |= EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
	unix_put(peer);
	return ev;
}

long unix_ioctl(struct task *t, struct socket *s, unsigned cmd, uint64_t arg)
{
	struct unix_sock *u = unix_of(s), *peer;
	int32_t n = 0;

	if (cmd != SIOCINQ && cmd != SIOCOUTQ)
		return -ENOIOCTLCMD;
	mutex_lock(&s->mu);
	if (u->state == UNIX_LISTEN) {
		mutex_unlock(&s->mu);
		return -EINVAL;
	}
	peer = u->peer ? unix_get(u->peer) : NULL;
	if (cmd == SIOCINQ && s->type == SOCK_STREAM)
		n = (int32_t)u->rq_bytes;
	else if (cmd == SIOCINQ && !list_empty(&u->rq))
		n = (int32_t)list_first(&u->rq, struct unix_buf, node)->len;
	mutex_unlock(&s->mu);
	if (cmd == SIOCOUTQ && s->type != SOCK_STREAM)
		n = (int32_t)u->wmem;
	if (cmd == SIOCOUTQ && s->type == SOCK_STREAM && peer) {
		mutex_lock(&peer->sk.mu);
		n = (int32_t)peer->rq_bytes;
		mutex_unlock(&peer->sk.mu);
	}
	unix_put(peer);
	return copyout_obj(t, gaddr(arg), &n);
}

/* ---------------------------------------------------------------- options */

static int get_peercred(struct task *t, struct unix_sock *u, void *val, unsigned *len)
{
	const struct cred *c = task_cred(t);
	struct {
		int32_t pid;
		uint32_t uid, gid;
	} uc = { 0, (uint32_t)-1, (uint32_t)-1 };

	mutex_lock(&u->sk.mu);
	if (u->peercred.pid) {
		uc.pid = pid_nr(u->peercred.pid, task_pidns(t));
		uc.uid = userns_show_uid(c->userns, u->peercred.uid);
		uc.gid = userns_show_gid(c->userns, u->peercred.gid);
	}
	mutex_unlock(&u->sk.mu);
	*len = (unsigned)MIN((size_t)*len, sizeof(uc));
	memcpy(val, &uc, *len);
	return 0;
}

static int get_peergroups(struct task *t, struct unix_sock *u, void *val, unsigned *len)
{
	struct cred *c;
	unsigned n;
	int err = 0;

	mutex_lock(&u->sk.mu);
	c = u->peergroups ? cred_get(u->peergroups) : NULL;
	mutex_unlock(&u->sk.mu);
	if (!c)
		return -ENODATA;
	n = c->ngroups * (unsigned)sizeof(gid_t);
	if (*len < n) {
		err = -ERANGE;
	} else {
		for (unsigned i = 0; i < c->ngroups; i++) {
			gid_t g = userns_show_gid(task_cred(t)->userns, c->groups[i]);

			memcpy((uint8_t *)val + i * sizeof(g), &g, sizeof(g));
		}
	}
	*len = n;
	cred_put(c);
	return err;
}

int unix_getsockopt(struct task *t, struct socket *s, int level, int name, void *val, unsigned *len)
{
	struct unix_sock *u = unix_of(s);
	int v;

	if (level != SOL_SOCKET)
		return -EOPNOTSUPP;
	switch (name) {
	case SO_PEERCRED:
		return get_peercred(t, u, val, len);
	case SO_PEERGROUPS:
		return get_peergroups(t, u, val, len);
	case SO_ACCEPTCONN:
		v = u->state == UNIX_LISTEN;
		*len = (unsigned)MIN((size_t)*len, sizeof(v));
		memcpy(val, &v, *len);
		return 0;
	case SO_PEERNAME:
		return -ENOTCONN; /* getpeername(2) is what everybody uses */
	}
	return -ENOPROTOOPT;
}
