// SPDX-License-Identifier: Apache-2.0
/*
 * Host descriptors as guest files: the stdin, stdout and stderr that `holdfast run` or an OCI caller
 * passes. The description is shared with processes outside, so O_NONBLOCK on it isn't ours to set, and
 * a sentry thread must not block in the host's read or write (it couldn't be interrupted by a guest
 * signal). So:
 *
 *   sockets          recvmsg/sendmsg with MSG_DONTWAIT
 *   pipes, ttys ...  preadv2/pwritev2 with RWF_NOWAIT; where the host's file doesn't know it, ppoll()
 *                    with no timeout first, then a read, or a write small enough not to block
 *   regular files    plain calls: they don't wait for anybody
 *
 * Waiting: one watcher thread sits in the host's epoll_wait. A descriptor is armed (EPOLLONESHOT) when
 * a poll, read or write found it not ready; the watcher then wakes the wait queue once. Nothing is
 * armed while nobody has asked, so an idle sandbox sleeps.
 *
 * Left out: a reader outside that takes the bytes between our ppoll and read of a tty can make that one
 * read block; changing the tty's modes (only TCGETS and TIOCGWINSZ pass).
 *
 * Lock order: table_mu (RANK_TIMER) > waitq.mu: it keeps the objects alive that the watcher wakes. Reads
 * and writes are made with no lock.
 */
#include "sentry/fs/hostfd/hostfd.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/stats.h"
#include "sentry/fs/hostfd/hostfd_ioctl.h"
#include "sentry/fs/hostfd/hostfd_priv.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/waitq.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_state.h"

#define HOST_SEGS 16
#define HOST_CHUNK (1UL << 20) /* one host call moves at most this much */
#define TTY_CHUNK 1024UL       /* a tty that polls writable takes this without blocking */
#define HOST_PIPE_BUF 4096UL   /* a pipe that polls writable takes this without blocking */

static int watch_fd = -1;
static struct mutex table_mu;
static struct list table = LIST_INIT(table);
static uint64_t next_id; /* (table_mu) */

/* ---------------------------------------------------------------- watcher */

/* Tells the host's epoll what to watch for. Context: table_mu. */
static void watch_locked(struct hostfd *h)
{
	/* EPOLLRDHUP comes with EPOLLIN; asked for alone it would fire again and again */
	struct epoll_event ev = { .events = h->armed | EPOLLONESHOT |
					    (h->armed & EPOLLIN ? EPOLLRDHUP : 0u),
				  .data.u64 = h->id };

	if (epoll_ctl(watch_fd, EPOLL_CTL_MOD, h->fd, &ev) < 0) /* host: epoll_ctl */
		log_warn("hostfd: arming %d: %s", h->fd, strerror(errno));
}

/* The object may be gone since the event was fetched: so it is looked up by its number. */
static void fire(uint64_t id, uint32_t events)
{
	struct hostfd *h;

	if (events & EPOLLIN)
		events |= EPOLLRDNORM;
	if (events & EPOLLOUT)
		events |= EPOLLWRNORM;
	AUTO_LOCK(&table_mu);
	list_for_each (h, &table, node) {
		if (h->id != id)
			continue;
		h->armed &= ~events;
		if (events & (EPOLLERR | EPOLLHUP))
			h->armed = 0;
		if (h->armed) /* one-shot took the other direction with it */
			watch_locked(h);
		waitq_wake(&h->wq, events);
	}
}

static void *watcher(void *arg)
{
	struct epoll_event ev[16];

	(void)arg;
	for (;;) {
		int n = epoll_wait(watch_fd, ev, (int)ARRAY_SIZE(ev), -1); /* host: epoll_wait */

		world_enter();
		for (int i = 0; i < n; i++)
			fire(ev[i].data.u64, ev[i].events);
		world_leave();
		if (n < 0 && errno != EINTR)
			panic("hostfd: epoll_wait: %s", strerror(errno));
	}
	return NULL;
}

void hostfd_init(void)
{
	struct sigaction ign = { .sa_handler = SIG_IGN };
	pthread_t th;
	int err;

	mutex_init(&table_mu, RANK_TIMER);
	sigaction(SIGPIPE, &ign, NULL);
	watch_fd = epoll_create1(EPOLL_CLOEXEC);
	if (watch_fd < 0)
		panic("hostfd: epoll_create1: %s", strerror(errno));
	err = pthread_create(&th, NULL, watcher, NULL);
	if (err)
		panic("hostfd: watcher thread: %s", strerror(err));
	pthread_detach(th);
}

