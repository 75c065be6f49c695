// SPDX-License-Identifier: Apache-2.0
/*
 * The platform contract (platform/platform.h), tested on whatever platform_find() gives for argv[1]
 * (default "ptrace"). The test plays the sentry: it spawns the zygote, runs little pieces of guest
 * code, and looks at what comes back. Prints the cost of a switch at the end.
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "platform/platform.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/safecopy.h"

#define CODE  0x400000UL
#define DATA  0x500000UL
#define STACK 0x7ffe00000000UL

/* Guest code: position independent, copied to CODE. */
__asm__(".pushsection .rodata\n"
	".globl g_begin, g_loop, g_int80, g_touch, g_spin, g_thread, g_fp, g_trap, g_vsys, g_end\n"
	"g_begin:\n"
	"g_loop: mov $39, %eax; syscall; jmp g_loop\n"
	"g_int80: mov $20, %eax; int $0x80; ud2\n"
	"g_touch: movl $0x1234, (%rdi); mov (%rdi), %ebx; mov $1, %eax; syscall; ud2\n"
	"g_spin: pause; jmp g_spin\n"
	"g_thread: lock incl (%rdi); mov $24, %eax; syscall; jmp g_thread\n"
	"g_fp: movq %xmm0, %rdi; mov $2, %eax; syscall; jmp g_fp\n"
	"g_trap: int3; ud2\n"
	"g_vsys: mov $0xffffffffff600400, %rax; xor %edi, %edi; call *%rax; mov $3, %eax; syscall; ud2\n"
	"g_end:\n"
	".popsection\n");
extern const char g_begin[], g_loop[], g_int80[], g_touch[], g_spin[], g_thread[], g_fp[],
	g_trap[], g_vsys[], g_end[];

static struct mfile *mf;
static uint64_t code_off;

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

static uint64_t at(const char *label)
{
	return CODE + (uint64_t)(label - g_begin);
}

struct guest {
	struct plat_as *as;
	struct plat_ctx *ctx;
	struct regs r;
	struct plat_trap trap;
};

static struct plat_as *new_as(void)
{
	struct plat_as *as = plat->as_create();

	assert_false(is_err(as));
	assert_int_equal(plat->as_map(as, gaddr(CODE), PAGE_SIZE, PROT_READ | PROT_EXEC,
				      mf, code_off, false),
			 0);
	return as;
}

static void start(struct guest *g, const char *label)
{
	memset(g, 0, sizeof(*g));
	g->as = new_as();
	g->ctx = plat->ctx_create(g->as);
	assert_false(is_err(g->ctx));
	g->r.rip = at(label);
	g->r.rsp = STACK;
	g->r.cs = GUEST_CS;
	g->r.ss = GUEST_SS;
	g->r.eflags = 0x202;
}

static void stop(struct guest *g)
{
	plat->ctx_destroy(g->ctx);
	plat->as_destroy(g->as);
}

static enum plat_event run(struct guest *g)
{
	return plat->ctx_switch(g->ctx, &g->r, &g->trap);
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

static void test_syscall(void **state __unused)
{
	struct guest g;

	start(&g, g_loop);
	g.r.r12 = 0x1122334455667788;
	g.r.fs_base = 0x7000;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(run(&g), PLAT_SYSCALL);
		assert_int_equal(g.r.orig_rax, 39);
		assert_int_equal(g.r.rip, at(g_loop) + 7);
		assert_int_equal(g.r.r12, 0x1122334455667788);
		assert_int_equal(g.r.fs_base, 0x7000);
		assert_false(g.trap.compat);
		g.r.rax = (uint64_t)-512; /* must reach the guest untouched */
	}
	stop(&g);
}

static void test_int80(void **state __unused)
{
	struct guest g;

	start(&g, g_int80);
	assert_int_equal(run(&g), PLAT_SYSCALL);
	assert_true(g.trap.compat);
	assert_int_equal(run(&g), PLAT_EXCEPTION); /* ud2 */
	assert_int_equal(g.trap.signo, SIGILL);
	g.r.rip = at(g_trap);
	assert_int_equal(run(&g), PLAT_EXCEPTION);
	assert_int_equal(g.trap.signo, SIGTRAP);
	assert_int_equal(g.r.rip, at(g_trap) + 1);
	stop(&g);
}

