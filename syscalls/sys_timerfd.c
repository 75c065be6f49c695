// SPDX-License-Identifier: Apache-2.0
/* man 2 timerfd_create */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/timerfd.h>
#include <time.h>

#include "sentry/fs/timerfd/timerfd.h"
#include "syscalls/sys.h"

long sys_timerfd_create(struct task *t, const struct sysargs *a)
{
	int clock = arg_int(a, 0), flags = arg_int(a, 1);
	struct file *f;

	if (flags & ~(TFD_CLOEXEC | TFD_NONBLOCK))
		return -EINVAL;
	switch (clock) {
	case CLOCK_REALTIME:
	case CLOCK_MONOTONIC:
	case CLOCK_BOOTTIME:
		break;
	case CLOCK_REALTIME_ALARM:
	case CLOCK_BOOTTIME_ALARM:
		if (!task_capable(t, CAP_WAKE_ALARM))
			return -EPERM;
		break;
	default:
		return -EINVAL;
	}
	f = timerfd_create_file(clock, (unsigned)flags);
	return is_err(f) ? ptr_err(f) : fd_install(t, f, (unsigned)flags & O_CLOEXEC);
}

/* Reference, or err_ptr. */
static struct file *timerfd_by_fd(struct task *t, int fd)
{
	struct file *f = fd_get(t, fd);

	if (!f)
		return err_ptr(-EBADF);
	if (!file_is_timerfd(f)) {
		file_put(f);
		return err_ptr(-EINVAL);
	}
	return f;
}

long sys_timerfd_settime(struct task *t, const struct sysargs *a)
{
	struct l_itimerspec new, old;
	int flags = arg_int(a, 1);
	struct file *f;
	long r = copyin_obj(t, &new, arg_gaddr(a, 2));

	if (r < 0)
		return r;
	if ((flags & ~(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET)) ||
	    !timespec_valid(&new.it_value) || !timespec_valid(&new.it_interval))
		return -EINVAL;
	f = timerfd_by_fd(t, arg_int(a, 0));
	if (is_err(f))
		return ptr_err(f);
	r = timerfd_set(f, flags, &new, &old);
	file_put(f);
	if (r == 0 && a->v[3])
		r = copyout_obj(t, arg_gaddr(a, 3), &old);
	return r;
}

long sys_timerfd_gettime(struct task *t, const struct sysargs *a)
{
	struct file *f = timerfd_by_fd(t, arg_int(a, 0));
	struct l_itimerspec its;

	if (is_err(f))
		return ptr_err(f);
	timerfd_get(f, &its);
	file_put(f);
	return copyout_obj(t, arg_gaddr(a, 1), &its);
}
