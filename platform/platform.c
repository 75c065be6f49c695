// SPDX-License-Identifier: Apache-2.0
/* The table of platforms in this build: see platform.h. */
#include "platform/platform.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"

const struct platform *plat;

/* In the order in which "auto" tries them. */
static const struct platform *const platforms[] = {
	&plat_trap,
	&plat_ptrace,
};

const struct platform *platform_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(platforms); i++) {
		if (!strcmp(platforms[i]->name, name))
			return platforms[i];
	}
	return NULL;
}

bool platform_known(const char *name)
{
	return !strcmp(name, "auto") || platform_find(name);
}

int platform_start(const char *name, const struct plat_boot *boot)
{
	int err;

	if (strcmp(name, "auto") != 0) {
		plat = platform_find(name);
		return plat ? plat->init(boot) : -EINVAL;
	}
	for (size_t i = 0;; i++) {
		plat = platforms[i];
		err = plat->init(boot);
		if (!err || i + 1 == ARRAY_SIZE(platforms))
			return err;
		log_warn("platform %s doesn't work here (%s): %s is used", plat->name, strerror(-err),
			 platforms[i + 1]->name);
	}
}