/* Asks the watcher for one wake-up when any of @events (EPOLLIN, EPOLLOUT) comes. */
static void arm(struct hostfd *h, uint32_t events)
{
	if (!h->watchable || waitq_empty(&h->wq))
		return;
	AUTO_LOCK(&table_mu);
	if ((h->armed & events) == events)
		return;
	h->armed |= events;
	watch_locked(h);
}

/* What the host says is ready now, as EPOLL* (same values as POLL*). */
static uint32_t host_poll(struct hostfd *h, short want)
{
	struct pollfd p = { .fd = h->fd, .events = want };
	struct timespec zero = { 0, 0 };

	if (HOST(POLL, ppoll(&p, 1, &zero, NULL)) < 0)
		return 0;
	return (uint16_t)p.revents;
}

static uint32_t hostfd_poll(struct file *f)
{
	struct hostfd *h = f->priv;
	short want = 0;
	uint32_t ev, missing;

	if (h->kind == HOST_GONE)
		return EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM;
	if (f->fmode & FMODE_READ)
		want |= POLLIN | POLLRDHUP;
	if (f->fmode & FMODE_WRITE)
		want |= POLLOUT;
	ev = host_poll(h, want) & ~(uint32_t)POLLNVAL;
	missing = (uint32_t)(want & (POLLIN | POLLOUT)) & ~ev;
	if (missing && !(ev & (POLLHUP | POLLERR)))
		arm(h, missing);
	if (ev & EPOLLIN)
		ev |= EPOLLRDNORM;
	if (ev & EPOLLOUT)
		ev |= EPOLLWRNORM;
	return ev;
}

static struct waitq *hostfd_waitq(struct file *f)
{
	struct hostfd *h = f->priv;

	return &h->wq;
}

/* ---------------------------------------------------------------- read and write */

/* One host call that moves bytes and never waits. -EAGAIN: not ready. */
static ssize_t host_read(struct hostfd *h, const struct iovec *iov, int n)
{
	struct msghdr m = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n };
	ssize_t r;

	if (h->kind == HOST_SOCK) {
		r = HOST(RECV, recvmsg(h->fd, &m, MSG_DONTWAIT));
		return r < 0 ? -errno : r;
	}
	if (h->kind == HOST_FILE) {
		r = HOST(PREAD, readv(h->fd, iov, n));
		return r < 0 ? -errno : r;
	}
	if (h->nowait) {
		r = HOST(PREAD, preadv2(h->fd, iov, n, -1, RWF_NOWAIT));
		if (r >= 0 || errno != EOPNOTSUPP)
			return r < 0 ? -errno : r;
		h->nowait = false;
	}
	if (!(host_poll(h, POLLIN) & (POLLIN | POLLHUP | POLLERR)))
		return -EAGAIN;
	r = HOST(PREAD, readv(h->fd, iov, n));
	return r < 0 ? -errno : r;
}

/* Cuts the pieces to @max bytes in all. */
static int cut(struct iovec *iov, int n, size_t max)
{
	for (int i = 0; i < n; i++) {
		if (iov[i].iov_len >= max) {
			iov[i].iov_len = max;
			return i + 1;
		}
		max -= iov[i].iov_len;
	}
	return n;
}

static ssize_t host_write(struct hostfd *h, struct iovec *iov, int n)
{
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = (size_t)n };
	ssize_t r;

	if (h->kind == HOST_SOCK) {
		r = HOST(SEND, sendmsg(h->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL));
		return r < 0 ? -errno : r;
	}
	if (h->kind != HOST_FILE) {
		if (h->nowait) {
			r = HOST(PWRITE, pwritev2(h->fd, iov, n, -1, RWF_NOWAIT));
			if (r >= 0 || errno != EOPNOTSUPP)
				return r < 0 ? -errno : r;
			h->nowait = false;
		}
		if (!(host_poll(h, POLLOUT) & (POLLOUT | POLLHUP | POLLERR)))
			return -EAGAIN;
		n = cut(iov, n, h->kind == HOST_TTY ? TTY_CHUNK : HOST_PIPE_BUF);
	}
	r = HOST(PWRITE, writev(h->fd, iov, n));
	return r < 0 ? -errno : r;
}

/* One pinned piece of @it in or out. */
static ssize_t move_once(struct hostfd *h, struct iter *it, bool write)
{
	struct iovec iov[HOST_SEGS];
	int n = iter_pin(it, !write, HOST_CHUNK, iov, HOST_SEGS);
	ssize_t r;

	if (n <= 0)
		return n;
	r = write ? host_write(h, iov, n) : host_read(h, iov, n);
	iter_unpin(it);
	if (r > 0)
		iter_advance(it, (size_t)r);
	return r == -EINTR ? -EAGAIN : r;
}

