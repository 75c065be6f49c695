// SPDX-License-Identifier: Apache-2.0
/*
 * What a guest can do to the trap platform when it turns against its own stub: it may write the pages
 * that its stub shares with the sentry, jump anywhere into the stub's text, and make every call that the
 * filter allows, with any arguments. At worst its own process dies. A bystander, another address
 * space that shares memory with it, must go on undisturbed, and so must the test, which plays the sentry.
 *
 * The contract itself is tested by `test_ptrace trap`.
 */
#include <elf.h>
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
#define LOOT  0x600000UL

#define LOOK_MS 400 /* for stubs that are to answer */

#define SECRET 0x5ec7e75ec7e7UL

__asm__(".pushsection .rodata\n"
	".globl h_begin, h_loop, h_spin, h_store, h_load, h_jump, h_end\n"
	"h_begin:\n"
	"h_loop: mov $39, %eax; syscall; jmp h_loop\n"
	"h_spin: pause; jmp h_spin\n"
	"h_store: rep stosq; jmp h_loop\n"
	"h_load: mov (%rdi), %rdx; jmp h_loop\n"
	"h_jump: jmp *%r13\n"
	"h_end:\n"
	".popsection\n");
extern const char h_begin[], h_loop[], h_spin[], h_store[], h_load[], h_jump[], h_end[];
extern const char stub_image[];

static struct mfile *code_mf, *shared_mf;
static uint64_t code_off, shared_off, secret_off;

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

/* Text of the stub's image: its first segment is at a multiple of the page size in the file. */
static const unsigned char *stub_text(void)
{
	const Elf64_Ehdr *h = (const void *)stub_image;
	const Elf64_Phdr *ph = (const void *)(stub_image + h->e_phoff);

	assert_int_equal(ph->p_vaddr, STUB_BASE);
	return (const unsigned char *)stub_image + ph->p_offset;
}

/* Not in the middle of what the assembler filled up. */
static bool is_text(uint64_t off)
{
	const unsigned char *t = stub_text();

	return !off || t[off] != 0xcc || t[off - 1] != 0xcc;
}

