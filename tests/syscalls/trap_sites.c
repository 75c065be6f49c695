// SPDX-License-Identifier: Apache-2.0
/*
 * Call sites that are made often. A platform may replace hot syscall instructions by something faster
 * (platform/trap/README.md); a program must not be able to tell, but by reading its own text. So each
 * site is used HOT times here, and has to do then what it did before, natively by definition: for jumps
 * to each of its bytes, signals, threads, single-stepping, and text that changes or moves.
 */
#include <asm/prctl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <ucontext.h>

#include "tests/syscalls/harness.h"

#define HOT 200

/* ---- sites: functions long f(long nr, ...) in the C way, whose syscall is at f_at ---- */

#define SITE(name, before, after)                                                     \
	__asm__(".pushsection .text\n.balign 64\n.globl " #name "\n" #name ":\n" before \
		"\n.globl " #name "_at\n" #name "_at: syscall\n" after "\n.balign 16\n.popsection"); \
	long name(long nr, long a, long b, long c);                                   \
	extern const char name##_at[];

#define ARGS "mov %edi, %eax\n mov %rsi, %rdi\n mov %rdx, %rsi\n mov %rcx, %rdx\n"

SITE(s_cmp, ARGS, "cmp $-4095, %rax\n jae 1f\n ret\n1: neg %rax\n neg %rax\n ret")
SITE(s_ret, ARGS, "ret")
SITE(s_imm, "mov $110, %eax", "cmp $-4095, %rax\n jae 1f\n ret\n1: ret")
SITE(s_jcc8, ARGS, "test %eax, %eax\n js 1f\n ret\n1: ret")
SITE(s_jcc_first, ARGS, "jmp 1f\n nop\n nop\n nop\n1: ret")
SITE(s_jae32, ARGS "clc\n", ".byte 0x0f, 0x83\n .long 1f - . - 4\n ud2\n1: ret")
SITE(s_push, ARGS, "push %rax\n pop %rax\n push %rcx\n pop %rcx\n ret")
SITE(s_call, ARGS, "call 1f\n ret\n1: ret")
SITE(s_rip, ARGS "push %rax\n pop %rax\n", "mov s_word(%rip), %rdx\n ret")
SITE(s_regjmp, "lea 1f(%rip), %r8\n" ARGS, "jmp *%r8\n nop\n nop\n1: ret")
SITE(s_loop, ARGS "mov $3, %r10d\n push %rax\n", "dec %r10d\n jz 1f\n mov (%rsp), %rax\n jmp s_loop_at\n1: pop %rcx\n ret")
SITE(s_leave, ARGS "push %rbp\n mov %rsp, %rbp\n", "leave\n ret")
SITE(s_nops, ARGS, "nop\n nopw 0(%rax,%rax,1)\n ret")
__asm__(".data\n.globl s_word\ns_word: .quad 0x1122334455667788\n.text");

typedef long (*site_fn)(long nr, long a, long b, long c);

static const struct {
	const char *name;
	site_fn f;
	const char *at;
} sites[] = {
#define S(n) { #n, n, n##_at }
	S(s_cmp), S(s_ret), S(s_imm), S(s_jcc8), S(s_jcc_first), S(s_jae32), S(s_push),
	S(s_call), S(s_rip), S(s_regjmp), S(s_loop), S(s_leave), S(s_nops),
};
#define NSITES (sizeof(sites) / sizeof(sites[0]))

static void heat(site_fn f)
{
	long want = getppid();

	for (int i = 0; i < HOT; i++)
		CHECK(f(SYS_getppid, 0, 0, 0) == want);
}

TEST(every_shape_gives_results_and_errors)
{
	for (unsigned i = 0; i < NSITES; i++) {
		heat(sites[i].f);
		if (sites[i].f == s_imm)
			continue;
		for (int k = 0; k < 20; k++) {
			CHECK(sites[i].f(SYS_close, -1, 0, 0) == -EBADF);
			CHECK(sites[i].f(SYS_getppid, 0, 0, 0) == getppid());
			CHECK(sites[i].f(99999, 0, 0, 0) == -ENOSYS);
		}
	}
}

TEST(errno_of_the_c_library_after_many_calls)
{
	for (int i = 0; i < HOT; i++) {
		CHECK_ERRNO(read(-1, NULL, 0), EBADF);
		CHECK_ERRNO(syscall(99999), ENOSYS);
		CHECK(syscall(SYS_gettid) == getpid());
	}
}

/* ---- jumps to each byte ---- */

struct outcome {
	int sig, code;
	long rip, addr, rax, rdx;
};

static sigjmp_buf back;
static struct outcome got;
static const char *base;

static long place(unsigned long a)
{
	return a - (unsigned long)base < 64 ? (long)(a - (unsigned long)base) : -1;
}

static void on_fault(int sig, siginfo_t *si, void *uc_)
{
	ucontext_t *uc = uc_;

	got.sig = sig;
	got.code = si->si_code;
	got.rip = place((unsigned long)uc->uc_mcontext.gregs[REG_RIP]);
	got.addr = place((unsigned long)si->si_addr);
	siglongjmp(back, 1);
}

/* Calls @to with rax = getppid's number and everything else known. */
long jump_to(const void *to, struct outcome *out);
__asm__(".text\njump_to: push %rbx\n push %rbp\n push %r12\n push %rsi\n mov %rdi, %r9\n"
	" mov $110, %eax\n mov $-1, %rdi\n mov $-1, %rsi\n xor %edx, %edx\n xor %ecx, %ecx\n"
	" lea jumped(%rip), %r8\n mov $1, %r10d\n xor %ebx, %ebx\n xor %ebp, %ebp\n cmp %eax, %eax\n"
	" push $0\n call *%r9\njumped: mov 8(%rsp), %rsi\n mov %rax, 24(%rsi)\n mov %rdx, 32(%rsi)\n"
	" add $16, %rsp\n pop %r12\n pop %rbp\n pop %rbx\n ret");

static struct outcome probe(const char *at, unsigned k)
{
	static char stack[65536];
	const stack_t ss = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	static const int sigs[] = { SIGILL, SIGSEGV, SIGBUS, SIGTRAP, SIGFPE };

	sigaltstack(&ss, NULL);
	for (unsigned i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++)
		sigaction(sigs[i], &sa, NULL);
	memset(&got, 0, sizeof(got));
	base = at;
	if (!sigsetjmp(back, 1))
		jump_to(at + k, &got);
	return got;
}

TEST(jumps_into_a_site_do_what_they_did)
{
	for (unsigned i = 0; i < NSITES; i++) {
		struct outcome cold[8], hot;

		for (unsigned k = 0; k < 8; k++)
			cold[k] = probe(sites[i].at, k);
		heat(sites[i].f);
		for (unsigned k = 0; k < 8; k++) {
			for (int again = 0; again < 3; again++) {
				hot = probe(sites[i].at, k);
				if (memcmp(&hot, &cold[k], sizeof(hot)) != 0)
					FAIL("%s+%u: signal %d/%d rip %ld addr %ld rax %ld rdx %lx, "
					     "was %d/%d %ld %ld %ld %lx",
					     sites[i].name, k, hot.sig, hot.code, hot.rip, hot.addr, hot.rax,
					     hot.rdx, cold[k].sig, cold[k].code, cold[k].rip, cold[k].addr,
					     cold[k].rax, cold[k].rdx);
			}
			heat(sites[i].f);
		}
	}
}

SITE(s_load, ARGS, "mov (%rdx), %rax\n ret")

TEST(faults_behind_a_call)
{
	static const long word = 4711;
	struct outcome cold = probe(s_load_at, 0), hot;

	CHECK(cold.sig == SIGSEGV && cold.rip == 2);
	for (int i = 0; i < HOT; i++)
		CHECK(s_load(SYS_getppid, 0, 0, (long)&word) == 4711);
	for (int i = 0; i < 5; i++) {
		hot = probe(s_load_at, 0);
		CHECK(memcmp(&hot, &cold, sizeof(hot)) == 0);
	}
}

/* ---- registers ---- */

struct regs {
	unsigned long rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp, r8, r9, r10, r11, r12, r13, r14, r15, fl;
};
struct regs r_in, r_out;
unsigned long r_rsp;
void all_regs(void);
extern const char all_regs_at[];
__asm__(".text\nall_regs: push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
	" mov %rsp, r_rsp(%rip)\n mov r_in+8(%rip), %rbx\n mov r_in+16(%rip), %rcx\n"
	" mov r_in+24(%rip), %rdx\n mov r_in+32(%rip), %rsi\n mov r_in+40(%rip), %rdi\n"
	" mov r_in+48(%rip), %rbp\n mov r_in+64(%rip), %r8\n mov r_in+72(%rip), %r9\n"
	" mov r_in+80(%rip), %r10\n mov r_in+88(%rip), %r11\n mov r_in+96(%rip), %r12\n"
	" mov r_in+104(%rip), %r13\n mov r_in+112(%rip), %r14\n mov r_in+120(%rip), %r15\n"
	" push r_in+128(%rip)\n popfq\n mov r_in(%rip), %rax\n mov r_in+56(%rip), %rsp\n"
	".globl all_regs_at\nall_regs_at: syscall\n"
	" mov %rsp, r_out+56(%rip)\n mov r_rsp(%rip), %rsp\n pushfq\n popq r_out+128(%rip)\n push $2\n popfq\n"
	" mov %rax, r_out(%rip)\n mov %rbx, r_out+8(%rip)\n mov %rcx, r_out+16(%rip)\n"
	" mov %rdx, r_out+24(%rip)\n mov %rsi, r_out+32(%rip)\n mov %rdi, r_out+40(%rip)\n"
	" mov %rbp, r_out+48(%rip)\n mov %r8, r_out+64(%rip)\n mov %r9, r_out+72(%rip)\n"
	" mov %r10, r_out+80(%rip)\n mov %r11, r_out+88(%rip)\n mov %r12, r_out+96(%rip)\n"
	" mov %r13, r_out+104(%rip)\n mov %r14, r_out+112(%rip)\n mov %r15, r_out+120(%rip)\n"
	" pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n cld\n ret");

#define FL_BASE 0x202UL
#define FL_AC   0x40000UL
#define FL_ID   0x200000UL

static void check_regs(unsigned long nr, unsigned long rsp, unsigned long flags, long want)
{
	unsigned long *in = (unsigned long *)&r_in, *out = (unsigned long *)&r_out;

	for (unsigned i = 0; i < sizeof(r_in) / 8; i++)
		in[i] = 0x0101010101010101UL * (i + 1) ^ rsp;
	r_in.rax = nr;
	r_in.rsp = rsp;
	r_in.fl = flags;
	memset(&r_out, 0, sizeof(r_out));
	all_regs();
	CHECK((long)r_out.rax == want);
	CHECK(r_out.rcx == (unsigned long)all_regs_at + 2);
	CHECK(r_out.r11 == flags);
	CHECK(r_out.fl == flags);
	r_in.rax = r_out.rax;
	r_in.rcx = r_out.rcx;
	r_in.r11 = r_out.r11;
	for (unsigned i = 0; i < sizeof(r_in) / 8; i++) {
		if (in[i] != out[i])
			FAIL("register %u is %lx, was %lx", i, out[i], in[i]);
	}
}

TEST(registers_and_flags_are_kept)
{
	static const unsigned long flags[] = {
		FL_BASE, FL_BASE | 0x8d5, FL_BASE | 0x400, FL_BASE | FL_AC, FL_BASE | FL_ID,
		FL_BASE | 0x801, FL_BASE | 0x44, FL_BASE | 0x90 | FL_AC | FL_ID | 0x400
	};
	static const unsigned long stacks[] = { 0, 1, 0x7ffffffff, ~0UL, 0x8000000000000000UL };

	for (int i = 0; i < HOT; i++) {
		for (unsigned s = 0; s < 5; s++) {
			check_regs(SYS_getppid, stacks[s], flags[i % 8], getppid());
			check_regs(SYS_getpid, stacks[s], flags[i % 8], getpid());
			check_regs(0xffffffff00000000UL | SYS_gettid, stacks[s], flags[i % 8], getpid());
			check_regs(SYS_close, stacks[s], flags[i % 8], -EBADF);
		}
	}
}

long red_zone(void);
__asm__(".text\nred_zone: mov $0x1234567, %rdx\n mov %rdx, -8(%rsp)\n mov %rdx, -128(%rsp)\n"
	" mov $110, %eax\n syscall\n cmp $-4095, %rax\n cmp %rdx, -8(%rsp)\n jne 1f\n"
	" cmp %rdx, -128(%rsp)\n jne 1f\n mov $1, %eax\n ret\n1: xor %eax, %eax\n ret");

TEST(the_red_zone_is_kept)
{
	for (int i = 0; i < HOT; i++)
		CHECK(red_zone() == 1);
}

TEST(vector_registers_are_kept)
{
	long ok = 0;

	for (int i = 0; i < HOT; i++) {
		__asm__ volatile("movq %2, %%xmm7\n movq %2, %%xmm15\n pcmpeqb %%xmm3, %%xmm3\n"
				 "mov $110, %%eax\n syscall\n cmp $-4095, %%rax\n"
				 "movq %%xmm7, %%rdx\n movq %%xmm15, %%rcx\n xor %%eax, %%eax\n"
				 "cmp %%rdx, %2\n jne 1f\n cmp %%rcx, %2\n jne 1f\n"
				 "pmovmskb %%xmm3, %%eax\n1:\n"
				 : "=&a"(ok), "=&d"((long){ 0 })
				 : "r"(0x1122334455667788L + i)
				 : "rcx", "r11", "xmm7", "xmm15", "xmm3", "memory");
		CHECK((ok & 0xffff) == 0xffff);
	}
}

/* ---- signals ---- */

static atomic_int alarms, astray;
extern char __executable_start[], etext[], end[];

static void on_alarm(int sig, siginfo_t *si, void *uc_)
{
	ucontext_t *uc = uc_;
	unsigned long rip = (unsigned long)uc->uc_mcontext.gregs[REG_RIP];

	(void)sig, (void)si;
	if ((rip < (unsigned long)__executable_start || rip > (unsigned long)etext) &&
	    rip < 0x7000000000UL)
		astray++;
	/* In a site whose call is over, the registers say so. */
	if (rip == (unsigned long)s_cmp_at + 2 &&
	    (uc->uc_mcontext.gregs[REG_RCX] != (long)rip ||
	     ((unsigned long)uc->uc_mcontext.gregs[REG_R11] & 0x200) == 0))
		astray++;
	if (s_cmp(SYS_getppid, 0, 0, 0) != s_cmp(SYS_getppid, 0, 0, 0))
		astray++;
	alarms++;
}

TEST(signals_at_any_place_of_a_site)
{
	struct sigaction sa = { .sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO };
	const unsigned long flags = FL_BASE | 0x8d5, below = (unsigned long)&sa - 8192; /* room for a frame */
	int want = getppid();

	heat(s_cmp);
	sigaction(SIGALRM, &sa, NULL);
	for (unsigned n = 0; alarms < 400; n++) {
		struct itimerval it = { .it_value.tv_usec = 1 + (n * 7919) % 300 };
		int before = alarms;

		setitimer(ITIMER_REAL, &it, NULL);
		while (alarms == before) {
			CHECK(s_cmp(SYS_getppid, 0, 0, 0) == want);
			CHECK(s_ret(SYS_close, -1, 0, 0) == -EBADF);
			check_regs(SYS_getppid, below, flags, want);
			CHECK(s_cmp(SYS_getpid, 0, 0, 0) == getpid());
		}
	}
	CHECK(astray == 0);
}

static atomic_int usr1s;
static void on_usr1(int sig)
{
	(void)sig;
	usr1s++;
}

TEST(each_signal_comes_once)
{
	heat(s_cmp);
	signal(SIGUSR1, on_usr1);
	for (int i = 1; i <= 2000; i++) {
		s_cmp(SYS_kill, getpid(), SIGUSR1, 0);
		CHECK(usr1s == i);
	}
}

static atomic_int stop_kicks;
static pthread_t target;

static void *kicker(void *arg)
{
	(void)arg;
	while (!stop_kicks)
		pthread_kill(target, SIGUSR1);
	return NULL;
}

TEST(blocking_calls_are_interrupted)
{
	struct sigaction sa = { .sa_handler = on_usr1 };
	int p[2], eintr = 0;
	char b;
	pthread_t t;

	CHECK(pipe(p) == 0);
	heat(s_cmp);
	sigaction(SIGUSR1, &sa, NULL);
	target = pthread_self();
	CHECK(pthread_create(&t, NULL, kicker, NULL) == 0);
	for (int i = 0; i < 300; i++) {
		long r = s_cmp(SYS_read, p[0], (long)&b, 1);

		CHECK(r == -EINTR);
		eintr++;
	}
	stop_kicks = 1;
	CHECK(pthread_join(t, NULL) == 0);
	CHECK(usr1s >= eintr);
}

/* ---- threads ---- */

static site_fn shared_site;
static atomic_long wrong;

static void *caller(void *arg)
{
	long want = getppid();

	for (int i = 0; i < 3000; i++) {
		if (shared_site(SYS_getppid, 0, 0, 0) != want)
			wrong++;
		if (shared_site(SYS_gettid, 0, 0, 0) != gettid())
			wrong++;
	}
	return arg;
}

static void run_threads(int n, void *(*extra)(void *))
{
	pthread_t t[8], x;

	if (extra)
		CHECK(pthread_create(&x, NULL, extra, NULL) == 0);
	for (int i = 0; i < n; i++)
		CHECK(pthread_create(&t[i], NULL, caller, NULL) == 0);
	for (int i = 0; i < n; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	stop_kicks = 1;
	if (extra)
		CHECK(pthread_join(x, NULL) == 0);
	CHECK(wrong == 0);
}

TEST(threads_in_a_site_while_it_gets_hot)
{
	for (unsigned i = 0; i < NSITES; i++) {
		if (sites[i].f == s_imm)
			continue;
		shared_site = sites[i].f;
		run_threads(4, NULL);
	}
}

/* ---- text that changes ---- */

/* mov %edi,%eax; mov %rsi,%rdi; syscall; cmp $-4095,%rax; ret */
static const unsigned char code[] = { 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x0f, 0x05, 0x48,
				      0x3d, 0x01, 0xf0, 0xff, 0xff, 0xc3 };
#define CODE_AT 5

static char *make_code(size_t off)
{
	char *p = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	memset(p, 0xcc, 3 * 4096);
	memcpy(p + off, code, sizeof(code));
	CHECK(mprotect(p, 3 * 4096, PROT_READ | PROT_EXEC) == 0);
	return p + off;
}

TEST(sites_at_the_end_of_a_page)
{
	for (size_t off = 4096 - 20; off < 4096 + 4; off++)
		heat((site_fn)make_code(off));
}

TEST(unaligned_and_neighbouring_sites)
{
	for (size_t off = 64; off < 64 + 16; off++)
		heat((site_fn)make_code(off));
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	for (size_t i = 0; i < 4096 / sizeof(code); i++)
		memcpy(p + i * sizeof(code), code, sizeof(code));
	CHECK(mprotect(p, 4096, PROT_READ | PROT_EXEC) == 0);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < 4096 / sizeof(code); i++)
			heat((site_fn)(p + i * sizeof(code)));
	}
}

