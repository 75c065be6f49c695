// SPDX-License-Identifier: Apache-2.0
/* man 2 seccomp. */
#include <linux/seccomp.h>

#include "sentry/kernel/process.h"
#include "syscalls/sys.h"

static long action_avail(struct task *t, gaddr_t arg)
{
	uint32_t action;

	if (copyin_obj(t, &action, arg))
		return -EFAULT;
	switch (action) {
	case SECCOMP_RET_KILL_PROCESS:
	case SECCOMP_RET_KILL_THREAD:
	case SECCOMP_RET_TRAP:
	case SECCOMP_RET_ERRNO:
	case SECCOMP_RET_TRACE:
	case SECCOMP_RET_LOG:
	case SECCOMP_RET_ALLOW:
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

long sys_seccomp(struct task *t, const struct sysargs *a)
{
	uint32_t flags = arg_u32(a, 1);
	gaddr_t arg = arg_gaddr(a, 2);

	switch (arg_u32(a, 0)) {
	case SECCOMP_SET_MODE_STRICT:
		return flags || !gaddr_is_null(arg) ? -EINVAL : seccomp_set_strict(t);
	case SECCOMP_SET_MODE_FILTER:
		return seccomp_set_filter(t, flags, arg);
	case SECCOMP_GET_ACTION_AVAIL:
		return flags ? -EINVAL : action_avail(t, arg);
	default:
		return -EINVAL;
	}
}
