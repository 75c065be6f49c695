// SPDX-License-Identifier: Apache-2.0
/*
 * What a stub could do if its guest took it over completely: the test lets stub threads make real
 * system calls (PTRACE_CONT instead of PTRACE_SYSEMU), from guest text and from the stub's own
 * syscall instruction with hostile registers, and expects the filter to stop them.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/ptrace.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "platform/ptrace/ptrace_priv.h"
#include "sentry/mm/mfile.h"

#define CODE 0x400000UL

extern const char stub_image[], stub_image_end[];

static const unsigned char code[] = { 0x0f, 0x05, 0xcc }; /* syscall; int3 */
static struct mfile *mf;
static uint64_t code_off;
static uint64_t rt_syscall; /* address of the batch routine's syscall instruction */

static int memfd_provider(int fds[2])
{
	char path[64];

	fds[0] = memfd_create("guest", MFD_CLOEXEC);
	if (fds[0] < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	fds[1] = open(path, O_RDONLY | O_CLOEXEC);
	return fds[1] < 0 ? -errno : 0;
}

struct stub {
	struct plat_as *as;
	struct plat_ctx *ctx;
};

static void start(struct stub *s)
{
	struct regs r = { .rip = CODE, .cs = GUEST_CS, .ss = GUEST_SS, .eflags = 0x202 };
	struct plat_trap trap;

	s->as = plat->as_create();
	assert_false(is_err(s->as));
	plat->as_map(s->as, gaddr(CODE), PAGE_SIZE, PROT_READ | PROT_EXEC, mf, code_off,
		     false);
	s->ctx = plat->ctx_create(s->as);
	assert_false(is_err(s->ctx));
	assert_int_equal(plat->ctx_switch(s->ctx, &r, &trap), PLAT_SYSCALL);
}

static void stop(struct stub *s)
{
	plat->ctx_destroy(s->ctx);
	plat->as_destroy(s->as);
}

/* One real system call at @rip. The signal that stops the thread; 0 when the process is gone. */
static int real_call(struct stub *s, uint64_t rip, uint64_t nr, uint64_t a0, uint64_t a1,
		     struct regs *r)
{
	int st;

	*r = (struct regs){ .rip = rip,
			    .rax = nr,
			    .rdi = a0,
			    .rsi = a1,
			    .rbx = STUB_OPS + STUB_OPS_SIZE - OP_SIZE,
			    .rbp = STUB_OPS + STUB_OPS_SIZE,
			    .r13 = STUB_BASE + RT_STOP,
			    .orig_rax = (uint64_t)-1,
			    .cs = GUEST_CS,
			    .ss = GUEST_SS,
			    .eflags = 0x202 };
	assert_int_equal(pt_ptrace(PTRACE_SETREGS, s->ctx->tid, NULL, r), 0);
	assert_int_equal(pt_ptrace(PTRACE_CONT, s->ctx->tid, NULL, NULL), 0);
	assert_int_equal(waitpid(s->ctx->tid, &st, __WALL), s->ctx->tid);
	if (!WIFSTOPPED(st) || st >> 16 == PTRACE_EVENT_EXIT) {
		if (WIFSTOPPED(st))
			pt_ptrace(PTRACE_CONT, s->ctx->tid, NULL, NULL);
		s->ctx->exiting = true;
		return 0;
	}
	assert_int_equal(pt_ptrace(PTRACE_GETREGS, s->ctx->tid, NULL, r), 0);
	return WSTOPSIG(st);
}

static void test_guest_text(void **state __unused)
{
	static const long allowed[] = { SYS_mmap,  SYS_munmap, SYS_mprotect, SYS_madvise,
					SYS_close, SYS_pause,  SYS_recvmsg,  SYS_getpid };
	struct stub s;
	struct regs r;

	start(&s);
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		assert_int_equal(real_call(&s, CODE, (uint64_t)allowed[i], 0, 0, &r),
				 SIGSYS);
	stop(&s);
}

/* From the one place that may: everything but the list must fail, whatever its number. */
static void test_stub_text(void **state __unused)
{
	struct stub s;
	struct regs r;

	start(&s);
	for (uint64_t nr = 0; nr < 600; nr++) {
		if (nr == SYS_mmap || nr == SYS_munmap || nr == SYS_mprotect ||
		    nr == SYS_madvise || nr == SYS_close || nr == SYS_pause ||
		    nr == SYS_exit || nr == SYS_recvmsg)
			continue;
		/* uretprobe and uprobe: the host's seccomp lets them pass unfiltered (kernel/seccomp.c).
		 * Harmless: outside a trampoline of the kernel's they fail. */
		if (nr == 335 || nr == 336)
			continue;
		assert_int_equal(real_call(&s, rt_syscall, nr, 0, 0, &r), SIGSYS);
	}
	/* the x32 numbers, and clone with anything but the flags of a thread */
	assert_int_equal(real_call(&s, rt_syscall, 0x40000000 | SYS_getpid, 0, 0, &r),
			 SIGSYS);
	assert_int_equal(real_call(&s, rt_syscall, SYS_clone, SIGCHLD, 0, &r), SIGSYS);
	assert_int_equal(real_call(&s, rt_syscall, SYS_clone, STUB_FORK_FLAGS, 0, &r),
			 SIGSYS);
	assert_int_equal(real_call(&s, rt_syscall, SYS_clone,
				   STUB_THREAD_FLAGS | 0x100000000, 0, &r),
			 SIGSYS);
	assert_int_equal(real_call(&s, rt_syscall, SYS_clone,
				   STUB_THREAD_FLAGS | CLONE_NEWUSER, 0, &r),
			 SIGSYS);
	/* the list works, so the test tests something */
	assert_int_equal(real_call(&s, rt_syscall, SYS_close, 40, 0, &r), SIGTRAP);
	assert_int_equal(r.rip, STUB_BASE + RT_STOP + 1);
	stop(&s);
}

static void test_wrong_arch(void **state __unused)
{
	static const unsigned char int80[] = { 0xcd, 0x80, 0xcc };
	uint64_t off, len = PAGE_SIZE;
	struct stub s;
	struct regs r;

	start(&s);
	assert_int_equal(mfile_alloc(mf, PAGE_SIZE, &off), 0);
	memcpy(mfile_ptr(mf, off, &len), int80, sizeof(int80));
	plat->as_map(s.as, gaddr(CODE), PAGE_SIZE, PROT_READ | PROT_EXEC, mf, off, false);
	assert_int_equal(plat->as_flush(s.as, s.ctx), 0);
	assert_int_equal(real_call(&s, CODE, 20, 0, 0, &r), 0);
	stop(&s);
}

/* The operations page can't be made writable, and the zygote's text is gone. */
static void test_stub_memory(void **state __unused)
{
	struct stub s;
	struct regs r = { .rip = CODE, .cs = GUEST_CS, .ss = GUEST_SS, .eflags = 0x202 };
	struct plat_trap trap;
	int st;

	start(&s);
	r.rip = STUB_BASE + STUB_CODE_SIZE;
	assert_int_equal(plat->ctx_switch(s.ctx, &r, &trap), PLAT_FAULT);
	r = (struct regs){ .rip = rt_syscall,
			   .rax = SYS_mprotect,
			   .rdi = STUB_OPS,
			   .rsi = PAGE_SIZE,
			   .rdx = PROT_READ | PROT_WRITE,
			   .orig_rax = (uint64_t)-1,
			   .rbx = 0,
			   .cs = GUEST_CS,
			   .ss = GUEST_SS,
			   .eflags = 0x202 };
	pt_ptrace(PTRACE_SETREGS, s.ctx->tid, NULL, &r);
	pt_ptrace(PTRACE_CONT, s.ctx->tid, NULL, NULL);
	waitpid(s.ctx->tid, &st,
		__WALL); /* fails, and then reads the flags of op 0: SIGSEGV */
	assert_int_equal(WSTOPSIG(st), SIGSEGV);
	pt_ptrace(PTRACE_GETREGS, s.ctx->tid, NULL, &r);
	assert_int_equal((int64_t)r.rax, -EACCES);
	stop(&s);
}

/* A guest that runs stub text itself gets nowhere: its calls are emulated like any others. */
static void test_guest_in_stub_text(void **state __unused)
{
	struct stub s;
	struct regs r = { .rip = STUB_BASE + RT_EXIT, .cs = GUEST_CS, .ss = GUEST_SS };
	struct plat_trap trap;

	start(&s);
	r.eflags = 0x202;
	assert_int_equal(plat->ctx_switch(s.ctx, &r, &trap), PLAT_SYSCALL);
	assert_int_equal(r.orig_rax, SYS_exit);
	r.rip = STUB_BASE + RT_STOP;
	assert_int_equal(plat->ctx_switch(s.ctx, &r, &trap), PLAT_EXCEPTION);
	assert_int_equal(trap.signo, SIGTRAP);
	stop(&s);
}

static int find_rt_syscall(void)
{
	for (const char *p = stub_image + 0x1000 + RT_BATCH; p + 1 < stub_image_end; p++) {
		if (p[0] == 0x0f && p[1] == 0x05) {
			rt_syscall = STUB_BASE + (uint64_t)(p - (stub_image + 0x1000));
			return 0;
		}
	}
	return -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_guest_text),
		cmocka_unit_test(test_stub_text),
		cmocka_unit_test(test_wrong_arch),
		cmocka_unit_test(test_stub_memory),
		cmocka_unit_test(test_guest_in_stub_text),
	};
	struct plat_boot boot = { 0 };
	uint64_t len = PAGE_SIZE;

	log_init(2, LOG_TEXT, LOG_WARN, "test");
	if (platform_spawn_zygote(&boot) || find_rt_syscall())
		return 1;
	plat = &plat_ptrace;
	mfile_set_provider(memfd_provider);
	mf = mfile_create("test");
	if (is_err(mf) || mfile_alloc(mf, PAGE_SIZE, &code_off))
		return 1;
	memcpy(mfile_ptr(mf, code_off, &len), code, sizeof(code));
	if (plat->init(&boot))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
