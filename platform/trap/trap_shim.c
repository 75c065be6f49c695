// SPDX-License-Identifier: Apache-2.0
/*
 * The sentry's side of the shim (platform/stub/shim.S): calls from patched sites, their answers, and
 * signals that stop a thread on its way.
 *
 * What the guest sees of its registers, and what is handed to the task, never points into a trampoline or
 * the shim: a thread there is shown at the place of its own text where it could have been. On the
 * way to the call that is the call itself, made: an interruption then finds the task in it, as it would a
 * moment later. When the call is over it is behind it.
 *
 * All that is read here can be forged by the guest, which then has lied to itself about its registers.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/log.h"
#include "base/stats.h"
#include "platform/trap/trap_sites.h"

#define EFLAGS_TF 0x100U

_Static_assert(SLOT_OVER - SLOT_AFTER == SLOT_OVER_OFF, "layout");

static uint64_t ctx_va(const struct plat_ctx *ctx)
{
	return STUB_CTX + (uint64_t)ctx->slot * STUB_CTX_SIZE;
}

uint64_t shim_gs(const struct plat_ctx *ctx, uint64_t guest)
{
	return !guest && sites_any(ctx->as) ? ctx_va(ctx) : guest;
}

uint64_t shim_guest_gs(const struct plat_ctx *ctx, uint64_t host)
{
	return host == ctx_va(ctx) ? 0 : host;
}

/* ---- calls ---- */

/* The thread has made the call of the trampoline that goes on at @after. */
static enum plat_event call_made(struct plat_ctx *ctx, uint64_t after, struct regs *r,
				 struct plat_trap *trap)
{
	struct trap_site *s = ctx->site;

	if (unlikely(!s || s->slot + SLOT_AFTER != after ||
		     atomic_load_explicit(&s->lost, memory_order_relaxed))) {
		s = sites_by_slot(ctx->as, after);
		if (s && s->slot + SLOT_AFTER != after)
			s = NULL;
		ctx->site = s;
	}
	r->rip = s ? s->plan.addr + 2 : after;
	r->rcx = r->rip;
	r->r11 = r->eflags;
	r->orig_rax = (uint64_t)(int64_t)(int32_t)r->rax;
	trap->compat = false;
	return PLAT_SYSCALL;
}

enum plat_event shim_load(struct plat_ctx *ctx, struct regs *r, struct plat_trap *trap)
{
	const struct trap_page *p = ctx->page;
	struct shim_regs in;
	enum plat_event ev;

	memcpy(&in, &p->in, sizeof(in));
	__asm__ volatile("" : : : "memory"); /* from here on the copy */
	r->rax = in.rax;
	r->rdi = in.rdi;
	r->rsi = in.rsi;
	r->rdx = in.rdx;
	r->r10 = in.r10;
	r->r8 = in.r8;
	r->r9 = in.r9;
	r->rbx = in.rbx;
	r->rbp = in.rbp;
	r->r12 = in.r12;
	r->r13 = in.r13;
	r->r14 = in.r14;
	r->r15 = in.r15;
	r->rsp = in.rsp;
	r->eflags = in.flags;
	r->cs = GUEST_CS;
	r->ss = GUEST_SS;
	r->fs_base = READ_ONCE(p->fs_base);
	r->gs_base = 0;
	ev = call_made(ctx, in.after, r, trap);
	ctx->in_shim = true;
	stat_inc(STAT_CALL_PATCHED);
	ctx->shim_in = *r;
	return ev;
}

/* Are all registers but rax, rcx, r11, rip and the flags as the shim has them? */
static bool same_registers(const struct regs *a, const struct regs *b)
{
	return !memcmp(&a->r15, &b->r15, 6 * 8) && !memcmp(&a->r10, &b->r10, 3 * 8) &&
	       !memcmp(&a->rdx, &b->rdx, 3 * 8) && a->cs == b->cs && a->rsp == b->rsp &&
	       a->ss == b->ss && a->fs_base == b->fs_base && a->gs_base == b->gs_base;
}

bool shim_answer(struct plat_ctx *ctx, const struct regs *r)
{
	struct trap_page *p = ctx->page;
	struct trap_site *s = ctx->site;
	uint64_t rip = r->rip;

	if ((r->eflags & EFLAGS_TF) || !same_registers(r, &ctx->shim_in))
		return false;
	if (s && rip == s->plan.addr + 2 && atomic_load_explicit(&s->live, memory_order_relaxed))
		rip = s->slot + SLOT_AFTER;
	else
		rip = sites_resume(ctx->as, rip);
	p->out.flags = r->eflags;
	p->out.rax = r->rax;
	p->out.rcx = r->rcx;
	p->out.r11 = r->r11;
	p->out.rip = rip;
	WRITE_ONCE(p->out.cmd, ANSWER_REGS);
	ctx->shim_out = *r;
	ctx->shim_sent = true;
	ctx->in_shim = false;
	return true;
}

bool shim_to_frame(struct plat_ctx *ctx)
{
	if (!ctx->in_shim)
		return true;
	WRITE_ONCE(ctx->page->out.cmd, ANSWER_FRAME);
	if (!page_call(ctx, CMD_RESUME, true))
		return false;
	ctx->in_shim = false;
	if (READ_ONCE(ctx->page->kind) != KIND_FRAME) {
		log_warn("stub %d: no signal frame: killed", ctx->as->stub.pid);
		as_kill(ctx->as);
		return false;
	}
	return page_find_frame(ctx);
}

/* ---- signals on the way ---- */

