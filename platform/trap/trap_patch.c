// SPDX-License-Identifier: Apache-2.0
/*
 * Planning and writing of patched call sites: see trap_patch.h for what they look like. Text comes from a
 * guest and may be anything; what isn't understood isn't patched.
 */
#include "platform/trap/trap_patch.h"

#include <capstone/capstone.h>
#include <errno.h>
#include <string.h>

#define SYSCALL_LEN 2
#define JMP32_LEN   5
#define JCC32_LEN   6

/*
 * One-byte opcodes that are undefined in 64-bit mode whatever follows them: push and pop of segment
 * registers, BCD arithmetic, pusha, popa, far call and jump. Ascending as the top byte of a
 * displacement: that is the signed order, too, from 0x82 on negative. (0xd5 is left out: newer CPUs have
 * a prefix there. So is 0x62 and the like.)
 */
static const uint8_t traps[] = { 0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37,
				 0x3f, 0x60, 0x61, 0x82, 0x9a, 0xd4, 0xd6, 0xea };

/* ---- planning ---- */

static bool in_group(const cs_insn *in, uint8_t group)
{
	for (unsigned i = 0; i < in->detail->groups_count; i++) {
		if (in->detail->groups[i] == group)
			return true;
	}
	return false;
}

/* A direct jump, in its plain encodings. False: something else. */
static bool plan_jump(const cs_insn *in, struct patch_insn *pi)
{
	const uint8_t *b = in->bytes;
	const cs_x86 *x = &in->detail->x86;

	if (x->op_count != 1 || x->operands[0].type != X86_OP_IMM)
		return false;
	pi->target = (uint64_t)x->operands[0].imm;
	if ((b[0] == 0xeb && in->size == 2) || (b[0] == 0xe9 && in->size == 5)) {
		pi->kind = PATCH_JMP;
		return true;
	}
	pi->kind = PATCH_JCC;
	if ((b[0] & 0xf0) == 0x70 && in->size == 2)
		pi->cond = b[0] & 0xf;
	else if (b[0] == 0x0f && (b[1] & 0xf0) == 0x80 && in->size == 6)
		pi->cond = b[1] & 0xf;
	else
		return false;
	return true;
}

/* Instructions whose effect depends on where they are, other than by an operand, or that can't be left in
 * the middle of the kernel's doing. */
static bool unmovable(const cs_insn *in)
{
	switch (in->id) {
	case X86_INS_XBEGIN:
	case X86_INS_POPF: /* may begin to single-step */
	case X86_INS_POPFD:
	case X86_INS_POPFQ:
	case X86_INS_SYSCALL:
	case X86_INS_SYSENTER:
	case X86_INS_UD0:
	case X86_INS_UD2B:
	case X86_INS_INVALID:
		return true;
	default:
		return in_group(in, X86_GRP_CALL) || in_group(in, X86_GRP_INT) ||
		       in_group(in, X86_GRP_IRET) || in_group(in, X86_GRP_PRIVILEGE);
	}
}

/* By the opcode alone, since loops are in no group of the decoder's: a jump relative to itself. */
static bool is_relative(const cs_insn *in)
{
	static const uint8_t prefixes[] = { 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65,
					    0x66, 0x67, 0xf0, 0xf2, 0xf3 };
	const uint8_t *b = in->bytes;
	unsigned i = 0;

	while (i + 2 < in->size && memchr(prefixes, b[i], sizeof(prefixes)))
		i++;
	if ((b[i] & 0xf0) == 0x40 && i + 1 < in->size)
		i++;
	if (b[i] == 0x0f)
		return i + 1 < in->size && (b[i + 1] & 0xf0) == 0x80;
	return (b[i] & 0xf0) == 0x70 || (b[i] & 0xfc) == 0xe0 || b[i] == 0xe8 || b[i] == 0xe9 ||
	       b[i] == 0xeb || in_group(in, X86_GRP_BRANCH_RELATIVE);
}

