// SPDX-License-Identifier: Apache-2.0
/*
 * read, write and their kin at the level of open files: access mode, position, RLIMIT_FSIZE, what a
 * write takes away (setuid), notification and access time. The bytes are the file's own business.
 *
 * The position's lock is taken only when somebody else could use the same description at the same
 * time: a second thread with the same table, or a second reference (dup, fork). It's held across
 * a read or write, sleeping included, as in Linux (POSIX wants them atomic to each other).
 */
#include "base/alloc.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs_priv.h"

static bool pos_shared(struct task *t, struct file *f)
{
	return !t || !files_private(t) || ref_count(&f->ref) > 2;
}

static ssize_t read_at(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	ssize_t n = f->ops->read(t, f, it, pos);

	if (n > 0) {
		if (!(f->fmode & FMODE_STREAM)) {
			if (!(atomic_load_explicit(&f->flags, memory_order_relaxed) & O_NOATIME) &&
			    f->path.mnt)
				touch_atime(&f->path, f->inode);
		}
		if (unlikely(atomic_load_explicit(&notify_nwatches, memory_order_relaxed)))
			notify_file(f, IN_ACCESS);
	}
	return n;
}

ssize_t file_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	if (!(f->fmode & FMODE_READ))
		return -EBADF;
	if (!f->ops->read)
		return S_ISDIR(f->inode->mode) ? -EISDIR : -EINVAL;
	if (pos)
		return read_at(t, f, it, pos);
	if (f->fmode & FMODE_STREAM)
		return read_at(t, f, it, NULL);
	if (!pos_shared(t, f))
		return read_at(t, f, it, &f->pos);
	AUTO_LOCK(&f->pos_mu);
	return read_at(t, f, it, &f->pos);
}

/* Cuts @it to what RLIMIT_FSIZE allows from @pos on. *ret_cut: bytes taken away. -EFBIG with SIGXFSZ. */
static int limit_write(struct task *t, struct file *f, struct iter *it, int64_t pos, size_t *ret_cut)
{
	uint64_t lim = t ? task_rlimit(t, RLIMIT_FSIZE) : RLIM_INFINITY_G;

	*ret_cut = 0;
	if (likely(lim == RLIM_INFINITY_G) || !S_ISREG(f->inode->mode))
		return 0;
	if (atomic_load(&f->flags) & O_APPEND)
		pos = (int64_t)atomic_load(&f->inode->size);
	if ((uint64_t)pos >= lim) {
		signal_send_task(t, SIGXFSZ, NULL);
		return -EFBIG;
	}
	if (it->left > lim - (uint64_t)pos) {
		*ret_cut = it->left - (size_t)(lim - (uint64_t)pos);
		it->left -= *ret_cut;
	}
	return 0;
}

static ssize_t write_at(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	size_t cut = 0;
	ssize_t n;

	if (!(f->fmode & FMODE_STREAM) && it->left) {
		int err = limit_write(t, f, it, *pos, &cut);

		if (!err)
			err = file_remove_privs(t, f);
		if (err)
			return err;
	}
	n = f->ops->write(t, f, it, pos);
	it->left += cut;
	if (n > 0 && unlikely(atomic_load_explicit(&notify_nwatches, memory_order_relaxed)))
		notify_file(f, IN_MODIFY);
	return n;
}

ssize_t file_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	int64_t none = 0;

	if (!(f->fmode & FMODE_WRITE))
		return -EBADF;
	if (!f->ops->write)
		return -EINVAL;
	if (pos)
		return write_at(t, f, it, pos);
	if (f->fmode & FMODE_STREAM)
		return f->ops->llseek ? write_at(t, f, it, &none) : write_at(t, f, it, NULL);
	if (!pos_shared(t, f))
		return write_at(t, f, it, &f->pos);
	AUTO_LOCK(&f->pos_mu);
	return write_at(t, f, it, &f->pos);
}

