// SPDX-License-Identifier: Apache-2.0
/* POSIX message queue calls (man 7 mq_overview). The C library strips the slash of a name. */
#include <fcntl.h>

#include "base/alloc.h"
#include "sentry/fs/mqueue/mqueue.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"

/* Absolute CLOCK_REALTIME time at @addr (may be NULL) to a deadline on CLOCK_MONOTONIC. */
static long get_deadline(struct task *t, gaddr_t addr, int64_t *ret)
{
	struct l_timespec ts;

	*ret = DEADLINE_NONE;
	if (gaddr_is_null(addr))
		return 0;
	if (copyin_obj(t, &ts, addr))
		return -EFAULT;
	if (!timespec_valid(&ts))
		return -EINVAL;
	*ret = deadline_after(clock_monotonic_ns(), timespec_to_ns(&ts) - clock_realtime_ns());
	return 0;
}

/* The queue behind @fd opened with @fmode: reference, -EBADF. */
static struct file *get_queue(struct task *t, int fd, unsigned fmode)
{
	struct file *f = fd_get(t, fd);

	if (!f)
		return err_ptr(-EBADF);
	if (mqueue_is(f) && (f->fmode & fmode) == fmode)
		return f;
	file_put(f);
	return err_ptr(-EBADF);
}

long sys_mq_open(struct task *t, const struct sysargs *a)
{
	int oflag = arg_int(a, 1);
	AUTO_FREE char *name = NULL;
	struct l_mq_attr attr;
	struct file *f;
	ssize_t n;

	if ((oflag & O_CREAT) && arg_u64(a, 3) && copyin_obj(t, &attr, arg_gaddr(a, 3)))
		return -EFAULT;
	n = copyin_path(t, arg_gaddr(a, 0), &name);
	if (n < 0)
		return n;
	f = mqueue_open(t, name, oflag, arg_u32(a, 2) & 07777, (oflag & O_CREAT) && arg_u64(a, 3) ? &attr : NULL);
	if (is_err(f))
		return ptr_err(f);
	/* mq descriptors are always close-on-exec */
	return fd_install(t, f, O_CLOEXEC);
}

long sys_mq_unlink(struct task *t, const struct sysargs *a)
{
	AUTO_FREE char *name = NULL;
	ssize_t n = copyin_path(t, arg_gaddr(a, 0), &name);

	return n < 0 ? n : mqueue_unlink(t, name);
}

long sys_mq_timedsend(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = NULL;
	AUTO_FREE void *buf = NULL;
	size_t len = arg_size(a, 2);
	int64_t deadline;
	long r;

	if (arg_u32(a, 3) >= MQ_PRIO_MAX_G)
		return -EINVAL;
	r = get_deadline(t, arg_gaddr(a, 4), &deadline);
	if (r)
		return r;
	f = get_queue(t, arg_int(a, 0), FMODE_WRITE);
	if (is_err(f))
		return ptr_err(f);
	if (len > mqueue_msgsize(f))
		return -EMSGSIZE;
	buf = kmalloc_guest(len ? len : 1);
	if (!buf)
		return -ENOMEM;
	if (copyin(t, buf, arg_gaddr(a, 1), len))
		return -EFAULT;
	r = mqueue_send(t, f, buf, len, arg_u32(a, 3), deadline);
	if (r == 0)
		buf = NULL; /* the queue's now */
	return r;
}

long sys_mq_timedreceive(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = NULL;
	AUTO_FREE void *buf = NULL;
	int64_t deadline;
	unsigned prio;
	ssize_t n;
	long r = get_deadline(t, arg_gaddr(a, 4), &deadline);

	if (r)
		return r;
	f = get_queue(t, arg_int(a, 0), FMODE_READ);
	if (is_err(f))
		return ptr_err(f);
	n = mqueue_receive(t, f, arg_size(a, 2), deadline, &buf, &prio);
	if (n < 0)
		return n;
	if (!gaddr_is_null(arg_gaddr(a, 3)) && copyout_obj(t, arg_gaddr(a, 3), &prio))
		return -EFAULT;
	return copyout(t, arg_gaddr(a, 1), buf, (size_t)n) ? -EFAULT : n;
}

long sys_mq_notify(struct task *t, const struct sysargs *a)
{
	bool remove = gaddr_is_null(arg_gaddr(a, 1));
	AUTO_FILE struct file *f = NULL;
	struct l_sigevent ev;

	if (!remove && copyin_obj(t, &ev, arg_gaddr(a, 1)))
		return -EFAULT;
	if (!remove && !mqueue_notify_ok(&ev)) /* before the descriptor, as in Linux */
		return -EINVAL;
	f = get_queue(t, arg_int(a, 0), 0);
	if (is_err(f))
		return ptr_err(f);
	return mqueue_notify(t, f, remove ? NULL : &ev);
}

long sys_mq_getsetattr(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = NULL;
	struct l_mq_attr new, old;

	if (arg_u64(a, 1)) {
		if (copyin_obj(t, &new, arg_gaddr(a, 1)))
			return -EFAULT;
		if (new.mq_flags & ~(int64_t)O_NONBLOCK)
			return -EINVAL;
	}
	f = get_queue(t, arg_int(a, 0), 0);
	if (is_err(f))
		return ptr_err(f);
	mqueue_getattr(f, &old);
	if (arg_u64(a, 1)) {
		if (new.mq_flags & O_NONBLOCK)
			atomic_fetch_or(&f->flags, (unsigned)O_NONBLOCK);
		else
			atomic_fetch_and(&f->flags, ~(unsigned)O_NONBLOCK);
	}
	return arg_u64(a, 2) ? copyout_obj(t, arg_gaddr(a, 2), &old) : 0;
}
