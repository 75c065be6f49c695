// SPDX-License-Identifier: Apache-2.0
/*
 * Installing patched call sites (platform/trap/README.md): the platform says what a site becomes, here
 * it gets into the text.
 *
 * A page of text with a patch is a private copy in the mm's own mfile, as a copy-on-write fault would have
 * made it, put in place by one mapping: no thread ever sees half a patch. It shows in nothing but in what
 * the guest reads there. Trampolines live in areas that look like [vdso], near the text.
 *
 * Only private mappings that the guest can't write are patched. As soon as it may, by mprotect(), the
 * text is what it was. So it is before it moves, and when another process looks at it or changes it by force
 * (ptrace, /proc/PID/mem), which ends patching of that mm.
 *
 * Left out: a file that is written to while it is mapped as text: a patched page doesn't follow.
 *
 * Context: mm.mu held for writing, but for the three functions of mm.h at the end.
 */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/kmem.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/mm_priv.h"
#include "sentry/mm/safecopy.h"

#define AREA_NAME "[holdfast]"

/* ---- bytes ---- */

/* Replaces the page around @addr by a private copy with @n other bytes there (all in one page). */
static int copy_with(struct mm *mm, struct vma *v, uint64_t addr, const uint8_t *bytes, unsigned n)
{
	uint64_t page = page_down(addr), off, len;
	struct pma *p = pma_find(mm, page);
	uint64_t dl = PAGE_SIZE, sl = PAGE_SIZE;
	struct mfile *mf;
	const void *src;
	char *dst;
	int r;

	if (!p)
		return -EFAULT;
	r = own_alloc(mm, page, PAGE_SIZE, &mf, &off, &len);
	if (r < 0)
		return r;
	dst = mfile_ptr(mf, off, &dl);
	src = mfile_cptr(p->mf, p->off + (page - p->start), &sl);
	if (!dst || !src || safecopy(dst, src, PAGE_SIZE) ||
	    safecopy(dst + (addr - page), bytes, n)) {
		mfile_range_put(mf, off, PAGE_SIZE);
		mfile_put(mf);
		return -ENOMEM;
	}
	pma_remove(mm, page, page + PAGE_SIZE);
	pma_insert(mm, page, page + PAGE_SIZE, mf, off, PMA_COUNTED);
	return stub_map_range(mm, v, page, page + PAGE_SIZE);
}

/* Where nobody executes yet, or nothing else can be done. */
static int write_in_place(struct mm *mm, uint64_t addr, const uint8_t *bytes, unsigned n)
{
	struct pma *p = pma_find(mm, addr);
	uint64_t len = n;
	char *dst = p ? mfile_ptr(p->mf, p->off + (addr - p->start), &len) : NULL;

	return dst && len >= n && !safecopy(dst, bytes, n) ? 0 : -EFAULT;
}

static int put_trampoline(struct mm *mm, const struct plat_patch *p)
{
	const struct pma *pma = pma_find(mm, p->slot);

	if (p->slot_len == 0)
		return 0;
	if (pma && pma->mf == mm->own && !(pma->flags & PMA_RO))
		return write_in_place(mm, p->slot, p->slot_text, p->slot_len);
	return copy_with(mm, vma_find(mm, p->slot), p->slot, p->slot_text, p->slot_len);
}

/* The text as it was. When there is no memory for a copy, in place: a fork's other side, which may
 * share the page, only loses its patch. */
static void restore(struct mm *mm, const struct plat_patch *p, enum plat_drop why)
{
	struct vma *v = vma_find(mm, p->addr);

	if (v && copy_with(mm, v, p->addr, p->text, PLAT_SITE_LEN) < 0)
		(void)write_in_place(mm, p->addr, p->text, PLAT_SITE_LEN);
	plat->patch->drop(mm->as, p->addr, why);
}

/* ---- patching ---- */

static bool add_area(struct mm *mm, uint64_t addr)
{
	struct map_req r = { .len = PLAT_PATCH_AREA,
			     .prot = PROT_READ | PROT_EXEC,
			     .flags = VMF_MAYREAD | VMF_MAYEXEC | VMF_SPECIAL | VMF_DONTDUMP,
			     .name = AREA_NAME };
	uint64_t lo, hi;

	if (mm->map_count + 1 > MM_MAX_MAP_COUNT || kmem_full())
		return false;
	for (unsigned i = 0; plat->patch->area_window(mm->as, addr, i, &lo, &hi); i++) {
		lo = MAX(lo, MMAP_MIN_ADDR);
		hi = MIN(hi, mm->mmap_base);
		r.addr = lo < hi ? vma_find_gap(mm, r.len, lo, hi) : 0;
		if (!r.addr)
			continue;
		if (!kmem_charge_lasting(PLAT_AREA_HEAP))
			return false;
		mm->patch_area_heap += PLAT_AREA_HEAP;
		if (map_at(mm, &r) < 0 ||
		    back_anon(mm, vma_find(mm, r.addr), r.addr, r.addr + r.len) < 0)
			return false;
		plat->patch->add_area(mm->as, r.addr);
		return true;
	}
	return false;
}