/* False: can't be relocated. @ret_ends: nothing falls through. */
static bool plan_insn(const cs_insn *in, struct patch_insn *pi, bool *ret_ends)
{
	const cs_x86 *x = &in->detail->x86;

	*ret_ends = false;
	pi->kind = PATCH_COPY;
	pi->len = (uint8_t)in->size;
	memcpy(pi->bytes, in->bytes, MIN(sizeof(pi->bytes), (size_t)in->size));
	if (unmovable(in))
		return false;
	if (in_group(in, X86_GRP_JUMP)) {
		if (plan_jump(in, pi)) {
			*ret_ends = pi->kind == PATCH_JMP;
			return true;
		}
		/* By a register or memory; loops and far jumps are left. */
		if (in->id != X86_INS_JMP || x->op_count != 1 ||
		    x->operands[0].type == X86_OP_IMM)
			return false;
		*ret_ends = true;
	} else if (is_relative(in)) {
		return false;
	} else if (in_group(in, X86_GRP_RET)) {
		if (in->id != X86_INS_RET)
			return false;
		*ret_ends = true;
	}
	for (unsigned i = 0; i < x->op_count; i++) {
		const cs_x86_op *op = &x->operands[i];

		if (op->type != X86_OP_MEM || (op->mem.base != X86_REG_RIP &&
					       op->mem.base != X86_REG_EIP))
			continue;
		if (op->mem.base == X86_REG_EIP || x->encoding.disp_size != 4 ||
		    x->encoding.disp_offset + 4U > in->size)
			return false;
		pi->kind = PATCH_RIPREL;
		pi->field = x->encoding.disp_offset;
	}
	return true;
}

/* What lies behind a jump or ret was never executed by us: only padding may be covered. */
static bool is_padding(const cs_insn *in)
{
	return in->id == X86_INS_NOP || in->bytes[0] == 0xcc;
}

static int plan_rest(const cs_insn *in, const uint8_t *text, unsigned n, struct patch_plan *p)
{
	const uint8_t *code = text + SYSCALL_LEN;
	size_t left = n - SYSCALL_LEN;
	uint64_t at = p->addr + SYSCALL_LEN;
	bool ended = false;

	while (p->len < PATCH_JMP_LEN) {
		struct patch_insn *pi = &p->insn[p->n++];

		if (!patch_decode(&code, &left, &at))
			return -EOPNOTSUPP;
		pi->at = p->len;
		pi->len = (uint8_t)in->size;
		memcpy(pi->bytes, in->bytes, MIN(sizeof(pi->bytes), (size_t)in->size));
		if (ended ? !is_padding(in) : !plan_insn(in, pi, &ended))
			return -EOPNOTSUPP;
		p->len = (uint8_t)(p->len + in->size);
	}
	return 0;
}

int patch_plan(uint64_t addr, const uint8_t *text, unsigned n, struct patch_plan *ret)
{
	struct patch_plan p = { .addr = addr, .len = SYSCALL_LEN };
	const cs_insn *in;
	int r;

	if (n < PATCH_JMP_LEN || text[0] != 0x0f || text[1] != 0x05)
		return -EOPNOTSUPP;
	in = patch_decoder_lock();
	if (!in)
		return -EOPNOTSUPP;
	memcpy(p.orig, text, PATCH_JMP_LEN);
	r = plan_rest(in, text, MIN(n, (unsigned)PATCH_TEXT_MAX), &p);
	patch_decoder_unlock();
	if (!r)
		*ret = p;
	return r;
}

/* ---- writing ---- */

static bool rel32(uint64_t from, uint64_t to, uint8_t *where)
{
	int64_t d = (int64_t)(to - from);
	int32_t d32 = (int32_t)d;

	memcpy(where, &d32, sizeof(d32));
	return d == d32;
}

/* @pi at @at into @buf; its length there, 0 when it can't be. */
static unsigned emit_insn(const struct patch_plan *p, const struct patch_insn *pi, uint64_t at,
			  uint8_t *buf)
{
	int32_t disp;

	switch (pi->kind) {
	case PATCH_COPY:
		memcpy(buf, pi->bytes, pi->len);
		return pi->len;
	case PATCH_RIPREL:
		memcpy(buf, pi->bytes, pi->len);
		memcpy(&disp, pi->bytes + pi->field, sizeof(disp));
		return rel32(at, p->addr + pi->at + (uint64_t)(int64_t)disp, buf + pi->field)
			       ? pi->len
			       : 0;
	case PATCH_JCC:
		buf[0] = 0x0f;
		buf[1] = (uint8_t)(0x80 | pi->cond);
		return rel32(at + JCC32_LEN, pi->target, buf + 2) ? JCC32_LEN : 0;
	case PATCH_JMP:
		buf[0] = 0xe9;
		return rel32(at + JMP32_LEN, pi->target, buf + 1) ? JMP32_LEN : 0;
	case PATCH_KIND_COUNT:
		break;
	}
	return 0;
}

