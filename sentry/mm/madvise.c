// SPDX-License-Identifier: Apache-2.0
/*
 * madvise, mincore, msync (man 2 madvise, 2 mincore, 2 msync).
 *
 * MADV_FREE frees at once: the contract lets the kernel do so at any moment. Advice about huge pages,
 * merging, read-ahead and reclaim is recorded where /proc shows it and otherwise accepted.
 */
#include "sentry/mm/mm_priv.h"

#include "base/alloc.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/shmem.h"
#include "sentry/mm/usermem.h"
#include "sentry/vfs/vfs.h"

#include <linux/falloc.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Empties [start, end) of a private vma: anonymous pages read as zeroes, file pages as the file. */
static int discard_private(struct mm *mm, struct vma *v, uint64_t start, uint64_t end)
{
	uint64_t a, b;
	struct pma *p;
	int r;

	patch_release(mm, start, end);
	/* Each one is looked up anew, since replacing one may merge it with its neighbours. */
	for (; start < end; start = b) {
		p = pma_find_ge(mm, start);
		if (!p || p->start >= end)
			break;
		a = MAX(p->start, start);
		b = MIN(p->end, end);
		if (!(p->flags & PMA_COUNTED))
			continue; /* the file's own pages */
		if (vma_anon(v) && !(p->flags & PMA_RO)) {
			mfile_range_discard(p->mf, p->off + (a - p->start), b - a);
			continue;
		}
		pma_remove(mm, a, b);
		r = stub_unmap(mm, a, b);
		if (r == 0)
			r = back_new(mm, v, a, b);
		if (r < 0)
			return r;
	}
	return 0;
}

static int advise_dontneed(struct mm *mm, struct vma *v, uint64_t a, uint64_t b, bool lazy)
{
	if (v->flags & (VMF_LOCKED | VMF_SPECIAL))
		return -EINVAL;
	if (lazy && !vma_anon(v))
		return -EINVAL;
	return vma_shared(v) ? 0 : discard_private(mm, v, a, b);
}

/* What punching a hole needs after the lock is dropped. */
struct punch {
	struct file *file;
	uint64_t off, len;
};

static int advise_remove(struct vma *v, uint64_t a, uint64_t b, struct punch *ret)
{
	if ((v->flags & VMF_LOCKED) || !vma_shared(v))
		return -EINVAL;
	if (!(v->flags & VMF_MAYWRITE))
		return -EACCES;
	if (vm_object_is_shmem(v->obj)) {
		shmem_object_punch(v->obj, vma_obj_off(v, a), b - a);
		return 0;
	}
	if (!v->file)
		return -EINVAL;
	ret->file = file_get(v->file);
	ret->off = vma_obj_off(v, a);
	ret->len = b - a;
	return 0;
}

static int advise_populate(struct mm *mm, struct vma *v, uint64_t a, uint64_t b, bool write)
{
	if (write ? !(v->prot & PROT_WRITE) : v->prot == PROT_NONE)
		return -EINVAL;
	for (uint64_t x = a; x < b;) {
		struct pma *p = pma_find(mm, x);

		if (!p || (write && (p->flags & PMA_RO))) {
			int r = fault_in(mm, v, x, write);

			if (r < 0)
				return r;
			p = pma_find(mm, x);
		}
		x = p ? MIN(p->end, b) : x + PAGE_SIZE;
	}
	plat->as_populate(mm->as, gaddr(a), b - a, write);
	return 0;
}

/* The flags that @advice sets and clears; false if it isn't about flags. */
static bool advice_flags(int advice, uint32_t *set, uint32_t *clear)
{
	*set = *clear = 0;
	switch (advice) {
	case MADV_NORMAL:
		*clear = VMF_RANDREAD | VMF_SEQREAD;
		return true;
	case MADV_RANDOM:
		*set = VMF_RANDREAD;
		*clear = VMF_SEQREAD;
		return true;
	case MADV_SEQUENTIAL:
		*set = VMF_SEQREAD;
		*clear = VMF_RANDREAD;
		return true;
	case MADV_DONTFORK:
		*set = VMF_DONTFORK;
		return true;
	case MADV_DOFORK:
		*clear = VMF_DONTFORK;
		return true;
	case MADV_WIPEONFORK:
		*set = VMF_WIPEONFORK;
		return true;
	case MADV_KEEPONFORK:
		*clear = VMF_WIPEONFORK;
		return true;
	case MADV_DONTDUMP:
		*set = VMF_DONTDUMP;
		return true;
	case MADV_DODUMP:
		*clear = VMF_DONTDUMP;
		return true;
	case MADV_HUGEPAGE:
		*set = VMF_HUGEPAGE;
		*clear = VMF_NOHUGEPAGE;
		return true;
	case MADV_NOHUGEPAGE:
		*set = VMF_NOHUGEPAGE;
		*clear = VMF_HUGEPAGE;
		return true;
	case MADV_MERGEABLE:
		*set = VMF_MERGEABLE;
		return true;
	case MADV_UNMERGEABLE:
		*clear = VMF_MERGEABLE;
		return true;
	default: /* not an enum: any number of the guest's */
		return false;
	}
}

