// SPDX-License-Identifier: Apache-2.0
/*
 * Memory in an image, saving: see pages.h; pages_load.c has the other side, pages_lease.c what branches hold.
 *
 * The table that is written ("pages" in docs/image-format.md) has an entry for each memory file and, for an
 * image, its extents: [off, off+len) of the file is at byte src_off of page file number src, 0 being the
 * image's own and the others its parents in the order of its list. What no extent covers is zeroes.
 *
 *   u32 number of files, then for each: u32 kind, u32 number of extents,
 *   extents: u64 off, u64 len, u32 src, u64 src_off
 *
 * Once an image is published, each file that was written remembers where (its origin): what is frozen
 * never changes, so a later image may just point there.
 *
 * Runs of zeroes that are long enough take no room; short ones are written, since each extent becomes a
 * host mapping when the image is used.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/size.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/safecopy.h"
#include "sentry/state/pages_priv.h"
#include "sentry/state/state_priv.h"

#define GAP_MIN (16 * PAGE_SIZE)     /* zeroes that are worth an extent's end */
#define WRITE_MAX (1UL << 20)        /* bytes of one write */

struct state_pages *pages_saver(void)
{
	struct state_pages *p = kzalloc(sizeof(*p));

	p->saving = true;
	p->lease = -1;
	return p;
}

void pages_may_inherit(struct state_pages *p, const uint8_t id[PAGES_ID_LEN])
{
	if (p->nhave == PAGES_PARENTS_MAX)
		return;
	memcpy(p->have[p->nhave++], id, PAGES_ID_LEN);
}

static struct saved_file *file_of(struct state *s, struct state_pages *p, struct mfile *mf)
{
	uint64_t id = mfile_id(mf);
	struct saved_file *f;

	HASH_FIND(hh, p->by_id, &id, sizeof(id), f);
	if (f)
		return f;
	if (p->nfiles == PAGES_FILES_MAX) {
		state_fail(s, "more than %d memory files", PAGES_FILES_MAX);
		return NULL;
	}
	f = kzalloc(sizeof(*f));
	f->id = id;
	f->mf = mfile_get(mf);
	f->number = p->nfiles;
	HASH_ADD(hh, p->by_id, id, sizeof(f->id), f);
	if (p->nfiles == p->files_size) {
		p->files_size = p->files_size ? p->files_size * 2 : 64;
		p->files = krealloc_array(p->files, p->files_size, sizeof(*p->files));
	}
	p->files[p->nfiles++] = f;
	return f;
}

static void add_range(struct saved_file *f, uint64_t off, uint64_t len)
{
	struct page_range *last = f->nranges ? &f->ranges[f->nranges - 1] : NULL;

	mfile_range_get(f->mf, off, len);
	if (last && last->off + last->len == off) {
		last->len += len;
		return;
	}
	if (f->nranges == f->ranges_size) {
		f->ranges_size = f->ranges_size ? f->ranges_size * 2 : 16;
		f->ranges = krealloc_array(f->ranges, f->ranges_size, sizeof(*f->ranges));
	}
	f->ranges[f->nranges++] = (struct page_range){ off, len };
}

void state_pages_out(struct state *s, struct mfile *mf, uint64_t off, uint64_t len)
{
	struct saved_file *f = state_ok(s) ? file_of(s, state_pages_of(s), mf) : NULL;
	uint32_t number = f ? f->number : 0;

	if (f)
		add_range(f, off, len);
	state_u32(s, &number);
	state_u64(s, &off);
	state_u64(s, &len);
}

/* ---- ranges without overlaps ---- */

static int by_off(const void *a, const void *b)
{
	const struct page_range *x = a, *y = b;

	return x->off < y->off ? -1 : x->off > y->off;
}

/* Sorted, joined; heap. The originals keep their references. */
static struct page_range *joined(const struct saved_file *f, size_t *ret_n)
{
	struct page_range *r = kcalloc(f->nranges ? f->nranges : 1, sizeof(*r));
	size_t n = 0;

	if (f->nranges)
		memcpy(r, f->ranges, f->nranges * sizeof(*r));
	qsort(r, f->nranges, sizeof(*r), by_off);
	for (size_t i = 0; i < f->nranges; i++) {
		if (n && r[i].off <= r[n - 1].off + r[n - 1].len)
			r[n - 1].len = MAX(r[n - 1].off + r[n - 1].len, r[i].off + r[i].len) -
				       r[n - 1].off;
		else
			r[n++] = r[i];
	}
	*ret_n = n;
	return r;
}

/* ---- writing ---- */

struct page_writer {
	struct state_pages *p;
	int fd;
	uint64_t at;
	XXH3_state_t *sum;
	char *buf; /* WRITE_MAX: a private copy, so that what is written is what was summed up */
};

