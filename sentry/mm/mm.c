// SPDX-License-Identifier: Apache-2.0
/*
 * Life of an address space, its lock, and the small things that the loader sets and /proc shows.
 *
 * Counts: each task that runs in an mm is a *use*, and each use holds a reference. mm_create() and
 * mm_fork() return with one use (and its reference) for the task to be; mm_unuse() drops both. The
 * last use tears the address space down while the struct may live on for those who look at it.
 */
#include "sentry/mm/mm_priv.h"

#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs.h"

/* A fresh address space with one use. err_ptr(-ENOMEM, ...) when there is no stub. */
struct mm *mm_create(void)
{
	struct plat_as *as = plat->as_create();
	struct mm *mm;

	if (is_err(as))
		return (struct mm *)as;
	mm = kzalloc(sizeof(*mm));
	ref_init(&mm->ref);
	mm->users = 1;
	rwmutex_init(&mm->mu, RANK_MM);
	mutex_init(&mm->pin_mu, RANK_MM_SIDE);
	cond_init(&mm->pin_cond);
	mm->as = as;
	RB_INIT(&mm->vmas);
	RB_INIT(&mm->pmas);
	RB_INIT(&mm->resv);
	mm->mmap_base = GUEST_TASK_SIZE - (256UL << 20);
	mm->gap_top = mm->mmap_base;
	mm->dumpable = 1;
	return mm;
}

struct mm *mm_get(struct mm *mm)
{
	ref_get(&mm->ref);
	return mm;
}

void mm_put(struct mm *mm)
{
	if (!mm || !ref_put(&mm->ref))
		return;
	if (mm->as)
		plat->as_destroy(mm->as);
	hot_put(mm);
	if (mm->exe)
		file_put(mm->exe);
	rwmutex_fini(&mm->mu);
	mutex_fini(&mm->pin_mu);
	cond_fini(&mm->pin_cond);
	free(mm);
}

struct mm *mm_use(struct mm *mm)
{
	mm_get(mm);
	atomic_fetch_add(&mm->users, 1);
	return mm;
}

/* Nobody else has pages of the own mfile: it is dropped as a whole, not range by range. */
static void disown_pages(struct mm *mm)
{
	struct pma *p;

	for (p = pma_find_ge(mm, 0); p; p = pma_next(p))
		if (p->mf == mm->own)
			p->flags &= ~PMA_COUNTED;
	resv_forget(mm);
}

static void teardown(struct mm *mm)
{
	struct mfile *own;
	struct file *exe;
	struct vma *v;

	rwmutex_wrlock(&mm->mu);
	if (mm->as)
		plat->as_destroy(mm->as); /* nobody can reach the pages after this */
	mm->as = NULL;
	patch_fini(mm);
	if (!mm->forked) {
		disown_pages(mm);
		if (mm->own)
			mfile_empty(mm->own);
	}
	pma_remove(mm, 0, UINT64_MAX);
	while ((v = vma_find_ge(mm, 0)))
		vma_remove(mm, v);
	resv_clear(mm, 0, UINT64_MAX);
	own = mm->own;
	mm->own = NULL;
	exe = mm->exe;
	mm->exe = NULL;
	mm->need_flush = false;
	mm_write_unlock(mm, NULL);
	if (own)
		mfile_put(own);
	if (exe)
		file_put(exe);
}

/* One task less, with its reference. Context: no locks; the caller's plat_ctx is gone already. */
void mm_unuse(struct mm *mm)
{
	if (!mm)
		return;
	if (atomic_fetch_sub(&mm->users, 1) == 1)
		teardown(mm);
	mm_put(mm);
}

void mm_doom(struct mm *mm)
{
	/* A user that leaves takes its doom back first, so this may be too few for a moment, never too many. */
	if (atomic_fetch_add(&mm->doomed, 1) + 1 >= atomic_load(&mm->users))
		plat->as_kill(mm->as);
}

void mm_undoom(struct mm *mm)
{
	atomic_fetch_sub(&mm->doomed, 1);
}

struct plat_as *mm_plat_as(struct mm *mm)
{
	return mm->as;
}

/* ---- the lock ---- */

void mm_read_lock(struct mm *mm)
{
	rwmutex_rdlock(&mm->mu);
}

void mm_read_unlock(struct mm *mm)
{
	rwmutex_unlock(&mm->mu);
}

void mm_write_lock(struct mm *mm)
{
	rwmutex_wrlock(&mm->mu);
}

void mm_wait_unpinned(struct mm *mm)
{
	if (atomic_load(&mm->pins) == 0)
		return;
	mutex_lock(&mm->pin_mu);
	atomic_fetch_add(&mm->pin_waits, 1);
	while (atomic_load(&mm->pins) != 0)
		cond_wait(&mm->pin_cond, &mm->pin_mu);
	atomic_fetch_sub(&mm->pin_waits, 1);
	mutex_unlock(&mm->pin_mu);
}

