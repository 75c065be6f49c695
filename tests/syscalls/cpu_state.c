// SPDX-License-Identifier: Apache-2.0
/*
 * What a program's CPU looks like after a system call, a page fault and a signal: nothing has changed but what
 * the ABI says. Hand-written loops, since compilers keep away from what is interesting here: the
 * direction flag, stack pointers that lead nowhere, segment registers.
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <cpuid.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "harness.h"

#define REGS  15
#define LOOPS 200

/* rax rbx rcx rdx rsi rdi rbp r8 r9 r10 r11 r12 r13 r14 r15, flags after and before */
struct state {
	uint64_t r[REGS], flags, set_flags, rsp;
};

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15 };

/* Loads everything from @s, makes the call, stores everything. With the stack pointer s->rsp, if not 0. */
void call_with(struct state *s);
extern const char call_with_after[];
__asm__(".text\n.globl call_with, call_with_after\n"
	"call_with:\n"
	"	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"	mov %rdi, state_p(%rip)\n"
	"	mov %rsp, saved_rsp(%rip)\n"
	"	pushq 128(%rdi)\n"
	"	popfq\n"
	"	mov 0(%rdi), %rax; mov 8(%rdi), %rbx; mov 16(%rdi), %rcx; mov 24(%rdi), %rdx\n"
	"	mov 32(%rdi), %rsi; mov 48(%rdi), %rbp; mov 56(%rdi), %r8; mov 64(%rdi), %r9\n"
	"	mov 72(%rdi), %r10; mov 80(%rdi), %r11; mov 88(%rdi), %r12; mov 96(%rdi), %r13\n"
	"	mov 104(%rdi), %r14; mov 112(%rdi), %r15\n"
	"	mov 136(%rdi), %rsp\n"
	"	mov 40(%rdi), %rdi\n"
	"	syscall\n"
	"call_with_after:\n"
	"	mov %rsp, got_rsp(%rip)\n"
	"	mov saved_rsp(%rip), %rsp\n"
	"	push %rax\n"
	"	mov state_p(%rip), %rax\n"
	"	mov %rbx, 8(%rax); mov %rcx, 16(%rax); mov %rdx, 24(%rax); mov %rsi, 32(%rax)\n"
	"	mov %rdi, 40(%rax); mov %rbp, 48(%rax); mov %r8, 56(%rax); mov %r9, 64(%rax)\n"
	"	mov %r10, 72(%rax); mov %r11, 80(%rax); mov %r12, 88(%rax); mov %r13, 96(%rax)\n"
	"	mov %r14, 104(%rax); mov %r15, 112(%rax)\n"
	"	pushfq; popq 120(%rax)\n"
	"	popq 0(%rax)\n"
	"	mov got_rsp(%rip), %rcx; mov %rcx, 136(%rax)\n"
	"	pushq $0x202; popfq\n"
	"	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
	"	ret\n"
	".data\n"
	"state_p: .quad 0\nsaved_rsp: .quad 0\ngot_rsp: .quad 0\n"
	".text\n");

static void check_call(uint64_t nr, uint64_t flags, uint64_t rsp, int64_t want)
{
	struct state s = { .set_flags = flags, .rsp = rsp }, before;

	for (int i = 0; i < REGS; i++)
		s.r[i] = 0x1111111111111111ULL * (uint64_t)(i + 1);
	s.r[RAX] = nr;
	before = s;
	call_with(&s);
	CHECK((int64_t)s.r[RAX] == want);
	for (int i = 1; i < REGS; i++) {
		if (i == RCX)
			CHECK(s.r[i] == (uint64_t)(uintptr_t)call_with_after);
		else if (i == R11)
			CHECK((s.r[i] & 0xfd5) == (flags & 0xfd5));
		else
			CHECK(s.r[i] == before.r[i]);
	}
	/* all that a program can set, but TF and those that pushes here clear */
	CHECK((s.flags & 0x40ed5) == (flags & 0x40ed5));
	CHECK(s.rsp == rsp);
}

static uint64_t some_stack(void)
{
	static char stack[4096];

	return (uint64_t)(uintptr_t)(stack + 2048);
}

