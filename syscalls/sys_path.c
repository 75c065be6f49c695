// SPDX-License-Identifier: Apache-2.0
/*
 * Names and attributes by name: mkdir, mknod, link, symlink, readlink, unlink, rename, chmod, chown,
 * utimes, chdir, chroot, getcwd, umask.
 */
#include "syscalls/sys.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "sentry/kernel/ns.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_priv.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/sysmacros.h>

/* The guest's dev_t argument is 32 bits: 12 of major, 20 of minor (new_decode_dev). */
static dev_t decode_dev(uint32_t d)
{
	return makedev((d & 0xfff00) >> 8, (d & 0xff) | ((d >> 12) & 0xfff00));
}

static long do_mkdir(struct task *t, int dirfd, gaddr_t uname, uint32_t mode)
{
	AUTO_FREE char *name = NULL;
	ssize_t n = copyin_path(t, uname, &name);

	return n < 0 ? n : vfs_mkdir(t, dirfd, name, mode);
}

long sys_mkdir(struct task *t, const struct sysargs *a)
{
	return do_mkdir(t, AT_FDCWD_G, arg_gaddr(a, 0), arg_u32(a, 1));
}

long sys_mkdirat(struct task *t, const struct sysargs *a)
{
	return do_mkdir(t, arg_int(a, 0), arg_gaddr(a, 1), arg_u32(a, 2));
}

static long do_mknod(struct task *t, int dirfd, gaddr_t uname, uint32_t mode, uint32_t dev)
{
	AUTO_FREE char *name = NULL;
	ssize_t n = copyin_path(t, uname, &name);

	return n < 0 ? n : vfs_mknod(t, dirfd, name, mode, decode_dev(dev));
}

long sys_mknod(struct task *t, const struct sysargs *a)
{
	return do_mknod(t, AT_FDCWD_G, arg_gaddr(a, 0), arg_u32(a, 1), arg_u32(a, 2));
}

long sys_mknodat(struct task *t, const struct sysargs *a)
{
	return do_mknod(t, arg_int(a, 0), arg_gaddr(a, 1), arg_u32(a, 2), arg_u32(a, 3));
}

/* ---------------------------------------------------------------- links */

static long do_symlink(struct task *t, gaddr_t utarget, int dirfd, gaddr_t uname)
{
	AUTO_FREE char *target = NULL, *name = NULL;
	ssize_t n = copyin_path(t, utarget, &target);

	if (n < 0)
		return n;
	n = copyin_path(t, uname, &name);
	return n < 0 ? n : vfs_symlink(t, target, dirfd, name);
}

long sys_symlink(struct task *t, const struct sysargs *a)
{
	return do_symlink(t, arg_gaddr(a, 0), AT_FDCWD_G, arg_gaddr(a, 1));
}

long sys_symlinkat(struct task *t, const struct sysargs *a)
{
	return do_symlink(t, arg_gaddr(a, 0), arg_int(a, 1), arg_gaddr(a, 2));
}

static long do_link(struct task *t, int olddirfd, gaddr_t uold, int newdirfd, gaddr_t unew, int flags)
{
	AUTO_FREE char *old = NULL, *new = NULL;
	ssize_t n;

	if (flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH))
		return -EINVAL;
	n = copyin_path(t, uold, &old);
	if (n < 0)
		return n;
	n = copyin_path(t, unew, &new);
	return n < 0 ? n : vfs_link(t, olddirfd, old, newdirfd, new, flags);
}

long sys_link(struct task *t, const struct sysargs *a)
{
	return do_link(t, AT_FDCWD_G, arg_gaddr(a, 0), AT_FDCWD_G, arg_gaddr(a, 1), 0);
}

long sys_linkat(struct task *t, const struct sysargs *a)
{
	return do_link(t, arg_int(a, 0), arg_gaddr(a, 1), arg_int(a, 2), arg_gaddr(a, 3),
		       arg_int(a, 4));
}

