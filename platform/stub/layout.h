// SPDX-License-Identifier: Apache-2.0
/*
 * Where the stub lives in a guest's host process, and what it and the sentry say to each other.
 * Included by assembly, C, the linker script (after cpp) and the sentry.
 *
 *   STUB_BASE   run-time text: the only place from which guest threads may make system calls
 *   +0x1000     the mapper's text: the only place from which mapping calls may be made
 *   +0x2000     the zygote's text and read-only data; unmapped in stubs
 *   STUB_DATA   private writable page(s): where recvmsg puts control data, the zygote's stack
 *   STUB_OPS    mapping operations, written by the sentry; the stub can only read it
 *   STUB_CTX    trap: one context per host thread: a page shared with the sentry, which both read and
 *               write, and the thread's signal stack, shared as well
 */
#ifndef PLATFORM_STUB_LAYOUT_H
#define PLATFORM_STUB_LAYOUT_H

#define STUB_BASE      0x7ffff1000000
#define STUB_RT_SIZE   0x1000
#define STUB_MAPPER    0x7ffff1001000
#define STUB_CODE_SIZE 0x2000  /* what stays: run-time text and the mapper's */
#define STUB_TEXT_SIZE 0x10000 /* run-time, mapper and zygote */
#define STUB_DATA      0x7ffff1010000
#define STUB_DATA_SIZE 0x10000
#define STUB_OPS       0x7ffff1020000
#define STUB_OPS_PAGES 2
#define STUB_OPS_SIZE  (STUB_OPS_PAGES * 0x1000)
#define STUB_END       0x7ffff1030000
#define STUB_CTX       0x7ffff4000000
#define STUB_CTX_SIZE  0x4000 /* stacks are found from it by masking */
#define STUB_CTX_PAGE  0x1000 /* the shared page, below the stack */
#define STUB_CTX_SLOTS 4096
#define STUB_CTX_AREA  0x4000000 /* all slots of one stub */
#define STUB_CTX_AREAS 0x8000    /* stubs in the memory file: 2 TiB of it, sparse */
#define STUB_TASK_END  0x7ffffffff000 /* the kernel's TASK_SIZE with four-level page tables */

/* Routines of the mapper's text, from STUB_BASE: rt.S and mapper.S. */
#define RT_BATCH      0x1000
#define RT_TRAP_FIRST 0x1100 /* first thread of a stub of the trap platform: makes the mapper */
#define RT_MAPPER     0x1180

/* Routines of the run-time text. */
#define RT_STOP       0x180
#define RT_CLONE      0x1c0
#define RT_PARK       0x200
#define RT_EXIT       0x240
#define RT_FIRST_PARK 0x280
/* From here on (and below RT_FIRST_PARK) a thread has nothing left to do for itself. */
#define RT_FIRST_READY 0x2c0

/* The same for the trap platform. */
#define RT_TRAP_START   0x380 /* %r14: the thread's context */
#define RT_TRAP_HANDLER 0x400
#define RT_TRAP_RESTORE 0x640 /* only named to the kernel, never returned to */

/* The shim (shim.S): its entry, and the borders that tell the sentry how far a thread has come. */
#define RT_SHIM          0x800
#define RT_SHIM_SAVED    0x830
#define RT_SHIM_FLAGS    0x8d0
#define RT_SHIM_PASSED   0x910
#define RT_SHIM_ANSWERED 0x980
#define RT_SHIM_HIT      0x9f0
#define RT_SHIM_OVER     0xa08
#define RT_SHIM_END      0xa20

/* The shared page (struct trap_page). */
#define TC_TURN         0x00
#define TC_SENTRY_WAITS 0x04
#define TC_STUB_WAITS   0x08
#define TC_KIND         0x0c
#define TC_CMD          0x40
#define TC_SPIN         0x44
#define TC_SET_BASES    0x48
#define TC_ARG          0x50
#define TC_FS_BASE      0x80
#define TC_GS_BASE      0x88
#define TC_FRAME        0x90
#define TC_RES          0x98
/* Answers of the sentry to the shim, beside the turn. TC_A_FLAGS is popped from here. */
#define TC_A_FLAGS 0x10
#define TC_A_RAX   0x18
#define TC_A_RCX   0x20
#define TC_A_R11   0x28
#define TC_A_RIP   0x30
#define TC_A_CMD   0x38
/* Registers of a call that came by the shim. */
#define TC_AFTER   0x100
#define TC_RSP     0x108
#define TC_RAX     0x110
#define TC_RDI     0x118
#define TC_RSI     0x120
#define TC_RDX     0x128
#define TC_R10     0x130
#define TC_R8      0x138
#define TC_R9      0x140
#define TC_RBX     0x148
#define TC_RBP     0x150
#define TC_R12     0x158
#define TC_R13     0x160
#define TC_R14     0x168
#define TC_R15     0x170
#define TC_FLAGS   0x178
#define TC_SCRATCH 0x180 /* where the flags are pushed from */
/* Calls that the shim answers itself: by the lowest byte of the number, minus that number, and the result.
 * A key of 0 means number 0, so the sentry has set all of them before a thread comes here. */
