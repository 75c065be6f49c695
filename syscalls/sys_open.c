// SPDX-License-Identifier: Apache-2.0
/* open, openat, openat2, creat, close, close_range (man 2 open, 2 openat2, 2 close_range). */
#include "syscalls/sys.h"

#include "base/cleanup.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_priv.h"

#include <fcntl.h>
#include <string.h>

#define O_TMPFILE_BIT (O_TMPFILE & ~O_DIRECTORY)
#define VALID_OPEN_FLAGS                                                                 \
	((unsigned)(O_ACCMODE | O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_APPEND | O_NONBLOCK | \
		    O_SYNC | O_DSYNC | O_ASYNC | O_DIRECT | 0100000 | O_DIRECTORY | O_NOFOLLOW | \
		    O_NOATIME | O_CLOEXEC | O_PATH | O_TMPFILE))
#define OPATH_FLAGS ((unsigned)(O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC))
#define RESOLVE_ALL 0x1fULL /* NO_XDEV .. IN_ROOT */
#define RESOLVE_CACHED_G 0x20ULL
#define OPEN_HOW_SIZE_MAX 4096

/* What open(2) and openat2(2) both refuse. */
static long check_how(const struct open_how_g *how)
{
	unsigned flags = (unsigned)how->flags;

	if (flags & O_TMPFILE_BIT) {
		if ((flags & O_TMPFILE) != O_TMPFILE || (flags & O_CREAT))
			return -EINVAL;
		if ((flags & O_ACCMODE) == O_RDONLY)
			return -EINVAL;
	}
	if (!(flags & O_PATH) && (flags & (O_CREAT | O_DIRECTORY)) == (O_CREAT | O_DIRECTORY) &&
	    !(flags & O_TMPFILE_BIT))
		return -EINVAL;
	return 0;
}

static long do_open(struct task *t, int dirfd, gaddr_t name, const struct open_how_g *how)
{
	AUTO_FREE char *path = NULL;
	ssize_t n = copyin_path(t, name, &path);

	if (n < 0)
		return n;
	/* The number first: EMFILE must not leave a created file behind. */
	int fd = fd_reserve(t, (unsigned)how->flags);
	if (fd < 0)
		return fd;
	struct file *f = vfs_open(t, dirfd, path, how);
	if (is_err(f)) {
		fd_unreserve(t, fd);
		return ptr_err(f);
	}
	fd_commit(t, fd, f);
	return fd;
}

/* open(2) ignores what it doesn't know, and the mode where nothing is created. */
static long open_old(struct task *t, int dirfd, gaddr_t name, uint32_t flags, uint32_t mode)
{
	struct open_how_g how = { .flags = flags & VALID_OPEN_FLAGS, .mode = mode & 07777 };

	if (how.flags & O_PATH)
		how.flags &= OPATH_FLAGS;
	if (!(how.flags & (O_CREAT | O_TMPFILE_BIT)))
		how.mode = 0;
	long err = check_how(&how);
	return err ? err : do_open(t, dirfd, name, &how);
}

long sys_open(struct task *t, const struct sysargs *a)
{
	return open_old(t, AT_FDCWD_G, arg_gaddr(a, 0), arg_u32(a, 1), arg_u32(a, 2));
}

long sys_openat(struct task *t, const struct sysargs *a)
{
	return open_old(t, arg_int(a, 0), arg_gaddr(a, 1), arg_u32(a, 2), arg_u32(a, 3));
}

long sys_creat(struct task *t, const struct sysargs *a)
{
	return open_old(t, AT_FDCWD_G, arg_gaddr(a, 0), O_CREAT | O_WRONLY | O_TRUNC, arg_u32(a, 1));
}

/* copy_struct_from_user(): a longer struct is fine if the rest is zero. */
static long copyin_how(struct task *t, gaddr_t from, size_t size, struct open_how_g *how)
{
	uint8_t rest[64];

	if (size < sizeof(*how))
		return -EINVAL;
	if (size > OPEN_HOW_SIZE_MAX)
		return -E2BIG;
	if (copyin_obj(t, how, from))
		return -EFAULT;
	for (size_t off = sizeof(*how); off < size;) {
		size_t n = MIN(size - off, sizeof(rest));

		if (copyin(t, rest, gaddr_off(from, off), n))
			return -EFAULT;
		for (size_t i = 0; i < n; i++)
			if (rest[i])
				return -E2BIG;
		off += n;
	}
	return 0;
}

long sys_openat2(struct task *t, const struct sysargs *a)
{
	struct open_how_g how;
	long err = copyin_how(t, arg_gaddr(a, 2), arg_size(a, 3), &how);

	if (err)
		return err;
	if (how.flags & ~(uint64_t)VALID_OPEN_FLAGS)
		return -EINVAL;
	if (how.resolve & ~(RESOLVE_ALL | RESOLVE_CACHED_G))
		return -EINVAL;
	if ((how.resolve & 0x18) == 0x18) /* BENEATH and IN_ROOT */
		return -EINVAL;
	if (how.flags & (O_CREAT | O_TMPFILE_BIT)) {
		if (how.mode & ~07777ULL)
			return -EINVAL;
	} else if (how.mode) {
		return -EINVAL;
	}
	if ((how.flags & O_PATH) && (how.flags & ~(uint64_t)OPATH_FLAGS))
		return -EINVAL;
	/* Everything might have to block here, so "from the cache only" always has to be retried. */
	if (how.resolve & RESOLVE_CACHED_G)
		return -EAGAIN;
	err = check_how(&how);
	return err ? err : do_open(t, arg_int(a, 0), arg_gaddr(a, 1), &how);
}

long sys_close(struct task *t, const struct sysargs *a)
{
	return fd_close(t, arg_int(a, 0));
}

long sys_close_range(struct task *t, const struct sysargs *a)
{
	return fd_close_range(t, arg_u32(a, 0), arg_u32(a, 1), arg_u32(a, 2));
}
