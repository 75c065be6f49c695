// SPDX-License-Identifier: Apache-2.0
/*
 * The container of an exported image: a tar file (ustar) in one zstd frame with a checksum, so that `zstd -dc |
 * tar t` shows what it is. docs/image-format.md says what is in it.
 */
#ifndef RUNTIME_ARCHIVE_H
#define RUNTIME_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/sha256.h"

/* ---- writing, to a file or pipe. Errors stick: archive_finish() tells. ---- */

struct archive_out;

struct archive_out *archive_create(int fd);
/* The next file, of exactly @size bytes. */
void archive_file(struct archive_out *o, const char *name, uint64_t size, int64_t mtime);
void archive_data(struct archive_out *o, const void *buf, size_t n);
/* 0 or -errno; the digest and number of bytes written. Frees. */
int archive_finish(struct archive_out *o, char digest[SHA256_HEX_LEN + 1], uint64_t *ret_bytes);

/* ---- reading. All of it is hostile. ---- */

struct archive_in;

struct archive_in *archive_open(int fd);
/* The next file must be called @name: its size. 0, or -1 with *ret_why (heap). */
int archive_next(struct archive_in *a, const char *name, uint64_t *ret_size, char **ret_why);
/* @n bytes of it (no more than are left). 0, or -1 with *ret_why. */
int archive_read(struct archive_in *a, void *buf, size_t n, char **ret_why);
/* There must be nothing more, and the checksum right. @digest: of what was read. 0, or -1 with *ret_why. */
int archive_end(struct archive_in *a, char digest[SHA256_HEX_LEN + 1], char **ret_why);
void archive_close(struct archive_in *a);
DEFINE_AUTO(struct archive_in, archive_close)

#endif
