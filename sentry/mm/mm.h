// SPDX-License-Identifier: Apache-2.0
/*
 * A guest address space.
 *
 *   vma   what the guest asked for: [start, end), protection, flags, what is mapped
 *   pma   what backs it: guest range -> (mfile, offset, copy-on-write or not), installed in the stub
 *
 * Private anonymous memory gets its whole pma at mmap time: one sparse range of the mm's own mfile,
 * mapped in one piece, so the host kernel does demand-zero and the sentry sees no faults. Fork makes
 * pmas copy-on-write on both sides; a write fault copies a cluster of pages into the writer's own
 * mfile, or, when nobody else refers to the range any more, just makes it writable again. Private
 * file mappings map the file's own pages (page cache of the host, or tmpfs pages) copy-on-write.
 *
 * Locks: mm.mu (rwmutex, RANK_MM). Reading guest memory takes it for reading, everything that
 * changes vmas or pmas takes it for writing. It may be taken with VFS locks held.
 */
#ifndef SENTRY_MM_MM_H
#define SENTRY_MM_MM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/gaddr.h"
#include "base/mutex.h"
#include "base/ref.h"
#include "platform/platform.h"

struct task;
struct file;
struct mfile;
struct mm;
struct vma;
struct seqbuf;
struct vm_object;

#define MMAP_MIN_ADDR 0x10000UL
/* vm.max_map_count, less what the stub itself has mapped of the host's same number. */
#define MM_MAX_MAP_COUNT 65000

/*
 * What can be mapped beside private anonymous memory: a file, a shared anonymous segment, a SysV
 * segment. Embedded in its owner (inode, shm segment); get/put count uses by vmas.
 */
struct vm_object_ops {
	void (*get)(struct vm_object *o);
	void (*put)(struct vm_object *o);
	/*
	 * Where the bytes [off, off+*len) of the object live. Fills *ret_mf (reference passed to the
	 * caller), *ret_off, cuts *len to what is contiguous there (at least one page). @write: the
	 * page will be written through a shared mapping (allocate it; mark the file modified).
	 * -EFAULT: beyond the end of the file (SIGBUS). Context: mm.mu held for writing.
	 */
	int (*translate)(struct vm_object *o, uint64_t off, uint64_t *len, bool write,
			 struct mfile **ret_mf, uint64_t *ret_off);
	/* msync(MS_SYNC) and fsync of what was written through mappings. May be NULL. */
	int (*sync)(struct vm_object *o, uint64_t off, uint64_t len);
	/* No shared mapping made from now on may ever be written (memfd seals). NULL: it may. */
	bool (*write_sealed)(struct vm_object *o);
	/* A mapping of [off, off+len) was made or removed; for seal checks and truncation. May be NULL. */
	void (*mapped)(struct vm_object *o, struct mm *mm, gaddr_t addr, uint64_t len, uint64_t off,
		       bool shared_writable);
	void (*unmapped)(struct vm_object *o, struct mm *mm, gaddr_t addr, uint64_t len,
			 uint64_t off, bool shared_writable);
};

struct vm_object {
	const struct vm_object_ops *ops;
};

/* ---- life ---- */

/* Empty address space with a fresh stub, one reference and one use. err_ptr on failure. */
struct mm *mm_create(void);
struct mm *mm_get(struct mm *mm);
void mm_put(struct mm *mm);
/* The last user is gone (exit, exec): unmaps everything, kills the stub. Called by the kernel when
 * mm_users falls to zero; the struct itself lives until the last mm_put(). */
struct mm *mm_use(struct mm *mm);   /* one more task; with a reference */
void mm_unuse(struct mm *mm);       /* one task less; drops its reference */
/*
 * One more or less of the tasks that use @mm is being killed, and no guest code of it is to run any more. When it
 * is all of them, the host process is killed at once: a hostile one may have made itself deaf to being called back.
 * Context: the task uses @mm; any locks.
 */
void mm_doom(struct mm *mm);
void mm_undoom(struct mm *mm);
/* fork(): copy-on-write copy of @old, with one use. @self: the caller's context in @old. */
struct mm *mm_fork(struct mm *old, struct plat_ctx *self);
struct plat_as *mm_plat_as(struct mm *mm);

/* ---- what the loader sets and /proc shows ---- */
struct mm_layout {
	gaddr_t start_code, end_code, start_data, end_data;
	gaddr_t start_brk, brk, start_stack;
	gaddr_t arg_start, arg_end, env_start, env_end;
	gaddr_t vdso;
};
void mm_get_layout(struct mm *mm, struct mm_layout *ret);
void mm_set_layout(struct mm *mm, const struct mm_layout *l);
void mm_set_exe(struct mm *mm, struct file *exe); /* takes a reference */
struct file *mm_exe(struct mm *mm);               /* reference or NULL */
void mm_set_auxv(struct mm *mm, const uint64_t *auxv, unsigned n); /* n words, copied */
unsigned mm_auxv(struct mm *mm, uint64_t *buf, unsigned max);
bool mm_dumpable(struct mm *mm);
void mm_set_dumpable(struct mm *mm, int v);
int mm_get_dumpable(struct mm *mm);

