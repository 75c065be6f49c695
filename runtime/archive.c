// SPDX-License-Identifier: Apache-2.0
/* See archive.h. */
#include "runtime/archive.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/alloc.h"
#include "base/compiler.h"

#define LEVEL 3
#define BLOCK 512
#define TAR_END (2 * BLOCK)
#define OCTAL_MAX 077777777777ULL /* 11 digits */

/* A header of tar: ustar, with GNU's binary form for sizes that 11 octal digits can't say. */
struct tar_header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, linkname[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};
static_assert(sizeof(struct tar_header) == BLOCK, "a block");

static unsigned tar_sum(const struct tar_header *h)
{
	const unsigned char *p = (const unsigned char *)h;
	unsigned sum = 0;

	for (size_t i = 0; i < sizeof(*h); i++) {
		bool in_sum = i >= offsetof(struct tar_header, sum) && i < offsetof(struct tar_header, type);

		sum += in_sum ? ' ' : p[i];
	}
	return sum;
}

/* ---- writing ---- */

struct archive_out {
	ZSTD_CCtx *z;
	int fd, error;
	struct sha256 sha;
	uint64_t left; /* of the file */
	uint64_t pad;  /* behind it */
	uint64_t bytes;
	char *buf;
	size_t size;
};

struct archive_out *archive_create(int fd)
{
	struct archive_out *o = kzalloc(sizeof(*o));

	o->fd = fd;
	o->z = ZSTD_createCCtx();
	o->size = ZSTD_CStreamOutSize();
	o->buf = kzalloc(o->size);
	sha256_init(&o->sha);
	if (!o->z || ZSTD_isError(ZSTD_CCtx_setParameter(o->z, ZSTD_c_checksumFlag, 1)) ||
	    ZSTD_isError(ZSTD_CCtx_setParameter(o->z, ZSTD_c_compressionLevel, LEVEL)))
		o->error = -ENOMEM;
	return o;
}

static void put(struct archive_out *o, size_t n)
{
	sha256_update(&o->sha, o->buf, n);
	o->bytes += n;
	for (size_t at = 0; at < n && !o->error;) {
		ssize_t k = write(o->fd, o->buf + at, n - at);

		if (k > 0)
			at += (size_t)k;
		else if (k < 0 && errno != EINTR)
			o->error = -errno;
	}
}

static void compress(struct archive_out *o, const void *buf, size_t n, ZSTD_EndDirective end)
{
	ZSTD_inBuffer in = { buf, n, 0 };
	size_t more = 1;

	while (!o->error && (in.pos < in.size || (end == ZSTD_e_end && more))) {
		ZSTD_outBuffer out = { o->buf, o->size, 0 };

		more = ZSTD_compressStream2(o->z, &out, &in, end);
		if (ZSTD_isError(more))
			o->error = -ENOMEM;
		else
			put(o, out.pos);
	}
}

/* Zeroes that fill the last file's block. */
static void end_file(struct archive_out *o)
{
	static const char zero[BLOCK];

	if (o->left && !o->error)
		o->error = -EIO; /* it was to be longer */
	compress(o, zero, o->pad, ZSTD_e_continue);
	o->pad = 0;
}

void archive_file(struct archive_out *o, const char *name, uint64_t size, int64_t mtime)
{
	struct tar_header h = { .mode = "0000600", .uid = "0000000", .gid = "0000000", .type = '0',
				.magic = "ustar", .version = { '0', '0' } };

	end_file(o);
	snprintf(h.name, sizeof(h.name), "%s", name);
	snprintf(h.mtime, sizeof(h.mtime), "%011llo", (unsigned long long)mtime & OCTAL_MAX);
	if (size <= OCTAL_MAX) {
		snprintf(h.size, sizeof(h.size), "%011llo", (unsigned long long)size);
	} else {
		h.size[0] = (char)0x80;
		for (int i = 0; i < 8; i++)
			h.size[4 + i] = (char)(size >> (56 - 8 * i));
	}
	snprintf(h.sum, sizeof(h.sum), "%06o", tar_sum(&h) & 0777777);
	h.sum[7] = ' ';
	compress(o, &h, sizeof(h), ZSTD_e_continue);
	o->left = size;
	o->pad = (BLOCK - size % BLOCK) % BLOCK;
}

void archive_data(struct archive_out *o, const void *buf, size_t n)
{
	if (n > o->left && !o->error)
		o->error = -EIO;
	o->left -= n;
	compress(o, buf, n, ZSTD_e_continue);
}

int archive_finish(struct archive_out *o, char digest[SHA256_HEX_LEN + 1], uint64_t *ret_bytes)
{
	static const char zero[TAR_END];
	int r;

	end_file(o);
	compress(o, zero, sizeof(zero), ZSTD_e_end);
	sha256_hex(&o->sha, digest);
	*ret_bytes = o->bytes;
	r = o->error;
	ZSTD_freeCCtx(o->z);
	free(o->buf);
	free(o);
	return r;
}

/* ---- reading ---- */