static bool ready(struct file *f, uint32_t events)
{
	return hostfd_poll(f) & (events | EPOLLHUP | EPOLLERR);
}

static long wait_ready(struct task *t, struct file *f, struct hostfd *h, uint32_t events)
{
	if (!t || (f->flags & O_NONBLOCK)) {
		arm(h, events); /* an edge-triggered epoll waits for the next change */
		return -EAGAIN;
	}
	return wait_event(t, &h->wq, events | EPOLLHUP | EPOLLERR, DEADLINE_NONE, ready(f, events)) <
			       0
		       ? -ERESTARTSYS
		       : 0;
}

/* pread and pwrite on a regular file: elsewhere positions mean nothing. */
static ssize_t move_at(struct hostfd *h, struct iter *it, int64_t *pos, bool write)
{
	ssize_t done = 0;

	while (it->left) {
		struct iovec iov[HOST_SEGS];
		int n = iter_pin(it, !write, HOST_CHUNK, iov, HOST_SEGS);
		ssize_t r;

		if (n <= 0)
			return done ? done : n;
		if (write)
			r = HOST(PWRITE, pwritev(h->fd, iov, n, *pos));
		else
			r = HOST(PREAD, preadv(h->fd, iov, n, *pos));
		if (r < 0)
			r = -errno;
		iter_unpin(it);
		if (r <= 0)
			return done ? done : r;
		iter_advance(it, (size_t)r);
		*pos += r;
		done += r;
	}
	return done;
}

static ssize_t hostfd_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct hostfd *h = f->priv;

	if (h->kind == HOST_DIR)
		return -EISDIR;
	if (it->left == 0 || h->kind == HOST_GONE)
		return 0;
	if (h->kind == HOST_FILE && pos && pos != &f->pos)
		return move_at(h, it, pos, false);
	for (;;) {
		ssize_t r = move_once(h, it, false);

		if (r != -EAGAIN) {
			arm(h, EPOLLIN); /* what is left or comes next is news to epoll */
			return r;
		}
		r = wait_ready(t, f, h, EPOLLIN);
		if (r < 0)
			return r;
	}
}

static ssize_t hostfd_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct hostfd *h = f->priv;
	ssize_t done = 0;

	if (h->kind == HOST_GONE) {
		done = (ssize_t)it->left;
		iter_advance(it, it->left);
		return done;
	}
	if (h->kind == HOST_FILE && pos && pos != &f->pos)
		return move_at(h, it, pos, true);
	while (it->left) {
		ssize_t r = move_once(h, it, true);

		if (r == -EAGAIN) {
			r = wait_ready(t, f, h, EPOLLOUT);
			if (r < 0)
				return done ? done : r;
			continue;
		}
		if (r <= 0)
			return done ? done : r;
		done += r;
	}
	return done;
}

static int64_t hostfd_llseek(struct file *f, int64_t off, int whence)
{
	struct hostfd *h = f->priv;
	off_t r;

	if (h->kind != HOST_FILE)
		return -ESPIPE;
	r = lseek(h->fd, off, whence); /* host: lseek */
	return r < 0 ? -errno : r;
}

static int hostfd_fsync(struct file *f, bool datasync)
{
	struct hostfd *h = f->priv;

	(void)datasync;
	if (h->kind != HOST_FILE)
		return -EINVAL;
	return fsync(h->fd) < 0 ? -errno : 0; /* host: fsync */
}

static long hostfd_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg)
{
	struct hostfd *h = f->priv;

	if (h->kind == HOST_GONE)
		return -ENOIOCTLCMD;
	return hostfd_do_ioctl(t, h->fd, h->kind == HOST_TTY, cmd, arg);
}

const struct file_ops hostfd_fops = {
	.name = "host",
	.read = hostfd_read,
	.write = hostfd_write,
	.llseek = hostfd_llseek,
	.poll = hostfd_poll,
	.waitq = hostfd_waitq,
	.ioctl = hostfd_ioctl,
	.fsync = hostfd_fsync,
	.state = &file_state_host,
};

/* Regular files: always ready, and refused by epoll. */
const struct file_ops hostfd_regular_fops = {
	.name = "host",
	.read = hostfd_read,
	.write = hostfd_write,
	.llseek = hostfd_llseek,
	.ioctl = hostfd_ioctl,
	.fsync = hostfd_fsync,
	.state = &file_state_host_regular,
};

/* ---------------------------------------------------------------- inode */

static void hostfd_destroy(struct inode *inode)
{
	struct hostfd *h = container_of(inode, struct hostfd, inode);

	mutex_lock(&table_mu);
	list_del(&h->node);
	mutex_unlock(&table_mu);
	if (h->watchable)
		epoll_ctl(watch_fd, EPOLL_CTL_DEL, h->fd, NULL); /* host: epoll_ctl */
	if (h->fd >= 0)
		close(h->fd);
	waitq_fini(&h->wq);
	inode_fini(inode);
	free(h);
}

