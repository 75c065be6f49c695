// SPDX-License-Identifier: Apache-2.0
/*
 * linux.resources in the files of version 1 (Documentation/admin-guide/cgroup-v1 of the kernel). A resource
 * whose controller the host lacks is an error, told as runc does, except the three that the sentry enforces
 * itself (memory, pids, and the number of CPUs).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/cgroup_priv.h"

static int put_num(const struct cgroup *g, const char *controller, const char *file, int64_t v, char **why)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", (long long)v);
	return cgroup_put(cgroup_dir(g, controller), file, text, why);
}

/* Memory and memory+swap bound each other: whichever grows goes first. */
static int set_memory(const struct cgroup *g, const json_t *m, char **why)
{
	const char *dir = cgroup_dir(g, "memory");
	bool has_swap_file = cgroup_read_u64(dir, "memory.memsw.limit_in_bytes", 0) != 0;
	int64_t limit = 0, swap = 0, v;
	bool swap_first;

	if (!dir)
		return 0;
	(void)cgroup_num(m, "limit", &limit);
	(void)cgroup_num(m, "swap", &swap);
	if (limit > 0 && swap > 0)
		swap += cgroup_host_memory(limit) - limit;
	if (limit < 0 && !swap)
		swap = -1;
	if (limit)
		limit = cgroup_host_memory(limit);
	swap_first = swap == -1 || (uint64_t)swap > cgroup_read_u64(dir, "memory.limit_in_bytes", 0);
	if (swap && has_swap_file && swap_first &&
	    put_num(g, "memory", "memory.memsw.limit_in_bytes", swap, why))
		return -1;
	if (limit && put_num(g, "memory", "memory.limit_in_bytes", limit, why))
		return -1;
	if (swap && has_swap_file && !swap_first &&
	    put_num(g, "memory", "memory.memsw.limit_in_bytes", swap, why))
		return -1;
	if (cgroup_num(m, "reservation", &v) && v &&
	    put_num(g, "memory", "memory.soft_limit_in_bytes", v, why))
		return -1;
	if (cgroup_num(m, "kernelTCP", &v) && v &&
	    put_num(g, "memory", "memory.kmem.tcp.limit_in_bytes", v, why))
		return -1;
	if (cgroup_num(m, "swappiness", &v) && v >= 0 && v <= 100 &&
	    put_num(g, "memory", "memory.swappiness", v, why))
		return -1;
	if (json_is_true(json_object_get(m, "disableOOMKiller")) &&
	    put_num(g, "memory", "memory.oom_control", 1, why))
		return -1;
	return 0;
}

/* The kernel refuses a period under which the old quota would be too much, so then the quota goes first. */
static int set_bandwidth(const struct cgroup *g, const char *period_file, const char *quota_file,
			 int64_t period, int64_t quota, char **why)
{
	AUTO_FREE char *first = NULL;

	if (period && !put_num(g, "cpu", period_file, period, &first))
		period = 0;
	else if (period && !quota)
		return *why = steal_ptr(&first), -1;
	if (quota && put_num(g, "cpu", quota_file, quota, why))
		return -1;
	return period ? put_num(g, "cpu", period_file, period, why) : 0;
}

static int set_cpu(const struct cgroup *g, const json_t *c, char **why)
{
	int64_t quota = 0, period = 0, v;
	const char *s;

	if (cgroup_dir(g, "cpu")) {
		(void)cgroup_num(c, "quota", &quota);
		(void)cgroup_num(c, "period", &period);
		if (set_bandwidth(g, "cpu.cfs_period_us", "cpu.cfs_quota_us", period, quota, why))
			return -1;
		if (cgroup_num(c, "shares", &v) && v && put_num(g, "cpu", "cpu.shares", v, why))
			return -1;
		if (cgroup_num(c, "burst", &v) && put_num(g, "cpu", "cpu.cfs_burst_us", v, why))
			return -1;
		if (cgroup_num(c, "idle", &v) && put_num(g, "cpu", "cpu.idle", v, why))
			return -1;
	}
	quota = period = 0;
	(void)cgroup_num(c, "realtimeRuntime", &quota);
	(void)cgroup_num(c, "realtimePeriod", &period);
	if (set_bandwidth(g, "cpu.rt_period_us", "cpu.rt_runtime_us", period, quota, why))
		return -1;
	s = json_string_value(json_object_get(c, "cpus"));
	if (s && s[0] && cgroup_put(cgroup_dir(g, "cpuset"), "cpuset.cpus", s, why))
		return -1;
	s = json_string_value(json_object_get(c, "mems"));
	if (s && s[0] && cgroup_put(cgroup_dir(g, "cpuset"), "cpuset.mems", s, why))
		return -1;
	return 0;
}

/* Block devices: "MAJOR:MINOR VALUE" for each element of @key. */
static int put_devices(const struct cgroup *g, const json_t *io, const char *key, const char *value,
		       const char *file, char **why)
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
		snprintf(text, sizeof(text), "%lld:%lld %lld", (long long)major, (long long)minor,
			 (long long)v);
		if (cgroup_put(cgroup_dir(g, "blkio"), file, text, why))
			return -1;
	}
	return 0;
}

