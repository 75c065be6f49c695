// SPDX-License-Identifier: Apache-2.0
/*
 * Pipes as files: making, opening (FIFOs wait for their other side), closing, poll, ioctl, size.
 *
 * A pipe lives as long as files are open on its inode; inode->fifo points to it (also for pipe(2), so
 * that opening /proc/PID/fd/N finds it). f->pos, which a stream has no other use for, holds the number
 * of writers that had come when a non-blocking reader opened a FIFO: no POLLHUP before the next
 * one has come and gone.
 */
#include <fcntl.h>
#include <stdio.h>
#include <linux/capability.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include "base/alloc.h"
#include "sentry/fs/pipe/pipe_priv.h"
#include "sentry/fs/pipe/pseudo.h"
#include "sentry/kernel/cred.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_state.h"

static _Atomic unsigned slots_reserved;

const struct file_ops pipe_fops;

/* ---------------------------------------------------------------- life */

static bool privileged(struct task *t)
{
	return t && (task_capable(t, CAP_SYS_RESOURCE) || task_capable(t, CAP_SYS_ADMIN));
}

struct pipe *pipe_alloc_slots(unsigned slots)
{
	struct pipe *p = kzalloc(sizeof(*p));

	atomic_fetch_add_explicit(&slots_reserved, slots, memory_order_relaxed);
	mutex_init(&p->mu, RANK_PIPE);
	waitq_init(&p->wq);
	p->nslots = slots;
	p->ring = kcalloc(slots, sizeof(*p->ring));
	return p;
}

static struct pipe *pipe_alloc(struct task *t, bool anonymous)
{
	unsigned slots = PIPE_SLOTS_DEFAULT;
	struct pipe *p;

	if (slots_reserved + slots > PIPE_USER_SLOTS_SOFT && !privileged(t))
		slots = PIPE_SLOTS_MIN;
	p = pipe_alloc_slots(slots);
	p->anonymous = anonymous;
	return p;
}

static void pipe_destroy(struct pipe *p)
{
	while (!pipe_empty(p)) {
		pipe_page_free(pipe_slot(p, p->tail)->data);
		p->tail++;
	}
	for (unsigned i = 0; i < PIPE_SPARE; i++)
		pipe_page_free(p->spare[i]);
	atomic_fetch_sub_explicit(&slots_reserved, p->nslots, memory_order_relaxed);
	waitq_fini(&p->wq);
	mutex_fini(&p->mu);
	free(p->ring);
	free(p);
}

/* One more file on the inode's pipe, which is made if need be. */
static struct pipe *pipe_use(struct task *t, struct inode *inode, bool anonymous)
{
	AUTO_LOCK(&inode->mu);
	if (!inode->fifo)
		inode->fifo = pipe_alloc(t, anonymous);
	inode->fifo->users++;
	return inode->fifo;
}

static void pipe_unuse(struct inode *inode, struct pipe *p)
{
	bool last;

	mutex_lock(&inode->mu);
	last = --p->users == 0;
	if (last)
		inode->fifo = NULL;
	mutex_unlock(&inode->mu);
	if (last)
		pipe_destroy(p);
}

/* An end was closed (or its open given up). */
static void end_closed(struct pipe *p, unsigned fmode)
{
	bool no_writer, no_reader;

	mutex_lock(&p->mu);
	if (fmode & FMODE_READ)
		p->readers--;
	if (fmode & FMODE_WRITE)
		p->writers--;
	no_writer = p->writers == 0;
	no_reader = p->readers == 0;
	mutex_unlock(&p->mu);
	if (no_writer && (fmode & FMODE_WRITE))
		waitq_poke(&p->wq, EPOLLIN | EPOLLRDNORM | EPOLLHUP);
	if (no_reader && (fmode & FMODE_READ))
		waitq_poke(&p->wq, EPOLLOUT | EPOLLWRNORM | EPOLLERR);
}

static void pipe_release(struct file *f)
{
	struct pipe *p = f->priv;

	mutex_lock(&p->mu);
	if (p->rfile == f)
		p->rfile = NULL;
	if (p->wfile == f)
		p->wfile = NULL;
	mutex_unlock(&p->mu);
	end_closed(p, f->fmode);
	pipe_unuse(f->inode, p);
}

