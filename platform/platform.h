// SPDX-License-Identifier: Apache-2.0
/*
 * The platform: how guest code runs and how its calls and faults reach the sentry. One interface,
 * several implementations (ptrace, trap, kvm) under the same tests.
 *
 *   plat_as   a guest address space: one host process ("stub"), which holds only descriptors of
 *             memory that its guest may map anyway
 *   plat_ctx  one guest thread: one host thread of that process, driven by one sentry thread
 *
 * Mapping calls only queue work. It is done, in one batch, before any thread of the address space
 * next runs guest code, or by plat_as_flush(). So a caller holds its mm lock, changes what it
 * must, and goes on; guest code never sees half a batch. When threads of the address space may be
 * running right now (another task's mm, or a multi-threaded one) and the change takes access away
 * (unmap, protect, replace), the caller uses plat_as_flush(), which returns only when no guest
 * thread can use the old mapping any more.
 *
 * Everything a stub hands over is hostile: registers are data, and the struct plat_trap is filled
 * from what the host kernel reports, never from what the stub wrote, where that makes a difference.
 */
#ifndef PLATFORM_PLATFORM_H
#define PLATFORM_PLATFORM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/gaddr.h"
#include "platform/regs.h"

struct mfile;

/* Guest addresses end here. Above live the stub's own code and data; the guest's mm never hands out
 * or accepts anything there. */
#define GUEST_TASK_SIZE 0x7ffff0000000ULL

enum plat_event {
	PLAT_SYSCALL,     /* regs->orig_rax holds the number, rip is behind the instruction */
	PLAT_FAULT,       /* page fault: trap.addr, trap.signo SIGSEGV or SIGBUS */
	PLAT_EXCEPTION,   /* other CPU exception: trap.signo/code/addr as the host's siginfo has it */
	PLAT_INTERRUPTED, /* plat_ctx_interrupt(), or nothing worth telling: look around, go on */
	PLAT_DEAD,        /* the host process is gone (killed from outside): the guest process dies */
	PLAT_EVENT_COUNT
};

struct plat_trap {
	uint64_t addr;     /* PLAT_FAULT: faulting address */
	int signo, code;   /* as in siginfo */
	bool compat;       /* PLAT_SYSCALL made by the 32-bit entry (int 0x80): not served */
	bool write_known;  /* the platform could tell reads from writes */
	bool write, exec;  /* valid only with write_known */
	uint64_t map_seq;  /* plat_as_map_seq() when the guest was last resumed before this event */
	uint64_t hot_call; /* PLAT_SYSCALL: address of its instruction when that is worth patching */
	uint64_t unpatch;  /* PLAT_INTERRUPTED: a patched call site that must be taken back first */
};

struct plat_as;
struct plat_ctx;

/* How the stub side starts; made by the launcher before the sentry is confined. */
struct plat_boot {
	int zygote_fd;  /* socket to the process that forks stubs; owned by the platform */
	int zygote_pid; /* in the sentry's pid namespace */
	int ctx_fd;     /* trap: memory file of the pages shared with stubs; owned by the platform */
	unsigned max_tasks; /* set by the caller: host threads of all stubs together are bounded by it */
	int root; /* set by the caller: directory that becomes the stubs' root; 0: they keep the caller's */
};

/*
 * Patched call sites: calls that reach the sentry without a signal. The platform decides what a site
 * becomes, and knows whose registers point into one; the mm owns the text, and installs it
 * (sentry/mm/patch.c). All with the mm's lock held for writing.
 */
#define PLAT_SLOT_MAX   80          /* bytes of a trampoline */
#define PLAT_PATCH_AREA 0x400000ULL /* a range of guest addresses for trampolines, mostly empty */
#define PLAT_SITE_LEN   5           /* bytes that are replaced */
#define PLAT_SITE_HEAP  256         /* what prepare() and refuse() may make the heap hold */
#define PLAT_SITES_MAX  3072        /* so many times, of one address space */
#define PLAT_AREA_HEAP  2304        /* the same for add_area() */

struct plat_patch {
	uint64_t addr, slot;
	unsigned slot_len; /* 0: it is there already */
	uint8_t text[PLAT_SITE_LEN], slot_text[PLAT_SLOT_MAX];
};

enum plat_drop {
	PLAT_DROP_GONE,    /* its text is gone */
	PLAT_DROP_UNDONE,  /* its text is what it was */
	PLAT_DROP_REFUSED, /* the same, and it is never to be patched again */
};

struct plat_patch_ops {
	/* What to do for the syscall instruction at @addr, with @n bytes of its page. -ENOSPC: there is
	 * no area in reach; any other error: it can't be patched. */
	int (*prepare)(struct plat_as *as, uint64_t addr, const uint8_t *text, unsigned n,
		       struct plat_patch *ret);
	/* Don't ask for this one again. */
	void (*refuse)(struct plat_as *as, uint64_t addr);
	/* The @i-th best range for an area that @addr can reach; false: no more. */
	bool (*area_window)(struct plat_as *as, uint64_t addr, unsigned i, uint64_t *ret_lo,
			    uint64_t *ret_hi);
	void (*add_area)(struct plat_as *as, uint64_t start);
	/* The trampoline is there, or its mapping is queued; the text's is queued next. */
	void (*commit)(struct plat_as *as, const struct plat_patch *p);
	/* A live site whose text or trampoline lies in the range, with its original text; false: none. */
	bool (*next)(struct plat_as *as, uint64_t start, uint64_t end, struct plat_patch *ret);
	/* Not live any more; what restores the text has been queued. */
	void (*drop)(struct plat_as *as, uint64_t addr, enum plat_drop why);
	void (*drop_areas)(struct plat_as *as, uint64_t start, uint64_t end);
	/* @child has a copy of @parent's memory. */
	void (*fork)(struct plat_as *child, struct plat_as *parent);
};

