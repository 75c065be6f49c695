// SPDX-License-Identifier: Apache-2.0
/*
 * Where the bytes of a file are.
 *
 * Pages live in one mfile that all small files of the sandbox share (two: those of a writable layer that lies on
 * disk have one there), found through a tree
 * of extents (file page -> offset). What no extent covers is a hole: zeroes, or, below
 * lower_end, the lower's bytes. So a file of the image is never copied as a whole:
 * writing copies up the pages that it touches.
 *
 * A stub that maps a file gets a descriptor, and with it all of the mfile. So a file that
 * is mapped for the first time moves to an mfile of its own (tm_own_locked), which holds
 * nothing else; large files move when they outgrow TM_SHARED_MAX.
 *
 * A checkpoint freezes all pages where they are, by giving everybody a new current mfile (tm_freeze()): a
 * new era. Extents remember their mfile; one that isn't the file's current one is frozen: it is read where
 * it is, and copied to the current one before anything writes to it (tm_thaw_locked). What an image brings is
 * frozen from the start. A frozen page may be mapped read-only as long as no shared mapping can write: then
 * all mappings get copies.
 *
 * Copies between pages and guest memory run without tm_file.mu, which ranks above mm.mu.
 * They count as in flight; meanwhile pages that are given up stay allocated (graves), and
 * a writer whose pages moved under it (gen changed) writes again.
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/tmpfs/priv.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/kmem.h"
#include "sentry/mm/safecopy.h"

static int extent_cmp(struct tm_extent *a, struct tm_extent *b)
{
	return a->page < b->page ? -1 : a->page > b->page;
}

RB_GENERATE_INTERNAL(tm_extents, tm_extent, tree, extent_cmp, )

static struct mfile *shared_mf[2]; /* in memory, on disk; change only while the sandbox is frozen */
static uint64_t era;            /* likewise */
static pthread_once_t shared_once = PTHREAD_ONCE_INIT;
static _Atomic unsigned nown; /* files with an mfile of their own */

static struct mfile *new_mfile(bool on_disk, const char *name)
{
	return on_disk ? mfile_create_on_disk(name) : mfile_create(name);
}

/* A pair as in shared_mf. 0 or -errno. */
static int new_shared(struct mfile *mf[2])
{
	mf[0] = new_mfile(false, "tmpfs");
	mf[1] = mfile_disk_provided() ? new_mfile(true, "layer") : NULL;
	if (!is_err(mf[0]) && !(mf[1] && is_err(mf[1])))
		return 0;
	for (int i = 0; i < 2; i++)
		if (mf[i] && !is_err(mf[i]))
			mfile_put(mf[i]);
	return (int)ptr_err(is_err(mf[0]) ? mf[0] : mf[1]);
}

static void shared_create(void)
{
	int r = new_shared(shared_mf);

	if (r)
		panic("tmpfs: no memory file: %d", r);
}

static bool is_shared(const struct mfile *mf)
{
	return mf == shared_mf[0] || mf == shared_mf[1];
}

int tmpfs_freeze(void)
{
	struct mfile *fresh[2];
	int r = new_shared(fresh);

	if (r)
		return r;
	pthread_once(&shared_once, shared_create);
	for (int i = 0; i < 2; i++) {
		if (shared_mf[i])
			mfile_put(shared_mf[i]);
		shared_mf[i] = fresh[i];
	}
	era++;
	tm_save_begin();
	return 0;
}

uint64_t tm_disk_left(void)
{
	pthread_once(&shared_once, shared_create);
	return mfile_disk_left(shared_mf[1]);
}

static bool on_disk(const struct tm_file *f)
{
	return TM_SB(f->ti->i.sb)->on_disk;
}

static void drop_own(struct tm_file *f)
{
	mfile_put(f->own);
	f->own = NULL;
	atomic_fetch_sub(&nown, 1);
}

/* Where new pages of the file go. */
struct mfile *tm_mfile_locked(struct tm_file *f)
{
	if (f->own && f->own_era != era)
		drop_own(f);
	if (f->own)
		return f->own;
	pthread_once(&shared_once, shared_create);
	return shared_mf[on_disk(f)];
}

bool tm_frozen_locked(struct tm_file *f, const struct tm_extent *e)
{
	return e->mf != tm_mfile_locked(f);
}

bool tm_any_frozen_locked(struct tm_file *f)
{
	struct tm_extent *e;

	RB_FOREACH(e, tm_extents, &f->extents)
		if (tm_frozen_locked(f, e))
			return true;
	return false;
}

struct tm_file *tm_file_create(struct tm_inode *ti)
{
	struct tm_file *f = kzalloc(sizeof(*f));

