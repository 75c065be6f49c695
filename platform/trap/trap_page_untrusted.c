// SPDX-License-Identifier: Apache-2.0
/*
 * The page that a guest thread's host thread shares with us, and the signal frame behind it.
 *
 * The turn is a word that says who may act. Each side writes the other's turn, and wakes it if it says
 * that it sleeps; each side announces its sleep and then looks at the turn once more:
 *
 *   passing                      waiting
 *   turn = theirs   (xchg)       waits = 1   (xchg)
 *   read waits                   read turn, sleep while it isn't ours (futex)
 *
 * A hostile stub can change any of it at any time. Then we see a hand-over that its guest could have
 * made by a trap, wake a futex that nobody waits for, or wait for ever, which is as if the guest
 * computed for ever: interrupts that are not answered end with SIGKILL (sleep_turn).
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/stats.h"
#include "platform/trap/trap_sites.h"

#define LOOKS 3 /* so many after it was called, or for stub text, and it is hostile */

#define PF_WRITE 2U
#define PF_EXEC  16U
#define TRAPNO_PF 14U

unsigned trap_look_ms = 10000;

static long futex(_Atomic uint32_t *word, int op, uint32_t val, const struct timespec *ts)
{
	return HOST(FUTEX, syscall(SYS_futex, word, op, val, ts, NULL, 0));
}

void page_wake(struct trap_page *p)
{
	atomic_store(&p->turn, TURN_SENTRY);
	(void)futex(&p->turn, FUTEX_WAKE, 1, NULL);
}

static void pass_turn(struct plat_ctx *ctx, uint32_t cmd)
{
	struct trap_page *p = ctx->page;

	if (READ_ONCE(p->cmd) != cmd) /* a line that isn't written isn't fetched */
		WRITE_ONCE(p->cmd, cmd);
	(void)atomic_exchange(&p->turn, TURN_STUB);
	if (atomic_load(&p->stub_waits))
		(void)futex(&p->turn, FUTEX_WAKE, 1, NULL);
}

void page_exit(struct plat_ctx *ctx)
{
	pass_turn(ctx, CMD_EXIT);
}

/* The host hands the turn over once more when the thread is gone. */
bool page_reuse(struct trap_page *p)
{
	if (atomic_load(&p->turn) != TURN_GONE)
		return false;
	page_fresh(p);
	return true;
}

void page_fresh(struct trap_page *p)
{
	atomic_store(&p->stub_waits, 0);
	atomic_store(&p->sentry_waits, 0);
	atomic_store(&p->turn, TURN_STUB);
}

static bool my_turn(struct trap_page *p)
{
	return atomic_load_explicit(&p->turn, memory_order_acquire) != TURN_STUB;
}

/*
 * Sleeps until the turn is ours or the process is dead. A thread that we wait for here is one that has a
 * CPU or wants one, so looking at it now and then doesn't cost an idle sandbox anything. Looks are
 * counted by the clock: a hostile guest can wake us as often as it likes. But each counts as one, however long
 * it was, since we may have been stopped together with the stub.
 */
static bool sleep_turn(struct plat_ctx *ctx, bool bounded)
{
	const struct timespec look = { .tv_sec = trap_look_ms / 1000,
				       .tv_nsec = (long)(trap_look_ms % 1000) * 1000000 };
	struct trap_page *p = ctx->page;
	uint64_t now, last = mono_ns();
	unsigned looks = 0;

	(void)atomic_exchange(&p->sentry_waits, 1);
	while (!my_turn(p) && !atomic_load(&ctx->as->dead)) {
		if (!futex(&p->turn, FUTEX_WAIT, TURN_STUB, &look) && my_turn(p))
			break;
		now = mono_ns();
		if (!bounded && !(atomic_load(&ctx->state) & CTX_KICKED)) {
			looks = 0;
			last = now;
		} else if (now - last >= trap_look_ms * 1000000ULL) {
			last = now;
			if (++looks == LOOKS) {
				log_warn("stub %d doesn't answer: killed", ctx->as->stub.pid);
				as_kill(ctx->as);
			}
		}
	}
	atomic_store_explicit(&p->sentry_waits, 0, memory_order_relaxed);
	return !atomic_load(&ctx->as->dead);
}

bool page_wait(struct plat_ctx *ctx, bool bounded)
{
	struct trap_page *p = ctx->page;

	for (unsigned i = ctx->spin; i && !my_turn(p); i--)
		__builtin_ia32_pause();
	if (ctx->spin)
		stat_inc(my_turn(p) ? STAT_SPIN_HIT : STAT_SPIN_MISS);
	if (!my_turn(p) && !sleep_turn(ctx, bounded))
		return false;
	/* Threads don't end by themselves; and the process would live on with its mapper. */
	if (unlikely(atomic_load(&p->turn) == TURN_GONE))
		as_kill(ctx->as);
	return !atomic_load(&ctx->as->dead);
}