static void free_pmas(struct mm *mm, struct pma **list)
{
	struct pma *p = *list;

	*list = NULL;
	if (!p)
		return;
	mm_wait_unpinned(mm);
	pma_gc(p);
}

/*
 * Frees the backing that was removed, at once when no thread can have it mapped any more, else later:
 * when the batch that replaces it has been applied. A copied page must not be punched while another
 * thread still reads the original.
 */
static void free_removed(struct mm *mm, bool now)
{
	struct pma *p = mm->gc_pmas;

	if (now) {
		free_pmas(mm, &mm->gc_pmas);
		free_pmas(mm, &mm->lazy_pmas);
		return;
	}
	if (mm->lazy_pmas && plat->as_map_seq(mm->as) > mm->lazy_seq)
		free_pmas(mm, &mm->lazy_pmas);
	if (!p)
		return;
	while (p->gc_next)
		p = p->gc_next;
	p->gc_next = mm->lazy_pmas;
	mm->lazy_pmas = mm->gc_pmas;
	mm->lazy_seq = mm->queued_seq;
	mm->gc_pmas = NULL;
}

void mm_write_unlock(struct mm *mm, struct task *t)
{
	bool mine = t && t->mm == mm;
	/* No thread is running guest code in it, apart from the caller, who isn't just now. */
	bool quiet = !mm->as || mm->loading ||
		     (mine && atomic_load(&mm->users) == 1 && !plat->runs_on);
	struct vma *vmas = mm->gc_vmas;

	if (mm->need_flush && !quiet) {
		(void)plat->as_flush(mm->as, mine ? t->ctx : NULL); /* fails: stub is dead */
		quiet = true;
	}
	mm->need_flush = false;
	mm->gc_vmas = NULL;
	free_removed(mm, quiet);
	rwmutex_unlock(&mm->mu);
	while (vmas) {
		struct vma *v = vmas;

		vmas = v->gc_next;
		vma_destroy(v);
	}
}

/*
 * What a single private mapping may not exceed (vm.overcommit_memory 0: only absurd ones fail). As in a
 * container it is the machine's memory that counts, not the sandbox's limit: that is for pages in use.
 */
uint64_t mm_commit_limit(void)
{
	uint64_t n = MAX(kernel.limits.max_memory, kernel.limits.host_memory);

	return n ? n : MM_DEFAULT_COMMIT_MAX;
}

/* ---- what the loader sets ---- */

void mm_get_layout(struct mm *mm, struct mm_layout *ret)
{
	mm_read_lock(mm);
	*ret = mm->layout;
	mm_read_unlock(mm);
}

void mm_set_layout(struct mm *mm, const struct mm_layout *l)
{
	rwmutex_wrlock(&mm->mu);
	mm->layout = *l;
	rwmutex_unlock(&mm->mu);
}

void mm_set_exe(struct mm *mm, struct file *exe)
{
	struct file *old;

	rwmutex_wrlock(&mm->mu);
	old = mm->exe;
	mm->exe = exe ? file_get(exe) : NULL;
	rwmutex_unlock(&mm->mu);
	if (old)
		file_put(old);
}

struct file *mm_exe(struct mm *mm)
{
	struct file *f;

	mm_read_lock(mm);
	f = mm->exe ? file_get(mm->exe) : NULL;
	mm_read_unlock(mm);
	return f;
}

void mm_set_auxv(struct mm *mm, const uint64_t *auxv, unsigned n)
{
	rwmutex_wrlock(&mm->mu);
	mm->nauxv = MIN(n, (unsigned)AUXV_MAX);
	memcpy(mm->auxv, auxv, mm->nauxv * sizeof(*auxv));
	rwmutex_unlock(&mm->mu);
}

unsigned mm_auxv(struct mm *mm, uint64_t *buf, unsigned max)
{
	unsigned n;

	mm_read_lock(mm);
	n = MIN(mm->nauxv, max);
	memcpy(buf, mm->auxv, n * sizeof(*buf));
	mm_read_unlock(mm);
	return n;
}

bool mm_dumpable(struct mm *mm)
{
	return atomic_load(&mm->dumpable) == 1;
}

void mm_set_dumpable(struct mm *mm, int v)
{
	atomic_store(&mm->dumpable, v);
}

int mm_get_dumpable(struct mm *mm)
{
	return atomic_load(&mm->dumpable);
}

bool mm_find(struct mm *mm, gaddr_t addr, struct vma_info *ret)
{
	struct vma *v;

	mm_read_lock(mm);
	v = vma_find(mm, addr.va);
	if (v) {
		ret->start = gaddr(v->start);
		ret->end = gaddr(v->end);
		ret->prot = v->prot;
		ret->shared = vma_shared(v);
		ret->object = v->obj;
		ret->off = v->off;
	}
	mm_read_unlock(mm);
	return v != NULL;
}
