// SPDX-License-Identifier: Apache-2.0
/* inotify_init, inotify_add_watch, inotify_rm_watch (man 7 inotify). */
#include "syscalls/sys.h"

#include "base/cleanup.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs.h"

#include <fcntl.h>
#include <sys/inotify.h>

#define ADD_FLAGS                                                                        \
	((uint32_t)(IN_ALL_EVENTS | IN_UNMOUNT | IN_Q_OVERFLOW | IN_IGNORED | IN_ONLYDIR | \
		    IN_DONT_FOLLOW | IN_EXCL_UNLINK | IN_MASK_CREATE | IN_MASK_ADD | IN_ISDIR | \
		    IN_ONESHOT))

static long create(struct task *t, unsigned flags)
{
	if (flags & ~(unsigned)(IN_CLOEXEC | IN_NONBLOCK))
		return -EINVAL;
	struct file *f = inotify_create(t, flags);
	return is_err(f) ? ptr_err(f) : fd_install(t, f, flags);
}

long sys_inotify_init(struct task *t, const struct sysargs *a)
{
	(void)a;
	return create(t, 0);
}

long sys_inotify_init1(struct task *t, const struct sysargs *a)
{
	return create(t, arg_u32(a, 0));
}

long sys_inotify_add_watch(struct task *t, const struct sysargs *a)
{
	uint32_t mask = arg_u32(a, 2);
	unsigned lookup = mask & IN_DONT_FOLLOW ? 0 : LOOKUP_FOLLOW;
	AUTO_FREE char *name = NULL;
	struct path p;
	long r;

	/* Bits that nobody knows are ignored, but something must be asked for. */
	if (!(mask & ADD_FLAGS))
		return -EINVAL;
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));
	if (!f)
		return -EBADF;
	if ((mask & IN_MASK_ADD) && (mask & IN_MASK_CREATE))
		return -EINVAL;
	if (!file_is_inotify(f))
		return -EINVAL;
	if (mask & IN_ONLYDIR)
		lookup |= LOOKUP_DIRECTORY;
	r = copyin_path(t, arg_gaddr(a, 1), &name);
	if (r < 0)
		return r;
	r = path_lookup(t, AT_FDCWD_G, name, lookup, &p);
	if (r)
		return r;
	struct inode *inode = dentry_inode(p.dentry);
	r = inode_permission(inode, task_cred(t), MAY_READ);
	if (!r)
		r = inotify_add(f, inode, mask);
	path_put(&p);
	return r;
}

long sys_inotify_rm_watch(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));

	if (!f)
		return -EBADF;
	return file_is_inotify(f) ? inotify_remove(f, arg_int(a, 1)) : -EINVAL;
}
