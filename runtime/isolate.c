// SPDX-License-Identifier: Apache-2.0
/* See isolate.h. */
#include "runtime/isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int isolate_empty_root(void)
{
	/* /proc exists on every host and is a directory that anybody may enter. */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/proc", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "mode=0555,size=4k,nr_inodes=2") ||
	    chdir("/proc"))
		return -errno;
	/* man 2 pivot_root: with "." twice the old root ends up on top of the new one. */
	if (syscall(SYS_pivot_root, ".", ".") == 0) {
		if (umount2(".", MNT_DETACH))
			return -errno;
	} else if (chroot(".")) {
		return -errno; /* the host's root is a ramfs, which can't be pivoted away */
	}
	if (chdir("/") || mount(NULL, "/", NULL,
				MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
				NULL))
		return -errno;
	return 0;
}

int isolate_copy_root(void)
{
	int fd = (int)syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (fd >= 0)
		return fd;
	return errno == ENOSYS || errno == EPERM ? 0 : -errno; /* then nor can anybody mount on it */
}

int isolate_enter(int root)
{
	int r = fchdir(root) || chroot(".") ? -errno : 0;

	close(root);
	return r;
}

static int set_caps(uint64_t keep)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { 0 };

	for (int i = 0; i < 2; i++) {
		d[i].permitted = (uint32_t)(keep >> (32 * i));
		d[i].effective = d[i].permitted;
	}
	return syscall(SYS_capset, &h, d) ? -errno : 0;
}

int isolate_drop(uint64_t keep)
{
	struct rlimit none = { 0, 0 };
	int r;

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
		return -errno;
	for (int c = 0; c < 64; c++)
		if (prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1 && prctl(PR_CAPBSET_DROP, c, 0, 0, 0))
			return -errno;
	r = set_caps(keep);
	if (r)
		return r;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) ||
	    setrlimit(RLIMIT_CORE, &none))
		return -errno;
	return 0;
}

void isolate_raise_nofile(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &l); /* fewer descriptors is a limit, no fault */
	}
}
