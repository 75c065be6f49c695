// SPDX-License-Identifier: Apache-2.0
/* dup, fcntl, flock, ioctl (man 2 dup, 2 fcntl, 2 flock, 2 ioctl). */
#include "syscalls/sys.h"

#include "base/cleanup.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/kernel.h"
#include "sentry/vfs/locks.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_priv.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#define SETFL_MASK ((unsigned)(O_APPEND | O_NONBLOCK | O_ASYNC | O_DIRECT | O_NOATIME))
#define F_DUPFD_QUERY_G 1027
#define F_CREATED_QUERY_G (1024 + 4)
#define RWH_MAX 5

long sys_dup(struct task *t, const struct sysargs *a)
{
	struct file *f = fd_get_any(t, arg_int(a, 0));

	return f ? fd_install(t, f, 0) : -EBADF;
}

long sys_dup2(struct task *t, const struct sysargs *a)
{
	int oldfd = arg_int(a, 0), newfd = arg_int(a, 1);

	if (oldfd == newfd) {
		AUTO_FILE struct file *f = fd_get_any(t, oldfd);

		return f ? newfd : -EBADF;
	}
	return fd_dup(t, oldfd, newfd, 0);
}

long sys_dup3(struct task *t, const struct sysargs *a)
{
	if (arg_u32(a, 2) & ~(unsigned)O_CLOEXEC)
		return -EINVAL;
	if (arg_int(a, 0) == arg_int(a, 1))
		return -EINVAL;
	return fd_dup(t, arg_int(a, 0), arg_int(a, 1), arg_u32(a, 2));
}

/* ---------------------------------------------------------------- flags and owners */

static void change_flags(struct file *f, unsigned mask, unsigned value)
{
	unsigned old = atomic_load(&f->flags);

	while (!atomic_compare_exchange_weak(&f->flags, &old, (old & ~mask) | (value & mask)))
		;
}

/* man 2 fcntl, F_SETSIG: si_fd is the descriptor by which O_ASYNC was asked for. */
static void note_async_fd(struct file *f, int fd)
{
	AUTO_LOCK(&f->own_mu);
	f->fown.fd = fd;
}

static long set_flags(struct task *t, struct file *f, int fd, unsigned arg)
{
	unsigned old = atomic_load(&f->flags);

	/* O_NDELAY is O_NONBLOCK; O_NOATIME is the owner's to set. */
	if ((arg & O_NOATIME) && !(old & O_NOATIME) &&
	    !inode_owner_or_capable(f->inode, task_cred(t)))
		return -EPERM;
	if (f->ops->set_flags) {
		int err = f->ops->set_flags(f, (old & ~SETFL_MASK) | (arg & SETFL_MASK));

		if (err)
			return err;
	}
	if ((arg & O_ASYNC) && !(old & O_ASYNC))
		note_async_fd(f, fd);
	change_flags(f, SETFL_MASK, arg);
	return 0;
}

/* dnotify: the caller becomes the owner, unless the file has one already. */
static long set_notify(struct task *t, struct file *f, int fd, unsigned mask)
{
	long r = dnotify_set(f, t->files, fd, mask);

	if (r || !(mask & ~(unsigned)DN_MULTISHOT))
		return r;
	AUTO_FILE struct file *still = fd_get(t, fd);
	if (still != f) { /* closed meanwhile: nobody would end the request any more */
		dnotify_file_closed(f, t->files);
		return 0;
	}
	AUTO_LOCK(&f->own_mu);
	if (!f->fown.pid) {
		f->fown.pid = pid_get(t->tg->pid);
		f->fown.type = F_OWNER_PID;
		f->fown.uid = task_cred(t)->uid;
		f->fown.euid = task_cred(t)->euid;
	}
	return 0;
}

/* Makes @pid (reference taken over, NULL: nobody) the owner. */
static void set_owner(struct task *t, struct file *f, struct pid *pid, int type)
{
	struct pid *old;

	mutex_lock(&f->own_mu);
	old = f->fown.pid;
	f->fown.pid = pid;
	f->fown.type = type;
	f->fown.uid = task_cred(t)->uid;
	f->fown.euid = task_cred(t)->euid;
	mutex_unlock(&f->own_mu);
	pid_put(old);
}

static long set_owner_nr(struct task *t, struct file *f, int nr, int type)
{
	struct pid *pid = NULL;

	if (nr) {
		pid = pid_find(task_pidns(t), nr);
		if (!pid)
			return -ESRCH;
	}
	set_owner(t, f, pid, type);
	return 0;
}

/* F_SETOWN: negative is a process group. */
static long setown(struct task *t, struct file *f, int arg)
{
	if (arg == INT32_MIN)
		return -EINVAL;
	return arg < 0 ? set_owner_nr(t, f, -arg, F_OWNER_PGRP) :
			 set_owner_nr(t, f, arg, F_OWNER_PID);
}