TEST(registers_survive_calls)
{
	/* several, so that each of them has been made often from its place */
	for (int i = 0; i < LOOPS; i++) {
		check_call(SYS_getpid, 0x202, some_stack(), getpid());
		check_call(SYS_getppid, 0x202, some_stack(), getppid());
		check_call(SYS_close, 0x202, some_stack(), -EBADF);
		check_call(100000, 0x202, some_stack(), -ENOSYS);
		check_call(0xffffffffffffffff, 0x202, some_stack(), -ENOSYS);
	}
}

TEST(flags_survive_calls)
{
	/* CF PF AF ZF SF DF OF, AC, all of them */
	static const uint64_t flags[] = { 0x203, 0x206, 0x212, 0x242, 0x282, 0x602, 0xa02, 0x40202, 0x40ed7 };

	for (unsigned i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		for (int k = 0; k < LOOPS; k++) {
			check_call(SYS_getpid, flags[i], some_stack(), getpid());
			check_call(SYS_getppid, flags[i], some_stack(), getppid());
		}
	}
}

TEST(calls_need_no_stack)
{
	static const uint64_t wild[] = { 0, 8, 0x1000, 0xffffffffffffffff, 0x8000000000000000, 0x7fffffffe000,
					 0x123456789abcdef };

	for (unsigned i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
		for (int k = 0; k < LOOPS; k++) {
			check_call(SYS_getpid, 0x202, wild[i], getpid());
			check_call(SYS_getppid, 0x202, wild[i], getppid());
		}
	}
}

TEST(red_zone_survives_calls)
{
	static char stack[4096], want[4096];

	for (int k = 0; k < LOOPS; k++) {
		memset(stack, 0x5a, sizeof(stack));
		memset(want, 0x5a, sizeof(want));
		check_call(SYS_getppid, 0x202, (uint64_t)(uintptr_t)(stack + 2048), getppid());
		CHECK(!memcmp(stack, want, sizeof(stack)));
	}
}

TEST(faults_need_no_stack)
{
	const size_t n = 64;
	char *p = mmap(NULL, n * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	for (size_t i = 0; i < n; i++) {
		uint64_t sum;

		__asm__ volatile("mov %%rsp, %%r12\n\t"
				 "mov $8, %%esp\n\t"
				 "std\n\t"
				 "movb $7, (%1)\n\t"
				 "movzbl (%1), %k0\n\t"
				 "cld\n\t"
				 "mov %%r12, %%rsp"
				 : "=&r"(sum)
				 : "r"(p + i * 4096)
				 : "r12", "memory", "cc");
		CHECK(sum == 7);
	}
}

/* ---- vector state ---- */

static bool have_avx512(void)
{
	unsigned a, b, c, d, lo, hi;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27)))
		return false;
	__asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	if ((lo & 0xe6) != 0xe6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
		return false;
	return (b & (1u << 16)) && (b & (1u << 30)); /* F, BW */
}

static bool have_avx(void)
{
	unsigned a, b, c, d, lo, hi;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27)) || !(c & (1u << 28)))
		return false;
	__asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
	return (lo & 6) == 6;
}

static uint8_t vec_in[32][64] __attribute__((aligned(64))), vec_out[32][64] __attribute__((aligned(64)));

static void fill_vectors(unsigned seed)
{
	for (int i = 0; i < 32; i++)
		for (int k = 0; k < 64; k++)
			vec_in[i][k] = (uint8_t)(seed + (unsigned)(i * 67 + k * 13));
	memset(vec_out, 0, sizeof(vec_out));
}

#define EACH16(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define HIGH16(X)                                                                                             \
	X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)
#define LD_XMM(n) "movdqa " #n "*64(%1), %%xmm" #n "\n\t"
#define ST_XMM(n) "movdqa %%xmm" #n ", " #n "*64(%2)\n\t"
#define LD_YMM(n) "vmovdqa " #n "*64(%1), %%ymm" #n "\n\t"
#define ST_YMM(n) "vmovdqa %%ymm" #n ", " #n "*64(%2)\n\t"
#define LD_ZMM(n) "vmovdqa64 " #n "*64(%1), %%zmm" #n "\n\t"
#define ST_ZMM(n) "vmovdqa64 %%zmm" #n ", " #n "*64(%2)\n\t"
#define CALL_REGS "rcx", "r11", "memory"

