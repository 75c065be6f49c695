// SPDX-License-Identifier: Apache-2.0
/*
 * Ways into a kernel other than the syscall instruction of a normal program, and jumps into the code
 * that the sandbox keeps in every address space (platform/stub/layout.h). Each has to end as
 * on a kernel that doesn't have it, or in the death of the guest that tried.
 */
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/ucontext.h>

#include "platform/stub/layout.h"
#include "tests/syscalls/harness.h"

/* Runs @fn in a child; the wait status. */
static int in_child(void (*fn)(unsigned long), unsigned long arg)
{
	int st;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		struct itimerval soon = { { 0, 0 }, { 0, 300000 } };

		setitimer(ITIMER_REAL, &soon, NULL);
		fn(arg);
		_exit(0);
	}
	CHECK(waitpid(pid, &st, 0) == pid);
	while (WIFSTOPPED(st)) { /* it has made us its tracer */
		kill(pid, SIGKILL);
		CHECK(waitpid(pid, &st, 0) == pid);
	}
	return st;
}

static void int80(unsigned long nr)
{
	long ret = (long)nr;

	__asm__ volatile("int $0x80" : "+a"(ret) : "b"(0), "c"(0), "d"(0) : "memory");
	_exit(ret == -ENOSYS ? 0 : 99);
}

TEST(int80_is_a_fault)
{
	static const unsigned long nrs[] = { 1, 2, 20, 5, 11, 37, 0, ~0UL };

	for (unsigned i = 0; i < sizeof(nrs) / sizeof(nrs[0]); i++) {
		int st = in_child(int80, nrs[i]);

		CHECK(WIFSIGNALED(st) && WTERMSIG(st) == SIGSEGV);
	}
}

static void sysenter(unsigned long nr)
{
	__asm__ volatile("mov %%rsp, %%rbp\n\tsysenter" : : "a"(nr) : "memory", "rbp");
	_exit(99);
}

TEST(sysenter_kills_at_most_the_guest)
{
	int st = in_child(sysenter, 20);

	CHECK(WIFSIGNALED(st));
}

TEST(x32_numbers_are_unknown)
{
	for (long nr = 0; nr < 600; nr++) {
		long ret;

		__asm__ volatile("syscall"
				 : "=a"(ret)
				 : "a"(nr | 0x40000000), "D"(0), "S"(0), "d"(0)
				 : "rcx", "r11", "memory");
		CHECK(ret == -ENOSYS);
	}
}

TEST(numbers_with_high_bits_are_unknown_or_cut)
{
	static const unsigned long nrs[] = { 1UL << 63, ~0UL, 1UL << 31, 0xffff0000UL, 5000 };

	for (unsigned i = 0; i < sizeof(nrs) / sizeof(nrs[0]); i++) {
		long ret;

		/* getpid's arguments don't matter; low halves of these are no numbers */
		__asm__ volatile("syscall"
				 : "=a"(ret)
				 : "a"(nrs[i] | 3000), "D"(-1), "S"(0), "d"(0)
				 : "rcx", "r11", "memory");
		CHECK(ret == -ENOSYS);
	}
}

static void vsyscall(unsigned long addr)
{
	long (*fn)(void *, void *) = (long (*)(void *, void *))addr;

	(void)fn(NULL, NULL);
}

TEST(vsyscall_page_works_or_faults)
{
	for (unsigned long a = 0xffffffffff600000UL; a < 0xffffffffff601000UL; a += 0x400) {
		int st = in_child(vsyscall, a);

		CHECK(WIFEXITED(st) || WTERMSIG(st) == SIGSEGV);
	}
}

static void jump(unsigned long addr)
{
	/* Arguments of a system call that would matter, should it be made: write(1, "", 0) and friends. */
	__asm__ volatile("jmp *%0"
			 :
			 : "r"(addr), "a"(SYS_getpid), "D"(0), "S"(0), "d"(0)
			 : "memory");
	_exit(0);
}

