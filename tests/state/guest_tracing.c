// SPDX-License-Identifier: Apache-2.0
/*
 * Tracers at work while they are saved: each sees every call of its tracee once at the front and once behind it, in
 * turns, whatever the moment was at which both were frozen.
 */
#include <linux/ptrace.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/state/guest.h"

#define PAIRS 6

static pid_t tracers[PAIRS];
static struct shared {
	_Atomic int over;
	_Atomic unsigned long stops[PAIRS];
} *shared;

static long request(long what, pid_t pid, unsigned long addr, unsigned long data)
{
	return syscall(SYS_ptrace, what, pid, addr, data);
}

static pid_t start_tracee(void)
{
	pid_t pid = fork();
	int st;

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		request(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		for (;;)
			syscall(SYS_getppid);
	}
	if (waitpid(pid, &st, 0) != pid || !WIFSTOPPED(st) ||
	    request(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL))
		_exit(50);
	return pid;
}

/* 9, or what went wrong. */
static int trace(_Atomic unsigned long *stops)
{
	pid_t pid = start_tracee();
	struct ptrace_syscall_info info;
	uint8_t last = 0;
	int st;

	while (!shared->over) {
		if (request(PTRACE_SYSCALL, pid, 0, 0) || waitpid(pid, &st, 0) != pid)
			return 1;
		if (!WIFSTOPPED(st) || WSTOPSIG(st) != (SIGTRAP | 0x80))
			return 2;
		if (request(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), (unsigned long)&info) <= 0)
			return 3;
		if (last && info.op == last)
			return info.op == PTRACE_SYSCALL_INFO_ENTRY ? 4 : 5;
		if (info.op == PTRACE_SYSCALL_INFO_EXIT && last && info.exit.rval != getpid())
			return 6;
		last = info.op;
		++*stops;
	}
	return 9;
}

static void turns_setup(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	NEED(shared != MAP_FAILED);
	for (int i = 0; i < PAIRS; i++) {
		tracers[i] = fork();
		NEED(tracers[i] >= 0);
		if (tracers[i] == 0)
			_exit(trace(&shared->stops[i]));
	}
	for (int i = 0; i < PAIRS; i++)
		while (shared->stops[i] < 100)
			usleep(1000);
}

static void turns_check(void)
{
	unsigned long before[PAIRS];
	siginfo_t ended = { 0 };

	for (int i = 0; i < PAIRS; i++)
		before[i] = shared->stops[i];
	for (int i = 0; i < PAIRS; i++) { /* all go on, unless one has found something and ended */
		while (shared->stops[i] < before[i] + 100 && !ended.si_pid) {
			usleep(1000);
			waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT);
		}
	}
	shared->over = 1;
	for (int i = 0; i < PAIRS; i++) {
		int st = -1;
		pid_t pid = waitpid(tracers[i], &st, 0);

		if (st != 9 << 8)
			printf("FAIL turns: tracer %d (%d) has ended with 0x%x after %lu stops\n", tracers[i], pid, st,
			       shared->stops[i] - before[i]);
		item_failures += st != 9 << 8;
	}
}

int main(int argc, char **argv)
{
	static const struct item items[] = { ITEM(turns) };

	return guest_main(argc, argv, items, sizeof(items) / sizeof(items[0]));
}
