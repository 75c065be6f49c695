// SPDX-License-Identifier: Apache-2.0
/*
 * Freezing an address space for a checkpoint: nothing is copied. Like fork(), with an image in the place of
 * the child: private pages become read-only and are copied by whoever writes first. What is written from
 * then on goes to a fresh mfile, so a branch that holds the old one read-only never sees what comes after.
 *
 * Mappings of tmpfs files and shared segments are taken away: their pages stay behind, too, and where the
 * current ones are is asked again at the next access.
 *
 * Context: the sandbox is frozen (sentry/kernel/freeze.h), nothing is running in any address space.
 */
#include "sentry/mm/mm_priv.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/mm_state.h"

/* Pages of objects that live in memory files of ours. */
static void drop_object_pages(struct mm *mm, struct vma *v)
{
	uint64_t a = v->start;

	while (a < v->end) {
		struct pma *p = pma_find_ge(mm, a);
		uint64_t start, end;

		if (!p || p->start >= v->end)
			return;
		start = MAX(p->start, v->start);
		end = MIN(p->end, v->end);
		if (!(p->flags & PMA_COUNTED) && !mfile_is_host(p->mf)) {
			pma_remove(mm, start, end);
			(void)stub_unmap(mm, start, end); /* fails only when the stub is dead */
		}
		a = end;
	}
}

static void freeze_private(struct mm *mm, struct vma *v)
{
	bool change = false;
	struct pma *p;

	pma_isolate(mm, v->start, v->end);
	for (p = pma_find_ge(mm, v->start); p && p->start < v->end; p = pma_next(p))
		change = change || !(p->flags & PMA_RO);
	if (!change)
		return;
	pma_set_flags(mm, v->start, v->end, 0, PMA_RO);
	if (v->prot & PROT_WRITE)
		(void)stub_protect(mm, v, v->start, v->end); /* fails only when the stub is dead */
}

static void mm_freeze(struct mm *mm)
{
	struct mfile *own;
	struct vma *v;

	mm_write_lock(mm);
	if (mm->as) {
		patch_remove_all(mm); /* an image has the text as it is */
		for_each_vma(v, mm) {
			if (v->flags & VMF_SPECIAL)
				continue;
			if (v->obj)
				drop_object_pages(mm, v);
			if (!vma_shared(v))
				freeze_private(mm, v);
		}
		resv_clear(mm, 0, UINT64_MAX);
	}
	own = mm->own;
	mm->own = NULL;
	mm->forked = false; /* as to the next own mfile */
	mm->cow_pages = 0;
	mm->loading = true; /* nobody runs: whoever is resumed applies what is queued first */
	mm_write_unlock(mm, NULL);
	mm->loading = false;
	if (own)
		mfile_put(own);
}

static int by_address(const void *a, const void *b)
{
	const struct mm *const *x = a, *const *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* References on all address spaces of tasks, each once; heap. mm.mu comes before tasks_mu, so they are
 * collected first. Tasks stay where they are while the sandbox is frozen. */
static struct mm **collect(size_t *ret_n)
{
	struct mm **mms;
	struct task *t;
	size_t n = 0, out = 0;

	mutex_lock(&kernel.tasks_mu);
	list_for_each(t, &kernel.all_tasks, all_node)
		n++;
	mms = kcalloc(n ? n : 1, sizeof(struct mm *));
	n = 0;
	list_for_each(t, &kernel.all_tasks, all_node)
		if (t->mm)
			mms[n++] = mm_get(t->mm);
	mutex_unlock(&kernel.tasks_mu);
	qsort(mms, n, sizeof(struct mm *), by_address);
	for (size_t i = 0; i < n; i++) {
		if (out && mms[out - 1] == mms[i])
			mm_put(mms[i]);
		else
			mms[out++] = mms[i];
	}
	*ret_n = out;
	return mms;
}

void mm_freeze_all(void)
{
	size_t n;
	struct mm **mms = collect(&n);

	for (size_t i = 0; i < n; i++) {
		mm_freeze(mms[i]);
		mm_put(mms[i]);
	}
	free(mms);
}
