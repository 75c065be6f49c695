// SPDX-License-Identifier: Apache-2.0
/*
 * What a container's control groups have counted, in the form of runc's `events --stats`. A controller that the
 * host lacks leaves zeros, as there.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cgroup_priv.h"

#define NSEC_PER_USEC 1000ULL

static json_t *num(uint64_t v)
{
	return json_integer(v > INT64_MAX ? INT64_MAX : (json_int_t)v);
}

/* Numbers of a text, up to its end. */
static json_t *numbers(const char *dir, const char *file)
{
	AUTO_FREE char *s = cgroup_read(dir, file);
	json_t *a = json_array();
	char *save = NULL;

	for (char *p = s ? strtok_r(s, " \n", &save) : NULL; p; p = strtok_r(NULL, " \n", &save))
		json_array_append_new(a, num(strtoull(p, NULL, 10)));
	return a;
}

static json_t *cpu_v1(const struct cgroup *g)
{
	const char *acct = cgroup_dir(g, "cpuacct"), *cpu = cgroup_dir(g, "cpu");
	uint64_t tick = 1000000000ULL / (uint64_t)sysconf(_SC_CLK_TCK);

	return json_pack("{s:{s:o, s:o, s:o, s:o}, s:{s:o, s:o, s:o}}", "usage", "total",
			 num(cgroup_read_u64(acct, "cpuacct.usage", 0)), "percpu",
			 numbers(acct, "cpuacct.usage_percpu"), "kernel",
			 num(cgroup_read_key(acct, "cpuacct.stat", "system") * tick), "user",
			 num(cgroup_read_key(acct, "cpuacct.stat", "user") * tick), "throttling", "periods",
			 num(cgroup_read_key(cpu, "cpu.stat", "nr_periods")), "throttledPeriods",
			 num(cgroup_read_key(cpu, "cpu.stat", "nr_throttled")), "throttledTime",
			 num(cgroup_read_key(cpu, "cpu.stat", "throttled_time")));
}

static json_t *cpu_v2(const struct cgroup *g)
{
	const char *dir = cgroup_dir(g, "");

	return json_pack("{s:{s:o, s:o, s:o}, s:{s:o, s:o, s:o}}", "usage", "total",
			 num(cgroup_read_key(dir, "cpu.stat", "usage_usec") * NSEC_PER_USEC), "kernel",
			 num(cgroup_read_key(dir, "cpu.stat", "system_usec") * NSEC_PER_USEC), "user",
			 num(cgroup_read_key(dir, "cpu.stat", "user_usec") * NSEC_PER_USEC), "throttling",
			 "periods", num(cgroup_read_key(dir, "cpu.stat", "nr_periods")), "throttledPeriods",
			 num(cgroup_read_key(dir, "cpu.stat", "nr_throttled")), "throttledTime",
			 num(cgroup_read_key(dir, "cpu.stat", "throttled_usec") * NSEC_PER_USEC));
}

/* "KEY VALUE" lines as an object. */
static json_t *flat(const char *dir, const char *file)
{
	AUTO_FREE char *s = cgroup_read(dir, file);
	json_t *out = json_object();
	char *save = NULL;

	for (char *p = s ? strtok_r(s, "\n", &save) : NULL; p; p = strtok_r(NULL, "\n", &save)) {
		char *blank = strchr(p, ' ');

		if (!blank)
			continue;
		*blank = 0;
		json_object_set_new(out, p, num(strtoull(blank + 1, NULL, 10)));
	}
	return out;
}

/* usage, max, failcnt and limit of one of v1's counters: NAME.usage_in_bytes and so on. */
static json_t *counter_v1(const char *dir, const char *name)
{
	static const char *const files[][2] = { { "limit", "limit_in_bytes" },
						{ "usage", "usage_in_bytes" },
						{ "max", "max_usage_in_bytes" },
						{ "failcnt", "failcnt" } };
	json_t *out = json_object();

	for (unsigned i = 0; i < ARRAY_SIZE(files); i++) {
		AUTO_FREE char *file = kasprintf("%s.%s", name, files[i][1]);

		json_object_set_new(out, files[i][0], num(cgroup_read_u64(dir, file, 0)));
	}
	return out;
}

static json_t *memory_v1(const struct cgroup *g)
{
	const char *dir = cgroup_dir(g, "memory");

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "cache",
			 num(cgroup_read_key(dir, "memory.stat", "cache")), "usage",
			 counter_v1(dir, "memory"), "swap", counter_v1(dir, "memory.memsw"), "kernel",
			 counter_v1(dir, "memory.kmem"), "kernelTCP", counter_v1(dir, "memory.kmem.tcp"), "raw",
			 flat(dir, "memory.stat"));
}

