// SPDX-License-Identifier: Apache-2.0
/*
 * The x86-64 rt signal frame: struct rt_sigframe of the Linux ABI, bit for bit, as unwinders, debuggers and
 * language runtimes read and change it.
 *
 *	high  interrupted stack, red zone of 128 bytes (or the top of the alternate stack)
 *	      XSAVE area, 64-byte aligned, FP_XSTATE_MAGIC2 behind it
 *	      rt_sigframe: return address (restorer), ucontext, siginfo; rsp % 16 == 8 on entry
 *	low   rsp
 *
 * The area has the standard XSAVE format; bytes 464..511 of its legacy part tell its size and components
 * (struct fpx_sw_bytes). On return everything is hostile: the frame is copied in once, cs, ss and the system flags
 * are ours, and the CPU state goes through the platform, which refuses what the CPU would.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/cpuid.h"
#include "base/err.h"
#include "sentry/kernel/signal_priv.h"
#include "sentry/mm/usermem.h"

#define L_SS_ONSTACK 1
#define L_SS_DISABLE 2
#define L_SS_AUTODISARM (1u << 31)
#define L_MINSIGSTKSZ 2048
#define L_SA_ONSTACK 0x08000000ULL
#define L_SA_RESTORER 0x04000000ULL

#define UC_FP_XSTATE 1
#define UC_SIGCONTEXT_SS 2
#define UC_STRICT_RESTORE_SS 4

#define FP_XSTATE_MAGIC1_G 0x46505853u
#define FP_XSTATE_MAGIC2_G 0x46505845u
#define FXSAVE_SIZE 512u
#define XSAVE_HEADER_SIZE 64u
#define SW_BYTES_OFFSET 464u
#define RED_ZONE 128u
#define XFEATURE_FPSSE 3u
#define OSXSAVE_BIT 27 /* of CPUID leaf 1, ecx */

/* Flags that a frame may set: AC OF DF TF SF ZF AF PF CF RF. */
#define FIX_EFLAGS 0x50dd5ULL
#define EFLAGS_DF 0x400ULL
#define EFLAGS_TF 0x100ULL
#define EFLAGS_RF 0x10000ULL

struct l_sigcontext {
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
	uint64_t rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
	uint16_t cs, gs, fs, ss;
	uint64_t err, trapno, oldmask, cr2, fpstate, reserved[8];
};
_Static_assert(sizeof(struct l_sigcontext) == 256, "sigcontext is 256 bytes");

struct l_ucontext {
	uint64_t uc_flags, uc_link;
	struct l_stack uc_stack;
	struct l_sigcontext uc_mcontext;
	sigset_g uc_sigmask;
};
_Static_assert(sizeof(struct l_ucontext) == 304, "kernel's ucontext is 304 bytes");

struct l_rt_sigframe {
	uint64_t pretcode;
	struct l_ucontext uc;
	struct l_siginfo info;
};
_Static_assert(sizeof(struct l_rt_sigframe) == 440, "rt_sigframe is 440 bytes");

struct fpx_sw_bytes {
	uint32_t magic1, extended_size;
	uint64_t xfeatures;
	uint32_t xstate_size, padding[7];
};
_Static_assert(sizeof(struct fpx_sw_bytes) == 48, "fpx_sw_bytes");

/* XCR0; 0 without XSAVE. CPUID traps in a VM (some 20 us), so it is asked once; racing threads find the same. */
static uint64_t cpu_xfeatures(void)
{
	static _Atomic uint64_t cached = UINT64_MAX;
	uint64_t ret = atomic_load_explicit(&cached, memory_order_relaxed);
	uint32_t lo, hi;

	if (ret != UINT64_MAX)
		return ret;
	ret = 0;
	if (cpuid_bit(1, 0, ECX, OSXSAVE_BIT)) {
		__asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
		ret = (uint64_t)hi << 32 | lo;
	}
	atomic_store_explicit(&cached, ret, memory_order_relaxed);
	return ret;
}

/* cpuid 0xd.0 ebx: size of the standard format for what the host has enabled; asked
 * once, too. */
