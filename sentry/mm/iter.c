// SPDX-License-Identifier: Apache-2.0
/*
 * I/O vectors over guest memory or over one kernel buffer (man 2 readv).
 *
 * Pinning: iter_pin() counts a pin on the mm for each piece; whoever takes pages away (unmap, fork,
 * truncation) waits, with mm.mu held, until the count is zero. So between iter_pin() and iter_unpin()
 * the caller makes its host call and nothing else: it takes no lock and touches no guest memory.
 */
#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/access.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/usermem.h"

_Static_assert(sizeof(struct giov) == sizeof(struct iovec), "giov is the guest's iovec");

void iter_init_user(struct iter *it, struct task *t, gaddr_t base, size_t len)
{
	memset(it, 0, sizeof(*it));
	it->task = t;
	it->gone.base = base;
	it->gone.len = MIN(len, MAX_RW_COUNT_GUEST);
	it->gvec = &it->gone;
	it->nseg = 1;
	it->left = it->gone.len;
}

void iter_init_kernel(struct iter *it, void *buf, size_t len)
{
	memset(it, 0, sizeof(*it));
	it->kone.iov_base = buf;
	it->kone.iov_len = len;
	it->kvec = &it->kone;
	it->nseg = 1;
	it->left = len;
}

/* Lengths as import_iovec() takes them: each non-negative as ssize_t, the sum cut to MAX_RW_COUNT. */
static int check_segments(struct iter *it)
{
	size_t sum = 0;

	for (unsigned i = 0; i < it->nseg; i++) {
		struct giov *v = &it->gvec[i];

		if (v->len > SSIZE_MAX)
			return -EINVAL;
		if (v->base.va >= GUEST_TASK_SIZE && v->len)
			return -EFAULT;
		v->len = MIN(v->len, MAX_RW_COUNT_GUEST - sum);
		sum += v->len;
	}
	it->left = sum;
	return 0;
}

int iter_init_uiov(struct iter *it, struct task *t, gaddr_t iov, uint64_t count)
{
	int r = 0;

	memset(it, 0, sizeof(*it));
	it->task = t;
	if (count > UIO_MAXIOV_GUEST)
		return -EINVAL;
	it->nseg = (unsigned)count;
	it->gvec = &it->gone;
	if (count > 1)
		it->gvec = kcalloc(count, sizeof(*it->gvec));
	if (count)
		r = copyin(t, it->gvec, iov, count * sizeof(*it->gvec));
	if (r == 0)
		r = check_segments(it);
	if (r < 0)
		iter_fini(it);
	return r;
}

void iter_fini(struct iter *it)
{
	if (it->gvec && it->gvec != &it->gone)
		free(it->gvec);
	it->gvec = NULL;
	it->nseg = 0;
	it->left = 0;
}

static size_t seg_len(const struct iter *it, unsigned i)
{
	return it->kvec ? it->kvec[i].iov_len : it->gvec[i].len;
}

static struct mm *iter_mm(const struct iter *it)
{
	return it->mm ? it->mm : it->task->mm;
}

void iter_advance(struct iter *it, size_t n)
{
	n = MIN(n, it->left);
	it->left -= n;
	while (it->seg < it->nseg) {
		size_t avail = seg_len(it, it->seg) - it->seg_off;

		if (n < avail) {
			it->seg_off += n;
			return;
		}
		n -= avail;
		it->seg++;
		it->seg_off = 0;
	}
}

void iter_revert(struct iter *it, size_t n)
{
	while (n) {
		size_t take = MIN(n, it->seg_off);

		it->seg_off -= take;
		it->left += take;
		n -= take;
		if (n && it->seg_off == 0) {
			if (it->seg == 0)
				return;
			it->seg--;
			it->seg_off = seg_len(it, it->seg);
		}
	}
}

