// SPDX-License-Identifier: Apache-2.0
/*
 * What backs guest memory: the tree of pmas, the reservations in the mm's own mfile, and the calls
 * to the platform that keep the stub's mappings in step with the tree.
 *
 * Merging matters here: a host mapping is made for each run of pages with one file, consecutive
 * offsets and equal rights, and the host allows 65530 of them.
 *
 * Context of everything here: mm.mu for writing, unless it only looks.
 */
#include "sentry/mm/mm_priv.h"

#include "base/alloc.h"

static int pma_cmp(const struct pma *a, const struct pma *b)
{
	return a->start < b->start ? -1 : a->start > b->start;
}

RB_GENERATE_STATIC(pma_tree, pma, rb, pma_cmp)

struct pma *pma_next(struct pma *p)
{
	return pma_tree_RB_NEXT(p);
}

static struct pma *tree_find_ge(struct pma_tree *tree, uint64_t addr)
{
	struct pma *p = RB_ROOT(tree), *best = NULL;

	while (p) {
		if (p->end > addr) {
			best = p;
			if (p->start <= addr)
				break;
			p = RB_LEFT(p, rb);
		} else {
			p = RB_RIGHT(p, rb);
		}
	}
	return best;
}

struct pma *pma_find_ge(struct mm *mm, uint64_t addr)
{
	struct pma *p = atomic_load_explicit(&mm->pma_hint, memory_order_relaxed);

	if (p && p->start <= addr && addr < p->end)
		return p;
	p = tree_find_ge(&mm->pmas, addr);
	if (p)
		atomic_store_explicit(&mm->pma_hint, p, memory_order_relaxed);
	return p;
}

struct pma *pma_find(struct mm *mm, uint64_t addr)
{
	struct pma *p = pma_find_ge(mm, addr);

	return p && p->start <= addr ? p : NULL;
}

static struct pma *extent_new(uint64_t start, uint64_t end, struct mfile *mf, uint64_t off,
			      unsigned flags)
{
	struct pma *p = kzalloc(sizeof(*p));

	p->start = start;
	p->end = end;
	p->mf = mf;
	p->off = off;
	p->flags = flags;
	return p;
}

static void tree_insert(struct pma_tree *tree, struct pma *p)
{
	if (RB_INSERT(pma_tree, tree, p))
		panic("overlapping pma");
}

static void split_at(struct pma_tree *tree, uint64_t addr)
{
	struct pma *p = tree_find_ge(tree, addr);

	if (!p || p->start >= addr)
		return;
	tree_insert(tree, extent_new(addr, p->end, mfile_get(p->mf), p->off + (addr - p->start),
				     p->flags));
	p->end = addr;
}

static void forget_hint(struct mm *mm)
{
	atomic_store_explicit(&mm->pma_hint, NULL, memory_order_relaxed);
}

/* Frees a node whose pages another node has taken over. */
static void drop_node(struct mm *mm, struct pma *p)
{
	forget_hint(mm);
	RB_REMOVE(pma_tree, &mm->pmas, p);
	mfile_put(p->mf);
	free(p);
}

static bool can_merge(const struct pma *a, const struct pma *b)
{
	return a->end == b->start && a->mf == b->mf && a->flags == b->flags &&
	       a->off + (a->end - a->start) == b->off;
}

static void merge_around(struct mm *mm, struct pma *p)
{
	struct pma *n = pma_tree_RB_NEXT(p), *q = pma_tree_RB_PREV(p);

	if (n && can_merge(p, n)) {
		p->end = n->end;
		drop_node(mm, n);
	}
	if (q && can_merge(q, p)) {
		q->end = p->end;
		drop_node(mm, p);
	}
}

void pma_insert(struct mm *mm, uint64_t start, uint64_t end, struct mfile *mf, uint64_t off,
		unsigned flags)
{
	struct pma *p = extent_new(start, end, mf, off, flags);

	tree_insert(&mm->pmas, p);
	merge_around(mm, p);
}

void pma_isolate(struct mm *mm, uint64_t start, uint64_t end)
{
	split_at(&mm->pmas, start);
	split_at(&mm->pmas, end);
}

void pma_remove(struct mm *mm, uint64_t start, uint64_t end)
{
	struct pma *p, *n;

	pma_isolate(mm, start, end);
	forget_hint(mm);
	for (p = tree_find_ge(&mm->pmas, start); p && p->start < end; p = n) {
		n = pma_next(p);
		RB_REMOVE(pma_tree, &mm->pmas, p);
		p->gc_next = mm->gc_pmas;
		mm->gc_pmas = p;
	}
}

void pma_gc(struct pma *list)
{
	while (list) {
		struct pma *p = list;

		list = p->gc_next;
		if (p->flags & PMA_COUNTED)
			mfile_range_put(p->mf, p->off, p->end - p->start);
		mfile_put(p->mf);
		free(p);
	}
}

void pma_set_flags(struct mm *mm, uint64_t start, uint64_t end, unsigned clear, unsigned set)
{
	struct pma *p;

	pma_isolate(mm, start, end);
	for (p = tree_find_ge(&mm->pmas, start); p && p->start < end; p = pma_next(p))
		p->flags = (p->flags & ~clear) | set;
	/* Merging may free the node that it is called for, so look each one up by its end. */
	for (uint64_t a = start; a < end;) {
		p = tree_find_ge(&mm->pmas, a);
		if (!p || p->start >= end)
			break;
		a = p->end;
		merge_around(mm, p);
	}
}

