// SPDX-License-Identifier: Apache-2.0
/*
 * Inside of the ptrace platform.
 *
 *   ptrace_pool.c  talks to the zygote; spare stubs; reaping of dead ones; the platform thread
 *   ptrace_map.c   queue of mapping operations, descriptors in the stub, batches
 *   ptrace_as.c    address spaces: life, flush
 *   ptrace_ctx.c   contexts: switch, interrupt, clone, FP state
 *   ptrace_pin.c   keeps a guest thread on the CPU of its sentry thread while that pays
 *
 * Locks: as.mu (RANK_PLAT_AS) > pool locks (RANK_PLATFORM).
 */
#ifndef PLATFORM_PTRACE_PRIV_H
#define PLATFORM_PTRACE_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"
#include "platform/platform.h"
#include "platform/stub/layout.h"

#define SPARE_STUBS    4    /* target size of the pool */
#define STUB_MAPFDS    16   /* descriptors of memory files that a stub keeps open */
#define AS_THREADS_MAX 8192 /* host threads of one address space */

/* Signal that brings a guest thread back. Ignored by default, so a stray one to a thread that isn't
 * traced (yet) does nothing. */
#define KICK_SIGNAL SIGURG

struct pt_stub {
	int pid, sock;
	uint64_t ops_off;
	struct stub_op *ops; /* written by us, read by the stub: never read back */
};

enum map_kind {
	MAP_OP_MAP,
	MAP_OP_UNMAP,
	MAP_OP_PROTECT,
	MAP_OP_POPULATE
};

struct map_op {
	enum map_kind kind;
	int prot; /* MAP, PROTECT: PROT_*; POPULATE: the madvise advice */
	uint64_t addr, len, off;
	struct mfile *mf; /* reference held until the op is done */
	bool writable;
};

struct map_fd {         /* descriptor STUB_FIRST_MAPFD + index in the stub */
	uint64_t mf_id; /* 0: closed */
	bool writable;
	uint64_t used; /* for LRU: value of as.fd_clock */
};

/* (c) constant, (m) mu, (a) atomic */
struct plat_as {
	struct pt_stub stub; /* (c) */
	struct mutex mu;
	struct map_op *ops; /* (m) queue, in order */
	unsigned nops, ops_cap;
	struct map_fd fds[STUB_MAPFDS]; /* (m) */
	uint64_t fd_clock;              /* (m) */
	struct list ctxs;               /* (m) of plat_ctx.link */
	int *spares;                    /* (m) tids of parked, untraced host threads */
	unsigned nspare, spare_cap;
	unsigned nctx, nthreads; /* (m) contexts; host threads alive */
	_Atomic bool multi;      /* (a) ever had a second context */
	_Atomic bool dead;       /* (a) process killed or found dead */
	_Atomic bool pending;    /* (a) nops != 0 */
	_Atomic uint64_t seq;    /* (a) batches applied */
	_Atomic unsigned
		waiters; /* (a) flushers that wait for contexts to leave the guest */
	struct cond left;
	struct list reap; /* in the pool's list after as_destroy */
};

/* plat_ctx.state */
#define CTX_IN_GUEST \
 1U /* between the check of as.pending and the return from the guest */
#define CTX_INTR \
 2U /* plat_ctx_interrupt(): return PLAT_INTERRUPTED as soon as possible */
#define CTX_KICKED 4U /* KICK_SIGNAL was sent to this stay in the guest */

struct plat_ctx {
	struct plat_as *as; /* (c) */
	int tid;            /* (c) */
	_Atomic unsigned state;
	struct list link; /* (as.mu) */
	/* the owner thread's: */
	bool exiting;   /* seen on its way out: no further stop will come */
	bool reaped;    /* the host thread is gone and waited for */
	bool cur_valid; /* cur is what the host thread's registers hold */
	struct regs cur;
	/* CPU accounting and pinning */
	_Atomic uint64_t guest_ns,
		entered_ns;        /* time in the guest; start of the current stay or 0 */
	_Atomic uint64_t cpu_seen; /* largest CPU time told so far */
	_Atomic int pinned;        /* CPU, or -1 */
	unsigned quick;            /* short stays in a row */
	int owner_tid;             /* (c) the sentry thread */
	uint64_t bond_ns;          /* since when they are bound to each other */
	uint64_t seen_ns;          /* (pin lock) guest_ns at the watcher's last look */
	struct list pin_link;      /* (pin lock) */
};

/* ptrace_pool.c */
int pool_init(const struct plat_boot *boot);
int pool_take(struct pt_stub *ret);
void pool_reap(
	struct plat_as *as); /* takes over a killed address space; frees it when reaped */
uint64_t mono_ns(void);
/* A detached thread of the platform's, with all signals blocked but those of safecopy. */
int pt_start_thread(void *(*fn)(void *));

/* ptrace_map.c: all but the drop need as.mu */
int pt_as_map(struct plat_as *as, gaddr_t addr, uint64_t len, int prot, struct mfile *mf,
	      uint64_t off, bool writable_fd);
int pt_as_unmap(struct plat_as *as, gaddr_t addr, uint64_t len);
int pt_as_protect(struct plat_as *as, gaddr_t addr, uint64_t len, int prot);
void pt_as_populate(struct plat_as *as, gaddr_t addr, uint64_t len, bool write);
/* Carries the queue out by @ctx, which is stopped and the caller's. False: the process is dead. */
bool map_apply_locked(struct plat_as *as, struct plat_ctx *ctx);
void map_drop_ops(struct plat_as *as);

/* ptrace_as.c */
void as_kill(struct plat_as *as);
struct plat_as *pt_as_create(void);
void pt_as_destroy(struct plat_as *as);
int pt_as_flush(struct plat_as *as, struct plat_ctx *self);
uint64_t pt_as_map_seq(struct plat_as *as);
int pt_as_host_pid(struct plat_as *as);

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

/* ptrace_pin.c */
int pin_init(void);
void pin_add(struct plat_ctx *ctx);
void pin_del(struct plat_ctx *ctx);
/* Around each stay in the guest; @stay_ns: how long it was, @now: mono_ns(). */
void pin_enter(struct plat_ctx *ctx);
void pin_leave(struct plat_ctx *ctx, uint64_t stay_ns, uint64_t now);

#endif
