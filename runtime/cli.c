// SPDX-License-Identifier: Apache-2.0
/* Global options and the table of commands. */
#include "runtime/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "platform/platform.h"
#include "runtime/errno_text.h"
#include "runtime/extra_fds.h"

struct globals globals;

static const struct command *const commands[] = {
	&cmd_run,  &cmd_do,	&cmd_create, &cmd_start, &cmd_exec, &cmd_state,	   &cmd_list,
	&cmd_ps,   &cmd_kill, &cmd_wait,   &cmd_delete, &cmd_spec, &cmd_features, &cmd_debug,
	&cmd_pause, &cmd_resume, &cmd_update, &cmd_events,
	&cmd_checkpoint, &cmd_restore, &cmd_fork,
	&cmd_suspend, &cmd_wake, &cmd_snapshot, &cmd_snapshots, &cmd_rollback, &cmd_prune, &cmd_tree, &cmd_cp,
	&cmd_attach, &cmd_keep, &cmd_export, &cmd_import,
};

static const struct opt global_opts[] = {
	{ "root", 0, OPT_STR, &globals.root, "DIR", "state directory (/run/holdfast)" },
	{ "log", 0, OPT_STR, &globals.log, "FILE", "append log records to FILE" },
	{ "log-format", 0, OPT_STR, &globals.log_format, "FORMAT", "text or json" },
	{ "debug", 0, OPT_FLAG, &globals.debug, NULL, "log more" },
	{ "platform", 0, OPT_STR, &globals.platform, "NAME", "how guest code runs: auto, trap, ptrace" },
	{ "network", 0, OPT_STR, &globals.network, "MODE", "none" },
	{ "strace", 0, OPT_FLAG, &globals.strace, NULL,
	  "log every system call of the guest, decoded" },
	{ "rootless", 0, OPT_STR, &globals.rootless, "MODE", "auto, true or false (as in runc)" },
	{ "systemd-cgroup", 0, OPT_FLAG, &globals.systemd_cgroup, NULL,
	  "accepted for compatibility" },
	{ "version", 'v', OPT_FLAG, &globals.version, NULL, "print the version" },
	{ 0 },
};

static char unlogged[1024]; /* what went wrong before there was a log: options are read first */

int cli_fail(const char *fmt, ...)
{
	char buf[sizeof(unlogged)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	fprintf(stderr, "holdfast: %s\n", buf);
	if (log_fd() >= 0)
		log_error("%s", buf);
	else
		memcpy(unlogged, buf, sizeof(unlogged));
	return 1;
}

static void usage(void)
{
	printf("NAME\n  holdfast - run programs in a sandbox with a kernel of its own\n\n"
	       "SYNOPSIS\n  holdfast [global options] COMMAND [options] [arguments]\n\nCOMMANDS\n");
	for (unsigned i = 0; i < ARRAY_SIZE(commands); i++)
		printf("  %-10s %s\n", commands[i]->name, commands[i]->summary);
	printf("\nGLOBAL OPTIONS\n");
	opts_print(global_opts);
	printf("\n  `holdfast COMMAND --help` describes a command.\n"
	       "\nDESCRIPTION\n"
	       "  holdfast runs programs that nobody has vetted. Their system calls are answered by a\n"
	       "  kernel of their own, an unprivileged process of this host, never by the host's; their\n"
	       "  files come from a second process that can reach nothing else. The sandbox belongs to\n"
	       "  no session: it outlives the command that made it, and is found again by its ID below\n"
	       "  the state directory.\n"
	       "  The command line is that of an OCI runtime (runc), so containerd, Docker and Podman\n"
	       "  can be told to use it. `holdfast do` needs no bundle and is the quickest way to try.\n"
	       "\nENVIRONMENT\n"
	       "  XDG_RUNTIME_DIR  for users other than root: the state directory is below it\n"
	       "\nFILES\n"
	       "  /run/holdfast/ID          state of a container: state.json, exit.json, control.sock, log\n"
	       "  BUNDLE/config.json        what to run, as in the OCI runtime specification\n"
	       "\nEXIT STATUS\n"
	       "  That of the program for run, do and exec; else 0, or 1 after an error. An error is one\n"
	       "  line on standard error and the last record of --log.\n");
}

static int open_log(void)
{
	enum log_format f = LOG_TEXT;
	int fd = -1;

	if (globals.log_format && !strcmp(globals.log_format, "json"))
		f = LOG_JSON;
	else if (globals.log_format && strcmp(globals.log_format, "text") != 0)
		return cli_fail("unknown log format '%s'", globals.log_format);
	if (globals.log) {
		fd = open(globals.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
		if (fd < 0)
			return cli_fail("cannot open log %s: %s", globals.log, errno_text(errno));
	}
	log_init(fd, f, globals.debug ? LOG_DEBUG : LOG_WARN, "");
	return 0;
}

/* The state directory as an absolute path: a daemonised part of us may have another cwd. */
static int resolve_root(void)
{
	AUTO_FREE char *cwd = NULL;

	if (!globals.root)
		globals.root = statedir_default_root();
	if (globals.root[0] == '/')
		return 0;
	cwd = getcwd(NULL, 0);
	if (!cwd)
		return cli_fail("cannot read the current directory: %s", errno_text(errno));
	globals.root = kasprintf("%s/%s", cwd, globals.root);
	return 0;
}

static int run_command(const struct command *c, int argc, char **argv)
{
	int n = opts_parse(c->opts, argc, argv, c->passthrough);

	/* Callers leak descriptors; none may reach a process that we leave behind, but those that are the
	 * container's. */
	(void)close_range(3 + (c->preserve_fds ? extra_fds_given(*c->preserve_fds) : 0), ~0U, 0);
	if (open_log() || resolve_root())
		return 1;
	if (n == -2) {
		command_help(c);
		return 0;
	}
	if (n < 0) {
		if (log_fd() >= 0)
			log_error("%s", unlogged);
		return 1;
	}
	if (n < c->min_args || (c->max_args >= 0 && n > c->max_args))
		return cli_fail("%s: wrong number of arguments; usage: holdfast %s %s", c->name,
				c->name, c->synopsis);
	return c->run(n, argv);
}

int cli_main(int argc, char **argv)
{
	int n = opts_parse(global_opts, argc, argv, true);

	if (n == -2 || (n >= 1 && !strcmp(argv[0], "help"))) {
		usage();
		return 0;
	}
	if (n < 0)
		return 1;
	if (globals.version) {
		printf("holdfast version %s\nspec: %s\n", HOLDFAST_VERSION, OCI_SPEC_VERSION);
		return 0;
	}
	if (n == 0) {
		usage();
		return 1;
	}
	if (globals.platform && !platform_known(globals.platform))
		return cli_fail("unknown platform '%s'", globals.platform);
	if (globals.network && strcmp(globals.network, "none") != 0)
		return cli_fail("network mode '%s' is not available; only 'none' is",
				globals.network);
	for (unsigned i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(argv[0], commands[i]->name))
			return run_command(commands[i], n - 1, argv + 1);
	if (open_log())
		return 1;
	return cli_fail("unknown command '%s' (see holdfast --help)", argv[0]);
}