TEST(text_that_becomes_writable_is_as_it_was)
{
	char *f = make_code(100), *page = f - 100;

	for (int round = 0; round < 6; round++) {
		heat((site_fn)f);
		CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
		CHECK(memcmp(f, code, sizeof(code)) == 0);
		heat((site_fn)f);
		CHECK(memcmp(f, code, sizeof(code)) == 0);
		f[0] = (char)0xb8; /* mov $110, %eax over mov, mov */
		f[1] = 110;
		f[2] = f[3] = f[4] = 0;
		CHECK(((site_fn)f)(SYS_close, 0, 0, 0) == getppid());
		memcpy(f, code, sizeof(code));
		CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
		CHECK(((site_fn)f)(SYS_close, -1, 0, 0) == -EBADF);
	}
}

static char *toggled;

static void *toggler(void *arg)
{
	while (!stop_kicks) {
		if (mprotect(toggled, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) ||
		    memcmp(toggled + 200, code, sizeof(code)) ||
		    mprotect(toggled, 4096, PROT_READ | PROT_EXEC))
			wrong++;
	}
	return arg;
}

TEST(threads_in_text_that_changes_rights)
{
	toggled = make_code(200) - 200;
	shared_site = (site_fn)(toggled + 200);
	run_threads(3, toggler);
}

