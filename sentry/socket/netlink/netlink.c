// SPDX-License-Identifier: Apache-2.0
/*
 * AF_NETLINK sockets (man 7 netlink). NETLINK_ROUTE answers requests about what there is;
 * NETLINK_KOBJECT_UEVENT can be bound and stays silent (no device ever comes); other protocols are
 * EPROTONOSUPPORT. A request is answered within the send, so the answer is there when send returns.
 *
 * Left out: messages between processes (ECONNREFUSED), multicast groups (joined, silent).
 *
 * Lock order: nl_mu (port numbers, RANK_SOCK_BIND) is taken with no other lock; socket.mu > waitq.mu.
 */
#include "sentry/socket/netlink/netlink.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/list.h"
#include "sentry/kernel/kmem.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/netlink/netlink_priv.h"
#include "sentry/socket/socket.h"
#include "sentry/state/state.h"

#define NL_SEND_MAX 32768u /* one sendmsg */
#define NL_QUEUE_MAX 64    /* datagrams that wait to be read: beyond it ENOBUFS, as on Linux */

struct nl_dgram {
	struct list node;
	size_t len;
	uint8_t data[];
};

struct nl_sock {
	struct socket sk;
	uint32_t portid;     /* (nl_mu) 0: not bound */
	uint32_t groups;     /* (nl_mu) */
	struct list node;    /* (nl_mu) */
	struct list rq;      /* (sk.mu) of nl_dgram */
	unsigned queued;     /* (sk.mu) */
};

static struct mutex nl_mu;
static struct list nl_socks = LIST_INIT(nl_socks);
static const struct proto_ops netlink_ops;

static struct nl_sock *nl_of(struct socket *s)
{
	return container_of(s, struct nl_sock, sk);
}

/* ---------------------------------------------------------------- building messages */

static void *room(struct nl_reply *r, size_t len)
{
	size_t at = r->used;

	if (r->overflow || len > sizeof(r->buf) - at) {
		r->overflow = true;
		return NULL;
	}
	memset(r->buf + at, 0, len);
	r->used += len;
	return r->buf + at;
}

void nl_begin(struct nl_reply *r, uint16_t type, uint16_t flags, const void *fixed, size_t len)
{
	const struct nlmsghdr h = { .nlmsg_type = type,
				    .nlmsg_flags = flags,
				    .nlmsg_seq = r->seq,
				    .nlmsg_pid = r->portid };
	uint8_t *p;

	r->msg = r->used;
	p = room(r, NLMSG_HDRLEN + NLMSG_ALIGN(len));
	if (!p)
		return;
	memcpy(p, &h, sizeof(h));
	if (len)
		memcpy(p + NLMSG_HDRLEN, fixed, len);
}

void nl_attr(struct nl_reply *r, uint16_t type, const void *data, size_t len)
{
	const struct nlattr a = { .nla_len = (uint16_t)(sizeof(a) + len), .nla_type = type };
	uint8_t *p = room(r, (sizeof(a) + len + 3) & ~(size_t)3);

	if (!p)
		return;
	memcpy(p, &a, sizeof(a));
	memcpy(p + sizeof(a), data, len);
}

void nl_end(struct nl_reply *r)
{
	uint32_t len = (uint32_t)(r->used - r->msg);

	if (!r->overflow)
		memcpy(r->buf + r->msg, &len, sizeof(len)); /* nlmsg_len comes first */
}

static void nl_error(struct nl_reply *r, const struct nlmsghdr *req, int err)
{
	const struct nlmsgerr e = { .error = err, .msg = *req };

	nl_begin(r, NLMSG_ERROR, 0, &e, sizeof(e));
	nl_end(r);
}

/* ---------------------------------------------------------------- ports */

static bool port_used_locked(const struct nl_sock *nl, uint32_t port)
{
	struct nl_sock *o;

	list_for_each (o, &nl_socks, node)
		if (o->portid == port && o->sk.net == nl->sk.net &&
		    o->sk.protocol == nl->sk.protocol)
			return true;
	return false;
}

