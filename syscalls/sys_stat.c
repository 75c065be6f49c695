// SPDX-License-Identifier: Apache-2.0
/* stat, statx, access, statfs and their forms (man 2 stat, 2 statx, 2 access, 2 statfs). */
#include "syscalls/sys.h"

#include "base/cleanup.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"

#include <fcntl.h>
#include <sys/sysmacros.h>

struct l_statx_time {
	int64_t tv_sec;
	uint32_t tv_nsec;
	int32_t pad;
};

struct l_statx {
	uint32_t stx_mask, stx_blksize;
	uint64_t stx_attributes;
	uint32_t stx_nlink, stx_uid, stx_gid;
	uint16_t stx_mode, pad0;
	uint64_t stx_ino, stx_size, stx_blocks, stx_attributes_mask;
	struct l_statx_time stx_atime, stx_btime, stx_ctime, stx_mtime;
	uint32_t stx_rdev_major, stx_rdev_minor, stx_dev_major, stx_dev_minor;
	uint64_t stx_mnt_id;
	uint64_t spare[13];
};
_Static_assert(sizeof(struct l_statx) == 256, "struct statx is 256 bytes");

#define STATX_BASIC_G 0x7ffu
#define STATX_BTIME_G 0x800u
#define STATX_MNT_ID_G 0x1000u
#define STATX_RESERVED_G 0x80000000u
#define STATX_ATTR_MOUNT_ROOT_G 0x2000u

static void split_ns(int64_t ns, int64_t *sec, int64_t *nsec)
{
	*sec = ns / NSEC_PER_SEC;
	*nsec = ns % NSEC_PER_SEC;
	if (*nsec < 0) {
		*sec -= 1;
		*nsec += NSEC_PER_SEC;
	}
}

static long put_stat(struct task *t, gaddr_t to, const struct kstat *k)
{
	const struct userns *ns = task_cred(t)->userns;
	struct l_stat st = {
		.st_dev = k->dev,
		.st_ino = k->ino,
		.st_nlink = k->nlink,
		.st_mode = k->mode,
		.st_uid = userns_show_uid(ns, k->uid),
		.st_gid = userns_show_gid(ns, k->gid),
		.st_rdev = k->rdev,
		.st_size = (int64_t)k->size,
		.st_blksize = k->blksize,
		.st_blocks = (int64_t)k->blocks,
	};

	split_ns(k->atime_ns, &st.atime_sec, &st.atime_nsec);
	split_ns(k->mtime_ns, &st.mtime_sec, &st.mtime_nsec);
	split_ns(k->ctime_ns, &st.ctime_sec, &st.ctime_nsec);
	return copyout_obj(t, to, &st);
}

/* @name NULL or "" with AT_EMPTY_PATH: the descriptor itself, O_PATH ones too. */
static long stat_at(struct task *t, int dirfd, gaddr_t uname, int flags, struct kstat *ret)
{
	unsigned lookup = flags & AT_SYMLINK_NOFOLLOW ? 0 : LOOKUP_FOLLOW;
	AUTO_FREE char *name = NULL;
	struct path p;
	long err = 0;

	if (!(flags & AT_EMPTY_PATH) || !gaddr_is_null(uname)) {
		err = copyin_path(t, uname, &name);
		if (err < 0)
			return err;
	}
	if ((flags & AT_EMPTY_PATH) && (!name || !*name) && dirfd != AT_FDCWD_G) {
		AUTO_FILE struct file *f = fd_get_any(t, dirfd);

		return f ? file_getattr(f, ret) : -EBADF;
	}
	if (flags & AT_EMPTY_PATH)
		lookup |= LOOKUP_EMPTY;
	err = path_lookup(t, dirfd, name ? name : "", lookup, &p);
	if (err)
		return err;
	err = vfs_getattr(&p, ret);
	path_put(&p);
	return err;
}

static long stat_and_put(struct task *t, int dirfd, gaddr_t name, gaddr_t to, int flags)
{
	struct kstat k;
	long err = stat_at(t, dirfd, name, flags, &k);

	return err ? err : put_stat(t, to, &k);
}

long sys_stat(struct task *t, const struct sysargs *a)
{
	return stat_and_put(t, AT_FDCWD_G, arg_gaddr(a, 0), arg_gaddr(a, 1), 0);
}

long sys_lstat(struct task *t, const struct sysargs *a)
{
	return stat_and_put(t, AT_FDCWD_G, arg_gaddr(a, 0), arg_gaddr(a, 1), AT_SYMLINK_NOFOLLOW);
}

long sys_fstat(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get_any(t, arg_int(a, 0));
	struct kstat k;

	if (!f)
		return -EBADF;
	int err = file_getattr(f, &k);
	return err ? err : put_stat(t, arg_gaddr(a, 1), &k);
}

