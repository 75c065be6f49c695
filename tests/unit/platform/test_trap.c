// SPDX-License-Identifier: Apache-2.0
/*
 * What a guest can do to the trap platform when it turns against its own stub: it may write the pages
 * that its stub shares with the sentry, jump anywhere into the stub's text, and make every call that the
 * filter allows, with any arguments. At worst its own process dies. A bystander, another address
 * space that shares memory with it, must go on undisturbed, and so must the test, which plays the sentry.
 *
 * The contract itself is tested by `test_ptrace trap`.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "platform/trap/trap_priv.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/safecopy.h"

#define CODE  0x400000UL
#define DATA  0x500000UL
#define STACK (DATA + 0x800)

__asm__(".pushsection .rodata\n"
	".globl h_begin, h_loop, h_spin, h_store, h_end\n"
	"h_begin:\n"
	"h_loop: mov $39, %eax; syscall; jmp h_loop\n"
	"h_spin: pause; jmp h_spin\n"
	"h_store: rep stosq; jmp h_loop\n"
	"h_end:\n"
	".popsection\n");
extern const char h_begin[], h_loop[], h_spin[], h_store[], h_end[];

static struct mfile *code_mf, *shared_mf;
static uint64_t code_off, shared_off;

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
	return CODE + (uint64_t)(label - h_begin);
}

struct guest {
	struct plat_as *as;
	struct plat_ctx *ctx;
	struct regs r;
	struct plat_trap trap;
	struct mfile *own; /* its private memory, at DATA */
	char *data;
};

static void go(struct guest *g, uint64_t rip)
{
	g->r = (struct regs){ .rip = rip, .rsp = STACK, .cs = GUEST_CS, .ss = GUEST_SS, .eflags = 0x202 };
}

static enum plat_event run(struct guest *g)
{
	return plat->ctx_switch(g->ctx, &g->r, &g->trap);
}

static void start(struct guest *g)
{
	uint64_t off, len = PAGE_SIZE;

	memset(g, 0, sizeof(*g));
	g->as = plat->as_create();
	assert_false(is_err(g->as));
	g->ctx = plat->ctx_create(g->as);
	assert_false(is_err(g->ctx));
	g->own = mfile_create("own");
	assert_false(is_err(g->own));
	assert_int_equal(mfile_alloc(g->own, PAGE_SIZE, &off), 0);
	g->data = mfile_ptr(g->own, off, &len);
	plat->as_map(g->as, gaddr(CODE), PAGE_SIZE, PROT_READ | PROT_EXEC, code_mf, code_off, false);
	plat->as_map(g->as, gaddr(DATA), PAGE_SIZE, PROT_READ | PROT_WRITE, g->own, off, true);
	/* what it shares copy-on-write with others */
	plat->as_map(g->as, gaddr(DATA + PAGE_SIZE), PAGE_SIZE, PROT_READ, shared_mf, shared_off, false);
	go(g, at(h_loop));
	assert_int_equal(run(g), PLAT_SYSCALL);
}

static void stop(struct guest *g)
{
	plat->ctx_destroy(g->ctx);
	plat->as_destroy(g->as);
	mfile_put(g->own);
}

static struct guest bystander;

static void check_bystander(void)
{
	uint64_t len = PAGE_SIZE;
	const uint64_t *p = mfile_cptr(shared_mf, shared_off, &len);

	go(&bystander, at(h_loop));
	bystander.r.r12 = 0x123456789abcdef;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(run(&bystander), PLAT_SYSCALL);
		assert_int_equal(bystander.r.orig_rax, 39);
		assert_int_equal(bystander.r.r12, 0x123456789abcdef);
	}
	for (unsigned i = 0; i < PAGE_SIZE / 8; i++)
		assert_int_equal(p[i], 0x5a5a5a5a);
}

/* ---- calling back whoever hangs ---- */

static struct {
	pthread_mutex_t mu;
	struct plat_ctx *ctx;
} hurry = { .mu = PTHREAD_MUTEX_INITIALIZER };

static void *hurry_main(void *arg)
{
	for (;;) {
		usleep(3000);
		pthread_mutex_lock(&hurry.mu);
		if (hurry.ctx)
			plat->ctx_interrupt(hurry.ctx);
		pthread_mutex_unlock(&hurry.mu);
	}
	return arg;
}

static void set_hurry(struct plat_ctx *ctx)
{
	pthread_mutex_lock(&hurry.mu);
	hurry.ctx = ctx;
	pthread_mutex_unlock(&hurry.mu);
}

