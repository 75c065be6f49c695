// SPDX-License-Identifier: Apache-2.0
/*
 * The memory limit of a running sandbox. Every page of its guest is in a file on one tmpfs, whose size is the
 * limit (sentry/kernel/oom.c). That tmpfs is attached nowhere and the gofer, which holds it, has given up
 * the right to change it; who made the sandbox hasn't. So `update` takes the gofer's descriptor
 * (pidfd_getfd(2)) and gives the tmpfs its new size through it (fspick(2)): nothing in the sandbox needs
 * a right for that, and it can't change its own limit.
 *
 * A plain user has these rights in the gofer's namespaces only, so there a child does it inside of them.
 */
#include "runtime/memlimit.h"

#include <errno.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/cli.h"
#include "runtime/errno_text.h"
#include "runtime/launch.h"

#define STATE_FILE "gofer.json"

void memlimit_remember(struct statedir *s, pid_t gofer)
{
	json_t *j = json_pack("{s:i, s:I}", "pid", gofer, "start", (json_int_t)cli_start_time(gofer));
	int r = statedir_save(s, STATE_FILE, j);

	if (r)
		log_warn("cannot write %s/" STATE_FILE ": %s", s->path, strerror(-r));
	json_decref(j);
}

/* The gofer, or -errno. The descriptor holds on to the process whose start is compared. */
static int open_gofer(struct statedir *s)
{
	json_t *j = statedir_load(s, STATE_FILE);
	pid_t pid = (pid_t)json_integer_value(json_object_get(j, "pid"));
	long long start = json_integer_value(json_object_get(j, "start"));
	AUTO_CLOSE int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;

	json_decref(j);
	if (pidfd < 0 || cli_start_time(pid) != start)
		return -ESRCH;
	return steal_fd(&pidfd);
}

static int resize(int pidfd, const char *size)
{
	AUTO_CLOSE int mem = (int)syscall(SYS_pidfd_getfd, pidfd, ROLE_MEM_FD, 0);
	AUTO_CLOSE int fs = mem < 0 ? -1 : (int)syscall(SYS_fspick, mem, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);

	if (fs < 0 || syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "size", size, 0) ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0))
		return -errno;
	return 0;
}

static int resize_inside(int pidfd, const char *size)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(setns(pidfd, CLONE_NEWUSER) || setns(pidfd, CLONE_NEWNS) ? errno : -resize(pidfd, size));
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -ECHILD;
	return -WEXITSTATUS(status);
}

int memlimit_set(struct statedir *s, uint64_t bytes, uint64_t used, char **ret_why)
{
	AUTO_FREE char *size = kasprintf("%llu", (unsigned long long)bytes);
	AUTO_CLOSE int pidfd = open_gofer(s);
	int r = pidfd;

	if (pidfd >= 0)
		r = geteuid() == 0 ? resize(pidfd, size) : resize_inside(pidfd, size);
	if (r == -EINVAL)
		*ret_why = kasprintf("unable to set memory limit to %s (current usage: %llu)", size,
				     (unsigned long long)used);
	else if (r)
		*ret_why = kasprintf("unable to set memory limit to %s: %s", size, errno_text(-r));
	return r ? -1 : 0;
}
