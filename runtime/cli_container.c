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
#include "runtime/cli.h"
#include "runtime/control.h"

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

const char *cli_status(struct statedir *s)
{
	static const char *const known[] = { "created", "running", "stopped" };
	AUTO_FREE char *why = NULL;
	json_t *req = json_pack("{s:s}", "op", "state");
	json_t *rep = cli_request(s, req, &why);
	const char *status = json_string_value(json_object_get(rep, "status"));
	const char *ret = "stopped";

	for (unsigned i = 0; status && i < ARRAY_SIZE(known); i++)
		if (!strcmp(status, known[i]))
			ret = known[i];
	json_decref(req);
	json_decref(rep);
	return ret;
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

/* Kills the process that state.json names, if it still is that process, and waits for its end. */
static void kill_sentry(struct statedir *s)
{
	json_t *st = statedir_load(s, "state.json");
	pid_t pid = (pid_t)json_integer_value(json_object_get(st, "sentry_pid"));
	long long start = json_integer_value(json_object_get(st, "sentry_start"));
	int pidfd;

	json_decref(st);
	if (pid <= 0)
		return;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return;
	/* Pids are reused; the descriptor holds on to the process that is looked at. */
	if (cli_start_time(pid) == start && syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) == 0) {
		struct pollfd p = { .fd = pidfd, .events = POLLIN };

		(void)poll(&p, 1, KILL_WAIT_MS); /* a process that won't die shows below */
	}
	close(pidfd);
}

int cli_destroy(struct statedir *s, bool force)
{
	int r;

	if (!force && strcmp(cli_status(s), "stopped") != 0)
		return cli_fail("cannot delete container %s that is not stopped", s->id), -1;
	kill_sentry(s); /* a stopped one may be about to end, still */
	r = statedir_remove(s);
	if (r)
		return cli_fail("cannot remove %s: %s", s->path, strerror(-r)), -1;
	return 0;
}
