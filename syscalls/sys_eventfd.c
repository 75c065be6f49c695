// SPDX-License-Identifier: Apache-2.0
/* eventfd, eventfd2 (man 2 eventfd). */
#include <fcntl.h>
#include <sys/eventfd.h>

#include "sentry/fs/eventfd/eventfd.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"

static long do_eventfd(struct task *t, uint32_t count, int flags)
{
	struct file *f;

	if (flags & ~(EFD_SEMAPHORE | EFD_CLOEXEC | EFD_NONBLOCK))
		return -EINVAL;
	f = eventfd_create(count, flags & EFD_SEMAPHORE, (unsigned)flags & O_NONBLOCK);
	if (is_err(f))
		return ptr_err(f);
	return fd_install(t, f, (unsigned)flags & O_CLOEXEC);
}

long sys_eventfd(struct task *t, const struct sysargs *a)
{
	return do_eventfd(t, arg_u32(a, 0), 0);
}

long sys_eventfd2(struct task *t, const struct sysargs *a)
{
	return do_eventfd(t, arg_u32(a, 0), arg_int(a, 1));
}