/* A few rounds of whatever it does; a fresh guest if it died of it. */
static void let_run(struct guest *g)
{
	enum plat_event ev = PLAT_SYSCALL;

	set_hurry(g->ctx);
	for (int i = 0; i < 3 && ev != PLAT_DEAD; i++)
		ev = run(g);
	set_hurry(NULL);
	if (ev == PLAT_DEAD) {
		stop(g);
		start(g);
	}
}

static void test_every_entry(void **state __unused)
{
	struct guest g;

	start(&g);
	for (uint64_t off = 0; off < 0x680; off++) {
		for (int kind = 0; kind < 2; kind++) {
			go(&g, STUB_BASE + off);
			/* its own context, or its private page in the place of one */
			g.r.r14 = kind ? STUB_CTX : DATA;
			g.r.rbx = g.r.r12 = g.r.rbp = DATA;
			g.r.r13 = at(h_loop);
			g.r.rax = SYS_getpid;
			if (kind)
				g.r.rsp = STUB_CTX + STUB_CTX_SIZE - 0x400;
			let_run(&g);
		}
		/* not too many stray threads that it may have made and that eat the CPU */
		if (off % 8 == 0) {
			stop(&g);
			start(&g);
		}
		if (off % 64 == 0)
			check_bystander();
	}
	check_bystander();
	stop(&g);
}

/* The routine that carries out mapping operations takes a guest's list as well. */
static void hostile_batch(struct guest *g, const struct stub_op *ops, unsigned n)
{
	memcpy(g->data, ops, n * sizeof(*ops));
	go(g, STUB_BASE + RT_BATCH);
	g->r.rbx = DATA;
	g->r.rbp = DATA + n * sizeof(*ops);
	g->r.r13 = at(h_loop);
}

static void test_every_call(void **state __unused)
{
	static const uint32_t nrs[] = { SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_recvmsg,
					SYS_close, SYS_sigaltstack, SYS_rt_sigprocmask, SYS_futex,
					SYS_clone, SYS_rt_sigreturn, SYS_exit };
	static const uint64_t vals[] = { 0, 1, 2, 3, 8, PAGE_SIZE, DATA, DATA + PAGE_SIZE, CODE,
					 STUB_BASE, STUB_DATA, STUB_OPS, STUB_CTX, STUB_CTX_AREA,
					 MAP_SHARED | MAP_FIXED, MADV_REMOVE, MADV_DONTNEED,
					 STUB_THREAD_FLAGS, ~0UL, 1UL << 63 };
	struct guest g;

	srandom(1);
	start(&g);
	for (unsigned i = 0; i < 600; i++) {
		struct stub_op op = { .nr = nrs[i % ARRAY_SIZE(nrs)], .flags = OP_OPTIONAL };

		for (int k = 0; k < 6; k++)
			op.a[k] = vals[(unsigned long)random() % ARRAY_SIZE(vals)];
		if (op.nr == SYS_clone && i % 2)
			op.a[0] = STUB_THREAD_FLAGS;
		hostile_batch(&g, &op, 1);
		let_run(&g);
		if (i % 32 == 0) {
			check_bystander();
			stop(&g);
			start(&g);
		}
	}
	check_bystander();
	stop(&g);
}

/* What isn't listed is a trap like any guest's call, also from the stub's own instruction. */
static void test_other_calls(void **state __unused)
{
	struct guest g;

	start(&g);
	for (uint32_t nr = 0; nr < 600; nr++) {
		struct stub_op op = { .nr = nr, .flags = OP_OPTIONAL };
		enum plat_event ev;

		if (nr == SYS_mmap || nr == SYS_munmap || nr == SYS_mprotect || nr == SYS_madvise ||
		    nr == SYS_recvmsg || nr == SYS_close || nr == SYS_sigaltstack || nr == SYS_futex ||
		    nr == SYS_rt_sigprocmask || nr == SYS_rt_sigreturn || nr == SYS_exit)
			continue;
		if (nr == 335 || nr == 336) /* see test_stub.c */
			continue;
		hostile_batch(&g, &op, 1);
		ev = run(&g);
		assert_int_equal(ev, PLAT_SYSCALL);
		assert_int_equal(g.r.orig_rax, nr);
		assert_true(g.r.rip - STUB_BASE < STUB_RT_SIZE);
	}
	stop(&g);
}

/* Its context page and signal stack, filled with one word after another. */
static void test_forged_pages(void **state __unused)
{
	static const uint64_t words[] = { 0, 1, ~0UL, STUB_CTX, STUB_CTX + 0x3000, DATA, 0x100000001,
					  0x4141414141414141 };
	struct guest g;

	start(&g);
	for (unsigned i = 0; i < ARRAY_SIZE(words); i++) {
		for (uint64_t from = 0; from < STUB_CTX_SIZE; from += 0x200) {
			go(&g, at(h_store));
			g.r.rdi = STUB_CTX + from;
			g.r.rcx = 0x200 / 8;
			g.r.rax = words[i];
			let_run(&g);
		}
		check_bystander();
	}
	stop(&g);
}

