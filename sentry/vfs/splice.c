// SPDX-License-Identifier: Apache-2.0
/*
 * Moving data between files without the guest seeing it (man 2 splice, 2 sendfile, 2 copy_file_range).
 * Pages travel between a pipe and a file without a bounce; file to file goes through a buffer.
 *
 * Left out: SPLICE_F_MOVE, _MORE and _GIFT are hints and ignored; vmsplice copies.
 *
 * Context: no locks held: the files take theirs in their own operations.
 */
#include "sentry/vfs/splice.h"

#include <fcntl.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs.h"

#define SPLICE_PAGES 16
#define COPY_BUFFER (256UL * 1024)

/* A kernel iterator over page pieces. */
static void iter_pieces(struct iter *it, struct iovec *iov, unsigned n)
{
	*it = (struct iter){ .kvec = iov, .nseg = n };
	for (unsigned i = 0; i < n; i++)
		it->left += iov[i].iov_len;
}

static bool seekable(const struct file *f)
{
	return f->ops->llseek && !(f->fmode & FMODE_STREAM);
}

/* ---------------------------------------------------------------- pipe -> file */

static ssize_t pipe_to_file(struct task *t, struct pipe *p, struct file *out, int64_t *pos,
			    size_t len, bool nonblock)
{
	struct iovec iov[SPLICE_PAGES];
	ssize_t done = 0;

	while (len) {
		struct iter it;
		ssize_t r;
		/* Only the first piece waits for data: then what is there is moved. */
		long n = pipe_claim_read(t, p, nonblock || done, len, iov, SPLICE_PAGES);
		size_t want;

		if (n <= 0)
			return done ? done : n;
		iter_pieces(&it, iov, (unsigned)n);
		want = it.left;
		r = file_write(t, out, &it, pos);
		pipe_unclaim_read(p, r > 0 ? (size_t)r : 0);
		if (r <= 0)
			return done ? done : r;
		done += r;
		len -= (size_t)r;
		if ((size_t)r < want)
			break;
	}
	return done;
}

/* ---------------------------------------------------------------- file -> pipe */

/* Reads into fresh pages. Bytes read; *ret_n pages are filled, the others are freed. */
static ssize_t read_pages(struct task *t, struct file *in, int64_t *pos, size_t len,
			  struct pipe_page *pages, unsigned max, unsigned *ret_n)
{
	struct iovec iov[SPLICE_PAGES];
	unsigned n = 0, used = 0;
	struct iter it;
	ssize_t r, left;

	for (; n < max && len; n++) {
		size_t piece = MIN(len, PAGE_SIZE);

		pages[n] = (struct pipe_page){ .data = pipe_page_alloc() };
		if (!pages[n].data)
			break;
		iov[n] = (struct iovec){ pages[n].data, piece };
		len -= piece;
	}
	*ret_n = 0;
	if (n == 0)
		return -ENOMEM;
	iter_pieces(&it, iov, n);
	r = file_read(t, in, &it, pos);
	for (left = r; used < n && left > 0; used++) {
		pages[used].len = (uint32_t)MIN((size_t)left, PAGE_SIZE);
		left -= pages[used].len;
	}
	for (unsigned i = used; i < n; i++)
		pipe_page_free(pages[i].data);
	*ret_n = used;
	return r;
}

static ssize_t file_to_pipe(struct task *t, struct file *in, int64_t *pos, struct pipe *p, size_t len,
			    bool nonblock)
{
	struct pipe_page pages[SPLICE_PAGES];
	ssize_t done = 0;

	while (len) {
		unsigned n;
		size_t want;
		ssize_t r;
		long slots = pipe_claim_write(t, p, nonblock || done);

		if (slots < 0)
			return done ? done : slots;
		slots = MIN(slots, (long)SPLICE_PAGES);
		want = MIN(len, (size_t)slots * PAGE_SIZE);
		r = read_pages(t, in, pos, want, pages, (unsigned)slots, &n);
		pipe_unclaim_write(p, pages, n);
		if (r <= 0)
			return done ? done : r;
		done += r;
		len -= (size_t)r;
		if ((size_t)r < want)
			break;
	}
	return done;
}

