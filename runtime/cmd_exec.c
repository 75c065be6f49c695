// SPDX-License-Identifier: Apache-2.0
/* exec: another process in a running container. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/cgroup.h"
#include "runtime/cli.h"
#include "runtime/cmd_run.h"
#include "runtime/console_socket.h"
#include "runtime/control.h"
#include "runtime/errno_text.h"
#include "runtime/image_store.h"
#include "runtime/isolate.h"
#include "runtime/park.h"

static struct {
	const char *cwd, *user, *process, *pid_file, *pidfd_socket, *console_socket, *apparmor, *label,
		*cgroup;
	struct opt_list env, gids, caps;
	bool tty, detach, no_new_privs, ignore_paused;
	unsigned preserve_fds;
} o;

static const struct opt exec_opts[] = {
	{ "tty", 't', OPT_FLAG, &o.tty, NULL, "give it a terminal" },
	{ "env", 'e', OPT_LIST, &o.env, "NAME=VALUE", "set an environment variable (repeatable)" },
	{ "cwd", 0, OPT_STR, &o.cwd, "DIR", "working directory" },
	{ "user", 'u', OPT_STR, &o.user, "USER[:GROUP]",
	  "run as this user: numbers, or names of the container's /etc/passwd" },
	{ "additional-gids", 'g', OPT_LIST, &o.gids, "GID", "supplementary group (repeatable)" },
	{ "cap", 'c', OPT_LIST, &o.caps, "CAP", "add a capability (repeatable)" },
	{ "no-new-privs", 0, OPT_FLAG, &o.no_new_privs, NULL, "set no_new_privs" },
	{ "process", 'p', OPT_STR, &o.process, "FILE", "take the OCI process object from FILE" },
	{ "preserve-fds", 0, OPT_UINT, &o.preserve_fds, "N", "pass N descriptors on, from 3" },
	{ "detach", 'd', OPT_FLAG, &o.detach, NULL, "don't wait for its end" },
	{ "pid-file", 0, OPT_STR, &o.pid_file, "FILE", "write the process's pid there" },
	{ "pidfd-socket", 0, OPT_STR, &o.pidfd_socket, "PATH", "unix socket to send a pidfd of it to" },
	{ "console-socket", 0, OPT_STR, &o.console_socket, "PATH",
	  "unix socket to send the terminal's master to" },
	{ "apparmor", 0, OPT_STR, &o.apparmor, "PROFILE", "accepted with a warning: guests have no AppArmor" },
	{ "process-label", 0, OPT_STR, &o.label, "LABEL", "refused, as guests have no SELinux" },
	{ "cgroup", 0, OPT_STR, &o.cgroup, "PATH", "only \"/\": the container's own" },
	{ "ignore-paused", 0, OPT_FLAG, &o.ignore_paused, NULL, "in a paused container, too: runs on resume" },
	{ 0 },
};

/* A number or -1. */
static long parse_id(const char *s, const char **ret_end)
{
	char *end;
	unsigned long v;

	if (*s < '0' || *s > '9')
		return -1;
	v = strtoul(s, &end, 10);
	*ret_end = end;
	return v < UINT32_MAX ? (long)v : -1;
}

/* Later settings of a variable win. */
static void add_env(json_t *proc)
{
	json_t *env = json_object_get(proc, "env");

	if (!json_is_array(env)) {
		env = json_array();
		json_object_set_new(proc, "env", env);
	}
	for (unsigned i = 0; i < o.env.n; i++) {
		size_t n = strcspn(o.env.v[i], "=") + 1;
		size_t k = 0;

		while (k < json_array_size(env)) {
			if (!strncmp(json_string_value(json_array_get(env, k)) ?: "", o.env.v[i], n))
				json_array_remove(env, k);
			else
				k++;
		}
		json_array_append_new(env, json_string(o.env.v[i]));
	}
}

static void add_caps(json_t *proc)
{
	static const char *const sets[] = { "bounding", "effective", "permitted" };
	json_t *caps = json_object_get(proc, "capabilities");

	if (!o.caps.n)
		return;
	if (!caps) {
		caps = json_object();
		json_object_set_new(proc, "capabilities", caps);
	}
	for (unsigned s = 0; s < ARRAY_SIZE(sets); s++) {
		if (!json_is_array(json_object_get(caps, sets[s])))
			json_object_set_new(caps, sets[s], json_array());
		for (unsigned i = 0; i < o.caps.n; i++)
			json_array_append_new(json_object_get(caps, sets[s]),
					      json_string(o.caps.v[i]));
	}
}

