// SPDX-License-Identifier: Apache-2.0
/*
 * What the host's groups allow, where the guest may have so much. The sentry enforces the guest's limits, so
 * the host's are a second line that must not be met first: they leave room for the sandbox itself.
 *
 * Memory: the sentry's heap for guests has a quarter of the limit, at least 64 MiB (sentry/kernel/kmem.h);
 * page tables, stubs, gofer and the binary come on top. Tasks: each thread of the guest is one in the sentry
 * and one in a stub; control connections and spare stubs come on top.
 */
#include "runtime/cgroup_priv.h"

#include "base/compiler.h"
#include "sentry/kernel/kmem.h"

#define HOST_MEMORY_BASE (64LL << 20)
#define HOST_TASKS_PER_THREAD 2
#define HOST_TASKS_BASE 384

bool cgroup_num(const json_t *o, const char *key, int64_t *ret)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_number(v))
		return false;
	*ret = json_is_integer(v) ? json_integer_value(v) : -1;
	return true;
}

int64_t cgroup_host_memory(int64_t limit)
{
	int64_t heap = MAX(limit / KMEM_SHARE, (int64_t)KMEM_MIN);

	if (limit <= 0 || limit > INT64_MAX / 2)
		return -1;
	return limit + MIN(heap, (int64_t)KMEM_MAX) + HOST_MEMORY_BASE;
}

int64_t cgroup_host_pids(int64_t limit)
{
	if (limit <= 0 || limit > INT32_MAX / HOST_TASKS_PER_THREAD)
		return -1;
	return limit * HOST_TASKS_PER_THREAD + HOST_TASKS_BASE;
}
