// SPDX-License-Identifier: Apache-2.0
/* Inside of memory files, shared by mfile.c and mfile_runs.c only. */
#ifndef SENTRY_MM_MFILE_PRIV_H
#define SENTRY_MM_MFILE_PRIV_H

#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

/*
 * A maximal piece of the file whose pages all have the same reference count. Runs cover the file
 * from 0 to its end without gaps, and no two neighbours have the same count, so a whole sparse
 * gigabyte is one run. Free runs (count 0) are also in a tree by size.
 */
struct run {
	RB_ENTRY(run) by_off;
	RB_ENTRY(run) by_size; /* in it while count == 0 */
	uint64_t off, len;     /* bytes, page aligned */
	uint32_t count;
};

/* Counts that mean something else. */
#define RUN_FREE  0U
#define RUN_DYING UINT32_MAX       /* last reference gone, being punched: not free yet */
#define RUN_MAX   (UINT32_MAX - 1) /* a count that reaches this stays: the pages leak */

RB_HEAD(run_offs, run);
RB_HEAD(run_sizes, run);

struct runs {
	struct run_offs offs;
	struct run_sizes sizes;
};

/* All need the owner's lock. */
void runs_init(struct runs *r, uint64_t size);
void runs_fini(struct runs *r);
/* Best fit; the offset, or UINT64_MAX when no free run is large enough. */
uint64_t runs_alloc(struct runs *r, uint64_t len);
/* Takes [off, off+len) if all of it is free. */
bool runs_alloc_at(struct runs *r, uint64_t off, uint64_t len);
void runs_get(struct runs *r, uint64_t off, uint64_t len);
/*
 * One reference less on the pages from *off on, up to the first run whose count falls to zero; that
 * one becomes RUN_DYING and is reported in *dead_off and *dead_len. *off and *len advance past
 * what was done. False when the end was reached with nothing (more) dead.
 */
bool runs_put(struct runs *r, uint64_t *off, uint64_t *len, uint64_t *dead_off,
	      uint64_t *dead_len);
/* RUN_DYING -> RUN_FREE */
void runs_release(struct runs *r, uint64_t off, uint64_t len);
/* The first range from *at on that nobody has a reference to (free or dying); *at moves behind it. */
bool runs_next_unused(struct runs *r, uint64_t *at, uint64_t *ret_off, uint64_t *ret_len);
uint64_t runs_exclusive(struct runs *r, uint64_t off, uint64_t len);

#endif
