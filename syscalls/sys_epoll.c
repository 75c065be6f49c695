// SPDX-License-Identifier: Apache-2.0
/* epoll_create, epoll_ctl, epoll_wait and kin (man 2 epoll_ctl, 2 epoll_wait). */
#include <fcntl.h>
#include <sys/epoll.h>

#include "sentry/fs/epoll/epoll.h"
#include "sentry/kernel/freeze.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"
#include "syscalls/sys_poll.h"

static long do_create(struct task *t, unsigned flags)
{
	struct file *f = epoll_create_file();

	return is_err(f) ? ptr_err(f) : fd_install(t, f, flags);
}

long sys_epoll_create(struct task *t, const struct sysargs *a)
{
	return arg_int(a, 0) <= 0 ? -EINVAL : do_create(t, 0);
}

long sys_epoll_create1(struct task *t, const struct sysargs *a)
{
	int flags = arg_int(a, 0);

	return flags & ~EPOLL_CLOEXEC ? -EINVAL : do_create(t, (unsigned)flags & O_CLOEXEC);
}

long sys_epoll_ctl(struct task *t, const struct sysargs *a)
{
	struct l_epoll_event ev = { 0, 0 };
	struct file AUTO_FILE *epf = NULL;
	struct file AUTO_FILE *tf = NULL;
	int op = arg_int(a, 1), fd = arg_int(a, 2);

	if (op != EPOLL_CTL_DEL && copyin_obj(t, &ev, arg_gaddr(a, 3)))
		return -EFAULT;
	epf = fd_get(t, arg_int(a, 0));
	if (!epf)
		return -EBADF;
	tf = fd_get(t, fd);
	if (!tf)
		return -EBADF;
	return epoll_ctl_file(epf, op, tf, fd, &ev);
}

static long do_wait(struct task *t, const struct sysargs *a, int64_t deadline_ns)
{
	struct file AUTO_FILE *epf = NULL;
	int max = arg_int(a, 2);

	if (max <= 0 || max > EPOLL_MAX_EVENTS)
		return -EINVAL;
	epf = fd_get(t, arg_int(a, 0));
	if (!epf)
		return -EBADF;
	return epoll_wait_file(t, epf, arg_gaddr(a, 1), max, deadline_ns);
}

static int64_t deadline_ms(struct task *t, int ms)
{
	if (ms < 0)
		return DEADLINE_NONE;
	return ms ? task_call_deadline(t, deadline_after(clock_monotonic_ns(), ms * 1000000LL)) : 0;
}

long sys_epoll_wait(struct task *t, const struct sysargs *a)
{
	return do_wait(t, a, deadline_ms(t, arg_int(a, 3)));
}

long sys_epoll_pwait(struct task *t, const struct sysargs *a)
{
	gaddr_t mask = arg_gaddr(a, 4);
	long r = temp_mask_begin(t, mask, arg_size(a, 5));

	if (r)
		return r;
	r = do_wait(t, a, deadline_ms(t, arg_int(a, 3)));
	temp_mask_end(t, mask, r);
	return r;
}

long sys_epoll_pwait2(struct task *t, const struct sysargs *a)
{
	gaddr_t mask = arg_gaddr(a, 4);
	int64_t deadline = DEADLINE_NONE;
	struct l_timespec ts;
	long r;

	if (a->v[3]) {
		if (copyin_obj(t, &ts, arg_gaddr(a, 3)))
			return -EFAULT;
		if (!timespec_valid(&ts))
			return -EINVAL;
		deadline = timespec_to_ns(&ts);
		if (deadline)
			deadline = task_call_deadline(
				t, deadline_after(clock_monotonic_ns(), deadline));
	}
	r = temp_mask_begin(t, mask, arg_size(a, 5));
	if (r)
		return r;
	r = do_wait(t, a, deadline);
	temp_mask_end(t, mask, r);
	return r;
}
