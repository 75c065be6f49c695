// SPDX-License-Identifier: Apache-2.0
/*
 * Reading and writing of donated host files: straight between the host's page cache and
 * pinned guest memory, one host call for each piece of a request. Shared by the overlay's
 * lower files and by bind mounts. Donated descriptors are of regular files only, so
 * nothing here blocks for long.
 */
#include <errno.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/stats.h"
#include "sentry/fs/overlay/lower.h"
#include "sentry/kernel/oom.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/safecopy.h"
#include "sentry/mm/usermem.h"

#define PIN_SEGS 16
#define PIN_MAX (4UL << 20) /* bytes of guest memory pinned at a time */

static ssize_t host_io(int fd, bool write, const struct iovec *iov, int n, uint64_t pos)
{
	ssize_t r;

	do {
		r = write ? HOST(PWRITE, pwritev(fd, iov, n, (off_t)pos))
			  : HOST(PREAD, preadv(fd, iov, n, (off_t)pos));
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

static ssize_t host_iter(int fd, bool write, struct iter *it, size_t len, uint64_t pos)
{
	size_t done = 0;

	while (done < len) {
		struct iovec iov[PIN_SEGS];
		size_t want = 0;
		int n = iter_pin(it, !write, MIN(len - done, PIN_MAX), iov, PIN_SEGS);

		if (n <= 0)
			return done ? (ssize_t)done : n;
		for (int i = 0; i < n; i++)
			want += iov[i].iov_len;
		ssize_t r = host_io(fd, write, iov, n, pos + done);
		iter_unpin(it);
		/* The guest's pages were there, but not the memory for them. */
		if (r == -EFAULT && oom_short() && oom_relieve(current_task()))
			continue;
		if (r < 0)
			return done ? (ssize_t)done : r;
		iter_advance(it, (size_t)r);
		done += (size_t)r;
		if ((size_t)r < want)
			break;
	}
	return (ssize_t)done;
}

ssize_t host_read_iter(int fd, struct iter *it, size_t len, uint64_t pos)
{
	return host_iter(fd, false, it, len, pos);
}

ssize_t host_write_iter(int fd, struct iter *it, size_t len, uint64_t pos)
{
	return host_iter(fd, true, it, len, pos);
}

int lower_fill(struct lower *l, void *buf, size_t len, uint64_t pos)
{
	struct mfile *mf = lower_open(l);
	size_t done = 0;
	int err = 0;

	if (is_err(mf))
		return (int)ptr_err(mf);
	while (done < len && !err) {
		struct iovec iov = { .iov_base = (char *)buf + done, .iov_len = len - done };
		ssize_t n = host_io(mfile_rofd(mf), false, &iov, 1, pos + done);

		if (n == 0)
			break;
		if (n < 0)
			err = (int)n;
		else
			done += (size_t)n;
	}
	mfile_put(mf);
	if (!err && done < len && safezero((char *)buf + done, len - done))
		err = -EFAULT;
	return err == -EFAULT ? -ENOSPC : err; /* the buffer is a page of ours, which may be lacking */
}
