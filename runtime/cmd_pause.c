// SPDX-License-Identifier: Apache-2.0
/* pause, resume. */
#include "runtime/cli.h"

#include "base/alloc.h"

static const struct opt no_opts[] = { { 0 } };

static int ask(const char *id, const char *op)
{
	AUTO(statedir_close) struct statedir *s = cli_open(id);
	AUTO_FREE char *why = NULL;
	json_t *req, *rep;

	if (!s)
		return 1;
	req = json_pack("{s:s}", "op", op);
	rep = cli_request(s, req, &why);
	json_decref(req);
	json_decref(rep);
	return rep ? 0 : cli_fail("%s", why);
}

static int pause_container(int argc, char **argv)
{
	(void)argc;
	return ask(argv[0], "pause");
}

static int resume_container(int argc, char **argv)
{
	(void)argc;
	return ask(argv[0], "resume");
}

const struct command cmd_pause = {
	.name = "pause",
	.synopsis = "ID",
	.summary = "stop all processes of a container where they are",
	.details = "  Until `resume` none of them runs. Signals are kept for them; KILL ends them at once.\n"
		   "  Clocks go on. `state` says paused; exec needs --ignore-paused.",
	.opts = no_opts,
	.min_args = 1,
	.max_args = 1,
	.run = pause_container,
};

const struct command cmd_resume = {
	.name = "resume",
	.synopsis = "ID",
	.summary = "let a paused container go on",
	.details = "  Fails for one that isn't paused.",
	.opts = no_opts,
	.min_args = 1,
	.max_args = 1,
	.run = resume_container,
};