static int advise_flags(struct mm *mm, uint64_t a, uint64_t b, int advice, uint32_t set,
			uint32_t clear)
{
	struct vma *v = vma_find(mm, a);
	uint32_t flags = (v->flags & ~clear) | set;
	int r;

	if (advice == MADV_WIPEONFORK && (!vma_anon(v) || vma_shared(v)))
		return -EINVAL;
	if ((advice == MADV_DOFORK || advice == MADV_DODUMP) && (v->flags & VMF_SPECIAL))
		return -EINVAL;
	if (flags == v->flags)
		return 0;
	r = vma_isolate(mm, a, b);
	if (r < 0)
		return r;
	v = vma_find(mm, a);
	vma_set_prot_flags(mm, v, v->prot, flags);
	return 0;
}

static int advise_vma(struct mm *mm, struct vma *v, uint64_t a, uint64_t b, int advice,
		      struct punch *punch)
{
	uint32_t set, clear;

	if (advice_flags(advice, &set, &clear))
		return advise_flags(mm, a, b, advice, set, clear);
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
		if (advice == MADV_DONTNEED_LOCKED && (v->flags & VMF_LOCKED) && !vma_shared(v))
			return discard_private(mm, v, a, b);
		return advise_dontneed(mm, v, a, b, false);
	case MADV_FREE:
		return advise_dontneed(mm, v, a, b, true);
	case MADV_REMOVE:
		return advise_remove(v, a, b, punch);
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
		return advise_populate(mm, v, a, b, advice == MADV_POPULATE_WRITE);
	case MADV_COLD:
	case MADV_PAGEOUT:
		return v->flags & VMF_LOCKED ? -EINVAL : 0;
	default: /* MADV_WILLNEED, MADV_COLLAPSE: nothing to do */
		return 0;
	}
}

static bool advice_known(int advice)
{
	uint32_t set, clear;

	if (advice_flags(advice, &set, &clear))
		return true;
	switch (advice) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
	case MADV_FREE:
	case MADV_REMOVE:
	case MADV_POPULATE_READ:
	case MADV_POPULATE_WRITE:
	case MADV_COLD:
	case MADV_PAGEOUT:
	case MADV_WILLNEED:
	case MADV_COLLAPSE:
		return true;
	default:
		return false;
	}
}

/* Holes in the range are remembered and reported at the end, as Linux does. */
static int advise_range(struct mm *mm, uint64_t start, uint64_t end, int advice,
			struct punch *punch, uint64_t *ret_next)
{
	bool hole = false;
	int r = 0;

	while (start < end && !punch->file) {
		struct vma *v = vma_find_ge(mm, start);
		uint64_t stop;

		if (!v || v->start >= end) {
			hole = true;
			start = end;
			break;
		}
		if (v->start > start) {
			hole = true;
			start = v->start;
		}
		stop = MIN(v->end, end);
		r = advise_vma(mm, v, start, stop, advice, punch);
		if (r < 0)
			break;
		start = stop;
	}
	*ret_next = start;
	return r < 0 ? r : hole ? -ENOMEM : 0;
}