uint32_t signal_frame_fp_size(void)
{
	static _Atomic uint32_t cached;
	uint32_t size = atomic_load_explicit(&cached, memory_order_relaxed);
	uint32_t r[4];

	if (size)
		return size;
	size = FXSAVE_SIZE;
	if (cpu_xfeatures() && cpuid(0xd, 0, r) && r[EBX] > size && r[EBX] <= FPSTATE_MAX)
		size = r[EBX];
	atomic_store_explicit(&cached, size, memory_order_relaxed);
	return size;
}

/* ---- alternate stack ---- */

static bool in_altstack(const struct l_stack *s, uint64_t sp)
{
	return sp > s->ss_sp && sp - s->ss_sp <= s->ss_size;
}

static bool on_altstack(const struct l_stack *s, uint64_t sp)
{
	/* disarmed on entry to a handler, so nobody is ever on it */
	if ((uint32_t)s->ss_flags & L_SS_AUTODISARM)
		return false;
	return in_altstack(s, sp);
}

static int altstack_flags(const struct l_stack *s, uint64_t sp)
{
	if (!s->ss_size)
		return L_SS_DISABLE;
	return on_altstack(s, sp) ? L_SS_ONSTACK : 0;
}

void signal_get_altstack(const struct task *t, uint64_t sp, struct l_stack *ret)
{
	const struct l_stack *s = &t->altstack;

	memset(ret, 0, sizeof(*ret));
	ret->ss_sp = s->ss_sp;
	ret->ss_size = s->ss_size;
	ret->ss_flags = altstack_flags(s, sp) |
			(int32_t)((uint32_t)s->ss_flags & L_SS_AUTODISARM);
}

int signal_set_altstack(struct task *t, const struct l_stack *ss, uint64_t sp)
{
	uint32_t mode = (uint32_t)ss->ss_flags & ~L_SS_AUTODISARM;
	struct l_stack *s = &t->altstack;

	if (on_altstack(s, sp))
		return -EPERM;
	if (mode != 0 && mode != L_SS_ONSTACK && mode != L_SS_DISABLE)
		return -EINVAL;
	if (s->ss_sp == ss->ss_sp && s->ss_size == ss->ss_size && s->ss_flags == ss->ss_flags)
		return 0;
	if (mode == L_SS_DISABLE) {
		s->ss_sp = 0;
		s->ss_size = 0;
	} else {
		if (ss->ss_size < L_MINSIGSTKSZ)
			return -ENOMEM;
		s->ss_sp = ss->ss_sp;
		s->ss_size = ss->ss_size;
	}
	s->ss_flags = ss->ss_flags;
	return 0;
}

/* ---- setting up ---- */

struct frame_place {
	uint64_t frame, fp; /* guest addresses */
};

/* -EFAULT: would overflow the alternate stack. */
static int place_frame(struct task *t, const struct l_sigaction *sa, uint32_t fp_size,
		       struct frame_place *ret)
{
	const struct l_stack *alt = &t->altstack;
	uint64_t sp = t->regs.rsp - RED_ZONE;
	bool on = on_altstack(alt, t->regs.rsp), entering = false;
	uint32_t extra = fp_size > FXSAVE_SIZE ? sizeof(uint32_t) : 0;

	if ((sa->flags & L_SA_ONSTACK) && altstack_flags(alt, t->regs.rsp) == 0) {
		sp = alt->ss_sp + alt->ss_size;
		entering = true;
	}
	sp = (sp - fp_size - extra) & ~63ULL;
	ret->fp = sp;
	sp -= sizeof(struct l_rt_sigframe);
	ret->frame = (sp & ~15ULL) - 8;
	if ((on || entering) && !in_altstack(alt, ret->frame))
		return -EFAULT;
	return 0;
}

static void fill_context(struct task *t, struct l_rt_sigframe *f, const struct frame_place *pl,
			 sigset_g oldmask)
{
	const struct regs *r = &t->regs;
	struct l_sigcontext *c = &f->uc.uc_mcontext;

	*c = (struct l_sigcontext){
		.r8 = r->r8, .r9 = r->r9, .r10 = r->r10, .r11 = r->r11,
		.r12 = r->r12, .r13 = r->r13, .r14 = r->r14, .r15 = r->r15,
		.rdi = r->rdi, .rsi = r->rsi, .rbp = r->rbp, .rbx = r->rbx,
		.rdx = r->rdx, .rax = r->rax, .rcx = r->rcx, .rsp = r->rsp,
		.rip = r->rip, .eflags = r->eflags, .cs = GUEST_CS, .ss = GUEST_SS,
		.err = t->trap.err, .trapno = t->trap.trapno, .cr2 = t->trap.cr2,
		.oldmask = oldmask, .fpstate = pl->fp,
	};
	f->uc.uc_flags = UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS;
	signal_get_altstack(t, r->rsp, &f->uc.uc_stack);
	/* the frame keeps the flags as set, so that a return restores them */
	f->uc.uc_stack.ss_flags = t->altstack.ss_flags;
	f->uc.uc_sigmask = oldmask;
}

