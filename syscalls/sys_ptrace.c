// SPDX-License-Identifier: Apache-2.0
/* man 2 ptrace: kernel/ptrace_req.c does it all. */
#include "sentry/kernel/ptrace.h"
#include "syscalls/sys.h"

long sys_ptrace(struct task *t, const struct sysargs *a)
{
	return ptrace_call(t, arg_int(a, 0), arg_int(a, 1), arg_u64(a, 2), arg_u64(a, 3));
}
