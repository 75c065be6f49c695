// SPDX-License-Identifier: Apache-2.0
/*
 * mremap in all its forms (man 2 mremap). A move takes the backing along, page for page; nothing is
 * copied.
 *
 * Left out: ranges over several vmas (Linux allows plain moves of them since 6.17); old kernels
 * answer EFAULT as we do.
 */
#include "sentry/mm/mm_priv.h"

#include <string.h>

#include "sentry/kernel/kmem.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs.h"

struct remap {
	uint64_t old, old_len, new_len, to;
	int flags;
};

/* The checks of Linux's check_mremap_params() and vma_to_resize(). The vma or err_ptr. */
static struct vma *check(struct task *t, struct mm *mm, const struct remap *m)
{
	struct vma *v = vma_find(mm, m->old);
	uint64_t add;

	if (!v)
		return err_ptr(-EFAULT);
	/* Length 0 duplicates a mapping: pointless for private memory, refused since 4.14. */
	if (m->old_len == 0 && !vma_shared(v))
		return err_ptr(-EINVAL);
	if ((m->flags & MREMAP_DONTUNMAP) && (v->flags & VMF_SPECIAL))
		return err_ptr(-EINVAL);
	if (m->old_len > v->end - m->old)
		return err_ptr(-EFAULT);
	if (m->new_len <= m->old_len)
		return v;
	add = m->new_len - m->old_len;
	if (v->flags & VMF_SPECIAL)
		return err_ptr(-EFAULT);
	if (v->obj && vma_obj_off(v, m->old) > UINT64_MAX - m->new_len)
		return err_ptr(-EINVAL);
	if ((v->flags & VMF_LOCKED) && !may_lock(t, mm, add))
		return err_ptr(-EAGAIN);
	if (check_limits(t, mm, add, v->prot, v->flags, vma_anon(v)) < 0)
		return err_ptr(-ENOMEM);
	return v;
}

/* Room right behind the vma, whose end is the end of the old range? */
static bool expand(struct mm *mm, struct vma *v, const struct remap *m)
{
	uint64_t end = m->old + m->new_len, old_end = v->end;
	struct vma *n = vma_next(v);
	uint64_t gap = n && (n->flags & VMF_GROWSDOWN) ? STACK_GUARD_GAP : 0;

	if (m->old + m->old_len != v->end || end > GUEST_TASK_SIZE || end < m->old)
		return false;
	if (n && n->start < end + gap)
		return false;
	vma_resize(mm, v, v->start, end);
	if (back_new(mm, v, old_end, end) < 0) {
		pma_remove(mm, old_end, end);
		(void)stub_unmap(mm, old_end, end);
		vma_resize(mm, v, v->start, old_end);
		return false;
	}
	vma_merge_range(mm, v->start, end);
	return true;
}

/* Moves (or duplicates, or with DONTUNMAP leaves an empty original of) the range to m->to, which is
 * free. */
static long move_mapping(struct mm *mm, struct vma *v, const struct remap *m)
{
	bool keep = m->old_len == 0 || (m->flags & MREMAP_DONTUNMAP);
	uint64_t from = m->old, len = MIN(m->old_len, m->new_len);
	struct vma *n;
	int r;

	if (mm->map_count + 3 > MM_MAX_MAP_COUNT || kmem_full())
		return -ENOMEM;
	n = vma_alloc(m->to, m->to + m->new_len, v->prot, v->flags, v->obj,
		      v->obj ? vma_obj_off(v, from) : 0, v->file, v->name);
	vma_insert(mm, n);
	if (len) {
		patch_undo(mm, from, from + len);
		pma_move(mm, from, len, m->to);
		r = stub_unmap(mm, from, from + len);
		if (r == 0)
			r = stub_map_range(mm, n, m->to, m->to + len);
		if (r < 0)
			return r;
		if (v->flags & VMF_SPECIAL)
			mm->layout.vdso = gaddr(v->name && strcmp(v->name, "[vdso]") == 0
							? m->to
							: mm->layout.vdso.va);
	}
	if (!keep) {
		r = unmap_range(mm, from, from + m->old_len);
		if (r < 0)
			return r;
	} else if (len && vma_anon(v)) {
		r = back_new(mm, v, from, from + m->old_len);
		if (r < 0)
			return r;
	}
	n = vma_find(mm, m->to);
	r = back_new(mm, n, m->to, m->to + m->new_len);
	if (r < 0)
		return r;
	if ((n->flags & (VMF_LOCKED | VMF_LOCKONFAULT)) == VMF_LOCKED && m->new_len > len &&
	    n->prot != PROT_NONE)
		plat->as_populate(mm->as, gaddr(m->to + len), m->new_len - len,
				  vma_anon(n) && (n->prot & PROT_WRITE));
	vma_merge_range(mm, m->to, m->to + m->new_len);
	return (long)m->to;
}