/* @want 0: any (the process id, if it is free). */
static int port_bind(struct task *t, struct nl_sock *nl, uint32_t want, uint32_t groups)
{
	uint32_t port = want ? want : (uint32_t)task_tgid(t);

	AUTO_LOCK(&nl_mu);
	nl->groups = groups;
	if (nl->portid)
		return want && want != nl->portid ? -EINVAL : 0;
	if (want && port_used_locked(nl, port))
		return -EADDRINUSE;
	for (uint32_t next = (uint32_t)-4097; port_used_locked(nl, port); next--)
		port = next;
	nl->portid = port;
	return 0;
}

static int netlink_bind(struct task *t, struct socket *s, const struct sock_addr *addr)
{
	struct sockaddr_nl nl;

	if (addr->len < sizeof(nl))
		return -EINVAL;
	memcpy(&nl, &addr->ss, sizeof(nl));
	if (nl.nl_family != AF_NETLINK)
		return -EINVAL;
	return port_bind(t, nl_of(s), nl.nl_pid, nl.nl_groups);
}

static int netlink_connect(struct task *t, struct socket *s, const struct sock_addr *addr,
			   bool nonblock)
{
	struct sockaddr_nl nl;

	(void)nonblock;
	if (addr->ss.ss_family == AF_UNSPEC)
		return 0;
	if (addr->len < sizeof(nl) || addr->ss.ss_family != AF_NETLINK)
		return -EINVAL;
	memcpy(&nl, &addr->ss, sizeof(nl));
	if (nl.nl_pid)
		return -ECONNREFUSED;
	return port_bind(t, nl_of(s), 0, 0);
}

static int netlink_getname(struct socket *s, bool peer, struct sock_addr *ret)
{
	struct sockaddr_nl nl = { .nl_family = AF_NETLINK };

	mutex_lock(&nl_mu);
	if (!peer) {
		nl.nl_pid = nl_of(s)->portid;
		nl.nl_groups = nl_of(s)->groups;
	}
	mutex_unlock(&nl_mu);
	memcpy(&ret->ss, &nl, sizeof(nl));
	ret->len = sizeof(nl);
	return 0;
}

/* ---------------------------------------------------------------- send */

static void dgram_free(struct nl_dgram *d)
{
	if (d)
		kmem_uncharge(sizeof(*d) + d->len);
	free(d);
}

static void queue(struct nl_sock *nl, const struct nl_reply *r)
{
	struct nl_dgram *d;

	if (r->used == 0)
		return;
	d = kmem_charge(sizeof(*d) + r->used) ? kzalloc(sizeof(*d) + r->used) : NULL;
	if (d) {
		d->len = r->used;
		memcpy(d->data, r->buf, r->used);
	}
	mutex_lock(&nl->sk.mu);
	if (!d || nl->queued >= NL_QUEUE_MAX) {
		nl->sk.err = ENOBUFS;
		dgram_free(d);
	} else {
		list_add_tail(&nl->rq, &d->node);
		nl->queued++;
	}
	mutex_unlock(&nl->sk.mu);
	sock_wake(&nl->sk, EPOLLIN | EPOLLRDNORM);
}

static void serve(struct task *t, struct nl_sock *nl, const struct nlmsghdr *h, const uint8_t *payload)
{
	struct nl_reply AUTO_FREE *r = kzalloc(sizeof(*r));
	size_t len = h->nlmsg_len - NLMSG_HDRLEN;
	bool done = false;
	int err = 0;

	r->seq = h->nlmsg_seq;
	r->portid = nl->portid;
	if (h->nlmsg_type >= NLMSG_MIN_TYPE)
		err = rtnl_request(t, &nl->sk, h, payload, len, r, &done);
	if (done) {
		const uint32_t zero = 0;

		nl_begin(r, NLMSG_DONE, NLM_F_MULTI, &zero, sizeof(zero));
		nl_end(r);
	} else if (err || (h->nlmsg_flags & NLM_F_ACK)) {
		nl_error(r, h, err);
	}
	queue(nl, r);
}

