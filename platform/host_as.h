// SPDX-License-Identifier: Apache-2.0
/*
 * What the platforms with a host process per address space (ptrace, trap) have in common.
 *
 *   host_pool.c  talks to the zygote; spare stubs; reaping of dead ones; the platform thread
 *   host_map.c   queue of mapping operations, descriptors in the stub, batches
 *   host_as.c    address spaces: life, flush
 *   host_ctx.c   contexts: entering and leaving the guest, interrupts, events from siginfo, CPU time
 *   host_pin.c   keeps a guest thread on the CPU of its sentry thread while that pays
 *
 * What differs is behind struct host_ops.
 *
 * Locks: as.mu (RANK_PLAT_AS) > pool locks (RANK_PLATFORM).
 */
#ifndef PLATFORM_HOST_AS_H
#define PLATFORM_HOST_AS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"
#include "platform/platform.h"
#include "platform/stub/layout.h"

#define SPARE_STUBS    4    /* target size of the pool */
#define STUB_MAPFDS    16   /* descriptors of memory files that a stub keeps open */
#define AS_THREADS_MAX 4096 /* host threads of one address space */

/* Signal that brings a guest thread back. Ignored by default, so a stray one to a thread that isn't
 * traced (yet) does nothing. */
#define KICK_SIGNAL SIGURG

