// SPDX-License-Identifier: Apache-2.0
/* man 2 sigaltstack, 2 sigreturn, 7 signal: vector state around a handler, faults past the end of a mapped file */
#include "harness.h"

#include <immintrin.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>

#include "tests/syscalls/tmpdir.h"

static volatile int handled;
static char *stack_lo;

__attribute__((target("avx"))) static void clobber_vectors(void)
{
	__asm__ volatile("vpcmpeqd %%xmm0, %%xmm0, %%xmm0\n\t"
			 "vinsertf128 $1, %%xmm0, %%ymm0, %%ymm0\n\t"
			 "vmovaps %%ymm0, %%ymm7\n\t"
			 "vmovaps %%ymm0, %%ymm15" ::
				 : "xmm0", "xmm7", "xmm15");
}

static void on_usr1(int sig)
{
	(void)sig;
	clobber_vectors();
	handled++;
}

__attribute__((target("avx"))) static void check_vectors(pid_t self)
{
	uint64_t in[4] = { 0x1111, 0x2222, 0x3333, 0x4444 }, out[4] = { 0 };
	long r = SYS_kill;

	__asm__ volatile("vmovups %[in], %%ymm7\n\t"
			 "vmovups %[in], %%ymm15\n\t"
			 "syscall\n\t"
			 "vxorps %%ymm7, %%ymm15, %%ymm15\n\t"
			 "vorps %%ymm7, %%ymm15, %%ymm7\n\t"
			 "vmovups %%ymm7, %[out]"
			 : "+a"(r), [out] "=m"(out)
			 : [in] "m"(in), "D"((long)self), "S"((long)SIGUSR1)
			 : "rcx", "r11", "memory", "xmm7", "xmm15");
	CHECK(r == 0);
	CHECK(memcmp(in, out, sizeof(in)) == 0);
}

TEST(avx_state_survives_a_handler)
{
	struct sigaction sa = { .sa_handler = on_usr1 };

	if (!__builtin_cpu_supports("avx"))
		SKIP("no AVX here");
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	for (int i = 1; i <= 50; i++) {
		check_vectors(getpid());
		CHECK(handled == i);
	}
}

static void on_stack(int sig, siginfo_t *si, void *uc)
{
	char here;
	stack_t ss;

	(void)sig;
	(void)si;
	CHECK(&here >= stack_lo && &here < stack_lo + 65536);
	CHECK(sigaltstack(NULL, &ss) == 0 && ss.ss_flags == SS_ONSTACK);
	CHECK_ERRNO(sigaltstack(&ss, NULL), EPERM);
	CHECK(((ucontext_t *)uc)->uc_stack.ss_sp == stack_lo);
	handled++;
}

TEST(altstack_is_used_and_left)
{
	struct sigaction sa = { .sa_sigaction = on_stack, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	stack_t ss = { .ss_size = 65536 }, old;

	stack_lo = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(stack_lo != MAP_FAILED);
	ss.ss_sp = stack_lo;
	CHECK(sigaltstack(&ss, NULL) == 0);
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	CHECK(raise(SIGUSR1) == 0 && raise(SIGUSR1) == 0 && handled == 2);
	CHECK(sigaltstack(NULL, &old) == 0 && old.ss_flags == 0 && old.ss_sp == stack_lo);
	ss.ss_size = 100;
	CHECK_ERRNO(sigaltstack(&ss, NULL), ENOMEM);
	ss.ss_flags = 0x100;
	CHECK_ERRNO(sigaltstack(&ss, NULL), EINVAL);
}

static sigjmp_buf back;
static siginfo_t fault;

static void on_fault(int sig, siginfo_t *si, void *uc)
{
	(void)sig;
	(void)uc;
	fault = *si;
	siglongjmp(back, 1);
}

TEST(sigbus_past_the_end_of_a_file)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	volatile char *p;
	char c = 0;
	int fd;

	enter_tmpdir();
	fd = make_file("f", "abc");
	p = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK(sigaction(SIGBUS, &sa, NULL) == 0 && sigaction(SIGSEGV, &sa, NULL) == 0);
	CHECK(p[0] == 'a' && p[4095] == 0);
	if (sigsetjmp(back, 1) == 0) {
		c = p[4096];
		CHECK(c != c);
	}
	CHECK(fault.si_signo == SIGBUS && fault.si_code == BUS_ADRERR);
	CHECK(fault.si_addr == (void *)(uintptr_t)(p + 4096));
	CHECK_ERRNO(read(fd, (void *)(uintptr_t)(p + 4096), 1), EFAULT);
	CHECK(ftruncate(fd, 8192) == 0);
	p[4096] = 'x';
	CHECK(pread(fd, &c, 1, 4096) == 1 && c == 'x');
	CHECK(pwrite(fd, "y", 1, 4097) == 1 && p[4097] == 'y');
	CHECK(ftruncate(fd, 100) == 0);
	memset(&fault, 0, sizeof(fault));
	if (sigsetjmp(back, 1) == 0)
		p[4096] = 'z';
	CHECK(fault.si_signo == SIGBUS);
	CHECK(ftruncate(fd, 8192) == 0 && p[4096] == 0);
	CHECK(mprotect((void *)(uintptr_t)p, 4096, PROT_READ) == 0);
	if (sigsetjmp(back, 1) == 0)
		p[0] = 'z';
	CHECK(fault.si_signo == SIGSEGV && fault.si_code == SEGV_ACCERR);
}

static void on_alarm(int sig)
{
	(void)sig;
	handled++;
}

/* man 7 signal: with SA_RESTART read goes on, pause and poll don't. */
TEST(restart_depends_on_the_call)
{
	struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
	struct itimerval every = { { 0, 20000 }, { 0, 20000 } }, none = { 0 };
	int p[2];
	char c;

	CHECK(pipe(p) == 0 && sigaction(SIGALRM, &sa, NULL) == 0);
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		usleep(300000);
		CHECK(write(p[1], "x", 1) == 1);
		_exit(0);
	}
	CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
	CHECK(read(p[0], &c, 1) == 1 && handled > 1);
	CHECK_ERRNO(pause(), EINTR);
	sa.sa_flags = 0;
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	CHECK_ERRNO(read(p[0], &c, 1), EINTR);
	CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

TEST_MAIN