static int add_extent(struct state_pages *p, struct saved_file *f, uint64_t off, uint64_t len,
		      uint32_t src, uint64_t src_off)
{
	struct page_extent *last = f->nextents ? &f->extents[f->nextents - 1] : NULL;

	if (last && last->off + last->len == off && last->src == src &&
	    last->src_off + last->len == src_off) {
		last->len += len;
		return 0;
	}
	if (++p->nextents > PAGES_EXTENTS_MAX)
		return -E2BIG;
	if (f->nextents == f->extents_size) {
		f->extents_size = f->extents_size ? f->extents_size * 2 : 16;
		f->extents = krealloc_array(f->extents, f->extents_size, sizeof(*f->extents));
	}
	f->extents[f->nextents++] = (struct page_extent){ off, len, src_off, src };
	return 0;
}

static int write_all(int fd, const char *buf, uint64_t len, uint64_t at)
{
	while (len) {
		ssize_t n = pwrite(fd, buf, len, (off_t)at); /* host: pwrite64 */

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		buf += n;
		at += (uint64_t)n;
		len -= (uint64_t)n;
	}
	return 0;
}

static int read_pages(struct saved_file *f, uint64_t off, char *buf, uint64_t len)
{
	while (len) {
		uint64_t n = len;
		const void *mem = mfile_cptr(f->mf, off, &n);

		if (!mem)
			return -ENOMEM;
		if (safecopy(buf, mem, n))
			return -EIO;
		buf += n;
		off += n;
		len -= n;
	}
	return 0;
}

static int write_stretch(struct page_writer *w, struct saved_file *f, uint64_t off, const char *buf,
			 uint64_t len)
{
	int r = write_all(w->fd, buf, len, w->at);

	if (r == 0)
		r = add_extent(w->p, f, off, len, 0, w->at);
	if (r < 0)
		return r;
	if (XXH3_64bits_update(w->sum, buf, len) != XXH_OK)
		return -EIO;
	w->at += len;
	return 0;
}

static bool page_is_zero(const char *page)
{
	const uint64_t *w = (const uint64_t *)(const void *)page;

	for (size_t i = 0; i < PAGE_SIZE / sizeof(*w); i += 8)
		if (w[i] | w[i + 1] | w[i + 2] | w[i + 3] | w[i + 4] | w[i + 5] | w[i + 6] | w[i + 7])
			return false;
	return true;
}

/*
 * The first stretch of @buf from @at on: from the first page that isn't zero to where at least GAP_MIN of
 * zeroes begin. False: it is all zeroes.
 */
static bool next_stretch(const char *buf, uint64_t at, uint64_t len, uint64_t *ret_start,
			 uint64_t *ret_end)
{
	uint64_t start = UINT64_MAX, stop = 0;

	for (; at < len; at += PAGE_SIZE) {
		if (!page_is_zero(buf + at)) {
			start = MIN(start, at);
			stop = at + PAGE_SIZE;
		} else if (start != UINT64_MAX && at >= stop + GAP_MIN) {
			break;
		}
	}
	*ret_start = start;
	*ret_end = stop;
	return start != UINT64_MAX;
}

/* Writes [off, off+len), len <= WRITE_MAX, but for long runs of zeroes. */
static int write_block(struct page_writer *w, struct saved_file *f, uint64_t off, uint64_t len)
{
	uint64_t at = 0, a, b;
	int r = read_pages(f, off, w->buf, len);

	while (r == 0 && at < len && next_stretch(w->buf, at, len, &a, &b)) {
		r = write_stretch(w, f, off + a, w->buf + a, b - a);
		at = b;
	}
	return r;
}

/* What of [off, end) the host holds as memory; its holes needn't be at our pages' borders. */
static int write_range(struct page_writer *w, struct saved_file *f, uint64_t off, uint64_t end)
{
	uint64_t a, b;
	int r = 0;

	while (r == 0 && off < end && pages_next_data(f->mf, &f->run, off, end, &a, &b)) {
		for (; a < b && r == 0; a += MIN(b - a, WRITE_MAX))
			r = write_block(w, f, a, MIN(b - a, WRITE_MAX));
		off = b;
	}
	return r;
}

/* ---- inheriting ---- */

/* Number (from 1) of image @id in the list of parents, which grows at need. 0: it may not be used. */
static uint32_t parent_number(struct state_pages *p, const uint8_t *id)
{
	for (unsigned i = 0; i < p->nparents; i++)
		if (!memcmp(p->parents[i], id, PAGES_ID_LEN))
			return i + 1;
	for (unsigned i = 0; i < p->nhave; i++) {
		if (memcmp(p->have[i], id, PAGES_ID_LEN) != 0)
			continue;
		if (p->nparents == PAGES_PARENTS_MAX)
			return 0;
		memcpy(p->parents[p->nparents++], id, PAGES_ID_LEN);
		return p->nparents;
	}
	return 0;
}

/* May everything that @o says be used? */
static bool origin_usable(struct state_pages *p, const struct page_origin *o)
{
	if (!o)
		return false;
	for (uint32_t i = 0; i < o->nids; i++)
		if (!parent_number(p, o->ids[i]))
			return false;
	return true;
}

