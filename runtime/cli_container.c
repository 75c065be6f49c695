// SPDX-License-Identifier: Apache-2.0
/* What the commands share: finding a container, asking its sentry, taking it down. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cgroup.h"
#include "runtime/cli.h"
#include "runtime/control.h"
#include "runtime/errno_text.h"
#include "runtime/hooks.h"
#include "runtime/image_store.h"

#define KILL_WAIT_MS 10000 /* for a killed sentry to be gone */

struct statedir *cli_open(const char *id)
{
	AUTO_FREE char *why = NULL;
	struct statedir *s = statedir_open(globals.root, id, &why);

	if (!s)
		(void)cli_fail("%s", why);
	return s;
}

json_t *cli_request(struct statedir *s, json_t *req, char **ret_why)
{
	AUTO_CLOSE int sock = control_connect(s->fd);
	json_t *rep;

	if (sock < 0) {
		*ret_why = kstrdup("container not running");
		return NULL;
	}
	rep = control_call(sock, req, NULL, 0);
	if (rep && json_object_get(rep, "error")) {
		*ret_why = kstrdup(json_string_value(json_object_get(rep, "error")) ?: "error");
		json_decref(rep);
		return NULL;
	}
	if (!rep)
		*ret_why = kstrdup("container not running");
	return rep;
}

/* While it is made, hooks run that may ask; the sentry answers nobody yet. */
static bool being_created(struct statedir *s)
{
	json_t *st = statedir_load(s, "state.json");
	pid_t pid = (pid_t)json_integer_value(json_object_get(st, "sentry_pid"));
	bool ret = json_is_true(json_object_get(st, "creating")) &&
		   json_integer_value(json_object_get(st, "sentry_start")) == cli_start_time(pid);

	json_decref(st);
	return ret;
}

const char *cli_status(struct statedir *s)
{
	static const char *const known[] = { "created", "running", "paused", "stopped" };
	AUTO(cgroup_close) struct cgroup *g = cgroup_open(s);
	AUTO_FREE char *why = NULL;
	const char *status, *ret = "stopped";
	json_t *req, *rep;

	if (being_created(s))
		return "creating";
	if (cgroup_frozen(g)) /* by somebody else: the sentry couldn't answer */
		return "paused";
	req = json_pack("{s:s}", "op", "state");
	rep = cli_request(s, req, &why);
	status = json_string_value(json_object_get(rep, "status"));
	for (unsigned i = 0; status && i < ARRAY_SIZE(known); i++)
		if (!strcmp(status, known[i]))
			ret = known[i];
	json_decref(req);
	json_decref(rep);
	return !status && store_suspended(s) ? "suspended" : ret;
}

int cli_exit_status(struct statedir *s)
{
	json_t *e = statedir_load(s, "exit.json");
	json_t *v = json_object_get(e, "status");
	int status = json_is_integer(v) ? (int)json_integer_value(v) : 255;

	json_decref(e);
	return status & 0xff;
}

long long cli_start_time(pid_t pid)
{
	AUTO_FREE char *path = kasprintf("/proc/%d/stat", pid);
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	char buf[1024];
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf) - 1);
	char *p;

	if (n <= 0)
		return 0;
	buf[n] = 0;
	/* man 5 proc: field 22; the second one may contain blanks and brackets. */
	p = strrchr(buf, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoll(p, NULL, 10) : 0;
}

/* Pids are reused; the descriptor holds on to the one that was looked at. */
int cli_open_sentry(struct statedir *s)
{
	json_t *st = statedir_load(s, "state.json");
	pid_t pid = (pid_t)json_integer_value(json_object_get(st, "sentry_pid"));
	long long start = json_integer_value(json_object_get(st, "sentry_start"));
	AUTO_CLOSE int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	json_decref(st);
	return pidfd >= 0 && cli_start_time(pid) == start ? steal_fd(&pidfd) : -1;
}

bool cli_signal_sentry(struct statedir *s, int sig)
{
	AUTO_CLOSE int pidfd = cli_open_sentry(s);

	return pidfd >= 0 && syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) == 0;
}

/* Kills the sentry and waits for its end. */
static void kill_sentry(struct statedir *s)
{
	AUTO_CLOSE int pidfd = cli_open_sentry(s);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	AUTO(cgroup_close) struct cgroup *g = cgroup_open(s);

	if (pidfd < 0 || syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0))
		return;
	cgroup_thaw(g); /* who is frozen can't die */
	(void)poll(&p, 1, KILL_WAIT_MS); /* a process that won't die shows below */
}

int cli_end_processes(struct statedir *s)
{
	int r;

	kill_sentry(s);
	r = cgroup_remove(s);
	return r ? cli_fail("cannot remove the cgroups of %s: %s", s->id, errno_text(-r)), -1 : 0;
}

int cli_destroy(struct statedir *s, bool force)
{
	const char *status = force ? "" : cli_status(s);
	AUTO_FREE char *why = NULL;
	json_t *saved;
	int r;

	/* one that was created and never started may go without force, as with runc */
	if (!force && strcmp(status, "stopped") != 0 && strcmp(status, "created") != 0)
		return cli_fail("cannot delete container %s that is not stopped: %s", s->id, status), -1;
	if (cli_end_processes(s)) /* a stopped one may be about to end, still */
		return -1;
	saved = statedir_load(s, "state.json");
	r = statedir_remove(s);
	if (r)
		(void)cli_fail("cannot remove %s: %s", s->path, errno_text(-r));
	else
		(void)hooks_run_saved(saved, HOOK_POSTSTOP, "stopped", &why); /* these never fail */
	json_decref(saved);
	return r ? -1 : 0;
}