struct archive_in {
	ZSTD_DCtx *z;
	int fd;
	bool frame_over;
	struct sha256 sha;
	uint64_t left, pad; /* of the file */
	char *buf;
	size_t size, at, have;
};

struct archive_in *archive_open(int fd)
{
	struct archive_in *a = kzalloc(sizeof(*a));

	a->fd = fd;
	a->z = ZSTD_createDCtx();
	a->size = ZSTD_DStreamInSize();
	a->buf = kzalloc(a->size);
	sha256_init(&a->sha);
	return a;
}

void archive_close(struct archive_in *a)
{
	if (!a)
		return;
	ZSTD_freeDCtx(a->z);
	free(a->buf);
	free(a);
}

/* More compressed bytes; false at the end or on an error, with *ret_why for that. */
static bool fill(struct archive_in *a, char **ret_why)
{
	ssize_t n;

	do
		n = read(a->fd, a->buf, a->size);
	while (n < 0 && errno == EINTR);
	a->at = 0;
	a->have = n > 0 ? (size_t)n : 0;
	if (n < 0)
		*ret_why = kasprintf("cannot read it: %s", strerror(errno));
	sha256_update(&a->sha, a->buf, a->have);
	return n > 0;
}

static int decompress(struct archive_in *a, void *buf, size_t n, char **ret_why)
{
	ZSTD_outBuffer out = { buf, n, 0 };

	while (out.pos < out.size) {
		ZSTD_inBuffer in;
		size_t r;

		if (a->frame_over || (a->at == a->have && !fill(a, ret_why))) {
			if (!*ret_why)
				*ret_why = kstrdup("it is cut short");
			return -1;
		}
		in = (ZSTD_inBuffer){ a->buf, a->have, a->at };
		r = ZSTD_decompressStream(a->z, &out, &in);
		a->at = in.pos;
		if (ZSTD_isError(r)) {
			*ret_why = kasprintf("it is damaged, or not an exported image: %s", ZSTD_getErrorName(r));
			return -1;
		}
		a->frame_over = r == 0;
	}
	return 0;
}

static int skip(struct archive_in *a, char **ret_why)
{
	char pad[BLOCK];
	int r = decompress(a, pad, a->pad, ret_why);

	a->pad = 0;
	return r;
}

/* False when it is no number. */
static bool parse_size(const struct tar_header *h, uint64_t *ret)
{
	*ret = 0;
	if ((unsigned char)h->size[0] == 0x80) {
		for (int i = 4; i < 12; i++)
			*ret = *ret << 8 | (unsigned char)h->size[i];
		return *ret <= INT64_MAX;
	}
	for (int i = 0; i < 11; i++) {
		if (h->size[i] < '0' || h->size[i] > '7')
			return false;
		*ret = *ret << 3 | (uint64_t)(h->size[i] - '0');
	}
	return true;
}

int archive_next(struct archive_in *a, const char *name, uint64_t *ret_size, char **ret_why)
{
	struct tar_header h;
	char sum[8];

	if (skip(a, ret_why) || decompress(a, &h, sizeof(h), ret_why))
		return -1;
	snprintf(sum, sizeof(sum), "%06o", tar_sum(&h) & 0777777);
	if (strncmp(h.sum, sum, 6) != 0 || memcmp(h.magic, "ustar", 6) != 0 || h.type != '0' ||
	    strncmp(h.name, name, sizeof(h.name)) != 0 || !parse_size(&h, &a->left)) {
		*ret_why = kasprintf("it is not an exported image: no file %s where one must be", name);
		return -1;
	}
	a->pad = (BLOCK - a->left % BLOCK) % BLOCK;
	*ret_size = a->left;
	return 0;
}

int archive_read(struct archive_in *a, void *buf, size_t n, char **ret_why)
{
	if (n > a->left) {
		*ret_why = kstrdup("it is cut short");
		return -1;
	}
	a->left -= n;
	return decompress(a, buf, n, ret_why);
}

int archive_end(struct archive_in *a, char digest[SHA256_HEX_LEN + 1], char **ret_why)
{
	char zero[TAR_END], c;
	ZSTD_outBuffer none = { &c, 0, 0 };

	if (skip(a, ret_why) || decompress(a, zero, sizeof(zero), ret_why))
		return -1;
	/* The frame's checksum comes behind its last byte. */
	while (!a->frame_over && (a->at < a->have || fill(a, ret_why))) {
		ZSTD_inBuffer in = { a->buf, a->have, a->at };
		size_t r = ZSTD_decompressStream(a->z, &none, &in);

		if (ZSTD_isError(r) || (r != 0 && in.pos == a->at))
			break;
		a->at = in.pos;
		a->frame_over = r == 0;
	}
	if (a->frame_over && a->at == a->have && !fill(a, ret_why) && !*ret_why) {
		sha256_hex(&a->sha, digest);
		return 0;
	}
	if (!*ret_why)
		*ret_why = kstrdup("its end is damaged");
	return -1;
}