static void vectors_by_call(long nr, int kind)
{
	long r = nr;

	if (kind == 0)
		__asm__ volatile(EACH16(LD_XMM) "syscall\n\t" EACH16(ST_XMM)
				 : "+a"(r)
				 : "r"(vec_in), "r"(vec_out)
				 : CALL_REGS);
	else if (kind == 1)
		__asm__ volatile(EACH16(LD_YMM) "syscall\n\t" EACH16(ST_YMM) "vzeroupper"
				 : "+a"(r)
				 : "r"(vec_in), "r"(vec_out)
				 : CALL_REGS);
	else
		__asm__ volatile(EACH16(LD_ZMM) HIGH16(LD_ZMM) "kmovq %3, %%k1\n\tkmovq %3, %%k7\n\t"
				 "syscall\n\t" EACH16(ST_ZMM) HIGH16(ST_ZMM)
				 "kmovq %%k7, (%2)\n\tvzeroupper"
				 : "+a"(r)
				 : "r"(vec_in), "r"(vec_out), "r"(0x0123456789abcdefUL)
				 : CALL_REGS);
	CHECK(r == syscall(nr));
}

TEST(vector_registers_survive_calls)
{
	static const size_t width[] = { 16, 32, 64 };
	static const int regs[] = { 16, 16, 32 };
	int kinds = have_avx512() ? 3 : have_avx() ? 2 : 1;

	for (int kind = 0; kind < kinds; kind++) {
		for (unsigned k = 0; k < 100; k++) {
			fill_vectors(k);
			vectors_by_call(k % 2 ? SYS_getppid : SYS_getuid, kind);
			if (kind == 2) { /* register 0 was overwritten by k7 */
				uint64_t mask;

				memcpy(&mask, vec_out[0], 8);
				CHECK(mask == 0x0123456789abcdefUL);
				memcpy(vec_out[0], vec_in[0], 8);
			}
			for (int i = 0; i < regs[kind]; i++)
				CHECK(!memcmp(vec_in[i], vec_out[i], width[kind]));
		}
	}
}

TEST(control_words_survive_calls)
{
	for (unsigned k = 0; k < 100; k++) {
		uint32_t mx = 0x1f80u | (k % 4) << 13 | (k % 2 ? 0x8000u : 0), mx2;
		uint16_t cw = (uint16_t)(0x37f | (k % 4) << 10), cw2;
		double x = 1.5 + k, y;
		long r = SYS_getppid;

		__asm__ volatile("ldmxcsr %4\n\tfldcw %5\n\tfldl %6\n\tsyscall\n\tfstpl %3\n\t"
				 "stmxcsr %1\n\tfnstcw %2"
				 : "+a"(r), "=m"(mx2), "=m"(cw2), "=m"(y)
				 : "m"(mx), "m"(cw), "m"(x)
				 : CALL_REGS);
		CHECK(mx2 == mx && cw2 == cw && y == x);
		mx = 0x1f80;
		cw = 0x37f;
		__asm__ volatile("ldmxcsr %0\n\tfldcw %1" : : "m"(mx), "m"(cw));
	}
}

/* ---- segments ---- */

static bool have_fsgsbase(void)
{
	unsigned a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1);
}

static uint64_t gs_base(void)
{
	uint64_t v;

	CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &v) == 0);
	return v;
}

static uint64_t gs_word(void)
{
	uint64_t v;

	__asm__ volatile("mov %%gs:0, %0" : "=r"(v));
	return v;
}

static void use_gs(const uint64_t *word)
{
	for (int i = 0; i < LOOPS; i++) {
		CHECK(gs_word() == *word);
		(void)syscall(SYS_getppid);
		(void)syscall(SYS_getpid);
		CHECK(gs_word() == *word);
		if (i % 50 == 0)
			CHECK(gs_base() == (uint64_t)(uintptr_t)word);
	}
}

static uint64_t gs_words[3] = { 0xa1, 0xa2, 0xa3 };

TEST(gs_set_by_call)
{
	for (int i = 0; i < 3; i++) {
		CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, &gs_words[i]) == 0);
		use_gs(&gs_words[i]);
	}
}

TEST(gs_set_by_instruction)
{
	if (!have_fsgsbase())
		return; /* nothing to see */
	for (int i = 0; i < 3; i++) {
		uint64_t v = (uint64_t)(uintptr_t)&gs_words[i], got;

		__asm__ volatile("wrgsbase %0" : : "r"(v));
		use_gs(&gs_words[i]);
		__asm__ volatile("rdgsbase %0" : "=r"(got));
		CHECK(got == v);
	}
}

