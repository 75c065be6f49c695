// SPDX-License-Identifier: Apache-2.0
/* The table of platforms in this build: see platform.h. */
#include "platform/platform.h"

#include <string.h>

const struct platform *plat;

/* "auto" takes the first one. */
static const struct platform *const platforms[] = {
	&plat_ptrace,
	&plat_trap,
};

const struct platform *platform_find(const char *name)
{
	if (!strcmp(name, "auto"))
		return platforms[0];
	for (size_t i = 0; i < ARRAY_SIZE(platforms); i++) {
		if (!strcmp(platforms[i]->name, name))
			return platforms[i];
	}
	return NULL;
}