/* ---------------------------------------------------------------- splice, tee, vmsplice */

static bool access_ok(const struct file *in, const struct file *out)
{
	return (in->fmode & FMODE_READ) && (out->fmode & FMODE_WRITE);
}

static ssize_t splice_pipes(struct task *t, struct file *in, struct file *out, size_t len,
			    unsigned flags, bool copy)
{
	struct pipe *from = pipe_of_file(in), *to = pipe_of_file(out);
	bool nonblock = (flags & SPLICE_F_NONBLOCK) || ((in->flags | out->flags) & O_NONBLOCK);

	if (from == to)
		return -EINVAL;
	return pipe_move(t, from, to, len, nonblock, copy);
}

ssize_t vfs_splice(struct task *t, struct file *in, int64_t *pos_in, struct file *out,
		   int64_t *pos_out, size_t len, unsigned flags)
{
	struct pipe *from = pipe_of_file(in), *to = pipe_of_file(out);
	bool nonblock = flags & SPLICE_F_NONBLOCK;

	if (!access_ok(in, out))
		return -EBADF;
	len = MIN(len, MAX_RW_COUNT_GUEST);
	if (from && to)
		return splice_pipes(t, in, out, len, flags, false);
	if (from) {
		if (pos_out && !seekable(out))
			return -EINVAL;
		if ((out->flags & O_APPEND) || !out->ops->write)
			return -EINVAL;
		if (pos_out && *pos_out < 0)
			return -EINVAL;
		return pipe_to_file(t, from, out, pos_out, len, nonblock);
	}
	if (to) {
		if (pos_in && !seekable(in))
			return -EINVAL;
		if (!in->ops->read || (pos_in && *pos_in < 0))
			return -EINVAL;
		return file_to_pipe(t, in, pos_in, to, len,
				    nonblock || (out->flags & O_NONBLOCK));
	}
	return -EINVAL;
}

ssize_t vfs_tee(struct task *t, struct file *in, struct file *out, size_t len, unsigned flags)
{
	if (!access_ok(in, out))
		return -EBADF;
	if (!pipe_of_file(in) || !pipe_of_file(out))
		return -EINVAL;
	return splice_pipes(t, in, out, MIN(len, MAX_RW_COUNT_GUEST), flags, true);
}

ssize_t vfs_vmsplice(struct task *t, struct file *f, struct iter *it, unsigned flags)
{
	struct pipe *p = pipe_of_file(f);
	bool nonblock = (flags & SPLICE_F_NONBLOCK) || (f->flags & O_NONBLOCK);
	ssize_t done = 0;

	if (!(f->fmode & FMODE_WRITE))
		return file_read(t, f, it, NULL);
	while (it->left) {
		struct pipe_page page = { .data = NULL };
		ssize_t r;
		long slots = pipe_claim_write(t, p, nonblock || done);

		if (slots < 0)
			return done ? done : slots;
		page.data = pipe_page_alloc();
		r = page.data ? iter_copy_from(it, page.data, MIN(it->left, PAGE_SIZE)) : -ENOMEM;
		if (r > 0)
			page.len = (uint32_t)r;
		else
			pipe_page_free(page.data);
		pipe_unclaim_write(p, &page, r > 0);
		if (r < 0)
			return done ? done : r;
		done += r;
	}
	return done;
}

/* ---------------------------------------------------------------- file -> file */

/* Copies through @buf until @len, the end of @in, or an error. What @in gave but @out didn't take is
 * given back by the position, where @in has one. */
