// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that a guest makes by the syscall instructions of its own stub (platform/stub/rt.S), where the
 * host's filter lets some through: with arguments that turn its host threads against themselves. Only
 * the process that did it may suffer. On the ptrace platform these are calls like any others.
 */
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <ucontext.h>

#include "platform/stub/layout.h"
#include "tests/syscalls/harness.h"

#define STACK 0x4000UL /* of a stray thread: where the stub's handler looks for its page */

/* ---- a call: back by the undefined instruction behind it ---- */

static sigjmp_buf back;
static volatile long result;
static volatile int threads; /* that are the kernel's as well */

static void on_ill(int sig, siginfo_t *si, void *uc_)
{
	ucontext_t *uc = uc_;

	(void)sig, (void)si;
	if (gettid() != getpid()) {
		threads = 1;
		for (;;)
			syscall(SYS_exit, 0);
	}
	result = (long)uc->uc_mcontext.gregs[REG_RAX];
	siglongjmp(back, 1);
}

static unsigned long insn;

static void find_insn(void)
{
	static const unsigned char want[] = { 0x0f, 0x05, 0x0f, 0x0b };
	static char stack[65536] __attribute__((aligned(64)));
	const stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa = { .sa_sigaction = on_ill, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER };
	const void *p = memmem((const void *)STUB_BASE, STUB_RT_SIZE, want, sizeof(want));

	CHECK(p != NULL);
	insn = (unsigned long)p;
	CHECK(sigaltstack(&ss, NULL) == 0 && sigaction(SIGILL, &sa, NULL) == 0);
}

static long stub_call(long nr, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
	if (!sigsetjmp(back, 0)) {
		register unsigned long r10 __asm__("r10") = d;

		__asm__ volatile("xor %%r8d, %%r8d\n\txor %%r9d, %%r9d\n\tjmp *%0"
				 :
				 : "r"(insn), "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10)
				 : "r8", "r9", "rcx", "r11", "memory");
		__builtin_unreachable();
	}
	return result;
}

/* @fn in a child that has 10 s; the wait status. */
static int in_child(void (*fn)(unsigned long), unsigned long arg)
{
	int st;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		struct itimerval soon = { { 0, 0 }, { 10, 0 } };

		setitimer(ITIMER_REAL, &soon, NULL);
		find_insn();
		fn(arg);
		_exit(0);
	}
	CHECK(waitpid(pid, &st, 0) == pid);
	return st;
}

static void *nothing(void *arg)
{
	return arg;
}

static void check_unharmed(void)
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, nothing, NULL) == 0);
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(WEXITSTATUS(system("exit 7")) == 7 || access("/bin/sh", X_OK) != 0);
}

/* ---- what comes of them ---- */

static void block_all_signals(unsigned long unused)
{
	unsigned long all = ~0UL;

	(void)unused;
	stub_call(SYS_rt_sigprocmask, SIG_SETMASK, (unsigned long)&all, 0, 8);
	for (int i = 0; i < 1000; i++)
		getppid();
}

static void other_signal_stack(unsigned long at)
{
	const stack_t ss = { .ss_sp = (void *)at, .ss_size = 0x3000 };

	stub_call(SYS_sigaltstack, (unsigned long)&ss, 0, 0, 0);
	for (int i = 0; i < 1000; i++)
		getppid();
}

static void sleep_on(unsigned long at)
{
	for (unsigned long op = 0; op < 256; op++)
		stub_call(SYS_futex, at, op ? op : 1, 1, 0);
	getppid();
}

TEST(signals_and_futexes_of_its_own_stub)
{
	/* Where a frame can't be: elsewhere it is a thread that doesn't answer, which takes half a minute
	 * (tests/unit/platform/test_trap.c). */
	static const unsigned long places[] = { 0, STUB_BASE, STUB_OPS, STUB_CTL, 1UL << 63, ~0UL - 7 };

	(void)in_child(block_all_signals, 0);
	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		(void)in_child(other_signal_stack, places[i]);
		(void)in_child(sleep_on, places[i]);
	}
	check_unharmed();
}

/* ---- a thread that can't be called back is killed all the same ---- */

static volatile int deaf;

static void compute_deaf(void)
{
	unsigned long kick = 1UL << (SIGURG - 1);

	find_insn();
	stub_call(SYS_rt_sigprocmask, SIG_BLOCK, (unsigned long)&kick, 0, 8);
	deaf = 1;
	for (;;)
		;
}

