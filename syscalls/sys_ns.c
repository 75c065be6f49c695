// SPDX-License-Identifier: Apache-2.0
/* man 2 unshare, setns. */
#include "sentry/kernel/process.h"
#include "syscalls/sys.h"

long sys_unshare(struct task *t, const struct sysargs *a)
{
	return ns_unshare(t, arg_u64(a, 0));
}

long sys_setns(struct task *t, const struct sysargs *a)
{
	return ns_setns(t, arg_int(a, 0), arg_int(a, 1));
}
