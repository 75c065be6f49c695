// SPDX-License-Identifier: Apache-2.0
/*
 * Call sites that are made often (see trap_sites.c), and somebody who begins to watch: seccomp filters, tracers,
 * readers of text. From then on calls must be seen again, also those that a platform answers by itself. And
 * what such a site must not lose: a signal that comes while the call returns; memory advice about text.
 */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <ucontext.h>

#include "tests/syscalls/harness.h"

#define HOT 200

__asm__(".pushsection .text\n.balign 4096\nsite: mov %edi, %eax\n mov %rsi, %rdi\n mov %rdx, %rsi\n"
	" mov %rcx, %rdx\nsite_at: syscall\n cmp $-4095, %rax\n jae 1f\n ret\n1: ret\n"
	".balign 4096\n.popsection");
long site(long nr, long a, long b, long c);
extern const char site_at[];

static void heat(void)
{
	for (int i = 0; i < HOT; i++) {
		CHECK(site(SYS_getppid, 0, 0, 0) == getppid());
		CHECK(site(SYS_getpid, 0, 0, 0) == getpid());
	}
}

/* ---- filters ---- */

#define ERRNO_OF(nr, e)                                    \
 BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (e))

static void refuse_ids(void)
{
	static struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ERRNO_OF(SYS_getpid, 41),
		ERRNO_OF(SYS_getuid, 42),
		ERRNO_OF(SYS_gettid, 43),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog p = { sizeof(f) / sizeof(f[0]), f };

	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) == 0);
}

TEST(a_filter_sees_answered_calls_at_once)
{
	heat();
	refuse_ids();
	for (int i = 0; i < HOT; i++) {
		CHECK(site(SYS_getpid, 0, 0, 0) == -41);
		CHECK(site(SYS_getuid, 0, 0, 0) == -42);
		CHECK(site(SYS_gettid, 0, 0, 0) == -43);
		CHECK(site(SYS_geteuid, 0, 0, 0) == geteuid());
	}
	if (fork() == 0)
		_exit(site(SYS_getpid, 0, 0, 0) == -41 ? 0 : 1);
	int st;

	CHECK(wait(&st) > 0 && st == 0);
}

/* The number that the filter sees, and the address, are those of the guest's instruction. */
static long trap_nr, trap_addr, trap_rip;

static void on_sys(int sig, siginfo_t *si, void *uc_)
{
	ucontext_t *uc = uc_;

	(void)sig;
	trap_nr = si->si_syscall;
	trap_addr = (long)si->si_call_addr;
	trap_rip = uc->uc_mcontext.gregs[REG_RIP];
	uc->uc_mcontext.gregs[REG_RAX] = 77;
}

TEST(a_filter_traps_at_the_site)
{
	static struct sock_filter f[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog p = { sizeof(f) / sizeof(f[0]), f };
	struct sigaction sa = { .sa_sigaction = on_sys, .sa_flags = SA_SIGINFO };

	heat();
	CHECK(sigaction(SIGSYS, &sa, NULL) == 0);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p) == 0);
	for (int i = 0; i < 50; i++) {
		CHECK(site(SYS_getppid, 0, 0, 0) == 77);
		CHECK(trap_nr == SYS_getppid && trap_addr == (long)site_at + 2 && trap_rip == trap_addr);
	}
}

/* ---- tracers ---- */

#define TRACED 5

/* The calls of @pid, which is stopped, until its end: how many were getpid by the site. */
static int count_calls(pid_t pid, int options)
{
	int st, n = 0;

	CHECK(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_TRACESYSGOOD | options) == 0);
	for (bool entry = true;;) {
		struct __ptrace_syscall_info info;

		CHECK(ptrace(PTRACE_SYSCALL, pid, 0, 0) == 0);
		CHECK(waitpid(pid, &st, 0) == pid);
		if (WIFEXITED(st)) {
			CHECK(WEXITSTATUS(st) == 3);
			return n;
		}
		if (!WIFSTOPPED(st) || WSTOPSIG(st) != (SIGTRAP | 0x80))
			continue;
		CHECK(ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info) > 0);
		entry = info.op == PTRACE_SYSCALL_INFO_ENTRY;
		if (entry && info.entry.nr == SYS_getpid)
			n += info.instruction_pointer == (unsigned long)site_at + 2;
	}
}

TEST(a_tracer_sees_answered_calls)
{
	int st;
	pid_t pid;

	heat();
	pid = fork();
	if (pid == 0) {
		heat();
		raise(SIGSTOP);
		for (int i = 0; i < TRACED; i++)
			site(SYS_getpid, 0, 0, 0);
		_exit(3);
	}
	CHECK(waitpid(pid, &st, WUNTRACED) == pid && WIFSTOPPED(st));
	CHECK(ptrace(PTRACE_SEIZE, pid, 0, 0) == 0);
	CHECK(kill(pid, SIGCONT) == 0);
	CHECK(ptrace(PTRACE_INTERRUPT, pid, 0, 0) == 0);
	CHECK(waitpid(pid, &st, 0) == pid && WIFSTOPPED(st));
	CHECK(count_calls(pid, 0) == TRACED);
}

/* A program that does nothing but answered calls can be stopped, and killed. */
TEST(answered_calls_without_end_are_interrupted)
{
	for (int i = 0; i < 20; i++) {
		int st, fd[2];
		char b;
		pid_t pid;

		CHECK(pipe(fd) == 0);
		pid = fork();
		if (pid == 0) {
			heat();
			CHECK(write(fd[1], "x", 1) == 1);
			for (;;)
				site(SYS_getpid, 0, 0, 0);
		}
		CHECK(read(fd[0], &b, 1) == 1);
		CHECK(kill(pid, SIGSTOP) == 0);
		CHECK(waitpid(pid, &st, WUNTRACED) == pid && WIFSTOPPED(st));
		CHECK(kill(pid, SIGCONT) == 0 && kill(pid, SIGKILL) == 0);
		CHECK(waitpid(pid, &st, 0) == pid && WIFSIGNALED(st));
		close(fd[0]);
		close(fd[1]);
	}
}