TEST(text_that_moves)
{
	char *f = make_code(300), *page = f - 300, *to;

	heat((site_fn)f);
	to = mmap(NULL, 8 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(to != MAP_FAILED);
	for (int i = 0; i < 5; i++) {
		char *n = mremap(page, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, to + i * 4096);

		CHECK(n == to + i * 4096);
		page = n;
		CHECK(memcmp(page + 300, code, sizeof(code)) == 0);
		heat((site_fn)(page + 300));
	}
}

TEST(other_text_at_the_same_address)
{
	/* mov $7,%eax; ret where the syscall was and one before */
	static const unsigned char other[] = { 0xb8, 7, 0, 0, 0, 0xc3, 0x90, 0x90 };

	for (int i = 0; i < 5; i++) {
		char *f = make_code(400), *page = f - 400, *p;

		heat((site_fn)f);
		CHECK(munmap(page, 4096) == 0);
		p = mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		CHECK(p == page);
		for (unsigned at = CODE_AT; at < CODE_AT + 5; at++) {
			memcpy(f + at, other, sizeof(other));
			CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
			CHECK(((site_fn)(f + at))(0, 0, 0, 0) == 7);
			CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
		}
		CHECK(munmap(page, 3 * 4096) == 0);
	}
}

TEST(dropping_and_protecting_text)
{
	char *f = make_code(500), *page = f - 500;

	heat((site_fn)f);
	CHECK(mprotect(page, 4096, PROT_NONE) == 0);
	CHECK(probe(f, 0).sig == SIGSEGV);
	CHECK(mprotect(page, 4096, PROT_READ | PROT_EXEC) == 0);
	heat((site_fn)f);
	/* Anonymous text is lost by this, and then reads as zeroes. */
	CHECK(madvise(page, 4096, MADV_DONTNEED) == 0);
	CHECK(f[0] == 0 && f[CODE_AT] == 0 && f[CODE_AT + 2] == 0);
}

/* ---- processes ---- */

static int child_status(pid_t pid)
{
	int st = -1;

	while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
		;
	return st;
}

TEST(forked_processes_have_the_same_sites)
{
	heat(s_cmp);
	for (int i = 0; i < 10; i++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			for (int k = 0; k < HOT; k++) {
				if (s_cmp(SYS_getpid, 0, 0, 0) != getpid() ||
				    s_ret(SYS_gettid, 0, 0, 0) != getpid() ||
				    s_push(SYS_close, -1, 0, 0) != -EBADF)
					_exit(1);
			}
			if (i % 2 && fork() == 0)
				_exit(s_cmp(SYS_getpid, 0, 0, 0) == getpid() ? 0 : 2);
			_exit(0);
		}
		CHECK(child_status(pid) == 0);
		heat(s_cmp);
		heat(s_jcc8);
	}
}