/* Opening it once more by /proc/PID/fd/N: the same description. */
int hostfd_open(struct inode *inode, struct file *f)
{
	struct hostfd *h = container_of(inode, struct hostfd, inode);

	f->ops = S_ISREG(inode->mode) ? &hostfd_regular_fops : &hostfd_fops;
	f->priv = h;
	if (h->kind != HOST_FILE)
		f->fmode |= FMODE_STREAM;
	return 0;
}

static int hostfd_getattr(struct inode *inode)
{
	struct hostfd *h = container_of(inode, struct hostfd, inode);
	struct stat st;

	if (h->kind == HOST_GONE)
		return 0;
	if (fstat(h->fd, &st) < 0) /* host: fstat */
		return -errno;
	inode->size = (uint64_t)st.st_size;
	inode->blocks = (uint64_t)st.st_blocks;
	inode->atime_ns = st.st_atim.tv_sec * NSEC_PER_SEC + st.st_atim.tv_nsec;
	inode->mtime_ns = st.st_mtim.tv_sec * NSEC_PER_SEC + st.st_mtim.tv_nsec;
	inode->ctime_ns = st.st_ctim.tv_sec * NSEC_PER_SEC + st.st_ctim.tv_nsec;
	return 0;
}

static int hostfd_setattr(struct inode *inode, const struct iattr *attr)
{
	struct hostfd *h = container_of(inode, struct hostfd, inode);

	if ((attr->valid & ATTR_SIZE) && h->kind == HOST_FILE && !(attr->valid & ATTR_OPEN))
		return ftruncate(h->fd, (off_t)attr->size) < 0 ? -errno : 0; /* host: ftruncate */
	return generic_setattr(inode, attr); /* our own view only */
}

const struct inode_ops hostfd_inode_ops = {
	.destroy = hostfd_destroy,
	.open = hostfd_open,
	.getattr = hostfd_getattr,
	.setattr = hostfd_setattr,
	.state = &state_inode_hostfd,
};

static enum host_kind kind_of(int fd, const struct stat *st)
{
	if (S_ISSOCK(st->st_mode))
		return HOST_SOCK;
	if (S_ISFIFO(st->st_mode))
		return HOST_PIPE;
	if (S_ISDIR(st->st_mode))
		return HOST_DIR;
	if (S_ISCHR(st->st_mode) && isatty(fd)) /* host: ioctl TCGETS */
		return HOST_TTY;
	return HOST_FILE; /* /dev/null and block devices behave like files */
}

struct hostfd *hostfd_alloc(void)
{
	struct hostfd *h = kzalloc(sizeof(*h));

	inode_init(&h->inode, anon_super, &hostfd_inode_ops, NULL, inode_next_ino(), 0, 0, 0);
	h->inode.blksize = 4096;
	h->kind = HOST_GONE;
	h->fd = -1;
	waitq_init(&h->wq);
	mutex_lock(&table_mu);
	h->id = ++next_id;
	list_add(&table, &h->node);
	mutex_unlock(&table_mu);
	return h;
}

int hostfd_attach(struct hostfd *h, int hostfd)
{
	struct epoll_event ev = { .events = EPOLLONESHOT, .data.u64 = h->id };
	int AUTO_CLOSE fd = hostfd;
	struct stat st;

	if (fstat(fd, &st) < 0) /* host: fstat */
		return -errno;
	h->inode.mode = st.st_mode;
	h->inode.rdev = st.st_rdev;
	h->kind = kind_of(fd, &st);
	h->nowait = h->kind == HOST_PIPE;
	h->fd = steal_fd(&fd);
	h->watchable = epoll_ctl(watch_fd, EPOLL_CTL_ADD, h->fd, &ev) == 0; /* host: epoll_ctl */
	return 0;
}

void hostfd_arm(struct hostfd *h)
{
	arm(h, EPOLLIN | EPOLLOUT);
}

struct file *hostfd_create_file(int hostfd, unsigned flags)
{
	struct hostfd *h = hostfd_alloc();
	int err = hostfd_attach(h, hostfd);
	struct file *f;
	char name[40];

	if (err) {
		inode_put(&h->inode);
		return err_ptr(err);
	}
	snprintf(name, sizeof(name), "host:[%lu]", (unsigned long)h->inode.ino);
	f = file_create_pseudo(&h->inode, &hostfd_fops, h, flags, name);
	if (!is_err(f))
		(void)hostfd_open(&h->inode, f); /* never fails */
	return f;
}