static void *exit_beside(void *arg)
{
	while (!deaf)
		usleep(1000);
	_exit(7);
	return arg;
}

static void *vfork_beside(void *arg)
{
	while (!deaf)
		usleep(1000);
	if (vfork() == 0)
		for (;;)
			;
	return arg;
}

static pid_t deaf_process(void *(*beside)(void *arg))
{
	pid_t pid = fork();
	pthread_t t;

	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(setpgid(0, 0) == 0 && (!beside || pthread_create(&t, NULL, beside, NULL) == 0));
		compute_deaf();
	}
	usleep(300000); /* mostly it is by then */
	return pid;
}

/* The end of @pid, for which the sentry once waited half a minute. */
static int ends_soon(pid_t pid)
{
	int st = -1;

	for (int i = 0; i < 1000 && waitpid(pid, &st, WNOHANG) == 0; i++)
		usleep(10000);
	return st;
}

TEST(deaf_threads_are_killed)
{
	pid_t pid = deaf_process(NULL);

	CHECK(kill(pid, SIGKILL) == 0);
	CHECK(ends_soon(pid) == SIGKILL);
	check_unharmed();
}

/* One whose process ends by another thread; and one that shares its memory with another process. */
TEST(deaf_threads_are_left_behind)
{
	pid_t pid;

	CHECK(ends_soon(deaf_process(exit_beside)) == 7 << 8);
	pid = deaf_process(vfork_beside);
	CHECK(kill(-pid, SIGKILL) == 0);
	CHECK(ends_soon(pid) == SIGKILL);
	check_unharmed();
}

/* Frames that the host is to return by, not ours. */
static void forged_return(unsigned long kind)
{
	static char frame[0x4000] __attribute__((aligned(0x4000)));
	ucontext_t *uc = (ucontext_t *)(frame + 8);
	greg_t *g = uc->uc_mcontext.gregs;

	g[REG_RIP] = (long)(kind & 1 ? 0x8000000000000000UL : kind & 2 ? STUB_BASE + RT_SHIM : insn);
	g[REG_RSP] = (long)(kind & 4 ? STUB_CTX : ~0UL);
	g[REG_EFL] = kind & 8 ? -1 : 0x202;
	g[REG_CSGSFS] = (long)(kind & 16 ? 0x002b00000000002bUL : kind & 32 ? ~0UL : 0x002b000000000033UL);
	uc->uc_mcontext.fpregs = (fpregset_t)(kind & 64 ? STUB_BASE : kind & 128 ? STUB_CTX + 1 : 0);
	if (kind & 256)
		memset(&uc->uc_sigmask, 0xff, sizeof(uc->uc_sigmask));
	__asm__ volatile("mov %0, %%rsp\n\tjmp *%1"
			 :
			 : "r"(frame + 8), "r"(insn), "a"(SYS_rt_sigreturn)
			 : "memory");
}

TEST(frames_for_the_host)
{
	for (unsigned long kind = 0; kind < 512; kind++)
		(void)in_child(forged_return, kind);
	check_unharmed();
}

/* Host threads that nobody knows of. The host has to refuse them some time: exits with 0 then. */
static void threads_without_end(unsigned long max)
{
	char *stacks = mmap(NULL, (max + 2) * STACK, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned long top = ((unsigned long)stacks + STACK) & -STACK;

	CHECK(stacks != MAP_FAILED);
	for (unsigned long i = 0; i < max; i++) {
		long r = stub_call(SYS_clone, STUB_TRAP_FLAGS, top += STACK, 0, 0);

		if (r == -EAGAIN)
			return;
		CHECK(r > 0);
		if (i == 0)
			usleep(100000);
		if (threads)
			_exit(3); /* ptrace: a call like any other */
	}
	_exit(4);
}

TEST(threads_of_its_own_stub_are_bounded)
{
	struct rlimit rl;
	unsigned long max;
	int st;

	CHECK(getrlimit(RLIMIT_NPROC, &rl) == 0);
	max = rl.rlim_cur > 16384 ? 40000 : 2 * rl.rlim_cur + 1100;
	for (int i = 0; i < 2; i++) {
		st = in_child(threads_without_end, max);
		CHECK(WIFEXITED(st) && (WEXITSTATUS(st) == 0 || WEXITSTATUS(st) == 3));
		check_unharmed();
	}
}

TEST_MAIN
