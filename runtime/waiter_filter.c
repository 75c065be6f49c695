// SPDX-License-Identifier: Apache-2.0
/*
 * What is left to a waiter: a process that a command leaves behind to stand for a guest's process on the host, or to carry
 * its terminal's bytes. It reads what the sentry sends, so like the sentry it is nobody to trust: no capabilities, and
 * only the calls with which it waits, reads and writes what it has open, and ends. It can open and connect to nothing.
 */
#include <errno.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/compiler.h"
#include "runtime/isolate.h"

static const int allowed[] = {
	/* control messages, signals, the terminal's bytes */
	SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(recvmsg), SCMP_SYS(sendmsg),
	SCMP_SYS(recvfrom), SCMP_SYS(sendto), SCMP_SYS(signalfd4), SCMP_SYS(close),
	/* the C library: heap, log, exit, abort */
	SCMP_SYS(brk), SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(writev),
	SCMP_SYS(clock_gettime), SCMP_SYS(futex), SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(rt_sigreturn),
	SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigaction), SCMP_SYS(getpid), SCMP_SYS(gettid), SCMP_SYS(tgkill),
	SCMP_SYS(restart_syscall), SCMP_SYS(getrandom),
};

static int add_rules(scmp_filter_ctx ctx)
{
	static const unsigned long terminal[] = { TIOCGWINSZ, TCGETS, TCSETS, TCSETSW, TCSETSF };
	int err = 0;

	for (size_t i = 0; i < ARRAY_SIZE(allowed) && !err; i++)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
	for (size_t i = 0; i < ARRAY_SIZE(terminal) && !err; i++)
		err = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_EQ, terminal[i]));
	return err;
}

int waiter_confine(void)
{
	scmp_filter_ctx ctx;
	int err = isolate_drop(0);

	if (err)
		return err;
	ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
	if (!ctx)
		return -ENOMEM;
	err = add_rules(ctx);
	if (!err)
		err = seccomp_load(ctx);
	seccomp_release(ctx);
	return err;
}