/* Copies out the FP state with its software bytes. */
static int push_fpstate(struct task *t, struct fpstate *fp, uint64_t at)
{
	uint32_t magic2 = FP_XSTATE_MAGIC2_G;
	struct fpx_sw_bytes sw = { 0 };
	uint64_t bv;
	int r;

	if (fp->size > FXSAVE_SIZE) {
		sw.magic1 = FP_XSTATE_MAGIC1_G;
		sw.xstate_size = fp->size;
		sw.extended_size = fp->size + (uint32_t)sizeof(magic2);
		sw.xfeatures = cpu_xfeatures();
		memcpy(&bv, fp->data + FXSAVE_SIZE, sizeof(bv));
		bv |= XFEATURE_FPSSE; /* what old programs change is taken at return */
		memcpy(fp->data + FXSAVE_SIZE, &bv, sizeof(bv));
	}
	memcpy(fp->data + SW_BYTES_OFFSET, &sw, sizeof(sw));
	r = copyout(t, gaddr(at), fp->data, fp->size);
	if (r == 0 && fp->size > FXSAVE_SIZE)
		r = copyout(t, gaddr(at + fp->size), &magic2, sizeof(magic2));
	return r;
}

static void enter_handler(struct task *t, int sig, const struct l_sigaction *sa, uint64_t frame)
{
	struct regs *r = &t->regs;

	r->rdi = (uint64_t)sig;
	r->rax = 0; /* variadic handlers */
	r->rsi = frame + offsetof(struct l_rt_sigframe, info);
	r->rdx = frame + offsetof(struct l_rt_sigframe, uc);
	r->rip = sa->handler;
	r->rsp = frame;
	r->cs = GUEST_CS;
	r->ss = GUEST_SS;
	r->eflags &= ~(EFLAGS_DF | EFLAGS_RF | EFLAGS_TF);
}

int signal_setup_frame(struct task *t, int sig, const struct l_sigaction *sa,
		       const struct l_siginfo *info, sigset_g oldmask)
{
	AUTO_FREE struct fpstate *fp = kzalloc(sizeof(*fp));
	struct l_rt_sigframe f = { 0 };
	struct frame_place pl;

	/* x86-64 has no kernel-provided return code: no restorer, no frame */
	if (!(sa->flags & L_SA_RESTORER))
		return -EFAULT;
	if (plat->ctx_get_fp(t->ctx, fp) < 0 || fp->size < FXSAVE_SIZE || fp->size > FPSTATE_MAX)
		return -EFAULT;
	if (place_frame(t, sa, fp->size, &pl) < 0)
		return -EFAULT;
	fill_context(t, &f, &pl, oldmask);
	if (fp->size > FXSAVE_SIZE)
		f.uc.uc_flags |= UC_FP_XSTATE;
	f.pretcode = sa->restorer;
	f.info = *info;
	if (push_fpstate(t, fp, pl.fp) < 0 ||
	    copyout(t, gaddr(pl.frame), &f, sizeof(f)) < 0)
		return -EFAULT;
	if ((uint32_t)t->altstack.ss_flags & L_SS_AUTODISARM) {
		memset(&t->altstack, 0, sizeof(t->altstack));
		t->altstack.ss_flags = L_SS_DISABLE;
	}
	enter_handler(t, sig, sa, pl.frame);
	return 0;
}

/* ---- returning ---- */