/* Every byte of the run-time page, and a few of what may lie behind it. */
TEST(jumps_into_the_stub)
{
	int st;

	for (unsigned long a = STUB_BASE; a < STUB_BASE + 0x300; a++) {
		st = in_child(jump, a);
		CHECK(WIFSIGNALED(st) || WIFEXITED(st));
	}
	for (unsigned long a = STUB_BASE + 0x300; a < STUB_END; a += 0x1800) {
		st = in_child(jump, a);
		CHECK(WIFSIGNALED(st) || WIFEXITED(st));
	}
	st = in_child(jump, 0xdeadbeef00000000UL); /* not canonical */
	CHECK(WIFSIGNALED(st));
	/* and everybody else is unharmed */
	CHECK(getpid() > 0);
}

/* The stub's own calls with hostile arguments: the first syscall instruction found there. */
static void stub_call(unsigned long nr)
{
	const unsigned char *p = (const unsigned char *)STUB_BASE;

	for (int i = 0; i < STUB_RT_SIZE - 1; i++) {
		if (p[i] != 0x0f || p[i + 1] != 0x05)
			continue;
		__asm__ volatile("mov %1, %%rax\n\tjmp *%0"
				 :
				 : "r"(p + i), "r"(nr), "D"(0L), "S"(0x1000L), "d"(7L)
				 : "rax", "memory");
	}
}

TEST(system_calls_through_the_stubs_instruction)
{
	static const unsigned long nrs[] = { SYS_getpid, SYS_write, SYS_mmap,    SYS_munmap,   SYS_clone,
					     SYS_exit,	 SYS_pause, SYS_recvmsg, SYS_mprotect, SYS_close,
					     SYS_ptrace, SYS_kill,  SYS_seccomp };

	for (unsigned i = 0; i < sizeof(nrs) / sizeof(nrs[0]); i++) {
		int st = in_child(stub_call, nrs[i]);

		CHECK(WIFSIGNALED(st) || WIFEXITED(st));
	}
}

static void touch(unsigned long addr)
{
	*(volatile char *)addr = 1;
}

TEST(stub_pages_cannot_be_written_by_sight)
{
	/* The run-time text and the operations: never writable. (STUB_DATA is the stub's own scratch.) */
	for (unsigned long a = STUB_BASE; a < STUB_BASE + STUB_RT_SIZE; a += 64)
		CHECK(WIFSIGNALED(in_child(touch, a)));
	for (unsigned long a = STUB_OPS; a < STUB_OPS + STUB_OPS_SIZE; a += 512)
		CHECK(WIFSIGNALED(in_child(touch, a)));
}

