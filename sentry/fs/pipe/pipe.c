// SPDX-License-Identifier: Apache-2.0
/*
 * The data of a pipe: a ring of pages, allocated when written and freed when read. A write of up to
 * PIPE_BUF bytes goes into one page (merged into the last one, or a fresh one), which makes it
 * atomic; bigger ones may be mixed with others' and may be partial when non-blocking.
 *
 * Wake-ups happen on empty -> not empty and full -> not full only, except that once somebody has
 * polled the pipe every write and read is told (edge-triggered epoll counts on it; Linux does the same).
 *
 * Lock order: see pipe_priv.h.
 */
#include "sentry/fs/pipe/pipe.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/fs/pipe/pipe_priv.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kmem.h"

static _Atomic unsigned pages_used;

uint8_t *pipe_page_alloc(void)
{
	uint8_t *p;

	if (atomic_fetch_add_explicit(&pages_used, 1, memory_order_relaxed) >= PIPE_PAGES_MAX) {
		atomic_fetch_sub_explicit(&pages_used, 1, memory_order_relaxed);
		return NULL;
	}
	p = kmem_charge(PAGE_SIZE) ? kmalloc_guest(PAGE_SIZE) : NULL;
	if (!p)
		atomic_fetch_sub_explicit(&pages_used, 1, memory_order_relaxed);
	return p;
}

void pipe_page_free(uint8_t *data)
{
	if (!data)
		return;
	free(data);
	kmem_uncharge(PAGE_SIZE);
	atomic_fetch_sub_explicit(&pages_used, 1, memory_order_relaxed);
}

static uint8_t *page_take_locked(struct pipe *p)
{
	for (unsigned i = 0; i < PIPE_SPARE; i++)
		if (p->spare[i])
			return steal_ptr(&p->spare[i]);
	return pipe_page_alloc();
}

static void page_give_locked(struct pipe *p, uint8_t *data)
{
	for (unsigned i = 0; i < PIPE_SPARE; i++) {
		if (!p->spare[i]) {
			p->spare[i] = data;
			return;
		}
	}
	pipe_page_free(data);
}

void pipe_drop_tail_locked(struct pipe *p)
{
	struct pipe_page *b = pipe_slot(p, p->tail);

	page_give_locked(p, b->data);
	*b = (struct pipe_page){ 0 };
	p->tail++;
}

void pipe_wake_readers(struct pipe *p)
{
	waitq_poke(&p->wq, EPOLLIN | EPOLLRDNORM);
}

void pipe_wake_writers(struct pipe *p)
{
	waitq_poke(&p->wq, EPOLLOUT | EPOLLWRNORM);
}

/* ---------------------------------------------------------------- read */

/* Moves what there is into @it. Bytes, or -EFAULT. */
static ssize_t read_avail_locked(struct pipe *p, struct iter *it)
{
	ssize_t done = 0;

	while (!pipe_empty(p) && it->left) {
		struct pipe_page *b = pipe_slot(p, p->tail);
		size_t n = MIN((size_t)b->len, it->left);
		ssize_t r = iter_copy_to(it, b->data + b->off, n);
		bool packet = b->packet;

		if (r < 0)
			return done ? done : r;
		done += r;
		b->off += (uint32_t)r;
		b->len -= (uint32_t)r;
		/* A packet goes with its first read, whether it fitted or not. */
		if (b->len == 0 || (packet && (size_t)r == n))
			pipe_drop_tail_locked(p);
		if (packet || (size_t)r < n)
			break;
	}
	return done;
}

/* Can a reader get on: data, or nobody left to wait for? */
static bool readable(struct pipe *p)
{
	AUTO_LOCK(&p->mu);
	return !p->rd_claimed && (!pipe_empty(p) || p->writers == 0);
}