long sys_newfstatat(struct task *t, const struct sysargs *a)
{
	int flags = arg_int(a, 3);

	if (flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH))
		return -EINVAL;
	return stat_and_put(t, arg_int(a, 0), arg_gaddr(a, 1), arg_gaddr(a, 2), flags);
}

static struct l_statx_time statx_time(int64_t ns)
{
	int64_t sec, nsec;

	split_ns(ns, &sec, &nsec);
	return (struct l_statx_time){ .tv_sec = sec, .tv_nsec = (uint32_t)nsec };
}

static void fill_statx(struct task *t, const struct kstat *k, struct l_statx *sx)
{
	const struct userns *ns = task_cred(t)->userns;

	*sx = (struct l_statx){
		.stx_mask = STATX_BASIC_G | STATX_MNT_ID_G,
		.stx_blksize = k->blksize,
		.stx_attributes = k->mount_root ? STATX_ATTR_MOUNT_ROOT_G : 0,
		.stx_attributes_mask = STATX_ATTR_MOUNT_ROOT_G,
		.stx_nlink = (uint32_t)k->nlink,
		.stx_uid = userns_show_uid(ns, k->uid),
		.stx_gid = userns_show_gid(ns, k->gid),
		.stx_mode = (uint16_t)k->mode,
		.stx_ino = k->ino,
		.stx_size = k->size,
		.stx_blocks = k->blocks,
		.stx_atime = statx_time(k->atime_ns),
		.stx_ctime = statx_time(k->ctime_ns),
		.stx_mtime = statx_time(k->mtime_ns),
		.stx_rdev_major = major(k->rdev),
		.stx_rdev_minor = minor(k->rdev),
		.stx_dev_major = major(k->dev),
		.stx_dev_minor = minor(k->dev),
		.stx_mnt_id = (uint64_t)k->mnt_id,
	};
	if (k->btime_ns) {
		sx->stx_mask |= STATX_BTIME_G;
		sx->stx_btime = statx_time(k->btime_ns);
	}
}

long sys_statx(struct task *t, const struct sysargs *a)
{
	int flags = arg_int(a, 2);
	struct kstat k;
	struct l_statx sx;
	long err;

	if (arg_u32(a, 3) & STATX_RESERVED_G)
		return -EINVAL;
	/* AT_STATX_SYNC_TYPE 0x6000: both bits at once make no sense. */
	if ((flags & 0x6000) == 0x6000)
		return -EINVAL;
	if (flags & ~(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | 0x6000))
		return -EINVAL;
	err = stat_at(t, arg_int(a, 0), arg_gaddr(a, 1), flags, &k);
	if (err)
		return err;
	fill_statx(t, &k, &sx);
	return copyout_obj(t, arg_gaddr(a, 4), &sx);
}

static long do_access(struct task *t, int dirfd, gaddr_t uname, int mode, int flags)
{
	AUTO_FREE char *name = NULL;
	ssize_t n;

	if (mode & ~7)
		return -EINVAL;
	if (flags & ~(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
		return -EINVAL;
	n = copyin_path(t, uname, &name);
	return n < 0 ? n : vfs_access(t, dirfd, name, mode, flags);
}

long sys_access(struct task *t, const struct sysargs *a)
{
	return do_access(t, AT_FDCWD_G, arg_gaddr(a, 0), arg_int(a, 1), 0);
}

long sys_faccessat(struct task *t, const struct sysargs *a)
{
	return do_access(t, arg_int(a, 0), arg_gaddr(a, 1), arg_int(a, 2), 0);
}

long sys_faccessat2(struct task *t, const struct sysargs *a)
{
	return do_access(t, arg_int(a, 0), arg_gaddr(a, 1), arg_int(a, 2), arg_int(a, 3));
}

long sys_statfs(struct task *t, const struct sysargs *a)
{
	AUTO_FREE char *name = NULL;
	struct statfs_g st;
	struct path p;
	long err = copyin_path(t, arg_gaddr(a, 0), &name);

	if (err < 0)
		return err;
	err = path_lookup(t, AT_FDCWD_G, name, LOOKUP_FOLLOW, &p);
	if (err)
		return err;
	err = vfs_statfs(&p, dentry_inode(p.dentry), &st);
	path_put(&p);
	return err ? err : copyout_obj(t, arg_gaddr(a, 1), &st);
}

long sys_fstatfs(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get_any(t, arg_int(a, 0));
	struct statfs_g st;

	if (!f)
		return -EBADF;
	int err = vfs_statfs(&f->path, f->inode, &st);
	return err ? err : copyout_obj(t, arg_gaddr(a, 1), &st);
}
