// SPDX-License-Identifier: Apache-2.0
/*
 * Writing an image as one stream: see image_flatten.h. Pages of the image and its parents become one dense page
 * file; ranges that several places refer to are written once. The result is an image of its own with a number
 * of its own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/cursor.h"
#include "base/err.h"
#include "runtime/archive.h"
#include "runtime/image_flatten.h"
#include "sentry/kernel/kernel.h"

#define COPY_BLOCK (1u << 20)

/* Bytes [off, end) of page file src, which are at `flat` of the new one. */
struct piece {
	uint32_t src;
	uint64_t off, end, flat;
};

struct flatten {
	const struct image_source *src;
	void *state; /* heap */
	struct image img;
	struct piece *v; /* sorted, don't touch each other */
	size_t n;
	uint64_t bytes;
	uint8_t *table; /* heap: the new section */
	char *why;
};

/* ---- the table of pages (docs/image-format.md) ---- */

static uint64_t get(const uint8_t *p, unsigned n)
{
	uint64_t v = 0;

	while (n--)
		v = v << 8 | p[n];
	return v;
}

static void set(uint8_t *p, uint64_t v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

#define EXTENT 28 /* u64 off, u64 len, u32 src, u64 src_off */

/* Calls @fn for each extent of the (new) table; false when the table is malformed. */
static bool each_extent(struct flatten *f, bool (*fn)(struct flatten *f, uint8_t *e))
{
	size_t len = f->img.section[IMAGE_PAGES].len, at = 4;
	uint64_t files = len >= 4 ? get(f->table, 4) : UINT64_MAX;

	for (; files && at + 8 <= len; files--) {
		uint64_t n = get(f->table + at + 4, 4);

		at += 8;
		if (n > (len - at) / EXTENT)
			return false;
		for (; n; n--, at += EXTENT)
			if (!fn(f, f->table + at))
				return false;
	}
	return !files && at == len;
}

static bool collect(struct flatten *f, uint8_t *e)
{
	struct piece p = { .src = (uint32_t)get(e + 16, 4), .off = get(e + 20, 8) };
	uint64_t len = get(e + 8, 8);

	if (p.src >= f->src->from.nfds || __builtin_add_overflow(p.off, len, &p.end) || p.end > INT64_MAX)
		return false;
	if ((f->n & (f->n - 1)) == 0)
		f->v = krealloc_array(f->v, f->n ? f->n * 2 : 1, sizeof(*f->v));
	f->v[f->n++] = p;
	return true;
}

static int by_place(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->src != y->src)
		return x->src < y->src ? -1 : 1;
	return x->off < y->off ? -1 : x->off > y->off;
}

/* Makes pieces that overlap or touch one, and gives each its place. */
static void merge(struct flatten *f)
{
	size_t n = 0;

	if (f->n)
		qsort(f->v, f->n, sizeof(*f->v), by_place);
	for (size_t i = 0; i < f->n; i++) {
		if (n && f->v[n - 1].src == f->v[i].src && f->v[i].off <= f->v[n - 1].end)
			f->v[n - 1].end = MAX(f->v[n - 1].end, f->v[i].end);
		else
			f->v[n++] = f->v[i];
	}
	f->n = n;
	for (size_t i = 0; i < n; i++) {
		f->v[i].flat = f->bytes;
		f->bytes += f->v[i].end - f->v[i].off;
	}
}

static bool move(struct flatten *f, uint8_t *e)
{
	struct piece key = { .src = (uint32_t)get(e + 16, 4), .off = get(e + 20, 8) };
	size_t lo = 0, hi = f->n;

	while (hi - lo > 1) { /* the last piece that begins no later */
		size_t mid = (lo + hi) / 2;

		if (by_place(&f->v[mid], &key) <= 0)
			lo = mid;
		else
			hi = mid;
	}
	set(e + 16, 0, 4);
	set(e + 20, f->v[lo].flat + (key.off - f->v[lo].off), 8);
	return true;
}

/* ---- the stream ---- */

static void fail(struct flatten *f, const char *what, int err)
{
	if (!f->why)
		f->why = err ? kasprintf("%s: %s", what, strerror(err)) : kstrdup(what);
}

static void copy_pages(struct flatten *f, struct archive_out *o, XXH3_state_t *sum)
{
	AUTO_FREE char *buf = kzalloc(COPY_BLOCK);

	for (size_t i = 0; i < f->n && !f->why; i++) {
		for (uint64_t at = f->v[i].off; at < f->v[i].end && !f->why;) {
			size_t want = (size_t)MIN(f->v[i].end - at, (uint64_t)COPY_BLOCK);
			ssize_t n = pread(f->src->from.fds[f->v[i].src], buf, want, (off_t)at);

			if (n <= 0) {
				fail(f, "cannot read its pages", n ? errno : 0);
				return;
			}
			(void)XXH3_64bits_update(sum, buf, (size_t)n); /* fails for NULL only */
			archive_data(o, buf, (size_t)n);
			at += (uint64_t)n;
		}
	}
}