	f->ti = ti;
	mutex_init(&f->mu, RANK_INODE_PAGES);
	RB_INIT(&f->extents);
	f->vmo.ops = &tm_object_ops;
	f->seals = 0x0001; /* F_SEAL_SEAL: only memfds that ask for it can be sealed */
	f->lower_end = ti->lower ? ti->lower->attr.size : 0;
	return f;
}

/* ---- freeing ---- */

/* Gives up [off, off+len) of the file's current mfile, now or when no copy is in flight. */
static void bury_locked(struct tm_file *f, struct mfile *mf, uint64_t off, uint64_t len)
{
	if (!f->inflight) {
		mfile_range_put(mf, off, len);
		return;
	}
	struct tm_grave *g = kzalloc(sizeof(*g));
	*g = (struct tm_grave){ f->graves, mfile_get(mf), off, len };
	f->graves = g;
}

void tm_inflight_get_locked(struct tm_file *f)
{
	f->inflight++;
}

void tm_inflight_put_locked(struct tm_file *f)
{
	if (--f->inflight)
		return;
	while (f->graves) {
		struct tm_grave *g = f->graves;

		f->graves = g->next;
		mfile_range_put(g->mf, g->off, g->len);
		mfile_put(g->mf);
		free(g);
	}
}

static void extent_drop(struct tm_file *f, struct tm_extent *e)
{
	RB_REMOVE(tm_extents, &f->extents, e);
	mfile_put(e->mf);
	kmem_uncharge(sizeof(*e));
	free(e);
}

void tm_file_destroy(struct tm_file *f)
{
	struct tm_extent *e, *tmp;

	if (!f)
		return;
	mutex_lock(&f->mu);
	RB_FOREACH_SAFE(e, tm_extents, &f->extents, tmp) {
		mfile_range_put(e->mf, e->off, e->npages << PAGE_SHIFT);
		extent_drop(f, e);
	}
	mutex_unlock(&f->mu);
	tm_uncharge_pages(TM_SB(f->ti->i.sb), f->npages);
	if (f->own)
		drop_own(f);
	mutex_fini(&f->mu);
	free(f);
}

/* ---- lookup ---- */

/* The extent with @page; or NULL and the length of the hole there in pages. */
struct tm_extent *tm_extent_find_locked(struct tm_file *f, uint64_t page, uint64_t *ret_hole)
{
	struct tm_extent *e = RB_ROOT(&f->extents), *after = NULL;

	mutex_assert_held(&f->mu);
	while (e) {
		if (page < e->page) {
			after = e;
			e = RB_LEFT(e, tree);
		} else if (page - e->page >= e->npages) {
			e = RB_RIGHT(e, tree);
		} else {
			return e;
		}
	}
	*ret_hole = after ? after->page - page : UINT64_MAX / PAGE_SIZE - page;
	return NULL;
}

/* ---- adding ---- */

/* Takes over the page references. */
void tm_extent_add_locked(struct tm_file *f, uint64_t page, uint64_t npages, struct mfile *mf,
			  uint64_t off)
{
	struct tm_extent *prev = NULL;
	uint64_t hole;

	if (page)
		prev = tm_extent_find_locked(f, page - 1, &hole);
	f->npages += npages;
	if (prev && prev->mf == mf && prev->off + ((page - prev->page) << PAGE_SHIFT) == off) {
		prev->npages += npages;
		return;
	}
	struct tm_extent *e = kzalloc(sizeof(*e));
	kmem_add(sizeof(*e));
	e->page = page;
	e->npages = npages;
	e->mf = mfile_get(mf);
	e->off = off;
	e->common = is_shared(mf) || mfile_noexec(mf);
	RB_INSERT(tm_extents, &f->extents, e);
}

/* Copies the lower's bytes of [page, page+npages) to @off of the mfile. */
static int fill_from_lower(struct tm_file *f, uint64_t page, uint64_t npages, uint64_t off)
{
	uint64_t pos = page << PAGE_SHIFT, len = npages << PAGE_SHIFT;

	if (pos >= f->lower_end)
		return 0;
	len = MIN(len, f->lower_end - pos);
	while (len) {
		uint64_t n = len;
		void *p = mfile_ptr(tm_mfile_locked(f), off, &n);

		if (!p)
			return -ENOMEM;
		int err = lower_fill(f->ti->lower, p, n, pos);
		if (err)
			return err;
		pos += n;
		off += n;
		len -= n;
	}
	return 0;
}

