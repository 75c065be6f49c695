// SPDX-License-Identifier: Apache-2.0
/*
 * The family-independent part of sockets: table of families, life, the file operations.
 *
 * Lock order: socket.mu (RANK_SOCK; families that hold two say in which order) > waitq.mu.
 */
#include "sentry/socket/socket.h"

#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "sentry/fs/pipe/pseudo.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/netlink/netlink.h"
#include "sentry/socket/netns.h"
#include "sentry/socket/unix/unix.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_state.h"

#define FAMILY_MAX 46 /* AF_MAX of Linux 6.12 */

static const struct sock_family *families[FAMILY_MAX]; /* (c) after start */

void sock_register(const struct sock_family *fam)
{
	if (fam->family < 0 || fam->family >= FAMILY_MAX)
		panic("socket family %d out of range", fam->family);
	families[fam->family] = fam;
}

void sockets_init(void)
{
	unix_init();
	netlink_init();
}

/* ---------------------------------------------------------------- life */

void socket_init(struct socket *s, const struct proto_ops *ops, struct netns *net, int family,
		 int type, int protocol)
{
	ref_init(&s->ref);
	s->ops = ops;
	s->family = family;
	s->type = type;
	s->protocol = protocol;
	s->net = net ? netns_get(net) : NULL;
	mutex_init(&s->mu, RANK_SOCK);
	waitq_init(&s->wq);
	s->sndbuf = s->rcvbuf = SOCK_BUF_DEFAULT;
	s->sndtimeo_ns = s->rcvtimeo_ns = DEADLINE_NONE;
	s->rcvlowat = 1;
	s->peek_off = -1;
}

void socket_fini(struct socket *s)
{
	waitq_fini(&s->wq);
	mutex_fini(&s->mu);
	netns_put(s->net);
}

struct socket *socket_get(struct socket *s)
{
	ref_get(&s->ref);
	return s;
}

void socket_put(struct socket *s)
{
	if (s && ref_put(&s->ref))
		s->ops->destroy(s);
}

struct file *sock_create_file(struct task *t, struct socket *s, unsigned flags)
{
	struct inode *inode = pseudo_inode_create(PSEUDO_SOCK, S_IFSOCK | 0777, t);
	char name[40];
	struct file *f;

	s->ino = inode->ino;
	snprintf(name, sizeof(name), "socket:[%lu]", (unsigned long)inode->ino);
	f = file_create_pseudo(inode, &socket_fops, s, O_RDWR | flags, name);
	if (is_err(f)) {
		s->ops->release(s);
		socket_put(s);
		return f;
	}
	f->fmode |= FMODE_STREAM;
	mutex_lock(&s->mu);
	s->file = f;
	mutex_unlock(&s->mu);
	return f;
}

struct socket *sock_of_file(const struct file *f)
{
	return f->ops == &socket_fops ? f->priv : NULL;
}

int sock_create(struct task *t, int family, int type, int protocol, struct socket **ret)
{
	struct nsproxy *ns;
	int err;

	if (family < 0 || family >= FAMILY_MAX)
		return -EAFNOSUPPORT;
	if (type < 0 || type > SOCK_PACKET)
		return -EINVAL;
	if (!families[family])
		return -EAFNOSUPPORT;
	ns = task_ns_get(t);
	if (!ns)
		return -EAFNOSUPPORT;
	err = families[family]->create(t, ns->net, type, protocol, ret);
	nsproxy_put(ns);
	return err;
}

int sock_take_err(struct socket *s)
{
	if (s->err == 0)
		return 0;
	return -atomic_exchange(&s->err, 0);
}

int64_t sock_deadline(const _Atomic int64_t *timeo_ns)
{
	int64_t rel = *timeo_ns, ns;
	struct task *t = current_task();

	if (rel == DEADLINE_NONE)
		return rel;
	ns = deadline_after(clock_monotonic_ns(), rel);
	return t ? task_call_deadline(t, ns) : ns;
}

long sock_intr(const _Atomic int64_t *timeo_ns)
{
	return *timeo_ns == DEADLINE_NONE ? -ERESTARTSYS : -EINTR;
}

void sock_wake(struct socket *s, uint32_t events)
{
	struct file *f;

	waitq_poke(&s->wq, events);
	if (likely(!(s->flags & SOCKF_FASYNC)))
		return;
	mutex_lock(&s->mu);
	f = s->file && ref_get_unless_zero(&s->file->ref) ? s->file : NULL;
	mutex_unlock(&s->mu);
	if (f) {
		file_fasync(f, events);
		file_put(f);
	}
}

bool cmsg_put(struct cmsg_out *c, int level, int type, const void *data, size_t len)
{
	struct cmsghdr h = { .cmsg_level = level, .cmsg_type = type };
	size_t room = c->buf ? c->size - c->used : 0, n = len;

	if (room < sizeof(h)) {
		c->truncated = true;
		return false;
	}
	if (n > room - sizeof(h)) {
		n = room - sizeof(h);
		c->truncated = true;
	}
	h.cmsg_len = sizeof(h) + n;
	memcpy(c->buf + c->used, &h, sizeof(h));
	if (n)
		memcpy(c->buf + c->used + sizeof(h), data, n);
	c->used = MIN(c->used + CMSG_ALIGN(sizeof(h) + n), c->size);
	return n == len;
}

/* ---------------------------------------------------------------- the file */

static void socket_release(struct file *f)
{
	struct socket *s = f->priv;

	mutex_lock(&s->mu);
	s->file = NULL;
	mutex_unlock(&s->mu);
	s->ops->release(s);
	socket_put(s);
}

static int socket_set_flags(struct file *f, unsigned flags)
{
	struct socket *s = f->priv;

	if (flags & O_ASYNC)
		atomic_fetch_or(&s->flags, SOCKF_FASYNC);
	else
		atomic_fetch_and(&s->flags, ~SOCKF_FASYNC);
	return 0;
}

static int dontwait(struct task *t, const struct file *f)
{
	return !t || (f->flags & O_NONBLOCK) ? MSG_DONTWAIT : 0;
}

static ssize_t socket_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct socket *s = f->priv;
	struct sock_msg m = { .it = it };

	(void)pos;
	if (it->left == 0) /* man 2 read: no message is taken */
		return 0;
	return s->ops->recvmsg(t, s, &m, dontwait(t, f));
}

static ssize_t socket_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct socket *s = f->priv;
	struct sock_msg m = { .it = it };
	int flags = dontwait(t, f);

	(void)pos;
	if (s->type == SOCK_SEQPACKET)
		flags |= MSG_EOR;
	return s->ops->sendmsg(t, s, &m, flags);
}

static uint32_t socket_poll(struct file *f)
{
	struct socket *s = f->priv;

	return s->ops->poll(s);
}

static struct waitq *socket_waitq(struct file *f)
{
	struct socket *s = f->priv;

	return s->ops->waitq ? s->ops->waitq(s) : &s->wq;
}

static long socket_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg)
{
	struct socket *s = f->priv;
	long r = s->ops->ioctl ? s->ops->ioctl(t, s, cmd, arg) : -ENOIOCTLCMD;

	return r == -ENOIOCTLCMD ? netdev_ioctl(t, s, cmd, arg) : r;
}

const struct file_ops socket_fops = {
	.name = "socket",
	.release = socket_release,
	.read = socket_read,
	.write = socket_write,
	.poll = socket_poll,
	.waitq = socket_waitq,
	.ioctl = socket_ioctl,
	.set_flags = socket_set_flags,
	.state = &file_state_socket,
};
