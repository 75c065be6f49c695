// SPDX-License-Identifier: Apache-2.0
/*
 * Images on disk, the CLI's side: a directory (mode 0700) with the files `state` and `pages` (mode 0600).
 *
 * An image is made in a directory of another name beside its place, synced, and moved there in one step:
 * whatever happens, a directory with its name is a whole image.
 *
 * An image may refer to pages of earlier ones (its parents, by number). They are looked for beside it: a
 * directory named by the number, else where extra.parents of its description says.
 */
#ifndef RUNTIME_IMAGE_DIR_H
#define RUNTIME_IMAGE_DIR_H

#include <jansson.h>
#include <stdbool.h>

#include "runtime/image_meta.h"
#include "runtime/launch.h"

/* ---- making ---- */

struct image_draft {
	char *path, *tmp;   /* heap */
	int parentfd, dirfd;
	int state, pages;   /* to be written; pages -1 once it was published */
};

/* Opens the files of an image that is going to be at @path, where nothing, an empty directory, or another image
 * (which is replaced) may be. 0, or -1 with *ret_why (heap). */
int image_draft_open(struct image_draft *d, const char *path, char **ret_why);
/* Syncs it and puts it in its place. 0, or -1 with *ret_why and nothing left of it. */
int image_draft_publish(struct image_draft *d, char **ret_why);
/* Removes what wasn't published, frees. */
void image_draft_close(struct image_draft *d);

/* ---- using ---- */

struct image_source {
	struct restore_source from; /* for sandbox_launch() */
	struct image_meta *meta;
	uint8_t id[IMAGE_ID_LEN];
};

/* Opens image @path and its parents' page files and checks all that can be checked without loading it. NULL with
 * *ret_why (heap). @verify: reads the page file, too, and compares its checksum. */
struct image_source *image_open(const char *path, bool verify, char **ret_why);
void image_close(struct image_source *s);
DEFINE_AUTO(struct image_source, image_close)

/* The same of a live branch: takes over the file of its state and its memory files (heap array). */
struct image_source *image_of_branch(int state, int *fds, unsigned nfds, char **ret_why);

/* ---- saving a running sandbox: save.c ---- */

struct sandbox_save {
	const char *path;              /* where the image goes */
	bool by_number;                /* below that directory, named by its number */
	const char *const *parents;    /* images that it may refer to */
	unsigned nparents;
	json_t *extra;                 /* for extra.* of its description; borrowed, or NULL */
	bool stay;                     /* the sandbox stands still afterwards, until `sock` is closed */
	/* out */
	json_t *report;                /* new reference: control_save.c's answer */
	int sock;                      /* with stay; else -1 */
};

/* Makes an image of @dir's sandbox. 0, or -1 with *ret_why (heap), the sandbox running on, and nothing
 * left of the image. */
int sandbox_save(struct statedir *dir, struct sandbox_save *s, char **ret_why);

/* Branches a running sandbox: what any number of new ones can be launched from, or NULL with *ret_why (heap). */
struct image_source *sandbox_branch(struct statedir *dir, char **ret_why);

#endif