static int populate_hole(struct tm_file *f, uint64_t page, uint64_t npages)
{
	struct tm_super *ts = TM_SB(f->ti->i.sb);
	struct mfile *mf = tm_mfile_locked(f);
	uint64_t off;

	if (kmem_full() || !tm_charge_pages(ts, npages))
		return -ENOSPC;
	int err = mfile_alloc(mf, npages << PAGE_SHIFT, &off);
	if (!err && f->lower_end) {
		err = fill_from_lower(f, page, npages, off);
		if (err)
			mfile_range_put(mf, off, npages << PAGE_SHIFT);
	}
	if (err) {
		tm_uncharge_pages(ts, npages);
		return err == -ENOMEM ? -ENOSPC : err;
	}
	tm_extent_add_locked(f, page, npages, mf, off);
	return 0;
}

/* Makes every page of the range the file's own. -ENOSPC, -EIO. What was done before an
 * error stays. */
int tm_populate_locked(struct tm_file *f, uint64_t page, uint64_t npages)
{
	while (npages) {
		uint64_t n;
		struct tm_extent *e = tm_extent_find_locked(f, page, &n);

		if (e) {
			n = e->npages - (page - e->page);
		} else {
			n = MIN(n, npages);
			int err = populate_hole(f, page, n);

			if (err)
				return err;
		}
		n = MIN(n, npages);
		page += n;
		npages -= n;
	}
	return 0;
}

/* ---- removing ---- */

/*
 * The pages of the range become holes. Context: the caller takes care of what the lower
 * has there (lower_end), and tells the mappings afterwards.
 */
void tm_remove_locked(struct tm_file *f, uint64_t page, uint64_t npages)
{
	uint64_t end = page + npages, hole;

	while (page < end) {
		struct tm_extent *e = tm_extent_find_locked(f, page, &hole);

		if (!e) {
			if (hole >= end - page)
				return;
			page += hole;
			continue;
		}
		uint64_t skip = page - e->page, n = MIN(e->npages - skip, end - page);
		uint64_t tail = e->npages - skip - n;
		uint64_t tail_off = e->off + ((skip + n) << PAGE_SHIFT);
		struct mfile *mf = mfile_get(e->mf);

		bury_locked(f, mf, e->off + (skip << PAGE_SHIFT), n << PAGE_SHIFT);
		tm_uncharge_pages(TM_SB(f->ti->i.sb), n);
		f->npages -= n + tail;
		if (skip)
			e->npages = skip;
		else
			extent_drop(f, e);
		if (tail) /* not adjacent to what is left: no merging with it */
			tm_extent_add_locked(f, page + n, tail, mf, tail_off);
		mfile_put(mf);
		page += n;
	}
}

/* Zeroes bytes of pages that are the file's own; holes are left alone. */
int tm_zero_locked(struct tm_file *f, uint64_t off, uint64_t len)
{
	while (len) {
		uint64_t hole, n, in_page = off & (PAGE_SIZE - 1), page = off >> PAGE_SHIFT;
		struct tm_extent *e = tm_extent_find_locked(f, page, &hole);

		if (e && tm_frozen_locked(f, e)) {
			n = (page_up(off + len) >> PAGE_SHIFT) - page;
			if (tm_thaw_locked(f, page, MIN(n, e->npages - (page - e->page))))
				return -ENOSPC;
			e = tm_extent_find_locked(f, page, &hole);
		}
		if (!e) {
			n = MIN(len, PAGE_SIZE - in_page);
		} else {
			uint64_t at = off - (e->page << PAGE_SHIFT);
			n = MIN(len, (e->npages << PAGE_SHIFT) - at);
			void *p = mfile_ptr(e->mf, e->off + at, &n);
			if (!p || safezero(p, n))
				return -ENOSPC;
		}
		off += n;
		len -= n;
	}
	return 0;
}

/* ---- frozen pages ---- */

/* Pages [page, page+n) of frozen @e become the file's current ones. */
static int thaw_piece(struct tm_file *f, struct tm_extent *e, uint64_t page, uint64_t n)
{
	struct mfile *to = tm_mfile_locked(f), *from = mfile_get(e->mf);
	uint64_t skip = page - e->page, tail = e->npages - skip - n, off;
	uint64_t src = e->off + (skip << PAGE_SHIFT), len = n << PAGE_SHIFT;
	int err = mfile_alloc(to, len, &off);

	if (!err) {
		err = mfile_copy(to, off, from, src, len);
		if (err)
			mfile_range_put(to, off, len);
	}
	if (err) {
		mfile_put(from);
		return err;
	}
	bury_locked(f, from, src, len);
	f->npages -= n + tail;
	if (skip)
		e->npages = skip;
	else
		extent_drop(f, e);
	if (tail)
		tm_extent_add_locked(f, page + n, tail, from, src + len);
	tm_extent_add_locked(f, page, n, to, off);
	mfile_put(from);
	return 0;
}

