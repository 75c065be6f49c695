// SPDX-License-Identifier: Apache-2.0
/*
 * Regular files: read, write, truncate, fallocate, seek. No host call on these paths, but
 * for reading bytes of the image that nobody has changed (preadv on its donated
 * descriptor).
 *
 * Writers and truncation hold inode.mu; readers hold nothing while they copy.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/mount.h>

#include "sentry/fs/tmpfs/priv.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs_state.h"

#define RELATIME_NS (24LL * 3600 * NSEC_PER_SEC)

/* atime by the rules of relatime and noatime (man 8 mount). A racy single word, as in
 * struct inode. */
static void accessed(struct file *f)
{
	struct inode *i = f->inode;
	int64_t now;

	if (atomic_load(&f->flags) & O_NOATIME)
		return;
	if (f->path.mnt && (mount_flags(f->path.mnt) & (MS_NOATIME | MS_RDONLY)))
		return;
	now = clock_realtime_ns();
	if (i->atime_ns <= i->mtime_ns || i->atime_ns <= i->ctime_ns ||
	    now - i->atime_ns >= RELATIME_NS)
		i->atime_ns = now;
}

/* One piece of a read: from one extent, or one hole. */
static ssize_t read_piece(struct tm_file *f, struct iter *it, uint64_t pos, uint64_t len)
{
	uint64_t hole, n;

	mutex_lock(&f->mu);
	struct tm_extent *e = tm_extent_find_locked(f, pos >> PAGE_SHIFT, &hole);
	if (!e) {
		uint64_t lower_end = f->lower_end;

		mutex_unlock(&f->mu);
		n = hole > len >> PAGE_SHIFT ? len : (hole << PAGE_SHIFT) - (pos & (PAGE_SIZE - 1));
		n = MIN(n, len);
		if (pos < lower_end) {
			ssize_t r = lower_read(f->ti->lower, it, MIN(n, lower_end - pos), pos);

			/* The image is immutable by contract: a short file is damage. */
			return r == 0 ? -EIO : r;
		}
		return iter_zero(it, n);
	}
	uint64_t at = pos - (e->page << PAGE_SHIFT);
	n = MIN(len, (e->npages << PAGE_SHIFT) - at);
	const void *p = mfile_cptr(e->mf, e->off + at, &n);
	if (p)
		tm_inflight_get_locked(f);
	mutex_unlock(&f->mu);
	if (!p)
		return -ENOMEM;
	ssize_t r = iter_copy_to(it, p, n);
	mutex_lock(&f->mu);
	tm_inflight_put_locked(f);
	mutex_unlock(&f->mu);
	return r;
}

static ssize_t tm_read(struct task *t, struct file *file, struct iter *it, int64_t *pos)
{
	struct tm_file *f = TM(file->inode)->file;
	uint64_t off = (uint64_t)*pos, size = atomic_load(&file->inode->size);
	size_t done = 0;

	(void)t;
	if (!it->left)
		return 0;
	if (off >= size) {
		accessed(file); /* as Linux does, though nothing is read */
		return 0;
	}
	uint64_t len = MIN((uint64_t)it->left, size - off);
	while (done < len) {
		ssize_t r = read_piece(f, it, off + done, len - done);

		if (r <= 0) {
			if (done)
				break;
			return r;
		}
		done += (size_t)r;
	}
	*pos += (int64_t)done;
	accessed(file);
	return (ssize_t)done;
}

/* How far to allocate for a write of [pos, pos+len): ahead of a file that grows by
 * appending. */
static uint64_t pages_wanted(struct tm_file *f, uint64_t pos, uint64_t len, bool *ahead)
{
	uint64_t first = pos >> PAGE_SHIFT, last = (pos + len - 1) >> PAGE_SHIFT;
	uint64_t n = last - first + 1, more = MIN(f->npages / 2, (uint64_t)TM_PREALLOC_MAX);

	*ahead = false;
	if (pos == 0 || pos < atomic_load(&f->ti->i.size) || more == 0)
		return n;
	*ahead = true;
	return n + more;
}

/* The page at @pos becomes writable: *ret_n bytes at the returned address, in flight.
 * NULL: *err. */