int patch_emit(struct patch_plan *p, uint64_t slot, uint64_t shim, uint8_t buf[SLOT_MAX])
{
	static const uint8_t head[SLOT_AFTER] = {
		0x4c, 0x8d, 0x1d, SLOT_AFTER - 7, 0, 0, 0, /* lea */
		0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0,        /* movabs */
		0xff, 0xe1,                                /* jmp *%rcx */
		0x48, 0x8d, 0x0d, 0, 0, 0, 0,              /* lea */
		0xeb, SLOT_AFTER - SLOT_SYSCALL,           /* jmp */
		0x0f, 0x05
	};
	unsigned n = SLOT_AFTER, len;

	memcpy(buf, head, sizeof(head));
	memcpy(buf + 9, &shim, sizeof(shim));
	if (!rel32(slot + SLOT_OVER + 7, p->addr + SYSCALL_LEN, buf + SLOT_OVER + 3))
		return -ERANGE;
	for (unsigned i = 0; i < p->n; i++) {
		if (n + sizeof(p->insn[i].bytes) + JMP32_LEN > SLOT_MAX)
			return -ERANGE;
		len = emit_insn(p, &p->insn[i], slot + n, buf + n);
		if (!len)
			return -ERANGE;
		p->insn[i].moved = (uint8_t)n;
		n += len;
	}
	p->tail = (uint8_t)n;
	buf[n] = 0xe9;
	if (!rel32(slot + n + JMP32_LEN, p->addr + p->len, buf + n + 1))
		return -ERANGE;
	return (int)(n + JMP32_LEN);
}

/* ---- places ---- */

/* The least of a displacement's byte @i (3: the highest) that is >= @v, as ordered; -1: none. The highest
 * one's sign bit is flipped, so that unsigned order is that of the distances. */
static int least_byte(unsigned i, unsigned v)
{
	const unsigned flip = i == 3 ? 0x80 : 0;
	int best = -1;

	for (unsigned k = 0; k < ARRAY_SIZE(traps); k++) {
		int t = (int)(traps[k] ^ flip);

		if (t >= (int)v && (best < 0 || t < best))
			best = t;
	}
	return best;
}

/* The least number >= @u made of such bytes only. */
static bool next_distance(uint32_t u, uint32_t *ret)
{
	uint64_t v = u;
	int i = 3, b;

	while (i >= 0) {
		b = v <= UINT32_MAX ? least_byte((unsigned)i, (v >> (8 * i)) & 0xff) : -1;
		if (b < 0) { /* carry into the next higher one, and look at it again */
			if (i == 3)
				return false;
			v = ((v >> (8 * (i + 1))) + 1) << (8 * (i + 1));
			i = 3;
		} else if ((unsigned)b != ((v >> (8 * i)) & 0xff)) {
			v = ((v >> (8 * (i + 1))) << 8 | (unsigned)b) << (8 * i);
			i--;
		} else {
			i--;
		}
	}
	*ret = (uint32_t)v;
	return true;
}

uint64_t patch_next_slot(uint64_t addr, uint64_t from, uint64_t end)
{
	const uint64_t base = addr + PATCH_JMP_LEN - 0x80000000ULL;
	uint64_t least = MAX(from, base);
	uint32_t d;

	/* (Addresses are below 2^47, so a base below zero is a huge one.) */
	if (base > addr)
		least = from;
	if (least - base > UINT32_MAX || !next_distance((uint32_t)(least - base), &d))
		return 0;
	return base + d < end ? base + d : 0;
}

void patch_jump(uint64_t addr, uint64_t slot, uint8_t buf[PATCH_JMP_LEN])
{
	buf[0] = 0xe9;
	(void)rel32(addr + PATCH_JMP_LEN, slot, buf + 1);
}

bool patch_area_window(uint64_t addr, unsigned i, uint64_t *ret_lo, uint64_t *ret_hi)
{
	/* Far below first, where nothing grows to; above a program at a low address, far up. */
	static const uint8_t order[] = { 0x9a, 0xd4, 0xd6, 0xea, 0x82, 0x61, 0x60, 0x3f,
					 0x37, 0x2f, 0x27, 0x1f, 0x1e, 0x17, 0x16, 0x0e };
	int64_t d;

	if (i >= ARRAY_SIZE(order))
		return false;
	d = (int64_t)(int8_t)order[i] * (1 << 24);
	*ret_lo = (addr + (uint64_t)d + 0xfffff) & ~0xfffffULL;
	*ret_hi = *ret_lo + (1 << 24) - 0x100000;
	if ((int64_t)addr + d < 0)
		*ret_lo = *ret_hi = 0;
	return true;
}

int patch_to_slot(const struct patch_plan *p, unsigned off)
{
	for (unsigned i = 0; i < p->n; i++) {
		if (p->insn[i].at == off)
			return p->insn[i].moved;
	}
	return -1;
}

int patch_to_site(const struct patch_plan *p, unsigned off)
{
	if (off == p->tail)
		return p->len;
	for (unsigned i = 0; i < p->n; i++) {
		if (p->insn[i].moved == off)
			return p->insn[i].at;
	}
	return -1;
}