static json_t *memory_v2(const struct cgroup *g)
{
	const char *dir = cgroup_dir(g, "");
	uint64_t mem = cgroup_read_u64(dir, "memory.current", 0);
	uint64_t swap = cgroup_read_u64(dir, "memory.swap.current", 0);

	return json_pack("{s:o, s:{s:o, s:o, s:o, s:o}, s:{s:o, s:o}, s:o}", "cache",
			 num(cgroup_read_key(dir, "memory.stat", "file")), "usage", "limit",
			 num(cgroup_read_u64(dir, "memory.max", 0)), "usage", num(mem), "max",
			 num(cgroup_read_u64(dir, "memory.peak", 0)), "failcnt",
			 num(cgroup_read_key(dir, "memory.events", "max")), "swap", "limit",
			 num(cgroup_read_u64(dir, "memory.swap.max", 0)), "usage", num(mem + swap), "raw",
			 flat(dir, "memory.stat"));
}

/* "MAJOR:MINOR OP VALUE" lines. */
static json_t *blkio_v1(const struct cgroup *g, const char *file)
{
	AUTO_FREE char *s = cgroup_read(cgroup_dir(g, "blkio"), file);
	json_t *out = json_array();
	char *save = NULL;

	for (char *p = s ? strtok_r(s, "\n", &save) : NULL; p; p = strtok_r(NULL, "\n", &save)) {
		unsigned long long v;
		int major, minor;
		char op[16];

		if (sscanf(p, "%d:%d %15s %llu", &major, &minor, op, &v) == 4)
			json_array_append_new(out, json_pack("{s:i, s:i, s:s, s:o}", "major", major, "minor",
							     minor, "op", op, "value", num(v)));
	}
	return out;
}

static void add_io(json_t *bytes, json_t *ops, int major, int minor, const char *key, unsigned long long v)
{
	static const struct {
		const char *key, *op;
		bool bytes;
	} kinds[] = { { "rbytes", "Read", true },
		      { "wbytes", "Write", true },
		      { "rios", "Read", false },
		      { "wios", "Write", false } };

	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(key, kinds[i].key))
			json_array_append_new(kinds[i].bytes ? bytes : ops,
					      json_pack("{s:i, s:i, s:s, s:o}", "major", major, "minor", minor,
							"op", kinds[i].op, "value", num(v)));
}

/* "MAJOR:MINOR rbytes=N wbytes=N ..." lines. */
static json_t *blkio_v2(const struct cgroup *g)
{
	AUTO_FREE char *s = cgroup_read(cgroup_dir(g, ""), "io.stat");
	json_t *bytes = json_array(), *ops = json_array();
	char *save = NULL, *inner = NULL;

	for (char *line = s ? strtok_r(s, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
		int major = 0, minor = 0;

		if (sscanf(line, "%d:%d", &major, &minor) != 2)
			continue;
		(void)strtok_r(line, " ", &inner);
		for (char *p = strtok_r(NULL, " ", &inner); p; p = strtok_r(NULL, " ", &inner)) {
			char *eq = strchr(p, '=');

			if (!eq)
				continue;
			*eq = 0;
			add_io(bytes, ops, major, minor, p, strtoull(eq + 1, NULL, 10));
		}
	}
	return json_pack("{s:o, s:o}", "ioServiceBytesRecursive", bytes, "ioServicedRecursive", ops);
}

json_t *cgroup_stats(const struct cgroup *g)
{
	json_t *blkio = g->v2 ? blkio_v2(g) :
				json_pack("{s:o, s:o}", "ioServiceBytesRecursive",
					  blkio_v1(g, "blkio.throttle.io_service_bytes_recursive"),
					  "ioServicedRecursive",
					  blkio_v1(g, "blkio.throttle.io_serviced_recursive"));

	return json_pack("{s:o, s:o, s:{s:o}, s:o, s:{}, s:{}}", "cpu", g->v2 ? cpu_v2(g) : cpu_v1(g), "memory",
			 g->v2 ? memory_v2(g) : memory_v1(g), "pids", "current",
			 num(cgroup_read_u64(cgroup_dir(g, g->v2 ? "" : "pids"), "pids.current", 0)), "blkio",
			 blkio, "hugetlb", "intel_rdt");
}
