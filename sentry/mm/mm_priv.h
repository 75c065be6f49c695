// SPDX-License-Identifier: Apache-2.0
/*
 * Inside of a guest address space: shared by the files of sentry/mm/ only.
 *
 * Three trees of extents hang off an mm:
 *
 *   vmas  what the guest asked for
 *   pmas  what is installed in the stub. Invariant: for each pma the stub has (or has queued) a
 *         mapping of the same pages with the rights pma_prot() says; a range of a vma without a pma
 *         isn't mapped in the stub and is filled by the fault handler
 *   resv  ranges of the mm's own mfile that are set aside for guest addresses not backed yet, in
 *         windows of OWN_WINDOW, so that neighbouring private pages get neighbouring file pages and
 *         stay one host mapping however piecemeal they come (brk, thread stacks, copy-on-write)
 *
 * References on file pages: a PMA_COUNTED pma (private memory) and a resv extent hold one reference
 * on each page. Pages of objects (files, shared segments) aren't counted by us: their owner frees
 * them only after mm_object_truncated()/mm_object_moved() has returned.
 *
 * Whatever an operation takes away is put on mm->gc_* and let go by mm_write_unlock(), after the flush
 * (or, where none was needed, once the batch with the replacement is in force): no page is reused while another thread may still have it mapped, and no file is closed (which may
 * take VFS locks) below mm.mu.
 *
 * Lock order: mm.mu > objmap table, mm.pin_mu (RANK_MM_SIDE) > platform, INODE_PAGES, MFILE.
 * Field key: (m) mm.mu for writing, either way for reading; (a) atomic; (c) const after creation
 */
#ifndef SENTRY_MM_MM_PRIV_H
#define SENTRY_MM_MM_PRIV_H

#include <stdatomic.h>
#include <sys/mman.h>

#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/mm.h"

#include <bsd/sys/tree.h> /* after base/compiler.h: both name attributes, ours win */

/* vma flags */
#define VMF_SHARED 0x0001u
#define VMF_GROWSDOWN 0x0002u
#define VMF_NORESERVE 0x0004u
#define VMF_DONTFORK 0x0008u
#define VMF_WIPEONFORK 0x0010u
#define VMF_LOCKED 0x0020u
#define VMF_DONTDUMP 0x0040u
#define VMF_SPECIAL 0x0080u /* [vdso], [vvar]: never merged, grown, locked or madvised */
#define VMF_HUGEPAGE 0x0100u
#define VMF_NOHUGEPAGE 0x0200u
#define VMF_MERGEABLE 0x0400u
#define VMF_MAYREAD 0x1000u /* mprotect may give these */
#define VMF_MAYWRITE 0x2000u
#define VMF_MAYEXEC 0x4000u
#define VMF_LOCKONFAULT 0x8000u
#define VMF_RANDREAD 0x10000u /* MADV_RANDOM */
#define VMF_SEQREAD 0x20000u
#define VMF_MAYALL (VMF_MAYREAD | VMF_MAYWRITE | VMF_MAYEXEC)

struct vma {
	RB_ENTRY(vma) rb;
	uint64_t start, end;
	int prot;
	uint32_t flags;
	struct vm_object *obj; /* use counted by ops->get/put; NULL: private anonymous */
	uint64_t off;          /* in obj, of start */
	struct file *file;     /* reference, for /proc; NULL without one */
	char *name;            /* heap, instead of a file's: "[vdso]", "/SYSV..."; or NULL */
	struct vma *gc_next;
};

#define PMA_COUNTED 1u /* private memory: a page reference each */
#define PMA_RO 2u      /* a write must fault first: copy-on-write, or shared and not yet dirty */

struct pma {
	RB_ENTRY(pma) rb;
	uint64_t start, end;
	struct mfile *mf; /* reference */
	uint64_t off;
	unsigned flags;
	struct pma *gc_next;
};

#define VMA_HEAP (sizeof(struct vma) + sizeof(struct pma)) /* charged for each (sentry/kernel/kmem.h) */

RB_HEAD(vma_tree, vma);
RB_HEAD(pma_tree, pma);