static struct file *end_create(struct inode *inode, struct pipe *p, unsigned flags)
{
	char name[40];
	struct file *f;

	snprintf(name, sizeof(name), "pipe:[%lu]", (unsigned long)inode->ino);
	f = file_create_pseudo(inode_get(inode), &pipe_fops, p, flags, name);
	if (is_err(f))
		return f;
	f->fmode |= FMODE_STREAM;
	f->pos = 0;
	return f;
}

int pipe_create(struct task *t, unsigned flags, struct file *ret[2])
{
	struct inode *inode = pseudo_inode_create(PSEUDO_PIPE, S_IFIFO | 0600, t);
	struct pipe *p = pipe_use(t, inode, true);
	struct file *r, *w;

	r = end_create(inode, p, O_RDONLY | (flags & O_NONBLOCK));
	if (is_err(r)) {
		pipe_unuse(inode, p);
		inode_put(inode);
		return (int)ptr_err(r);
	}
	p->readers = 1;
	p->rfile = r;
	w = end_create(inode, p, O_WRONLY | (flags & (O_NONBLOCK | O_DIRECT)));
	if (is_err(w)) {
		inode_put(inode);
		file_put(r);
		return (int)ptr_err(w);
	}
	(void)pipe_use(t, inode, true); /* the write end's use */
	p->writers = 1;
	p->wfile = w;
	p->r_counter = p->w_counter = 1;
	inode_put(inode);
	ret[0] = r;
	ret[1] = w;
	return 0;
}

/* ---------------------------------------------------------------- FIFO */

static unsigned counter_read(struct pipe *p, const unsigned *counter)
{
	AUTO_LOCK(&p->mu);
	return *counter;
}

/* Counts the new end in. -ENXIO for a non-blocking writer without a reader. *ret_wait: the counter that
 * has to move before the open may succeed, or NULL. */
static int fifo_join_locked(struct pipe *p, struct file *f, const unsigned **ret_wait)
{
	bool nonblock = f->flags & O_NONBLOCK;

	*ret_wait = NULL;
	switch (f->fmode & (FMODE_READ | FMODE_WRITE)) {
	case FMODE_READ:
		p->r_counter++;
		p->readers++;
		if (!p->anonymous && p->writers == 0) {
			if (nonblock)
				f->pos = p->w_counter;
			else
				*ret_wait = &p->w_counter;
		}
		return 0;
	case FMODE_WRITE:
		if (!p->anonymous && nonblock && p->readers == 0)
			return -ENXIO;
		p->w_counter++;
		p->writers++;
		if (!p->anonymous && p->readers == 0)
			*ret_wait = &p->r_counter;
		return 0;
	case FMODE_READ | FMODE_WRITE:
		p->r_counter++;
		p->w_counter++;
		p->readers++;
		p->writers++;
		return 0;
	}
	return -EINVAL;
}

int pipe_open_fifo(struct task *t, struct inode *inode, struct file *f)
{
	const unsigned *partner;
	unsigned seen = 0;
	struct pipe *p;
	int err;

	/* A pipe of the host's, opened by /proc/PID/fd/N (fs/hostfd). */
	if (inode->sb == anon_super && inode->ops->open)
		return inode->ops->open(inode, f);
	p = pipe_use(t, inode, false);
	f->pos = 0;
	mutex_lock(&p->mu);
	err = fifo_join_locked(p, f, &partner);
	if (partner)
		seen = *partner;
	mutex_unlock(&p->mu);
	if (err) {
		pipe_unuse(inode, p);
		return err;
	}
	waitq_poke(&p->wq, EPOLLIN | EPOLLOUT); /* who waits for a partner */
	if (partner) {
		long r = t ? wait_event(t, &p->wq, ~0u, DEADLINE_NONE,
					counter_read(p, partner) != seen)
			   : -EAGAIN;

		if (r < 0) {
			end_closed(p, f->fmode);
			pipe_unuse(inode, p);
			return (int)r;
		}
	}
	f->ops = &pipe_fops;
	f->priv = p;
	f->fmode |= FMODE_STREAM;
	return 0;
}

