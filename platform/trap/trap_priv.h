// SPDX-License-Identifier: Apache-2.0
/*
 * Inside of the trap platform. See README.md for how it works; what it shares with the ptrace platform is
 * in platform/host_as.h.
 *
 *   trap_ctx.c            contexts: life, switch, clone
 *   trap_page_untrusted.c the shared page: passing the turn, waiting, registers of the signal frame
 *   trap_pace.c           whether the two sides spin or sleep, and where
 *   trap_fp.c             FP state in the frame
 *   trap_mapper.c         mapping batches
 *   trap_patch.c          what a patched call site looks like
 *   trap_sites.c          which ones an address space has
 *   trap_shim.c           calls by them
 *   trap_probe.c          whether all this works here
 *   trap_proc.c           areas of context pages, deaths
 *
 * Everything in a stub's context area is hostile: read once into our own memory, range-checked. What a
 * stub can forge there is what its guest could have done itself.
 *
 * Locks: as.mu (RANK_PLAT_AS) > procs.mu (RANK_PLATFORM).
 */
#ifndef PLATFORM_TRAP_PRIV_H
#define PLATFORM_TRAP_PRIV_H

#include <signal.h>
#include <stddef.h>

#include "platform/host_as.h"

/* Registers of a call by the shim, as it leaves them. */
struct shim_regs {
	uint64_t after, rsp, rax, rdi, rsi, rdx, r10, r8, r9, rbx, rbp, r12, r13, r14, r15, flags;
};

/* The first page of a context, at the offsets TC_* of layout.h. */
struct trap_page {
	_Atomic uint32_t turn; /* TURN_*; a futex of both sides */
	_Atomic uint32_t sentry_waits, stub_waits;
	uint32_t kind; /* written by the stub: KIND_* */
	struct { /* written by us: the answer to the shim */
		uint64_t flags, rax, rcx, r11, rip;
		uint32_t cmd, pad;
	} out;
	/* written by us */
	uint32_t cmd, spin, set_bases, pad1;
	uint64_t arg, pad2[5];
	/* written by the stub (the bases by both) */
	uint64_t fs_base, gs_base, frame, res, pad3[12];
	struct shim_regs in;
	uint64_t pad4[(TC_KEYS - TC_SCRATCH) / 8];
	/* written by us: what the shim answers itself */
	uint32_t keys[TC_ANSWERS], values[TC_ANSWERS];
};
_Static_assert(offsetof(struct trap_page, sentry_waits) == TC_SENTRY_WAITS, "layout");
_Static_assert(offsetof(struct trap_page, stub_waits) == TC_STUB_WAITS, "layout");
_Static_assert(offsetof(struct trap_page, cmd) == TC_CMD, "layout");
_Static_assert(offsetof(struct trap_page, set_bases) == TC_SET_BASES, "layout");
_Static_assert(offsetof(struct trap_page, arg) == TC_ARG, "layout");
_Static_assert(offsetof(struct trap_page, fs_base) == TC_FS_BASE, "layout");
_Static_assert(offsetof(struct trap_page, res) == TC_RES, "layout");
_Static_assert(offsetof(struct trap_page, out.flags) == TC_A_FLAGS, "layout");
_Static_assert(offsetof(struct trap_page, out.cmd) == TC_A_CMD, "layout");
_Static_assert(offsetof(struct trap_page, kind) == TC_KIND, "layout");
_Static_assert(offsetof(struct trap_page, in) == TC_AFTER, "layout");
_Static_assert(offsetof(struct trap_page, in.flags) == TC_FLAGS, "layout");
_Static_assert(offsetof(struct trap_page, keys) == TC_KEYS, "layout");
_Static_assert(sizeof(struct trap_page) == STUB_CTX_PAGE, "layout");

/* The kernel's signal frame: arch/x86/include/asm/sigframe.h, uapi/asm/sigcontext.h. */
struct frame_mc {
	uint64_t r8, r9, r10, r11, r12, r13, r14, r15;
	uint64_t rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
	uint16_t cs, gs, fs, ss;
	uint64_t err, trapno, oldmask, cr2, fpstate, reserved[8];
};

struct trap_frame {
	uint64_t pretcode;
	uint64_t uc_flags, uc_link;
	uint64_t ss_sp, ss_flags, ss_size;
	struct frame_mc mc;
	uint64_t sigmask;
	siginfo_t info;
};
_Static_assert(sizeof(struct frame_mc) == 256, "sigcontext");
_Static_assert(offsetof(struct trap_frame, info) == 312, "rt_sigframe");

/* trap_page_untrusted.c */
/* Between two looks at a thread that doesn't come back; tests are in a hurry. */
extern unsigned trap_look_ms;
/* Lets the stub's thread do @cmd and waits for its next hand-over. @bounded: it is stub text that runs,
 * which takes no longer than it must, or the process is killed. False: the process is dead. */
bool page_call(struct plat_ctx *ctx, uint32_t cmd, bool bounded);
/* Waits for the hand-over of a thread that is on its way already. */
bool page_wait(struct plat_ctx *ctx, bool bounded);
/* Finds the signal frame of the last hand-over. False: the stub lies. */
bool page_find_frame(struct plat_ctx *ctx);
/* Registers into the frame and out of it, with what happened. */
void page_store_regs(struct plat_ctx *ctx, const struct regs *r);
enum plat_event page_load_event(struct plat_ctx *ctx, struct regs *r, struct plat_trap *trap);
/* Lets the host thread of @ctx end. */
void page_exit(struct plat_ctx *ctx);
/* Makes a page whose thread was told to end as new. False: it hasn't gone yet. */
bool page_reuse(struct trap_page *p);
/* A page whose thread is about to be made. */
void page_fresh(struct trap_page *p);
/* Makes whoever waits for this page look at as.dead. */
void page_wake(struct trap_page *p);

/* trap_pace.c: around each stay in the guest */
void pace_init(void);
void pace_enter(struct plat_ctx *ctx, uint64_t now);
void pace_leave(struct plat_ctx *ctx, uint64_t from, uint64_t now);

/* trap_mapper.c */
int mapper_ready(struct host_stub *s);
bool mapper_run(struct host_stub *s, unsigned n);

/* trap_probe.c */
int trap_probe(void);

/* trap_fp.c */
int trap_get_fp(struct plat_ctx *ctx, struct fpstate *fp);
int trap_set_fp(struct plat_ctx *ctx, const struct fpstate *fp);
int trap_init_fp(struct plat_ctx *ctx);

/* trap_proc.c */
void procs_init(int ctx_fd);
int procs_start(void);
int procs_prepare(struct host_stub *s, struct zyg_req *req);
void procs_drop(struct host_stub *s);
void procs_add(struct plat_as *as);
void procs_wait_gone(struct plat_as *as);
void procs_bury(struct plat_as *as);

static inline struct trap_page *slot_page(const struct plat_as *as, unsigned slot)
{
	return (struct trap_page *)(void *)(as->stub.pages + (size_t)slot * STUB_CTX_SIZE);
}

#endif