static void test_every_entry(void **state __unused)
{
	struct guest g;

	trap_look_ms = 100;
	start(&g);
	for (uint64_t off = 0; off < STUB_CODE_SIZE; off++) {
		if (!is_text(off))
			continue;
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
	trap_look_ms = LOOK_MS;
	check_bystander();
	stop(&g);
}

/* Where in the run-time text a system call is followed by ud2: a guest that jumps there makes any call it
 * likes, and is back by an exception. */
static uint64_t a_syscall(void)
{
	static const unsigned char insns[] = { 0x0f, 0x05, 0x0f, 0x0b };
	const unsigned char *text = stub_text();
	const unsigned char *insn = memmem(text, STUB_RT_SIZE, insns, sizeof(insns));

	assert_non_null(insn);
	return STUB_BASE + (uint64_t)(insn - text);
}

static void hostile_call(struct guest *g, uint32_t nr, const uint64_t a[6])
{
	go(g, a_syscall());
	g->r.rax = nr;
	g->r.rdi = a[0];
	g->r.rsi = a[1];
	g->r.rdx = a[2];
	g->r.r10 = a[3];
	g->r.r8 = a[4];
	g->r.r9 = a[5];
}

static void test_every_call(void **state __unused)
{
	static const uint32_t nrs[] = { SYS_sigaltstack, SYS_rt_sigprocmask, SYS_futex, SYS_clone,
					SYS_rt_sigreturn };
	static const uint64_t vals[] = { 0, 1, 2, 3, 8, PAGE_SIZE, DATA, DATA + PAGE_SIZE, CODE,
					 STUB_BASE, STUB_DATA, STUB_OPS, STUB_CTL, STUB_CTX,
					 STUB_CTX_AREA, STUB_TRAP_FLAGS, ~0UL, 1UL << 63 };
	struct guest g;

	srandom(1);
	start(&g);
	for (unsigned i = 0; i < 600; i++) {
		uint32_t nr = i % 100 ? nrs[i % ARRAY_SIZE(nrs)] : SYS_exit; /* takes a while */
		uint64_t a[6];

		for (int k = 0; k < 6; k++)
			a[k] = vals[(unsigned long)random() % ARRAY_SIZE(vals)];
		if (nr == SYS_clone && random() % 2)
			a[0] = STUB_TRAP_FLAGS;
		hostile_call(&g, nr, a);
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

static bool guests_may(uint32_t nr)
{
	return nr == SYS_sigaltstack || nr == SYS_futex || nr == SYS_rt_sigprocmask ||
	       nr == SYS_rt_sigreturn || nr == SYS_exit;
}

/* What isn't listed is a trap like any guest's call, also from the stub's own instruction. */
static void test_other_calls(void **state __unused)
{
	struct guest g;

	start(&g);
	for (uint32_t nr = 0; nr < 600; nr++) {
		const uint64_t a[6] = { 0 };

		if (guests_may(nr) || nr == 335 || nr == 336) /* see test_stub.c */
			continue;
		hostile_call(&g, nr, a);
		assert_int_equal(run(&g), PLAT_SYSCALL);
		assert_int_equal(g.r.orig_rax, nr);
		assert_true(g.r.rip - STUB_BASE < STUB_RT_SIZE);
	}
	stop(&g);
}

/* Nor is a clone with any other flags than those of a thread. */
static void test_clone_flags(void **state __unused)
{
	struct guest g;

	start(&g);
	for (unsigned bit = 0; bit < 64; bit++) {
		const uint64_t a[6] = { STUB_TRAP_FLAGS ^ 1UL << bit };

		hostile_call(&g, SYS_clone, a);
		assert_int_equal(run(&g), PLAT_SYSCALL);
		assert_int_equal(g.r.orig_rax, SYS_clone);
	}
	stop(&g);
}

/* ---- the mapper ---- */

/* All calls of the mapper's, made from its text by a guest thread. */
static void test_mappers_calls(void **state __unused)
{
	struct guest g;

	start(&g);
	for (uint32_t nr = 0; nr < 600; nr++) {
		struct stub_op op = { .nr = nr, .flags = OP_OPTIONAL };

		if (nr == 335 || nr == 336)
			continue;
		memcpy(g.data, &op, sizeof(op));
		go(&g, STUB_BASE + RT_BATCH);
		g.r.rbx = DATA;
		g.r.rbp = DATA + sizeof(op);
		g.r.r13 = at(h_loop);
		assert_int_equal(run(&g), PLAT_SYSCALL);
		assert_int_equal(g.r.orig_rax, nr);
		assert_true(g.r.rip - STUB_MAPPER < STUB_RT_SIZE);
	}
	stop(&g);
}

/*
 * A page of a file of which the guest has another page mapped copy-on-write: the memory of the process that it
 * was forked from. It tries every descriptor that its stub may have.
 */
static void test_parents_memory(void **state __unused)
{
	struct stub_op ops[STUB_MAPFDS + 3];
	struct guest g;

	start(&g);
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++)
		ops[i] = (struct stub_op){ SYS_mmap,
					   OP_OPTIONAL,
					   { LOOT + i * PAGE_SIZE, PAGE_SIZE, PROT_READ,
					     MAP_SHARED | MAP_FIXED, i, secret_off },
					   0 };
	memcpy(g.data, ops, sizeof(ops));
	go(&g, STUB_BASE + RT_BATCH);
	g.r.rbx = DATA;
	g.r.rbp = DATA + sizeof(ops);
	g.r.r13 = at(h_loop);
	/* as far as it gets */
	for (unsigned i = 0; i < ARRAY_SIZE(ops) && run(&g) == PLAT_SYSCALL && g.r.orig_rax != 39; i++)
		;
	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++) {
		go(&g, at(h_load));
		g.r.rdi = LOOT + i * PAGE_SIZE;
		assert_int_equal(run(&g), PLAT_FAULT);
		assert_int_not_equal(g.r.rdx, SECRET);
	}
	stop(&g);
}

#define FILES (STUB_MAPFDS + 5)

/* More files than the stub keeps descriptors of, mapped over and over, with the right contents. */
static void map_many(struct guest *g, unsigned rounds)
{
	struct mfile *mf[FILES];
	uint64_t off[FILES], len = PAGE_SIZE;

	for (unsigned i = 0; i < FILES; i++) {
		mf[i] = mfile_create("many");
		assert_int_equal(mfile_alloc(mf[i], PAGE_SIZE, &off[i]), 0);
		*(uint64_t *)mfile_ptr(mf[i], off[i], &len) = 1000 + i;
	}
	for (unsigned n = 0; n < rounds * FILES; n++) {
		unsigned i = n % FILES;

		plat->as_map(g->as, gaddr(LOOT), PAGE_SIZE, PROT_READ, mf[i], off[i], i % 2);
		if (n % 3 == 0)
			assert_int_equal(plat->as_flush(g->as, NULL), 0);
		go(g, at(h_load));
		g->r.rdi = LOOT;
		assert_int_equal(run(g), PLAT_SYSCALL);
		assert_int_equal(g->r.rdx, 1000 + i);
	}
	for (unsigned i = 0; i < FILES; i++)
		mfile_put(mf[i]);
}

struct rogue {
	struct guest *g;
	_Atomic bool ready, end;
	uint64_t call[4]; /* rax, rdi, rsi, rdx */
};

/* A second guest thread of the same process, that does the same thing again and again. */
static void *rogue_main(void *arg)
{
	struct rogue *r = arg;
	struct guest me = *r->g;

	me.ctx = plat->ctx_create(me.as);
	assert_false(is_err(me.ctx));
	atomic_store(&r->ready, true);
	while (!atomic_load(&r->end)) {
		if (r->call[0] == ~0UL) {
			go(&me, at(h_store)); /* scribble */
			me.r.rdi = STUB_DATA;
			me.r.rcx = STUB_CMSG_SIZE / 8;
			me.r.rax = 0x4141414141414141;
		} else {
			go(&me, a_syscall());
			me.r.rax = r->call[0];
			me.r.rdi = r->call[1];
			me.r.rsi = r->call[2];
			me.r.rdx = r->call[3];
		}
		set_hurry(me.ctx);
		(void)run(&me);
		set_hurry(NULL);
	}
	plat->ctx_destroy(me.ctx);
	return NULL;
}

/* A thread beside it wakes the mapper, sleeps in its place, or scribbles over what recvmsg writes. */
static void test_mapper_undisturbed(void **state __unused)
{
	static const uint64_t calls[][4] = { { SYS_futex, STUB_CTL, 1, INT32_MAX },
					     { SYS_futex, STUB_CTL, 0, 5 },
					     { ~0UL } };
	struct guest g;
	pthread_t t;

	for (unsigned i = 0; i < ARRAY_SIZE(calls); i++) {
		struct rogue r = { .g = &g };

		start(&g);
		map_many(&g, 1);
		memcpy(r.call, calls[i], sizeof(r.call));
		assert_int_equal(plat->ctx_prepare_clone(g.ctx), 0);
		assert_int_equal(pthread_create(&t, NULL, rogue_main, &r), 0);
		while (!atomic_load(&r.ready))
			usleep(100);
		map_many(&g, 20);
		atomic_store(&r.end, true);
		pthread_join(t, NULL);
		stop(&g);
	}
	check_bystander();
}

/* ---- two threads on one page ---- */

static struct {
	struct guest *g;
	_Atomic bool ready;
	unsigned kind;
} second;

static void second_goes(struct guest *me, unsigned i)
{
	switch (second.kind) {
	case 0: /* the handler, on the signal stack of the first thread */
		go(me, STUB_BASE + RT_TRAP_HANDLER);
		me->r.rsp = STUB_CTX + STUB_CTX_SIZE - 0x1000;
		break;
	case 1: /* the turn of the first thread, any value */
		go(me, at(h_store));
		me->r.rdi = STUB_CTX + TC_TURN;
		me->r.rcx = 1;
		me->r.rax = i % 4;
		break;
	case 2: /* what it waits for, as if it had been answered */
		go(me, at(h_store));
		me->r.rdi = STUB_CTX + TC_CMD;
		me->r.rcx = 1;
		me->r.rax = i % 4;
		break;
	case 3: /* its signal frame */
		go(me, at(h_store));
		me->r.rdi = STUB_CTX + STUB_CTX_SIZE - 0x1000;
		me->r.rcx = 0x1000 / 8;
		me->r.rax = STUB_CTX;
		break;
	}
}

static void *second_main(void *arg)
{
	struct guest me = *second.g;
	enum plat_event ev = PLAT_SYSCALL;

	me.ctx = plat->ctx_create(me.as);
	assert_false(is_err(me.ctx));
	atomic_store(&second.ready, true);
	for (unsigned i = 0; ev != PLAT_DEAD; i++) {
		second_goes(&me, i);
		ev = run(&me);
	}
	plat->ctx_destroy(me.ctx);
	return arg;
}

/* Whatever comes of it, the process ends when it is told to, and nobody else notices. */
static void test_two_in_one_page(void **state __unused)
{
	struct guest g;
	pthread_t t;

	for (second.kind = 0; second.kind < 4; second.kind++) {
		enum plat_event ev = PLAT_SYSCALL;

		start(&g);
		second.g = &g;
		atomic_store(&second.ready, false);
		assert_int_equal(plat->ctx_prepare_clone(g.ctx), 0);
		assert_int_equal(pthread_create(&t, NULL, second_main, NULL), 0);
		while (!atomic_load(&second.ready))
			usleep(100);
		/* One may take the other's wake-up: then the turn is only seen at the next look. */
		trap_look_ms = 50;
		set_hurry(g.ctx);
		for (unsigned i = 0; i < 40 && ev != PLAT_DEAD; i++) {
			go(&g, at(h_loop));
			ev = run(&g);
		}
		set_hurry(NULL);
		trap_look_ms = LOOK_MS;
		as_kill(g.as);
		pthread_join(t, NULL);
		stop(&g);
		check_bystander();
	}
}

/* Nothing of the stub's can be written that the mapper reads. */
static void test_mapper_memory(void **state __unused)
{
	static const uint64_t pages[] = { STUB_BASE, STUB_MAPPER, STUB_OPS, STUB_OPS + PAGE_SIZE };
	struct guest g;

	start(&g);
	for (unsigned i = 0; i < ARRAY_SIZE(pages); i++) {
		go(&g, at(h_store));
		g.r.rdi = pages[i];
		g.r.rcx = 1;
		assert_int_equal(run(&g), PLAT_FAULT);
		assert_true(g.trap.write);
		assert_int_equal(g.trap.addr, pages[i]);
	}
	/* the zygote's text is gone */
	go(&g, at(h_load));
	g.r.rdi = STUB_BASE + STUB_CODE_SIZE;
	assert_int_equal(run(&g), PLAT_FAULT);
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

/* A signal frame of its own making, at DATA: it goes on spinning with all signals blocked. */
static void deaf_frame(struct guest *g)
{
	struct trap_frame *f = (void *)g->data;

	memset(f, 0, sizeof(*f));
	f->mc.rip = at(h_spin);
	f->mc.rsp = STACK;
	f->mc.cs = GUEST_CS;
	f->mc.ss = GUEST_SS;
	f->mc.eflags = 0x202;
	f->sigmask = ~0UL;
	go(g, a_syscall());
	g->r.rax = SYS_rt_sigreturn;
	g->r.rsp = DATA + 8; /* as after the handler's ret */
}

/* Until it is killed. An interruption may come before it is deaf. */
static void run_deaf(struct guest *g)
{
	enum plat_event ev;

	set_hurry(g->ctx);
	do {
		deaf_frame(g);
		ev = run(g);
	} while (ev == PLAT_INTERRUPTED);
	set_hurry(NULL);
	assert_int_equal(ev, PLAT_DEAD);
}

/* Blocks the signal that would call it back, and computes. */
static void test_deaf(void **state __unused)
{
	struct guest g;

	start(&g);
	run_deaf(&g);
	check_bystander();
	stop(&g);
}

/* Where the shim wakes the sentry by the page that %gs leads to; then it goes on as that page says. */
static uint64_t shim_wakes(void)
{
	static const unsigned char insns[] = { 0xb8, 0xca, 0, 0, 0, 0xf3, 0x48, 0x0f, 0xae, 0xcf, 0xbe, 1 };
	const unsigned char *text = stub_text();
	const unsigned char *insn = memmem(text, STUB_RT_SIZE, insns, sizeof(insns));

	assert_non_null(insn);
	return STUB_BASE + (uint64_t)(insn - text);
}

static void *noisy_main(void *arg)
{
	struct rogue *r = arg;
	struct guest me = *r->g;

	me.ctx = plat->ctx_create(me.as);
	assert_false(is_err(me.ctx));
	go(&me, at(h_jump));
	me.r.r13 = shim_wakes();
	me.r.gs_base = STUB_CTX;
	atomic_store(&r->ready, true);
	while (run(&me) != PLAT_DEAD)
		;
	plat->ctx_destroy(me.ctx);
	return NULL;
}

/* The same, while a thread beside it wakes whoever waits for it without end. */
static void test_deaf_and_noisy(void **state __unused)
{
	struct guest g;
	struct rogue r = { .g = &g };
	pthread_t t;

	start(&g);
	assert_int_equal(plat->ctx_prepare_clone(g.ctx), 0);
	g.ctx->page->out.rip = at(h_jump);
	g.ctx->page->out.flags = 0x202;
	assert_int_equal(pthread_create(&t, NULL, noisy_main, &r), 0);
	while (!atomic_load(&r.ready))
		usleep(100);
	run_deaf(&g);
	pthread_join(t, NULL);
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
		cmocka_unit_test(test_every_call),     cmocka_unit_test(test_mappers_calls),
		cmocka_unit_test(test_parents_memory), cmocka_unit_test(test_mapper_undisturbed),
		cmocka_unit_test(test_mapper_memory),  cmocka_unit_test(test_two_in_one_page),
		cmocka_unit_test(test_deaf),           cmocka_unit_test(test_deaf_and_noisy),
		cmocka_unit_test(test_clone_flags),
	};
	struct plat_boot boot = { 0 };
	uint64_t len = PAGE_SIZE;
	uint64_t *p;

	log_init(2, LOG_TEXT, LOG_ERROR, "test");
	if (platform_spawn_zygote(&boot))
		return 1;
	plat = &plat_trap;
	trap_look_ms = LOOK_MS;
	mfile_set_provider(memfd_provider);
	safecopy_init();
	code_mf = mfile_create("code");
	shared_mf = mfile_create("shared");
	if (mfile_alloc(code_mf, PAGE_SIZE, &code_off) || mfile_alloc(shared_mf, PAGE_SIZE, &shared_off) ||
	    mfile_alloc(shared_mf, PAGE_SIZE, &secret_off))
		return 1;
	memcpy(mfile_ptr(code_mf, code_off, &len), h_begin, (size_t)(h_end - h_begin));
	p = mfile_ptr(shared_mf, shared_off, &len);
	for (unsigned i = 0; i < PAGE_SIZE / 8; i++)
		p[i] = 0x5a5a5a5a;
	*(uint64_t *)mfile_ptr(shared_mf, secret_off, &len) = SECRET;
	if (plat->init(&boot))
		return 1;
	return cmocka_run_group_tests(tests, setup, NULL);
}
