// SPDX-License-Identifier: Apache-2.0
/* mount, umount2, pivot_root (man 2 mount, 2 umount, 2 pivot_root). */
#include "syscalls/sys.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/size.h"
#include "sentry/vfs/vfs.h"

#include <string.h>

/* A string of at most a page, or NULL. */
static long copyin_opt_str(struct task *t, gaddr_t from, char **ret)
{
	*ret = NULL;
	if (gaddr_is_null(from))
		return 0;
	char *s = kmalloc_guest(PAGE_SIZE);
	if (!s)
		return -ENOMEM;
	ssize_t n = copyin_str(t, s, from, PAGE_SIZE, -EINVAL);
	if (n < 0) {
		free(s);
		return n;
	}
	*ret = s;
	return 0;
}

/* Mount data is a page, in which a text ends at the first NUL or at the end; what lies beyond the end
 * of the caller's mapping doesn't matter (copy_mount_options). */
static long copyin_data(struct task *t, gaddr_t from, char **ret)
{
	*ret = NULL;
	if (gaddr_is_null(from))
		return 0;
	char *s = kzalloc(PAGE_SIZE + 1);
	size_t first = PAGE_SIZE - (gaddr_u64(from) & (PAGE_SIZE - 1)), done = 0;

	if (copyin(t, s, from, first)) {
		free(s);
		return -EFAULT;
	}
	done = first;
	if (done < PAGE_SIZE && copyin(t, s + done, gaddr_off(from, done), PAGE_SIZE - done))
		memset(s + done, 0, PAGE_SIZE - done);
	s[PAGE_SIZE - 1] = '\0';
	*ret = s;
	return 0;
}

long sys_mount(struct task *t, const struct sysargs *a)
{
	AUTO_FREE char *type = NULL, *source = NULL, *data = NULL, *target = NULL;
	long err = copyin_opt_str(t, arg_gaddr(a, 2), &type);

	if (!err)
		err = copyin_opt_str(t, arg_gaddr(a, 0), &source);
	if (!err)
		err = copyin_data(t, arg_gaddr(a, 4), &data);
	if (err)
		return err;
	err = copyin_path(t, arg_gaddr(a, 1), &target);
	if (err < 0)
		return err;
	return vfs_mount(t, source, target, type, arg_u64(a, 3), data);
}

long sys_umount2(struct task *t, const struct sysargs *a)
{
	AUTO_FREE char *target = NULL;
	int flags = arg_int(a, 1);
	long err;

	if (flags & ~0xf)
		return -EINVAL;
	err = copyin_path(t, arg_gaddr(a, 0), &target);
	return err < 0 ? err : vfs_umount(t, target, flags);
}

long sys_pivot_root(struct task *t, const struct sysargs *a)
{
	AUTO_FREE char *new_root = NULL, *put_old = NULL;
	long err = copyin_path(t, arg_gaddr(a, 0), &new_root);

	if (err < 0)
		return err;
	err = copyin_path(t, arg_gaddr(a, 1), &put_old);
	return err < 0 ? err : vfs_pivot_root(t, new_root, put_old);
}
