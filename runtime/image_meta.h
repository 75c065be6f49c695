// SPDX-License-Identifier: Apache-2.0
/*
 * The section of an image that says what it is: a JSON object, in docs/image-format.md. Written by the sentry
 * that saves; read by the one that loads and by the CLI.
 */
#ifndef RUNTIME_IMAGE_META_H
#define RUNTIME_IMAGE_META_H

#include <jansson.h>

#include "base/cleanup.h"
#include "sentry/state/image.h"
#include "sentry/state/pages.h"
#include "sentry/state/state.h"

struct image_meta {
	json_t *json;            /* reference */
	enum state_purpose purpose;
	unsigned nparents;
	uint8_t parents[PAGES_PARENTS_MAX][IMAGE_ID_LEN];
	uint64_t page_bytes, page_sum; /* of the page file */
};

struct boot;

/* What a sentry booted as @boot says of an image that it is making. New reference. */
json_t *image_meta_make(const struct boot *boot, enum state_purpose purpose, const struct state_pages *p,
			const struct pages_written *w, json_t *extra);
/* NULL with *ret_why (heap): it isn't one. */
struct image_meta *image_meta_parse(const struct image_section *s, char **ret_why);
void image_meta_free(struct image_meta *m);
/* Is @v a string of plain ASCII? What messages quote must be, so that an image can't write to anybody's terminal. */
bool image_meta_plain(const json_t *v);
DEFINE_AUTO(struct image_meta, image_meta_free)
/* Can a sandbox that is booted with @b go on from it, on this machine? 0, or -1 with *ret_why (heap). */
int image_meta_check(const struct image_meta *m, const struct boot *b, char **ret_why);

/* Files of the host are found again below the same mount points: which attach point of @b each of the image's is
 * (heap), or NULL with *ret_why when @b lacks one. */
unsigned *image_meta_attaches(const struct image_meta *m, const struct boot *b, unsigned *ret_n, char **ret_why);

/* 32 hexadecimal digits and NUL. */
void image_id_hex(const uint8_t id[IMAGE_ID_LEN], char buf[2 * IMAGE_ID_LEN + 1]);
/* False: it is none. */
bool image_id_parse(const char *hex, uint8_t id[IMAGE_ID_LEN]);

#endif
