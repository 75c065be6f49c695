// SPDX-License-Identifier: Apache-2.0
/* Counters for `holdfast debug --stats`: see stats.h. */
#include "base/stats.h"

_Atomic unsigned stats_watchers;
_Atomic uint64_t stats_value[STAT_COUNT];

static const char *const names[STAT_COUNT] = {
#define STAT(id, name) [STAT_##id] = name,
#include "base/stats.def"
#undef STAT
};

void stats_watch(void)
{
	atomic_fetch_add(&stats_watchers, 1);
}

void stats_unwatch(void)
{
	atomic_fetch_sub(&stats_watchers, 1);
}

const char *stat_name(enum counter s)
{
	return names[s];
}
