// SPDX-License-Identifier: Apache-2.0
/* suspend and wake: sandboxes that exist without processes. */
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/cli.h"
#include "runtime/errno_text.h"
#include "runtime/image_store.h"
#include "runtime/park.h"

static const struct opt no_opts[] = { { 0 } };

/* Opens container @id and locks its store; NULL after a message. */
static struct statedir *open_locked(const char *id)
{
	AUTO(statedir_close) struct statedir *s = cli_open(id);
	int r = s ? store_lock(s) : -1;

	if (s && r)
		(void)cli_fail("cannot lock %s: %s", s->path, errno_text(-r));
	return r ? NULL : steal_ptr(&s);
}

static int suspend(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = open_locked(argv[0]);
	const char *status = s ? cli_status(s) : "";
	int r = 0;

	(void)argc;
	if (!s)
		return 1;
	if (!strcmp(status, "running"))
		r = park_suspend(s, true);
	else if (strcmp(status, "suspended") != 0)
		r = cli_fail("cannot suspend container %s that is not running: %s", s->id, status);
	store_unlock(s);
	return r;
}

const struct command cmd_suspend = {
	.name = "suspend",
	.synopsis = "ID",
	.summary = "save a container and release its memory and processes",
	.details =
		"  The container stays listed, as suspended, and goes on where it was with `wake`, or as soon as\n"
		"  `exec`, `attach` or `fork` need it. Its memory is in an image below the state directory; only\n"
		"  what changed since its last image is written.\n"
		"  When the image cannot be written the container goes on. poststop hooks run.",
	.examples = "  holdfast suspend agent && holdfast exec agent /bin/date    suspends and wakes it",
	.opts = no_opts,
	.min_args = 1,
	.max_args = 1,
	.run = suspend,
};

static int wake(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = open_locked(argv[0]);
	const char *status = s ? cli_status(s) : "";
	json_t *end;
	int r = 0;

	(void)argc;
	if (!s)
		return 1;
	end = statedir_load(s, "exit.json");
	if (!strcmp(status, "stopped") && json_is_integer(json_object_get(end, "status")))
		r = cli_fail("container %s has ended by itself: `rollback` takes it back to a snapshot", s->id);
	else if (!strcmp(status, "suspended") || !strcmp(status, "stopped"))
		r = park_wake(s, NULL);
	else if (strcmp(status, "running") != 0)
		r = cli_fail("cannot wake container %s: %s", s->id, status);
	json_decref(end);
	store_unlock(s);
	return r;
}

const struct command cmd_wake = {
	.name = "wake",
	.synopsis = "ID",
	.summary = "let a suspended container go on, or one whose host process was killed",
	.details =
		"  A suspended container goes on where it was. One that was killed from outside, or was running\n"
		"  when the host went down, goes on from its newest whole image, and this command says on\n"
		"  standard error from when that is. A running container is left alone.\n"
		"  Standard descriptors of its processes lead to /dev/null afterwards; `attach` connects to its\n"
		"  terminal. Hooks run as at a creation.",
	.opts = no_opts,
	.min_args = 1,
	.max_args = 1,
	.run = wake,
};