static void test_fault(void **state __unused)
{
	struct guest g;
	uint64_t off, len = PAGE_SIZE;
	uint32_t *p;

	start(&g, g_touch);
	g.r.rdi = DATA + 8;
	assert_int_equal(run(&g), PLAT_FAULT);
	assert_int_equal(g.trap.signo, SIGSEGV);
	assert_int_equal(g.trap.code, SEGV_MAPERR);
	assert_int_equal(g.trap.addr, DATA + 8);
	assert_int_equal(mfile_alloc(mf, PAGE_SIZE, &off), 0);
	plat->as_map(g.as, gaddr(DATA), PAGE_SIZE, PROT_READ, mf, off, false);
	assert_int_equal(run(&g), PLAT_FAULT);
	assert_int_equal(g.trap.code, SEGV_ACCERR);
	plat->as_map(g.as, gaddr(DATA), PAGE_SIZE, PROT_READ | PROT_WRITE, mf, off, true);
	plat->as_populate(g.as, gaddr(DATA), PAGE_SIZE, true);
	assert_int_equal(run(&g), PLAT_SYSCALL);
	assert_int_equal(g.r.rbx, 0x1234);
	p = mfile_ptr(mf, off + 8, &len);
	assert_int_equal(*p, 0x1234);
	/* taken away again, by a flush in place */
	plat->as_unmap(g.as, gaddr(DATA), PAGE_SIZE);
	assert_int_equal(plat->as_flush(g.as, g.ctx), 0);
	g.r.rip = at(g_touch);
	assert_int_equal(run(&g), PLAT_FAULT);
	/* non-canonical: not a page fault */
	g.r.rdi = 0x8000000000000000;
	assert_int_equal(run(&g), PLAT_EXCEPTION);
	assert_int_equal(g.trap.signo, SIGSEGV);
	g.r.rip = 0x10;
	assert_int_equal(run(&g), PLAT_FAULT);
	assert_int_equal(g.trap.addr, 0x10);
	/* registers that the host refuses */
	g.r.cs = 0x10;
	assert_int_equal(run(&g), PLAT_EXCEPTION);
	stop(&g);
	mfile_range_put(mf, off, PAGE_SIZE);
}

static void test_vsyscall(void **state __unused)
{
	struct guest g;
	uint64_t off;

	start(&g, g_vsys);
	assert_int_equal(mfile_alloc(mf, PAGE_SIZE, &off), 0);
	plat->as_map(g.as, gaddr(STACK - PAGE_SIZE), PAGE_SIZE, PROT_READ | PROT_WRITE,
		     mf, off, true);
	switch (run(&g)) {
	case PLAT_SYSCALL:
		assert_int_equal(g.r.orig_rax, 201); /* time */
		g.r.rax = 42;
		assert_int_equal(run(&g), PLAT_SYSCALL);
		assert_int_equal(g.r.orig_rax, 3);
		break;
	case PLAT_FAULT: /* vsyscall=none */
		break;
	case PLAT_EXCEPTION:
	case PLAT_INTERRUPTED:
	case PLAT_DEAD:
	case PLAT_EVENT_COUNT:
		fail();
	}
	stop(&g);
	mfile_range_put(mf, off, PAGE_SIZE);
}

static void *interrupter(void *arg)
{
	struct guest *g = arg;

	usleep(20000);
	plat->ctx_interrupt(g->ctx);
	return NULL;
}

static void test_interrupt(void **state __unused)
{
	struct guest g;
	pthread_t t;

	start(&g, g_spin);
	for (int i = 0; i < 5; i++) {
		pthread_create(&t, NULL, interrupter, &g);
		assert_int_equal(run(&g), PLAT_INTERRUPTED);
		pthread_join(t, NULL);
		assert_true(g.r.rip >= at(g_spin) && g.r.rip <= at(g_spin) + 2);
	}
	plat->ctx_interrupt(g.ctx); /* before entry */
	plat->ctx_interrupt(g.ctx);
	assert_int_equal(run(&g), PLAT_INTERRUPTED);
	pthread_create(&t, NULL, interrupter, &g);
	assert_int_equal(run(&g), PLAT_INTERRUPTED);
	pthread_join(t, NULL);
	stop(&g);
}