static ssize_t netlink_sendmsg(struct task *t, struct socket *s, struct sock_msg *m, int flags)
{
	struct nl_sock *nl = nl_of(s);
	uint8_t AUTO_FREE *buf = NULL;
	size_t len = m->it->left, off = 0;
	struct sockaddr_nl to;
	int err;

	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (m->addr.len) {
		if (m->addr.len < sizeof(to) || m->addr.ss.ss_family != AF_NETLINK)
			return -EINVAL;
		memcpy(&to, &m->addr.ss, sizeof(to));
		if (to.nl_pid)
			return -ECONNREFUSED;
	}
	if (!t)
		return -EAGAIN;
	err = port_bind(t, nl, 0, nl->groups);
	if (err)
		return err;
	if (len > NL_SEND_MAX)
		return -EMSGSIZE;
	buf = kmalloc_guest(len + 1);
	if (!buf)
		return -ENOBUFS;
	if (len && iter_copy_from(m->it, buf, len) != (ssize_t)len)
		return -EFAULT;
	if (s->protocol != NETLINK_ROUTE)
		return (ssize_t)len;
	while (len - off >= sizeof(struct nlmsghdr)) {
		struct nlmsghdr h;

		memcpy(&h, buf + off, sizeof(h));
		if (h.nlmsg_len < sizeof(h) || h.nlmsg_len > len - off)
			break;
		if (h.nlmsg_flags & NLM_F_REQUEST)
			serve(t, nl, &h, buf + off + NLMSG_HDRLEN);
		off += MIN((size_t)NLMSG_ALIGN(h.nlmsg_len), len - off);
	}
	return (ssize_t)len;
}

/* ---------------------------------------------------------------- receive */

static bool readable(struct nl_sock *nl)
{
	AUTO_LOCK(&nl->sk.mu);
	return !list_empty(&nl->rq) || nl->sk.err;
}

static ssize_t recv_once(struct nl_sock *nl, struct sock_msg *m, int flags)
{
	const struct sockaddr_nl from = { .nl_family = AF_NETLINK };
	struct nl_dgram *d;
	ssize_t r;
	size_t n;
	int err;

	AUTO_LOCK(&nl->sk.mu);
	err = sock_take_err(&nl->sk);
	if (err)
		return err;
	if (list_empty(&nl->rq))
		return -EAGAIN;
	d = list_first(&nl->rq, struct nl_dgram, node);
	n = MIN(d->len, m->it->left);
	r = n ? iter_copy_to(m->it, d->data, n) : 0;
	if (n < d->len)
		m->flags_out |= MSG_TRUNC;
	memcpy(&m->addr.ss, &from, sizeof(from));
	m->addr.len = sizeof(from);
	if (r >= 0 && (flags & MSG_TRUNC))
		r = (ssize_t)d->len;
	if (!(flags & MSG_PEEK)) {
		list_del(&d->node);
		nl->queued--;
		dgram_free(d);
	}
	return r;
}

static ssize_t netlink_recvmsg(struct task *t, struct socket *s, struct sock_msg *m, int flags)
{
	struct nl_sock *nl = nl_of(s);
	int64_t deadline = sock_deadline(&s->rcvtimeo_ns);

	if (flags & MSG_OOB)
		return -EOPNOTSUPP;
	for (;;) {
		ssize_t r = recv_once(nl, m, flags);
		long w;

		if (r != -EAGAIN || (flags & MSG_DONTWAIT))
			return r;
		w = wait_event(t, &s->wq, EPOLLIN | EPOLLERR, deadline, readable(nl));
		if (w < 0)
			return w == -ETIMEDOUT ? -EAGAIN : sock_intr(&s->rcvtimeo_ns);
	}
}

static uint32_t netlink_poll(struct socket *s)
{
	uint32_t ev = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;

	AUTO_LOCK(&s->mu);
	if (!list_empty(&nl_of(s)->rq))
		ev |= EPOLLIN | EPOLLRDNORM;
	if (s->err)
		ev |= EPOLLERR;
	return ev;
}

/* ---------------------------------------------------------------- options, life */

static int netlink_setsockopt(struct task *t, struct socket *s, int level, int name, const void *val,
			      unsigned len)
{
	(void)t;
	(void)s;
	(void)val;
	if (level != SOL_NETLINK)
		return -ENOPROTOOPT;
	if (len < sizeof(int))
		return -EINVAL;
	switch (name) {
	case NETLINK_ADD_MEMBERSHIP: /* groups are silent here */
	case NETLINK_DROP_MEMBERSHIP:
	case NETLINK_PKTINFO:
	case NETLINK_BROADCAST_ERROR:
	case NETLINK_NO_ENOBUFS:
	case NETLINK_CAP_ACK:
	case NETLINK_EXT_ACK:
	case NETLINK_GET_STRICT_CHK:
		return 0;
	}
	return -ENOPROTOOPT;
}

