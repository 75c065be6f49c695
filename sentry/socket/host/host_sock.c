// SPDX-License-Identifier: Apache-2.0
/*
 * See host_sock.h. The bytes and the waiting are those of fs/hostfd, whose file this has inside; what a socket can do
 * beyond that is little, on purpose: accept, shutdown, names, poll. A guest can't bind, connect or send to an
 * address by it, nor pass descriptors: it reaches whoever connects to it, nobody else.
 *
 * Like other descriptors that are shared with processes outside its O_NONBLOCK isn't ours, so accept4() is called when
 * poll() says so and no other thread of the sandbox can take the connection (accept_mu); somebody outside who accepts on
 * the same socket in between makes that one call wait.
 *
 * Not saved: a sandbox that has one can't be.
 */
#include "sentry/socket/host/host_sock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/fs/hostfd/hostfd.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/socket.h"
#include "sentry/vfs/vfs.h"

struct host_sock {
	struct socket sk;
	int fd;                /* (c) borrowed from the file */
	struct file *file;     /* (c) of fs/hostfd; reference */
	bool listens;          /* (c) */
	struct mutex accept_mu; /* RANK_SOCK */
};

static struct host_sock *of(struct socket *s)
{
	return container_of(s, struct host_sock, sk);
}

static int option(int fd, int name)
{
	int v = 0;
	socklen_t len = sizeof(v);

	return getsockopt(fd, SOL_SOCKET, name, &v, &len) ? -1 : v; /* host: getsockopt */
}

bool host_sock_listens(int hostfd)
{
	return option(hostfd, SO_ACCEPTCONN) == 1;
}

static const struct proto_ops host_ops;

/* err_ptr. */
static struct socket *host_sock_create(struct netns *net, int hostfd)
{
	int family = option(hostfd, SO_DOMAIN), type = option(hostfd, SO_TYPE);
	bool listens = host_sock_listens(hostfd);
	struct file *file = hostfd_create_file(hostfd, O_RDWR);
	struct host_sock *h;

	if (is_err(file))
		return (struct socket *)file;
	h = kzalloc(sizeof(*h));
	socket_init(&h->sk, &host_ops, net, family, type, 0);
	h->fd = hostfd;
	h->file = file;
	h->listens = listens;
	mutex_init(&h->accept_mu, RANK_SOCK);
	return &h->sk;
}

struct file *host_sock_create_file(struct netns *net, int hostfd)
{
	struct socket *s = host_sock_create(net, hostfd);

	return is_err(s) ? (struct file *)s : sock_create_file(NULL, s, 0);
}

static void host_destroy(struct socket *s)
{
	struct host_sock *h = of(s);

	file_put(h->file);
	mutex_fini(&h->accept_mu);
	socket_fini(s);
	free(h);
}

static void host_release(struct socket *s)
{
	(void)s;
}

static bool pending(struct host_sock *h)
{
	return file_poll(h->file) & (EPOLLIN | EPOLLERR | EPOLLHUP);
}

/* A connection, or -EAGAIN. */
static int take(struct host_sock *h)
{
	int fd;

	AUTO_LOCK(&h->accept_mu);
	if (!pending(h))
		return -EAGAIN;
	fd = accept4(h->fd, NULL, NULL, SOCK_CLOEXEC); /* host: accept4 */
	return fd < 0 ? -errno : fd;
}

static struct socket *host_accept(struct task *t, struct socket *s, bool nonblock)
{
	struct host_sock *h = of(s);
	int64_t deadline = sock_deadline(&s->rcvtimeo_ns);

	if (!h->listens)
		return err_ptr(-EINVAL);
	for (;;) {
		int fd = take(h);
		long w;

		if (fd >= 0)
			return host_sock_create(s->net, fd);
		if (fd != -EAGAIN || nonblock)
			return err_ptr(fd);
		w = wait_event(t, file_waitq(h->file), EPOLLIN | EPOLLERR | EPOLLHUP, deadline, pending(h));
		if (w < 0)
			return err_ptr(w == -ETIMEDOUT ? -EAGAIN : sock_intr(&s->rcvtimeo_ns));
	}
}

static ssize_t host_sendmsg(struct task *t, struct socket *s, struct sock_msg *m, int flags)
{
	struct host_sock *h = of(s);
	bool wait = !(flags & MSG_DONTWAIT);

	if (h->listens)
		return -ENOTCONN;
	if (m->addr.len || m->control_len || flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR | MSG_MORE))
		return -EOPNOTSUPP;
	return h->file->ops->write(wait ? t : NULL, h->file, m->it, NULL);
}

static ssize_t host_recvmsg(struct task *t, struct socket *s, struct sock_msg *m, int flags)
{
	struct host_sock *h = of(s);
	bool wait = !(flags & MSG_DONTWAIT);

	if (h->listens)
		return -ENOTCONN;
	if (flags & ~(MSG_DONTWAIT | MSG_CMSG_CLOEXEC))
		return -EOPNOTSUPP;
	return h->file->ops->read(wait ? t : NULL, h->file, m->it, NULL);
}

static uint32_t host_poll(struct socket *s)
{
	struct host_sock *h = of(s);
	uint32_t ev = file_poll(h->file);

	return h->listens ? ev & (EPOLLIN | EPOLLRDNORM | EPOLLERR | EPOLLHUP) : ev;
}

static struct waitq *host_waitq(struct socket *s)
{
	return file_waitq(of(s)->file);
}

static int host_shutdown(struct socket *s, int how)
{
	return shutdown(of(s)->fd, how) ? -errno : 0; /* host: shutdown */
}

static int host_getname(struct socket *s, bool peer, struct sock_addr *ret)
{
	socklen_t len = sizeof(ret->ss);
	struct sockaddr *sa = (struct sockaddr *)&ret->ss;
	int r = peer ? getpeername(of(s)->fd, sa, &len) : getsockname(of(s)->fd, sa, &len); /* host: both */

	ret->len = MIN(len, (socklen_t)sizeof(ret->ss));
	return r ? -errno : 0;
}

/* listen(2) again changes the backlog, which is whose socket it is to say. */
static int host_listen(struct task *t, struct socket *s, int backlog)
{
	(void)t, (void)backlog;
	return of(s)->listens ? 0 : -EINVAL;
}

static int host_getsockopt(struct task *t, struct socket *s, int level, int name, void *val, unsigned *len)
{
	int listens = of(s)->listens;

	(void)t;
	if (level != SOL_SOCKET || name != SO_ACCEPTCONN)
		return -ENOPROTOOPT;
	*len = MIN(*len, (unsigned)sizeof(listens));
	memcpy(val, &listens, *len);
	return 0;
}

static const struct proto_ops host_ops = {
	.name = "HOST",
	.destroy = host_destroy,
	.release = host_release,
	.listen = host_listen,
	.accept = host_accept,
	.getname = host_getname,
	.shutdown = host_shutdown,
	.sendmsg = host_sendmsg,
	.recvmsg = host_recvmsg,
	.poll = host_poll,
	.waitq = host_waitq,
	.getsockopt = host_getsockopt,
	.state = NULL, /* can't be: nobody could give it to a sandbox that comes back */
};