/*
 * Makes every page of the range that is there writable. -ENOMEM. Context: the caller tells mappings
 * afterwards (tm_moved), unless there can be none of frozen pages.
 */
int tm_thaw_locked(struct tm_file *f, uint64_t page, uint64_t npages)
{
	uint64_t end = page + npages;

	while (page < end) {
		uint64_t n;
		struct tm_extent *e = tm_extent_find_locked(f, page, &n);

		if (e) {
			n = MIN(e->npages - (page - e->page), end - page);
			if (tm_frozen_locked(f, e)) {
				int err = thaw_piece(f, e, page, n);

				if (err)
					return err;
			}
		}
		if (n >= end - page)
			break;
		page += n;
	}
	return 0;
}

/* ---- moving ---- */

/* All pages of the current mfile move to @to: both ends' references go along. Frozen ones stay. */
static int move_locked(struct tm_file *f, struct mfile *to)
{
	struct mfile *from = tm_mfile_locked(f);
	struct tm_extent *e;
	unsigned n = 0, i = 0;
	int err = 0;

	RB_FOREACH(e, tm_extents, &f->extents)
		n += e->mf == from;
	AUTO_FREE uint64_t *offs = kcalloc(n ? n : 1, sizeof(*offs));
	RB_FOREACH(e, tm_extents, &f->extents) {
		uint64_t len = e->npages << PAGE_SHIFT;

		if (e->mf != from)
			continue;
		err = mfile_alloc(to, len, &offs[i]);
		if (err)
			break;
		err = mfile_copy(to, offs[i], from, e->off, len);
		i++;
		if (err)
			break;
	}
	n = i;
	i = 0;
	RB_FOREACH(e, tm_extents, &f->extents) {
		uint64_t len = e->npages << PAGE_SHIFT;

		if (i == n)
			break;
		if (e->mf != from)
			continue;
		if (err) {
			mfile_range_put(to, offs[i++], len);
		} else {
			bury_locked(f, from, e->off, len);
			e->off = offs[i++];
			e->mf = mfile_get(to);
			e->common = is_shared(to);
			mfile_put(from);
		}
	}
	if (!err)
		f->gen++;
	return err;
}

/* Moves the file to an mfile of its own. */
int tm_own_locked(struct tm_file *f)
{
	(void)tm_mfile_locked(f); /* lets go of one of an earlier era */
	if (f->own)
		return 0;
	if (atomic_fetch_add(&nown, 1) >= TM_OWN_HARD_MAX) {
		atomic_fetch_sub(&nown, 1);
		return -ENOMEM;
	}
	struct mfile *mf = new_mfile(on_disk(f), "tmpfs-file");
	int err = is_err(mf) ? (int)ptr_err(mf) : move_locked(f, mf);
	if (err) {
		if (!is_err(mf))
			mfile_put(mf);
		atomic_fetch_sub(&nown, 1);
		return err;
	}
	f->own = mf;
	f->own_era = era;
	return 0;
}

/* Not mapped any more: back to the shared mfile, if descriptors are getting scarce and it
 * is small. */
void tm_disown_locked(struct tm_file *f)
{
	(void)tm_mfile_locked(f);
	if (!f->own || f->npages > TM_SHARED_MAX >> PAGE_SHIFT ||
	    atomic_load(&nown) <= TM_OWN_SOFT_MAX)
		return;
	pthread_once(&shared_once, shared_create);
	if (move_locked(f, shared_mf[on_disk(f)]))
		return; /* stays where it is */
	drop_own(f);
}

/* st_blocks. Of a mapped file, whose extents are reserved ahead of use, what is really
 * there. */
uint64_t tm_blocks(struct tm_file *f)
{
	uint64_t bytes = 0, size = atomic_load(&f->ti->i.size);
	struct tm_extent *e;

	mutex_lock(&f->mu);
	if (f->own) {
		RB_FOREACH(e, tm_extents, &f->extents)
			bytes += mfile_range_resident(e->mf, e->off, e->npages << PAGE_SHIFT);
	} else {
		bytes = MIN(f->npages << PAGE_SHIFT, page_up(size));
	}
	uint64_t blocks = bytes / 512;
	if (f->lower_end && !f->npages)
		blocks = f->ti->lower->attr.blocks;
	else if (f->lower_end && blocks < f->ti->lower->attr.blocks)
		blocks = MIN(f->ti->lower->attr.blocks, page_up(size) / 512);
	mutex_unlock(&f->mu);
	return blocks;
}