static void *write_begin(struct tm_file *f, uint64_t pos, uint64_t len, uint64_t *ret_n,
			 uint64_t *ret_gen, bool *ret_copied_up, int *err)
{
	uint64_t hole, n, page = pos >> PAGE_SHIFT;
	void *p = NULL;

	*err = 0;
	AUTO_LOCK(&f->mu);
	if (!f->own && !f->lower_end && pos + len > TM_SHARED_MAX)
		(void)tm_own_locked(f); /* no mfile to be had: it stays in the shared one */
	struct tm_extent *e = tm_extent_find_locked(f, page, &hole);
	if (!e) {
		bool ahead;
		uint64_t want = MIN(pages_wanted(f, pos, len, &ahead), hole);

		*ret_copied_up |= pos < f->lower_end;
		f->ahead |= ahead;
		*err = tm_room(TM_SB(f->ti->i.sb), want) ? tm_populate_locked(f, page, want) : -ENOSPC;
		if (*err == -ENOSPC && want > 1 && tm_room(TM_SB(f->ti->i.sb), 1))
			*err = tm_populate_locked(f, page, 1); /* as much as there is room for */
		e = tm_extent_find_locked(f, page, &hole);
	}
	if (e && tm_frozen_locked(f, e)) {
		n = ((pos + len - 1) >> PAGE_SHIFT) - page + 1;
		n = MIN(n, e->npages - (page - e->page));
		*err = tm_thaw_locked(f, page, n) ? -ENOSPC : 0;
		*ret_copied_up = true;
		e = *err ? NULL : tm_extent_find_locked(f, page, &hole);
	}
	if (e) {
		uint64_t at = pos - (e->page << PAGE_SHIFT);

		n = MIN(len, (e->npages << PAGE_SHIFT) - at);
		p = mfile_ptr(e->mf, e->off + at, &n);
		*ret_n = n;
		*ret_gen = f->gen;
		if (p)
			tm_inflight_get_locked(f);
	}
	if (!p && !*err)
		*err = -ENOMEM;
	return p;
}

/* Bytes written, or -errno. */
static ssize_t write_piece(struct tm_file *f, struct iter *it, uint64_t pos, uint64_t len)
{
	bool copied_up = false, again;
	ssize_t r;

	do {
		uint64_t n, gen;
		int err;
		void *p = write_begin(f, pos, len, &n, &gen, &copied_up, &err);

		if (!p)
			return err;
		r = iter_copy_from(it, p, n);
		if (r == -EFAULT && !tm_room(TM_SB(f->ti->i.sb), 0))
			r = -ENOSPC; /* an extent of the file that was never touched */
		mutex_lock(&f->mu);
		again = r > 0 && f->gen != gen; /* moved under us: these bytes are lost */
		/* In one step with the end of the flight: tm_release() cuts off what is
		 * beyond. */
		if (r > 0 && !again && pos + (uint64_t)r > atomic_load(&f->ti->i.size))
			atomic_store(&f->ti->i.size, pos + (uint64_t)r);
		tm_inflight_put_locked(f);
		mutex_unlock(&f->mu);
		if (again)
			iter_revert(it, (size_t)r);
	} while (again);
	if (copied_up)
		tm_moved(f, page_down(pos), page_up(len) + PAGE_SIZE);
	return r;
}

/* Is the page at @pos about to move by being written to? */
static bool frozen_at_locked(struct tm_file *f, uint64_t pos)
{
	uint64_t hole;
	struct tm_extent *e = tm_extent_find_locked(f, pos >> PAGE_SHIFT, &hole);

	return e && tm_frozen_locked(f, e);
}

/* New pages beyond the old end: what a mapping left behind there must not show. */
static int extend_locked(struct inode *inode, uint64_t old_size, uint64_t new_size)
{
	struct tm_file *f = TM(inode)->file;
	bool moves = false;
	int err = 0;

	if (new_size > old_size && (old_size & (PAGE_SIZE - 1))) {
		mutex_lock(&f->mu);
		moves = frozen_at_locked(f, old_size);
		err = tm_zero_locked(f, old_size, MIN(new_size, page_up(old_size)) - old_size);
		mutex_unlock(&f->mu);
	}
	if (moves)
		tm_moved(f, page_down(old_size), PAGE_SIZE);
	return err;
}

static ssize_t tm_write(struct task *t, struct file *file, struct iter *it, int64_t *pos)
{
	struct inode *inode = file->inode;
	struct tm_file *f = TM(inode)->file;
	size_t done = 0, len = it->left;
	ssize_t r = 0;

	(void)t;
	if (!len)
		return 0;
	AUTO_LOCK(&inode->mu);
	uint64_t size = atomic_load(&inode->size);
	if (atomic_load(&file->flags) & O_APPEND)
		*pos = (int64_t)size;
	uint64_t off = (uint64_t)*pos;
	if (off > INT64_MAX - len)
		return -EFBIG;
	int err = tm_check_seals(f, size, MAX(size, off + len), true);
	if (err)
		return err;
	err = extend_locked(inode, size, off);
	if (err)
		return err;
	while (done < len) {
		r = write_piece(f, it, off + done, len - done);
		if (r <= 0)
			break;
		done += (size_t)r;
	}
	if (!done)
		return r;
	inode_touch(inode, ATTR_MTIME);
	*pos += (int64_t)done;
	return (ssize_t)done;
}