#define OWN_WINDOW (64UL << 20) /* unit of reservation in the mm's own mfile */
#define LAZY_MIN (256UL << 30)    /* anonymous mappings from this size on are backed by faults ... */
#define LAZY_WINDOW (1UL << 30)   /* ... in windows of this (ASan's shadow, JVM heaps) */
#define STACK_GUARD_GAP (256 * PAGE_SIZE)
#define COW_CLUSTER_MIN 16   /* pages copied by one write fault */
#define COW_CLUSTER_MAX 128  /* ... when faults come in sequence */
#define FILE_CLUSTER (2UL << 20) /* shared file pages made writable by one fault */
#define EAGER_PIECES_MAX 16  /* host mappings made at mmap time for one file mapping */
#define AUXV_MAX 64          /* words */
#define MCL_POPULATE_MAX (4UL << 30) /* mlockall() populates no larger address space */
#define MM_DEFAULT_COMMIT_MAX (1ULL << 44) /* heuristic overcommit without a memory limit */

struct vma_load;
struct clean_page;

struct mm {
	struct ref ref;
	_Atomic int users, doomed; /* tasks; those of them that are being killed */
	struct rwmutex mu;
	struct plat_as *as;   /* (c) until the last user leaves; NULL afterwards */
	struct mfile *own;    /* (m) private memory; made at first need */
	struct vma_tree vmas; /* (m) */
	struct pma_tree pmas; /* (m) */
	struct pma_tree resv; /* (m) */
	_Atomic(struct vma *) vma_hint; /* (a) last found; reset by writers */
	_Atomic(struct pma *) pma_hint;

	unsigned map_count;                                    /* (m) */
	uint64_t total_vm, data_vm, stack_vm, exec_vm, locked_vm; /* (m) bytes */
	uint64_t peak_vm;                                      /* (m) */
	_Atomic uint64_t peak_rss;
	uint64_t mmap_base;           /* (m) top of the top-down area */
	uint64_t gap_top, gap_skipped; /* (m) see find_gap_topdown() */
	uint32_t def_flags;           /* (m) MCL_FUTURE */
	struct mm_layout layout;      /* (m) */
	struct file *exe;             /* (m) reference */
	uint64_t auxv[AUXV_MAX];      /* (m) */
	unsigned nauxv;               /* (m) */
	_Atomic int dumpable;
	uint32_t pkeys;               /* (m) bits of allocated protection keys; none exist here */

	struct hot_pages *hot; /* (m) reference; what forks copy at once, or NULL */
	unsigned hot_faults;   /* (m) so many more are noted after a fork */
	uint64_t cow_next;   /* (m) end of the last copied cluster */
	unsigned cow_pages;  /* (m) its size */
	uint64_t queued_seq; /* (m) as_map_seq() when we last queued something */
	bool need_flush;     /* (m) rights were taken away since the last flush */
	bool loading;        /* (m) no thread has run in it yet: nothing to flush */
	bool forked;         /* (m) others may refer to pages of the own mfile */
	struct clean_page *clean; /* while a checkpoint is taken (mm_freeze.c) */
	struct vma_load *loads; /* while an image is loaded (mm_state.c) */
	bool load_dead;
	_Atomic bool no_patches; /* (a) call sites are left as they are */
	unsigned patch_charges;  /* (m) PLAT_SITE_HEAP each (sentry/kernel/kmem.h) */
	uint64_t patch_area_heap; /* (m) charged in the same way */
	struct pma *gc_pmas; /* (m) removed by the operation under way */
	struct pma *lazy_pmas; /* (m) removed earlier; freed when the batch counter passes lazy_seq */
	uint64_t lazy_seq;   /* (m) */
	struct vma *gc_vmas; /* (m) */

	struct mutex pin_mu; /* RANK_MM_SIDE */
	struct cond pin_cond;
	_Atomic unsigned pins;      /* iter_pin()s in force */
	_Atomic unsigned pin_waits; /* writers waiting for none */
};

/* ---- vma.c ---- */
struct vma *vma_find(struct mm *mm, uint64_t addr);     /* covers @addr, or NULL */
struct vma *vma_find_ge(struct mm *mm, uint64_t addr);  /* first with end > @addr, or NULL */
struct vma *vma_next(struct vma *v);
struct vma *vma_prev(struct vma *v);
#define for_each_vma(v, mm) for (v = vma_find_ge((mm), 0); v; v = vma_next(v))
struct vma *vma_alloc(uint64_t start, uint64_t end, int prot, uint32_t flags,
		      struct vm_object *obj, uint64_t off, struct file *file, const char *name);