/* Makes fp->data a state that the CPU can load, from the @size bytes that were copied in. */
static void sanitise_xstate(struct fpstate *fp, const struct fpx_sw_bytes *sw, bool fx_only)
{
	uint64_t bv, allowed = cpu_xfeatures();

	if (fp->size <= FXSAVE_SIZE)
		return;
	memcpy(&bv, fp->data + FXSAVE_SIZE, sizeof(bv));
	if (fx_only)
		bv = XFEATURE_FPSSE;
	else
		bv &= allowed & sw->xfeatures;
	/* the header's other fields (compaction, reserved) must be zero */
	memset(fp->data + FXSAVE_SIZE, 0, XSAVE_HEADER_SIZE);
	memcpy(fp->data + FXSAVE_SIZE, &bv, sizeof(bv));
}

/* Does the frame have a full XSAVE area of ours? */
static bool has_xstate(struct task *t, uint64_t at, const struct fpx_sw_bytes *sw, uint32_t cpu_size)
{
	uint32_t magic2;

	if (sw->magic1 != FP_XSTATE_MAGIC1_G || sw->xstate_size < FXSAVE_SIZE + XSAVE_HEADER_SIZE ||
	    sw->xstate_size > cpu_size || sw->xstate_size > sw->extended_size)
		return false;
	if (copyin(t, &magic2, gaddr(at + sw->xstate_size), sizeof(magic2)) < 0)
		return false;
	return magic2 == FP_XSTATE_MAGIC2_G;
}

static int restore_fpstate(struct task *t, uint64_t at)
{
	AUTO_FREE struct fpstate *fp = NULL;
	struct fpx_sw_bytes sw;
	uint32_t size;
	bool full;

	if (at == 0)
		return plat->ctx_init_fp(t->ctx);
	fp = kzalloc(sizeof(*fp));
	fp->size = signal_frame_fp_size();
	if (copyin(t, fp->data, gaddr(at), FXSAVE_SIZE) < 0)
		return -EFAULT;
	memcpy(&sw, fp->data + SW_BYTES_OFFSET, sizeof(sw));
	full = fp->size > FXSAVE_SIZE && has_xstate(t, at, &sw, fp->size);
	if (full) {
		size = sw.xstate_size - FXSAVE_SIZE;
		if (copyin(t, fp->data + FXSAVE_SIZE, gaddr(at + FXSAVE_SIZE), size) < 0)
			return -EFAULT;
	}
	memset(fp->data + SW_BYTES_OFFSET, 0, sizeof(sw));
	sanitise_xstate(fp, &sw, !full);
	return plat->ctx_set_fp(t->ctx, fp);
}

static void restore_regs(struct task *t, const struct l_sigcontext *c)
{
	struct regs *r = &t->regs;

	r->r8 = c->r8;
	r->r9 = c->r9;
	r->r10 = c->r10;
	r->r11 = c->r11;
	r->r12 = c->r12;
	r->r13 = c->r13;
	r->r14 = c->r14;
	r->r15 = c->r15;
	r->rdi = c->rdi;
	r->rsi = c->rsi;
	r->rbp = c->rbp;
	r->rbx = c->rbx;
	r->rdx = c->rdx;
	r->rax = c->rax;
	r->rcx = c->rcx;
	r->rsp = c->rsp;
	r->rip = c->rip;
	r->eflags = (r->eflags & ~FIX_EFLAGS) | (c->eflags & FIX_EFLAGS);
	r->cs = GUEST_CS;
	r->ss = GUEST_SS;
	r->orig_rax = (uint64_t)-1; /* not in a call: nothing to restart */
}

long signal_return(struct task *t)
{
	struct l_rt_sigframe f;

	/* the handler's ret has popped pretcode */
	if (copyin(t, &f.uc, gaddr(t->regs.rsp - 8 + offsetof(struct l_rt_sigframe, uc)),
		   sizeof(f.uc)) < 0)
		goto bad;
	t->restart.kind = RESTART_NONE;
	signal_set_blocked(t, f.uc.uc_sigmask);
	if (restore_fpstate(t, f.uc.uc_mcontext.fpstate) < 0)
		goto bad;
	restore_regs(t, &f.uc.uc_mcontext);
	/* errors but EFAULT don't matter (man 2 sigreturn says nothing; Linux ignores them) */
	(void)signal_set_altstack(t, &f.uc.uc_stack, t->regs.rsp);
	return (long)t->regs.rax;
bad:
	t->regs.orig_rax = (uint64_t)-1;
	signal_force(t, SIGSEGV, NULL);
	return 0;
}
