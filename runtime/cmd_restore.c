// SPDX-License-Identifier: Apache-2.0
/* restore: a container that goes on from an image, with runc's options. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cli.h"
#include "runtime/console_socket.h"
#include "runtime/errno_text.h"
#include "runtime/image_store.h"
#include "runtime/restore.h"

static struct {
	const char *image_path, *work_path, *bundle, *hostname, *machine_id, *pid_file, *console_socket, *cgroups_mode;
	const char *lsm_profile, *lsm_context;
	bool detach, verify, ignored, lazy_pages, keep;
	struct opt_list empty_ns;
} o;

static const struct opt restore_opts[] = {
	{ "image-path", 0, OPT_STR, &o.image_path, "DIR", "the image (default: checkpoint)" },
	{ "bundle", 'b', OPT_STR, &o.bundle, "DIR",
	  "bundle with config.json (default: what the container had)" },
	{ "hostname", 0, OPT_STR, &o.hostname, "NAME", "hostname from now on (default: what it had)" },
	{ "machine-id", 0, OPT_STR, &o.machine_id, "ID|random", "/etc/machine-id from now on (default: what it had)" },
	{ "detach", 'd', OPT_FLAG, &o.detach, NULL, "return once the container runs" },
	{ "pid-file", 0, OPT_STR, &o.pid_file, "FILE", "write the container's host pid there" },
	{ "console-socket", 0, OPT_STR, &o.console_socket, "PATH",
	  "unix socket to send the terminal's master to" },
	{ "keep", 0, OPT_FLAG, &o.keep, NULL, "don't delete the container after it exited" },
	{ "verify", 0, OPT_FLAG, &o.verify, NULL, "read all of its memory first and check the checksum" },
	{ "work-path", 0, OPT_STR, &o.work_path, "DIR", "accepted for compatibility" },
	{ "shell-job", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "tcp-established", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "tcp-close", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "ext-unix-sk", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "file-locks", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "link-remap", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "auto-dedup", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "no-pivot", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "no-subreaper", 0, OPT_FLAG, &o.ignored, NULL, "accepted for compatibility" },
	{ "manage-cgroups-mode", 0, OPT_STR, &o.cgroups_mode, "MODE", "accepted for compatibility" },
	{ "empty-ns", 0, OPT_LIST, &o.empty_ns, "NS", "accepted for compatibility" },
	{ "lsm-profile", 0, OPT_STR, &o.lsm_profile, "PROFILE", "accepted for compatibility" },
	{ "lsm-mount-context", 0, OPT_STR, &o.lsm_context, "CONTEXT", "accepted for compatibility" },
	{ "lazy-pages", 0, OPT_FLAG, &o.lazy_pages, NULL, "it always does" },
	{ 0 },
};

static const char *bundle(void)
{
	if (o.bundle)
		return o.bundle;
	return access("config.json", F_OK) == 0 ? "." : NULL;
}

/* Who is going to be at its terminal, if it has one: *ret_attach we, b->relay or --console-socket. */
static int prepare_terminal(struct boot_request *b, struct attach **ret_attach)
{
	AUTO_FREE char *why = NULL;
	int tty;

	if (!b->spec->process.terminal) {
		if (!o.detach)
			client_block_signals();
		return 0;
	}
	if (o.console_socket) {
		tty = console_socket_send(o.console_socket, &why);
		if (tty < 0)
			return cli_fail("%s", why);
		b->relay = attach_begin(tty, tty, &b->console_fd, &b->rows, &b->cols);
		return b->relay ? 0 : cli_fail("cannot use the terminal: %s", errno_text(errno));
	}
	if (o.detach) {
		b->console_fd = restore_no_console();
		return b->console_fd < 0 ? cli_fail("socketpair: %s", errno_text(errno)) : 0;
	}
	*ret_attach = attach_begin(0, 1, &b->console_fd, &b->rows, &b->cols);
	if (!*ret_attach)
		return cli_fail("a terminal is asked for, but standard input is none (use "
				"--console-socket)");
	return 0;
}

static int restore(int argc, char **argv)
{
	const char *path = o.image_path ? o.image_path : "checkpoint";
	AUTO_FREE char *why = NULL;
	AUTO(image_close) struct image_source *src = image_open(path, o.verify, &why);
	AUTO(statedir_close) struct statedir *s = NULL;
	char number[STORE_NUMBER_LEN + 1];
	struct attach *a = NULL;
	struct boot_request b;
	int status;

	(void)argc;
	if (!src)
		return cli_fail("%s", why);
	if (restore_prepare(&b, argv[0], bundle(), src) || restore_rename(&b, o.hostname) ||
	    restore_machine_id(&b, o.machine_id) || prepare_terminal(&b, &a))
		return 1;
	if (container_boot(&b, &s)) {
		attach_end(a);
		return 1;
	}
	image_id_hex(src->id, number);
	store_came_from(s, json_string_value(json_object_get(src->meta->json, "container")) ?: "", number);
	if ((o.pid_file && write_pid_file(o.pid_file, b.pid)) || (o.detach && container_begin(s))) {
		attach_end(a);
		(void)cli_destroy(s, true); /* the first failure is what is reported */
		return 1;
	}
	if (b.console_fd >= 0)
		close(b.console_fd);
	if (o.detach)
		return 0;
	status = container_follow(s, a, false);
	attach_end(a);
	if (!o.keep)
		(void)cli_destroy(s, true); /* has said why if it couldn't */
	return status;
}

const struct command cmd_restore = {
	.name = "restore",
	.synopsis = "[options] ID",
	.summary = "make a container that goes on from an image",
	.details =
		"  Makes container ID from what `checkpoint` wrote, any number of times, under any id. Every\n"
		"  process goes on where it was. Nothing is read but what is used: memory comes from the\n"
		"  image as it is touched, so the image must stay in place, unchanged, while the container\n"
		"  or an image made with --parent-path lives.\n"
		"  Standard descriptors and terminal are those of this command. Root file system and bind\n"
		"  mounts must be those that it had; a --bundle may say where they are now, and add some. Its\n"
		"  hostname, and the environment for later execs, are taken from there as well.\n"
		"  An image that is damaged, of an unknown version, or from a CPU with features that are\n"
		"  lacking here is refused, and nothing is left.",
	.status = "  That of the container's first process; 0 with --detach; 1 when it could not be restored.",
	.examples = "  holdfast restore --image-path /var/lib/images/web-1 --detach web-b",
	.opts = restore_opts,
	.min_args = 1,
	.max_args = 1,
	.run = restore,
};
