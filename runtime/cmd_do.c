// SPDX-License-Identifier: Apache-2.0
/* do: one command in a throw-away sandbox over the host's own root. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cli.h"
#include "runtime/cmd_run.h"

static struct {
	const char *root, *cwd, *overlay, *overlay_dir;
	struct opt_list env;
	bool tty;
} o;

static const struct opt do_opts[] = {
	{ "rootfs", 0, OPT_STR, &o.root, "DIR", "use DIR as root instead of /" },
	{ "overlay", 0, OPT_STR, &o.overlay, "MODE", "where its writes stay: memory (default), disk, disk:SIZE" },
	{ "overlay-dir", 0, OPT_STR, &o.overlay_dir, "DIR", "where a layer on disk lies" },
	{ "cwd", 0, OPT_STR, &o.cwd, "DIR", "working directory (default: this one, or /)" },
	{ "env", 'e', OPT_LIST, &o.env, "NAME=VALUE", "set an environment variable (repeatable)" },
	{ "tty", 't', OPT_FLAG, &o.tty, NULL, "give it a terminal" },
	{ 0 },
};

static json_t *environment(void)
{
	static const char *const keep[] = { "PATH=", "HOME=", "TERM=", "LANG=", "LC_ALL=", "USER=" };
	json_t *env = json_array();

	for (char **e = environ; *e; e++)
		for (unsigned i = 0; i < ARRAY_SIZE(keep); i++)
			if (!strncmp(*e, keep[i], strlen(keep[i])))
				json_array_append_new(env, json_string(*e));
	for (unsigned i = 0; i < o.env.n; i++)
		json_array_append_new(env, json_string(o.env.v[i]));
	return env;
}

/* The default spec, but for this command: root with the usual capabilities, writable root. */
static json_t *make_spec(int argc, char **argv)
{
	json_t *j = spec_default(false);
	json_t *p = json_object_get(j, "process"), *args = json_array();
	AUTO_FREE char *cwd = o.cwd ? kstrdup(o.cwd) : o.root ? NULL : getcwd(NULL, 0);

	for (int i = 0; i < argc; i++)
		json_array_append_new(args, json_string(argv[i]));
	json_object_set_new(p, "args", args);
	json_object_set_new(p, "env", environment());
	json_object_set_new(p, "cwd", json_string(cwd ? cwd : "/"));
	json_object_set_new(p, "terminal", json_boolean(o.tty));
	json_object_set_new(p, "noNewPrivileges", json_false());
	json_object_del(p, "capabilities");
	json_object_del(p, "rlimits");
	json_object_set_new(j, "root",
			    json_pack("{s:s, s:b}", "path", o.root ? o.root : "/", "readonly", 0));
	json_array_append_new(json_object_get(j, "mounts"),
			      json_pack("{s:s, s:s, s:s, s:[s]}", "destination", "/run", "type",
					"tmpfs", "source", "tmpfs", "options", "mode=755"));
	json_array_append_new(json_object_get(j, "mounts"),
			      json_pack("{s:s, s:s, s:s, s:[s]}", "destination", "/tmp", "type",
					"tmpfs", "source", "tmpfs", "options", "mode=1777"));
	return j;
}

static int do_command(int argc, char **argv)
{
	struct boot_request b = { .console_fd = -1, .overlay = OVERLAY_MEMORY };
	AUTO_FREE char *why = NULL;
	AUTO_FREE char *text = NULL;
	AUTO_FREE char *id = NULL;
	json_t *j;
	uint32_t n = 0;

	if (getrandom(&n, sizeof(n), 0) != sizeof(n))
		return cli_fail("no random numbers");
	id = kasprintf("do-%d-%08x", getpid(), n);
	j = make_spec(argc, argv);
	text = json_dumps(j, JSON_COMPACT);
	json_decref(j);
	b.spec = spec_parse(text, strlen(text), "do", &why);
	if (!b.spec)
		return cli_fail("%s", why);
	if (o.overlay)
		spec_annotate(b.spec, OVERLAY_ANNOTATION, o.overlay);
	if (o.overlay_dir)
		spec_annotate(b.spec, OVERLAY_DIR_ANNOTATION, o.overlay_dir);
	if (overlay_of(b.spec, OVERLAY_MEMORY, &b.overlay, &why))
		return cli_fail("%s", why);
	b.id = id;
	b.bundle = getcwd(NULL, 0);
	if (!b.bundle)
		b.bundle = kstrdup("/");
	return container_run(&b, false, true);
}

const struct command cmd_do = {
	.name = "do",
	.synopsis = "[options] COMMAND [ARG...]",
	.summary = "run a command in a throw-away sandbox over the host's root",
	.details = "  The command sees the host's files, read-only below a layer that takes its writes and\n"
		   "  is thrown away at its end; /tmp and /run are fresh. It has no network, is root inside,\n"
		   "  and gets PATH, HOME, TERM, USER and the language of the environment.\n"
		   "  Unlike a container's, the sandbox ends with this command, whatever ends it. SIGINT,\n"
		   "  SIGTERM, SIGHUP and SIGQUIT are passed on, and end a program that doesn't handle them.",
	.status = "  The program's; 128+n when signal n ended it; 1 when it could not be started.",
	.examples = "  holdfast do make test             # what does it do to my files? nothing\n"
		    "  holdfast do -t --rootfs ./debian /bin/bash\n"
		    "  holdfast --strace --log trace do ls /",
	.opts = do_opts,
	.min_args = 1,
	.max_args = -1,
	.passthrough = true,
	.run = do_command,
};