static ssize_t copy_loop(struct task *t, struct file *in, int64_t *pos_in, struct file *out,
			 int64_t *pos_out, size_t len, uint8_t *buf, size_t size)
{
	ssize_t done = 0;

	while (len) {
		struct iter it;
		ssize_t got, put;

		iter_init_kernel(&it, buf, MIN(len, size));
		got = file_read(t, in, &it, pos_in);
		if (got <= 0)
			return done ? done : got;
		iter_init_kernel(&it, buf, (size_t)got);
		put = file_write(t, out, &it, pos_out);
		if (put < got) {
			int64_t back = got - MAX(put, (ssize_t)0);

			if (pos_in)
				*pos_in -= back;
			else
				(void)file_llseek(in, -back, SEEK_CUR); /* seekable was checked */
		}
		if (put <= 0)
			return done ? done : put;
		done += put;
		len -= (size_t)put;
		if (put < got || signal_pending(t))
			break;
	}
	return done;
}

static ssize_t copy_files(struct task *t, struct file *in, int64_t *pos_in, struct file *out,
			  int64_t *pos_out, size_t len)
{
	size_t size = MIN(page_up(len), COPY_BUFFER);
	void AUTO_FREE *buf = kmalloc_guest(size);

	if (!buf)
		return -ENOMEM;
	return copy_loop(t, in, pos_in, out, pos_out, len, buf, size);
}

/* man 2 sendfile: @in must be seekable (mmap-able), @out anything but an O_APPEND file. */
ssize_t vfs_sendfile(struct task *t, struct file *out, struct file *in, int64_t *pos, size_t len)
{
	struct pipe *to = pipe_of_file(out);

	if (!(in->fmode & FMODE_READ) || !(out->fmode & FMODE_WRITE))
		return -EBADF;
	if (pos && !seekable(in))
		return -ESPIPE;
	if (pos && *pos < 0)
		return -EINVAL;
	if (!in->ops->read || !out->ops->write || (out->flags & O_APPEND) || S_ISDIR(in->inode->mode))
		return -EINVAL;
	len = MIN(len, MAX_RW_COUNT_GUEST);
	if (len == 0)
		return 0;
	if (to)
		return file_to_pipe(t, in, pos, to, len, out->flags & O_NONBLOCK);
	if (pipe_of_file(in))
		return pipe_to_file(t, pipe_of_file(in), out, NULL, len, in->flags & O_NONBLOCK);
	if (!seekable(in))
		return -EINVAL;
	return copy_files(t, in, pos, out, NULL, len);
}

static int64_t position(struct file *f, const int64_t *pos)
{
	if (pos)
		return *pos;
	AUTO_LOCK(&f->pos_mu);
	return f->pos;
}

ssize_t vfs_copy_file_range(struct task *t, struct file *in, int64_t *pos_in, struct file *out,
			    int64_t *pos_out, size_t len)
{
	int64_t from, to, size, n;

	if (S_ISDIR(in->inode->mode) || S_ISDIR(out->inode->mode))
		return -EISDIR;
	if (!S_ISREG(in->inode->mode) || !S_ISREG(out->inode->mode))
		return -EINVAL;
	if (!access_ok(in, out) || (out->flags & O_APPEND))
		return -EBADF;
	from = position(in, pos_in);
	to = position(out, pos_out);
	if (from < 0 || to < 0)
		return -EINVAL;
	/* as Linux: no wrap of 64 bits, then the copy ends with the input, then the largest file */
	if ((uint64_t)from + len < len || (uint64_t)to + len < len)
		return -EOVERFLOW;
	size = (int64_t)atomic_load(&in->inode->size);
	n = from < size ? (int64_t)MIN((uint64_t)len, (uint64_t)(size - from)) : 0;
	if (to == INT64_MAX)
		return -EFBIG;
	n = MIN(n, INT64_MAX - to);
	if (in->inode == out->inode && from < to + n && to < from + n)
		return -EINVAL;
	len = MIN(len, (size_t)(INT64_MAX - MAX(from, to)));
	if (len == 0)
		return 0;
	return copy_files(t, in, pos_in, out, pos_out, MIN(len, MAX_RW_COUNT_GUEST));
}