/* Moves bytes of the current segment; returns how many, 0 on a fault. */
static size_t move_segment(struct iter *it, void *buf, size_t n, bool to_iter)
{
	if (!it->kvec)
		return mm_access(iter_mm(it), it->task,
				 gaddr_off(it->gvec[it->seg].base, it->seg_off), buf, n, to_iter);

	char *k = (char *)it->kvec[it->seg].iov_base + it->seg_off;

	if (!to_iter)
		memcpy(buf, k, n);
	else if (buf)
		memcpy(k, buf, n);
	else
		memset(k, 0, n);
	return n;
}

static ssize_t move(struct iter *it, void *buf, size_t len, bool to_iter)
{
	size_t done = 0;

	len = MIN(len, it->left);
	while (done < len) {
		size_t n = seg_len(it, it->seg) - it->seg_off, got;

		if (n == 0) {
			it->seg++;
			it->seg_off = 0;
			continue;
		}
		n = MIN(n, len - done);
		got = move_segment(it, buf ? (char *)buf + done : NULL, n, to_iter);
		iter_advance(it, got);
		done += got;
		if (got < n)
			return done ? (ssize_t)done : -EFAULT;
	}
	return (ssize_t)done;
}

ssize_t iter_copy_to(struct iter *it, const void *src, size_t len)
{
	union {
		const void *c;
		void *v;
	} u = { .c = src }; /* only read from */

	return move(it, u.v, len, true);
}

ssize_t iter_copy_from(struct iter *it, void *dst, size_t len)
{
	return move(it, dst, len, false);
}

ssize_t iter_zero(struct iter *it, size_t len)
{
	return move(it, NULL, len, true);
}

/* Kernel pieces: nothing to pin. */
static unsigned pieces_kernel(struct iter *it, size_t max, struct iovec *out, unsigned maxseg)
{
	size_t off = it->seg_off;
	unsigned n = 0;

	for (unsigned seg = it->seg; max && n < maxseg && seg < it->nseg; seg++, off = 0) {
		size_t len = MIN(seg_len(it, seg) - off, max);

		if (len == 0)
			continue;
		out[n].iov_base = (char *)it->kvec[seg].iov_base + off;
		out[n++].iov_len = len;
		max -= len;
	}
	return n;
}

/* Guest pieces up to the first one that isn't there; *ret_missing is its address then. */
static int pieces_guest(struct iter *it, bool write, size_t max, struct iovec *out, unsigned maxseg,
			gaddr_t *ret_missing)
{
	unsigned seg = it->seg, n = 0;
	size_t off = it->seg_off;

	while (max && n < maxseg && seg < it->nseg) {
		size_t len = MIN(seg_len(it, seg) - off, max);
		gaddr_t a = gaddr_off(it->gvec[seg].base, off);
		int r;

		if (len == 0) {
			seg++;
			off = 0;
			continue;
		}
		r = mm_pin_try(iter_mm(it), a, len, write, &out[n]);
		if (r <= 0) {
			*ret_missing = a;
			return n ? (int)n : r;
		}
		off += out[n].iov_len;
		max -= out[n].iov_len;
		n++;
	}
	return (int)n;
}

#define PIN_TRIES 8

int iter_pin(struct iter *it, bool write, size_t max, struct iovec *out, unsigned maxseg)
{
	max = MIN(max, it->left);
	if (max == 0)
		return 0;
	if (it->kvec)
		return (int)pieces_kernel(it, max, out, maxseg);
	for (int i = 0; i < PIN_TRIES; i++) {
		gaddr_t missing = GADDR_NULL;
		int n;

		/* All under one hold of the lock: a writer may wait for our pin with it. */
		mm_pin_begin(iter_mm(it));
		n = pieces_guest(it, write, max, out, maxseg, &missing);
		mm_pin_end(iter_mm(it), n > 0);
		it->pinned = n > 0;
		if (n != 0)
			return n;
		if (mm_pin_resolve(iter_mm(it), it->task, missing, write) < 0)
			return -EFAULT;
	}
	return -EFAULT;
}

void iter_unpin(struct iter *it)
{
	if (it->pinned)
		mm_unpin(iter_mm(it));
	it->pinned = false;
}