/* The container's own process object, changed by the options. New reference. */
static json_t *process_from_options(struct statedir *s, int argc, char **argv)
{
	json_t *st = statedir_load(s, "state.json");
	AUTO_FREE char *path = kasprintf("%s/config.json",
					 json_string_value(json_object_get(st, "bundle")) ?: "");
	AUTO_FREE char *none = NULL;
	json_t *conf = spec_json_load(path, &none); /* without one there are defaults */
	json_t *proc = json_deep_copy(json_object_get(conf, "process"));
	json_t *args = json_array();

	json_decref(st);
	json_decref(conf);
	if (!json_is_object(proc)) {
		json_decref(proc);
		proc = json_pack("{s:s, s:[s]}", "cwd", "/", "env",
				 "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	}
	for (int i = 0; i < argc; i++)
		json_array_append_new(args, json_string(argv[i]));
	json_object_set_new(proc, "args", args);
	json_object_set_new(proc, "terminal", json_boolean(o.tty));
	if (o.cwd)
		json_object_set_new(proc, "cwd", json_string(o.cwd));
	if (o.no_new_privs)
		json_object_set_new(proc, "noNewPrivileges", json_true());
	add_env(proc);
	if (o.user && !json_is_object(json_object_get(proc, "user")))
		json_object_set_new(proc, "user", json_object()); /* who it is: the sentry finds out */
	for (unsigned i = 0; i < o.gids.n; i++) {
		json_t *u = json_object_get(proc, "user");
		const char *end = "";

		if (!json_is_array(json_object_get(u, "additionalGids")))
			json_object_set_new(u, "additionalGids", json_array());
		json_array_append_new(json_object_get(u, "additionalGids"),
				      json_integer(parse_id(o.gids.v[i], &end)));
	}
	add_caps(proc);
	return proc;
}

static json_t *process_from_file(void)
{
	AUTO_FREE char *why = NULL;
	json_t *proc = spec_json_load(o.process, &why);

	if (!proc)
		(void)cli_fail("%s", why);
	return proc;
}

static void send_resize(void *arg, unsigned rows, unsigned cols)
{
	json_t *req = json_pack("{s:i, s:i}", "rows", (int)rows, "cols", (int)cols);

	(void)control_send(*(int *)arg, req, NULL, 0); /* a size that got lost is no failure */
	json_decref(req);
}

static int open_console(struct attach **ret_a, int *ret_fd, unsigned *rows, unsigned *cols)
{
	AUTO_FREE char *why = NULL;

	if (o.console_socket) {
		int tty = console_socket_send(o.console_socket, &why);

		if (tty < 0)
			return cli_fail("%s", why);
		*ret_a = attach_begin(tty, tty, ret_fd, rows, cols);
		return *ret_a ? 0 : cli_fail("cannot use the terminal: %s", errno_text(errno));
	}
	if (o.detach)
		return cli_fail("a detached terminal needs --console-socket");
	*ret_a = attach_begin(0, 1, ret_fd, rows, cols);
	return *ret_a ? 0 : cli_fail("-t needs a terminal on standard input");
}

static void send_signal(void *arg, int sig)
{
	json_t *req = json_pack("{s:i}", "signal", sig);

	(void)control_send(*(int *)arg, req, NULL, 0); /* the process may be gone */
	json_decref(req);
}

/* Follows the process on @sock to its end: its exit status; 255 after a message if nobody tells it. */
static int follow(int sock, struct attach *a)
{
	json_t *rep = a ? attach_run(a, sock, send_resize, &sock) :
			  client_wait(sock, send_signal, &sock);
	json_t *v = json_object_get(rep, "status");
	bool told = json_is_integer(v);
	int status = told ? (int)json_integer_value(v) : 255;

	json_decref(rep);
	attach_end(a);
	if (!told)
		(void)cli_fail("exec: the sandbox ended before the process did, or was saved and stopped");
	return status;
}

static void leave_caller(struct attach *a)
{
	int null = a ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC);

	if (a) {
		attach_adopt(a);
		return;
	}
	for (int i = 0; i < 3; i++)
		(void)dup2(null, i); /* callers wait for these to be closed */
	(void)!chdir("/");           /* holds no directory of theirs */
}

/* --pid-file and --pidfd-socket. 0, or 1 after a message. */
static int tell_pid(pid_t pid)
{
	AUTO_FREE char *why = NULL;

	if (o.pid_file && write_pid_file(o.pid_file, pid))
		return 1;
	if (o.pidfd_socket && pidfd_socket_send(o.pidfd_socket, pid, &why))
		return cli_fail("%s", why);
	return 0;
}

/*
 * Leaves a process behind that stands for the guest's: its pid goes into the pid file, it ends with the
 * guest's status, passes signals on, and when it is killed so is the guest's process. That is what
 * callers do with the pid (they wait for it as subreapers, and kill it).
 */
static int leave_waiter(struct statedir *s, int sock, struct attach *a)
{
	AUTO(cgroup_close) struct cgroup *g = cgroup_open(s);
	AUTO_FREE char *why = NULL;
	int status;
	pid_t pid;

	if (!a)
		client_block_signals();
	fflush(NULL);
	pid = cgroup_fork(g, 0, &why);
	if (pid < 0)
		return cli_fail("%s", why), 255;
	if (pid == 0) {
		leave_caller(a);
		close(s->fd);
		_exit(waiter_confine() ? 255 : follow(sock, a));
	}
	if (tell_pid(pid)) {
		(void)kill(pid, SIGKILL); /* and the process with it */
		return 255;
	}
	if (o.detach)
		return 0;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static int exec_process(struct statedir *s, json_t *proc)
{
	AUTO_CLOSE int sock = park_connect(s);
	bool tty = json_is_true(json_object_get(proc, "terminal"));
	unsigned rows = 0, cols = 0;
	struct attach *a = NULL;
	int fds[3 + EXTRA_FDS_MAX] = { 0, 1, 2 };
	unsigned nfds = tty ? 1 : 3;
	AUTO_FREE char *bad = NULL;
	struct extra_fds extra;
	json_t *req, *rep;

	if (sock < 0)
		return cli_fail("exec failed: cannot exec in a stopped container"), 255;
	if (extra_fds_collect(proc, false, o.preserve_fds, &extra, &bad))
		return cli_fail("%s", bad), 255;
	if (tty && open_console(&a, &fds[0], &rows, &cols))
		return 255;
	if (!a)
		client_block_signals();
	req = json_pack("{s:s, s:s*, s:O, s:i, s:i, s:b, s:b}", "op", "exec", "user", o.user, "process", proc,
			"rows", (int)rows, "cols", (int)cols, "tied", o.detach && (o.pid_file || o.pidfd_socket),
			"ignore_paused", o.ignore_paused);
	memcpy(fds + nfds, extra.fd, extra.n * sizeof(fds[0]));
	rep = control_call(sock, req, fds, nfds + extra.n);
	if (!rep && store_suspended(s)) {
		/* We were in its queue when it was suspended: nothing has been started. */
		close(sock);
		sock = park_connect(s);
		rep = sock < 0 ? NULL : control_call(sock, req, fds, nfds + extra.n);
	}
	extra_fds_close(&extra);
	json_decref(req);
	if (tty)
		close(fds[0]);
	if (!rep || json_object_get(rep, "error")) {
		const char *why = json_string_value(json_object_get(rep, "error")) ?: "the sandbox died";

		attach_end(a);
		(void)cli_fail("exec failed: %s%s",
			       strncmp(why, "cannot exec in ", 15) ? "unable to start container process: " : "",
			       why);
		json_decref(rep);
		return 255;
	}
	json_decref(rep);
	if (a && o.console_socket)
		return leave_waiter(s, sock, a);
	if (o.detach)
		return o.pid_file || o.pidfd_socket ? leave_waiter(s, sock, NULL) : 0;
	if (tell_pid(getpid())) {
		attach_end(a);
		return 255;
	}
	return follow(sock, a);
}

static int exec(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	json_t *proc;
	int status;

	if (!s)
		return 255;
	if (argc < 2 && !o.process)
		return cli_fail("exec: no command given"), 255;
	proc = o.process ? process_from_file() : process_from_options(s, argc - 1, argv + 1);
	if (!proc)
		return 255;
	if (o.apparmor)
		json_object_set_new(proc, "apparmorProfile", json_string(o.apparmor));
	if (o.label)
		json_object_set_new(proc, "selinuxLabel", json_string(o.label));
	if (json_string_length(json_object_get(proc, "apparmorProfile")))
		log_warn("an AppArmor profile has no effect: the guest's kernel has no AppArmor");
	if (o.cgroup && o.cgroup[0] && strcmp(o.cgroup, "/") != 0) {
		json_decref(proc);
		return cli_fail("exec --cgroup %s: guest processes are in the container's cgroup", o.cgroup), 255;
	}
	status = exec_process(s, proc);
	json_decref(proc);
	return status;
}

const struct command cmd_exec = {
	.name = "exec",
	.preserve_fds = &o.preserve_fds,
	.synopsis = "[options] ID COMMAND [ARG...]",
	.summary = "run another process in a running container",
	.details =
		"  The process gets the container's environment, user and directory unless the options\n"
		"  say otherwise, and this command's standard descriptors, or a terminal with -t. Options\n"
		"  end at ID: what follows COMMAND is the command's.\n"
		"  While it waits, this command passes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and\n"
		"  SIGUSR2 on. If it is killed, the process goes on.\n"
		"  With --detach and --pid-file the pid is that of a small process of this host that stands\n"
		"  for the guest's: it ends with its status, and killing it kills the guest's process.",
	.status = "  The process's; 128+n when signal n ended it; 255 when it could not be started.",
	.examples = "  holdfast exec -t web /bin/sh\n"
		    "  holdfast exec --user postgres:postgres --cwd /var/lib/postgresql db psql",
	.opts = exec_opts,
	.min_args = 1,
	.max_args = -1,
	.passthrough = true,
	.run = exec,
};
