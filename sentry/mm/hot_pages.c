// SPDX-License-Identifier: Apache-2.0
/*
 * Pages that are written to at once after each fork, by the parent or the child: the top of the stack,
 * thread-local storage, a few variables of the C library. Sharing them copy-on-write costs both sides a fault each
 * time. So the first faults after a fork are remembered, and the next fork copies these pages into the
 * child, and leaves the parent's as they are.
 *
 * All processes that stem from one program by fork share what is remembered: they touch the same pages. It
 * is a hint: words that are read and written without a lock.
 *
 * Not for parents with other threads, which could be writing to the page while it is copied.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/stats.h"
#include "sentry/mm/mm_priv.h"

#define HOT_MAX    8U
#define HOT_FAULTS 8U /* so many of them after a fork are looked at */

struct hot_pages {
	struct ref ref;
	_Atomic unsigned next;
	_Atomic uint64_t page[HOT_MAX];
};

void hot_fork(struct mm *mm, struct mm *old)
{
	if (!old->hot) {
		old->hot = kzalloc(sizeof(*old->hot));
		ref_init(&old->hot->ref);
	}
	ref_get(&old->hot->ref);
	mm->hot = old->hot;
	mm->hot_faults = old->hot_faults = HOT_FAULTS;
}

void hot_put(struct mm *mm)
{
	if (mm->hot && ref_put(&mm->hot->ref))
		free(mm->hot);
	mm->hot = NULL;
}

void hot_note(struct mm *mm, uint64_t addr)
{
	struct hot_pages *h = mm->hot;

	if (!mm->hot_faults)
		return;
	mm->hot_faults--;
	for (unsigned i = 0; i < HOT_MAX; i++)
		if (atomic_load_explicit(&h->page[i], memory_order_relaxed) == addr)
			return;
	atomic_store_explicit(&h->page[atomic_fetch_add(&h->next, 1) % HOT_MAX], addr,
			      memory_order_relaxed);
}

uint64_t hot_next(struct mm *mm, uint64_t start, uint64_t end)
{
	uint64_t best = end;

	for (unsigned i = 0; mm->hot && i < HOT_MAX; i++) {
		uint64_t a = atomic_load_explicit(&mm->hot->page[i], memory_order_relaxed);

		if (a >= start && a < best)
			best = a;
	}
	return best;
}

/* The parent's page is to be its own and writable. */
static bool own_page(struct mm *old, struct vma *ov, uint64_t addr)
{
	struct pma *p = pma_find(old, addr);

	if (!p)
		return false;
	if (p->flags & PMA_RO)
		(void)break_cow(old, ov, addr, 1); /* looked at again */
	p = pma_find(old, addr);
	return p && !(p->flags & PMA_RO) && (p->flags & PMA_COUNTED) && p->mf == old->own;
}

bool hot_copy(struct mm *mm, struct mm *old, struct vma *ov, uint64_t addr)
{
	uint64_t off, n;
	struct mfile *mf;
	struct pma *p;

	if (!(ov->prot & PROT_WRITE) || vma_shared(ov) || !own_page(old, ov, addr))
		return false;
	if (own_alloc(mm, addr, PAGE_SIZE, &mf, &off, &n) < 0)
		return false;
	p = pma_find(old, addr);
	if (copy_pages(mf, off, p->mf, p->off + (addr - p->start), PAGE_SIZE) < PAGE_SIZE) {
		mfile_range_put(mf, off, n);
		mfile_put(mf);
		return false;
	}
	pma_insert(mm, addr, addr + PAGE_SIZE, mf, off, PMA_COUNTED);
	stat_inc(STAT_FAULT_COPIED);
	return true;
}
