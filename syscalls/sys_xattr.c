// SPDX-License-Identifier: Apache-2.0
/* The xattr calls (man 2 setxattr, getxattr, listxattr, removexattr). */
#include "syscalls/sys.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "sentry/vfs/vfs.h"

#include <linux/limits.h>
#include <sys/xattr.h>

/* What a call acts upon: a path (references) or a file's. */
struct target {
	struct path path;
};

enum how { BY_PATH, BY_LINK, BY_FD };

static long get_target(struct task *t, const struct sysargs *a, enum how how, struct target *ret)
{
	AUTO_FREE char *name = NULL;
	long err;

	*ret = (struct target){ 0 };
	if (how == BY_FD) {
		AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));

		if (!f)
			return -EBADF;
		ret->path = f->path;
		path_get(&ret->path);
		return 0;
	}
	err = copyin_path(t, arg_gaddr(a, 0), &name);
	if (err < 0)
		return err;
	return path_lookup(t, AT_FDCWD_G, name, how == BY_PATH ? LOOKUP_FOLLOW : 0, &ret->path);
}

static long copyin_name(struct task *t, gaddr_t from, char name[XATTR_NAME_MAX + 1])
{
	ssize_t n = copyin_str(t, name, from, XATTR_NAME_MAX + 1, -ERANGE);

	if (n < 0)
		return n;
	return n == 0 ? -ERANGE : 0;
}

static long do_set(struct task *t, const struct sysargs *a, enum how how)
{
	char name[XATTR_NAME_MAX + 1];
	AUTO_FREE void *value = NULL;
	size_t size = arg_size(a, 3);
	int flags = arg_int(a, 4);
	struct target tg;
	long err;

	if (flags & ~(XATTR_CREATE | XATTR_REPLACE))
		return -EINVAL;
	err = copyin_name(t, arg_gaddr(a, 1), name);
	if (err)
		return err;
	if (size > XATTR_SIZE_MAX)
		return -E2BIG;
	value = kmalloc_guest(size ? size : 1);
	if (!value)
		return -ENOMEM;
	if (size && copyin(t, value, arg_gaddr(a, 2), size))
		return -EFAULT;
	err = get_target(t, a, how, &tg);
	if (err)
		return err;
	err = vfs_setxattr(t, &tg.path, name, value, size, flags);
	path_put(&tg.path);
	return err;
}

static long do_get(struct task *t, const struct sysargs *a, enum how how)
{
	char name[XATTR_NAME_MAX + 1];
	AUTO_FREE void *value = NULL;
	size_t size = MIN(arg_size(a, 3), (size_t)XATTR_SIZE_MAX);
	struct target tg;
	long n = copyin_name(t, arg_gaddr(a, 1), name);

	if (n)
		return n;
	value = kmalloc_guest(size ? size : 1);
	if (!value)
		return -ENOMEM;
	n = get_target(t, a, how, &tg);
	if (n)
		return n;
	n = vfs_getxattr(t, &tg.path, name, value, size);
	path_put(&tg.path);
	if (n > 0 && size && copyout(t, arg_gaddr(a, 2), value, (size_t)n))
		return -EFAULT;
	return n;
}

static long do_list(struct task *t, const struct sysargs *a, enum how how)
{
	AUTO_FREE char *list = NULL;
	size_t size = MIN(arg_size(a, 2), (size_t)XATTR_LIST_MAX);
	struct target tg;
	long n;

	list = kmalloc_guest(size ? size : 1);
	if (!list)
		return -ENOMEM;
	n = get_target(t, a, how, &tg);
	if (n)
		return n;
	n = vfs_listxattr(t, &tg.path, list, size);
	path_put(&tg.path);
	/* A file system without xattrs lists none. */
	if (n == -EOPNOTSUPP)
		return 0;
	if (n > 0 && size && copyout(t, arg_gaddr(a, 1), list, (size_t)n))
		return -EFAULT;
	return n;
}

static long do_remove(struct task *t, const struct sysargs *a, enum how how)
{
	char name[XATTR_NAME_MAX + 1];
	struct target tg;
	long err = copyin_name(t, arg_gaddr(a, 1), name);

	if (!err)
		err = get_target(t, a, how, &tg);
	if (err)
		return err;
	err = vfs_removexattr(t, &tg.path, name);
	path_put(&tg.path);
	return err;
}

#define XATTR_CALL(call, fn, how)                                                        \
	long sys_##call(struct task *t, const struct sysargs *a)                         \
	{                                                                                \
		return fn(t, a, how);                                                    \
	}

XATTR_CALL(setxattr, do_set, BY_PATH)
XATTR_CALL(lsetxattr, do_set, BY_LINK)
XATTR_CALL(fsetxattr, do_set, BY_FD)
XATTR_CALL(getxattr, do_get, BY_PATH)
XATTR_CALL(lgetxattr, do_get, BY_LINK)
XATTR_CALL(fgetxattr, do_get, BY_FD)
XATTR_CALL(listxattr, do_list, BY_PATH)
XATTR_CALL(llistxattr, do_list, BY_LINK)
XATTR_CALL(flistxattr, do_list, BY_FD)
XATTR_CALL(removexattr, do_remove, BY_PATH)
XATTR_CALL(lremovexattr, do_remove, BY_LINK)
XATTR_CALL(fremovexattr, do_remove, BY_FD)
