// SPDX-License-Identifier: Apache-2.0
/* fork: live branches of a running container. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cli.h"
#include "runtime/errno_text.h"
#include "runtime/image_store.h"
#include "runtime/isolate.h"
#include "runtime/park.h"
#include "runtime/restore.h"

#define BRANCHES_MAX 1000u
#define FREE_ID_TRIES 10000u

static struct {
	unsigned n;
	const char *hostname, *machine_id;
} o;

static const struct opt fork_opts[] = {
	{ "count", 'n', OPT_UINT, &o.n, "N", "make N branches (default: 1)" },
	{ "hostname", 0, OPT_STR, &o.hostname, "NAME", "hostname of the branches (default: the same)" },
	{ "machine-id", 0, OPT_STR, &o.machine_id, "ID|random",
	  "/etc/machine-id of the branches (default: the same; random: one each)" },
	{ 0 },
};

/* Names for branches: NEWID, or NEWID-1 ... for several; without one ID-1 ..., the first that is free. */
static char *branch_id(const char *id, const char *newid, unsigned i, unsigned *from)
{
	if (newid)
		return o.n > 1 ? kasprintf("%s-%u", newid, i + 1) : kstrdup(newid);
	for (; *from < FREE_ID_TRIES; (*from)++) {
		AUTO_FREE char *name = kasprintf("%s-%u", id, *from);
		AUTO_FREE char *path = kasprintf("%s/%s", globals.root, name);

		if (access(path, F_OK) != 0)
			return steal_ptr(&name);
	}
	return NULL;
}

/* A branch @id of container @of, which was at image @head (NULL: it has none). */
static int branch(const struct image_source *src, const char *of, const char *head, const char *id)
{
	AUTO(statedir_close) struct statedir *s = NULL;
	AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int stdio[3] = { null, null, null };
	struct boot_request b;

	if (restore_prepare(&b, id, NULL, src) || restore_rename(&b, o.hostname) ||
	    restore_machine_id(&b, o.machine_id))
		return 1;
	b.stdio = stdio;
	if (b.spec->process.terminal)
		b.console_fd = restore_no_console();
	if (container_boot(&b, &s))
		return 1;
	if (b.console_fd >= 0)
		close(b.console_fd);
	if (container_begin(s)) {
		(void)cli_destroy(s, true); /* the first failure is what is reported */
		return 1;
	}
	store_came_from(s, of, head);
	printf("%s\n", id);
	return 0;
}

static int fork_container(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = park_open_awake(argv[0]);
	AUTO(image_close) struct image_source *src = NULL;
	AUTO_FREE char *why = NULL;
	json_t *lineage = NULL;
	const char *head;
	unsigned from = 1;
	int r = 0;

	if (!s)
		return 1;
	o.n = o.n ? o.n : 1;
	if (o.n > BRANCHES_MAX)
		return cli_fail("at most %u branches at once", BRANCHES_MAX);
	isolate_raise_nofile(); /* one for each of its memory files */
	src = sandbox_branch(s, &why);
	if (!src)
		return cli_fail("cannot fork container %s: %s", s->id, why);
	lineage = store_lineage(s);
	head = json_string_value(json_object_get(lineage, "head"));
	for (unsigned i = 0; i < o.n && !r; i++) {
		AUTO_FREE char *id = branch_id(s->id, argc > 1 ? argv[1] : NULL, i, &from);

		r = id ? branch(src, s->id, head, id) : cli_fail("no free id for a branch of %s", s->id);
	}
	json_decref(lineage);
	return r;
}

const struct command cmd_fork = {
	.name = "fork",
	.synopsis = "[-n N] ID [NEWID]",
	.summary = "branch a running container: both go on",
	.details =
		"  Makes a copy of container ID, or N copies, that goes on from this moment with everything it\n"
		"  has: processes, memory, files. ID itself goes on as well; it stands still for some\n"
		"  milliseconds. Nothing is copied but what either side writes afterwards.\n"
		"  A branch gets fresh randomness. Bind mounts are shared with the host, and so between\n"
		"  branches. Terminal and standard descriptors of the branch are connected to nobody.\n"
		"  Prints the id of each branch: NEWID (NEWID-1, NEWID-2 ... for several), or ID-1, ID-2 ...",
	.examples = "  holdfast fork agent attempt      one branch\n"
		    "  holdfast fork -n 3 agent idea    idea-1, idea-2, idea-3",
	.opts = fork_opts,
	.min_args = 1,
	.max_args = 2,
	.run = fork_container,
};