static void *gs_thread(void *arg)
{
	CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, arg) == 0);
	use_gs(arg);
	return NULL;
}

TEST(gs_is_each_threads_own)
{
	pthread_t t[2];

	CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, &gs_words[0]) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, gs_thread, &gs_words[i + 1]) == 0);
	use_gs(&gs_words[0]);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	use_gs(&gs_words[0]);
}

TEST(gs_is_inherited_by_fork)
{
	int st;

	CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, &gs_words[1]) == 0);
	if (fork() == 0) {
		use_gs(&gs_words[1]);
		_exit(0);
	}
	CHECK(wait(&st) > 0 && st == 0);
	use_gs(&gs_words[1]);
}

TEST(gs_base_of_nothing_is_zero)
{
	for (int i = 0; i < LOOPS; i++) {
		(void)syscall(SYS_getppid);
		CHECK(gs_base() == 0);
	}
	CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, &gs_words[2]) == 0);
	use_gs(&gs_words[2]);
	CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, 0UL) == 0);
	for (int i = 0; i < LOOPS; i++) {
		(void)syscall(SYS_getppid);
		CHECK(gs_base() == 0);
	}
}

TEST(selectors_of_data_survive)
{
	for (int i = 0; i < LOOPS; i++) {
		unsigned ds = 0, es = 0;
		long r = SYS_getppid;

		__asm__ volatile("mov %3, %%ds\n\tmov %3, %%es\n\tsyscall\n\tmov %%ds, %1\n\tmov %%es, %2\n\t"
				 "mov %4, %%ds\n\tmov %4, %%es"
				 : "+a"(r), "=&r"(ds), "=&r"(es)
				 : "r"(0x2b), "r"(0)
				 : CALL_REGS);
		CHECK(ds == 0x2b && es == 0x2b);
	}
}

TEST(flat_gs_selector_has_base_zero)
{
	uint64_t v = 0x77, got;

	CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, &gs_words[0]) == 0);
	__asm__ volatile("mov %0, %%gs" : : "r"(0x2b));
	for (int i = 0; i < 10; i++) {
		__asm__ volatile("mov %%gs:(%1), %0" : "=r"(got) : "r"(&v));
		CHECK(got == v);
		(void)syscall(SYS_getppid);
	}
}

/* ---- single steps, alignment ---- */

#define STEPS_MAX 64

static uint64_t steps[STEPS_MAX];
static volatile sig_atomic_t nsteps;

static void on_step(int sig, siginfo_t *si, void *ucv)
{
	ucontext_t *uc = ucv;

	(void)sig;
	(void)si;
	if (nsteps < STEPS_MAX)
		steps[nsteps++] = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];
}

void stepped(long nr);
extern const char step_a[], step_b[], step_d[], step_e[], step_f[];
__asm__(".globl stepped, step_a, step_b, step_d, step_e, step_f\n"
	"stepped:\n"
	"	mov %rdi, %rax\n"
	"	pushfq; orq $0x100, (%rsp); popfq\n"
	"	nop\n"
	"step_a:	nop\n"
	"step_b:	syscall\n"
	"	nop\n"
	"step_d:	pushfq\n"
	"step_e:	andq $~0x100, (%rsp)\n"
	"step_f:	popfq\n"
	"	ret\n");

TEST(single_steps_over_calls)
{
	/* the first trap behind a call comes after the instruction that follows it */
	const char *const want[] = { step_a, step_b, step_d, step_e, step_f, step_f + 1 };
	struct sigaction sa = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };

	CHECK(sigaction(SIGTRAP, &sa, NULL) == 0);
	for (int i = 0; i < 60; i++) {
		nsteps = 0;
		stepped(i % 2 ? SYS_getppid : SYS_getpid);
		CHECK(nsteps == 6);
		for (int k = 0; k < 6; k++)
			CHECK(steps[k] == (uint64_t)(uintptr_t)want[k]);
	}
}

static volatile sig_atomic_t misaligned;
static uint64_t bus_flags;

static void on_bus(int sig, siginfo_t *si, void *ucv)
{
	ucontext_t *uc = ucv;

	(void)sig;
	CHECK(si->si_code == BUS_ADRALN);
	misaligned++;
	bus_flags = (uint64_t)uc->uc_mcontext.gregs[REG_EFL];
	uc->uc_mcontext.gregs[REG_EFL] &= ~0x40000L;
}