/* The text of a link; magic links of /proc have ->readlink, too. */
static long read_target(struct task *t, const struct path *p, bool empty, gaddr_t buf, size_t size)
{
	struct inode *inode = dentry_inode(p->dentry);

	if (!S_ISLNK(inode->mode) || !inode->ops->readlink)
		return empty && !S_ISLNK(inode->mode) ? -ENOENT : -EINVAL;
	AUTO_FREE char *target = NULL;
	char *r = inode->ops->readlink(inode);
	if (is_err(r))
		return ptr_err(r);
	target = r;
	touch_atime(p, inode);
	size_t n = MIN(strlen(target), size);
	return copyout(t, buf, target, n) ? -EFAULT : (long)n;
}

static long do_readlink(struct task *t, int dirfd, gaddr_t uname, gaddr_t buf, int size)
{
	AUTO_FREE char *name = NULL;
	struct path p;
	long err;

	if (size <= 0)
		return -EINVAL;
	err = copyin_path(t, uname, &name);
	if (err < 0)
		return err;
	/* "" names a link that was opened with O_PATH|O_NOFOLLOW. */
	err = path_lookup(t, dirfd, name, LOOKUP_EMPTY, &p);
	if (err)
		return err;
	err = !*name && dirfd == AT_FDCWD_G ? -ENOENT : read_target(t, &p, !*name, buf, (size_t)size);
	path_put(&p);
	return err;
}

long sys_readlink(struct task *t, const struct sysargs *a)
{
	return do_readlink(t, AT_FDCWD_G, arg_gaddr(a, 0), arg_gaddr(a, 1), arg_int(a, 2));
}

long sys_readlinkat(struct task *t, const struct sysargs *a)
{
	return do_readlink(t, arg_int(a, 0), arg_gaddr(a, 1), arg_gaddr(a, 2), arg_int(a, 3));
}

static long do_unlink(struct task *t, int dirfd, gaddr_t uname, bool dir)
{
	AUTO_FREE char *name = NULL;
	ssize_t n = copyin_path(t, uname, &name);

	if (n < 0)
		return n;
	return dir ? vfs_rmdir(t, dirfd, name) : vfs_unlink(t, dirfd, name);
}

long sys_unlink(struct task *t, const struct sysargs *a)
{
	return do_unlink(t, AT_FDCWD_G, arg_gaddr(a, 0), false);
}

long sys_rmdir(struct task *t, const struct sysargs *a)
{
	return do_unlink(t, AT_FDCWD_G, arg_gaddr(a, 0), true);
}

long sys_unlinkat(struct task *t, const struct sysargs *a)
{
	int flags = arg_int(a, 2);

	if (flags & ~AT_REMOVEDIR)
		return -EINVAL;
	return do_unlink(t, arg_int(a, 0), arg_gaddr(a, 1), flags & AT_REMOVEDIR);
}

static long do_rename(struct task *t, int olddirfd, gaddr_t uold, int newdirfd, gaddr_t unew,
		      unsigned flags)
{
	AUTO_FREE char *old = NULL, *new = NULL;
	ssize_t n = copyin_path(t, uold, &old);

	if (n < 0)
		return n;
	n = copyin_path(t, unew, &new);
	return n < 0 ? n : vfs_rename(t, olddirfd, old, newdirfd, new, flags);
}

long sys_rename(struct task *t, const struct sysargs *a)
{
	return do_rename(t, AT_FDCWD_G, arg_gaddr(a, 0), AT_FDCWD_G, arg_gaddr(a, 1), 0);
}

long sys_renameat(struct task *t, const struct sysargs *a)
{
	return do_rename(t, arg_int(a, 0), arg_gaddr(a, 1), arg_int(a, 2), arg_gaddr(a, 3), 0);
}

long sys_renameat2(struct task *t, const struct sysargs *a)
{
	return do_rename(t, arg_int(a, 0), arg_gaddr(a, 1), arg_int(a, 2), arg_gaddr(a, 3),
			 arg_u32(a, 4));
}

/* ---------------------------------------------------------------- mode and owner */