static int set_blkio(const struct cgroup *g, const json_t *io, char **why)
{
	/* the weights' files belong to the I/O scheduler: BFQ's where it is in use, CFQ's of old kernels */
	const char *dir = cgroup_dir(g, "blkio");
	AUTO_FREE char *bfq = cgroup_read(dir, "blkio.bfq.weight");
	int64_t v;

	if (cgroup_num(io, "weight", &v) && v &&
	    put_num(g, "blkio", bfq ? "blkio.bfq.weight" : "blkio.weight", v, why))
		return -1;
	if (cgroup_num(io, "leafWeight", &v) && v && put_num(g, "blkio", "blkio.leaf_weight", v, why))
		return -1;
	return put_devices(g, io, "weightDevice", "weight",
			   bfq ? "blkio.bfq.weight_device" : "blkio.weight_device", why) ||
			       put_devices(g, io, "throttleReadBpsDevice", "rate",
					   "blkio.throttle.read_bps_device", why) ||
			       put_devices(g, io, "throttleWriteBpsDevice", "rate",
					   "blkio.throttle.write_bps_device", why) ||
			       put_devices(g, io, "throttleReadIOPSDevice", "rate",
					   "blkio.throttle.read_iops_device", why) ||
			       put_devices(g, io, "throttleWriteIOPSDevice", "rate",
					   "blkio.throttle.write_iops_device", why) ?
		       -1 :
		       0;
}

static int set_hugepages(const struct cgroup *g, const json_t *limits, char **why)
{
	json_t *e;
	size_t i;

	json_array_foreach(limits, i, e) {
		const char *size = json_string_value(json_object_get(e, "pageSize"));
		AUTO_FREE char *file = kasprintf("hugetlb.%s.limit_in_bytes", size ? size : "");
		int64_t v;

		/* the guest has no huge pages of the host's: a host without the controller loses nothing */
		if (size && !strchr(size, '/') && cgroup_dir(g, "hugetlb") && cgroup_num(e, "limit", &v) &&
		    put_num(g, "hugetlb", file, v, why))
			return -1;
	}
	return 0;
}

static int set_network(const struct cgroup *g, const json_t *n, char **why)
{
	json_t *e;
	size_t i;
	int64_t v;

	if (cgroup_num(n, "classID", &v) && v && put_num(g, "net_cls", "net_cls.classid", v, why))
		return -1;
	json_array_foreach(json_object_get(n, "priorities"), i, e) {
		const char *name = json_string_value(json_object_get(e, "name"));
		AUTO_FREE char *text = NULL;

		if (!name || !cgroup_num(e, "priority", &v))
			continue;
		text = kasprintf("%s %lld", name, (long long)v);
		if (cgroup_put(cgroup_dir(g, "net_prio"), "net_prio.ifpriomap", text, why))
			return -1;
	}
	return 0;
}

/* What every container may use, whatever the spec says (runtime-spec, "Default Devices"). */
static const char *const default_devices[] = {
	"c *:* m",   "b *:* m",	  "c 1:3 rwm", "c 1:5 rwm",   "c 1:7 rwm",
	"c 1:8 rwm", "c 1:9 rwm", "c 5:0 rwm", "c 136:* rwm", "c 5:2 rwm",
};

/*
 * No process of a sandbox opens a device of the host for its guest, so the list is a second line; it is
 * there since callers look at it.
 */
static int set_devices(const struct cgroup *g, const json_t *rules, char **why)
{
	const char *dir = cgroup_dir(g, "devices");
	json_t *e;
	size_t i;

	if (!dir || !json_is_array(rules))
		return 0;
	if (cgroup_put(dir, "devices.deny", "a", why))
		return -1;
	json_array_foreach(rules, i, e) {
		bool allow = json_is_true(json_object_get(e, "allow"));
		const char *file = allow ? "devices.allow" : "devices.deny";
		const char *type = json_string_value(json_object_get(e, "type"));
		const char *access = json_string_value(json_object_get(e, "access"));
		AUTO_FREE char *text = NULL;
		int64_t major = -1, minor = -1;
		char maj[24] = "*", min[24] = "*";

		if (cgroup_num(e, "major", &major) && major >= 0)
			snprintf(maj, sizeof(maj), "%lld", (long long)major);
		if (cgroup_num(e, "minor", &minor) && minor >= 0)
			snprintf(min, sizeof(min), "%lld", (long long)minor);
		if (!type || !strcmp(type, "a"))
			text = kstrdup("a"); /* the kernel ignores the rest then */
		else
			text = kasprintf("%s %s:%s %s", type, maj, min, access && access[0] ? access : "rwm");
		if (cgroup_put(dir, file, text, why))
			return -1;
	}
	for (i = 0; i < ARRAY_SIZE(default_devices); i++)
		if (cgroup_put(dir, "devices.allow", default_devices[i], why))
			return -1;
	return 0;
}

int cgroup_v1_set(const struct cgroup *g, const json_t *r, char **why)
{
	int64_t v;

	if (json_object_size(json_object_get(r, "unified"))) {
		*why = kstrdup("invalid configuration: cannot use unified on cgroup v1");
		return -1;
	}
	if (set_devices(g, json_object_get(r, "devices"), why) ||
	    set_memory(g, json_object_get(r, "memory"), why) ||
	    set_cpu(g, json_object_get(r, "cpu"), why) ||
	    set_blkio(g, json_object_get(r, "blockIO"), why) ||
	    set_hugepages(g, json_object_get(r, "hugepageLimits"), why) ||
	    set_network(g, json_object_get(r, "network"), why))
		return -1;
	if (!cgroup_dir(g, "pids") || !cgroup_num(json_object_get(r, "pids"), "limit", &v) || !v)
		return 0;
	v = cgroup_host_pids(v);
	return v > 0 ? put_num(g, "pids", "pids.max", v, why) :
		       cgroup_put(cgroup_dir(g, "pids"), "pids.max", "max", why);
}