void vma_insert(struct mm *mm, struct vma *v); /* takes over */
/* Splits @v at @addr (inside it); returns the upper half. */
struct vma *vma_split(struct mm *mm, struct vma *v, uint64_t addr);
/* Makes vma borders at @start and @end. -ENOMEM when that exceeds the map count. */
int vma_isolate(struct mm *mm, uint64_t start, uint64_t end);
/* Merges neighbours that became alike in and around [start, end). */
void vma_merge_range(struct mm *mm, uint64_t start, uint64_t end);
void vma_remove(struct mm *mm, struct vma *v); /* to gc */
void vma_set_prot_flags(struct mm *mm, struct vma *v, int prot, uint32_t flags);
/* Moves the borders of @v; accounting included. */
void vma_resize(struct mm *mm, struct vma *v, uint64_t start, uint64_t end);
/* Is [start, start+len) wholly covered by vmas? */
bool vma_covered(struct mm *mm, uint64_t start, uint64_t end);
bool vma_any(struct mm *mm, uint64_t start, uint64_t end);
/* Free range of @len within [low, high), the highest one. 0 if none. */
uint64_t vma_find_gap(struct mm *mm, uint64_t len, uint64_t low, uint64_t high);
void vma_destroy(struct vma *v);

static inline uint64_t vma_obj_off(const struct vma *v, uint64_t addr)
{
	return v->off + (addr - v->start);
}

static inline bool vma_anon(const struct vma *v)
{
	return !v->obj;
}

static inline bool vma_shared(const struct vma *v)
{
	return (v->flags & VMF_SHARED) != 0;
}

/* ---- pma.c ---- */
struct pma *pma_find(struct mm *mm, uint64_t addr);
struct pma *pma_find_ge(struct mm *mm, uint64_t addr);
struct pma *pma_next(struct pma *p);
/* Takes over the reference on @mf (and those on its pages with PMA_COUNTED). Merges. */
void pma_insert(struct mm *mm, uint64_t start, uint64_t end, struct mfile *mf, uint64_t off,
		unsigned flags);
void pma_isolate(struct mm *mm, uint64_t start, uint64_t end);
/* Forgets the backing of the range (to gc); the caller replaces or unmaps it in the stub. */
void pma_remove(struct mm *mm, uint64_t start, uint64_t end);
void pma_set_flags(struct mm *mm, uint64_t start, uint64_t end, unsigned clear, unsigned set);
/* Moves the backing of [from, from+len) to @to, where there is none. Stub: caller. */
void pma_move(struct mm *mm, uint64_t from, uint64_t len, uint64_t to);
void pma_gc(struct pma *list);
int pma_prot(const struct vma *v, const struct pma *p);
/* A sparse range of the own mfile for guest address @start; *ret_len <= @len. One page reference each,
 * and one on *ret_mf for the caller. */
int own_alloc(struct mm *mm, uint64_t start, uint64_t len, struct mfile **ret_mf,
	      uint64_t *ret_off, uint64_t *ret_len);
void resv_clear(struct mm *mm, uint64_t start, uint64_t end);
void resv_forget(struct mm *mm);
/* Stub operations, recorded in queued_seq. */
int stub_map_range(struct mm *mm, struct vma *v, uint64_t start, uint64_t end);
int stub_unmap(struct mm *mm, uint64_t start, uint64_t end);
/* Reinstalls the rights of every pma in [start, end) of @v. */
int stub_protect(struct mm *mm, struct vma *v, uint64_t start, uint64_t end);

/* ---- hot_pages.c ---- */
/* @mm, the child, shares what is remembered of its parent's family. */
void hot_fork(struct mm *mm, struct mm *old);
void hot_put(struct mm *mm);
/* A write fault at the page @addr that copied. */
void hot_note(struct mm *mm, uint64_t addr);
/* The first page in [start, end) that is remembered; @end: none. */
uint64_t hot_next(struct mm *mm, uint64_t start, uint64_t end);
/* Gives the child a copy of the page, and the parent a writable one of its own (the caller sees to the child's stub). False:
 * it is to be shared. */
bool hot_copy(struct mm *mm, struct mm *old, struct vma *ov, uint64_t addr);

/* ---- mm_freeze.c ---- */

