// SPDX-License-Identifier: Apache-2.0
/*
 * update: other limits for a container that runs. They change in three places: the host's control groups, the
 * tmpfs that holds the guest's memory, and the sentry, which shows and enforces the rest. What may be
 * refused goes first, so that a refusal changes nothing: less memory is asked of the tmpfs, more of the
 * groups.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/cgroup.h"
#include "runtime/cli.h"
#include "runtime/launch.h"
#include "runtime/memlimit.h"

static struct {
	const char *resources, *ignored;
	const char *blkio_weight, *cpu_period, *cpu_quota, *cpu_burst, *cpu_share, *cpu_rt_period, *cpu_rt_runtime,
		*cpu_idle, *cpuset_cpus, *cpuset_mems, *memory, *memory_swap, *memory_reservation,
		*kernel_memory_tcp, *pids_limit;
} o;

static const struct opt update_opts[] = {
	{ "resources", 'r', OPT_STR, &o.resources, "FILE",
	  "take linux.resources from FILE (-: standard input); other options are ignored then" },
	{ "blkio-weight", 0, OPT_STR, &o.blkio_weight, "N", "block I/O weight, 10 to 1000" },
	{ "cpu-period", 0, OPT_STR, &o.cpu_period, "US", "period of the CPU quota" },
	{ "cpu-quota", 0, OPT_STR, &o.cpu_quota, "US", "CPU time in each period (-1: any)" },
	{ "cpu-burst", 0, OPT_STR, &o.cpu_burst, "US", "what may be saved up beside the quota" },
	{ "cpu-share", 0, OPT_STR, &o.cpu_share, "N", "CPU weight relative to other containers" },
	{ "cpu-rt-period", 0, OPT_STR, &o.cpu_rt_period, "US", "period of real-time tasks (v1)" },
	{ "cpu-rt-runtime", 0, OPT_STR, &o.cpu_rt_runtime, "US", "their CPU time (v1)" },
	{ "cpu-idle", 0, OPT_STR, &o.cpu_idle, "0|1", "only run when nobody else does" },
	{ "cpuset-cpus", 0, OPT_STR, &o.cpuset_cpus, "LIST", "CPUs it may use" },
	{ "cpuset-mems", 0, OPT_STR, &o.cpuset_mems, "LIST", "memory nodes it may use" },
	{ "memory", 0, OPT_STR, &o.memory, "BYTES", "memory limit (suffixes k, m, g; -1: none)" },
	{ "memory-swap", 0, OPT_STR, &o.memory_swap, "BYTES", "memory and swap together" },
	{ "memory-reservation", 0, OPT_STR, &o.memory_reservation, "BYTES", "soft limit" },
	{ "kernel-memory", 0, OPT_STR, &o.ignored, "BYTES", "accepted for compatibility" },
	{ "kernel-memory-tcp", 0, OPT_STR, &o.kernel_memory_tcp, "BYTES", "TCP buffers (v1)" },
	{ "pids-limit", 0, OPT_STR, &o.pids_limit, "N", "processes and threads (-1: no limit)" },
	{ "l3-cache-schema", 0, OPT_STR, &o.ignored, "TEXT", "accepted for compatibility" },
	{ "mem-bw-schema", 0, OPT_STR, &o.ignored, "TEXT", "accepted for compatibility" },
	{ 0 },
};

/* "50m", "1GiB", "-1": binary multiples, as everywhere in this field. */
static bool parse_number(const char *s, bool bytes, json_int_t *ret)
{
	static const char suffixes[] = "kmgtp";
	const char *suffix;
	char *end;
	long long v = strtoll(s, &end, 10);

	if (end == s)
		return false;
	if (bytes && *end && (suffix = strchr(suffixes, tolower((unsigned char)*end)))) {
		for (long i = suffix - suffixes; i >= 0; i--)
			if (__builtin_mul_overflow(v, 1024LL, &v))
				return false;
		end++;
		if (tolower((unsigned char)*end) == 'i')
			end++;
	}
	if (bytes && tolower((unsigned char)*end) == 'b')
		end++;
	*ret = v;
	return !*end;
}

/* Adds SECTION.KEY to @res if @text was given. */
static int add(json_t *res, const char *section, const char *key, const char *text, bool bytes)
{
	json_t *sec = json_object_get(res, section);
	json_int_t v;

	if (!text)
		return 0;
	if (!parse_number(text, bytes, &v))
		return cli_fail("invalid value for %s.%s: %s", section, key, text);
	if (!sec) {
		sec = json_object();
		json_object_set_new(res, section, sec);
	}
	json_object_set_new(sec, key, json_integer(v));
	return 0;
}

static void add_text(json_t *res, const char *key, const char *text)
{
	json_t *cpu = json_object_get(res, "cpu");

	if (!text)
		return;
	if (!cpu) {
		cpu = json_object();
		json_object_set_new(res, "cpu", cpu);
	}
	json_object_set_new(cpu, key, json_string(text));
}