TEST(stub_range_is_out_of_reach_for_calls)
{
	char *base = (char *)STUB_BASE;
	char *own = mmap(NULL, 0x4000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd[2];

	CHECK(own != MAP_FAILED && pipe(fd) == 0);
	for (long off = -0x2000; off < 0x32000; off += 0x1000) {
		char *p = base + off;
		void *m = mmap(p, 0x3000, PROT_READ | PROT_WRITE | PROT_EXEC,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

		CHECK(m == MAP_FAILED);
		CHECK(mprotect(p, 0x3000, PROT_READ | PROT_WRITE) == -1);
		CHECK(mremap(own, 0x3000, 0x3000, MREMAP_MAYMOVE | MREMAP_FIXED, p) == MAP_FAILED);
		CHECK(mremap(p, 0x1000, 0x2000, MREMAP_MAYMOVE) == MAP_FAILED);
		(void)munmap(p, 0x3000); /* may be refused, or find nothing of the guest's there */
		CHECK(madvise(p, 0x3000, MADV_DONTNEED) == -1);
		if (off >= 0 && off < 0x30000)
			CHECK_ERRNO(write(fd[1], p, 16), EFAULT);
	}
	/* the whole range at once, and from below to above it */
	(void)munmap(base, 0x30000);
	CHECK(mmap(base - 0x100000, 0x200000, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == MAP_FAILED);
	own[0] = 1; /* still there */
	CHECK(fork() >= 0);
}

static void bad_sigreturn(unsigned long kind)
{
	ucontext_t uc;

	memset(&uc, 0, sizeof(uc));
	if (kind & 1)
		memset(&uc.uc_mcontext, 0xff, sizeof(uc.uc_mcontext));
	if (kind & 2)
		uc.uc_mcontext.fpregs = (fpregset_t)(STUB_BASE + (kind << 4));
	if (kind & 4)
		uc.uc_mcontext.gregs[REG_RIP] = (long)0x8000000000000000UL;
	if (kind & 8)
		uc.uc_mcontext.gregs[REG_CSGSFS] = (long)0x0123456789abcdefL;
	if (kind & 16)
		uc.uc_mcontext.gregs[REG_EFL] = -1;
	if (kind & 32)
		uc.uc_mcontext.gregs[REG_RSP] = (long)STUB_DATA;
	if (kind & 64)
		uc.uc_mcontext.gregs[REG_RIP] = (long)STUB_BASE;
	if (kind & 128)
		memset(&uc.uc_sigmask, 0xff, sizeof(uc.uc_sigmask));
	__asm__ volatile("mov %0, %%rsp\n\tmov %1, %%eax\n\tsyscall\n\thlt"
			 :
			 : "r"(&uc), "i"(SYS_rt_sigreturn)
			 : "memory");
}

TEST(hostile_signal_frames)
{
	for (unsigned long kind = 0; kind < 256; kind++) {
		int st = in_child(bad_sigreturn, kind);

		CHECK(WIFSIGNALED(st));
	}
}

/* A frame in memory that ends in the middle of it. */
static void cut_sigreturn(unsigned long room)
{
	char *p = mmap(NULL, 0x2000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(p + 0x1000, 0x1000);
	__asm__ volatile("mov %0, %%rsp\n\tmov %1, %%eax\n\tsyscall\n\thlt"
			 :
			 : "r"(p + 0x1000 - room), "i"(SYS_rt_sigreturn)
			 : "memory");
}

TEST(cut_signal_frames)
{
	for (unsigned long room = 0; room < 1100; room += 100)
		CHECK(WIFSIGNALED(in_child(cut_sigreturn, room)));
}

TEST(ptrace_of_everybody_else_fails)
{
	for (pid_t pid = 0; pid < 3000; pid++) {
		if (pid == getpid() || kill(pid, 0) == 0)
			continue;
		CHECK(ptrace(PTRACE_ATTACH, pid, 0, 0) == -1);
		CHECK(ptrace(PTRACE_SEIZE, pid, 0, 0) == -1);
	}
}

/* Register values that a tracer sets for its tracee. */
TEST(ptrace_sets_wild_registers)
{
	for (int kind = 0; kind < 8; kind++) {
		struct user_regs_struct {
			unsigned long r[27];
		} regs;
		int st;
		pid_t pid = fork();

		if (pid == 0) {
			ptrace(PTRACE_TRACEME, 0, 0, 0);
			raise(SIGSTOP);
			_exit(0);
		}
		CHECK(waitpid(pid, &st, 0) == pid && WIFSTOPPED(st));
		CHECK(ptrace(PTRACE_GETREGS, pid, 0, &regs) == 0);
		for (int i = 0; i < 27; i++)
			if ((i + kind) % 3 == 0)
				regs.r[i] = kind & 1 ? ~0UL : STUB_BASE + (unsigned long)i;
		(void)ptrace(PTRACE_SETREGS, pid, 0, &regs);
		(void)ptrace(PTRACE_CONT, pid, 0, 0);
		if (waitpid(pid, &st, 0) == pid && WIFSTOPPED(st))
			kill(pid, SIGKILL);
	}
}

TEST_MAIN