TEST(alignment_check)
{
	struct sigaction sa = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };
	static uint64_t words[2];

	CHECK(sigaction(SIGBUS, &sa, NULL) == 0);
	for (int i = 0; i < 20; i++) {
		long r = SYS_getppid;
		uint64_t v;

		__asm__ volatile("pushfq; orq $0x40000, (%%rsp); popfq\n\t"
				 "syscall\n\t"
				 "mov 1(%2), %1\n\t"
				 : "+a"(r), "=&r"(v)
				 : "r"(words)
				 : CALL_REGS, "cc");
		CHECK(misaligned == i + 1 && (bus_flags & 0x40000) && v == 0);
		CHECK(r == getppid());
	}
}

/* ---- signals at any time ---- */

static volatile uint64_t handled, astray;
extern const char busy_begin[], busy_end[], busy_after[];
uint64_t busy(uint64_t rounds, long nr);
__asm__(".globl busy, busy_begin, busy_end, busy_after\n"
	"busy:\n"
	"	push %rbx; push %r12; push %r13\n"
	"	mov %rdi, %rbx; mov %rsi, %r12; xor %r13d, %r13d\n"
	"busy_begin:\n"
	"1:	mov %r12, %rax\n"
	"	mov $0x1234, %edx\n"
	"	syscall\n"
	"busy_after:\n"
	"	add %rax, %r13\n"
	"	cmp $0x1234, %edx\n"
	"	jne 2f\n"
	"	dec %rbx\n"
	"	jnz 1b\n"
	"busy_end:\n"
	"2:	mov %r13, %rax\n"
	"	pop %r13; pop %r12; pop %rbx\n"
	"	ret\n");

static long busy_nr, busy_result;

static void on_usr1(int sig, siginfo_t *si, void *ucv)
{
	const ucontext_t *uc = ucv;
	uint64_t rip = (uint64_t)uc->uc_mcontext.gregs[REG_RIP];

	(void)sig;
	(void)si;
	if (rip - (uint64_t)(uintptr_t)busy_begin < (uint64_t)(busy_end - busy_begin)) {
		if (uc->uc_mcontext.gregs[REG_R12] != busy_nr)
			astray++;
		if (rip == (uint64_t)(uintptr_t)busy_after &&
		    uc->uc_mcontext.gregs[REG_RAX] != busy_result)
			astray++;
	} else if (rip >= 0x7ffff0000000UL && rip < 0x7fffffffffffUL && !uc->uc_link &&
		   uc->uc_mcontext.gregs[REG_RSP] == 0) {
		astray++;
	}
	handled++;
}

static struct {
	pthread_t victim;
	uint64_t sent;
	volatile bool stop;
} sender;

/* One at a time: each must arrive once. */
static void *sender_main(void *arg)
{
	while (!sender.stop) {
		uint64_t n = handled;

		CHECK(pthread_kill(sender.victim, SIGUSR1) == 0);
		sender.sent++;
		while (handled == n && !sender.stop)
			sched_yield();
		for (volatile unsigned d = (unsigned)(sender.sent * 37 % 2000); d; d--)
			;
	}
	return arg;
}

TEST(signals_come_once_and_in_the_guests_code)
{
	static const long nrs[] = { SYS_getppid, SYS_getpid, SYS_gettid };
	struct sigaction sa = { .sa_sigaction = on_usr1, .sa_flags = SA_SIGINFO };
	pthread_t t;

	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0);
	for (unsigned k = 0; k < 3; k++) {
		uint64_t before = handled;

		busy_nr = nrs[k];
		busy_result = syscall(nrs[k]);
		sender.victim = pthread_self();
		sender.sent = 0;
		sender.stop = false;
		CHECK(pthread_create(&t, NULL, sender_main, NULL) == 0);
		while (handled - before < 500)
			CHECK(busy(1000, nrs[k]) == 1000 * (uint64_t)busy_result);
		sender.stop = true;
		pthread_join(t, NULL);
		(void)sched_yield(); /* what is pending comes now */
		CHECK(handled - before == sender.sent);
		CHECK(astray == 0);
	}
}

TEST_MAIN