/* A call whose answer is known beforehand, whatever its arguments. */
struct plat_answer {
	unsigned nr; /* < 256 */
	uint32_t value;
};

struct platform {
	const char *name;
	/* A hostile guest can run on while it seems to have handed over: what is taken away from it may be
	 * given to others only after as_flush() or as_destroy(). */
	bool runs_on;

	/* Called once in the sentry, confined already. When it fails, that of another may be tried. */
	int (*init)(const struct plat_boot *boot);

	/* A fresh, empty address space from the pool of spare stubs. err_ptr on failure. */
	struct plat_as *(*as_create)(void);
	/* Kills the host process. All contexts are gone by now. Nothing of the guest's can use its mappings
	 * when this returns. */
	void (*as_destroy)(struct plat_as *as);
	/* Kills the host process ahead of that: every switch into it ends with PLAT_DEAD. Any thread, any locks. */
	void (*as_kill)(struct plat_as *as);

	/*
	 * Queues the mapping of @len bytes (page aligned) of @mf from byte @off at @addr, replacing
	 * what is there. @prot: PROT_*. @writable_fd: the stub may ever write to the file
	 * (a shared mapping, or the mm's own memory); otherwise it is given the read-only descriptor.
	 */
	int (*as_map)(struct plat_as *as, gaddr_t addr, uint64_t len, int prot, struct mfile *mf,
		      uint64_t off, bool writable_fd);
	int (*as_unmap)(struct plat_as *as, gaddr_t addr, uint64_t len);
	int (*as_protect)(struct plat_as *as, gaddr_t addr, uint64_t len, int prot);
	/* MADV_POPULATE_READ/WRITE ahead of the guest's touching it; a hint, never an error. */
	void (*as_populate)(struct plat_as *as, gaddr_t addr, uint64_t len, bool write);
	/* Returns when everything queued is in force for every thread of @as. @self: the calling
	 * task's own context in @as, or NULL. Context: no lock that a task needs to leave switch. */
	int (*as_flush)(struct plat_as *as, struct plat_ctx *self);
	/* Number of batches applied so far: lets the fault handler see that somebody else has
	 * resolved a fault between the guest's access and now. */
	uint64_t (*as_map_seq)(struct plat_as *as);

	/* A host thread in @as for the calling sentry thread, which alone may switch() to it: the
	 * process's first thread, or one that ctx_prepare_clone() has made. */
	struct plat_ctx *(*ctx_create)(struct plat_as *as);
	void (*ctx_destroy)(struct plat_ctx *ctx);
	/* Before ctx_create() by another sentry thread: makes sure that @as has a spare host thread
	 * for it to take. Called by the cloning task with its own context. 0 or -errno. */
	int (*ctx_prepare_clone)(struct plat_ctx *self);

	/* Runs the guest from @r until something happens; @r and @trap are filled in. */
	enum plat_event (*ctx_switch)(struct plat_ctx *ctx, struct regs *r, struct plat_trap *trap);
	/* Makes a running or the next ctx_switch() return PLAT_INTERRUPTED. Any thread. */
	void (*ctx_interrupt)(struct plat_ctx *ctx);

	int (*ctx_get_fp)(struct plat_ctx *ctx, struct fpstate *fp);
	/* -EINVAL when the CPU would refuse the state (reserved bits): nothing was changed. */
	int (*ctx_set_fp)(struct plat_ctx *ctx, const struct fpstate *fp);
	/* Resets FP state to that of a fresh program (exec). */
	int (*ctx_init_fp)(struct plat_ctx *ctx);
	/* Calls that the platform may answer itself, instead of those set before; may be NULL. By the owner. */
	void (*ctx_set_answers)(struct plat_ctx *ctx, const struct plat_answer *a, unsigned n);
	/* CPU time of the guest thread so far in ns (user side). */
	uint64_t (*ctx_cpu_ns)(struct plat_ctx *ctx);
	/* Host pid of the address space, for posture tests and debug output. */
	int (*as_host_pid)(struct plat_as *as);
	const struct plat_patch_ops *patch; /* NULL: call sites are left as they are */
};

/* The platform of this sentry, set once at start. */
extern const struct platform *plat;

extern const struct platform plat_ptrace, plat_trap;

/* By name, NULL if there is none of it in this build. */
const struct platform *platform_find(const char *name);
/* Is it one of them, or "auto"? */
bool platform_known(const char *name);
/* Sets plat and calls its init(). "auto" is the best that works here; what doesn't is logged. 0 or -errno. */
int platform_start(const char *name, const struct plat_boot *boot);

/*
 * Launcher side, unconfined: starts the process that forks stubs, as a child of the calling process,
 * in a user namespace of its own below the caller's (so that the caller, its owner, may trace it
 * though it isn't dumpable). Fills @boot.
 */
int platform_spawn_zygote(struct plat_boot *boot);

#endif
