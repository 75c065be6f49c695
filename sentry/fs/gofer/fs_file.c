// SPDX-License-Identifier: Apache-2.0
/*
 * Regular files of bind mounts: read and write go straight to the donated host
 * descriptor, between pinned guest memory and the host's page cache, so host and guest
 * see each other's bytes at once. A mapping maps the host file itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/fs/gofer/fs.h"
#include "sentry/fs/overlay/lower.h"
#include "sentry/mm/mfile.h"
#include "sentry/vfs/vfs_state.h"

struct mfile *gf_mfile(struct gf_inode *gi, bool write)
{
	struct mfile **slot = write ? &gi->rw : &gi->ro, *mf, *loser = NULL;

	mutex_lock(&gi->io_mu);
	mf = *slot ? mfile_get(*slot) : NULL;
	mutex_unlock(&gi->io_mu);
	if (mf)
		return mf;
	int fd = gofer_open(gf_client(&gi->i), atomic_load(&gi->node), write ? GOFER_O_WRITE : 0,
			    NULL);
	if (fd < 0)
		return err_ptr(fd);
	mf = mfile_wrap_host(fd, write);
	if (is_err(mf))
		return mf;
	mutex_lock(&gi->io_mu);
	if (*slot) {
		loser = mf;
		mf = *slot;
	} else {
		*slot = mf;
	}
	mfile_get(mf);
	mutex_unlock(&gi->io_mu);
	mfile_put(loser);
	return mf;
}

void gf_keep_fd(struct gf_inode *gi, int fd)
{
	struct mfile *mf = mfile_wrap_host(fd, true), *old;

	if (is_err(mf))
		return; /* opened again on demand */
	mutex_lock(&gi->io_mu);
	old = gi->rw;
	gi->rw = mf;
	mutex_unlock(&gi->io_mu);
	mfile_put(old);
}

void gf_before_unlink(struct inode *inode)
{
	struct gf_inode *gi = GF(inode);
	struct mfile *ro;
	bool need;

	if (!S_ISREG(inode->mode))
		return;
	mutex_lock(&gi->io_mu);
	need = gi->users && !gi->ro;
	mutex_unlock(&gi->io_mu);
	ro = need ? gf_mfile(gi, false) : NULL;
	if (ro && !is_err(ro))
		mfile_put(ro); /* the inode has it now */
}

void gf_users_get(struct gf_inode *gi)
{
	AUTO_LOCK(&gi->io_mu);
	gi->users++;
}

/* With the last user the host descriptors go, so that idle files cost none. */
static void users_put(struct gf_inode *gi)
{
	struct mfile *ro = NULL, *rw = NULL;

	mutex_lock(&gi->io_mu);
	if (--gi->users == 0) {
		ro = steal_ptr(&gi->ro);
		rw = steal_ptr(&gi->rw);
	}
	mutex_unlock(&gi->io_mu);
	mfile_put(ro);
	mfile_put(rw);
}

/* f->priv: the host file, opened with no more than the guest's right. */
int gf_open(struct inode *inode, struct file *f)
{
	if (!S_ISREG(inode->mode)) {
		f->ops = inode->fops;
		return 0;
	}
	gf_users_get(GF(inode));
	struct mfile *mf = gf_mfile(GF(inode), (f->fmode & FMODE_WRITE) != 0);
	if (is_err(mf)) {
		users_put(GF(inode));
		return (int)ptr_err(mf);
	}
	f->ops = &gf_file_fops;
	f->priv = mf;
	return 0;
}

static void gf_release(struct file *f)
{
	if (!f->priv)
		return;
	mfile_put(f->priv);
	f->priv = NULL;
	users_put(GF(f->inode));
}

static int file_fd(struct file *f)
{
	struct mfile *mf = f->priv;

	return (f->fmode & FMODE_WRITE) ? mfile_rwfd(mf) : mfile_rofd(mf);
}

static ssize_t gf_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	(void)t;
	if (!it->left)
		return 0;
	ssize_t n = host_read_iter(file_fd(f), it, it->left, (uint64_t)*pos);
	if (n > 0)
		*pos += n;
	/* As relatime has it, this read may have changed what was asked for a moment ago. */
	if (f->inode->atime_ns <= f->inode->mtime_ns || f->inode->atime_ns <= f->inode->ctime_ns)
		atomic_store(&GF(f->inode)->attr_ns, 0);
	return n;
}

static ssize_t gf_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct inode *inode = f->inode;

	(void)t;
	if (!it->left)
		return 0;
	AUTO_LOCK(&inode->mu);
	atomic_store(&GF(inode)->attr_ns, 0);
	if (atomic_load(&f->flags) & O_APPEND) {
		/* The host's idea of the end; its own appenders can still come between. */
		int err = gf_getattr(inode);

		if (err)
			return err;
		*pos = (int64_t)atomic_load(&inode->size);
	}
	ssize_t n = host_write_iter(file_fd(f), it, it->left, (uint64_t)*pos);
	if (n <= 0)
		return n;
	*pos += n;
	if ((uint64_t)*pos > atomic_load(&inode->size))
		atomic_store(&inode->size, (uint64_t)*pos);
	inode_touch(inode, ATTR_MTIME);
	atomic_store(&GF(inode)->attr_ns, 0);
	return n;
}

