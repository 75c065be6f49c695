// SPDX-License-Identifier: Apache-2.0
/*
 * read, write and their forms; positions; syncing; allocation; truncation (man 2 read, readv, lseek,
 * fsync, fallocate, truncate).
 */
#include "syscalls/sys.h"

#include "base/cleanup.h"
#include "sentry/kernel/ns.h"
#include "sentry/vfs/vfs.h"

#include <fcntl.h>
#include <sys/epoll.h>

#define RWF_HIPRI_G 1u
#define RWF_DSYNC_G 2u
#define RWF_SYNC_G 4u
#define RWF_APPEND_G 0x10u
#define RWF_READ_FLAGS (RWF_HIPRI_G | RWF_DSYNC_G | RWF_SYNC_G | RWF_NOWAIT_G)
#define RWF_WRITE_FLAGS (RWF_READ_FLAGS | RWF_APPEND_G)

static void send_sigpipe(struct task *t)
{
	struct l_siginfo info;

	siginfo_user(&info, t, SIGPIPE, SI_USER);
	signal_send_task(t, SIGPIPE, &info);
}

static long finish_write(struct task *t, struct file *f, long n, bool datasync, bool sync)
{
	unsigned flags = atomic_load_explicit(&f->flags, memory_order_relaxed);

	if (n == -EPIPE)
		send_sigpipe(t);
	if (n <= 0)
		return n;
	datasync |= (flags & O_DSYNC) != 0;
	sync |= (flags & O_SYNC) == O_SYNC;
	if (unlikely(datasync || sync) && f->ops->fsync) {
		int err = f->ops->fsync(f, !sync);

		if (err)
			return err;
	}
	return n;
}

static int check_pos(int64_t pos, size_t count)
{
	int64_t end;

	if (pos < 0 || __builtin_add_overflow(pos, MIN(count, MAX_RW_COUNT_GUEST), &end))
		return -EINVAL;
	return 0;
}

long sys_read(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));
	struct iter it;

	if (!f)
		return -EBADF;
	if ((int64_t)arg_size(a, 2) < 0)
		return -EINVAL;
	iter_init_user(&it, t, arg_gaddr(a, 1), arg_size(a, 2));
	return file_read(t, f, &it, NULL);
}

long sys_write(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));
	struct iter it;

	if (!f)
		return -EBADF;
	if ((int64_t)arg_size(a, 2) < 0)
		return -EINVAL;
	iter_init_user(&it, t, arg_gaddr(a, 1), arg_size(a, 2));
	return finish_write(t, f, file_write(t, f, &it, NULL), false, false);
}

long sys_pread64(struct task *t, const struct sysargs *a)
{
	int64_t pos = arg_s64(a, 3);
	struct iter it;

	if (pos < 0)
		return -EINVAL;
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));
	if (!f)
		return -EBADF;
	if (f->fmode & FMODE_STREAM)
		return -ESPIPE;
	if (check_pos(pos, arg_size(a, 2)))
		return -EINVAL;
	iter_init_user(&it, t, arg_gaddr(a, 1), arg_size(a, 2));
	return file_read(t, f, &it, &pos);
}

long sys_pwrite64(struct task *t, const struct sysargs *a)
{
	int64_t pos = arg_s64(a, 3);
	struct iter it;

	if (pos < 0)
		return -EINVAL;
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));
	if (!f)
		return -EBADF;
	if (f->fmode & FMODE_STREAM)
		return -ESPIPE;
	if (check_pos(pos, arg_size(a, 2)))
		return -EINVAL;
	iter_init_user(&it, t, arg_gaddr(a, 1), arg_size(a, 2));
	return finish_write(t, f, file_write(t, f, &it, &pos), false, false);
}

/* RWF_NOWAIT: files with a position don't block here; streams are asked whether they would. */
static bool would_block(struct file *f, unsigned flags, bool write)
{
	if (!(flags & RWF_NOWAIT_G) || !(f->fmode & FMODE_STREAM))
		return false;
	return !(file_poll(f) & (write ? EPOLLOUT | EPOLLERR : EPOLLIN | EPOLLHUP | EPOLLERR));
}

/* @pos NULL: the file's own position. */
static long do_vector(struct task *t, const struct sysargs *a, int64_t *pos, unsigned flags, bool write)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));
	struct iter it;
	long n;

	if (!f)
		return -EBADF;
	if (pos && (f->fmode & FMODE_STREAM))
		return -ESPIPE;
	if (!(f->fmode & (write ? FMODE_WRITE : FMODE_READ)))
		return -EBADF;
	if (flags & ~(write ? RWF_WRITE_FLAGS : RWF_READ_FLAGS))
		return -EOPNOTSUPP;
	n = iter_init_uiov(&it, t, arg_gaddr(a, 1), arg_u64(a, 2));
	if (n < 0)
		return n;
	if (pos && check_pos(*pos, it.left)) {
		n = -EINVAL;
	} else if (would_block(f, flags, write)) {
		n = -EAGAIN;
	} else if (!write) {
		n = file_read(t, f, &it, pos);
	} else {
		int64_t end = (int64_t)atomic_load(&f->inode->size);

		n = file_write(t, f, &it, flags & RWF_APPEND_G ? &end : pos);
		n = finish_write(t, f, n, flags & RWF_DSYNC_G, flags & RWF_SYNC_G);
	}
	iter_fini(&it);
	return n;
}

