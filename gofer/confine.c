// SPDX-License-Identifier: Apache-2.0
/*
 * The gofer's seccomp filter: the calls annotated with "host:" in this folder, what the C
 * library needs to allocate, log and exit, and nothing else. Anything else kills the
 * process: the gofer has then been taken over.
 *
 * Arguments are checked where that closes a door: no device node can be made, openat
 * can't be asked for asynchronous I/O signals, fcntl only duplicates.
 */
#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "base/compiler.h"
#include "gofer/gofer.h"

#ifndef __NR_fchmodat2
#define __NR_fchmodat2 452
#endif

static const int allowed[] = {
	/* the protocol */
	SCMP_SYS(recvmsg), SCMP_SYS(sendmsg),
	/* looking */
	SCMP_SYS(openat), SCMP_SYS(openat2), SCMP_SYS(statx), SCMP_SYS(readlinkat), SCMP_SYS(lseek),
	SCMP_SYS(getdents64), SCMP_SYS(fstatfs), SCMP_SYS(fgetxattr), SCMP_SYS(flistxattr),
	SCMP_SYS(close),
	/* changing */
	SCMP_SYS(ftruncate), SCMP_SYS(fsync), SCMP_SYS(unlinkat), SCMP_SYS(mkdirat),
	SCMP_SYS(symlinkat), SCMP_SYS(linkat), SCMP_SYS(renameat2), SCMP_SYS(fchown),
	SCMP_SYS(fchmod), SCMP_SYS(fchownat), SCMP_SYS(utimensat), SCMP_SYS(fsetxattr),
	SCMP_SYS(fremovexattr), SCMP_SYS(umask), __NR_fchmodat2,
	/* the C library: heap, log, limits, exit, abort */
	SCMP_SYS(brk), SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise),
	SCMP_SYS(write), SCMP_SYS(writev), SCMP_SYS(prlimit64), SCMP_SYS(getrandom),
	SCMP_SYS(clock_gettime), SCMP_SYS(futex), SCMP_SYS(exit), SCMP_SYS(exit_group),
	SCMP_SYS(rt_sigreturn), SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigaction),
	SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(tgkill), SCMP_SYS(restart_syscall),
};

static int add_rules(scmp_filter_ctx ctx)
{
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(allowed) && !err; i++)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	if (!err)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				       SCMP_A1(SCMP_CMP_EQ, F_DUPFD_CLOEXEC));
	/* No device nodes, whatever capabilities the runtime has left us. */
	static const unsigned types[] = { S_IFIFO, S_IFSOCK, S_IFREG };
	for (size_t i = 0; i < ARRAY_SIZE(types) && !err; i++)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mknodat), 1,
				       SCMP_A2(SCMP_CMP_MASKED_EQ, S_IFMT, types[i]));
	return err;
}

int gofer_confine(void)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	if (!ctx)
		return -ENOMEM;
	int err = add_rules(ctx);
	if (!err)
		err = seccomp_load(ctx);
	seccomp_release(ctx);
	return err;
}