/* A page with a patched call site, as the image is to have it. By address. */
struct clean_page {
	struct clean_page *next;
	uint64_t addr;
	struct mfile *mf; /* reference, and one on the page; NULL: it is the file's page again */
	uint64_t off;
};

/* ---- mm.c ---- */
void mm_read_lock(struct mm *mm);
void mm_read_unlock(struct mm *mm);
void mm_write_lock(struct mm *mm);
/* Flushes if rights were taken away and other threads may be running, then frees what was removed.
 * @t: the calling task or NULL. */
void mm_write_unlock(struct mm *mm, struct task *t);
/* Waits until no iter_pin() is in force. Context: mm.mu held for writing. */
void mm_wait_unpinned(struct mm *mm);
uint64_t mm_commit_limit(void);

/* ---- mmap.c ---- */
struct map_req {
	uint64_t addr, len;
	int prot;
	uint32_t flags; /* VMF_* */
	struct vm_object *obj;
	uint64_t off;
	struct file *file;
	const char *name;
};
/* Puts a mapping at a place that is checked and free, or is replaced. Context: mm.mu for writing. */
int map_at(struct mm *mm, const struct map_req *r);
int unmap_range(struct mm *mm, uint64_t start, uint64_t end);
/* Where a mapping goes: @addr hint or fixed. Address or -errno. */
long pick_address(struct task *t, struct mm *mm, uint64_t addr, uint64_t len, int flags);
/* -ENOMEM: RLIMIT_AS, RLIMIT_DATA, overcommit. */
int check_limits(struct task *t, struct mm *mm, uint64_t len, int prot, uint32_t flags, bool anon);
bool may_lock(struct task *t, struct mm *mm, uint64_t extra);
/* Does private writable memory like this count as data? */
bool is_data(int prot, uint32_t flags);

/* ---- fault.c ---- */
enum fault_kind { FAULT_READ, FAULT_WRITE, FAULT_EXEC, FAULT_ANY };
/* Backs private anonymous [start, end) that has no backing yet. */
int back_anon(struct mm *mm, struct vma *v, uint64_t start, uint64_t end);
/* Backs what is cheap of a new mapping, as its rights ask for it. */
int back_new(struct mm *mm, struct vma *v, uint64_t start, uint64_t end);
/* Backs what is cheap of a fresh file mapping. */
void back_eager(struct mm *mm, struct vma *v, uint64_t start, uint64_t end);
/* Makes the page at @addr accessible in the stub and here. 0, -EFAULT (past EOF), -ENOMEM,
 * -EAGAIN: no memory left to copy to, oom_relieve() may help. */
int fault_in(struct mm *mm, struct vma *v, uint64_t addr, bool write);
/* Copies whole pages between mfiles; returns how many bytes (pages before the first unreadable one). */
uint64_t copy_pages(struct mfile *dst, uint64_t doff, struct mfile *src, uint64_t soff, uint64_t len);
/* The read-only page at @addr is about to be written to: makes it, and some around it (@pages, 0: as many as seem useful),
 * private and writable. As fault_in(). */
int break_cow(struct mm *mm, struct vma *v, uint64_t addr, unsigned pages);
/* Pages in [start, end) that the host wouldn't let be executed where they are become private copies. Before the
 * stub is told of PROT_EXEC. 1: there were some, and the range is to be mapped anew; 0, or -errno. */
int copy_noexec(struct mm *mm, uint64_t start, uint64_t end);
/* The vma at @addr after growing a stack down to it, if the rules allow. */
struct vma *vma_find_or_grow(struct task *t, struct mm *mm, uint64_t addr);

/* ---- patch.c ---- */
/* The range is about to lose its text. Puts text right that jumps to trampolines in it. */
void patch_release(struct mm *mm, uint64_t start, uint64_t end);
/* The guest may write to the range from now on, or moves it: its text is to be what it was. */
void patch_undo(struct mm *mm, uint64_t start, uint64_t end);
/* @mm is a copy of @old. */
void patch_fork(struct mm *mm, struct mm *old);
/* The address space is gone. */
void patch_fini(struct mm *mm);
/* Does @v hold trampolines? */
bool patch_is_area(const struct vma *v);

/* ---- objmap.c ---- */
void objmap_add(struct vm_object *o, struct mm *mm);
void objmap_del(struct vm_object *o, struct mm *mm);

/* ---- shmem.c is sentry/mm/shmem.h ---- */

#endif
