// SPDX-License-Identifier: Apache-2.0
/* debug: looking into a running sandbox. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/cli.h"
#include "runtime/control.h"

static bool stats;
static unsigned seconds = 5;
static const char *format;

struct line {
	const char *name;
	json_int_t n;
};

static int by_count(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	return x->n < y->n ? 1 : x->n > y->n ? -1 : strcmp(x->name, y->name);
}

/* Sum of the counters whose names begin with "host.". */
static json_int_t host_calls(json_t *counters)
{
	const char *name;
	json_int_t sum = 0;
	json_t *v;

	json_object_foreach(counters, name, v)
		if (!strncmp(name, "host.", 5))
			sum += json_integer_value(v);
	return sum;
}

static json_int_t print_calls(json_t *calls)
{
	size_t n = json_object_size(calls), i = 0;
	AUTO_FREE struct line *lines = kcalloc(n + 1, sizeof(*lines));
	json_int_t sum = 0;
	const char *name;
	json_t *v;

	json_object_foreach(calls, name, v)
		lines[i++] = (struct line){ name, json_integer_value(v) };
	qsort(lines, n, sizeof(*lines), by_count);
	for (i = 0; i < n; i++) {
		printf("%12lld  %s\n", (long long)lines[i].n, lines[i].name);
		sum += lines[i].n;
	}
	printf("%12lld  calls in all\n\n", (long long)sum);
	return sum;
}

static void print_stats(json_t *rep)
{
	json_t *counters = json_object_get(rep, "counters"), *v;
	json_int_t sum = print_calls(json_object_get(rep, "calls"));
	json_int_t host = host_calls(counters);
	const char *name;

	json_object_foreach(counters, name, v)
		printf("%12lld  %s\n", (long long)json_integer_value(v), name);
	printf("\n%12.3f  host calls for each call of the guest\n", sum ? (double)host / (double)sum : 0.0);
}

/* Counts for @seconds, or, with 0, until standard input ends; then says when it has begun. */
static void count_meanwhile(void)
{
	struct timespec pause = { .tv_sec = (time_t)seconds };
	char c;

	if (seconds) {
		while (nanosleep(&pause, &pause) && errno == EINTR)
			;
		return;
	}
	fputs("counting\n", stderr);
	while (read(0, &c, 1) > 0)
		;
}

static int show_stats(struct statedir *s)
{
	json_t *req = json_pack("{s:s}", "op", "counters"), *rep;
	AUTO_CLOSE int sock = control_connect(s->fd);
	const char *why;

	if (sock < 0) {
		json_decref(req);
		return cli_fail("container %s is not running", s->id);
	}
	rep = control_call(sock, req, NULL, 0);
	json_decref(req);
	why = json_string_value(json_object_get(rep, "error"));
	if (!rep || why) {
		int r = cli_fail("%s: %s", s->id, why ? why : "the sandbox has gone");

		json_decref(rep);
		return r;
	}
	json_decref(rep);
	count_meanwhile();
	shutdown(sock, SHUT_WR);
	rep = control_recv(sock, NULL, NULL);
	if (!rep)
		return cli_fail("%s: the sandbox has gone", s->id);
	if (format && !strcmp(format, "json")) {
		json_dumpf(rep, stdout, JSON_INDENT(2));
		putchar('\n');
	} else {
		print_stats(rep);
	}
	json_decref(rep);
	return 0;
}

static int debug(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = NULL;

	(void)argc;
	if (!stats)
		return cli_fail("debug: say what to show (--stats)");
	if (format && strcmp(format, "json") != 0 && strcmp(format, "table") != 0)
		return cli_fail("unknown format '%s'", format);
	s = cli_open(argv[0]);
	return s ? show_stats(s) : 1;
}

static const struct opt debug_opts[] = {
	{ "stats", 0, OPT_FLAG, &stats, NULL, "count calls, host calls and hand-overs for a while" },
	{ "seconds", 0, OPT_UINT, &seconds, "N", "how long (default: 5; 0: until standard input ends)" },
	{ "format", 'f', OPT_STR, &format, "FORMAT", "table (default) or json" },
	{ 0 },
};

const struct command cmd_debug = {
	.name = "debug",
	.synopsis = "--stats [options] ID",
	.summary = "look into a running sandbox",
	.details = "  --stats counts for some seconds which system calls the guest makes, and what serving them\n"
		   "  costs: host calls of the sentry, messages to the gofer, page faults, hand-overs by signal and\n"
		   "  by patched call site, and whether spinning for an answer paid off. Nothing is counted at other\n"
		   "  times.",
	.opts = debug_opts,
	.min_args = 1,
	.max_args = 1,
	.run = debug,
};
