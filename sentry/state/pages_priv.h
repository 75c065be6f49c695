// SPDX-License-Identifier: Apache-2.0
/* Inside of an image's memory: pages.c, pages_load.c and pages_lease.c. */
#ifndef SENTRY_STATE_PAGES_PRIV_H
#define SENTRY_STATE_PAGES_PRIV_H

#include <uthash.h>
#include <xxhash.h>

#include "base/cursor.h"
#include "sentry/state/pages.h"

#define PAGES_FILE_LEN 8    /* bytes of the table for a file ... */
#define PAGES_EXTENT_LEN 28 /* ... and for an extent */

struct page_range {
	uint64_t off, len;
};

/* [off, off+len) of a memory file is at @src_off of page file @src. */
struct page_extent {
	uint64_t off, len, src_off;
	uint32_t src;
};

/* Where the pages of a memory file are in images: a block that the file owns (mfile_set_origin). */
struct page_origin {
	bool whole;      /* it is the page file of ids[0] itself */
	uint32_t nids;
	uint8_t ids[1][PAGES_ID_LEN];
	size_t n;
	struct page_extent e[]; /* sorted by off; src: index in ids */
};

/*
 * The last stretch of data that was found in a file. The host finds its end by walking over all of its pages:
 * asking again for each of thousands of ranges in one stretch would take a while.
 */
struct data_run {
	uint64_t start, end;
};

struct saved_file {
	struct data_run run;
	UT_hash_handle hh;
	uint64_t id;         /* mfile_id() */
	uint32_t number;     /* in the image */
	struct mfile *mf;    /* reference */
	struct page_range *ranges; /* as they came, with a reference on each page */
	size_t nranges, ranges_size;
	struct page_extent *extents;
	size_t nextents, extents_size;
	bool inherited;      /* nothing of it was written: it is all in earlier images */
};

struct loaded_file {
	const uint8_t *extents; /* in the table */
	uint32_t nextents;
	struct mfile *live;     /* of a branch: the other side's file; reference */
	struct data_run run;
};

struct state_pages {
	bool saving;
	uint32_t nfiles;
	size_t nextents;

	/* saving */
	uint8_t id[PAGES_ID_LEN];
	struct saved_file *by_id, **files;
	uint32_t files_size;
	uint8_t have[PAGES_PARENTS_MAX][PAGES_ID_LEN];
	uint8_t parents[PAGES_PARENTS_MAX][PAGES_ID_LEN];
	unsigned nhave, nparents;
	int lease;                 /* of a branch: the end of a socket that goes along, or -1 (pages_lease.c) */

	/* loading */
	void *table;               /* owned copy */
	struct loaded_file *loaded;
	struct mfile **images;     /* page files; references */
	unsigned nimages;
};

/* mfile_next_data(), in whole pages. */
bool pages_next_data(struct mfile *mf, struct data_run *run, uint64_t off, uint64_t end,
		     uint64_t *ret_start, uint64_t *ret_end);
void pages_release_loaded(struct state_pages *p);
/* A branch was given these along with its memory files (@fds copied, the descriptors taken over): open until it ends. */
void pages_keep_leases(const int *fds, unsigned n);

#endif