struct thread_arg {
	struct plat_as *as;
	unsigned calls;
	bool spin;
	enum plat_event last;
	struct plat_ctx *_Atomic ctx;
};

static void *thread_main(void *arg)
{
	struct thread_arg *ta = arg;
	struct guest g = { .as = ta->as };

	g.ctx = plat->ctx_create(ta->as);
	if (is_err(g.ctx))
		return arg;
	ta->ctx = g.ctx;
	g.r = (struct regs){ .rip = at(ta->spin ? g_touch : g_thread),
			     .rdi = DATA,
			     .cs = GUEST_CS,
			     .ss = GUEST_SS,
			     .eflags = 0x202 };
	if (ta->spin) {
		/* touch DATA for ever, by a thread that leaves the guest only when it faults */
		do {
			g.r.rip = at(g_touch);
			ta->last = run(&g);
			ta->calls++;
		} while (ta->last == PLAT_SYSCALL);
	} else {
		for (unsigned i = 0; i < ta->calls; i++) {
			ta->last = run(&g);
			if (ta->last != PLAT_SYSCALL)
				break;
		}
	}
	plat->ctx_destroy(g.ctx);
	return NULL;
}

static void test_threads(void **state __unused)
{
	enum {
		N = 4,
		CALLS = 500
	};
	struct thread_arg ta[N];
	pthread_t t[N];
	struct guest g;
	uint64_t off, len = PAGE_SIZE;
	const uint32_t *p;

	start(&g, g_thread);
	assert_int_equal(mfile_alloc(mf, PAGE_SIZE, &off), 0);
	plat->as_map(g.as, gaddr(DATA), PAGE_SIZE, PROT_READ | PROT_WRITE, mf, off, true);
	g.r.rdi = DATA;
	assert_int_equal(run(&g), PLAT_SYSCALL);
	for (int i = 0; i < N; i++) {
		assert_int_equal(plat->ctx_prepare_clone(g.ctx), 0);
		ta[i] = (struct thread_arg){ .as = g.as, .calls = CALLS };
		pthread_create(&t[i], NULL, thread_main, &ta[i]);
	}
	for (int i = 0; i < CALLS; i++)
		assert_int_equal(run(&g), PLAT_SYSCALL);
	for (int i = 0; i < N; i++) {
		void *ret;

		pthread_join(t[i], &ret);
		assert_null(ret);
		assert_int_equal(ta[i].last, PLAT_SYSCALL);
	}
	p = mfile_cptr(mf, off, &len);
	assert_int_equal(*p, N * CALLS + CALLS + 1);
	stop(&g);
	mfile_range_put(mf, off, PAGE_SIZE);
}

/* A foreign flush: nobody may use the old mapping once it has returned. */
static void test_flush_foreign(void **state __unused)
{
	struct thread_arg ta;
	pthread_t t;
	struct guest g;
	uint64_t off;
	void *ret;

	start(&g, g_loop);
	assert_int_equal(mfile_alloc(mf, PAGE_SIZE, &off), 0);
	plat->as_map(g.as, gaddr(DATA), PAGE_SIZE, PROT_READ | PROT_WRITE, mf, off, true);
	assert_int_equal(run(&g), PLAT_SYSCALL);
	assert_int_equal(plat->ctx_prepare_clone(g.ctx), 0);
	ta = (struct thread_arg){ .as = g.as, .spin = true };
	pthread_create(&t, NULL, thread_main, &ta);
	usleep(50000);
	plat->as_unmap(g.as, gaddr(DATA), PAGE_SIZE);
	assert_int_equal(plat->as_flush(g.as, NULL), 0);
	pthread_join(t, &ret);
	assert_int_equal(ta.last, PLAT_FAULT);
	/* and one that really never leaves */
	g.r.rip = at(g_spin);
	for (int i = 0; i < 3; i++) {
		pthread_create(&t, NULL, interrupter, &g);
		plat->as_map(g.as, gaddr(DATA), PAGE_SIZE, PROT_READ, mf, off, false);
		assert_int_equal(run(&g), PLAT_INTERRUPTED);
		pthread_join(t, NULL);
	}
	stop(&g);
	mfile_range_put(mf, off, PAGE_SIZE);
}

