// SPDX-License-Identifier: Apache-2.0
/*
 * Counters for whoever looks (`holdfast debug --stats`): what host calls and hand-overs the guest's work
 * costs. They count only while somebody watches, so on hot paths they cost a load and a branch.
 */
#ifndef BASE_STATS_H
#define BASE_STATS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum counter {
#define STAT(id, name) STAT_##id,
#include "base/stats.def"
#undef STAT
	STAT_COUNT
};

/* Watchers at present; written by stats_watch() and stats_unwatch() alone. */
extern _Atomic unsigned stats_watchers;
extern _Atomic uint64_t stats_value[STAT_COUNT];

static inline bool stats_on(void)
{
	return unlikely(atomic_load_explicit(&stats_watchers, memory_order_relaxed) != 0);
}

static inline void stat_add(enum counter s, uint64_t n)
{
	if (stats_on())
		atomic_fetch_add_explicit(&stats_value[s], n, memory_order_relaxed);
}

static inline void stat_inc(enum counter s)
{
	stat_add(s, 1);
}

/* A host call that is counted: HOST(FUTEX, syscall(SYS_futex, ...)). */
#define HOST(id, call) (stat_inc(STAT_HOST_##id), (call))

/* Counting goes on from the first watch to the last unwatch. Any thread. */
void stats_watch(void);
void stats_unwatch(void);
const char *stat_name(enum counter s);

#endif