static int inherit_range(struct state_pages *p, struct saved_file *f, const struct page_origin *o,
			 uint64_t off, uint64_t end, uint64_t *bytes)
{
	if (o->whole) { /* a page file: what is in it is where it is */
		*bytes += end - off;
		return add_extent(p, f, off, end - off, parent_number(p, o->ids[0]), off);
	}
	for (size_t i = 0; i < o->n; i++) {
		const struct page_extent *e = &o->e[i];
		uint64_t a = MAX(off, e->off), b = MIN(end, e->off + e->len);
		int r;

		if (a >= b)
			continue;
		*bytes += b - a;
		r = add_extent(p, f, a, b - a, parent_number(p, o->ids[e->src]),
			       e->src_off + (a - e->off));
		if (r < 0)
			return r;
	}
	return 0;
}

static int write_file(struct page_writer *w, struct saved_file *f, struct pages_written *ret)
{
	const struct page_origin *o = mfile_origin(f->mf);
	size_t n;
	AUTO_FREE struct page_range *ranges = joined(f, &n);
	int r = 0;

	f->inherited = origin_usable(w->p, o);
	for (size_t i = 0; i < n && r == 0; i++) {
		uint64_t end = ranges[i].off + ranges[i].len;

		if (f->inherited)
			r = inherit_range(w->p, f, o, ranges[i].off, end, &ret->inherited);
		else
			r = write_range(w, f, ranges[i].off, end);
	}
	return r;
}

int pages_write(struct state_pages *p, int fd, const uint8_t id[PAGES_ID_LEN],
		struct pages_written *ret)
{
	struct page_writer w = { .p = p, .fd = fd, .sum = XXH3_createState() };
	int r = 0;

	if (!w.sum)
		return -ENOMEM;
	memset(ret, 0, sizeof(*ret));
	memcpy(p->id, id, PAGES_ID_LEN);
	w.buf = kzalloc(WRITE_MAX);
	if (XXH3_64bits_reset(w.sum) != XXH_OK)
		r = -EIO;
	for (uint32_t i = 0; i < p->nfiles && r == 0; i++)
		r = write_file(&w, p->files[i], ret);
	ret->bytes = w.at;
	ret->checksum = XXH3_64bits_digest(w.sum);
	XXH3_freeState(w.sum);
	free(w.buf);
	return r;
}

void pages_published(struct state_pages *p)
{
	for (uint32_t i = 0; i < p->nfiles; i++) {
		struct saved_file *f = p->files[i];
		struct page_origin *o;

		if (f->inherited)
			continue;
		o = kzalloc(sizeof(*o) + f->nextents * sizeof(o->e[0]));
		o->nids = 1;
		memcpy(o->ids[0], p->id, PAGES_ID_LEN);
		o->n = f->nextents;
		if (f->nextents)
			memcpy(o->e, f->extents, f->nextents * sizeof(o->e[0]));
		mfile_set_origin(f->mf, o);
	}
}

/* ---- the table ---- */

void *pages_table(struct state_pages *p, size_t *ret_len)
{
	size_t len = 4 + p->nfiles * PAGES_FILE_LEN + p->nextents * PAGES_EXTENT_LEN;
	void *buf = kzalloc(len);
	struct writer w;

	writer_init(&w, buf, len);
	push_u32(&w, p->nfiles);
	for (uint32_t i = 0; i < p->nfiles; i++) {
		struct saved_file *f = p->files[i];

		push_u32(&w, 0);
		push_u32(&w, (uint32_t)f->nextents);
		for (size_t j = 0; j < f->nextents; j++) {
			push_u64(&w, f->extents[j].off);
			push_u64(&w, f->extents[j].len);
			push_u32(&w, f->extents[j].src);
			push_u64(&w, f->extents[j].src_off);
		}
	}
	*ret_len = w.used;
	return buf;
}

unsigned pages_parents(const struct state_pages *p, const uint8_t (**ret_ids)[PAGES_ID_LEN])
{
	*ret_ids = (const uint8_t(*)[PAGES_ID_LEN])p->parents;
	return p->nparents;
}

static void release_saved(struct state_pages *p)
{
	if (p->lease >= 0)
		close(p->lease); /* the branches have it. host: close */
	HASH_CLEAR(hh, p->by_id);
	for (uint32_t i = 0; i < p->nfiles; i++) {
		struct saved_file *f = p->files[i];

		for (size_t j = 0; j < f->nranges; j++)
			mfile_range_put(f->mf, f->ranges[j].off, f->ranges[j].len);
		mfile_put(f->mf);
		free(f->ranges);
		free(f->extents);
		free(f);
	}
	free(p->files);
}

void pages_release(struct state_pages *p)
{
	if (!p)
		return;
	if (p->saving)
		release_saved(p);
	else
		pages_release_loaded(p);
	free(p);
}