static void *spin_run(void *arg)
{
	struct guest *g = arg;
	struct plat_ctx *ctx = plat->ctx_create(g->as);

	g->ctx = ctx;
	g->trap.signo = (int)run(g);
	plat->ctx_destroy(ctx);
	return NULL;
}

static void test_flush_spinner(void **state __unused)
{
	struct guest g = { .as = new_as() };
	pthread_t t;
	uint64_t t0, off, sum = 0;

	assert_int_equal(mfile_alloc(mf, 16 * PAGE_SIZE, &off), 0);
	g.r = (struct regs){
		.rip = at(g_spin), .cs = GUEST_CS, .ss = GUEST_SS, .eflags = 0x202
	};
	pthread_create(&t, NULL, spin_run, &g);
	usleep(50000);
	for (int i = 0; i < 100; i++) {
		plat->as_map(g.as, gaddr(DATA), PAGE_SIZE, PROT_READ, mf, off, false);
		t0 = now_ns();
		assert_int_equal(plat->as_flush(g.as, NULL), 0);
		sum += now_ns() - t0;
		usleep(500); /* back into the guest */
	}
	printf("# foreign flush of a spinning thread: %lu ns\n", sum / 100);
	plat->ctx_interrupt(g.ctx);
	pthread_join(t, NULL);
	assert_int_equal(g.trap.signo, PLAT_INTERRUPTED);
	/* a flush that finds the thread on its way in leaves the work to it */
	assert_true(plat->as_map_seq(g.as) >= 50);
	plat->as_destroy(g.as);
	mfile_range_put(mf, off, 16 * PAGE_SIZE);
}

static void test_fp(void **state __unused)
{
	struct guest g;
	struct fpstate *fp = kzalloc(sizeof(*fp)), *fp2 = kzalloc(sizeof(*fp));
	uint64_t v = 0xfeedface12345678;

	start(&g, g_fp);
	assert_int_equal(plat->ctx_init_fp(g.ctx), 0);
	assert_int_equal(run(&g), PLAT_SYSCALL);
	assert_int_equal(g.r.rdi, 0);
	assert_int_equal(plat->ctx_get_fp(g.ctx, fp), 0);
	assert_int_equal(fp->data[0] | fp->data[1] << 8, 0x37f);
	memcpy(fp->data + 160, &v, sizeof(v));
	fp->data[512] |= 2;
	assert_int_equal(plat->ctx_set_fp(g.ctx, fp), 0);
	assert_int_equal(run(&g), PLAT_SYSCALL);
	assert_true(g.r.rdi == v);
	assert_int_equal(plat->ctx_get_fp(g.ctx, fp2), 0);
	assert_memory_equal(fp->data + 160, fp2->data + 160, 16);
	fp2->data[27] = 0xff; /* reserved bits of MXCSR */
	assert_int_equal(plat->ctx_set_fp(g.ctx, fp2), -EINVAL);
	fp->size = 512;
	v++;
	memcpy(fp->data + 160, &v, sizeof(v));
	assert_int_equal(plat->ctx_set_fp(g.ctx, fp), 0);
	assert_int_equal(run(&g), PLAT_SYSCALL);
	assert_true(g.r.rdi == v);
	plat->ctx_init_fp(g.ctx);
	assert_int_equal(run(&g), PLAT_SYSCALL);
	assert_int_equal(g.r.rdi, 0);
	stop(&g);
	free(fp);
	free(fp2);
}

static void test_killed(void **state __unused)
{
	struct guest g;
	pthread_t t;

	start(&g, g_loop);
	assert_int_equal(run(&g), PLAT_SYSCALL);
	kill(plat->as_host_pid(g.as), SIGKILL);
	assert_int_equal(run(&g), PLAT_DEAD);
	assert_int_equal(run(&g), PLAT_DEAD);
	stop(&g);

	/* a leader that has other threads, which nobody has waited for */
	start(&g, g_loop);
	assert_int_equal(run(&g), PLAT_SYSCALL);
	assert_int_equal(plat->ctx_prepare_clone(g.ctx), 0);
	{
		struct thread_arg ta = { .as = g.as, .calls = 1 << 30 };

		pthread_create(&t, NULL, thread_main, &ta);
		usleep(20000);
		kill(plat->as_host_pid(g.as), SIGKILL);
		assert_int_equal(run(&g), PLAT_DEAD);
		pthread_join(t, NULL);
	}
	stop(&g);
}