/* The text at @addr as far as its page goes, up to @max bytes; 0: not to be patched. */
static unsigned read_text(struct mm *mm, uint64_t addr, uint8_t *buf, unsigned max)
{
	unsigned n = MIN(max, (unsigned)(PAGE_SIZE - addr % PAGE_SIZE));
	const struct vma *v = vma_find(mm, addr);
	const struct pma *p = pma_find(mm, addr);
	uint64_t len = n;
	const void *src;

	if (!v || !p || (v->prot & (PROT_EXEC | PROT_WRITE)) != PROT_EXEC || vma_shared(v) ||
	    (v->flags & VMF_SPECIAL))
		return 0;
	src = mfile_cptr(p->mf, p->off + (addr - p->start), &len);
	return src && len >= n && !safecopy(buf, src, n) ? n : 0;
}

static int patch(struct mm *mm, uint64_t addr)
{
	uint8_t text[32];
	unsigned n = read_text(mm, addr, text, sizeof(text));
	struct plat_patch p;
	int r;

	if (n < PLAT_SITE_LEN)
		return -EOPNOTSUPP;
	r = plat->patch->prepare(mm->as, addr, text, n, &p);
	if (r == -ENOSPC && add_area(mm, addr))
		r = plat->patch->prepare(mm->as, addr, text, n, &p);
	if (r < 0)
		return r;
	r = put_trampoline(mm, &p);
	if (r < 0)
		return r;
	/* Before the text, which another thread's batch may put in force as soon as it is queued: who meets
	 * it must find the site live. */
	plat->patch->commit(mm->as, &p);
	r = copy_with(mm, vma_find(mm, addr), addr, p.text, PLAT_SITE_LEN);
	if (r < 0)
		plat->patch->drop(mm->as, addr, PLAT_DROP_GONE);
	return r;
}

/* ---- taking back ---- */

void patch_release(struct mm *mm, uint64_t start, uint64_t end)
{
	struct plat_patch p;

	if (!plat->patch || !mm->as)
		return;
	while (plat->patch->next(mm->as, start, end, &p)) {
		if (p.addr >= start && p.addr < end)
			plat->patch->drop(mm->as, p.addr, PLAT_DROP_GONE);
		else
			restore(mm, &p, PLAT_DROP_GONE);
	}
	plat->patch->drop_areas(mm->as, start, end);
}

void patch_undo(struct mm *mm, uint64_t start, uint64_t end)
{
	struct plat_patch p;

	if (!plat->patch || !mm->as)
		return;
	while (plat->patch->next(mm->as, start, end, &p))
		restore(mm, &p, PLAT_DROP_UNDONE);
}

bool patch_is_area(const struct vma *v)
{
	return (v->flags & VMF_SPECIAL) && v->name && strcmp(v->name, AREA_NAME) == 0;
}

/* ---- life ---- */

void patch_fork(struct mm *mm, struct mm *old)
{
	struct vma *v;

	if (!plat->patch)
		return;
	plat->patch->fork(mm->as, old->as);
	/* What the child hasn't got (MADV_DONTFORK), or without contents. */
	for_each_vma(v, old) {
		if (v->flags & (VMF_DONTFORK | VMF_WIPEONFORK))
			patch_release(mm, v->start, v->end);
	}
	mm->no_patches = old->no_patches;
	mm->patch_charges = old->patch_charges;
	mm->patch_area_heap = old->patch_area_heap;
	kmem_add((size_t)mm->patch_charges * PLAT_SITE_HEAP + mm->patch_area_heap);
}

void patch_fini(struct mm *mm)
{
	kmem_uncharge((size_t)mm->patch_charges * PLAT_SITE_HEAP + mm->patch_area_heap);
	mm->patch_charges = 0;
	mm->patch_area_heap = 0;
}

/* ---- for the kernel ---- */

/* Text that comes and goes at one place needs no more than the platform keeps. */
static bool charge_site(struct mm *mm)
{
	if (mm->patch_charges >= PLAT_SITES_MAX)
		return true;
	if (!kmem_charge_lasting(PLAT_SITE_HEAP))
		return false;
	mm->patch_charges++;
	return true;
}

void mm_patch_call(struct task *t, gaddr_t addr)
{
	struct mm *mm = t->mm;
	int r = -EPERM;

	mm_write_lock(mm);
	if (!charge_site(mm)) {
		mm_write_unlock(mm, t);
		return;
	}
	if (!ptrace_active(t) && !mm->no_patches)
		r = patch(mm, addr.va);
	if (r < 0)
		plat->patch->refuse(mm->as, addr.va);
	mm_write_unlock(mm, t);
	log_debug("call site 0x%lx: %s", (unsigned long)addr.va, r < 0 ? strerror(-r) : "patched");
}

void mm_unpatch_call(struct task *t, gaddr_t addr)
{
	struct mm *mm = t->mm;
	struct plat_patch p;

	mm_write_lock(mm);
	if (plat->patch->next(mm->as, addr.va, addr.va + 1, &p))
		restore(mm, &p, PLAT_DROP_REFUSED);
	mm_write_unlock(mm, t);
}

void mm_unpatch_all(struct mm *mm)
{
	if (!plat->patch)
		return;
	mm_write_lock(mm);
	mm->no_patches = true;
	patch_undo(mm, 0, GUEST_TASK_SIZE);
	mm->need_flush = mm->as != NULL;
	mm_write_unlock(mm, NULL);
}