TEST(fork_and_vfork_by_a_site)
{
	heat(s_cmp);
	for (int i = 0; i < 20; i++) {
		long pid = s_cmp(SYS_fork, 0, 0, 0);

		if (pid == 0)
			_exit(s_cmp(SYS_getpid, 0, 0, 0) == getpid() ? 7 : 1);
		CHECK(pid > 0);
		CHECK(child_status((pid_t)pid) == 7 << 8);
		pid = vfork();
		if (pid == 0)
			_exit(9);
		CHECK(child_status((pid_t)pid) == 9 << 8);
	}
}

TEST(exec_forgets_sites)
{
	heat(s_cmp);
	for (int i = 0; i < 5; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			char *argv[] = { "trap_sites", "hot", NULL }, *envp[] = { NULL };

			s_cmp(SYS_execve, (long)"/proc/self/exe", (long)argv, (long)envp);
			_exit(1);
		}
		CHECK(child_status(pid) == 42 << 8);
	}
}

/* ---- who one is ---- */

static void expect_ids(long uid, long euid, long gid, long egid)
{
	for (int i = 0; i < 40; i++) {
		CHECK(s_cmp(SYS_getuid, 0, 0, 0) == uid);
		CHECK(s_cmp(SYS_geteuid, 0, 0, 0) == euid);
		CHECK(s_cmp(SYS_getgid, 0, 0, 0) == gid);
		CHECK(s_cmp(SYS_getegid, 0, 0, 0) == egid);
		CHECK(s_cmp(SYS_getpid, 0, 0, 0) == getpid());
	}
}

