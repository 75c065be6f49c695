// SPDX-License-Identifier: Apache-2.0
/*
 * The host's view of a container: what whoever enters the mount namespace of its pid finds there (podman cp and
 * podman top with a running container, nsenter). It is a copy of the rootfs and its bind mounts, on top of the root
 * of the sentry's mount namespace. setns(2) takes a caller to the topmost mount there; the sentry and
 * its children stay below, in an empty root that is no part of any mount namespace (runtime/isolate.c) and has nothing
 * mounted on it, and they have neither the rights nor the system calls to get at it.
 *
 * Where the guest's kernel has a file system of its own (tmpfs, sysfs ...) there is an empty one that is
 * read-only, so that a file copied to it is refused rather than lost. /proc shows the sandbox's processes.
 *
 * There is none for --overlay memory, whose files are only in the sandbox, and none where the launcher may not
 * make one (plain users): then callers find the empty root. Nor for containers that join a pod.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "runtime/launch_priv.h"
#include "runtime/mount_options.h"

struct view {
	const struct launch *l;
	int root;  /* the rootfs, detached at first */
	int *tree; /* for each of the spec's mounts; -1: not shown */
};

/* A detached copy of @path that no event of the host's mounts reaches. */
static int open_copy(const char *path, bool recursive, bool readonly)
{
	unsigned deep = recursive ? AT_RECURSIVE : 0;
	struct mount_attr attr = { .attr_set = readonly ? MOUNT_ATTR_RDONLY : 0, .propagation = MS_PRIVATE };
	AUTO_CLOSE int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | deep);

	if (fd < 0 || syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH | deep, &attr, sizeof(attr)))
		return -errno;
	return steal_fd(&fd);
}

static int open_fs(const char *type, unsigned attr)
{
	AUTO_CLOSE int fs = fsopen(type, FSOPEN_CLOEXEC);
	int fd = -1;

	if (fs >= 0 && !fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
		fd = fsmount(fs, FSMOUNT_CLOEXEC, attr);
	return fd < 0 ? -errno : fd;
}

/* What mount @i looks like from the host; -errno. */
static int open_mount(const struct view *v, unsigned i)
{
	const struct spec_mount *m = &v->l->spec->mounts[i];
	AUTO_FREE char *src = m->source ? launch_bundle_path(v->l, m->source) : NULL;

	if (mount_is_bind(m))
		return open_copy(src ?: "", launch_has_option(m, "rbind"),
				 launch_has_option(m, "ro") || launch_has_option(m, "rro"));
	if (!strcmp(m->destination, "/proc"))
		return open_fs("proc", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
					       MOUNT_ATTR_NOEXEC);
	/* cgroup, devpts and the like: all of them are the guest's */
	return open_fs("tmpfs", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

/* Everything that takes paths and rights of the launcher's own namespaces. */
static int open_all(struct view *v)
{
	const struct spec *s = v->l->spec;
	AUTO_FREE char *path = launch_bundle_path(v->l, s->root_path);

	v->root = open_copy(path, true, false);
	if (v->root < 0)
		return v->root;
	for (unsigned i = 0; i < s->nmounts; i++) {
		v->tree[i] = open_mount(v, i);
		if (v->tree[i] < 0)
			return v->tree[i];
	}
	return 0;
}

/* The last step of a file system that had to be writable for mount points below it. */
static int make_readonly(int fd)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY };

	return syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) ? -errno : 0;
}

static int attach_all(const struct view *v)
{
	const struct spec *s = v->l->spec;
	int r = 0;

	for (unsigned i = 0; !r && i < s->nmounts; i++)
		r = launch_attach_below(v->root, s->mounts[i].destination, v->tree[i]);
	for (unsigned i = 0; !r && i < s->nmounts; i++)
		if (!mount_is_bind(&s->mounts[i]))
			r = make_readonly(v->tree[i]);
	return !r && s->root_readonly ? make_readonly(v->root) : r;
}

/* In a process of its own, a child of the sentry's pid namespace. 0 or an errno. */
static int show(const struct launch *l, int mntns)
{
	struct view v = { .l = l, .tree = kzalloc((l->spec->nmounts + 1) * sizeof(int)) };
	int r = open_all(&v);

	if (r)
		return -r;
	if (setns(mntns, CLONE_NEWNS) || move_mount(v.root, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH))
		return errno;
	r = attach_all(&v);
	/* A half would let callers write to what a missing mount should cover. */
	if (r && !fchdir(v.root))
		(void)umount2(".", MNT_DETACH);
	return -r;
}

static int open_ns(pid_t pid, const char *ns)
{
	AUTO_FREE char *path = pid ? kasprintf("/proc/%d/ns/%s", pid, ns) : kasprintf("/proc/self/ns/%s", ns);

	return open(path, O_RDONLY | O_CLOEXEC);
}

void launch_show_view(const struct launch *l, pid_t sentry)
{
	AUTO_CLOSE int mntns = open_ns(sentry, "mnt");
	AUTO_CLOSE int pidns = open_ns(sentry, "pid");
	AUTO_CLOSE int own = open_ns(0, "pid_for_children");
	int status = -1;
	pid_t pid;

	if (l->overlay != OVERLAY_NONE || mntns < 0 || pidns < 0 || own < 0 || setns(pidns, CLONE_NEWPID))
		return;
	pid = fork();
	if (pid == 0)
		_exit(show(l, mntns));
	if (setns(own, CLONE_NEWPID))
		log_warn("cannot go back to the pid namespace: %s", strerror(errno));
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status))
		log_debug("no view of %s for the host: %s", l->dir->id,
			  WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "no process");
}
