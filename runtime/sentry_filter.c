// SPDX-License-Identifier: Apache-2.0
/*
 * The sentry's own system call filter: an allow-list, each entry with its reason. There is no call
 * in it that takes a path, makes a socket, or runs a program. What is not listed kills the sentry,
 * and with it the sandbox.
 */
#include <errno.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <termios.h>

#include "base/compiler.h"
#include "runtime/isolate.h"

static const int allowed[] = {
	/* descriptors that it was given: host files, stdio, control connections */
	SCMP_SYS(read), SCMP_SYS(write), SCMP_SYS(readv), SCMP_SYS(writev), SCMP_SYS(pread64),
	SCMP_SYS(pwrite64), SCMP_SYS(preadv), SCMP_SYS(pwritev), SCMP_SYS(preadv2),
	SCMP_SYS(pwritev2), SCMP_SYS(lseek), SCMP_SYS(close), SCMP_SYS(fstat), SCMP_SYS(fstatfs),
	SCMP_SYS(ftruncate), SCMP_SYS(fallocate), SCMP_SYS(fsync), SCMP_SYS(fdatasync),
	SCMP_SYS(sync_file_range), SCMP_SYS(fadvise64), SCMP_SYS(copy_file_range),
	SCMP_SYS(dup), SCMP_SYS(fcntl), SCMP_SYS(newfstatat),
	/* talking to the gofer, stubs and the CLI over sockets made before */
	SCMP_SYS(accept4), SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(recvfrom),
	SCMP_SYS(sendto), SCMP_SYS(socketpair), SCMP_SYS(shutdown),
	/* what sockets of LISTEN_FDS are (sentry/socket/host) */
	SCMP_SYS(getsockopt), SCMP_SYS(getsockname), SCMP_SYS(getpeername),
	/* waiting */
	SCMP_SYS(poll), SCMP_SYS(ppoll), SCMP_SYS(epoll_create1), SCMP_SYS(epoll_ctl),
	SCMP_SYS(epoll_wait), SCMP_SYS(epoll_pwait), SCMP_SYS(eventfd2), SCMP_SYS(futex),
	SCMP_SYS(restart_syscall), SCMP_SYS(sched_yield), SCMP_SYS(nanosleep),
	SCMP_SYS(clock_nanosleep),
	/* memory: its own, and mappings of memory files */
	SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(mprotect), SCMP_SYS(madvise),
	SCMP_SYS(brk), SCMP_SYS(mincore),
	/* threads, signals between them, faults (safecopy) */
	SCMP_SYS(exit), SCMP_SYS(exit_group), SCMP_SYS(set_robust_list), SCMP_SYS(rseq),
	SCMP_SYS(rt_sigprocmask), SCMP_SYS(rt_sigaction), SCMP_SYS(rt_sigreturn),
	SCMP_SYS(sigaltstack), SCMP_SYS(tgkill), SCMP_SYS(kill), SCMP_SYS(gettid),
	SCMP_SYS(getpid), SCMP_SYS(sched_getaffinity), SCMP_SYS(sched_setaffinity),
	SCMP_SYS(membarrier),
	/* its stubs; in its own pid namespace there is nobody else */
	SCMP_SYS(wait4), SCMP_SYS(waitid),
	/* clocks and randomness */
	SCMP_SYS(clock_gettime), SCMP_SYS(clock_getres), SCMP_SYS(gettimeofday), SCMP_SYS(time),
	SCMP_SYS(getrandom), SCMP_SYS(getrusage), SCMP_SYS(sysinfo), SCMP_SYS(getcpu),
#ifdef HF_SANITIZE
	/* sanitizer run time: reads /proc/self, symbolizes reports */
	SCMP_SYS(openat), SCMP_SYS(open), SCMP_SYS(readlink), SCMP_SYS(readlinkat), SCMP_SYS(stat),
	SCMP_SYS(prlimit64), SCMP_SYS(getrlimit), SCMP_SYS(pipe2), SCMP_SYS(pipe), SCMP_SYS(getppid),
	SCMP_SYS(prctl), SCMP_SYS(uname),
#endif
};

/* ptrace is allowed for what the ptrace platform does to its own stubs, nothing else. */
static const int ptrace_requests[] = {
	PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_CONT, PTRACE_SYSEMU, PTRACE_SYSEMU_SINGLESTEP,
	PTRACE_SINGLESTEP, PTRACE_DETACH, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_GETREGSET,
	PTRACE_SETREGSET, PTRACE_GETSIGINFO, PTRACE_GET_SYSCALL_INFO, PTRACE_SYSCALL,
	PTRACE_SETOPTIONS, PTRACE_LISTEN, PTRACE_GETEVENTMSG,
};

/* Of the descriptors given as stdio: is it a terminal, how large, how much is there to read. */
static const unsigned ioctl_requests[] = { TCGETS, TIOCGWINSZ, FIONREAD };

/* Exactly what glibc's pthread_create passes: a thread, never a process or a namespace. */
#define THREAD_FLAGS                                                                     \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SYSVSEM | CLONE_SIGHAND | CLONE_THREAD |  \
	 CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID)

static int add_rules(scmp_filter_ctx c)
{
	int r = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(allowed) && !r; i++)
		r = seccomp_rule_add(c, SCMP_ACT_ALLOW, allowed[i], 0);
	for (unsigned i = 0; i < ARRAY_SIZE(ptrace_requests) && !r; i++)
		r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(ptrace), 1,
				     SCMP_A0_64(SCMP_CMP_EQ, (uint64_t)ptrace_requests[i]));
	for (unsigned i = 0; i < ARRAY_SIZE(ioctl_requests) && !r; i++)
		r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
				     SCMP_A1_32(SCMP_CMP_EQ, ioctl_requests[i]));
	/* clone3's flags are in memory, where a filter can't see them: glibc falls back to clone. */
	if (!r)
		r = seccomp_rule_add(c, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	if (!r)
		r = seccomp_rule_add(c, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				     SCMP_A0_64(SCMP_CMP_EQ, THREAD_FLAGS));
#ifndef HF_SANITIZE
	/* glibc looks for files of the host now and then (malloc: the number of CPUs, whether memory is
	 * overcommitted), and can do without: nothing is opened, and nobody dies */
	if (!r)
		r = seccomp_rule_add(c, SCMP_ACT_ERRNO(ENOENT), SCMP_SYS(openat), 0);
#endif
	/* malloc names its arenas' mappings where the kernel can; that must not kill us */
	if (!r)
		r = seccomp_rule_add(c, SCMP_ACT_ERRNO(EINVAL), SCMP_SYS(prctl), 0);
	return r;
}

int sentry_confine(void)
{
	scmp_filter_ctx c = seccomp_init(SCMP_ACT_KILL_PROCESS);
	int r;

	if (!c)
		return -ENOMEM;
	r = add_rules(c);
	if (!r)
		r = seccomp_attr_set(c, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (!r)
		r = seccomp_load(c);
	seccomp_release(c);
	return r;
}