TEST(ids_are_those_of_now)
{
	heat(s_cmp);
	expect_ids(getuid(), geteuid(), getgid(), getegid());
	CHECK(setresgid(7, 8, 9) == 0);
	expect_ids(getuid(), geteuid(), 7, 8);
	CHECK(syscall(SYS_setresuid, 4, 5, 0) == 0);
	expect_ids(4, 5, 7, 8);
	CHECK(syscall(SYS_setresuid, -1, 0, -1) == 0);
	expect_ids(4, 0, 7, 8);
}

TEST(ids_of_a_user_namespace_follow_its_map)
{
	int p[2], q[2];
	char b, path[64];
	pid_t pid;
	int fd;

	heat(s_cmp);
	CHECK(pipe(p) == 0 && pipe(q) == 0);
	pid = fork();
	if (pid == 0) {
		CHECK(unshare(CLONE_NEWUSER) == 0);
		expect_ids(65534, 65534, 65534, 65534);
		CHECK(write(p[1], "x", 1) == 1 && read(q[0], &b, 1) == 1);
		expect_ids(11, 11, 65534, 65534);
		_exit(0);
	}
	CHECK(read(p[0], &b, 1) == 1);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	fd = open(path, O_WRONLY);
	CHECK(fd >= 0 && write(fd, "11 0 1\n", 7) == 7);
	CHECK(write(q[1], "x", 1) == 1);
	CHECK(child_status(pid) == 0);
}

