// SPDX-License-Identifier: Apache-2.0
/* kill, delete: ending containers. */
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/cgroup.h"
#include "runtime/cli.h"

#define SIGNAL_MAX 64

static bool all, force;

/* "9", "KILL", "SIGKILL", "SIGRTMIN+3"; -1 if it is none. */
static int parse_signal(const char *s)
{
	char *end;
	long n;

	if (isdigit((unsigned char)s[0])) {
		n = strtol(s, &end, 10);
		return *end || n > SIGNAL_MAX ? -1 : (int)n;
	}
	if (!strncasecmp(s, "SIG", 3))
		s += 3;
	if (!strncasecmp(s, "RTMIN+", 6)) {
		n = strtol(s + 6, &end, 10);
		return *end || n < 0 || n > 30 ? -1 : 34 + (int)n;
	}
	for (int i = 1; i < SIGNAL_MAX; i++)
		if (sigabbrev_np(i) && !strcasecmp(sigabbrev_np(i), s))
			return i;
	return -1;
}

/* By somebody who uses the host's freezer; `pause` doesn't. */
static bool frozen(struct statedir *s)
{
	AUTO(cgroup_close) struct cgroup *g = cgroup_open(s);

	return cgroup_frozen(g);
}

static int kill_container(int argc, char **argv)
{
	int sig = argc > 1 ? parse_signal(argv[1]) : SIGTERM;
	AUTO(statedir_close) struct statedir *s = NULL;
	AUTO_FREE char *why = NULL;
	json_t *req, *rep;

	if (sig < 0)
		return cli_fail("unknown signal \"%s\"", argv[1]);
	s = cli_open(argv[0]);
	if (!s)
		return 1;
	if (frozen(s)) /* the sentry gets it when it is thawed, from the host */
		return cli_signal_sentry(s, sig) ? 0 : cli_fail("container not running");
	req = json_pack("{s:s, s:i, s:b}", "op", "kill", "signal", sig, "all", all);
	rep = cli_request(s, req, &why);
	json_decref(req);
	json_decref(rep);
	/* one that is gone has no process left that could get it: no failure for --all, as with runc */
	return rep || all ? 0 : cli_fail("%s", why);
}

static const struct opt kill_opts[] = {
	{ "all", 'a', OPT_FLAG, &all, NULL, "signal every process of the container" },
	{ 0 },
};

const struct command cmd_kill = {
	.name = "kill",
	.synopsis = "[options] ID [SIGNAL]",
	.summary = "send a signal (default TERM) to a container's first process",
	.details = "  SIGNAL is a number or a name, with or without SIG (9, KILL, SIGRTMIN+3). As on any\n"
		   "  Linux, the first process of a container doesn't die of a signal for which it has no\n"
		   "  handler; KILL ends it always, one that was created and not started, too.",
	.examples = "  holdfast kill web            # TERM\n"
		    "  holdfast kill --all web KILL",
	.opts = kill_opts,
	.min_args = 1,
	.max_args = 2,
	.run = kill_container,
};

static int delete(int argc, char **argv)
{
	AUTO_FREE char *why = NULL;
	AUTO(statedir_close) struct statedir *s = statedir_open(globals.root, argv[0], &why);

	(void)argc;
	if (!s)
		return force && !statedir_check_id(argv[0]) ? 0 : cli_fail("%s", why);
	return cli_destroy(s, force) ? 1 : 0;
}

static const struct opt delete_opts[] = {
	{ "force", 'f', OPT_FLAG, &force, NULL,
	  "kill it first if it runs; no error if there is none" },
	{ 0 },
};

const struct command cmd_delete = {
	.name = "delete",
	.synopsis = "[options] ID",
	.summary = "remove a stopped container",
	.details = "  Removes its state directory. With --force a container that runs, or whose creation\n"
		   "  never finished, is killed first, with all its processes.",
	.opts = delete_opts,
	.min_args = 1,
	.max_args = 1,
	.run = delete,
};