/* More files than the stub keeps descriptors of. */
static void test_many_files(void **state __unused)
{
	enum {
		N = 40
	};
	struct mfile *f[N];
	uint64_t off[N];
	struct guest g;

	start(&g, g_touch);
	for (int i = 0; i < N; i++) {
		uint64_t len = PAGE_SIZE;
		uint32_t *p;

		f[i] = mfile_create("many");
		assert_false(is_err(f[i]));
		assert_int_equal(mfile_alloc(f[i], PAGE_SIZE, &off[i]), 0);
		p = mfile_ptr(f[i], off[i], &len);
		*p = (uint32_t)i;
	}
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < N; i++)
			plat->as_map(g.as, gaddr(DATA + (uint64_t)i * PAGE_SIZE),
				     PAGE_SIZE, PROT_READ | PROT_WRITE, f[i], off[i],
				     true);
		for (int i = 0; i < N; i++) {
			g.r.rip = at(g_touch);
			g.r.rdi = DATA + (uint64_t)i * PAGE_SIZE;
			assert_int_equal(run(&g), PLAT_SYSCALL);
		}
	}
	stop(&g);
	for (int i = 0; i < N; i++)
		mfile_put(f[i]);
}

static int count_children(void)
{
	char path[64], buf[65536];
	int fd, n = 0;
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	fd = open(path, O_RDONLY);
	len = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	for (ssize_t i = 0; i < len; i++)
		n += buf[i] == ' ';
	return n;
}

static void test_churn(void **state __unused)
{
	enum {
		N = 200
	};
	uint64_t t0 = now_ns();
	struct guest g;

	for (int i = 0; i < N; i++) {
		start(&g, g_loop);
		assert_int_equal(run(&g), PLAT_SYSCALL);
		stop(&g);
	}
	printf("# create, one call, destroy: %lu us\n", (now_ns() - t0) / N / 1000);
	usleep(200000);
	/* the zygote and the spares; no zombies */

	assert_true(count_children() <= 6);
}

static void test_speed(void **state __unused)
{
	enum {
		N = 20000
	};
	struct guest g;
	uint64_t t0, off;

	start(&g, g_loop);
	assert_int_equal(mfile_alloc(mf, PAGE_SIZE, &off), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(run(&g), PLAT_SYSCALL);
	t0 = now_ns();
	for (int i = 0; i < N; i++) {
		if (run(&g) != PLAT_SYSCALL)
			fail();
		g.r.rax = 1;
	}
	printf("# switch (getpid): %lu ns\n", (now_ns() - t0) / N);
	t0 = now_ns();
	for (int i = 0; i < 1000; i++) {
		plat->as_map(g.as, gaddr(DATA), PAGE_SIZE, PROT_READ, mf, off, false);
		if (run(&g) != PLAT_SYSCALL)
			fail();
	}
	printf("# switch with one mapping: %lu ns\n", (now_ns() - t0) / 1000);
	printf("# guest cpu: %lu us\n", plat->ctx_cpu_ns(g.ctx) / 1000);
	stop(&g);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_syscall),
		cmocka_unit_test(test_int80),
		cmocka_unit_test(test_fault),
		cmocka_unit_test(test_vsyscall),
		cmocka_unit_test(test_interrupt),
		cmocka_unit_test(test_fp),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_flush_foreign),
		cmocka_unit_test(test_flush_spinner),
		cmocka_unit_test(test_many_files),
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_churn),
		cmocka_unit_test(test_speed),
	};
	struct plat_boot boot = { 0 };
	uint64_t len = PAGE_SIZE;

	log_init(2, LOG_TEXT, LOG_DEBUG, "test");
	if (platform_spawn_zygote(&boot))
		return 1;
	plat = platform_find(argc > 1 ? argv[1] : "ptrace");
	if (!plat)
		return 1;
	mfile_set_provider(memfd_provider);
	safecopy_init();
	mf = mfile_create("test");
	if (is_err(mf) || mfile_alloc(mf, PAGE_SIZE, &code_off))
		return 1;
	memcpy(mfile_ptr(mf, code_off, &len), g_begin, (size_t)(g_end - g_begin));
	if (plat->init(&boot))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
