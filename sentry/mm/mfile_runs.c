// SPDX-License-Identifier: Apache-2.0
/*
 * The range allocator of a memory file: see mfile_priv.h for what a run is.
 *
 * Allocation is best fit, lowest offset first among equals. A hole is thus used up from its lower end
 * by one allocation after the other, which makes consecutive allocations adjacent (so that their
 * mappings merge in the host), and the endless tail of the file is touched only when nothing else
 * fits. All operations are O(log runs), and range operations add the number of runs in the range.
 *
 * No locks here: the owner's is held throughout.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/size.h"
#include "sentry/mm/mfile_priv.h"

static int cmp_off(const struct run *a, const struct run *b)
{
	return a->off < b->off ? -1 : a->off > b->off;
}

static int cmp_size(const struct run *a, const struct run *b)
{
	if (a->len != b->len)
		return a->len < b->len ? -1 : 1;
	return cmp_off(a, b);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wcast-qual"
RB_GENERATE_STATIC(run_offs, run, by_off, cmp_off)
RB_GENERATE_STATIC(run_sizes, run, by_size, cmp_size)
#pragma GCC diagnostic pop

static struct run *run_insert(struct runs *r, uint64_t off, uint64_t len, uint32_t count)
{
	struct run *n = kzalloc(sizeof(*n));

	n->off = off;
	n->len = len;
	n->count = count;
	RB_INSERT(run_offs, &r->offs, n);
	if (count == RUN_FREE)
		RB_INSERT(run_sizes, &r->sizes, n);
	return n;
}

static void run_remove(struct runs *r, struct run *n)
{
	if (n->count == RUN_FREE)
		RB_REMOVE(run_sizes, &r->sizes, n);
	RB_REMOVE(run_offs, &r->offs, n);
	free(n);
}

/* Changes what the size tree is keyed by, or whether the run is in it at all. The place in the
 * offset tree must not change its order. */
static void run_set(struct runs *r, struct run *n, uint64_t off, uint64_t len,
		    uint32_t count)
{
	if (n->count == RUN_FREE)
		RB_REMOVE(run_sizes, &r->sizes, n);
	n->off = off;
	n->len = len;
	n->count = count;
	if (count == RUN_FREE)
		RB_INSERT(run_sizes, &r->sizes, n);
}

void runs_init(struct runs *r, uint64_t size)
{
	RB_INIT(&r->offs);
	RB_INIT(&r->sizes);
	run_insert(r, 0, size, RUN_FREE);
}

void runs_fini(struct runs *r)
{
	struct run *n, *tmp;

	for (n = RB_MIN(run_offs, &r->offs); n; n = tmp) {
		tmp = RB_NEXT(run_offs, &r->offs, n);
		RB_REMOVE(run_offs, &r->offs, n);
		free(n);
	}
}

/* The run that holds @off. */
static struct run *run_find(struct runs *r, uint64_t off)
{
	struct run *n = RB_ROOT(&r->offs);

	while (n) {
		if (off < n->off)
			n = RB_LEFT(n, by_off);
		else if (off - n->off >= n->len)
			n = RB_RIGHT(n, by_off);
		else
			return n;
	}
	panic("mfile offset 0x%lx beyond the end", (unsigned long)off);
}

/* Makes @off the start of a run, which is returned. */
static struct run *run_split(struct runs *r, struct run *n, uint64_t off)
{
	uint64_t end = n->off + n->len;

	if (off == n->off)
		return n;
	run_set(r, n, n->off, off - n->off, n->count);
	return run_insert(r, off, end - off, n->count);
}

/* A run that is exactly the part of @n below @end. */
static struct run *run_cut(struct runs *r, struct run *n, uint64_t end)
{
	if (n->off + n->len > end)
		run_split(r, n, end);
	return n;
}

/* Sets the count of @n and joins it with neighbours that have the same. The resulting run. */
static struct run *run_recount(struct runs *r, struct run *n, uint32_t count)
{
	struct run *prev = RB_PREV(run_offs, &r->offs, n);
	struct run *next = RB_NEXT(run_offs, &r->offs, n);
	uint64_t off = n->off, len = n->len;

	if (prev && prev->count == count && count != RUN_DYING) {
		off = prev->off;
		len += prev->len;
		run_remove(r, prev);
	}
	if (next && next->count == count && count != RUN_DYING) {
		len += next->len;
		run_remove(r, next);
	}
	run_set(r, n, off, len, count);
	return n;
}

uint64_t runs_alloc(struct runs *r, uint64_t len)
{
	struct run key = { .off = 0, .len = len };
	struct run *n = RB_NFIND(run_sizes, &r->sizes, &key);
	uint64_t off;

	if (!n)
		return UINT64_MAX;
	off = n->off;
	run_recount(r, run_cut(r, n, off + len), 1);
	return off;
}

bool runs_alloc_at(struct runs *r, uint64_t off, uint64_t len)
{
	struct run *n = run_find(r, off);

	if (n->count != RUN_FREE || n->len - (off - n->off) < len)
		return false;
	n = run_split(r, n, off);
	run_recount(r, run_cut(r, n, off + len), 1);
	return true;
}

static void check_live(const struct run *n)
{
	if (n->count == RUN_FREE || n->count == RUN_DYING)
		panic("mfile range 0x%lx is not allocated", (unsigned long)n->off);
}

void runs_get(struct runs *r, uint64_t off, uint64_t len)
{
	uint64_t end = off + len;

	while (off < end) {
		struct run *n = run_split(r, run_find(r, off), off);

		check_live(n);
		n = run_cut(r, n, end);
		off = n->off + n->len;
		if (n->count < RUN_MAX)
			run_recount(r, n, n->count + 1);
	}
}

bool runs_put(struct runs *r, uint64_t *off, uint64_t *len, uint64_t *dead_off,
	      uint64_t *dead_len)
{
	uint64_t end = *off + *len;

	while (*off < end) {
		struct run *n = run_split(r, run_find(r, *off), *off);

		check_live(n);
		n = run_cut(r, n, end);
		*off = n->off + n->len;
		*len = end - *off;
		if (n->count == 1) {
			*dead_off = n->off;
			*dead_len = n->len;
			run_recount(r, n, RUN_DYING);
			return true;
		}
		if (n->count < RUN_MAX)
			run_recount(r, n, n->count - 1);
	}
	return false;
}

void runs_release(struct runs *r, uint64_t off, uint64_t len)
{
	struct run *n = run_find(r, off);

	if (n->off != off || n->len != len || n->count != RUN_DYING)
		panic("mfile range 0x%lx released twice", (unsigned long)off);
	run_recount(r, n, RUN_FREE);
}

bool runs_next_unused(struct runs *r, uint64_t *at, uint64_t *ret_off, uint64_t *ret_len)
{
	struct run *last = RB_MAX(run_offs, &r->offs), *n;

	for (n = *at < last->off + last->len ? run_find(r, *at) : NULL; n; n = RB_NEXT(run_offs, &r->offs, n)) {
		if (n->count != RUN_FREE && n->count != RUN_DYING)
			continue;
		*ret_off = n->off;
		*ret_len = n->len;
		*at = n->off + n->len;
		return true;
	}
	return false;
}

uint64_t runs_exclusive(struct runs *r, uint64_t off, uint64_t len)
{
	struct run *n = run_find(r, off);

	/* Neighbours never have equal counts, so one run is the whole answer. */
	return n->count == 1 ? MIN(len, n->len - (off - n->off)) : 0;
}