/* ---- %gs ---- */

static unsigned long gs_area[16] = { 0x77, 0x88 };

static unsigned long gs_word(void)
{
	unsigned long v;

	__asm__ volatile("mov %%gs:8, %0" : "=r"(v));
	return v;
}

static void *gs_thread(void *arg)
{
	for (int i = 0; i < HOT; i++) {
		if (s_cmp(SYS_gettid, 0, 0, 0) != gettid() || s_ret(SYS_close, -1, 0, 0) != -EBADF)
			wrong++;
	}
	if (syscall(SYS_arch_prctl, ARCH_SET_GS, gs_area))
		wrong++;
	for (int i = 0; i < HOT; i++) {
		if (s_cmp(SYS_gettid, 0, 0, 0) != gettid() || gs_word() != 0x88 ||
		    s_ret(SYS_close, -1, 0, 0) != -EBADF)
			wrong++;
	}
	return arg;
}

TEST(programs_that_use_gs)
{
	unsigned long base_now = 1;
	pthread_t t;

	heat(s_cmp);
	CHECK(pthread_create(&t, NULL, gs_thread, NULL) == 0);
	CHECK(pthread_join(t, NULL) == 0 && wrong == 0);
	CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &base_now) == 0 && base_now == 0);
	heat(s_cmp);
	/* A null selector clears the base. */
	__asm__ volatile("mov %0, %%gs" : : "r"(0));
	heat(s_cmp);
	CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, gs_area) == 0);
	heat(s_cmp);
	CHECK(gs_word() == 0x88);
	__asm__ volatile("mov %0, %%gs" : : "r"(0));
	heat(s_cmp);
	CHECK(syscall(SYS_arch_prctl, ARCH_SET_GS, 0) == 0);
	heat(s_cmp);
	CHECK(syscall(SYS_arch_prctl, ARCH_GET_GS, &base_now) == 0 && base_now == 0);
}