/* linux.resources as the options say it. New reference, or NULL after a message. */
static json_t *resources_from_options(void)
{
	const struct {
		const char *section, *key, *text;
		bool bytes;
	} fields[] = {
		{ "blockIO", "weight", o.blkio_weight, false },
		{ "cpu", "period", o.cpu_period, false },
		{ "cpu", "quota", o.cpu_quota, false },
		{ "cpu", "burst", o.cpu_burst, false },
		{ "cpu", "shares", o.cpu_share, false },
		{ "cpu", "realtimePeriod", o.cpu_rt_period, false },
		{ "cpu", "realtimeRuntime", o.cpu_rt_runtime, false },
		{ "cpu", "idle", o.cpu_idle, false },
		{ "memory", "limit", o.memory, true },
		{ "memory", "swap", o.memory_swap, true },
		{ "memory", "reservation", o.memory_reservation, true },
		{ "memory", "kernelTCP", o.kernel_memory_tcp, true },
		{ "pids", "limit", o.pids_limit, false },
	};
	json_t *res = json_object();

	for (unsigned i = 0; i < ARRAY_SIZE(fields); i++)
		if (add(res, fields[i].section, fields[i].key, fields[i].text, fields[i].bytes)) {
			json_decref(res);
			return NULL;
		}
	add_text(res, "cpus", o.cpuset_cpus);
	add_text(res, "mems", o.cpuset_mems);
	return res;
}

static json_t *resources_from_file(void)
{
	bool in = !strcmp(o.resources, "-");
	json_error_t err;
	json_t *res = in ? json_loadf(stdin, 0, &err) : json_load_file(o.resources, 0, &err);

	if (json_is_object(res))
		return res;
	(void)cli_fail("%s: %s", in ? "standard input" : o.resources, res ? "not an object" : err.text);
	json_decref(res);
	return NULL;
}

/* A number of the resources; false when there is none, or 0, which changes nothing. */
static bool number(const json_t *res, const char *section, const char *key, json_int_t *ret)
{
	const json_t *v = json_object_get(json_object_get(res, section), key);

	*ret = json_is_integer(v) ? json_integer_value(v) : -1;
	return json_is_number(v) && *ret != 0;
}

/* Tells the sentry what concerns it. */
static int tell_sentry(struct statedir *s, const json_t *res, uint64_t memory)
{
	AUTO_FREE char *why = NULL;
	json_t *req = json_pack("{s:s}", "op", "limits"), *rep;
	json_int_t v;

	if (memory)
		json_object_set_new(req, "memory", json_integer((json_int_t)memory));
	if (number(res, "memory", "limit", &v))
		json_object_set_new(req, "memory_limited", json_boolean(v > 0));
	if (number(res, "pids", "limit", &v))
		json_object_set_new(req, "pids", json_integer(v > 0 ? v : 0));
	if (number(res, "cpu", "quota", &v))
		json_object_set_new(req, "quota", json_integer(v > 0 ? v : 0));
	if (number(res, "cpu", "period", &v))
		json_object_set_new(req, "period", json_integer(v > 0 ? v : 0));
	if (json_object_get(json_object_get(res, "cpu"), "cpus"))
		json_object_set_new(req, "cpus", json_true());
	rep = cli_request(s, req, &why);
	json_decref(req);
	json_decref(rep);
	return rep ? 0 : cli_fail("%s", why);
}

static int apply(struct statedir *s, const json_t *res, const json_t *now)
{
	AUTO(cgroup_close) struct cgroup *g = cgroup_open(s);
	AUTO_FREE char *why = NULL;
	uint64_t old = (uint64_t)json_integer_value(json_object_get(now, "memory_limit"));
	uint64_t used = (uint64_t)json_integer_value(json_object_get(now, "memory"));
	uint64_t memory = 0;
	json_int_t v;

	if (number(res, "memory", "limit", &v))
		memory = launch_memory_limit(v > 0 ? (uint64_t)v : 0);
	if (memory && memory < old && memlimit_set(s, memory, used, &why))
		return cli_fail("%s", why);
	if (cgroup_set(g, res, &why)) {
		AUTO_FREE char *again = NULL;

		if (memory && memory < old)
			(void)memlimit_set(s, old, used, &again); /* growing is never refused */
		return cli_fail("%s", why);
	}
	if (memory && memory > old && memlimit_set(s, memory, used, &why))
		return cli_fail("%s", why);
	return tell_sentry(s, res, memory);
}

static int update(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	AUTO_FREE char *why = NULL;
	json_t *res, *now, *req;
	int r;

	(void)argc;
	if (!s)
		return 1;
	res = o.resources ? resources_from_file() : resources_from_options();
	if (!res)
		return 1;
	req = json_pack("{s:s}", "op", "stats");
	now = cli_request(s, req, &why);
	json_decref(req);
	r = now ? apply(s, res, now) : cli_fail("%s", why);
	json_decref(now);
	json_decref(res);
	return r;
}

const struct command cmd_update = {
	.name = "update",
	.synopsis = "[options] ID",
	.summary = "change the limits of a running container",
	.details = "  What isn't given stays as it is. The container sees the new limits at once. Less memory\n"
		   "  than it uses is refused, and then nothing is changed.",
	.examples = "  holdfast update --memory 512m --pids-limit 200 web\n"
		    "  echo '{\"cpu\": {\"quota\": 50000, \"period\": 100000}}' | holdfast update -r - web",
	.opts = update_opts,
	.min_args = 1,
	.max_args = 1,
	.run = update,
};