static enum plat_event in_shim_text(struct plat_ctx *ctx, uint64_t at, struct regs *r,
				    struct plat_trap *trap, enum plat_event ev)
{
	const struct trap_page *p = ctx->page;
	uint64_t after;

	if (at < RT_SHIM_SAVED) {
		after = r->r11;
	} else if (at < RT_SHIM_PASSED || (at >= RT_SHIM_HIT && at < RT_SHIM_OVER)) {
		after = READ_ONCE(p->in.after);
		r->rsp = READ_ONCE(p->in.rsp);
		if (at >= RT_SHIM_FLAGS && at < RT_SHIM_PASSED)
			r->eflags = READ_ONCE(p->in.flags);
	} else if (at < RT_SHIM_HIT) {
		if (!ctx->shim_sent)
			return ev; /* not one that came here by a call */
		*r = ctx->shim_out;
		return PLAT_EVENT_COUNT;
	} else {
		uint64_t r11 = r->r11;

		(void)call_made(ctx, READ_ONCE(p->in.after), r, trap);
		r->r11 = r11;
		r->orig_rax = (uint64_t)-1;
		return ev;
	}
	return call_made(ctx, after, r, trap);
}

static enum plat_event unpatch(struct plat_trap *trap, const struct trap_site *s)
{
	trap->unpatch = s->plan.addr;
	return PLAT_INTERRUPTED;
}

static enum plat_event in_slot(struct plat_ctx *ctx, const struct trap_site *s, struct regs *r,
			       struct plat_trap *trap, enum plat_event ev)
{
	unsigned off = (unsigned)(r->rip - s->slot);
	int at;

	if (off == 0) {
		r->rip = s->plan.addr;
		return ev == PLAT_EXCEPTION && trap->signo == SIGTRAP ? unpatch(trap, s) : ev;
	}
	if (off >= SLOT_OVER && off < SLOT_SYSCALL) {
		r->rip = s->plan.addr + 2;
		r->rcx = r->rip;
		return ev;
	}
	if (off < SLOT_AFTER) {
		if (ev == PLAT_EVENT_COUNT)
			return call_made(ctx, s->slot + SLOT_AFTER, r, trap);
		r->rip = s->plan.addr; /* the trampoline isn't there yet */
		return ev;
	}
	at = patch_to_site(&s->plan, off);
	if (at < 0)
		return ev; /* jumped there by itself */
	r->rip = s->plan.addr + (unsigned)at;
	/* The trampoline was unmapped under it: the text is what it was again. */
	if (ev == PLAT_FAULT && trap->exec && trap->addr == s->slot + off && !atomic_load(&s->live))
		return PLAT_EVENT_COUNT;
	if (ev == PLAT_SYSCALL)
		r->rcx = r->rip;
	return ev;
}

/* An undefined instruction at one of the site's bytes behind the first. */
static enum plat_event ill_in_site(struct plat_ctx *ctx, struct trap_site *s, const struct regs *r,
				   struct plat_trap *trap)
{
	if (!atomic_load(&s->live)) /* was it there when the thread was? */
		return trap->map_seq <= atomic_load(&s->gone_seq) ? PLAT_EVENT_COUNT
								   : PLAT_EXCEPTION;
	if (patch_to_slot(&s->plan, (unsigned)(r->rip - s->plan.addr)) < 0 ||
	    sites_note_ill(ctx->as, s))
		return unpatch(trap, s);
	return PLAT_EVENT_COUNT; /* goes on in the trampoline */
}

enum plat_event shim_fix_event(struct plat_ctx *ctx, struct regs *r, struct plat_trap *trap,
			       enum plat_event ev)
{
	struct plat_as *as = ctx->as;
	struct trap_site *s;

	if (likely(!as->sites))
		return ev;
	/* sigreturn changes all registers, which needs a frame anyway. */
	if (ev == PLAT_SYSCALL && r->orig_rax != SYS_rt_sigreturn &&
	    sites_note_call(as, r->rip - 2))
		trap->hot_call = r->rip - 2;
	if (!sites_any(as))
		return ev;
	if (r->rip - (STUB_BASE + RT_SHIM) < RT_SHIM_END - RT_SHIM)
		return in_shim_text(ctx, r->rip - STUB_BASE, r, trap, ev);
	s = sites_by_slot(as, r->rip);
	if (s) {
		trap->hot_call = 0;
		return in_slot(ctx, s, r, trap, ev);
	}
	if (ev != PLAT_EXCEPTION || trap->signo != SIGILL)
		return ev;
	s = sites_by_text(as, r->rip);
	return s && r->rip != s->plan.addr ? ill_in_site(ctx, s, r, trap) : ev;
}

bool shim_steps_into(struct plat_ctx *ctx, const struct regs *r, struct plat_trap *trap)
{
	struct trap_site *s;

	if (likely(!(r->eflags & EFLAGS_TF)))
		return false;
	s = sites_by_text(ctx->as, r->rip);
	if (!s || !atomic_load(&s->live))
		return false;
	trap->unpatch = s->plan.addr;
	return true;
}

/* ---- answers without us ---- */

void trap_set_answers(struct plat_ctx *ctx, const struct plat_answer *a, unsigned n)
{
	struct trap_page *p = ctx->page;

	memset(p->keys, 0, sizeof(p->keys));
	p->keys[0] = 1; /* number 0 has no key of 0 */
	for (unsigned i = 0; i < n; i++) {
		if (a[i].nr >= TC_ANSWERS)
			continue;
		p->values[a[i].nr] = a[i].value;
		p->keys[a[i].nr] = -a[i].nr;
	}
}