/* ---- single-stepping ---- */

static long steps[64];
static unsigned nsteps;

static void on_step(int sig, siginfo_t *si, void *uc_)
{
	ucontext_t *uc = uc_;

	(void)sig, (void)si;
	if (nsteps < 64)
		steps[nsteps++] = uc->uc_mcontext.gregs[REG_RIP] - (long)s_cmp_at;
}

static void step_through(site_fn f)
{
	long want = getppid(), r;

	nsteps = 0;
	__asm__ volatile("sub $128, %%rsp\n pushfq\n orq $0x100, (%%rsp)\n popfq\n call *%1\n"
			 "pushfq\n andq $~0x100, (%%rsp)\n popfq\n add $128, %%rsp\n"
			 : "=a"(r)
			 : "r"(f), "D"((long)SYS_getppid), "S"(0L), "d"(0L), "c"(0L)
			 : "r8", "r9", "r10", "r11", "memory", "cc");
	CHECK(r == want);
}

TEST(single_steps_through_a_site)
{
	struct sigaction sa = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };
	long cold[64];
	unsigned n;

	sigaction(SIGTRAP, &sa, NULL);
	step_through(s_cmp);
	n = nsteps;
	CHECK(n > 8 && n < 64);
	memcpy(cold, steps, sizeof(cold));
	for (int round = 0; round < 4; round++) {
		heat(s_cmp);
		step_through(s_cmp);
		CHECK(nsteps == n);
		CHECK(memcmp(cold, steps, n * sizeof(long)) == 0);
	}
}

TEST(a_debugger_sees_the_text)
{
	long cold;
	pid_t pid;

	memcpy(&cold, s_cmp_at, sizeof(cold));
	heat(s_cmp);
	pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		for (int i = 0; i < HOT; i++)
			s_cmp(SYS_getppid, 0, 0, 0);
		raise(SIGSTOP);
		_exit(3);
	}
	for (int i = 0; i < 2; i++) {
		CHECK((child_status(pid) & 0xffff) == (SIGSTOP << 8 | 0x7f));
		CHECK(ptrace(PTRACE_PEEKTEXT, pid, s_cmp_at, 0) == cold);
		CHECK(ptrace(PTRACE_CONT, pid, 0, 0) == 0);
	}
	CHECK(child_status(pid) == 3 << 8);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "hot")) {
		heat(s_cmp);
		heat(s_push);
		return 42;
	}
	return run_tests(argc, argv);
}