TEST(readers_of_text_see_what_it_was)
{
	char cold[16], now[16];
	int st, fd[2];
	char b;
	pid_t pid;

	memcpy(cold, site_at, sizeof(cold));
	CHECK(pipe(fd) == 0);
	pid = fork();
	if (pid == 0) {
		heat();
		CHECK(write(fd[1], "x", 1) == 1);
		for (;;)
			site(SYS_getppid, 0, 0, 0);
	}
	CHECK(read(fd[0], &b, 1) == 1);
	for (int i = 0; i < 50; i++) {
		const struct iovec l = { now, sizeof(now) }, r = { (void *)site_at, sizeof(now) };

		CHECK(process_vm_readv(pid, &l, 1, &r, 1, 0) == sizeof(now));
		CHECK(memcmp(cold, now, sizeof(now)) == 0);
		usleep(100);
	}
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &st, 0) == pid);
}

/* ---- signals ---- */

static volatile int alarms;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

/* The call that sets the timer returns, and nothing but the signal ends what comes behind it. */
TEST(a_signal_while_a_call_returns_is_not_lost)
{
	struct itimerval it = { 0 };

	heat();
	signal(SIGALRM, on_alarm);
	for (int i = 0; i < 3000; i++) {
		int before = alarms;

		it.it_value.tv_usec = 1 + i % 60;
		CHECK(site(SYS_setitimer, ITIMER_REAL, (long)&it, 0) == 0);
		while (alarms == before)
			;
	}
}

/* ---- faults ---- */

/* A site that nothing can be done about: it is called behind itself. */
__asm__(".pushsection .text\nodd: mov $110, %eax\n syscall\n call 1f\n ret\n1: ret\n.popsection");
long odd(void);

static sigjmp_buf back;
static unsigned long fault_rip, fault_addr;

static void on_fault(int sig, siginfo_t *si, void *uc_)
{
	ucontext_t *uc = uc_;

	(void)sig;
	fault_rip = (unsigned long)uc->uc_mcontext.gregs[REG_RIP];
	fault_addr = (unsigned long)si->si_addr;
	siglongjmp(back, 1);
}

TEST(a_jump_to_nowhere_is_seen_there)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	static const unsigned long places[] = { 0, 1, 8, 100 };

	heat();
	for (int i = 0; i < HOT; i++)
		CHECK(odd() == getppid());
	CHECK(sigaction(SIGSEGV, &sa, NULL) == 0);
	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		fault_rip = ~0UL;
		if (!sigsetjmp(back, 1))
			((void (*)(void))places[i])();
		CHECK(fault_rip == places[i] && fault_addr == places[i]);
	}
}

/* ---- advice ---- */

static int in_child(void)
{
	int st;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		for (int i = 0; i < HOT; i++) {
			if (site(SYS_getppid, 0, 0, 0) != getppid())
				_exit(1);
		}
		_exit(0);
	}
	CHECK(waitpid(pid, &st, 0) == pid);
	return st;
}

/* Everything that is mapped near the program is advised of, whatever it is for. */
TEST(advice_about_all_text_and_what_is_near)
{
	static const int advice[] = { MADV_WIPEONFORK, MADV_DONTNEED, MADV_FREE, MADV_COLD, MADV_PAGEOUT,
				      MADV_POPULATE_READ };
	char line[512];

	heat();
	for (unsigned i = 0; i < sizeof(advice) / sizeof(advice[0]); i++) {
		FILE *f = fopen("/proc/self/maps", "r");

		CHECK(f != NULL);
		while (fgets(line, sizeof(line), f)) {
			unsigned long a, b;
			char perm[8];

			CHECK(sscanf(line, "%lx-%lx %7s", &a, &b, perm) == 3);
			if (perm[2] == 'x' && perm[1] != 'w' && a < 0x7f0000000000UL)
				(void)madvise((void *)a, b - a, advice[i]);
		}
		fclose(f);
		heat();
		CHECK(in_child() == 0);
	}
}

TEST(children_without_what_is_near)
{
	char line[512];
	FILE *f;

	heat();
	f = fopen("/proc/self/maps", "r");
	CHECK(f != NULL);
	while (fgets(line, sizeof(line), f)) {
		unsigned long a, b;
		char perm[8];

		CHECK(sscanf(line, "%lx-%lx %7s", &a, &b, perm) == 3);
		/* no file, executable, and not the host's: nothing that a program knows of */
		if (perm[2] == 'x' && strstr(line, "[holdfast]"))
			CHECK(madvise((void *)a, b - a, MADV_DONTFORK) == 0);
	}
	fclose(f);
	heat();
	for (int i = 0; i < 3; i++)
		CHECK(in_child() == 0);
}

TEST(what_is_near_goes_away)
{
	for (int round = 0; round < 5; round++) {
		char line[512];
		FILE *f;

		heat();
		f = fopen("/proc/self/maps", "r");
		CHECK(f != NULL);
		while (fgets(line, sizeof(line), f)) {
			unsigned long a, b;

			if (strstr(line, "[holdfast]") && sscanf(line, "%lx-%lx", &a, &b) == 2)
				CHECK(site(SYS_munmap, (long)a, (long)(b - a), 0) == 0);
		}
		fclose(f);
		heat();
		CHECK(in_child() == 0);
	}
}

TEST_MAIN
