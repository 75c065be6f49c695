// SPDX-License-Identifier: Apache-2.0
/*
 * Inside of the ptrace platform: ptrace_ctx.c (contexts: life, switch, clone) and ptrace_fp.c. The rest is
 * shared with the trap platform, see platform/host_as.h.
 */
#ifndef PLATFORM_PTRACE_PRIV_H
#define PLATFORM_PTRACE_PRIV_H

#include "platform/host_as.h"

/* ptrace_ctx.c */
long pt_ptrace(int req, int tid, void *addr, void *data);
/*
 * Runs a routine of the stub's text in @ctx (stopped, the caller's) until RT_STOP. @r holds the
 * registers to start with and receives those at the end; the guest's own registers are lost. False:
 * the thread died or did something else.
 */
bool ctx_run_stub(struct plat_ctx *ctx, unsigned routine, struct regs *r);

/* ptrace_fp.c */
int pt_get_fp(struct plat_ctx *ctx, struct fpstate *fp);
int pt_set_fp(struct plat_ctx *ctx, const struct fpstate *fp);
int pt_init_fp(struct plat_ctx *ctx);

#endif