/* Its description as an image without parents. New reference. */
static json_t *new_meta(const struct flatten *f, uint64_t checksum)
{
	json_t *meta = json_deep_copy(f->src->meta->json);
	json_t *extra = json_object_get(meta, "extra");
	char sum[17];

	snprintf(sum, sizeof(sum), "%016llx", (unsigned long long)checksum);
	json_object_set_new(meta, "parents", json_array());
	json_object_set_new(meta, "pages",
			    json_pack("{s:I, s:s}", "bytes", (json_int_t)f->bytes, "xxh3", sum));
	json_object_del(extra, "parents");
	json_object_del(extra, "previous");
	return meta;
}

static void write_state(struct flatten *f, struct archive_out *o, uint64_t checksum, json_int_t mtime)
{
	AUTO_CLOSE int fd = memfd_create("state", MFD_CLOEXEC);
	json_t *meta = new_meta(f, checksum);
	AUTO_FREE char *text = json_dumps(meta, JSON_COMPACT);
	struct image img = f->img;
	AUTO_FREE void *buf = NULL;
	size_t len = 0;
	void *slurped;
	int r;

	json_decref(meta);
	kernel_random(img.id, sizeof(img.id));
	img.section[IMAGE_META] = (struct image_section){ text, strlen(text) };
	img.section[IMAGE_PAGES].buf = f->table;
	r = fd < 0 ? -errno : image_write(fd, &img);
	slurped = r ? err_ptr(r) : image_slurp(fd, &len);
	if (is_err(slurped)) {
		fail(f, "cannot make its state", (int)-ptr_err(slurped));
		return;
	}
	buf = slurped;
	archive_file(o, "state", len, mtime);
	archive_data(o, buf, len);
}

/* What a reader wants to know before it takes all the rest. */
static void write_about(const struct flatten *f, struct archive_out *o, json_int_t mtime)
{
	const json_t *m = f->src->meta->json;
	json_t *about = json_pack("{s:i, s:O*, s:O*, s:O*, s:O*}", "export", 1, "holdfast",
				  json_object_get(m, "holdfast"), "container", json_object_get(m, "container"),
				  "time", json_object_get(m, "time"), "cpu", json_object_get(m, "cpu"));
	AUTO_FREE char *text = json_dumps(about, JSON_COMPACT);

	json_decref(about);
	archive_file(o, "about.json", strlen(text), mtime);
	archive_data(o, text, strlen(text));
}

static void stream(struct flatten *f, struct archive_out *o)
{
	json_int_t mtime = json_integer_value(json_object_get(f->src->meta->json, "time"));
	XXH3_state_t *sum = XXH3_createState();

	if (!sum || XXH3_64bits_reset(sum) != XXH_OK) {
		fail(f, "no memory", 0);
		return;
	}
	write_about(f, o, mtime);
	archive_file(o, "pages", f->bytes, mtime);
	copy_pages(f, o, sum);
	if (!f->why)
		write_state(f, o, XXH3_64bits_digest(sum), mtime);
	XXH3_freeState(sum);
}

static bool prepare(struct flatten *f)
{
	size_t len = 0;
	void *buf = image_slurp(f->src->from.state, &len);

	if (is_err(buf)) {
		fail(f, "cannot read the image", (int)-ptr_err(buf));
		return false;
	}
	f->state = buf;
	if (image_parse(buf, len, &f->img, &f->why))
		return false;
	f->table = kzalloc(f->img.section[IMAGE_PAGES].len + 4);
	memcpy(f->table, f->img.section[IMAGE_PAGES].buf, f->img.section[IMAGE_PAGES].len);
	if (!each_extent(f, collect)) {
		fail(f, "its table of pages is damaged", 0);
		return false;
	}
	merge(f);
	return each_extent(f, move);
}

int image_export(const struct image_source *src, int fd, char digest[SHA256_HEX_LEN + 1], uint64_t *ret_bytes,
		 char **ret_why)
{
	struct flatten f = { .src = src };

	if (prepare(&f)) {
		struct archive_out *o = archive_create(fd);
		int r;

		stream(&f, o);
		r = archive_finish(o, digest, ret_bytes);
		if (r)
			fail(&f, "cannot write it", -r);
	}
	free(f.state);
	free(f.table);
	free(f.v);
	*ret_why = f.why;
	return f.why ? -1 : 0;
}
