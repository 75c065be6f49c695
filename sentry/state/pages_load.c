// SPDX-License-Identifier: Apache-2.0
/*
 * Memory in an image, loading: see pages.h, and pages.c for the table.
 *
 * Everything is checked before any object is loaded: extents are aligned, sorted, do not overlap, and lie
 * within the page file that they name as large as it is now. A file that is cut short afterwards faults like
 * any other host file (SIGBUS).
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/size.h"
#include "sentry/mm/mfile.h"
#include "sentry/state/pages_priv.h"
#include "sentry/state/state_priv.h"

#define OFF_MAX (1ULL << 47) /* no memory file is larger */

static struct page_extent pull_extent(struct cursor *c)
{
	struct page_extent e;

	e.off = pull_u64(c);
	e.len = pull_u64(c);
	e.src = pull_u32(c);
	e.src_off = pull_u64(c);
	return e;
}

static bool extent_ok(const struct page_extent *e, uint64_t from, const uint64_t *sizes, unsigned nimages)
{
	if (!page_aligned(e->off | e->len | e->src_off) || e->len == 0)
		return false;
	if (e->off < from || e->off >= OFF_MAX || e->len > OFF_MAX - e->off)
		return false;
	return e->src < nimages && e->src_off <= sizes[e->src] &&
	       e->len <= sizes[e->src] - e->src_off;
}

/* The extents of one file. @sizes NULL: of a branch, which has none. */
static bool check_file(struct state_pages *p, struct cursor *c, struct loaded_file *f,
		       const uint64_t *sizes)
{
	uint32_t kind = pull_u32(c);
	uint64_t from = 0;

	f->nextents = pull_u32(c);
	f->extents = c->p;
	p->nextents += f->nextents;
	if (kind != 0 || f->nextents > c->left / PAGES_EXTENT_LEN || p->nextents > PAGES_EXTENTS_MAX)
		return false;
	for (uint32_t i = 0; i < f->nextents; i++) {
		struct page_extent e = pull_extent(c);

		if (!sizes || !extent_ok(&e, from, sizes, p->nimages))
			return false;
		from = e.off + e.len;
	}
	return cursor_ok(c);
}

static bool check_table(struct state_pages *p, size_t len, const uint64_t *sizes)
{
	struct cursor c;

	cursor_init(&c, p->table, len);
	p->nfiles = pull_u32(&c);
	if (!cursor_ok(&c) || p->nfiles > PAGES_FILES_MAX || p->nfiles > c.left / PAGES_FILE_LEN) {
		p->nfiles = 0;
		return false;
	}
	p->loaded = kcalloc(p->nfiles ? p->nfiles : 1, sizeof(*p->loaded));
	for (uint32_t i = 0; i < p->nfiles; i++)
		if (!check_file(p, &c, &p->loaded[i], sizes))
			return false;
	return cursor_done(&c);
}

static struct mfile *wrap_image(int fd, const uint8_t *id)
{
	struct mfile *mf = mfile_wrap_image(fd);
	struct page_origin *o = kzalloc(sizeof(*o));

	o->whole = true;
	o->nids = 1;
	memcpy(o->ids[0], id, PAGES_ID_LEN);
	mfile_set_origin(mf, o);
	return mf;
}

struct state_pages *pages_loader(const void *table, size_t len, const int *fds, unsigned nfds,
				 const uint8_t (*ids)[PAGES_ID_LEN], char **ret_why)
{
	struct state_pages *p = kzalloc(sizeof(*p));
	AUTO_FREE uint64_t *sizes = kcalloc(nfds ? nfds : 1, sizeof(*sizes));
	struct stat st;

	p->images = kcalloc(nfds ? nfds : 1, sizeof(struct mfile *));
	p->nimages = ids ? nfds : 0;
	for (unsigned i = 0; i < nfds; i++) {
		/* host: fstat */
		sizes[i] = fstat(fds[i], &st) == 0 ? page_down((uint64_t)st.st_size) : 0;
		if (ids)
			p->images[i] = wrap_image(fds[i], ids[i]);
	}
	p->table = kzalloc(len ? len : 1);
	memcpy(p->table, table, len);
	if (!check_table(p, len, ids ? sizes : NULL) || (!ids && p->nfiles > nfds)) {
		*ret_why = kstrdup("the table of its pages is damaged, or does not fit its page files");
		for (unsigned i = 0; i < nfds && !ids; i++)
			close(fds[i]);
		pages_release(p);
		return err_ptr(-EINVAL);
	}
	if (ids)
		return p;
	for (uint32_t i = 0; i < p->nfiles; i++)
		p->loaded[i].live = mfile_wrap_image(fds[i]);
	pages_keep_leases(fds + p->nfiles, nfds - p->nfiles);
	return p;
}

