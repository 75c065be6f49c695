// SPDX-License-Identifier: Apache-2.0
/* Images as one stream that needs no other: what `export` writes and `import` reads. */
#ifndef RUNTIME_IMAGE_FLATTEN_H
#define RUNTIME_IMAGE_FLATTEN_H

#include "base/sha256.h"
#include "runtime/image_dir.h"

/* Writes image @src with what it needs of its parents to @fd. 0 with its digest and length, or -1 with *ret_why
 * (heap). */
int image_export(const struct image_source *src, int fd, char digest[SHA256_HEX_LEN + 1], uint64_t *ret_bytes,
		 char **ret_why);

/*
 * Reads such a stream from @fd and makes an image of it in directory @dir, named by its number (in @number,
 * heap), if it is whole, this machine can run it, and it has the digest @want (NULL: any). Its description in
 * *ret_meta (new reference). 0, or -1 with *ret_why and nothing left.
 */
int image_import(int fd, const char *want, const char *dir, char **number, json_t **ret_meta, char **ret_why);

#endif
