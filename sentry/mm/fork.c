// SPDX-License-Identifier: Apache-2.0
/*
 * fork(): the child gets the same vmas; private pages are shared, read-only on both sides, until one
 * side writes (sentry/mm/fault.c). The child's stub holds only a read-only descriptor of its parent's
 * mfile, so what it writes goes to its own.
 *
 * The work is one queued operation for each run of pages, on both sides, whatever their number.
 *
 * Lock order: the parent's mm.mu, then the child's (which nobody else knows yet).
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/kmem.h"
#include "sentry/mm/mm_priv.h"
#include "sentry/vfs/vfs.h"

static void copy_head(struct mm *mm, const struct mm *old)
{
	mm->mmap_base = old->mmap_base;
	mm->gap_top = old->mmap_base;
	mm->layout = old->layout;
	mm->exe = old->exe ? file_get(old->exe) : NULL;
	memcpy(mm->auxv, old->auxv, sizeof(mm->auxv));
	mm->nauxv = old->nauxv;
	mm->dumpable = atomic_load(&old->dumpable);
	/* Locks aren't inherited (man 2 mlock), protection keys are. */
	mm->pkeys = old->pkeys;
}

/* [start, end) of @ov, in both trees and the parent's stub. */
static int share_range(struct mm *mm, struct mm *old, struct vma *ov, uint64_t start, uint64_t end)
{
	struct pma *p;
	int r;

	if (!vma_shared(ov)) {
		bool change = false;

		/* Splits at the vma's borders, so that flags change for this vma's pages alone. */
		pma_isolate(old, start, end);
		for (p = pma_find_ge(old, start); p && p->start < end; p = pma_next(p))
			change = change || !(p->flags & PMA_RO);
		if (change) {
			pma_set_flags(old, start, end, 0, PMA_RO);
			if (ov->prot & PROT_WRITE) {
				r = stub_protect(old, ov, start, end);
				if (r < 0)
					return r;
				old->need_flush = true;
			}
		}
	}
	for (p = pma_find_ge(old, start); p && p->start < end; p = pma_next(p)) {
		uint64_t a = MAX(p->start, start), b = MIN(p->end, end);
		uint64_t off = p->off + (a - p->start);

		if (p->flags & PMA_COUNTED)
			mfile_range_get(p->mf, off, b - a);
		pma_insert(mm, a, b, mfile_get(p->mf), off, p->flags);
	}
	return 0;
}

/* Pages that both sides will write to at once become each one's own. */
static int share_pages(struct mm *mm, struct mm *old, struct vma *v, struct vma *ov)
{
	uint64_t a = ov->start, hot = a;
	int r = 0;

	while (r == 0 && a < ov->end) {
		hot = hot_next(mm, hot, ov->end);
		if (hot < ov->end && !hot_copy(mm, old, ov, hot)) {
			hot += PAGE_SIZE;
			continue;
		}
		if (a < hot)
			r = share_range(mm, old, ov, a, hot);
		a = hot = hot + PAGE_SIZE;
	}
	return r < 0 ? r : stub_map_range(mm, v, v->start, v->end);
}

static int copy_vma(struct mm *mm, struct mm *old, struct vma *ov)
{
	struct vma *v;

	if (ov->flags & VMF_DONTFORK)
		return 0;
	v = vma_alloc(ov->start, ov->end, ov->prot,
		      ov->flags & ~(VMF_LOCKED | VMF_LOCKONFAULT), ov->obj, ov->off, ov->file,
		      ov->name);
	vma_insert(mm, v);
	if (!(ov->flags & VMF_WIPEONFORK))
		return share_pages(mm, old, v, ov);
	return back_new(mm, v, v->start, v->end);
}

struct mm *mm_fork(struct mm *old, struct plat_ctx *self)
{
	struct mm *mm = kmem_full() ? err_ptr(-ENOMEM) : mm_create();
	struct vma *v;
	int r = 0;

	if (is_err(mm))
		return mm;
	mm_write_lock(old);
	old->forked = true;
	mm_wait_unpinned(old); /* a read(2) into pages that are about to be shared */
	rwmutex_wrlock_nested(&mm->mu);
	copy_head(mm, old);
	if (atomic_load(&old->users) == 1)
		hot_fork(mm, old);
	for_each_vma(v, old) {
		r = copy_vma(mm, old, v);
		if (r < 0)
			break;
	}
	patch_fork(mm, old);
	if (old->need_flush && atomic_load(&old->users) > 1 && r == 0)
		r = plat->as_flush(old->as, self);
	old->need_flush = false;
	mm->need_flush = false;
	rwmutex_unlock(&mm->mu);
	mm_write_unlock(old, NULL);
	if (r < 0) {
		mm_unuse(mm);
		return err_ptr(r);
	}
	return mm;
}