/* Blocks the signal that would call it back, and computes. */
static void test_deaf(void **state __unused)
{
	struct guest g;
	struct stub_op op = { .nr = SYS_rt_sigprocmask, .flags = OP_OPTIONAL,
			      .a = { SIG_SETMASK, DATA + 0x400, 0, 8 } };

	start(&g);
	memset(g.data + 0x400, 0xff, 8);
	hostile_batch(&g, &op, 1);
	g.r.r13 = at(h_spin);
	set_hurry(g.ctx);
	assert_int_equal(run(&g), PLAT_DEAD);
	set_hurry(NULL);
	check_bystander();
	stop(&g);
}

static void random_page(struct plat_ctx *ctx, char *area)
{
	struct trap_page *p = ctx->page;

	for (unsigned i = 0; i < STUB_CTX_SIZE / 8; i++) {
		uint64_t v = (uint64_t)random() << 32 | (uint64_t)random();

		memcpy(area + i * 8, &v, 8);
	}
	/* often right enough to get further */
	p->frame = STUB_CTX + ((uint64_t)random() % STUB_CTX_SIZE & ~7UL);
	if (random() % 2) {
		uint64_t at_frame = STUB_CTX_PAGE + ((uint64_t)random() % 0x2000 & ~7UL);
		uint64_t fp = 0x3000 + ((uint64_t)random() % 0x1000 & ~63UL);
		struct trap_frame *f = (void *)(area + at_frame);

		p->frame = STUB_CTX + at_frame;
		f->mc.fpstate = STUB_CTX + fp;
		if (fp + 512 <= STUB_CTX_SIZE) {
			uint32_t magic = 0x46505853, size = (uint32_t)random() % 0x3000;

			memcpy(area + fp + 464, &magic, 4);
			memcpy(area + fp + 480, &size, 4);
		}
	}
}

/* The sentry's side alone, on random pages. */
static void test_random_pages(void **state __unused)
{
	struct plat_as *as = kzalloc(sizeof(*as));
	struct plat_ctx ctx = { .as = as };
	struct fpstate *fp = kzalloc(sizeof(*fp));
	char *area = mmap(NULL, STUB_CTX_SIZE + PAGE_SIZE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct plat_trap trap;
	struct regs r;

	srandom(2);
	mprotect(area + STUB_CTX_SIZE, PAGE_SIZE, PROT_NONE);
	ctx.page = (void *)area;
	for (int i = 0; i < 3000; i++) {
		as->dead = true; /* nobody to kill */
		random_page(&ctx, area);
		if (!page_find_frame(&ctx))
			continue;
		as->dead = false;
		memset(&trap, 0, sizeof(trap));
		(void)page_load_event(&ctx, &r, &trap);
		if (!trap_get_fp(&ctx, fp))
			assert_true(fp->size <= FPSTATE_MAX);
		(void)trap_set_fp(&ctx, fp);
		(void)trap_init_fp(&ctx);
		page_store_regs(&ctx, &r);
	}
	munmap(area, STUB_CTX_SIZE + PAGE_SIZE);
	free(fp);
	free(as);
}

static int setup(void **state __unused)
{
	pthread_t t;

	if (pthread_create(&t, NULL, hurry_main, NULL))
		return -1;
	start(&bystander);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_pages),   cmocka_unit_test(test_other_calls),
		cmocka_unit_test(test_forged_pages),   cmocka_unit_test(test_every_entry),
		cmocka_unit_test(test_every_call),     cmocka_unit_test(test_deaf),
	};
	struct plat_boot boot;
	uint64_t len = PAGE_SIZE;
	uint64_t *p;

	log_init(2, LOG_TEXT, LOG_ERROR, "test");
	if (platform_spawn_zygote(&boot))
		return 1;
	plat = &plat_trap;
	trap_look_ms = 400;
	mfile_set_provider(memfd_provider);
	safecopy_init();
	code_mf = mfile_create("code");
	shared_mf = mfile_create("shared");
	if (mfile_alloc(code_mf, PAGE_SIZE, &code_off) || mfile_alloc(shared_mf, PAGE_SIZE, &shared_off))
		return 1;
	memcpy(mfile_ptr(code_mf, code_off, &len), h_begin, (size_t)(h_end - h_begin));
	p = mfile_ptr(shared_mf, shared_off, &len);
	for (unsigned i = 0; i < PAGE_SIZE / 8; i++)
		p[i] = 0x5a5a5a5a;
	if (plat->init(&boot))
		return 1;
	return cmocka_run_group_tests(tests, setup, NULL);
}
