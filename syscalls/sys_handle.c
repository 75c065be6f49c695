// SPDX-License-Identifier: Apache-2.0
/*
 * name_to_handle_at (man 2 open_by_handle_at): no file system here can find a file by handle after
 * all names are forgotten, so all say EOPNOTSUPP, as those of Linux without export operations do. Callers
 * (systemd, findmnt) probe for just that.
 */
#include "syscalls/sys.h"

#include "base/cleanup.h"
#include "sentry/vfs/vfs.h"

#include <fcntl.h>

#define MAX_HANDLE_SZ_G 128

long sys_name_to_handle_at(struct task *t, const struct sysargs *a)
{
	int flags = arg_int(a, 4);
	unsigned lookup = flags & AT_SYMLINK_FOLLOW ? LOOKUP_FOLLOW : 0;
	AUTO_FREE char *name = NULL;
	struct path p;
	uint32_t bytes;
	long err;

	/* 0x200: AT_HANDLE_FID */
	if (flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH | 0x200))
		return -EINVAL;
	err = copyin_path(t, arg_gaddr(a, 1), &name);
	if (err < 0)
		return err;
	if (flags & AT_EMPTY_PATH)
		lookup |= LOOKUP_EMPTY;
	err = path_lookup(t, arg_int(a, 0), name, lookup, &p);
	if (err)
		return err;
	path_put(&p);
	if (copyin_obj(t, &bytes, arg_gaddr(a, 2)))
		return -EFAULT;
	return bytes > MAX_HANDLE_SZ_G ? -EINVAL : -EOPNOTSUPP;
}