bool page_call(struct plat_ctx *ctx, uint32_t cmd, bool bounded)
{
	pass_turn(ctx, cmd);
	/* A kick before that, at a thread in the shim, looked as if it were for the stay before. */
	if (unlikely(atomic_load(&ctx->state) & CTX_KICKED))
		ctx_send_kick(ctx);
	return page_wait(ctx, bounded);
}

bool page_find_frame(struct plat_ctx *ctx)
{
	uint64_t ctx_va = STUB_CTX + (uint64_t)ctx->slot * STUB_CTX_SIZE;
	uint64_t off = READ_ONCE(ctx->page->frame) - ctx_va;

	if (off < STUB_CTX_PAGE || off > STUB_CTX_SIZE - sizeof(struct trap_frame) || off % 8) {
		log_warn("stub %d: no signal frame: killed", ctx->as->stub.pid);
		as_kill(ctx->as);
		return false;
	}
	ctx->frame = (char *)ctx->page + off;
	return true;
}

/* ---- registers ---- */

void page_store_regs(struct plat_ctx *ctx, const struct regs *r)
{
	struct frame_mc *mc = &((struct trap_frame *)(void *)ctx->frame)->mc;
	struct trap_page *p = ctx->page;
	uint64_t gs = shim_gs(ctx, r->gs_base);
	bool bases = READ_ONCE(p->fs_base) != r->fs_base || READ_ONCE(p->gs_base) != gs;

	mc->r8 = r->r8;
	mc->r9 = r->r9;
	mc->r10 = r->r10;
	mc->r11 = r->r11;
	mc->r12 = r->r12;
	mc->r13 = r->r13;
	mc->r14 = r->r14;
	mc->r15 = r->r15;
	mc->rdi = r->rdi;
	mc->rsi = r->rsi;
	mc->rbp = r->rbp;
	mc->rbx = r->rbx;
	mc->rdx = r->rdx;
	mc->rax = r->rax;
	mc->rcx = r->rcx;
	mc->rsp = r->rsp;
	mc->rip = sites_resume(ctx->as, r->rip);
	mc->eflags = r->eflags;
	mc->cs = (uint16_t)r->cs;
	mc->ss = (uint16_t)r->ss;
	p->set_bases = bases;
	if (bases) {
		p->fs_base = r->fs_base;
		p->gs_base = gs;
	}
	ctx->shim_sent = false;
}

static void load_regs(const struct plat_ctx *ctx, const struct frame_mc *mc, struct regs *r)
{
	const struct trap_page *p = ctx->page;

	r->r8 = mc->r8;
	r->r9 = mc->r9;
	r->r10 = mc->r10;
	r->r11 = mc->r11;
	r->r12 = mc->r12;
	r->r13 = mc->r13;
	r->r14 = mc->r14;
	r->r15 = mc->r15;
	r->rdi = mc->rdi;
	r->rsi = mc->rsi;
	r->rbp = mc->rbp;
	r->rbx = mc->rbx;
	r->rdx = mc->rdx;
	r->rax = mc->rax;
	r->rcx = mc->rcx;
	r->rsp = mc->rsp;
	r->rip = mc->rip;
	r->eflags = mc->eflags;
	r->cs = mc->cs;
	r->ss = mc->ss;
	r->fs_base = READ_ONCE(p->fs_base);
	r->gs_base = shim_guest_gs(ctx, READ_ONCE(p->gs_base));
	r->orig_rax = (uint64_t)-1;
}

/* The number is in siginfo: rax may have been changed by the host, if it looked like a restart code. */
static enum plat_event on_call(const siginfo_t *si, struct regs *r, struct plat_trap *trap)
{
	stat_inc(STAT_CALL_TRAPPED);
	r->orig_rax = (uint64_t)(int64_t)si->si_syscall;
	trap->compat = si->si_arch != AUDIT_ARCH_X86_64;
	return PLAT_SYSCALL;
}

enum plat_event page_load_event(struct plat_ctx *ctx, struct regs *r, struct plat_trap *trap)
{
	const struct trap_frame *shared = (const void *)ctx->frame;
	struct frame_mc mc;
	siginfo_t si;
	enum plat_event ev;

	memcpy(&mc, &shared->mc, sizeof(mc));
	memcpy(&si, &shared->info, 32); /* up to the last field that is used */
	__asm__ volatile("" : : : "memory"); /* from here on the copies */
	load_regs(ctx, &mc, r);
	if (likely(si.si_signo == SIGSYS && si.si_code > 0))
		return shim_fix_event(ctx, r, trap, on_call(&si, r, trap));
	ev = host_signal_event(&si, r, trap);
	if (ev == PLAT_FAULT && mc.trapno == TRAPNO_PF) {
		trap->write_known = true;
		trap->write = mc.err & PF_WRITE;
		trap->exec = mc.err & PF_EXEC;
	}
	return shim_fix_event(ctx, r, trap, ev);
}