int64_t file_llseek(struct file *f, int64_t off, int whence)
{
	if (whence < SEEK_SET || whence > SEEK_HOLE)
		return -EINVAL;
	if (!f->ops->llseek)
		return f->fmode & FMODE_STREAM || !S_ISDIR(f->inode->mode) ?
			       -ESPIPE :
			       generic_llseek(f, off, whence);
	return f->ops->llseek(f, off, whence);
}

/* Position within [0, INT64_MAX]; SEEK_DATA and SEEK_HOLE for files without holes. Takes pos_mu. */
int64_t generic_llseek(struct file *f, int64_t off, int whence)
{
	int64_t size = (int64_t)atomic_load(&f->inode->size), pos = 0;
	AUTO_LOCK(&f->pos_mu);

	switch (whence) {
	case SEEK_SET:
		pos = off;
		break;
	case SEEK_CUR:
		if (__builtin_add_overflow(f->pos, off, &pos))
			return -EOVERFLOW;
		break;
	case SEEK_END:
		if (__builtin_add_overflow(size, off, &pos))
			return -EOVERFLOW;
		break;
	case SEEK_DATA:
	case SEEK_HOLE:
		if (off < 0 || off >= size)
			return -ENXIO;
		pos = whence == SEEK_DATA ? off : size;
		break;
	default:
		return -EINVAL;
	}
	if (pos < 0)
		return -EINVAL;
	f->pos = pos;
	return pos;
}

/* For the loader: no access mode checks beyond what open did, no notification. */
ssize_t file_kread(struct task *t, struct file *f, void *buf, size_t len, int64_t pos)
{
	struct iter it;

	if (!f->ops->read)
		return -EINVAL;
	iter_init_kernel(&it, buf, len);
	return f->ops->read(t, f, &it, &pos);
}

int file_fsync(struct file *f, bool datasync)
{
	if (!f->ops->fsync)
		/* Linux: files without fsync (pipes, sockets, ttys) say EINVAL. */
		return S_ISREG(f->inode->mode) || S_ISDIR(f->inode->mode) ? 0 : -EINVAL;
	return f->ops->fsync(f, datasync);
}

long file_fallocate(struct task *t, struct file *f, int mode, int64_t off, int64_t len)
{
	int64_t end;
	int err;

	if (off < 0 || len <= 0)
		return -EINVAL;
	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_COLLAPSE_RANGE |
		     FALLOC_FL_ZERO_RANGE | FALLOC_FL_INSERT_RANGE | FALLOC_FL_UNSHARE_RANGE))
		return -EOPNOTSUPP;
	if ((mode & FALLOC_FL_PUNCH_HOLE) && !(mode & FALLOC_FL_KEEP_SIZE))
		return -EOPNOTSUPP;
	if ((mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) ==
	    (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		return -EOPNOTSUPP;
	if ((mode & FALLOC_FL_COLLAPSE_RANGE) && (mode & ~FALLOC_FL_COLLAPSE_RANGE))
		return -EINVAL;
	if ((mode & FALLOC_FL_INSERT_RANGE) && (mode & ~FALLOC_FL_INSERT_RANGE))
		return -EINVAL;
	if (!(f->fmode & FMODE_WRITE))
		return -EBADF;
	if (S_ISFIFO(f->inode->mode))
		return -ESPIPE;
	if (S_ISDIR(f->inode->mode))
		return -EISDIR;
	if (!S_ISREG(f->inode->mode))
		return -ENODEV;
	if (__builtin_add_overflow(off, len, &end))
		return -EFBIG;
	if (!f->ops->fallocate)
		return -EOPNOTSUPP;
	if (!(mode & FALLOC_FL_KEEP_SIZE) && t && (uint64_t)end > task_rlimit(t, RLIMIT_FSIZE)) {
		signal_send_task(t, SIGXFSZ, NULL);
		return -EFBIG;
	}
	err = file_remove_privs(t, f);
	if (!err)
		err = f->ops->fallocate(f, mode, (uint64_t)off, (uint64_t)len);
	if (!err)
		notify_file(f, IN_MODIFY);
	return err;
}
