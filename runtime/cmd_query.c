// SPDX-License-Identifier: Apache-2.0
/* state, list, ps, wait: looking at containers. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/cgroup.h"
#include "runtime/cli.h"
#include "runtime/control.h"
#include "runtime/errno_text.h"

static const char *format;
static bool quiet;

static const struct opt no_opts[] = { { 0 } };

/* state.json with what can have changed since filled in. New reference. */
static json_t *current_state(struct statedir *s)
{
	json_t *st = statedir_load(s, "state.json");
	const char *status = cli_status(s);

	if (!st)
		st = json_pack("{s:s, s:s, s:s}", "ociVersion", OCI_SPEC_VERSION, "id", s->id, "bundle",
			       "");
	json_object_set_new(st, "status", json_string(status));
	if (!strcmp(status, "stopped") || !strcmp(status, "suspended"))
		json_object_set_new(st, "pid", json_integer(0));
	json_object_del(st, "hooks");
	json_object_del(st, "creating");
	json_object_del(st, "sentry_pid");
	json_object_del(st, "sentry_start");
	return st;
}

static void print_json(json_t *j)
{
	json_dumpf(j, stdout, JSON_INDENT(2));
	putchar('\n');
}

static int state(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	json_t *st;

	(void)argc;
	if (!s)
		return 1;
	st = current_state(s);
	print_json(st);
	json_decref(st);
	return 0;
}

const struct command cmd_state = {
	.name = "state",
	.synopsis = "ID",
	.summary = "print a container's state as JSON",
	.details = "  The runtime-spec's state object: ociVersion, id, status (created, running, stopped,\n"
		   "  and, beyond it, paused and suspended),\n"
		   "  pid (of the sandbox, on the host; 0 when stopped), bundle, annotations; and rootfs,\n"
		   "  created and owner as runc has them. A sandbox that was killed shows as stopped.",
	.opts = no_opts,
	.min_args = 1,
	.max_args = 1,
	.run = state,
};

static void list_one(const char *root, const char *id, void *arg)
{
	AUTO_FREE char *why = NULL;
	AUTO(statedir_close) struct statedir *s = statedir_open(root, id, &why);
	json_t *st;

	if (!s)
		return;
	st = current_state(s);
	if (quiet)
		printf("%s\n", id);
	else if (arg)
		json_array_append(arg, st);
	else
		printf("%-24s %-8lld %-10s %-40s %-22s %s\n", id,
		       (long long)json_integer_value(json_object_get(st, "pid")),
		       json_string_value(json_object_get(st, "status")),
		       json_string_value(json_object_get(st, "bundle")),
		       json_string_value(json_object_get(st, "created")) ?: "",
		       json_string_value(json_object_get(st, "owner")) ?: "");
	json_decref(st);
}

static int list(int argc, char **argv)
{
	json_t *all = NULL;
	int r;

	(void)argc;
	(void)argv;
	if (format && !strcmp(format, "json"))
		all = json_array();
	else if (format && strcmp(format, "table") != 0)
		return cli_fail("unknown format '%s'", format);
	else if (!quiet)
		printf("%-24s %-8s %-10s %-40s %-22s %s\n", "ID", "PID", "STATUS", "BUNDLE",
		       "CREATED", "OWNER");
	r = statedir_each(globals.root, list_one, all);
	if (r)
		return cli_fail("cannot read %s: %s", globals.root, errno_text(-r));
	if (all)
		print_json(all);
	json_decref(all);
	return 0;
}

static const struct opt list_opts[] = {
	{ "format", 'f', OPT_STR, &format, "FORMAT", "table (default) or json" },
	{ "quiet", 'q', OPT_FLAG, &quiet, NULL, "only ids" },
	{ 0 },
};

const struct command cmd_list = {
	.name = "list",
	.synopsis = "[options]",
	.summary = "list containers",
	.details = "  All containers below the state directory, in order of their ids: pid on the host (0 when\n"
		   "  stopped), status, bundle, time of creation, owner. In JSON each is what `state` prints.",
	.opts = list_opts,
	.max_args = 0,
	.run = list,
};

/* As runc: numbers alone, of the processes in the container's cgroup. Without one: the sandbox's first. */
static void print_host_pids(struct statedir *s)
{
	AUTO(cgroup_close) struct cgroup *g = cgroup_open(s);
	json_t *pids = cgroup_pids(g), *st = statedir_load(s, "state.json");

	if (!json_array_size(pids) && json_object_get(st, "pid"))
		json_array_append(pids, json_object_get(st, "pid"));
	json_dumpf(pids, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(pids);
	json_decref(st);
}

static int ps(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	AUTO_FREE char *why = NULL;
	json_t *req, *rep, *p;
	size_t i;

	(void)argc;
	if (!s)
		return 1;
	req = json_pack("{s:s}", "op", "ps");
	rep = cli_request(s, req, &why);
	json_decref(req);
	if (!rep)
		return cli_fail("%s: %s", s->id, why);
	if (format && !strcmp(format, "json")) {
		print_host_pids(s);
	} else {
		printf("%8s  %s\n", "PID", "COMMAND");
		json_array_foreach(json_object_get(rep, "processes"), i, p)
			printf("%8lld  %s\n",
			       (long long)json_integer_value(json_object_get(p, "pid")),
			       json_string_value(json_object_get(p, "comm")) ?: "?");
	}
	json_decref(rep);
	return 0;
}

static const struct opt ps_opts[] = {
	{ "format", 'f', OPT_STR, &format, "FORMAT", "table (default) or json" },
	{ 0 },
};

const struct command cmd_ps = {
	.name = "ps",
	.synopsis = "[options] ID [PS-OPTION...]",
	.summary = "list a container's processes",
	.details = "  The table shows the container's processes with the pids that it sees itself. In JSON it is\n"
		   "  an array of the pids that the sandbox has on the host, as runc prints it. Options of\n"
		   "  ps(1) behind ID are ignored.",
	.opts = ps_opts,
	.min_args = 1,
	.max_args = -1,
	.passthrough = true,
	.run = ps,
};

static int wait_container(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	AUTO_FREE char *why = NULL;
	json_t *req, *rep;
	int status;

	(void)argc;
	if (!s)
		return 1;
	req = json_pack("{s:s}", "op", "wait");
	rep = cli_request(s, req, &why);
	status = rep ? (int)json_integer_value(json_object_get(rep, "status")) :
		       cli_exit_status(s);
	json_decref(req);
	json_decref(rep);
	return status;
}

const struct command cmd_wait = {
	.name = "wait",
	.synopsis = "ID",
	.summary = "wait for a container's end and exit with its status",
	.details = "  Returns at once for one that has stopped.",
	.status = "  The status of its first process (128+n for signal n); 255 when the sandbox was killed\n"
		  "  and left none; 1 when there is no such container.",
	.opts = no_opts,
	.min_args = 1,
	.max_args = 1,
	.run = wait_container,
};