/* ---- for fields() ---- */

bool pages_next_data(struct mfile *mf, struct data_run *run, uint64_t off, uint64_t end,
		     uint64_t *ret_start, uint64_t *ret_end)
{
	if (off < run->start || off >= run->end) {
		uint64_t a, b;

		if (!mfile_next_data(mf, off, OFF_MAX, &a, &b))
			return false;
		run->start = page_down(a);
		run->end = page_up(b);
	}
	if (run->start >= end)
		return false;
	*ret_start = MAX(off, run->start);
	*ret_end = MIN(end, run->end);
	return true;
}

/* Of the other side's file what is memory there now; holes of it would become memory by being read. */
static void live_pieces(struct loaded_file *f, uint64_t off, uint64_t len, state_piece_fn fn, void *arg)
{
	uint64_t at = off, end = off + len, a, b;

	while (at < end && pages_next_data(f->live, &f->run, at, end, &a, &b)) {
		fn(arg, a - off, b - a, f->live, a);
		at = b;
	}
}

static void image_pieces(struct state_pages *p, struct loaded_file *f, uint64_t off, uint64_t len,
			 state_piece_fn fn, void *arg)
{
	uint32_t lo = 0, hi = f->nextents;
	struct page_extent e;
	struct cursor c;

	/* The first one that ends beyond @off. */
	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		cursor_init(&c, f->extents + (size_t)mid * PAGES_EXTENT_LEN, PAGES_EXTENT_LEN);
		e = pull_extent(&c);
		if (e.off + e.len <= off)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; lo < f->nextents; lo++) {
		uint64_t a, b;

		cursor_init(&c, f->extents + (size_t)lo * PAGES_EXTENT_LEN, PAGES_EXTENT_LEN);
		e = pull_extent(&c);
		if (e.off >= off + len)
			return;
		a = MAX(off, e.off);
		b = MIN(off + len, e.off + e.len);
		fn(arg, a - off, b - a, p->images[e.src], e.src_off + (a - e.off));
	}
}

void state_pages_in(struct state *s, uint64_t want, state_piece_fn fn, void *arg)
{
	struct state_pages *p = state_pages_of(s);
	uint32_t number = 0;
	uint64_t off = 0, len = 0;

	state_u32(s, &number);
	state_u64(s, &off);
	state_u64(s, &len);
	if (!state_ok(s))
		return;
	if (!p || number >= p->nfiles || len != want || !page_aligned(off | len) || off >= OFF_MAX ||
	    len > OFF_MAX - off) {
		state_fail(s, "a range of memory that can't be");
		return;
	}
	if (p->loaded[number].live)
		live_pieces(&p->loaded[number], off, len, fn, arg);
	else
		image_pieces(p, &p->loaded[number], off, len, fn, arg);
}

/* ---- reading ahead ---- */

#define PREFETCH_STEP (8L << 20)
#define PREFETCH_MAX (8L << 30) /* of one image; the rest comes when it is touched */

struct prefetch {
	unsigned n;
	int fds[];
};

static void *prefetch_main(void *arg)
{
	struct prefetch *f = arg;
	struct stat st;

	for (unsigned i = 0; i < f->n; i++) {
		off_t end = fstat(f->fds[i], &st) ? 0 : MIN(st.st_size, PREFETCH_MAX); /* host: fstat */

		/* host: fadvise64 */
		for (off_t at = 0; at < end; at += PREFETCH_STEP)
			if (posix_fadvise(f->fds[i], at, PREFETCH_STEP, POSIX_FADV_WILLNEED))
				break;
		close(f->fds[i]);
	}
	free(f);
	return NULL;
}

void pages_prefetch(struct state_pages *p)
{
	struct prefetch *f = kzalloc(sizeof(*f) + p->nimages * sizeof(int));
	pthread_t th;

	for (unsigned i = 0; i < p->nimages; i++) {
		int fd = fcntl(mfile_rofd(p->images[i]), F_DUPFD_CLOEXEC, 3); /* host: fcntl */

		if (fd >= 0)
			f->fds[f->n++] = fd;
	}
	if (f->n && pthread_create(&th, NULL, prefetch_main, f) == 0) {
		pthread_detach(th);
		return;
	}
	while (f->n)
		close(f->fds[--f->n]);
	free(f);
}

void pages_release_loaded(struct state_pages *p)
{
	for (uint32_t i = 0; i < p->nfiles; i++)
		if (p->loaded[i].live)
			mfile_put(p->loaded[i].live);
	for (unsigned i = 0; i < p->nimages; i++)
		mfile_put(p->images[i]);
	free(p->images);
	free(p->loaded);
	free(p->table);
}
