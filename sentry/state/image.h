// SPDX-License-Identifier: Apache-2.0
/*
 * The file `state` of an image: a header and sections, each with a checksum. docs/image-format.md is the
 * reference; nothing here interprets what is in a section.
 */
#ifndef SENTRY_STATE_IMAGE_H
#define SENTRY_STATE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define IMAGE_ID_LEN 16
#define IMAGE_VERSION 1U
#define IMAGE_STATE_MAX (1ULL << 30) /* bytes of the file */

enum image_section_kind {
	IMAGE_META = 1, /* JSON */
	IMAGE_PAGES,    /* table of memory (pages.c) */
	IMAGE_OBJECTS,  /* state.c */
	IMAGE_SECTION_END
};

struct image_section {
	const void *buf;
	size_t len;
};

struct image {
	uint8_t id[IMAGE_ID_LEN];
	struct image_section section[IMAGE_SECTION_END]; /* by kind */
};

/* Writes @img to @fd from its beginning. 0 or -errno. Does not sync. */
int __must_check image_write(int fd, const struct image *img);
/* Checks everything that needs no knowledge of the sections. The sections point into @buf. 0, or -EINVAL with
 * *ret_why (heap). */
int image_parse(const void *buf, size_t len, struct image *ret, char **ret_why);
/* Reads the whole of @fd (at most IMAGE_STATE_MAX): heap, or err_ptr. */
void *image_slurp(int fd, size_t *ret_len);

/* ---- cpu.c: what the programs in an image may have found this CPU to have ---- */

#define CPU_NAMES_MAX 4096
/* Names of this CPU's features that programs may use, separated by spaces; the order is fixed. */
void cpu_features(char *buf, size_t size);
/* Those of @need that this CPU lacks, into @buf; number of them. */
unsigned cpu_lacking(const char *need, char *buf, size_t size);

#endif
