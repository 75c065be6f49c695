// SPDX-License-Identifier: Apache-2.0
/*
 * The file `state`, all little endian:
 *
 *   8  magic "HOLDFAST"
 *   4  version of this layout
 *   4  number of sections
 *  16  number of the image
 *   8  length of the file
 *   8  XXH3 of the header (this field as zero) and the table of sections
 *      for each section: u32 kind, u32 zero, u64 offset, u64 length, u64 XXH3 of its bytes
 *      sections, each at a multiple of 8, in the order of the table, without gaps but for zeroes up to that
 *
 * Digest before parse: no byte of a section is looked at before its checksum was found right.
 */
#include "sentry/state/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/cursor.h"
#include "base/err.h"

#define MAGIC "HOLDFAST"
#define HEAD_LEN 48
#define SECTION_LEN 32
#define SUM_AT 40

static size_t align8(size_t n)
{
	return (n + 7) & ~(size_t)7;
}

/* ---- writing ---- */

static int write_all(int fd, const char *buf, size_t len)
{
	size_t at = 0;

	while (at < len) {
		ssize_t n = pwrite(fd, buf + at, len - at, (off_t)at); /* host: pwrite64 */

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += (size_t)n;
	}
	return 0;
}

int image_write(int fd, const struct image *img)
{
	unsigned n = IMAGE_SECTION_END - 1;
	size_t at = HEAD_LEN + n * SECTION_LEN, len = at;
	AUTO_FREE uint8_t *buf = NULL;
	struct writer w;
	uint64_t sum;

	for (unsigned k = 1; k < IMAGE_SECTION_END; k++)
		len = align8(len + img->section[k].len);
	if (len > IMAGE_STATE_MAX)
		return -EFBIG;
	buf = kzalloc(len);
	writer_init(&w, buf, len);
	push_bytes(&w, MAGIC, 8);
	push_u32(&w, IMAGE_VERSION);
	push_u32(&w, n);
	push_bytes(&w, img->id, IMAGE_ID_LEN);
	push_u64(&w, len);
	push_u64(&w, 0);
	for (unsigned k = 1; k < IMAGE_SECTION_END; k++) {
		const struct image_section *s = &img->section[k];

		push_u32(&w, k);
		push_u32(&w, 0);
		push_u64(&w, at);
		push_u64(&w, s->len);
		push_u64(&w, XXH3_64bits(s->buf, s->len));
		memcpy(buf + at, s->buf, s->len);
		at = align8(at + s->len);
	}
	sum = XXH3_64bits(buf, HEAD_LEN + n * SECTION_LEN);
	memcpy(buf + SUM_AT, &sum, sizeof(sum));
	return write_all(fd, (const char *)buf, len);
}

/* ---- reading ---- */

static int refuse(char **ret_why, const char *why)
{
	*ret_why = kstrdup(why);
	return -EINVAL;
}

/* The checksum over header and table, with its own field taken as zero. */
static bool head_sum_ok(const uint8_t *buf, size_t len, uint64_t sum)
{
	AUTO_FREE uint8_t *copy = kzalloc(len);

	memcpy(copy, buf, len);
	memset(copy + SUM_AT, 0, sizeof(sum));
	return XXH3_64bits(copy, len) == sum;
}

static bool all_zero(const uint8_t *p, size_t n)
{
	while (n && *p == 0) {
		p++;
		n--;
	}
	return n == 0;
}

static int parse_sections(struct cursor *c, const uint8_t *buf, size_t len, unsigned n,
			  struct image *ret, char **ret_why)
{
	size_t end = HEAD_LEN + n * SECTION_LEN;

	for (unsigned i = 0; i < n; i++) {
		uint32_t kind = pull_u32(c), zero = pull_u32(c);
		uint64_t off = pull_u64(c), size = pull_u64(c), sum = pull_u64(c);

		if (zero || off != end || size > len - off)
			return refuse(ret_why, "its table of sections is damaged");
		end = align8((size_t)(off + size));
		if (end > len || !all_zero(buf + off + size, end - (size_t)(off + size)))
			return refuse(ret_why, "its table of sections is damaged");
		if (kind == 0 || kind >= IMAGE_SECTION_END || ret->section[kind].buf)
			return refuse(ret_why, "it has a section that this version doesn't know");
		if (XXH3_64bits(buf + off, size) != sum)
			return refuse(ret_why, "a checksum is wrong: it is damaged");
		ret->section[kind].buf = buf + off;
		ret->section[kind].len = (size_t)size;
	}
	if (end != len)
		return refuse(ret_why, "it has bytes that belong to nothing");
	return 0;
}

int image_parse(const void *buf, size_t len, struct image *ret, char **ret_why)
{
	uint32_t version, n;
	uint64_t size, sum;
	const void *magic, *id;
	struct cursor c;
	int r;

	memset(ret, 0, sizeof(*ret));
	cursor_init(&c, buf, len);
	magic = pull_bytes(&c, 8);
	if (!magic || memcmp(magic, MAGIC, 8) != 0)
		return refuse(ret_why, "it is not the state of a sandbox");
	version = pull_u32(&c);
	n = pull_u32(&c);
	id = pull_bytes(&c, IMAGE_ID_LEN);
	size = pull_u64(&c);
	sum = pull_u64(&c);
	if (!cursor_ok(&c))
		return refuse(ret_why, "it is cut short");
	if (version != IMAGE_VERSION) {
		*ret_why = kasprintf("it has version %u of the format; this holdfast reads version %u",
				     version, IMAGE_VERSION);
		return -EINVAL;
	}
	if (size != len)
		return refuse(ret_why, "it is cut short, or has grown");
	if (n >= IMAGE_SECTION_END || c.left < n * SECTION_LEN ||
	    !head_sum_ok(buf, HEAD_LEN + n * SECTION_LEN, sum))
		return refuse(ret_why, "a checksum is wrong: it is damaged");
	memcpy(ret->id, id, IMAGE_ID_LEN);
	r = parse_sections(&c, buf, len, n, ret, ret_why);
	if (r < 0)
		return r;
	for (unsigned k = 1; k < IMAGE_SECTION_END; k++)
		if (!ret->section[k].buf)
			return refuse(ret_why, "a section is missing");
	return 0;
}

void *image_slurp(int fd, size_t *ret_len)
{
	AUTO_FREE char *buf = NULL;
	struct stat st;
	size_t at = 0, len;

	if (fstat(fd, &st)) /* host: fstat */
		return err_ptr(-errno);
	if (!S_ISREG(st.st_mode) || st.st_size < 0 || (uint64_t)st.st_size > IMAGE_STATE_MAX)
		return err_ptr(-EFBIG);
	len = (size_t)st.st_size;
	buf = kmalloc_guest(len ? len : 1);
	if (!buf)
		return err_ptr(-ENOMEM);
	while (at < len) {
		ssize_t n = pread(fd, buf + at, len - at, (off_t)at); /* host: pread64 */

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_ptr(n < 0 ? -errno : -EIO);
		at += (size_t)n;
	}
	*ret_len = len;
	return steal_ptr(&buf);
}
