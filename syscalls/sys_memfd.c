// SPDX-License-Identifier: Apache-2.0
/* memfd_create(2). Huge pages are not offered: ENOSYS, as of a kernel built without hugetlbfs. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#define MFD_EXEC 0x0010U
#endif

#define MFD_ALL (MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC)
#define MFD_HUGE_ALL (0x3fU << 26) /* MFD_HUGE_MASK << MFD_HUGE_SHIFT */
#define MFD_NAME_MAX (NAME_MAX_G - 6) /* "memfd:" and the name fit into NAME_MAX */

long sys_memfd_create(struct task *t, const struct sysargs *a)
{
	char name[MFD_NAME_MAX + 1];
	unsigned flags = arg_u32(a, 1);
	unsigned known = MFD_ALL | MFD_HUGETLB | ((flags & MFD_HUGETLB) ? MFD_HUGE_ALL : 0);

	if (flags & ~known)
		return -EINVAL;
	if ((flags & MFD_EXEC) && (flags & MFD_NOEXEC_SEAL))
		return -EINVAL;
	ssize_t n = copyin_str(t, name, arg_gaddr(a, 0), sizeof(name), -EINVAL);
	if (n < 0)
		return n;
	if (flags & MFD_HUGETLB)
		return -ENOSYS;
	struct file *f = memfd_create_file(name, flags);
	if (is_err(f))
		return ptr_err(f);
	return fd_install(t, f, (flags & MFD_CLOEXEC) ? O_CLOEXEC : 0);
}