static int owner_nr(struct task *t, struct file *f, int *ret_type)
{
	AUTO_LOCK(&f->own_mu);
	*ret_type = f->fown.type;
	return f->fown.pid ? pid_nr(f->fown.pid, task_pidns(t)) : 0;
}

static long owner_ex(struct task *t, struct file *f, gaddr_t arg, bool set)
{
	struct {
		int32_t type, pid;
	} ex;

	if (!set) {
		ex.pid = owner_nr(t, f, &ex.type);
		return copyout_obj(t, arg, &ex);
	}
	if (copyin_obj(t, &ex, arg))
		return -EFAULT;
	if (ex.type != F_OWNER_TID && ex.type != F_OWNER_PID && ex.type != F_OWNER_PGRP)
		return -EINVAL;
	return set_owner_nr(t, f, ex.pid, ex.type);
}

static long set_sig(struct file *f, uint64_t sig)
{
	if (sig > NSIG_GUEST)
		return -EINVAL;
	AUTO_LOCK(&f->own_mu);
	f->fown.sig = (int)sig;
	return 0;
}

/* ---------------------------------------------------------------- fcntl */

static long dupfd(struct task *t, struct file *f, uint64_t min, unsigned flags)
{
	if (min >= task_rlimit(t, RLIMIT_NOFILE) || min > INT32_MAX)
		return -EINVAL;
	return fd_install_min(t, file_get(f), (int)min, flags);
}

static long lock_cmd(struct task *t, struct file *f, int cmd, gaddr_t arg)
{
	bool ofd = cmd == F_OFD_GETLK || cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW;
	struct l_flock fl;
	long err;

	if (copyin_obj(t, &fl, arg))
		return -EFAULT;
	if (cmd != F_GETLK && cmd != F_OFD_GETLK)
		return locks_setlk(t, f, &fl, ofd, cmd == F_SETLKW || cmd == F_OFD_SETLKW);
	err = locks_getlk(t, f, &fl, ofd);
	return err ? err : copyout_obj(t, arg, &fl);
}

/* Write-life-time hints are kept nowhere: any valid one is accepted, "not set" is reported. */
static long rw_hint(struct task *t, unsigned cmd, gaddr_t arg)
{
	uint64_t hint = 0;

	if (cmd == F_GET_RW_HINT || cmd == F_GET_FILE_RW_HINT)
		return copyout_obj(t, arg, &hint);
	if (copyin_obj(t, &hint, arg))
		return -EFAULT;
	return hint > RWH_MAX ? -EINVAL : 0;
}

static long dupfd_query(struct task *t, struct file *f, int fd)
{
	AUTO_FILE struct file *other = fd_get_any(t, fd);

	return other ? other == f : -EBADF;
}

/* Commands that O_PATH descriptors have, too. -ENOIOCTLCMD: none of these. */
static long fcntl_any(struct task *t, struct file *f, int fd, int cmd, uint64_t arg)
{
	switch (cmd) {
	case F_DUPFD:
		return dupfd(t, f, arg, 0);
	case F_DUPFD_CLOEXEC:
		return dupfd(t, f, arg, O_CLOEXEC);
	case F_DUPFD_QUERY_G:
		return dupfd_query(t, f, (int)(uint32_t)arg);
	case F_GETFD:
		return fd_get_cloexec(t, fd);
	case F_SETFD:
		return fd_set_cloexec(t, fd, arg & FD_CLOEXEC);
	case F_GETFL:
		return (long)atomic_load(&f->flags);
	case F_CREATED_QUERY_G: /* Linux 6.12 */
		return !!(f->fmode & FMODE_CREATED);
	default:
		return -ENOIOCTLCMD;
	}
}

static long fcntl_file(struct task *t, struct file *f, int fd, int cmd, uint64_t arg)
{
	int type;

	switch (cmd) {
	case F_SETFL:
		return set_flags(t, f, fd, (unsigned)arg);
	case F_GETLK:
	case F_SETLK:
	case F_SETLKW:
	case F_OFD_GETLK:
	case F_OFD_SETLK:
	case F_OFD_SETLKW:
		return lock_cmd(t, f, cmd, gaddr(arg));
	case F_SETOWN:
		return setown(t, f, (int)(uint32_t)arg);
	case F_GETOWN: {
		/* A group is negative; the syscall's -errno range is the caller's problem (man page). */
		int nr = owner_nr(t, f, &type);

		return type == F_OWNER_PGRP ? -nr : nr;
	}
	case F_SETOWN_EX:
	case F_GETOWN_EX:
		return owner_ex(t, f, gaddr(arg), cmd == F_SETOWN_EX);
	case F_SETSIG:
		return set_sig(f, arg);
	case F_GETSIG:
		return f->fown.sig;
	case F_SETLEASE:
		return locks_setlease(t, f, (int)(uint32_t)arg);
	case F_GETLEASE:
		return F_UNLCK;
	case F_NOTIFY:
		return set_notify(t, f, fd, (unsigned)arg);
	case F_SETPIPE_SZ:
	case F_GETPIPE_SZ:
		return pipe_fcntl(f, (unsigned)cmd, arg);
	case F_ADD_SEALS:
	case F_GET_SEALS:
		return memfd_fcntl(f, (unsigned)cmd, arg);
	case F_GET_RW_HINT:
	case F_SET_RW_HINT:
	case F_GET_FILE_RW_HINT:
	case F_SET_FILE_RW_HINT:
		return rw_hint(t, (unsigned)cmd, gaddr(arg));
	default:
		return -EINVAL;
	}
}