long mm_madvise(struct task *t, gaddr_t addr, uint64_t len, int advice)
{
	struct mm *mm = t->mm;
	uint64_t end, a = addr.va;
	bool hole = false;
	int r = 0;

	if (!advice_known(advice) || !page_aligned(a))
		return -EINVAL;
	if (len && page_up(len) == 0)
		return -EINVAL;
	len = page_up(len);
	if (__builtin_add_overflow(a, len, &end))
		return -EINVAL;
	while (a < end) {
		struct punch punch = { .file = NULL };

		mm_write_lock(mm);
		r = advise_range(mm, a, end, advice, &punch, &a);
		vma_merge_range(mm, addr.va, end);
		mm_write_unlock(mm, t);
		if (punch.file) {
			/* Takes the file's locks, which come before mm.mu. */
			int e = punch.file->ops->fallocate
					? punch.file->ops->fallocate(
						  punch.file,
						  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
						  punch.off, punch.len)
					: -EOPNOTSUPP;

			file_put(punch.file);
			if (e < 0)
				return e;
		}
		if (r == -ENOMEM && a >= end) {
			hole = true;
			break;
		}
		if (r < 0 && r != -ENOMEM)
			return r;
		if (r == -ENOMEM && !punch.file)
			return r;
		hole = hole || r == -ENOMEM;
	}
	return hole ? -ENOMEM : 0;
}

/* ---- mincore ---- */

#define MINCORE_CHUNK 1024 /* pages looked at in one go */

/* One byte a page. -ENOMEM for a hole. Context: mm.mu held for reading. */
static int residency(struct mm *mm, uint64_t start, unsigned pages, unsigned char *vec)
{
	for (unsigned i = 0; i < pages; i++) {
		uint64_t a = start + (uint64_t)i * PAGE_SIZE;
		struct pma *p = pma_find(mm, a);

		if (!vma_find(mm, a))
			return -ENOMEM;
		vec[i] = p && (mfile_is_host(p->mf) ||
			       mfile_range_resident(p->mf, p->off + (a - p->start), PAGE_SIZE));
	}
	return 0;
}

long mm_mincore(struct task *t, gaddr_t addr, uint64_t len, gaddr_t vec)
{
	uint64_t pages = page_up(len) >> PAGE_SHIFT, done = 0;
	AUTO_FREE unsigned char *buf = NULL;

	if (!page_aligned(addr.va))
		return -EINVAL;
	if (addr.va > GUEST_TASK_SIZE || len > GUEST_TASK_SIZE - addr.va)
		return -ENOMEM;
	buf = kzalloc(MINCORE_CHUNK);
	while (done < pages) {
		unsigned n = (unsigned)MIN(pages - done, (uint64_t)MINCORE_CHUNK);
		int r;

		mm_read_lock(t->mm);
		r = residency(t->mm, addr.va + done * PAGE_SIZE, n, buf);
		mm_read_unlock(t->mm);
		if (r < 0)
			return r;
		if (copyout(t, gaddr_off(vec, done), buf, n) < 0)
			return -EFAULT;
		done += n;
	}
	return 0;
}

/* ---- msync ---- */

/* Next object to sync at or after *addr. Reference on it, or NULL at the end. */
static struct vm_object *sync_next(struct mm *mm, uint64_t *addr, uint64_t end, int flags,
				   uint64_t *ret_off, uint64_t *ret_len, int *ret)
{
	struct vm_object *o = NULL;

	mm_read_lock(mm);
	while (*addr < end && !o) {
		struct vma *v = vma_find_ge(mm, *addr);
		uint64_t stop;

		if (!v || v->start > *addr)
			*ret = -ENOMEM; /* a hole; the rest is synced all the same */
		if (!v || v->start >= end) {
			*addr = end;
			break;
		}
		*addr = MAX(*addr, v->start);
		stop = MIN(v->end, end);
		if ((flags & MS_INVALIDATE) && (v->flags & VMF_LOCKED)) {
			*ret = -EBUSY;
			*addr = end;
			break;
		}
		if ((flags & MS_SYNC) && vma_shared(v) && v->obj->ops->sync) {
			o = v->obj;
			o->ops->get(o);
			*ret_off = vma_obj_off(v, *addr);
			*ret_len = stop - *addr;
		}
		*addr = stop;
	}
	mm_read_unlock(mm);
	return o;
}

long mm_msync(struct task *t, gaddr_t addr, uint64_t len, int flags)
{
	uint64_t a = addr.va, end, off, n;
	struct vm_object *o;
	int r = 0;

	if (flags & ~(MS_ASYNC | MS_INVALIDATE | MS_SYNC))
		return -EINVAL;
	if (!page_aligned(a) || ((flags & MS_ASYNC) && (flags & MS_SYNC)))
		return -EINVAL;
	len = page_up(len);
	if (__builtin_add_overflow(a, len, &end))
		return -ENOMEM;
	while ((o = sync_next(t->mm, &a, end, flags, &off, &n, &r))) {
		int e = o->ops->sync(o, off, n);

		o->ops->put(o);
		if (e < 0)
			return e;
	}
	return r;
}
