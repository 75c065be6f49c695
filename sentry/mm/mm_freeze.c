// SPDX-License-Identifier: Apache-2.0
/*
 * Freezing an address space for a checkpoint: nothing is copied. Like fork(), with an image in the place of
 * the child: private pages become read-only and are copied by whoever writes first. What is written from
 * then on goes to a fresh mfile, so a branch that holds the old one read-only never sees what comes after.
 *
 * Mappings of tmpfs files and shared segments are taken away: their pages stay behind, too, and where the
 * current ones are is asked again at the next access.
 *
 * Patched call sites (patch.c) are this process's own. The image gets pages of text as they would be without,
 * and the live ones stay as they are. A page that is then the file's again need not be in the image.
 *
 * Context: the sandbox is frozen (sentry/kernel/freeze.h), nothing is running in any address space.
 */
#include "sentry/mm/mm_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/mm_state.h"
#include "sentry/mm/safecopy.h"

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

/* ---- patched text ---- */

static struct mfile *clean_mf; /* pages for images; made at need */

static int read_page(struct mfile *mf, uint64_t off, void *buf)
{
	uint64_t len = PAGE_SIZE;
	const void *src = mfile_cptr(mf, off, &len);

	return src && len == PAGE_SIZE && !safecopy(buf, src, PAGE_SIZE) ? 0 : -EFAULT;
}

/* Is @buf what the file below @v has at @addr? */
static bool is_files_page(const struct vma *v, uint64_t addr, const void *buf)
{
	AUTO_FREE char *theirs = kzalloc(PAGE_SIZE);
	uint64_t len = PAGE_SIZE, off;
	struct mfile *mf;
	bool same;

	if (!v->obj || v->obj->ops->translate(v->obj, vma_obj_off(v, addr), &len, false, &mf, &off))
		return false;
	same = read_page(mf, off, theirs) == 0 && memcmp(buf, theirs, PAGE_SIZE) == 0;
	mfile_put(mf);
	return same;
}

static int keep_page(struct clean_page *c, const void *buf)
{
	uint64_t len = PAGE_SIZE;
	void *dst;
	int r;

	if (!clean_mf) {
		clean_mf = mfile_create("clean");
		if (is_err(clean_mf)) {
			r = (int)ptr_err(clean_mf);
			clean_mf = NULL;
			return r;
		}
	}
	r = mfile_alloc(clean_mf, PAGE_SIZE, &c->off);
	if (r < 0)
		return r;
	c->mf = mfile_get(clean_mf);
	dst = mfile_ptr(clean_mf, c->off, &len);
	return dst && !safecopy(dst, buf, PAGE_SIZE) ? 0 : -ENOMEM;
}

/* The page that begins at @addr without its patches. */
static int clean_page(struct mm *mm, uint64_t addr, struct clean_page *ret)
{
	AUTO_FREE char *buf = kzalloc(PAGE_SIZE);
	struct pma *p = pma_find(mm, addr);
	struct vma *v = vma_find(mm, addr);
	struct plat_patch site;
	uint64_t at = addr;

	if (!p || !v || read_page(p->mf, p->off + (addr - p->start), buf) < 0)
		return -EFAULT;
	while (at < addr + PAGE_SIZE && plat->patch->next(mm->as, at, addr + PAGE_SIZE, &site)) {
		if (site.addr >= addr && site.addr + PLAT_SITE_LEN <= addr + PAGE_SIZE)
			memcpy(buf + (site.addr - addr), site.text, PLAT_SITE_LEN);
		at = site.addr + PLAT_SITE_LEN;
	}
	ret->addr = addr;
	return is_files_page(v, addr, buf) ? 0 : keep_page(ret, buf);
}

/* The patched pages of @v, in order; appended at *tail. */
static int clean_vma(struct mm *mm, struct vma *v, struct clean_page ***tail)
{
	struct plat_patch site;
	uint64_t at = v->start;
	int r = 0;

	/* Within one vma, as trampolines, which `next` finds as well, are in others. */
	while (r == 0 && at < v->end && plat->patch->next(mm->as, at, v->end, &site)) {
		struct clean_page *c = kzalloc(sizeof(*c));

		**tail = c;
		*tail = &c->next;
		r = clean_page(mm, page_down(site.addr), c);
		at = page_down(site.addr) + PAGE_SIZE;
	}
	return r;
}

static int clean_text(struct mm *mm)
{
	struct clean_page **tail = &mm->clean;
	struct vma *v;
	int r = 0;

	if (!plat->patch || !mm->as)
		return 0;
	for_each_vma(v, mm) /* whether it may be executed now or not */
		if (r == 0 && !(v->flags & VMF_SPECIAL))
			r = clean_vma(mm, v, &tail);
	return r;
}

static void drop_clean(struct mm *mm)
{
	while (mm->clean) {
		struct clean_page *c = mm->clean;

		mm->clean = c->next;
		if (c->mf) {
			mfile_range_put(c->mf, c->off, PAGE_SIZE);
			mfile_put(c->mf);
		}
		free(c);
	}
}

/* ---- an address space ---- */

static int mm_freeze(struct mm *mm)
{
	struct mfile *own;
	struct vma *v;
	int r;

	mm_write_lock(mm);
	r = clean_text(mm); /* rather than taking patches back: the live ones serve on */
	if (mm->as) {
		for_each_vma(v, mm) {
			if ((v->flags & VMF_SPECIAL) && !patch_is_area(v))
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
	return r;
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

int mm_freeze_all(void)
{
	size_t n;
	struct mm **mms = collect(&n);
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		int e = mm_freeze(mms[i]);

		r = r ? r : e;
		mm_put(mms[i]);
	}
	free(mms);
	return r;
}

void mm_freeze_done(void)
{
	size_t n;
	struct mm **mms = collect(&n);

	for (size_t i = 0; i < n; i++) {
		drop_clean(mms[i]);
		mm_put(mms[i]);
	}
	free(mms);
	mfile_put(clean_mf);
	clean_mf = NULL;
}