ssize_t pipe_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct pipe *p = f->priv;

	(void)pos;
	if (it->left == 0)
		return 0;
	for (;;) {
		mutex_lock(&p->mu);
		if (!p->rd_claimed && !pipe_empty(p)) {
			bool was_full = pipe_full(p);
			ssize_t r = read_avail_locked(p, it);
			bool wake = (was_full && !pipe_full(p)) || p->polled;

			if (wake && p->wfile)
				file_fasync(p->wfile, EPOLLOUT);
			mutex_unlock(&p->mu);
			if (wake)
				pipe_wake_writers(p);
			return r;
		}
		if (!p->rd_claimed && p->writers == 0) {
			mutex_unlock(&p->mu);
			return 0;
		}
		mutex_unlock(&p->mu);
		if (!t || (f->flags & O_NONBLOCK))
			return -EAGAIN;
		if (wait_event(t, &p->wq, EPOLLIN | EPOLLHUP, DEADLINE_NONE, readable(p)) < 0)
			return -ERESTARTSYS;
	}
}

/* ---------------------------------------------------------------- write */

/* The odd bytes of a write (its length modulo a page) may join the last page, if all of them fit. */
static ssize_t merge_locked(struct pipe *p, struct iter *it)
{
	struct pipe_page *b;
	size_t odd = it->left & (PAGE_SIZE - 1);
	ssize_t r;

	if (odd == 0 || pipe_empty(p))
		return 0;
	b = pipe_slot(p, p->head - 1);
	if (b->packet || b->off + b->len + odd > PAGE_SIZE)
		return 0;
	r = iter_copy_from(it, b->data + b->off + b->len, odd);
	if (r > 0)
		b->len += (uint32_t)r;
	return r;
}

/* Fills free slots. Bytes moved (0: no slot free), -EFAULT, -ENOMEM. */
static ssize_t fill_locked(struct pipe *p, struct iter *it, bool packet)
{
	ssize_t done = 0;

	while (it->left && !pipe_full(p)) {
		size_t n = MIN(it->left, PAGE_SIZE);
		uint8_t *data = page_take_locked(p);
		ssize_t r = data ? iter_copy_from(it, data, n) : -ENOMEM;

		if (r < 0) {
			if (data)
				page_give_locked(p, data);
			return done ? done : r;
		}
		*pipe_slot(p, p->head) = (struct pipe_page){ data, 0, (uint32_t)r, packet };
		p->head++;
		done += r;
		if ((size_t)r < n)
			break;
	}
	return done;
}

static bool writable(struct pipe *p)
{
	AUTO_LOCK(&p->mu);
	return !p->wr_claimed && (!pipe_full(p) || p->readers == 0);
}

/* One attempt under the lock: what was moved, 0 if there was no room, -EPIPE ... */
static ssize_t write_once(struct pipe *p, struct file *f, struct iter *it, bool first)
{
	ssize_t r, more;
	bool wake;

	mutex_lock(&p->mu);
	if (p->readers == 0 || p->wr_claimed) {
		r = p->readers == 0 ? -EPIPE : 0;
		mutex_unlock(&p->mu);
		return r;
	}
	wake = pipe_empty(p) || p->polled;
	r = first && !(f->flags & O_DIRECT) ? merge_locked(p, it) : 0;
	if (r >= 0) {
		more = fill_locked(p, it, f->flags & O_DIRECT);
		if (more > 0 || r == 0)
			r += more;
	}
	if (r > 0 && wake && p->rfile)
		file_fasync(p->rfile, EPOLLIN);
	mutex_unlock(&p->mu);
	if (r > 0 && wake)
		pipe_wake_readers(p);
	return r;
}

ssize_t pipe_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct pipe *p = f->priv;
	ssize_t done = (ssize_t)task_call_progress(t);

	(void)pos;
	iter_advance(it, (size_t)done);
	if (it->left == 0)
		return done;
	for (;;) {
		size_t before = it->left;
		ssize_t r = write_once(p, f, it, done == 0);

		if (r < 0)
			return done ? done : r;
		done += r;
		if (it->left == 0)
			return done;
		/* Stopped short of a full ring: a fault in the middle of the buffer. */
		if (r > 0 && before != it->left && writable(p))
			continue;
		if (!t || (f->flags & O_NONBLOCK))
			return done ? done : -EAGAIN;
		if (wait_event(t, &p->wq, EPOLLOUT | EPOLLERR, DEADLINE_NONE, writable(p)) < 0)
			return done ? task_call_partial(t, done) : -ERESTARTSYS;
	}
}