/*
 * The page that the new end falls into is made the file's own, if the lower has it, so
 * that its tail can be zeroed.
 */
static int cut_last_page(struct tm_file *f, uint64_t size)
{
	uint64_t in_page = size & (PAGE_SIZE - 1);

	mutex_assert_held(&f->mu);
	if (!in_page)
		return 0;
	if (size < f->lower_end) {
		int err = tm_populate_locked(f, size >> PAGE_SHIFT, 1);

		if (err)
			return err;
	}
	return tm_zero_locked(f, size, PAGE_SIZE - in_page);
}

/* ATTR_SIZE. Context: inode.mu. */
int tm_truncate(struct inode *inode, uint64_t size)
{
	struct tm_file *f = TM(inode)->file;
	uint64_t old = atomic_load(&inode->size);

	mutex_assert_held(&inode->mu);
	if (size > INT64_MAX)
		return -EFBIG;
	int err = tm_check_seals(f, old, size, false);
	if (err)
		return err;
	if (size >= old) {
		err = extend_locked(inode, old, size);
		if (!err)
			atomic_store(&inode->size, size);
		return err;
	}
	mutex_lock(&f->mu);
	bool cut_lower = size < f->lower_end, moves = cut_lower || frozen_at_locked(f, size);
	err = cut_last_page(f, size);
	if (!err) {
		uint64_t from = page_up(size) >> PAGE_SHIFT;

		/* First the size, so that no fault brings a page back. */
		atomic_store(&inode->size, size);
		tm_remove_locked(f, from, (UINT64_MAX >> PAGE_SHIFT) - from);
		if (cut_lower)
			f->lower_end = page_down(size);
	}
	mutex_unlock(&f->mu);
	if (!err && atomic_load(&f->uses)) {
		if (moves)
			mm_object_moved(&f->vmo, page_down(size), PAGE_SIZE);
		mm_object_truncated(&f->vmo, size);
	}
	return err;
}

/* ---- fallocate ---- */

/* Bytes [off, end) become zeroes; whole pages become holes. Context: inode.mu. */
static int punch(struct inode *inode, uint64_t off, uint64_t end)
{
	struct tm_file *f = TM(inode)->file;
	uint64_t first = page_up(off), last = page_down(end);
	int err = 0;

	mutex_lock(&f->mu);
	/* The lower's pages can't be holes again: they become pages of zeroes. */
	uint64_t lower_end = page_up(f->lower_end);
	if (off < lower_end) {
		uint64_t up = MIN(page_up(end), lower_end);

		err = tm_populate_locked(f, off >> PAGE_SHIFT, (up - page_down(off)) >> PAGE_SHIFT);
	}
	if (!err)
		err = tm_zero_locked(f, off, MIN(end, first) - off);
	if (!err && last >= first && last < end)
		err = tm_zero_locked(f, last, end - last);
	if (!err && first < last) {
		uint64_t keep = MAX(first, lower_end);

		keep = MIN(keep, last);

		err = tm_zero_locked(f, first, keep - first);
		if (!err)
			tm_remove_locked(f, keep >> PAGE_SHIFT, (last - keep) >> PAGE_SHIFT);
	}
	mutex_unlock(&f->mu);
	tm_moved(f, page_down(off), page_up(end) - page_down(off));
	return err;
}

