// SPDX-License-Identifier: Apache-2.0
/* checkpoint: an image of a running container, with runc's options. */
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cli.h"
#include "runtime/image_dir.h"

static struct {
	const char *image_path, *work_path, *parent_path, *cgroups_mode, *status_fd, *page_server;
	bool leave_running, pre_dump, lazy_pages, ignored;
	struct opt_list empty_ns;
} o;

static const struct opt checkpoint_opts[] = {
	{ "image-path", 0, OPT_STR, &o.image_path, "DIR", "where the image goes (default: checkpoint)" },
	{ "leave-running", 0, OPT_FLAG, &o.leave_running, NULL, "let the container go on afterwards" },
	{ "parent-path", 0, OPT_STR, &o.parent_path, "DIR",
	  "an earlier image, relative to the new one, whose pages need not be written again" },
	{ "pre-dump", 0, OPT_FLAG, &o.pre_dump, NULL, "the same as --leave-running" },
	{ "work-path", 0, OPT_STR, &o.work_path, "DIR", "accepted for compatibility" },
	{ "shell-job", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "tcp-established", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "tcp-skip-in-flight", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "ext-unix-sk", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "file-locks", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "link-remap", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "auto-dedup", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "manage-cgroups-mode", 0, OPT_STR, &o.cgroups_mode, "MODE", "accepted for compatibility" },
	{ "empty-ns", 0, OPT_LIST, &o.empty_ns, "NS", "accepted for compatibility" },
	{ "status-fd", 0, OPT_STR, &o.status_fd, "FD", "not supported" },
	{ "page-server", 0, OPT_STR, &o.page_server, "ADDRESS:PORT", "not supported" },
	{ "lazy-pages", 0, OPT_FLAG, &o.lazy_pages, NULL, "not supported" },
	{ 0 },
};

/* --parent-path is relative to the image, as runc has it. Heap. */
static char *parent_path(const char *image)
{
	if (o.parent_path[0] == '/')
		return kstrdup(o.parent_path);
	return kasprintf("%s/%s", image, o.parent_path);
}

/* Relative to an image that isn't there yet: without asking the file system about its last component. */
static char *resolve_parent(const char *image, char **ret_why)
{
	AUTO_FREE char *path = parent_path(image);
	const char *rest = o.parent_path;
	char *real;

	real = realpath(path, NULL);
	if (!real && o.parent_path[0] != '/' && !strncmp(rest, "../", 3)) {
		AUTO_FREE char *dir = kstrdup(image);
		char *slash = strrchr(dir, '/');
		AUTO_FREE char *beside = NULL;

		if (slash)
			*slash = 0;
		beside = kasprintf("%s/%s", slash ? dir : ".", rest + 3);
		real = realpath(beside, NULL);
	}
	if (!real)
		*ret_why = kasprintf("no image at --parent-path %s", o.parent_path);
	return real;
}

/* Nothing is left of the container but the image. */
static int end_container(struct statedir *s, struct sandbox_save *save)
{
	int r = cli_destroy(s, true);

	close(save->sock);
	return r ? 1 : 0;
}

static int checkpoint(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	const char *image = o.image_path ? o.image_path : "checkpoint";
	AUTO_FREE char *parent = NULL, *why = NULL;
	const char *parents[1];
	struct sandbox_save save = { .path = image, .parents = parents };

	(void)argc;
	if (!s)
		return 1;
	if (o.lazy_pages || o.page_server || o.status_fd)
		return cli_fail("checkpoint: --lazy-pages, --page-server and --status-fd are not supported");
	if (o.parent_path) {
		parent = resolve_parent(image, &why);
		if (!parent)
			return cli_fail("%s", why);
		parents[save.nparents++] = parent;
	}
	save.stay = !o.leave_running && !o.pre_dump;
	if (sandbox_save(s, &save, &why))
		return cli_fail("cannot checkpoint container %s: %s", s->id, why);
	json_decref(save.report);
	return save.stay ? end_container(s, &save) : 0;
}

const struct command cmd_checkpoint = {
	.name = "checkpoint",
	.synopsis = "[options] ID",
	.summary = "write an image of a running container, to be restored later",
	.details =
		"  Saves everything that the container consists of: its processes and what they are in the\n"
		"  middle of, their memory, the writable layer of its root, tmpfs, pipes and sockets with what\n"
		"  is in them, terminals. Then the container ends and is deleted, unless --leave-running is\n"
		"  given. It stands still for some milliseconds, whatever its size: memory is shared\n"
		"  copy-on-write with the image while that is written.\n"
		"  Bind mounts and the image of the root file system are not copied; `restore` needs the same.\n"
		"  The image appears at --image-path at once and whole, or not at all; when it cannot be\n"
		"  written the container goes on. With --parent-path only pages that changed since then are\n"
		"  written, and the earlier image must be kept.\n"
		"  An image holds the container's memory and files: its files have mode 0600.",
	.examples = "  holdfast checkpoint --image-path /var/lib/images/web-1 web\n"
		    "  holdfast checkpoint --leave-running --image-path b --parent-path ../a web",
	.opts = checkpoint_opts,
	.min_args = 1,
	.max_args = 1,
	.run = checkpoint,
};