void pma_move(struct mm *mm, uint64_t from, uint64_t len, uint64_t to)
{
	struct pma *p, *n, *moved = NULL;

	pma_isolate(mm, from, from + len);
	forget_hint(mm);
	for (p = tree_find_ge(&mm->pmas, from); p && p->start < from + len; p = n) {
		n = pma_next(p);
		RB_REMOVE(pma_tree, &mm->pmas, p);
		p->gc_next = moved;
		moved = p;
	}
	while (moved) {
		p = moved;
		moved = p->gc_next;
		pma_insert(mm, p->start - from + to, p->end - from + to, p->mf, p->off, p->flags);
		free(p);
	}
}

/* ---- the mm's own mfile ---- */

void resv_clear(struct mm *mm, uint64_t start, uint64_t end)
{
	struct pma *p, *n;

	split_at(&mm->resv, start);
	split_at(&mm->resv, end);
	for (p = tree_find_ge(&mm->resv, start); p && p->start < end; p = n) {
		n = pma_next(p);
		RB_REMOVE(pma_tree, &mm->resv, p);
		mfile_range_put_unused(p->mf, p->off, p->end - p->start);
		mfile_put(p->mf);
		free(p);
	}
}

/* The same without giving the file's pages back, when the file itself goes away. */
void resv_forget(struct mm *mm)
{
	struct pma *p;

	while ((p = RB_ROOT(&mm->resv))) {
		RB_REMOVE(pma_tree, &mm->resv, p);
		mfile_put(p->mf);
		free(p);
	}
}

static bool resv_take(struct mm *mm, uint64_t start, uint64_t len, struct mfile **ret_mf,
		      uint64_t *ret_off, uint64_t *ret_len)
{
	struct pma *p = tree_find_ge(&mm->resv, start);

	if (!p || p->start > start)
		return false;
	split_at(&mm->resv, start);
	split_at(&mm->resv, start + len);
	p = tree_find_ge(&mm->resv, start);
	RB_REMOVE(pma_tree, &mm->resv, p);
	*ret_mf = p->mf;
	*ret_off = p->off;
	*ret_len = p->end - p->start;
	free(p);
	return true;
}

static int own_create(struct mm *mm)
{
	struct mfile *mf;

	if (mm->own)
		return 0;
	mf = mfile_create("mm");
	if (is_err(mf))
		return (int)ptr_err(mf);
	mm->own = mf;
	return 0;
}

int own_alloc(struct mm *mm, uint64_t start, uint64_t len, struct mfile **ret_mf,
	      uint64_t *ret_off, uint64_t *ret_len)
{
	uint64_t win = start & ~(OWN_WINDOW - 1), off;
	int r = own_create(mm);

	if (r < 0)
		return r;
	if (resv_take(mm, start, len, ret_mf, ret_off, ret_len))
		return 0;
	if (len < OWN_WINDOW / 2) {
		resv_clear(mm, win, win + OWN_WINDOW);
		if (mfile_alloc(mm->own, OWN_WINDOW, &off) == 0) {
			tree_insert(&mm->resv, extent_new(win, win + OWN_WINDOW,
							  mfile_get(mm->own), off, PMA_COUNTED));
			if (resv_take(mm, start, len, ret_mf, ret_off, ret_len))
				return 0;
		}
	}
	r = mfile_alloc(mm->own, len, ret_off);
	if (r < 0)
		return r;
	*ret_mf = mfile_get(mm->own);
	*ret_len = len;
	return 0;
}

/* ---- the stub ---- */

/* Rights that the stub's mapping of @p has. x86 can't make a page writable and not readable. */
int pma_prot(const struct vma *v, const struct pma *p)
{
	int prot = v->prot;

	if (prot & PROT_WRITE) {
		prot |= PROT_READ;
		if (p->flags & PMA_RO)
			prot &= ~PROT_WRITE;
	}
	return prot;
}

/*
 * After queueing, never before: if the counter moves on between, the batch that moved it was under way
 * already and didn't include ours, and a thread resumed later has applied ours first. See
 * maybe_spurious() in fault.c.
 */
static void note_queued(struct mm *mm)
{
	mm->queued_seq = plat->as_map_seq(mm->as);
}

int stub_map_range(struct mm *mm, struct vma *v, uint64_t start, uint64_t end)
{
	struct pma *p;
	int r;

	for (p = pma_find_ge(mm, start); p && p->start < end; p = pma_next(p)) {
		uint64_t a = MAX(p->start, start), b = MIN(p->end, end);
		bool writable = p->mf == mm->own ||
				((v->flags & VMF_SHARED) && (v->flags & VMF_MAYWRITE) &&
				 mfile_rwfd(p->mf) >= 0); /* a host file is open twice: for reading alone, too */

		r = plat->as_map(mm->as, gaddr(a), b - a, pma_prot(v, p), p->mf,
				 p->off + (a - p->start), writable);
		note_queued(mm);
		if (r < 0)
			return r;
	}
	return 0;
}

int stub_unmap(struct mm *mm, uint64_t start, uint64_t end)
{
	int r = plat->as_unmap(mm->as, gaddr(start), end - start);

	mm->need_flush = true;
	note_queued(mm);
	return r;
}

/* One as_protect for each run of adjacent pmas with equal rights: never over a hole, which the host
 * would refuse. */
int stub_protect(struct mm *mm, struct vma *v, uint64_t start, uint64_t end)
{
	struct pma *p = pma_find_ge(mm, start);
	int r;

	while (p && p->start < end) {
		uint64_t a = MAX(p->start, start), b = MIN(p->end, end);
		int prot = pma_prot(v, p);

		for (p = pma_next(p); p && p->start == b && b < end && pma_prot(v, p) == prot;
		     p = pma_next(p))
			b = MIN(p->end, end);
		r = plat->as_protect(mm->as, gaddr(a), b - a, prot);
		note_queued(mm);
		if (r < 0)
			return r;
	}
	return 0;
}