long sys_readv(struct task *t, const struct sysargs *a)
{
	return do_vector(t, a, NULL, 0, false);
}

long sys_writev(struct task *t, const struct sysargs *a)
{
	return do_vector(t, a, NULL, 0, true);
}

static long at_pos(struct task *t, const struct sysargs *a, bool write)
{
	int64_t pos = arg_s64(a, 3);

	return pos < 0 ? -EINVAL : do_vector(t, a, &pos, 0, write);
}

long sys_preadv(struct task *t, const struct sysargs *a)
{
	return at_pos(t, a, false);
}

long sys_pwritev(struct task *t, const struct sysargs *a)
{
	return at_pos(t, a, true);
}

/* Position -1: the file's own. (Argument 4 is the high half, unused on 64-bit.) */
static long vector2(struct task *t, const struct sysargs *a, bool write)
{
	int64_t pos = arg_s64(a, 3);

	if (pos < -1)
		return -EINVAL;
	return do_vector(t, a, pos == -1 ? NULL : &pos, arg_u32(a, 5), write);
}

long sys_preadv2(struct task *t, const struct sysargs *a)
{
	return vector2(t, a, false);
}

long sys_pwritev2(struct task *t, const struct sysargs *a)
{
	return vector2(t, a, true);
}

long sys_lseek(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));

	return f ? file_llseek(f, arg_s64(a, 1), arg_int(a, 2)) : -EBADF;
}

long sys_readahead(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));

	if (!f || !(f->fmode & FMODE_READ))
		return -EBADF;
	return S_ISREG(f->inode->mode) ? 0 : -EINVAL;
}

long sys_fadvise64(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));

	if (!f)
		return -EBADF;
	if (S_ISFIFO(f->inode->mode))
		return -ESPIPE;
	if (arg_s64(a, 2) < 0 || arg_int(a, 3) < POSIX_FADV_NORMAL ||
	    arg_int(a, 3) > POSIX_FADV_NOREUSE)
		return -EINVAL;
	return 0; /* advice: the host's page cache knows better */
}

static long do_fsync(struct task *t, int fd, bool datasync)
{
	AUTO_FILE struct file *f = fd_get(t, fd);

	return f ? file_fsync(f, datasync) : -EBADF;
}

long sys_fsync(struct task *t, const struct sysargs *a)
{
	return do_fsync(t, arg_int(a, 0), false);
}

long sys_fdatasync(struct task *t, const struct sysargs *a)
{
	return do_fsync(t, arg_int(a, 0), true);
}

long sys_sync(struct task *t, const struct sysargs *a)
{
	(void)a;
	mntns_sync(t->ns->mnt);
	return 0;
}

long sys_syncfs(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));

	if (!f)
		return -EBADF;
	if (f->inode->sb && f->inode->sb->ops->sync)
		return f->inode->sb->ops->sync(f->inode->sb);
	return 0;
}

long sys_sync_file_range(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));
	int64_t off = arg_s64(a, 1), n = arg_s64(a, 2), end;

	if (!f)
		return -EBADF;
	if (arg_u32(a, 3) & ~7u)
		return -EINVAL;
	if (off < 0 || n < 0 || __builtin_add_overflow(off, n, &end))
		return -EINVAL;
	if (!S_ISREG(f->inode->mode) && !S_ISBLK(f->inode->mode) && !S_ISDIR(f->inode->mode))
		return -ESPIPE;
	return f->ops->fsync ? f->ops->fsync(f, true) : 0;
}

long sys_fallocate(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));

	if (!f)
		return -EBADF;
	return file_fallocate(t, f, arg_int(a, 1), arg_s64(a, 2), arg_s64(a, 3));
}

long sys_truncate(struct task *t, const struct sysargs *a)
{
	AUTO_FREE char *name = NULL;
	int64_t len = arg_s64(a, 1);
	struct path p;
	long err;

	if (len < 0)
		return -EINVAL;
	err = copyin_path(t, arg_gaddr(a, 0), &name);
	if (err < 0)
		return err;
	err = path_lookup(t, AT_FDCWD_G, name, LOOKUP_FOLLOW, &p);
	if (err)
		return err;
	err = vfs_truncate_path(t, &p, (uint64_t)len);
	path_put(&p);
	return err;
}

long sys_ftruncate(struct task *t, const struct sysargs *a)
{
	int64_t len = arg_s64(a, 1);

	if (len < 0)
		return -EINVAL;
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));
	return f ? file_truncate(t, f, (uint64_t)len) : -EBADF;
}
