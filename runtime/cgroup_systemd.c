// SPDX-License-Identifier: Apache-2.0
/* Scopes of systemd's. */
#include "base/alloc.h"
#include "runtime/cgroup_priv.h"

int cgroup_systemd_start(struct cgroup *g, const char *path, const char *id, const json_t *resources,
			 char **ret_why)
{
	(void)g;
	(void)path;
	(void)id;
	(void)resources;
	*ret_why = kstrdup("systemd not running on this host, cannot use systemd cgroups manager");
	return -1;
}

void cgroup_systemd_stop(const char *unit)
{
	(void)unit;
}
