// SPDX-License-Identifier: Apache-2.0
/*
 * events: statistics and out-of-memory notices of a container, as runc prints them. The host's groups count
 * CPU, I/O and memory of the sandbox as a whole; of processes and of the memory limit the sentry knows
 * better, since the host's limits leave room for the sandbox itself.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "runtime/cgroup.h"
#include "runtime/cli.h"

static const char *interval;
static bool once;

/* What the sentry says; NULL with *ret_why. */
static json_t *ask_sentry(struct statedir *s, char **ret_why)
{
	json_t *req = json_pack("{s:s}", "op", "stats");
	json_t *rep = cli_request(s, req, ret_why);

	json_decref(req);
	return rep;
}

static void print(const struct statedir *s, const char *type, json_t *data)
{
	json_t *j = json_pack("{s:s, s:s, s:o*}", "type", type, "id", s->id, "data", data);

	json_dumpf(j, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(j);
}

static json_t *statistics(struct statedir *s, const json_t *inside)
{
	AUTO(cgroup_close) struct cgroup *g = cgroup_open(s);
	json_t *data = cgroup_stats(g);
	json_t *usage = json_object_get(json_object_get(data, "memory"), "usage");
	const json_t *own = json_object_get(inside, "own");

	json_object_set_new(data, "pids",
			    json_pack("{s:O, s:O}", "current", json_object_get(inside, "pids"), "limit",
				      json_object_get(inside, "pids_limit")));
	json_object_set(usage, "limit", json_object_get(inside, "memory_limit"));
	/* the host counts the sandbox, not what each of a pod's containers has of it */
	if (own) {
		json_object_set(json_object_get(json_object_get(data, "cpu"), "usage"), "total",
				json_object_get(own, "cpu_ns"));
		json_object_set(usage, "usage", json_object_get(own, "memory"));
	}
	/* without a group: at least the guest's own pages */
	if (!json_integer_value(json_object_get(usage, "usage")))
		json_object_set(usage, "usage", json_object_get(inside, "memory"));
	return data;
}

/* "5s", "500ms", "1m30s", as Go has them. False if it is none. */
static bool parse_interval(const char *text, struct timespec *ret)
{
	static const struct {
		const char *unit;
		double seconds;
	} units[] = { { "ms", 1e-3 }, { "us", 1e-6 }, { "s", 1 }, { "m", 60 }, { "h", 3600 } };
	double sum = 0;

	for (const char *p = text; *p;) {
		char *end;
		double v = strtod(p, &end);
		unsigned i = 0;

		while (i < ARRAY_SIZE(units) && strncmp(end, units[i].unit, strlen(units[i].unit)) != 0)
			i++;
		if (end == p || i == ARRAY_SIZE(units))
			return false;
		sum += v * units[i].seconds;
		p = end + strlen(units[i].unit);
	}
	if (!(sum > 0) || sum > 1e9)
		return false;
	ret->tv_sec = (time_t)sum;
	ret->tv_nsec = (long)((sum - (double)ret->tv_sec) * 1e9);
	return true;
}

/* Until it has stopped. */
static int follow(struct statedir *s, struct timespec pause)
{
	json_int_t kills = -1;

	for (;;) {
		AUTO_FREE char *why = NULL;
		json_t *inside = ask_sentry(s, &why);
		json_int_t now = json_integer_value(json_object_get(inside, "oom_kills"));

		if (!inside)
			return 0;
		if (kills >= 0 && now > kills)
			print(s, "oom", NULL);
		kills = now;
		print(s, "stats", statistics(s, inside));
		json_decref(inside);
		(void)nanosleep(&pause, NULL); /* sooner does no harm */
	}
}

static int events(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	AUTO_FREE char *why = NULL;
	struct timespec pause = { .tv_sec = 5 };
	json_t *inside;

	(void)argc;
	if (!s)
		return 1;
	if (interval && !parse_interval(interval, &pause))
		return cli_fail("duration interval must be greater than 0: '%s'", interval);
	inside = ask_sentry(s, &why);
	if (!inside)
		return cli_fail("%s", why);
	if (!once) {
		json_decref(inside);
		return follow(s, pause);
	}
	print(s, "stats", statistics(s, inside));
	json_decref(inside);
	return 0;
}

static const struct opt events_opts[] = {
	{ "interval", 0, OPT_STR, &interval, "DURATION", "between statistics (default 5s)" },
	{ "stats", 0, OPT_FLAG, &once, NULL, "print statistics once" },
	{ 0 },
};

const struct command cmd_events = {
	.name = "events",
	.synopsis = "[options] ID",
	.summary = "print statistics and out-of-memory notices of a container",
	.details = "  A JSON object on each line: {\"type\": \"stats\" or \"oom\", \"id\", \"data\"}, until the\n"
		   "  container stops. CPU, I/O and memory usage are those of the whole sandbox, counted by the\n"
		   "  host's control groups; pids and limits are the container's own.",
	.opts = events_opts,
	.min_args = 1,
	.max_args = 1,
	.run = events,
};
