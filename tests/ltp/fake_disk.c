// SPDX-License-Identifier: Apache-2.0
/*
 * A preloaded library for LTP: $LTP_DEV looks like a block device of 512 MB to those who ask.
 *
 * A sandbox has no block devices, but many of LTP's tests of system calls insist on one before they mount
 * a tmpfs (LTP_SINGLE_FS_TYPE=tmpfs) and never touch the device again. What does touch it (mkfs, device
 * ioctls, the same files after a second mount) fails, which says nothing about the sandbox.
 *
 *	gcc -shared -fPIC -o /opt/ltp/fake_disk.so tests/ltp/fake_disk.c
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#define DISK_BYTES (512ULL << 20)

typedef int (*open_fn)(const char *, int, ...);

static int disk_fd = -1;

static int is_disk(const char *path)
{
	const char *disk = getenv("LTP_DEV");

	return path && disk && strcmp(path, disk) == 0;
}

int stat(const char *path, struct stat *st)
{
	int (*real)(const char *, struct stat *) = dlsym(RTLD_NEXT, "stat");

	if (!is_disk(path))
		return real(path, st);
	*st = (struct stat){ .st_mode = S_IFBLK | 0660, .st_rdev = 0x700 };
	return 0;
}

static int open_any(const char *which, const char *path, int flags, mode_t mode)
{
	open_fn real = (open_fn)dlsym(RTLD_NEXT, which);

	if (!is_disk(path))
		return real(path, flags, mode);
	return disk_fd = real("/dev/zero", flags & ~(O_CREAT | O_EXCL));
}

#define OPEN(name)                                                                       \
	int name(const char *path, int flags, ...)                                       \
	{                                                                                \
		va_list ap;                                                              \
		va_start(ap, flags);                                                     \
		mode_t mode = va_arg(ap, mode_t);                                        \
		va_end(ap);                                                              \
		return open_any(#name, path, flags, mode);                               \
	}

OPEN(open)
OPEN(open64)

int ioctl(int fd, unsigned long request, ...)
{
	int (*real)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
	va_list ap;

	va_start(ap, request);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	if (request != BLKGETSIZE64 || fd < 0 || fd != disk_fd)
		return real(fd, request, arg);
	*(uint64_t *)arg = DISK_BYTES;
	return 0;
}