static long remap_fixed(struct task *t, struct mm *mm, struct remap *m)
{
	struct vma *v;
	int r;

	if (m->flags & MREMAP_FIXED) {
		if (!page_aligned(m->to) || m->new_len > GUEST_TASK_SIZE ||
		    m->to > GUEST_TASK_SIZE - m->new_len)
			return -EINVAL;
		if (m->old + m->old_len > m->to && m->to + m->new_len > m->old)
			return -EINVAL;
		if (m->to < MMAP_MIN_ADDR)
			return -EPERM;
		if (is_err(v = check(t, mm, m)))
			return ptr_err(v);
		r = unmap_range(mm, m->to, m->to + m->new_len);
		if (r < 0)
			return r;
	} else {
		long a;

		if (is_err(v = check(t, mm, m)))
			return ptr_err(v);
		a = pick_address(t, mm, m->to, m->new_len, 0);
		if (a < 0)
			return a;
		m->to = (uint64_t)a;
	}
	if (m->old_len > m->new_len) {
		r = unmap_range(mm, m->old + m->new_len, m->old + m->old_len);
		if (r < 0)
			return r;
		m->old_len = m->new_len;
	}
	v = check(t, mm, m);
	return is_err(v) ? ptr_err(v) : move_mapping(mm, v, m);
}

static long remap(struct task *t, struct mm *mm, struct remap *m)
{
	struct vma *v;
	long a;
	int r;

	if (m->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
		return remap_fixed(t, mm, m);
	/* Shrinking in place may even cover several vmas. */
	if (m->old_len >= m->new_len) {
		if (!vma_find(mm, m->old))
			return -EFAULT;
		if (m->old_len == m->new_len)
			return (long)m->old;
		r = unmap_range(mm, m->old + m->new_len, m->old + m->old_len);
		return r < 0 ? r : (long)m->old;
	}
	v = check(t, mm, m);
	if (is_err(v))
		return ptr_err(v);
	if (m->old_len && expand(mm, v, m)) {
		if (v->flags & VMF_LOCKED)
			plat->as_populate(mm->as, gaddr(m->old + m->old_len),
					  m->new_len - m->old_len, false);
		return (long)m->old;
	}
	if (!(m->flags & MREMAP_MAYMOVE))
		return -ENOMEM;
	a = pick_address(t, mm, 0, m->new_len, 0);
	if (a < 0)
		return a;
	m->to = (uint64_t)a;
	return move_mapping(mm, v, m);
}

long mm_mremap(struct task *t, gaddr_t old, uint64_t old_len, uint64_t new_len, int flags,
	       gaddr_t new_addr)
{
	struct remap m = { .old = old.va, .old_len = page_up(old_len),
			   .new_len = page_up(new_len), .to = new_addr.va, .flags = flags };
	long r;

	if (flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP))
		return -EINVAL;
	if ((flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) && !(flags & MREMAP_MAYMOVE))
		return -EINVAL;
	if ((flags & MREMAP_DONTUNMAP) && old_len != new_len)
		return -EINVAL;
	if (!page_aligned(old.va) || m.new_len == 0)
		return -EINVAL;
	if (old.va >= GUEST_TASK_SIZE)
		return -EFAULT;
	if ((old_len && m.old_len == 0) || m.new_len > GUEST_TASK_SIZE)
		return -EINVAL;
	if (m.old_len > GUEST_TASK_SIZE - old.va)
		return -EFAULT;
	mm_write_lock(t->mm);
	r = t->mm->as ? remap(t, t->mm, &m) : -EFAULT;
	mm_write_unlock(t->mm, t);
	return r;
}

long mm_remap_file_pages(struct task *t, gaddr_t start, uint64_t size, uint64_t off, int flags)
{
	AUTO_FILE struct file *f = NULL;
	struct mm *mm = t->mm;
	struct vma *v;
	int prot = 0;
	long r;

	mm_read_lock(mm);
	v = vma_find(mm, start.va);
	if (v && vma_shared(v) && v->file && v->end - start.va >= size) {
		f = file_get(v->file);
		prot = v->prot;
	}
	mm_read_unlock(mm);
	if (!f)
		return -EINVAL;
	r = mm_mmap(t, start, size, prot,
		    MAP_SHARED | MAP_FIXED | MAP_POPULATE | (flags & MAP_NONBLOCK), f, off);
	return r < 0 ? r : 0;
}
