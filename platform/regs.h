// SPDX-License-Identifier: Apache-2.0
/*
 * General registers of a guest thread, in the layout of the kernel's user_regs_struct, so that the
 * ptrace platform moves them with one call. FP and vector state is separate (struct fpstate): it
 * crosses only when somebody needs it.
 */
#ifndef PLATFORM_REGS_H
#define PLATFORM_REGS_H

#include <stdint.h>

struct regs {
	uint64_t r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8;
	uint64_t rax, rcx, rdx, rsi, rdi;
	uint64_t orig_rax; /* number of the call being made; (uint64_t)-1 outside a call */
	uint64_t rip, cs, eflags, rsp, ss;
	uint64_t fs_base, gs_base, ds, es, fs, gs;
};

/* XSAVE area in the standard (uncompacted) format. */
#define FPSTATE_MAX 11264 /* AVX-512 and AMX tiles with room to spare */

struct fpstate {
	uint32_t size; /* bytes valid in data */
	uint8_t data[FPSTATE_MAX] __attribute__((aligned(64)));
};

#define GUEST_CS 0x33
#define GUEST_SS 0x2b

#endif
