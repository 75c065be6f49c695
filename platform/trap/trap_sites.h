// SPDX-License-Identifier: Apache-2.0
/* The patched call sites of an address space: trap_sites.c. */
#ifndef PLATFORM_TRAP_SITES_H
#define PLATFORM_TRAP_SITES_H

#include "platform/trap/trap_patch.h"
#include "platform/trap/trap_priv.h"

/* (c) constant, (m) sites.mu, (a) atomic. Lives as long as its address space. */
struct trap_site {
	struct patch_plan plan; /* (c) */
	uint64_t slot;          /* (c) 0: refused from the start */
	_Atomic bool live;      /* (a) its jump is in the text */
	_Atomic bool lost;      /* (a) its trampoline was unmapped, others may be in that place */
	bool refused;           /* (m) never again */
	uint8_t undone;         /* (m) times that it was taken back */
	unsigned ills;          /* (m) jumps into it that were put right */
	_Atomic uint64_t gone_seq; /* (a) as.seq when it was taken back */
};

/* Has there been a live site? Then threads need their %gs. */
bool sites_any(const struct plat_as *as);
/* The site in whose trampoline @rip is, or NULL. */
struct trap_site *sites_by_slot(struct plat_as *as, uint64_t rip);
/* The site of whose first bytes @rip is one, live or not, or NULL. */
struct trap_site *sites_by_text(struct plat_as *as, uint64_t rip);
/* Where a thread goes on that the guest sees at @rip. */
uint64_t sites_resume(struct plat_as *as, uint64_t rip);
/* A call at @addr has trapped. True: it does so often, and should be patched. */
bool sites_note_call(struct plat_as *as, uint64_t addr);
/* Somebody jumped into @s. True: too often. */
bool sites_note_ill(struct plat_as *as, struct trap_site *s);
void sites_create(struct plat_as *as);
void sites_destroy(struct plat_as *as);

extern const struct plat_patch_ops trap_patch_ops;

/* trap_shim.c: see there */
/* What a hand-over by the shim says. */
enum plat_event shim_load(struct plat_ctx *ctx, struct regs *r, struct plat_trap *trap);
/* Prepares the answer to one; false: it has to be by a frame. */
bool shim_answer(struct plat_ctx *ctx, const struct regs *r);
/* Makes a thread that waits in the shim wait in the signal handler instead. False: it is dead. */
bool shim_to_frame(struct plat_ctx *ctx);
/* Puts registers and event of a frame right that was made in the shim, in a trampoline or in a site. */
enum plat_event shim_fix_event(struct plat_ctx *ctx, struct regs *r, struct plat_trap *trap,
			       enum plat_event ev);
/* Has @r to be single-stepped through a site? Then that is taken back first. */
bool shim_steps_into(struct plat_ctx *ctx, const struct regs *r, struct plat_trap *trap);
/* The base of gs that the host thread gets, and what the guest sees of it. */
uint64_t shim_gs(const struct plat_ctx *ctx, uint64_t guest);
uint64_t shim_guest_gs(const struct plat_ctx *ctx, uint64_t host);
void trap_set_answers(struct plat_ctx *ctx, const struct plat_answer *a, unsigned n);

#endif
