// SPDX-License-Identifier: Apache-2.0
/* pipe, splice, tee, vmsplice, sendfile, copy_file_range (man 2 of each). */
#include <fcntl.h>
#include <limits.h>

#include "sentry/fs/pipe/pipe.h"
#include "sentry/vfs/splice.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"
#include "syscalls/sys_socket.h"

static long do_pipe(struct task *t, gaddr_t ufds, int flags)
{
	struct file *f[2];
	int fds[2];
	int err;

	if (flags & ~(O_CLOEXEC | O_NONBLOCK | O_DIRECT))
		return -EINVAL;
	err = pipe_create(t, (unsigned)flags & (O_NONBLOCK | O_DIRECT), f);
	if (err)
		return err;
	fds[0] = fd_install(t, f[0], (unsigned)flags & O_CLOEXEC);
	if (fds[0] < 0) {
		file_put(f[1]);
		return fds[0];
	}
	fds[1] = fd_install(t, f[1], (unsigned)flags & O_CLOEXEC);
	if (fds[1] < 0) {
		fd_close(t, fds[0]);
		return fds[1];
	}
	if (copyout(t, ufds, fds, sizeof(fds))) {
		fd_close(t, fds[0]);
		fd_close(t, fds[1]);
		return -EFAULT;
	}
	return 0;
}

long sys_pipe(struct task *t, const struct sysargs *a)
{
	return do_pipe(t, arg_gaddr(a, 0), 0);
}

long sys_pipe2(struct task *t, const struct sysargs *a)
{
	return do_pipe(t, arg_gaddr(a, 0), arg_int(a, 1));
}

/* Copies an optional offset in; *ret_pos is NULL when the file's own is to be used. */
static int offset_in(struct task *t, gaddr_t uoff, int64_t *off, int64_t **ret_pos)
{
	*ret_pos = NULL;
	if (gaddr_is_null(uoff))
		return 0;
	if (copyin_obj(t, off, uoff))
		return -EFAULT;
	*ret_pos = off;
	return 0;
}

/* Writing to a pipe or stream without reader raises SIGPIPE, whatever call it was. */
static long finish(struct task *t, long ret)
{
	if (ret == -EPIPE)
		task_sigpipe(t);
	return ret;
}

static long offset_out(struct task *t, gaddr_t uoff, const int64_t *pos, long ret)
{
	if (ret > 0 && pos && copyout_obj(t, uoff, pos))
		return -EFAULT;
	return ret;
}

long sys_splice(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *in = NULL;
	struct file AUTO_FILE *out = NULL;
	gaddr_t uin = arg_gaddr(a, 1), uout = arg_gaddr(a, 3);
	int64_t off_in, off_out, *pin, *pout;
	unsigned flags = arg_u32(a, 5);
	long r;

	if (flags & ~(unsigned)SPLICE_FLAGS)
		return -EINVAL;
	if (arg_size(a, 4) == 0)
		return 0;
	in = fd_get(t, arg_int(a, 0));
	out = fd_get(t, arg_int(a, 2));
	if (!in || !out)
		return -EBADF;
	if ((pipe_of_file(in) && !gaddr_is_null(uin)) || (pipe_of_file(out) && !gaddr_is_null(uout)))
		return -ESPIPE;
	if (offset_in(t, uin, &off_in, &pin) || offset_in(t, uout, &off_out, &pout))
		return -EFAULT;
	r = finish(t, vfs_splice(t, in, pin, out, pout, arg_size(a, 4), flags));
	r = offset_out(t, uin, pin, r);
	return offset_out(t, uout, pout, r);
}

long sys_tee(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *in = NULL;
	struct file AUTO_FILE *out = NULL;
	unsigned flags = arg_u32(a, 3);

	if (flags & ~(unsigned)SPLICE_FLAGS)
		return -EINVAL;
	if (arg_size(a, 2) == 0)
		return 0;
	in = fd_get(t, arg_int(a, 0));
	out = fd_get(t, arg_int(a, 1));
	if (!in || !out)
		return -EBADF;
	return finish(t, vfs_tee(t, in, out, arg_size(a, 2), flags));
}

long sys_vmsplice(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *f = NULL;
	unsigned flags = arg_u32(a, 3);
	struct iter it;
	long r;

	if (flags & ~(unsigned)SPLICE_FLAGS)
		return -EINVAL;
	f = fd_get(t, arg_int(a, 0));
	if (!f)
		return -EBADF;
	if (!pipe_of_file(f))
		return -EBADF;
	r = iter_init_uiov(&it, t, arg_gaddr(a, 1), arg_u64(a, 2));
	if (r < 0)
		return r;
	r = finish(t, vfs_vmsplice(t, f, &it, flags));
	iter_fini(&it);
	return r;
}

long sys_sendfile(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *in = NULL;
	struct file AUTO_FILE *out = NULL;
	gaddr_t uoff = arg_gaddr(a, 2);
	int64_t off, *pos;
	long r;

	if (offset_in(t, uoff, &off, &pos))
		return -EFAULT;
	in = fd_get(t, arg_int(a, 1));
	out = fd_get(t, arg_int(a, 0));
	r = in && out ? finish(t, vfs_sendfile(t, out, in, pos, arg_size(a, 3))) : -EBADF;
	/* Linux writes the offset back whatever came of it: one that can't be written is always EFAULT. */
	return pos && copyout_obj(t, uoff, pos) ? -EFAULT : r;
}

long sys_copy_file_range(struct task *t, const struct sysargs *a)
{
	struct file AUTO_FILE *in = NULL;
	struct file AUTO_FILE *out = NULL;
	gaddr_t uin = arg_gaddr(a, 1), uout = arg_gaddr(a, 3);
	int64_t off_in, off_out, *pin, *pout;
	long r;

	in = fd_get(t, arg_int(a, 0));
	out = fd_get(t, arg_int(a, 2));
	if (!in || !out)
		return -EBADF;
	if (offset_in(t, uin, &off_in, &pin) || offset_in(t, uout, &off_out, &pout))
		return -EFAULT;
	if (arg_u32(a, 5) != 0)
		return -EINVAL;
	r = vfs_copy_file_range(t, in, pin, out, pout, arg_size(a, 4));
	r = offset_out(t, uin, pin, r);
	return offset_out(t, uout, pout, r);
}