static int64_t gf_llseek(struct file *f, int64_t off, int whence)
{
	if (whence == SEEK_DATA || whence == SEEK_HOLE) {
		if (off < 0)
			return -ENXIO;
		off_t r = lseek(file_fd(f), off, whence); /* host: lseek */
		if (r < 0)
			return -errno;
		f->pos = r;
		return r;
	}
	if (whence == SEEK_END) {
		atomic_store(&GF(f->inode)->attr_ns, 0);
		int err = gf_getattr(f->inode);

		if (err)
			return err;
	}
	return generic_llseek(f, off, whence);
}

static int gf_fsync(struct file *f, bool datasync)
{
	int fd = file_fd(f);
	int r = datasync ? fdatasync(fd) /* host: fdatasync */ : fsync(fd); /* host: fsync */

	return r < 0 ? -errno : 0;
}

static int gf_fallocate(struct file *f, int mode, uint64_t off, uint64_t len)
{
	struct inode *inode = f->inode;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE |
		     FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE))
		return -EOPNOTSUPP;
	AUTO_LOCK(&inode->mu);
	if (fallocate(file_fd(f), mode, (off_t)off, (off_t)len) < 0) /* host: fallocate */
		return -errno;
	atomic_store(&GF(inode)->attr_ns, 0);
	return gf_getattr(inode);
}

/* Context: inode.mu. Through a descriptor if one is open for writing, which also works
 * when deleted. */
int gf_truncate(struct inode *inode, uint64_t size)
{
	struct gf_inode *gi = GF(inode);
	uint64_t old = atomic_load(&inode->size);
	struct mfile *rw;
	int err;

	if (size > INT64_MAX)
		return -EFBIG;
	mutex_lock(&gi->io_mu);
	rw = gi->rw ? mfile_get(gi->rw) : NULL;
	mutex_unlock(&gi->io_mu);
	if (rw) {
		err = ftruncate(mfile_rwfd(rw), (off_t)size) < 0 ? -errno : 0; /* host: ftruncate */
		mfile_put(rw);
	} else {
		struct gofer_setattr s = { .valid = GOFER_SET_SIZE, .size = size };
		struct gofer_attr a;

		err = gofer_setattr(gf_client(inode), atomic_load(&gi->node), &s, &a);
	}
	if (err)
		return err;
	atomic_store(&inode->size, size);
	if (size < old)
		mm_object_truncated(&gi->vmo, size);
	return 0;
}

static int gf_host_fd(struct file *f)
{
	return file_fd(f);
}

const struct file_ops gf_file_fops = {
	.name = "gofer",
	.release = gf_release,
	.read = gf_read,
	.write = gf_write,
	.llseek = gf_llseek,
	.fsync = gf_fsync,
	.fallocate = gf_fallocate,
	.host_fd = gf_host_fd,
	.state = &file_state_gofer,
};

/* ---- mapping ---- */

static struct gf_inode *INODE_OF(struct vm_object *o)
{
	return container_of(o, struct gf_inode, vmo);
}

static void object_get(struct vm_object *o)
{
	inode_get(&INODE_OF(o)->i);
	gf_users_get(INODE_OF(o));
}

static void object_put(struct vm_object *o)
{
	users_put(INODE_OF(o));
	inode_put(&INODE_OF(o)->i);
}

static int object_translate(struct vm_object *o, uint64_t off, uint64_t *len, bool write,
			    struct mfile **ret_mf, uint64_t *ret_off)
{
	struct gf_inode *gi = INODE_OF(o);
	struct stat st;
	struct mfile *mf = gf_mfile(gi, write);

	if (is_err(mf))
		return -EFAULT;
	/* The host may have changed the size; beyond it lies SIGBUS. */
	if (fstat(mfile_rofd(mf), &st) < 0 || off >= page_up((uint64_t)st.st_size)) {
		mfile_put(mf);
		return -EFAULT;
	}
	*len = MIN(MAX(*len, PAGE_SIZE), page_up((uint64_t)st.st_size) - off);
	if (write)
		atomic_store(&gi->attr_ns, 0);
	*ret_mf = mf;
	*ret_off = off;
	return 0;
}

static int object_sync(struct vm_object *o, uint64_t off, uint64_t len)
{
	struct gf_inode *gi = INODE_OF(o);
	struct mfile *rw;
	int err = 0;

	(void)off, (void)len;
	mutex_lock(&gi->io_mu);
	rw = gi->rw ? mfile_get(gi->rw) : NULL;
	mutex_unlock(&gi->io_mu);
	if (rw && fdatasync(mfile_rwfd(rw)) < 0)
		err = -errno;
	mfile_put(rw);
	return err;
}

const struct vm_object_ops gf_object_ops = {
	.get = object_get,
	.put = object_put,
	.translate = object_translate,
	.sync = object_sync,
};