struct host_stub {
	int pid, sock;
	uint64_t ops_off;
	struct stub_op *ops; /* written by us, read by the stub, which can't write them */
	struct stub_ctl *ctl;    /* behind them */
	/* trap: the thread that maps, the CPU it is bound to, the batches it was given */
	int mapper, mapper_cpu;
	uint32_t batches;
	/* trap: its context pages, shared with us */
	unsigned area;
	char *pages;
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

struct trap_page;
struct trap_site;
struct trap_sites;

/* (c) constant, (m) mu, (a) atomic */
struct plat_as {
	struct host_stub stub; /* (c) */
	struct mutex mu;
	struct map_op *ops; /* (m) queue, in order */
	unsigned nops, ops_cap;
	struct map_fd fds[STUB_MAPFDS]; /* (m) */
	uint64_t fd_clock;              /* (m) */
	struct list ctxs;               /* (m) of plat_ctx.link */
	int *spares;                    /* (m) tids (trap: slots) of parked host threads */
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
	/* trap's */
	struct list live;         /* (trap.mu) */
	bool gone;                /* (trap.mu) the process has been waited for */
	unsigned reserved;        /* (m) spares promised to a coming ctx_create() */
	int *tids;                /* (m) by slot */
	unsigned *left_slots;     /* (m) slots whose threads were told to exit */
	unsigned nleft, left_cap; /* (m) */
	_Atomic unsigned nslots;  /* (a) context pages ever used */
	struct trap_sites *sites; /* (c) patched call sites; NULL: never any */
};

/* plat_ctx.state */
#define CTX_IN_GUEST \
 1U /* between the check of as.pending and the return from the guest */
#define CTX_INTR \
 2U /* plat_ctx_interrupt(): return PLAT_INTERRUPTED as soon as possible */
#define CTX_KICKED 4U /* KICK_SIGNAL was sent to this stay in the guest */

/* trap_pace.c: what the hand-overs of a context cost. */
struct pace {
	bool spinning, paid;      /* paid: since this trial began, a window was cheaper */
	unsigned calls, longs;    /* in this window */
	unsigned warming;         /* calls of a trial that don't count yet */
	uint64_t start, left;     /* of the window; when the guest was last left */
	uint64_t bound_cost;      /* ns per call when bound to one CPU, 0: not known yet */
	uint64_t retry, gap;      /* when to try spinning next; the last pause between trials */
};

struct plat_ctx {
	struct plat_as *as; /* (c) */
	int tid;            /* (c) */
	_Atomic unsigned state;
	struct list link; /* (as.mu) */
	/* the owner thread's, ptrace: */
	bool exiting;   /* seen on its way out: no further stop will come */
	bool reaped;    /* the host thread is gone and waited for */
	bool cur_valid; /* cur is what the host thread's registers hold */
	struct regs cur;
	/* the owner thread's, trap: */
	struct trap_page *page; /* (c) shared with the stub */
	unsigned slot;          /* (c) */
	char *frame;            /* signal frame of the last hand-over, checked */
	unsigned spin;          /* iterations that the next wait may spin */
	struct pace pace;
	bool in_shim;            /* the thread waits in the shim, not in the signal handler */
	bool shim_sent;          /* it was last resumed by the shim, with shim_out */
	struct regs shim_in, shim_out;
	struct trap_site *site; /* of its last call by the shim */
	/* CPU accounting and pinning */
	_Atomic uint64_t guest_ns,
		entered_ns;        /* time in the guest; start of the current stay or 0 */
	_Atomic uint64_t cpu_seen; /* largest CPU time told so far */
	_Atomic int pinned;        /* CPU, or -1 */
	bool inherited;            /* both may run where somebody else's bond has left them */
	unsigned quick;            /* short stays in a row */
	int owner_tid;             /* (c) the sentry thread */
	uint64_t bond_ns;          /* since when they are bound to each other */
	uint64_t seen_ns;          /* (pin lock) guest_ns at the watcher's last look */
	struct list pin_link;      /* (pin lock) */
};

/* What differs. Set by the platform's init before anything else. */
struct host_ops {
	/* Before a stub is made, and after it is gone; may be NULL. */
	int (*stub_prepare)(struct host_stub *s, struct zyg_req *req);
	void (*stub_drop)(struct host_stub *s);
	/* When it has been made: 0, or -errno when it is dead. May be NULL. */
	int (*stub_ready)(struct host_stub *s);
	/*
	 * Runs the first @n operations of the ops pages; by @ctx, which is stopped and the caller's, unless
	 * own_mapper. False: one failed, or the thread died or did something else. Context: as.mu.
	 */
	bool (*run_ops)(struct plat_as *as, struct plat_ctx *ctx, unsigned n);
	bool own_mapper; /* it needs no context, and guest threads may run meanwhile */
	/* Waits until the killed process is gone, and frees contexts that were left. */
	void (*bury)(struct plat_as *as);
};
extern const struct host_ops *host_ops;

/* host_pool.c */
/* Greets the zygote. 0 or -errno; later calls do nothing. */
int pool_init(const struct plat_boot *boot);
/* From now on stubs are of the trap platform, with context pages from @fd; or of the other one (-1). */
int pool_set_contexts(int fd);
/* Starts the thread that fills the pool. */
int pool_start(void);
/* A fresh stub; its end; or into the pool with it, before pool_start(). */
int pool_make(struct host_stub *ret);
void pool_discard(struct host_stub *s);
void pool_keep(const struct host_stub *s);
/* The read-only descriptor of the file with all ops pages. */
int pool_ops_fd(void);
int pool_take(struct host_stub *ret);
void pool_reap(
	struct plat_as *as); /* takes over a killed address space; frees it when reaped */
/* Waits for the end of a child. */
void pool_wait_gone(int tid);
uint64_t mono_ns(void);
/* A detached thread of the platform's, with all signals blocked but those of safecopy. */
int host_start_thread(void *(*fn)(void *));

/* host_map.c: all but the drop need as.mu */
int host_as_map(struct plat_as *as, gaddr_t addr, uint64_t len, int prot, struct mfile *mf,
		uint64_t off, bool writable_fd);
int host_as_unmap(struct plat_as *as, gaddr_t addr, uint64_t len);
int host_as_protect(struct plat_as *as, gaddr_t addr, uint64_t len, int prot);
void host_as_populate(struct plat_as *as, gaddr_t addr, uint64_t len, bool write);
/* Carries the queue out by @ctx, as host_ops.run_ops has it. False: the process is dead. */
bool map_apply_locked(struct plat_as *as, struct plat_ctx *ctx);
void map_drop_ops(struct plat_as *as);
/* False: the socket is full or gone. Context: none. */
bool host_send_fd(const struct host_stub *s, int fd);
bool map_clear_locked(struct plat_as *as);
void host_log_failed_op(const struct plat_as *as, uint64_t at, int err);

/* host_as.c */
void as_kill(struct plat_as *as);
struct plat_as *host_as_create(void);
void host_as_destroy(struct plat_as *as);
int host_as_flush(struct plat_as *as, struct plat_ctx *self);
uint64_t host_as_map_seq(struct plat_as *as);
int host_as_host_pid(struct plat_as *as);
/* One more parked host thread. Context: as.mu held. */
void as_add_spare_locked(struct plat_as *as, int id);

/* host_ctx.c */
/* Enters the guest's state: false when an interrupt is due first. */
bool ctx_enter(struct plat_ctx *ctx);
void ctx_leave(struct plat_ctx *ctx);
void ctx_kick(struct plat_ctx *ctx);
/* The signal alone. */
void ctx_send_kick(struct plat_ctx *ctx);
/* Around each stay: @from is what ctx_account_start() returned. */
uint64_t ctx_account_start(struct plat_ctx *ctx);
uint64_t ctx_account(struct plat_ctx *ctx, uint64_t from); /* the time now */
/* Carries out what is queued. False: the process is dead. */
bool ctx_apply_pending(struct plat_ctx *ctx);
void host_ctx_interrupt(struct plat_ctx *ctx);
uint64_t host_ctx_cpu_ns(struct plat_ctx *ctx);
/* What a signal of the host's to a guest thread means. PLAT_EVENT_COUNT: nothing of the guest's. */
enum plat_event host_signal_event(const siginfo_t *si, struct regs *r, struct plat_trap *trap);
/* Registers that the CPU or the host refuses. */
enum plat_event host_bad_registers(struct plat_trap *trap);

/* host_pin.c */
int pin_init(void);
void pin_add(struct plat_ctx *ctx);
void pin_del(struct plat_ctx *ctx);
/* Around each stay in the guest; @stay_ns: how long it was, @now: mono_ns(). */
void pin_enter(struct plat_ctx *ctx);
void pin_leave(struct plat_ctx *ctx, uint64_t stay_ns, uint64_t now);
/* Ends a bond that is in the way. */
void pin_release(struct plat_ctx *ctx);

#endif
