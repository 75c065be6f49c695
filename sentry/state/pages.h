// SPDX-License-Identifier: Apache-2.0
/*
 * Memory in an image. A checkpoint is a memory file whose owner has left: the fields() of an address
 * space, a shared segment or a tmpfs file name ranges of memory files, and freeze them on the way, so that
 * whoever writes to them later copies first. The bytes are written out once the sandbox runs again.
 *
 * Loading gives the pieces of a range that hold data, as ranges of a read-only memory file (the page file
 * of an image, or in a live branch the frozen file of the other side) to be used copy-on-write. What lies
 * between the pieces is zeroes.
 *
 * Three stages of saving: state_pages_out() by types while the sandbox is frozen; pages_write() (image) or
 * pages_share() (branch) by one service thread afterwards; pages_release().
 *
 * Context: a struct state_pages belongs to one thread.
 */
#ifndef SENTRY_STATE_PAGES_H
#define SENTRY_STATE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct cursor;
struct mfile;
struct state;
struct state_pages;

/* ---- for fields() ---- */

/* Saving: [off, off+len) of @mf is part of the image. A reference on each page is taken until the pages are
 * written. Nobody may write to the range from now on. */
void state_pages_out(struct state *s, struct mfile *mf, uint64_t off, uint64_t len);
/* One piece: [at, at+len) of the range, to be found at @off of @mf (borrowed, read-only). */
typedef void (*state_piece_fn)(void *arg, uint64_t at, uint64_t len, struct mfile *mf, uint64_t off);
/* Loading: calls @fn for each piece, in order. @want: the length that the range must have. */
void state_pages_in(struct state *s, uint64_t want, state_piece_fn fn, void *arg);

/* ---- for whoever saves ---- */

#define PAGES_ID_LEN 16          /* bytes of the number of an image */
#define PAGES_PARENTS_MAX 256    /* images that one image may refer to */
#define PAGES_FILES_MAX 65536    /* memory files of an image */
#define PAGES_EXTENTS_MAX (4U << 20)

struct pages_written {
	uint64_t bytes;      /* in this image's page file */
	uint64_t inherited;  /* bytes that are in the page files of earlier images */
	uint64_t checksum;   /* XXH3 of the page file */
};

struct state_pages *pages_saver(void);
/* Pages that are in image @id, which this process has written or was loaded from, need not be written again:
 * the caller vouches that it still exists. */
void pages_may_inherit(struct state_pages *p, const uint8_t id[PAGES_ID_LEN]);
/* Writes the pages to @fd, from its beginning, dense. 0 or -errno (-ENOSPC: no half file is of any use, the
 * caller removes it). @id: of the image that is being made. */
int __must_check pages_write(struct state_pages *p, int fd, const uint8_t id[PAGES_ID_LEN],
			     struct pages_written *ret);
/* After that: the image is complete; a later incremental one may refer to its pages. */
void pages_published(struct state_pages *p);
/* Instead of writing: the memory files themselves are handed to a branch, as read-only descriptors in the
 * order of the table, and behind these what tells when the branch has ended (all borrowed until pages_release()).
 * Pages of these files are given back to the host only then. The number of descriptors. */
unsigned pages_share(struct state_pages *p, int **ret_fds);
/* The section "pages" of the image, heap. After pages_write() or pages_share(). */
void *pages_table(struct state_pages *p, size_t *ret_len);
/* Images that it refers to, without itself. */
unsigned pages_parents(const struct state_pages *p, const uint8_t (**ret_ids)[PAGES_ID_LEN]);

/* ---- for whoever loads ---- */

/* @fds are taken over: of an image its own page file and then those of its parents, in the order of its list;
 * of a branch what pages_share() gave. err_ptr(-EINVAL) for a table that is damaged or does not fit the
 * files, with *ret_why (heap). @ids: of the images, same order; NULL for a branch. */
struct state_pages *pages_loader(const void *table, size_t len, const int *fds, unsigned nfds,
				 const uint8_t (*ids)[PAGES_ID_LEN], char **ret_why);

/* Has the host read the page files ahead while the sandbox runs already: touching a page at a time costs ten times
 * what reading does. A hint: nothing happens when it can't. */
void pages_prefetch(struct state_pages *p);

/* ---- both ---- */

/* References on pages (saving) and files are dropped. NULL is fine. */
void pages_release(struct state_pages *p);

#endif
