// SPDX-License-Identifier: Apache-2.0
/*
 * A container that joins the sandbox of a pod: no sentry is started, the one that runs is asked over its control
 * socket. With the request go the descriptors that a sentry gets at its start (runtime/boot.c): a gofer's
 * socket, a listener at the new container's own control.sock, its exit.json, its standard descriptors. From then
 * on every command finds the container in its own state directory as any other.
 *
 * Callers need a process for it that they can wait for and kill: the waiter. It holds a connection on which
 * it hears of the container's end, and whose end is the container's. It is there before the sentry is asked,
 * so that state.json has a pid from the beginning, and is in the pod's network namespace, where callers and hooks look
 * for one.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/cli.h"
#include "runtime/control.h"
#include "runtime/errno_text.h"
#include "runtime/isolate.h"
#include "runtime/launch_priv.h"

#define WAITER_SOCK 3
#define KILLED 137 /* nobody is left who would tell more */

/* On the connection on which we wait for its end. */
static void forward(void *arg, int sig)
{
	json_t *req = json_pack("{s:i}", "signal", sig);

	(void)arg;
	(void)control_send(WAITER_SOCK, req, NULL, 0); /* too late if it has stopped */
	json_decref(req);
}

/* Nothing of the launcher's stays open: callers wait for the ends of their pipes. */
static bool keep_only(int sock)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int high = fcntl(sock, F_DUPFD_CLOEXEC, 10);

	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return false;
	if (dup2(high, WAITER_SOCK) < 0)
		return false;
	(void)close_range(WAITER_SOCK + 1, ~0U, 0); /* it isn't refused */
	return chdir("/") == 0;
}

static void __noreturn wait_for_end(int sock, int netns)
{
	json_t *req = json_pack("{s:s, s:b, s:b}", "op", "wait", "tied", 1, "listens", 1), *rep = NULL;
	json_t *v;

	setsid();
	client_block_signals();
	if ((netns >= 0 && setns(netns, CLONE_NEWNET)) || !keep_only(sock) || waiter_confine())
		_exit(127);
	if (!control_send(WAITER_SOCK, req, NULL, 0))
		rep = client_wait(WAITER_SOCK, forward, NULL);
	v = json_object_get(rep, "status");
	_exit(json_is_integer(v) ? (int)json_integer_value(v) : KILLED);
}

/* The network namespace of the sandbox's sentry, or -1 where we may not enter it (plain users). */
static int open_netns(struct statedir *sandbox)
{
	json_t *st = statedir_load(sandbox, "state.json");
	AUTO_FREE char *path = kasprintf("/proc/%lld/ns/net",
					 (long long)json_integer_value(json_object_get(st, "sentry_pid")));

	json_decref(st);
	return geteuid() == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

/* Its pid, or -1 with *ret_why. */
static pid_t leave_waiter(const struct launch *l, char **ret_why)
{
	AUTO_CLOSE int sock = control_connect(l->dir->fd);
	AUTO_CLOSE int netns = open_netns(l->sandbox);
	pid_t pid;

	if (sock < 0) {
		*ret_why = kasprintf("cannot connect to %s: %s", l->dir->path, errno_text(-sock));
		return -1;
	}
	fflush(NULL);
	pid = cgroup_fork(l->cgroup, 0, ret_why);
	if (pid == 0)
		wait_for_end(sock, netns);
	return pid;
}

static void end(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/*
 * The gofer of the directories that the pod's containers may share and write into (emptyDir). It is in the sandbox's
 * cgroup, not the container's, and ends with the last container that uses it (container_volumes.c), or
 * at once when all of them are served by earlier ones already. *ret_client: the sentry's end; -1 when there are none.
 */
static int start_volumes(const struct launch *l, const struct attach_set *v, int log, int *ret_client, char **ret_why)
{
	AUTO(cgroup_close) struct cgroup *cgroup = cgroup_open(l->sandbox);
	struct launch of_sandbox = *l;
	int g[2];

	*ret_client = -1;
	if (!v->n)
		return 0;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, g)) {
		*ret_why = kasprintf("socketpair: %s", errno_text(errno));
		return -1;
	}
	AUTO_CLOSE int client = g[0];
	AUTO_CLOSE int server = g[1];
	of_sandbox.cgroup = cgroup;
	if (launch_spawn_gofer(&of_sandbox, server, log, v, ret_why) < 0)
		return -1;
	*ret_client = steal_fd(&client);
	return 0;
}

static int join_with(const struct launch *l, struct attach_set *a, pid_t *ret_pid, char **ret_why)
{
	pid_t waiter, gofer = -1;
	int g[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, g)) {
		*ret_why = kasprintf("socketpair: %s", errno_text(errno));
		return -1;
	}
	AUTO_CLOSE int client = g[0];
	AUTO_CLOSE int server = g[1];
	AUTO_CLOSE int volumes = -1;
	AUTO_CLOSE int sandbox = control_connect(l->sandbox->fd);
	AUTO_CLOSE int log = launch_open_log(l);
	AUTO_CLOSE int listener = control_listen(l->dir->fd);

	if (sandbox < 0)
		*ret_why = kasprintf("sandbox %s is not running", l->sandbox->id);
	else if (listener < 0 || log < 0)
		*ret_why = kasprintf("cannot write to %s: %s", l->dir->path,
				     errno_text(listener < 0 ? -listener : errno));
	if (*ret_why)
		return -1;
	waiter = leave_waiter(l, ret_why);
	if (waiter > 0 && !l->spawned(l, waiter, ret_why))
		gofer = launch_prepare_gofer(l, waiter, server, log, a, ret_why);
	close(steal_fd(&server));
	if (gofer > 0 && !start_volumes(l, a->v, log, &volumes, ret_why)) {
		struct boot_fds theirs = { client, listener, volumes };

		if (!launch_boot(l, sandbox, a, &theirs, ret_why)) {
			*ret_pid = waiter;
			return 0;
		}
	}
	end(waiter);
	end(gofer); /* one for volumes ends with its socket */
	return -1;
}

int sandbox_join(const struct launch *l, pid_t *ret_pid, char **ret_why)
{
	struct attach_set *a = kzalloc(sizeof(*a));
	int r = -1;

	a->v = kzalloc(sizeof(*a->v));
	if (l->overlay == OVERLAY_DISK)
		*ret_why = kstrdup("a container of a pod has no layer of its own on disk (--overlay memory or none)");
	else if (l->restore)
		*ret_why = kstrdup("a container of a pod cannot be restored by itself");
	else
		r = join_with(l, a, ret_pid, ret_why);
	launch_attach_fini(a->v);
	free(a->v);
	launch_attach_fini(a);
	free(a);
	return r;
}
