// SPDX-License-Identifier: Apache-2.0
/*
 * What splice, tee and sendfile need of a pipe: moving pages without copying them twice.
 *
 * A splice between a pipe and a file can't hold pipe.mu while the file is read or written (that may
 * block, and takes locks of lower rank), so it claims one side of the pipe: other readers (or
 * writers) see it as not ready until the claim ends. Linux holds its pipe lock there instead.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "sentry/fs/pipe/pipe_priv.h"

static bool can_read(struct pipe *p)
{
	AUTO_LOCK(&p->mu);
	return !p->rd_claimed && (!pipe_empty(p) || p->writers == 0);
}

static bool can_write(struct pipe *p)
{
	AUTO_LOCK(&p->mu);
	return !p->wr_claimed && (!pipe_full(p) || p->readers == 0);
}

static long wait_readable(struct task *t, struct pipe *p, bool nonblock)
{
	if (!t || nonblock)
		return -EAGAIN;
	if (wait_event(t, &p->wq, EPOLLIN | EPOLLHUP, DEADLINE_NONE, can_read(p)) < 0)
		return -ERESTARTSYS;
	return 0;
}

static long wait_writable(struct task *t, struct pipe *p, bool nonblock)
{
	if (!t || nonblock)
		return -EAGAIN;
	if (wait_event(t, &p->wq, EPOLLOUT | EPOLLERR, DEADLINE_NONE, can_write(p)) < 0)
		return -ERESTARTSYS;
	return 0;
}

static unsigned pieces_locked(struct pipe *p, size_t len, struct iovec *iov, unsigned max)
{
	unsigned n = 0;

	for (unsigned i = p->tail; i != p->head && n < max && len; i++) {
		struct pipe_page *b = pipe_slot(p, i);
		size_t take = MIN((size_t)b->len, len);

		iov[n++] = (struct iovec){ b->data + b->off, take };
		len -= take;
	}
	return n;
}

long pipe_claim_read(struct task *t, struct pipe *p, bool nonblock, size_t len, struct iovec *iov,
		     unsigned max)
{
	for (;;) {
		long r;

		mutex_lock(&p->mu);
		if (!p->rd_claimed && !pipe_empty(p)) {
			p->rd_claimed = true;
			r = (long)pieces_locked(p, len, iov, max);
			mutex_unlock(&p->mu);
			return r;
		}
		r = !p->rd_claimed && p->writers == 0 ? 0 : 1;
		mutex_unlock(&p->mu);
		if (r == 0)
			return 0;
		r = wait_readable(t, p, nonblock);
		if (r < 0)
			return r;
	}
}

void pipe_unclaim_read(struct pipe *p, size_t consumed)
{
	bool was_full;

	mutex_lock(&p->mu);
	was_full = pipe_full(p) || p->polled;
	while (consumed) {
		struct pipe_page *b = pipe_slot(p, p->tail);
		size_t n = MIN((size_t)b->len, consumed);

		b->off += (uint32_t)n;
		b->len -= (uint32_t)n;
		consumed -= n;
		if (b->len == 0)
			pipe_drop_tail_locked(p);
	}
	p->rd_claimed = false;
	mutex_unlock(&p->mu);
	pipe_wake_readers(p);
	if (was_full)
		pipe_wake_writers(p);
}

long pipe_claim_write(struct task *t, struct pipe *p, bool nonblock)
{
	for (;;) {
		long r;

		mutex_lock(&p->mu);
		if (p->readers == 0) {
			mutex_unlock(&p->mu);
			return -EPIPE;
		}
		if (!p->wr_claimed && !pipe_full(p)) {
			p->wr_claimed = true;
			r = (long)(p->nslots - pipe_used(p));
			mutex_unlock(&p->mu);
			return r;
		}
		mutex_unlock(&p->mu);
		r = wait_writable(t, p, nonblock);
		if (r < 0)
			return r;
	}
}

void pipe_unclaim_write(struct pipe *p, struct pipe_page *pages, unsigned n)
{
	mutex_lock(&p->mu);
	for (unsigned i = 0; i < n; i++) {
		*pipe_slot(p, p->head) = pages[i];
		p->head++;
	}
	p->wr_claimed = false;
	mutex_unlock(&p->mu);
	pipe_wake_writers(p);
	if (n)
		pipe_wake_readers(p);
}

/* ---------------------------------------------------------------- pipe to pipe */

static void lock_pair(struct pipe *a, struct pipe *b)
{
	struct pipe *first = a < b ? a : b;

	mutex_lock(&first->mu);
	mutex_lock_nested(first == a ? &b->mu : &a->mu);
}

static void unlock_pair(struct pipe *a, struct pipe *b)
{
	mutex_unlock(&a->mu);
	mutex_unlock(&b->mu);
}

/* A whole page changes hands; a part of one, or a tee, is copied. Both locked. */
static ssize_t transfer_locked(struct pipe *from, struct pipe *to, size_t len, bool copy)
{
	unsigned i = from->tail;
	ssize_t done = 0;

	while (i != from->head && !pipe_full(to) && len) {
		struct pipe_page *b = pipe_slot(from, i);
		struct pipe_page moved = *b;
		size_t n = MIN((size_t)b->len, len);

		if (copy || n < b->len) {
			uint8_t *data = pipe_page_alloc();

			if (!data)
				return done ? done : -ENOMEM;
			memcpy(data, b->data + b->off, n);
			moved = (struct pipe_page){ data, 0, (uint32_t)n, b->packet };
		}
		if (!copy && n == b->len) {
			*b = (struct pipe_page){ 0 };
			from->tail++;
		} else if (!copy) {
			b->off += (uint32_t)n;
			b->len -= (uint32_t)n;
		}
		i++;
		*pipe_slot(to, to->head) = moved;
		to->head++;
		len -= n;
		done += (ssize_t)n;
	}
	return done;
}

ssize_t pipe_move(struct task *t, struct pipe *from, struct pipe *to, size_t len, bool nonblock,
		  bool copy)
{
	for (;;) {
		bool no_data, no_room;
		ssize_t r = 1;

		lock_pair(from, to);
		no_data = from->rd_claimed || pipe_empty(from);
		no_room = to->wr_claimed || pipe_full(to);
		if (to->readers == 0)
			r = -EPIPE;
		else if (no_data && !from->rd_claimed && from->writers == 0)
			r = 0;
		else if (!no_data && !no_room)
			r = transfer_locked(from, to, len, copy);
		unlock_pair(from, to);
		if (r <= 0)
			return r;
		if (!no_data && !no_room) {
			pipe_wake_readers(to);
			if (!copy)
				pipe_wake_writers(from);
			return r;
		}
		r = no_data ? wait_readable(t, from, nonblock) : wait_writable(t, to, nonblock);
		if (r < 0)
			return r;
	}
}
