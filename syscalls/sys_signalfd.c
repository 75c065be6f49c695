// SPDX-License-Identifier: Apache-2.0
/* man 2 signalfd */
#include <errno.h>
#include <fcntl.h>
#include <sys/signalfd.h>

#include "sentry/fs/signalfd/signalfd.h"
#include "syscalls/sys.h"

static long do_signalfd(struct task *t, const struct sysargs *a, int flags)
{
	int fd = arg_int(a, 0), r;
	sigset_g mask;
	struct file *f;

	if (flags & ~(SFD_CLOEXEC | SFD_NONBLOCK))
		return -EINVAL;
	if (arg_size(a, 2) != sizeof(mask))
		return -EINVAL;
	r = copyin_obj(t, &mask, arg_gaddr(a, 1));
	if (r < 0)
		return r;
	if (fd == -1) {
		f = signalfd_create_file(t, mask, (unsigned)flags);
		return is_err(f) ? ptr_err(f) : fd_install(t, f, (unsigned)flags & O_CLOEXEC);
	}
	f = fd_get(t, fd);
	if (!f)
		return -EBADF;
	if (file_is_signalfd(f))
		signalfd_set_mask(f, mask);
	else
		fd = -EINVAL;
	file_put(f);
	return fd;
}

long sys_signalfd(struct task *t, const struct sysargs *a)
{
	return do_signalfd(t, a, 0);
}

long sys_signalfd4(struct task *t, const struct sysargs *a)
{
	return do_signalfd(t, a, arg_int(a, 3));
}
