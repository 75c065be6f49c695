// SPDX-License-Identifier: Apache-2.0
/*
 * linux.resources in the files of version 2 (Documentation/admin-guide/cgroup-v2.rst of the kernel), converted
 * where the spec speaks of version 1, by the formulas that the runtimes share. Controllers are given down
 * the tree when the group is made (cgroup.c).
 *
 * Left out: device rules. Version 2 has them as BPF programs only; no process of a sandbox opens a device of
 * the host for its guest, so there is nothing for them to stop. Real-time bandwidth: version 2 has none.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cgroup_priv.h"

#define DEFAULT_PERIOD 100000

/* "max" for what is negative. */
static int put_num(const struct cgroup *g, const char *file, int64_t v, char **why)
{
	char text[32] = "max";

	if (v >= 0)
		snprintf(text, sizeof(text), "%lld", (long long)v);
	return cgroup_put(cgroup_dir(g, ""), file, text, why);
}

static bool has_file(const struct cgroup *g, const char *file)
{
	const char *dir = cgroup_dir(g, "");
	AUTO_FREE char *path = dir ? kasprintf("%s/%s", dir, file) : NULL;

	return path && access(path, F_OK) == 0;
}

static int set_memory(const struct cgroup *g, const json_t *m, char **why)
{
	int64_t limit = 0, swap = 0, v;

	if (!has_file(g, "memory.max"))
		return 0; /* the sentry holds the guest to its limit */
	(void)cgroup_num(m, "limit", &limit);
	(void)cgroup_num(m, "swap", &swap);
	/* the spec's swap is memory and swap together */
	if (limit > 0 && swap > 0 && swap < limit) {
		*why = kasprintf("memory+swap limit should be >= memory limit");
		return -1;
	}
	if (swap && has_file(g, "memory.swap.max") &&
	    put_num(g, "memory.swap.max", swap < 0 || limit < 0 ? -1 : limit ? swap - limit : swap, why))
		return -1;
	if (limit && put_num(g, "memory.max", cgroup_host_memory(limit), why))
		return -1;
	if (cgroup_num(m, "reservation", &v) && v && put_num(g, "memory.low", v, why))
		return -1;
	return 0;
}

static int set_cpu(const struct cgroup *g, const json_t *c, char **why)
{
	int64_t quota = 0, period = 0, v;
	const char *s;
	char text[64];

	if (has_file(g, "cpu.max")) {
		(void)cgroup_num(c, "quota", &quota);
		(void)cgroup_num(c, "period", &period);
		if (cgroup_num(c, "idle", &v) && put_num(g, "cpu.idle", v, why))
			return -1;
		/* 2..262144 shares are 1..10000 of weight */
		if (cgroup_num(c, "shares", &v) && v > 1 &&
		    put_num(g, "cpu.weight", 1 + (MIN(v, 262144) - 2) * 9999 / 262142, why))
			return -1;
		if (quota > 0)
			snprintf(text, sizeof(text), "%lld %lld", (long long)quota,
				 (long long)(period ? period : DEFAULT_PERIOD));
		else
			snprintf(text, sizeof(text), "max %lld",
				 (long long)(period ? period : DEFAULT_PERIOD));
		if ((quota || period) && cgroup_put(cgroup_dir(g, ""), "cpu.max", text, why))
			return -1;
		if (cgroup_num(c, "burst", &v) && put_num(g, "cpu.max.burst", v, why))
			return -1;
	}
	s = json_string_value(json_object_get(c, "cpus"));
	if (s && s[0] && cgroup_put(cgroup_dir(g, ""), "cpuset.cpus", s, why))
		return -1;
	s = json_string_value(json_object_get(c, "mems"));
	return s && s[0] ? cgroup_put(cgroup_dir(g, ""), "cpuset.mems", s, why) : 0;
}

/* "MAJOR:MINOR WORD=VALUE" for each element of @key. */
static int put_devices(const struct cgroup *g, const json_t *io, const char *key, const char *value,
		       const char *file, const char *word, char **why)
{
	json_t *e;
	size_t i;

	json_array_foreach(json_object_get(io, key), i, e) {
		char text[96];
		int64_t major = 0, minor = 0, v = 0;

		if (!cgroup_num(e, value, &v))
			continue;
		(void)cgroup_num(e, "major", &major);
		(void)cgroup_num(e, "minor", &minor);
		snprintf(text, sizeof(text), "%lld:%lld %s%lld", (long long)major, (long long)minor, word,
			 (long long)v);
		if (cgroup_put(cgroup_dir(g, ""), file, text, why))
			return -1;
	}
	return 0;
}

static int set_io(const struct cgroup *g, const json_t *io, char **why)
{
	bool bfq = has_file(g, "io.bfq.weight");
	int64_t v;

	if (cgroup_num(io, "weight", &v) && v) {
		/* BFQ's weight is the spec's, 10..1000; io.weight has 1..10000 for it */
		int64_t weight = bfq ? v : 1 + (v - 10) * 9999 / 990;

		if (put_num(g, bfq ? "io.bfq.weight" : "io.weight", weight, why))
			return -1;
	}
	if (bfq && put_devices(g, io, "weightDevice", "weight", "io.bfq.weight", "", why))
		return -1;
	return put_devices(g, io, "throttleReadBpsDevice", "rate", "io.max", "rbps=", why) ||
			       put_devices(g, io, "throttleWriteBpsDevice", "rate", "io.max", "wbps=", why) ||
			       put_devices(g, io, "throttleReadIOPSDevice", "rate", "io.max", "riops=",
					   why) ||
			       put_devices(g, io, "throttleWriteIOPSDevice", "rate", "io.max", "wiops=",
					   why) ?
		       -1 :
		       0;
}

static int set_hugepages(const struct cgroup *g, const json_t *limits, char **why)
{
	json_t *e;
	size_t i;

	json_array_foreach(limits, i, e) {
		const char *size = json_string_value(json_object_get(e, "pageSize"));
		AUTO_FREE char *file = kasprintf("hugetlb.%s.max", size ? size : "");
		int64_t v;

		if (size && !strchr(size, '/') && has_file(g, file) && cgroup_num(e, "limit", &v) &&
		    put_num(g, file, v, why))
			return -1;
	}
	return 0;
}

/* Files by name, as the caller knows them. */
static int set_unified(const struct cgroup *g, const json_t *u, char **why)
{
	const char *file;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)u, file, v) {
		if (strchr(file, '/')) {
			*why = kasprintf("unified resource \"%s\" must be a file name (no slashes)", file);
			return -1;
		}
		if (cgroup_put(cgroup_dir(g, ""), file, json_string_value(v) ?: "", why))
			return -1;
	}
	return 0;
}

int cgroup_v2_set(const struct cgroup *g, const json_t *r, char **why)
{
	int64_t v;

	if (set_memory(g, json_object_get(r, "memory"), why) ||
	    set_cpu(g, json_object_get(r, "cpu"), why) || set_io(g, json_object_get(r, "blockIO"), why) ||
	    set_hugepages(g, json_object_get(r, "hugepageLimits"), why))
		return -1;
	if (cgroup_num(json_object_get(r, "pids"), "limit", &v) && v && has_file(g, "pids.max") &&
	    put_num(g, "pids.max", cgroup_host_pids(v), why))
		return -1;
	return set_unified(g, json_object_get(r, "unified"), why);
}
