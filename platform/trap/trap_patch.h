// SPDX-License-Identifier: Apache-2.0
/*
 * What a patched call site looks like: pure functions of bytes and addresses.
 *
 *   the site                                   its trampoline ("slot")
 *   S    syscall                               T     lea T+30(%rip), %r11
 *   S+2  the instructions behind it            T+7   movabs $shim, %rcx
 *   S+n  ...                                   T+17  jmp *%rcx
 *                                              T+19  lea S+2(%rip), %rcx  answered by the shim itself
 *   becomes                                    T+26  jmp T+30
 *   S    jmp T                                 T+28  syscall         for threads that use %gs
 *   S+5  (left as it is)                       T+30  the instructions behind it, relocated
 *                                                    jmp S+n
 *
 * A syscall instruction that has trapped is known to be one, and so is what follows it, since that is where
 * the call returns to. Nothing before it is touched. The four bytes of the jump's displacement are
 * all chosen among those that are no instruction in 64-bit mode: whoever jumps to S+1 ... S+4, or was
 * there when the site was patched, gets SIGILL, and the sentry sends it to where these
 * instructions are now, or takes the patch back. That leaves few distances, 18 for each byte, so
 * trampolines are in areas of PATCH_AREA_SIZE, mostly empty, in which each site finds many places.
 */
#ifndef PLATFORM_TRAP_PATCH_H
#define PLATFORM_TRAP_PATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "platform/platform.h"

#define PATCH_TEXT_MAX  32 /* bytes of text that a plan may look at */
#define PATCH_JMP_LEN   5
#define PATCH_INSNS_MAX 3 /* of a byte at least, beginning in the three that are replaced */
#define SLOT_OVER       19
#define SLOT_SYSCALL    28
#define SLOT_AFTER      30
#define SLOT_MAX        PLAT_SLOT_MAX
#define PATCH_AREA_SIZE PLAT_PATCH_AREA

enum patch_kind {
	PATCH_COPY,   /* as it is */
	PATCH_RIPREL, /* with a displacement from rip at @field */
	PATCH_JCC,    /* @cond, @target */
	PATCH_JMP,    /* @target */
	PATCH_KIND_COUNT
};

struct patch_insn {
	enum patch_kind kind;
	uint8_t at, len; /* in the site */
	uint8_t field, cond;
	uint8_t bytes[15];
	uint8_t moved; /* in the slot; set by patch_emit() */
	uint64_t target;
};

struct patch_plan {
	uint64_t addr; /* S */
	unsigned n;
	struct patch_insn insn[PATCH_INSNS_MAX];
	uint8_t len;  /* of the site: syscall and what is relocated */
	uint8_t tail; /* in the slot: the jump back; set by patch_emit() */
	uint8_t orig[PATCH_JMP_LEN];
};

/* False: without it nothing can be patched. */
bool patch_decoder_init(void);

/*
 * Plans for the syscall instruction at @addr, with the @n bytes of text from there on that may be looked
 * at. -EOPNOTSUPP: it can't be patched. Context: takes the decoder's lock.
 */
int patch_plan(uint64_t addr, const uint8_t *text, unsigned n, struct patch_plan *ret);

/* The slot's contents for address @slot, up to SLOT_MAX bytes: the length, or -ERANGE when something
 * can't be reached from there. @shim: what it jumps to. */
int patch_emit(struct patch_plan *p, uint64_t slot, uint64_t shim, uint8_t buf[SLOT_MAX]);

/* The lowest slot address >= @from and < @end that site @addr can have; 0: none. */
uint64_t patch_next_slot(uint64_t addr, uint64_t from, uint64_t end);

/* The jump that replaces the site's first bytes. */
void patch_jump(uint64_t addr, uint64_t slot, uint8_t buf[PATCH_JMP_LEN]);

/* Where an area for site @addr may be: the @i-th window of [*ret_lo, *ret_hi), false: no more. */
bool patch_area_window(uint64_t addr, unsigned i, uint64_t *ret_lo, uint64_t *ret_hi);

/* Offset in the slot for the one in the site (>= 2), or -1: inside of an instruction. And back. */
int patch_to_slot(const struct patch_plan *p, unsigned off);
int patch_to_site(const struct patch_plan *p, unsigned off);

/* trap_capstone.c */
struct cs_insn;
const struct cs_insn *patch_decoder_lock(void);
bool patch_decode(const uint8_t **code, size_t *left, uint64_t *addr);
void patch_decoder_unlock(void);

#endif
