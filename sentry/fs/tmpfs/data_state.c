// SPDX-License-Identifier: Apache-2.0
/*
 * Saving and loading the data of a file: its extents as ranges of memory files (sentry/state/pages.h). They are
 * frozen already (tmpfs_freeze()), so there is nothing to do but to name them. What an image brings is frozen
 * from the start, and is copied when somebody writes.
 *
 * Loading, a part of an extent that holds no data becomes pages of zeroes again, not a hole: over a lower
 * they hide the lower's bytes, and room that was allocated stays so.
 *
 * Not here: the size, which is the inode's, and what else a file has (tmpfs_state.c).
 */
#include "base/alloc.h"
#include "sentry/fs/tmpfs/priv.h"
#include "sentry/state/pages.h"
#include "sentry/state/state.h"

#define EXTENTS_MAX (4u << 20)
#define PAGES_MAX ((uint64_t)INT64_MAX >> PAGE_SHIFT)

struct extent_load {
	struct state *s;
	struct tm_file *f;
	uint64_t base; /* file page where the range begins */
	uint64_t done; /* up to here it is in the file */
};

/* Pages [l->done, @page) are zeroes. */
static void add_zeroes(struct extent_load *l, uint64_t page)
{
	struct mfile *mf = tm_mfile_locked(l->f);
	uint64_t n = page - l->done, off;

	if (n == 0)
		return;
	if (mfile_alloc(mf, n << PAGE_SHIFT, &off) < 0) {
		state_fail(l->s, "no memory for a file");
		return;
	}
	tm_extent_add_locked(l->f, l->done, n, mf, off);
	l->done = page;
}

static void take_piece(void *arg, uint64_t at, uint64_t len, struct mfile *mf, uint64_t off)
{
	struct extent_load *l = arg;
	uint64_t page = l->base + (at >> PAGE_SHIFT);

	add_zeroes(l, page);
	if (!state_ok(l->s))
		return;
	mfile_range_get(mf, off, len);
	tm_extent_add_locked(l->f, page, len >> PAGE_SHIFT, mf, off);
	l->done = page + (len >> PAGE_SHIFT);
}

static void load_extents(struct state *s, struct tm_file *f)
{
	uint32_t n = state_count(s, 0, EXTENTS_MAX);
	uint64_t from = 0;

	for (uint32_t i = 0; i < n && state_ok(s); i++) {
		struct extent_load l = { .s = s, .f = f };
		uint64_t npages = 0;

		state_u64(s, &l.base);
		state_u64(s, &npages);
		if (l.base < from || l.base > PAGES_MAX || npages == 0 ||
		    npages > PAGES_MAX - l.base) {
			state_fail(s, "impossible pages of a file");
			return;
		}
		from = l.done = l.base;
		state_pages_in(s, npages << PAGE_SHIFT, take_piece, &l);
		if (state_ok(s))
			add_zeroes(&l, l.base + npages);
		from = l.base + npages;
	}
}

void tm_data_state(struct state *s, struct tm_file *f)
{
	AUTO_LOCK(&f->mu);

	state_bool(s, &f->thaw_maps);
	if (state_loading(s)) {
		load_extents(s, f);
		atomic_fetch_add(&TM_SB(f->ti->i.sb)->used_pages, f->npages);
		return;
	}
	struct tm_extent *e;
	uint32_t n = 0;

	RB_FOREACH(e, tm_extents, &f->extents)
		n++;
	state_count(s, n, EXTENTS_MAX);
	RB_FOREACH(e, tm_extents, &f->extents) {
		state_u64(s, &e->page);
		state_u64(s, &e->npages);
		state_pages_out(s, e->mf, e->off, e->npages << PAGE_SHIFT);
	}
}