/* Looks @uname up and applies @attr. @flags: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. */
static long setattr_at(struct task *t, int dirfd, gaddr_t uname, int flags, const struct iattr *attr)
{
	unsigned lookup = flags & AT_SYMLINK_NOFOLLOW ? 0 : LOOKUP_FOLLOW;
	AUTO_FREE char *name = NULL;
	struct path p;
	long err;

	if (flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
		return -EINVAL;
	if (flags & AT_EMPTY_PATH)
		lookup |= LOOKUP_EMPTY;
	err = copyin_path(t, uname, &name);
	if (err < 0)
		return err;
	err = path_lookup(t, dirfd, name, lookup, &p);
	if (err)
		return err;
	err = vfs_setattr(t, &p, attr);
	path_put(&p);
	return err;
}

static long setattr_fd(struct task *t, int fd, const struct iattr *attr)
{
	AUTO_FILE struct file *f = fd_get(t, fd);

	return f ? vfs_setattr(t, &f->path, attr) : -EBADF;
}

static struct iattr mode_attr(uint32_t mode)
{
	return (struct iattr){ .valid = ATTR_MODE, .mode = mode & 07777 };
}

long sys_chmod(struct task *t, const struct sysargs *a)
{
	struct iattr at = mode_attr(arg_u32(a, 1));

	return setattr_at(t, AT_FDCWD_G, arg_gaddr(a, 0), 0, &at);
}

long sys_fchmod(struct task *t, const struct sysargs *a)
{
	struct iattr at = mode_attr(arg_u32(a, 1));

	return setattr_fd(t, arg_int(a, 0), &at);
}

long sys_fchmodat(struct task *t, const struct sysargs *a)
{
	struct iattr at = mode_attr(arg_u32(a, 2));

	return setattr_at(t, arg_int(a, 0), arg_gaddr(a, 1), 0, &at);
}

long sys_fchmodat2(struct task *t, const struct sysargs *a)
{
	struct iattr at = mode_attr(arg_u32(a, 2));

	return setattr_at(t, arg_int(a, 0), arg_gaddr(a, 1), arg_int(a, 3), &at);
}

/* -1 leaves an id alone; an id that isn't mapped here is EINVAL. */
static long owner_attr(struct task *t, uint32_t uid, uint32_t gid, struct iattr *ret)
{
	const struct userns *ns = task_cred(t)->userns;

	*ret = (struct iattr){ .valid = 0 };
	if (uid != UINT32_MAX) {
		ret->uid = userns_map_uid(ns, uid);
		ret->valid |= ATTR_UID;
		if (ret->uid == (uid_t)-1)
			return -EINVAL;
	}
	if (gid != UINT32_MAX) {
		ret->gid = userns_map_gid(ns, gid);
		ret->valid |= ATTR_GID;
		if (ret->gid == (gid_t)-1)
			return -EINVAL;
	}
	return 0;
}

static long do_chown(struct task *t, int dirfd, gaddr_t name, uint32_t uid, uint32_t gid, int flags)
{
	struct iattr at;
	long err = owner_attr(t, uid, gid, &at);

	return err ? err : setattr_at(t, dirfd, name, flags, &at);
}

long sys_chown(struct task *t, const struct sysargs *a)
{
	return do_chown(t, AT_FDCWD_G, arg_gaddr(a, 0), arg_u32(a, 1), arg_u32(a, 2), 0);
}

long sys_lchown(struct task *t, const struct sysargs *a)
{
	return do_chown(t, AT_FDCWD_G, arg_gaddr(a, 0), arg_u32(a, 1), arg_u32(a, 2),
			AT_SYMLINK_NOFOLLOW);
}

long sys_fchown(struct task *t, const struct sysargs *a)
{
	struct iattr at;
	long err = owner_attr(t, arg_u32(a, 1), arg_u32(a, 2), &at);

	return err ? err : setattr_fd(t, arg_int(a, 0), &at);
}

long sys_fchownat(struct task *t, const struct sysargs *a)
{
	return do_chown(t, arg_int(a, 0), arg_gaddr(a, 1), arg_u32(a, 2), arg_u32(a, 3),
			arg_int(a, 4));
}

/* ---------------------------------------------------------------- times */

#define UTIME_NOW_G ((1L << 30) - 1L)
#define UTIME_OMIT_G ((1L << 30) - 2L)

static bool time_ok(const struct l_timespec *ts)
{
	return ts->tv_nsec == UTIME_NOW_G || ts->tv_nsec == UTIME_OMIT_G ||
	       (ts->tv_nsec >= 0 && ts->tv_nsec < NSEC_PER_SEC);
}

/* Seconds beyond what 64 bits of nanoseconds hold are cut off, as a file system with a smaller range does. */
static int64_t file_time(const struct l_timespec *ts, int64_t now)
{
	int64_t ns;

	if (ts->tv_nsec == UTIME_NOW_G)
		return now;
	if (__builtin_mul_overflow(ts->tv_sec, NSEC_PER_SEC, &ns) ||
	    __builtin_add_overflow(ns, ts->tv_nsec, &ns))
		return ts->tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

/* @ts NULL: now. @uname null: the descriptor. */
static long do_utimes(struct task *t, int dirfd, gaddr_t uname, const struct l_timespec ts[2], int flags)
{
	struct iattr at = { .valid = ATTR_ATIME | ATTR_MTIME };
	unsigned lookup = flags & AT_SYMLINK_NOFOLLOW ? 0 : LOOKUP_FOLLOW;
	AUTO_FREE char *name = NULL;
	int64_t now = clock_realtime_ns();
	bool touch = !ts;
	struct path p;
	long err;

	at.atime_ns = at.mtime_ns = now;
	if (ts) {
		if (!time_ok(&ts[0]) || !time_ok(&ts[1]))
			return -EINVAL;
		if (ts[0].tv_nsec == UTIME_OMIT_G && ts[1].tv_nsec == UTIME_OMIT_G)
			return 0;
		touch = ts[0].tv_nsec == UTIME_NOW_G && ts[1].tv_nsec == UTIME_NOW_G;
		at.atime_ns = file_time(&ts[0], now);
		at.mtime_ns = file_time(&ts[1], now);
		if (ts[0].tv_nsec == UTIME_OMIT_G)
			at.valid &= ~(unsigned)ATTR_ATIME;
		if (ts[1].tv_nsec == UTIME_OMIT_G)
			at.valid &= ~(unsigned)ATTR_MTIME;
	}
	if (flags & ~(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
		return -EINVAL;
	if (gaddr_is_null(uname) && dirfd != AT_FDCWD_G) {
		AUTO_FILE struct file *f = flags ? NULL : fd_get(t, dirfd);

		if (flags)
			return -EINVAL;
		return f ? vfs_utimes(t, &f->path, &at, touch) : -EBADF;
	}
	err = copyin_path(t, uname, &name);
	if (err < 0)
		return err;
	if (flags & AT_EMPTY_PATH)
		lookup |= LOOKUP_EMPTY;
	err = path_lookup(t, dirfd, name, lookup, &p);
	if (err)
		return err;
	err = vfs_utimes(t, &p, &at, touch);
	path_put(&p);
	return err;
}

long sys_utimensat(struct task *t, const struct sysargs *a)
{
	struct l_timespec ts[2];
	gaddr_t uts = arg_gaddr(a, 2);

	if (gaddr_is_null(uts))
		return do_utimes(t, arg_int(a, 0), arg_gaddr(a, 1), NULL, arg_int(a, 3));
	if (copyin(t, ts, uts, sizeof(ts)))
		return -EFAULT;
	return do_utimes(t, arg_int(a, 0), arg_gaddr(a, 1), ts, arg_int(a, 3));
}

static long utimes_tv(struct task *t, int dirfd, gaddr_t name, gaddr_t utv)
{
	struct l_timeval tv[2];
	struct l_timespec ts[2];

	if (gaddr_is_null(utv))
		return do_utimes(t, dirfd, name, NULL, 0);
	if (copyin(t, tv, utv, sizeof(tv)))
		return -EFAULT;
	for (int i = 0; i < 2; i++) {
		if (tv[i].tv_usec < 0 || tv[i].tv_usec >= 1000000)
			return -EINVAL;
		ts[i] = (struct l_timespec){ tv[i].tv_sec, tv[i].tv_usec * 1000 };
	}
	return do_utimes(t, dirfd, name, ts, 0);
}

long sys_utimes(struct task *t, const struct sysargs *a)
{
	return utimes_tv(t, AT_FDCWD_G, arg_gaddr(a, 0), arg_gaddr(a, 1));
}

long sys_futimesat(struct task *t, const struct sysargs *a)
{
	return utimes_tv(t, arg_int(a, 0), arg_gaddr(a, 1), arg_gaddr(a, 2));
}

long sys_utime(struct task *t, const struct sysargs *a)
{
	int64_t times[2];
	struct l_timespec ts[2] = { 0 };

	if (gaddr_is_null(arg_gaddr(a, 1)))
		return do_utimes(t, AT_FDCWD_G, arg_gaddr(a, 0), NULL, 0);
	if (copyin(t, times, arg_gaddr(a, 1), sizeof(times)))
		return -EFAULT;
	ts[0].tv_sec = times[0];
	ts[1].tv_sec = times[1];
	return do_utimes(t, AT_FDCWD_G, arg_gaddr(a, 0), ts, 0);
}

/* ---------------------------------------------------------------- cwd, root, umask */

static long lookup_dir(struct task *t, gaddr_t uname, struct path *ret)
{
	AUTO_FREE char *name = NULL;
	long err = copyin_path(t, uname, &name);

	if (err < 0)
		return err;
	err = path_lookup(t, AT_FDCWD_G, name, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, ret);
	if (err)
		return err;
	err = inode_permission(dentry_inode(ret->dentry), task_cred(t), MAY_EXEC);
	if (err)
		path_put(ret);
	return err;
}

long sys_chdir(struct task *t, const struct sysargs *a)
{
	struct path p;
	long err = lookup_dir(t, arg_gaddr(a, 0), &p);

	if (err)
		return err;
	fsctx_set_cwd(t->fs, &p);
	path_put(&p);
	return 0;
}

long sys_fchdir(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get_any(t, arg_int(a, 0));

	if (!f)
		return -EBADF;
	if (!S_ISDIR(f->inode->mode))
		return -ENOTDIR;
	int err = inode_permission(f->inode, task_cred(t), MAY_EXEC);
	if (!err)
		fsctx_set_cwd(t->fs, &f->path);
	return err;
}

long sys_chroot(struct task *t, const struct sysargs *a)
{
	struct path p;
	long err = lookup_dir(t, arg_gaddr(a, 0), &p);

	if (err)
		return err;
	if (!cred_capable_in(task_cred(t), task_cred(t)->userns, CAP_SYS_CHROOT))
		err = -EPERM;
	else
		fsctx_set_root(t->fs, &p);
	path_put(&p);
	return err;
}

long sys_getcwd(struct task *t, const struct sysargs *a)
{
	struct path root = fsctx_root(t->fs), cwd = fsctx_cwd(t->fs);
	AUTO_FREE char *s = NULL;
	bool unreachable;
	long n;

	if (d_unlinked(cwd.dentry)) {
		n = -ENOENT;
	} else {
		s = path_string(&cwd, &root, &unreachable);
		if (unreachable) {
			char *full = kasprintf("(unreachable)%s", s);

			free(s);
			s = full;
		}
		n = (long)strlen(s) + 1;
		if (n > PATH_MAX_G)
			n = -ENAMETOOLONG;
		else if ((size_t)n > arg_size(a, 1))
			n = -ERANGE;
		else if (copyout(t, arg_gaddr(a, 0), s, (size_t)n))
			n = -EFAULT;
	}
	path_put(&root);
	path_put(&cwd);
	return n;
}

long sys_umask(struct task *t, const struct sysargs *a)
{
	return (long)fsctx_set_umask(t->fs, arg_u32(a, 0) & 0777);
}