long sys_fcntl(struct task *t, const struct sysargs *a)
{
	int fd = arg_int(a, 0), cmd = arg_int(a, 1);
	AUTO_FILE struct file *f = fd_get_any(t, fd);
	long r;

	if (!f)
		return -EBADF;
	r = fcntl_any(t, f, fd, cmd, arg_u64(a, 2));
	if (r != -ENOIOCTLCMD)
		return r;
	return f->fmode & FMODE_PATH ? -EBADF : fcntl_file(t, f, fd, cmd, arg_u64(a, 2));
}

long sys_flock(struct task *t, const struct sysargs *a)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));

	return f ? locks_flock(t, f, arg_int(a, 1)) : -EBADF;
}

/* ---------------------------------------------------------------- ioctl */

/* FIONBIO, FIOASYNC. */
static long ioctl_flag(struct task *t, struct file *f, int fd, gaddr_t arg, unsigned flag)
{
	int on;

	if (copyin_obj(t, &on, arg))
		return -EFAULT;
	if (f->ops->set_flags) {
		unsigned old = atomic_load(&f->flags);
		int err = f->ops->set_flags(f, on ? old | flag : old & ~flag);

		if (err)
			return err;
	}
	if (on && flag == O_ASYNC && !(atomic_load(&f->flags) & O_ASYNC))
		note_async_fd(f, fd);
	change_flags(f, flag, on ? flag : 0);
	return 0;
}

static long ioctl_regular(struct task *t, struct file *f, unsigned cmd, gaddr_t arg)
{
	int64_t left;
	int n;

	switch (cmd) {
	case FIONREAD:
		mutex_lock(&f->pos_mu);
		left = (int64_t)atomic_load(&f->inode->size) - f->pos;
		mutex_unlock(&f->pos_mu);
		n = (int)left;
		return copyout_obj(t, arg, &n);
	case FIBMAP:
		return task_capable(t, CAP_SYS_RAWIO) ? -EINVAL : -EPERM;
	default:
		return -ENOIOCTLCMD;
	}
}

static long ioctl_generic(struct task *t, struct file *f, int fd, unsigned cmd, gaddr_t arg)
{
	int n;

	switch (cmd) {
	case FIOCLEX:
		return fd_set_cloexec(t, fd, true);
	case FIONCLEX:
		return fd_set_cloexec(t, fd, false);
	case FIONBIO:
		return ioctl_flag(t, f, fd, arg, O_NONBLOCK);
	case FIOASYNC:
		return ioctl_flag(t, f, fd, arg, O_ASYNC);
	case FIGETBSZ:
		if (!S_ISREG(f->inode->mode) && !S_ISDIR(f->inode->mode))
			return -ENOIOCTLCMD;
		n = (int)f->inode->blksize;
		return copyout_obj(t, arg, &n);
	case FICLONE:
	case FICLONERANGE:
	case FIDEDUPERANGE:
		return S_ISDIR(f->inode->mode) ? -EISDIR : -EOPNOTSUPP;
	case FIFREEZE:
	case FITHAW:
		return task_capable(t, CAP_SYS_ADMIN) ? -EOPNOTSUPP : -EPERM;
	default:
		return -ENOIOCTLCMD;
	}
}

long sys_ioctl(struct task *t, const struct sysargs *a)
{
	int fd = arg_int(a, 0);
	unsigned cmd = arg_u32(a, 1);
	AUTO_FILE struct file *f = fd_get(t, fd);
	long r;

	if (!f)
		return -EBADF;
	r = ioctl_generic(t, f, fd, cmd, arg_gaddr(a, 2));
	if (r == -ENOIOCTLCMD && f->ops->ioctl)
		r = f->ops->ioctl(t, f, cmd, arg_u64(a, 2));
	if (r == -ENOIOCTLCMD && S_ISREG(f->inode->mode))
		r = ioctl_regular(t, f, cmd, arg_gaddr(a, 2));
	return r == -ENOIOCTLCMD ? -ENOTTY : r;
}