static int tm_fallocate(struct file *file, int mode, uint64_t off, uint64_t len)
{
	struct inode *inode = file->inode;
	struct tm_file *f = TM(inode)->file;
	uint64_t end;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		return -EOPNOTSUPP;
	if (__builtin_add_overflow(off, len, &end) || end > INT64_MAX - PAGE_SIZE)
		return -EFBIG;
	AUTO_LOCK(&inode->mu);
	uint64_t size = atomic_load(&inode->size);
	bool grow = !(mode & FALLOC_FL_KEEP_SIZE) && end > size;
	int err = tm_check_seals(f, size, grow ? end : size,
				 (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0);
	if (err)
		return err;
	if (mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		err = punch(inode, off, end);
	if (!err && !(mode & FALLOC_FL_PUNCH_HOLE)) {
		uint64_t lower_end;

		mutex_lock(&f->mu);
		lower_end = f->lower_end;
		f->ahead = false; /* pages beyond the end are wanted now */
		/* What the lower has is there already. */
		uint64_t from = MAX(page_down(off), page_up(lower_end));
		if (from < page_up(end) && !tm_room(TM_SB(f->ti->i.sb), (page_up(end) - from) >> PAGE_SHIFT))
			err = -ENOSPC;
		else if (from < page_up(end))
			err = tm_populate_locked(f, from >> PAGE_SHIFT,
						 (page_up(end) - from) >> PAGE_SHIFT);
		mutex_unlock(&f->mu);
		if (!err && grow)
			err = extend_locked(inode, size, end);
		if (!err && grow)
			atomic_store(&inode->size, end);
	}
	if (!err)
		inode_touch(inode, ATTR_MTIME);
	return err;
}

/* ---- lseek ---- */

/* SEEK_DATA and SEEK_HOLE: extents and the lower's part are data. */
static int64_t seek_data_hole(struct inode *inode, uint64_t off, bool data)
{
	struct tm_file *f = TM(inode)->file;
	uint64_t size = atomic_load(&inode->size), pos = off;

	if (off >= size)
		return -ENXIO;
	AUTO_LOCK(&f->mu);
	while (pos < size) {
		uint64_t hole;
		struct tm_extent *e = tm_extent_find_locked(f, pos >> PAGE_SHIFT, &hole);
		bool is_data = e || pos < f->lower_end;

		if (is_data == data)
			return (int64_t)pos;
		if (e)
			pos = (e->page + e->npages) << PAGE_SHIFT;
		else if (is_data)
			pos = page_up(MIN(f->lower_end, pos + 1));
		else
			pos = hole > (size >> PAGE_SHIFT) ? size : page_down(pos) + (hole << PAGE_SHIFT);
	}
	return data ? -ENXIO : (int64_t)size;
}

static int64_t tm_llseek(struct file *file, int64_t off, int whence)
{
	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return generic_llseek(file, off, whence);
	if (off < 0)
		return -ENXIO;
	int64_t r = seek_data_hole(file->inode, (uint64_t)off, whence == SEEK_DATA);
	if (r >= 0)
		file->pos = r;
	return r;
}

/*
 * Gives back what was allocated ahead of a growing file. Without inode.mu: the last
 * reference may be a vma's, dropped with mm.mu held. A write under way shows in inflight.
 */
static void tm_release(struct file *file)
{
	struct inode *inode = file->inode;
	struct tm_file *f = TM(inode)->file;

	if (!(file->fmode & FMODE_WRITE))
		return;
	AUTO_LOCK(&f->mu);
	uint64_t from = page_up(atomic_load(&inode->size)) >> PAGE_SHIFT;
	if (f->ahead && !f->inflight && !atomic_load(&f->uses)) {
		tm_remove_locked(f, from, (UINT64_MAX >> PAGE_SHIFT) - from);
		f->ahead = false;
	}
}

static struct vm_object *tm_mmap(struct task *t, struct file *file, int prot, int flags,
				 uint64_t *off, uint64_t len)
{
	struct inode *inode = file->inode;
	struct tm_file *f = TM(inode)->file;
	bool shared = (flags & MAP_TYPE) != MAP_PRIVATE;
	int err = 0;

	(void)t;
	mutex_lock(&f->mu);
	if (shared && (prot & PROT_WRITE) && (f->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)))
		err = -EPERM;
	bool writable = !err && shared && (file->fmode & FMODE_WRITE);
	bool up = writable && *off < f->lower_end;
	/* From now on frozen pages are copied rather than mapped; those mapped already go. */
	bool thaw = writable && !f->thaw_maps && tm_any_frozen_locked(f);
	f->thaw_maps |= writable;
	if (up) {
		uint64_t end = MIN(page_up(f->lower_end), *off + page_up(len));

		err = tm_populate_locked(f, *off >> PAGE_SHIFT, (end - *off) >> PAGE_SHIFT);
	}
	mutex_unlock(&f->mu);
	if (err)
		return err_ptr(err);
	if (thaw)
		tm_moved(f, 0, UINT64_MAX);
	else if (up)
		tm_moved(f, *off, page_up(len));
	accessed(file);
	return &f->vmo;
}

static int tm_fsync(struct file *file, bool datasync)
{
	(void)file, (void)datasync;
	return 0; /* memory is all the storage there is */
}

const struct file_ops tm_file_fops = {
	.name = "tmpfs",
	.release = tm_release,
	.read = tm_read,
	.write = tm_write,
	.llseek = tm_llseek,
	.mmap = tm_mmap,
	.fsync = tm_fsync,
	.fallocate = tm_fallocate,
	.state = &file_state_tmpfs,
};