/* ---- mapping; all addresses and lengths as the system calls have them. Results: address or -errno.
 * @t is the calling task (limits, capabilities, its plat_ctx for flushing). ---- */
long mm_mmap(struct task *t, gaddr_t addr, uint64_t len, int prot, int flags, struct file *f,
	     uint64_t off);
/* Maps an object that isn't a file (SysV shm). */
long mm_map_object(struct task *t, struct mm *mm, gaddr_t addr, uint64_t len, int prot, int flags,
		   struct vm_object *o, uint64_t off, const char *name);
long mm_munmap(struct task *t, gaddr_t addr, uint64_t len);
long mm_mprotect(struct task *t, gaddr_t addr, uint64_t len, int prot);
long mm_mremap(struct task *t, gaddr_t old, uint64_t old_len, uint64_t new_len, int flags,
	       gaddr_t new_addr);
/* remap_file_pages(2), emulated with mmap as Linux does. */
long mm_remap_file_pages(struct task *t, gaddr_t start, uint64_t size, uint64_t off, int flags);
long mm_brk(struct task *t, gaddr_t brk);
long mm_madvise(struct task *t, gaddr_t addr, uint64_t len, int advice);
long mm_mincore(struct task *t, gaddr_t addr, uint64_t len, gaddr_t vec);
long mm_msync(struct task *t, gaddr_t addr, uint64_t len, int flags);
long mm_mlock(struct task *t, gaddr_t addr, uint64_t len, int flags);
long mm_munlock(struct task *t, gaddr_t addr, uint64_t len);
long mm_mlockall(struct task *t, int flags);
long mm_munlockall(struct task *t);

/*
 * A guest access faulted. Returns 0 when it was resolved and the guest may retry, else the signal
 * to send (SIGSEGV or SIGBUS) with *ret_code set to its si_code.
 */
int mm_handle_fault(struct task *t, const struct plat_trap *trap, int *ret_code);

/* Patched call sites (sentry/mm/patch.c): patches the one whose syscall instruction is at @addr, or sees to
 * that it isn't tried again; takes one back for good; all of an mm's, and that it gets no new ones. */
void mm_patch_call(struct task *t, gaddr_t addr);
void mm_unpatch_call(struct task *t, gaddr_t addr);
void mm_unpatch_all(struct mm *mm);

/* A file shrank: pages of mappings of @o beyond @new_size must fault from now on. Called by file
 * systems after truncation, without inode locks that translate() takes. Pages may be freed for other use
 * only after this has returned (the same goes for mm_object_moved): until then guests have them mapped. */
void mm_object_truncated(struct vm_object *o, uint64_t new_size);
/* The storage behind [off, off+len) of @o moved to another mfile place (copy-up of an overlay file,
 * tmpfs file promoted to an mfile of its own): existing mappings are dropped and fault in again. */
void mm_object_moved(struct vm_object *o, uint64_t off, uint64_t len);

/* ---- statistics and /proc ---- */
struct mm_stat {
	uint64_t total_vm, rss, rss_anon, rss_file, rss_shmem, data, stack, exec, locked, peak_vm,
		peak_rss; /* bytes */
	unsigned map_count;
};
void mm_stat(struct mm *mm, struct mm_stat *ret);
/* peak_rss for the accounts of a thread that ends: what was seen so far, and when nobody else uses the mm, what is there
 * now: an upper bound that costs a host call for each memory file rather than for each piece of memory. */
uint64_t mm_peak_rss(struct mm *mm);
/* Bytes that the OOM killer may hope for: private memory, and what is mapped of the sandbox's files. */
uint64_t mm_oom_weight(struct mm *mm);
void mm_show_maps(struct mm *mm, struct seqbuf *out, bool smaps);
/* What is mapped at @addr: for process_vm_*, shmdt and /proc. False if nothing. */
struct vma_info {
	gaddr_t start, end;
	int prot;
	bool shared;
	struct vm_object *object; /* borrowed; compare only */
	uint64_t off;
};
bool mm_find(struct mm *mm, gaddr_t addr, struct vma_info *ret);

/*
 * A key that is equal for two tasks' addresses exactly when they name the same word of shared
 * memory; for futexes. @shared false: (mm, address). 0 or -EFAULT.
 */
struct futex_key {
	const void *obj; /* mm, or the vm_object */
	uint64_t off;
};
int mm_futex_key(struct task *t, gaddr_t addr, bool shared, bool write, struct futex_key *ret);

#endif