#define TC_KEYS    0x800
#define TC_VALUES  0xc00
#define TC_ANSWERS 256

/* By what the turn was passed last. */
#define KIND_FRAME 0
#define KIND_SHIM  1

/* TC_A_CMD */
#define ANSWER_REGS  0
#define ANSWER_FRAME 1 /* make a signal frame */

/* Where a trampoline goes on after an answer of the shim's own, from the address in %r11. */
#define SLOT_OVER_OFF (-11)

/* Whose turn it is. */
#define TURN_GONE   0 /* written by the host when the thread has ended (man 2 set_tid_address) */
#define TURN_STUB   1
#define TURN_SENTRY 2

#define CMD_RESUME 0 /* back to the guest by the frame */
#define CMD_CLONE  2 /* TC_ARG: the new thread's context */
#define CMD_EXIT   3

/* Where recvmsg puts control data. Guest threads may write there: nobody reads it. */
#define STUB_CMSG      STUB_DATA
#define STUB_CMSG_SIZE 24 /* CMSG_SPACE(sizeof(int)) */

#define STUB_SOCK_FD     0
#define STUB_FIRST_MAPFD 1

/* One operation: a raw system call, or OP_RECV_FD. Behind the last one: struct stub_ctl. */
#define OP_SIZE     64
#define OP_MAX      (STUB_OPS_SIZE / OP_SIZE - 1)
#define STUB_CTL    (STUB_OPS + OP_MAX * OP_SIZE)
#define OP_RECV_FD  0x10000
#define OP_OPTIONAL 1 /* flag: failure doesn't end the batch */

/* CLONE_VM | FS | FILES | SIGHAND | THREAD | SYSVSEM, and nothing else */
#define STUB_THREAD_FLAGS 0x00050f00
/* The same with CLONE_CHILD_CLEARTID: the turn of its page */
#define STUB_TRAP_FLAGS 0x00250f00
/* The first without CLONE_FILES: the mapper's descriptors are its own. */
#define STUB_MAPPER_FLAGS 0x00050b00
/* CLONE_PARENT | SIGCHLD */
#define STUB_FORK_FLAGS 0x00008011

#ifndef __ASSEMBLER__
#include <stdint.h>

struct stub_op {
	uint32_t nr, flags;
	uint64_t a[6];
	uint64_t pad;
};
_Static_assert(sizeof(struct stub_op) == OP_SIZE, "stub op layout");

/* trap: what the mapper is to do. */
struct stub_ctl {
	uint32_t seq; /* batches ordered; a futex */
	uint32_t n;   /* operations of the latest */
};

/* To the zygote. ZYG_HELLO carries the read-only descriptor of the file with the STUB_OPS pages; ZYG_TRAP
 * that of the context pages, and makes all stubs from then on those of the trap platform; ZYG_PLAIN takes
 * that back. */
enum { ZYG_HELLO = 1, ZYG_MAKE = 2, ZYG_TRAP = 3, ZYG_PLAIN = 4 };

struct zyg_req {
	uint32_t kind, pad;
	uint64_t ops_off; /* ZYG_MAKE: where in that file the new stub's pages are */
	uint64_t ctx_off; /* ZYG_MAKE, trap: the same for its contexts */
};

/* From the zygote, with the sentry's end of the stub's socket after a successful ZYG_MAKE. */
struct zyg_rep {
	int32_t res;    /* pid or -errno */
	uint32_t flags; /* ZYG_F_* */
};
#define ZYG_F_VDSO_LEFT 1 /* the host sealed its vDSO: it could not be unmapped */
#endif

#endif