static void netlink_release(struct socket *s)
{
	mutex_lock(&nl_mu);
	list_del(&nl_of(s)->node);
	mutex_unlock(&nl_mu);
}

static void netlink_destroy(struct socket *s)
{
	struct nl_sock *nl = nl_of(s);

	while (!list_empty(&nl->rq)) {
		struct nl_dgram *d = list_first(&nl->rq, struct nl_dgram, node);

		list_del(&d->node);
		dgram_free(d);
	}
	socket_fini(s);
	free(nl);
}

static const struct proto_ops netlink_ops = {
	.name = "NETLINK",
	.destroy = netlink_destroy,
	.release = netlink_release,
	.bind = netlink_bind,
	.connect = netlink_connect,
	.getname = netlink_getname,
	.sendmsg = netlink_sendmsg,
	.recvmsg = netlink_recvmsg,
	.poll = netlink_poll,
	.setsockopt = netlink_setsockopt,
	.state = &state_sock_netlink,
};

static struct nl_sock *nl_alloc(struct netns *net, int type, int protocol)
{
	struct nl_sock *nl = kzalloc(sizeof(*nl));

	socket_init(&nl->sk, &netlink_ops, net, AF_NETLINK, type, protocol);
	list_init(&nl->rq);
	mutex_lock(&nl_mu);
	list_add_tail(&nl_socks, &nl->node);
	mutex_unlock(&nl_mu);
	return nl;
}

static int netlink_create(struct task *t, struct netns *net, int type, int protocol,
			  struct socket **ret)
{
	struct nl_sock *nl;

	(void)t;
	if (type != SOCK_RAW && type != SOCK_DGRAM)
		return -ESOCKTNOSUPPORT;
	if (protocol != NETLINK_ROUTE && protocol != NETLINK_KOBJECT_UEVENT)
		return -EPROTONOSUPPORT;
	nl = nl_alloc(net, type, protocol);
	*ret = &nl->sk;
	return 0;
}

static const struct sock_family netlink_family = { .family = AF_NETLINK, .create = netlink_create };

void netlink_init(void)
{
	mutex_init(&nl_mu, RANK_SOCK_BIND);
	sock_register(&netlink_family);
}

/* ---------------------------------------------------------------- saving */

static void *netlink_state_alloc(struct state *s)
{
	(void)s;
	return &nl_alloc(NULL, SOCK_RAW, NETLINK_ROUTE)->sk;
}

static void dgram_fields(struct state *s, struct nl_sock *nl, struct nl_dgram *d)
{
	uint32_t len = state_count(s, d ? (uint32_t)d->len : 0, NL_REPLY_MAX);

	if (state_loading(s)) {
		d = kzalloc(sizeof(*d) + len);
		d->len = len;
		kmem_add(sizeof(*d) + len);
		list_add_tail(&nl->rq, &d->node);
		nl->queued++;
	}
	state_bytes(s, d->data, len);
}

static void netlink_fields(struct state *s, void *obj)
{
	struct nl_sock *nl = nl_of(obj);
	bool raw = nl->sk.type == SOCK_RAW;
	struct nl_dgram *d;
	uint32_t n;

	socket_state_fields(s, &nl->sk);
	state_bool(s, &raw);
	nl->sk.type = raw ? SOCK_RAW : SOCK_DGRAM;
	state_u32(s, &nl->portid);
	state_u32(s, &nl->groups);
	n = state_count(s, nl->queued, NL_QUEUE_MAX);
	for (; state_loading(s) && n && state_ok(s); n--)
		dgram_fields(s, nl, NULL);
	if (nl->sk.protocol != NETLINK_ROUTE && nl->sk.protocol != NETLINK_KOBJECT_UEVENT)
		state_fail(s, "netlink protocol %d", nl->sk.protocol);
	if (state_loading(s))
		return;
	list_for_each (d, &nl->rq, node)
		dgram_fields(s, nl, d);
}

const struct state_type state_sock_netlink = {
	.id = STATE_SOCK_NETLINK,
	.version = 1,
	.name = "netlink socket",
	.alloc = netlink_state_alloc,
	.fields = netlink_fields,
	.get = socket_state_get,
	.put = socket_state_put,
	.phase = 2,
};
