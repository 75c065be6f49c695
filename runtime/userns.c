// SPDX-License-Identifier: Apache-2.0
/* See userns.h. The maps: man 7 user_namespaces. */
#include "runtime/userns.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/cleanup.h"

/* Calls @fn for each line of @map until it returns true; what the last call returned. */
static bool each_extent(const char *map, bool (*fn)(uint32_t, uint32_t, uint32_t, void *), void *arg)
{
	AUTO_FREE char *path = kasprintf("/proc/self/%s", map);
	FILE *f = fopen(path, "re");
	unsigned inside, outside, count;
	bool done = false;

	while (f && !done && fscanf(f, "%u %u %u", &inside, &outside, &count) == 3)
		done = fn(inside, outside, count, arg);
	if (f)
		fclose(f);
	return done;
}

static bool is_everything(uint32_t inside, uint32_t outside, uint32_t count, void *arg)
{
	(void)arg;
	return inside == 0 && outside == 0 && count == UINT32_MAX;
}

bool userns_is_host(void)
{
	return each_extent("uid_map", is_everything, NULL);
}

struct spare {
	uint32_t want, highest;
};

static bool look(uint32_t inside, uint32_t outside, uint32_t count, void *arg)
{
	struct spare *s = arg;

	(void)outside;
	if (s->want >= inside && s->want - inside < count)
		return true;
	if (count && inside + (count - 1) > s->highest)
		s->highest = inside + (count - 1);
	return false;
}

uint32_t userns_spare_id(const char *map, uint32_t want)
{
	struct spare s = { want, 0 };

	return each_extent(map, look, &s) ? want : s.highest;
}