/* ---------------------------------------------------------------- poll, ioctl, fcntl */

static uint32_t pipe_poll(struct file *f)
{
	struct pipe *p = f->priv;
	uint32_t ev = 0;

	if (!p->polled)
		p->polled = true;
	AUTO_LOCK(&p->mu);
	if (f->fmode & FMODE_READ) {
		if (!pipe_empty(p))
			ev |= EPOLLIN | EPOLLRDNORM;
		if (p->writers == 0 && (unsigned)f->pos != p->w_counter)
			ev |= EPOLLHUP;
	}
	if (f->fmode & FMODE_WRITE) {
		if (!pipe_full(p))
			ev |= EPOLLOUT | EPOLLWRNORM;
		if (p->readers == 0)
			ev |= EPOLLERR;
	}
	return ev;
}

static struct waitq *pipe_waitq(struct file *f)
{
	struct pipe *p = f->priv;

	return &p->wq;
}

static long pipe_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg)
{
	struct pipe *p = f->priv;
	uint32_t sum = 0;

	if (cmd != FIONREAD)
		return -ENOIOCTLCMD;
	mutex_lock(&p->mu);
	for (unsigned i = p->tail; i != p->head; i++)
		sum += pipe_slot(p, i)->len;
	mutex_unlock(&p->mu);
	return copyout_obj(t, gaddr(arg), &sum);
}

static int pipe_set_flags(struct file *f, unsigned flags)
{
	(void)f;
	(void)flags; /* O_DIRECT may be switched on and off (packet mode) */
	return 0;
}

static long resize(struct task *t, struct pipe *p, unsigned long arg)
{
	unsigned slots = 1, used;
	struct pipe_page *ring;

	if (arg > 1UL << 31)
		return -EINVAL;
	while ((uint64_t)slots * PAGE_SIZE < arg)
		slots <<= 1;
	AUTO_LOCK(&p->mu);
	if (slots > p->nslots) {
		if (slots * PAGE_SIZE > PIPE_MAX_SIZE && !(t && task_capable(t, CAP_SYS_RESOURCE)))
			return -EPERM;
		if (slots_reserved + slots - p->nslots > PIPE_USER_SLOTS_SOFT && !privileged(t))
			return -EPERM;
		if (slots * PAGE_SIZE > PIPE_MAX_SIZE_PRIV)
			return -ENOMEM;
	}
	used = pipe_used(p);
	if (slots < used || p->rd_claimed || p->wr_claimed)
		return -EBUSY;
	ring = kcalloc(slots, sizeof(*ring));
	for (unsigned i = 0; i < used; i++)
		ring[i] = *pipe_slot(p, p->tail + i);
	free(p->ring);
	atomic_fetch_add_explicit(&slots_reserved, slots - p->nslots, memory_order_relaxed);
	p->ring = ring;
	p->nslots = slots;
	p->tail = 0;
	p->head = used;
	return (long)(slots * PAGE_SIZE);
}

struct pipe *pipe_of_file(const struct file *f)
{
	return f->ops == &pipe_fops ? f->priv : NULL;
}

long pipe_fcntl(struct file *f, unsigned cmd, unsigned long arg)
{
	struct pipe *p = pipe_of_file(f);
	long r;

	if (!p)
		return -EBADF;
	switch (cmd) {
	case F_GETPIPE_SZ:
		mutex_lock(&p->mu);
		r = (long)(p->nslots * PAGE_SIZE);
		mutex_unlock(&p->mu);
		return r;
	case F_SETPIPE_SZ:
		r = resize(current_task(), p, arg);
		if (r > 0)
			pipe_wake_writers(p);
		return r;
	}
	return -EINVAL;
}

const struct file_ops pipe_fops = {
	.name = "pipe",
	.release = pipe_release,
	.read = pipe_read,
	.write = pipe_write,
	.poll = pipe_poll,
	.waitq = pipe_waitq,
	.ioctl = pipe_ioctl,
	.set_flags = pipe_set_flags,
	.state = &file_state_pipe,
};
