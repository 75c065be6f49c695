// SPDX-License-Identifier: Apache-2.0
/*
 * The tree of vmas: find, split, merge, resize, remove, and the search for free address space.
 *
 * Merging follows Linux (mm/vma.c can_vma_merge_*): same rights, flags, object and file, and offsets
 * that continue. /proc/PID/maps shows the result, and programs parse it.
 *
 * Context of everything here: mm.mu, for writing unless it only looks.
 */
#include "sentry/mm/mm_priv.h"

#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/kmem.h"
#include "sentry/vfs/vfs.h"

static int vma_cmp(const struct vma *a, const struct vma *b)
{
	return a->start < b->start ? -1 : a->start > b->start;
}

RB_GENERATE_STATIC(vma_tree, vma, rb, vma_cmp)

struct vma *vma_next(struct vma *v)
{
	return vma_tree_RB_NEXT(v);
}

struct vma *vma_prev(struct vma *v)
{
	return vma_tree_RB_PREV(v);
}

struct vma *vma_find_ge(struct mm *mm, uint64_t addr)
{
	struct vma *hint = atomic_load_explicit(&mm->vma_hint, memory_order_relaxed);
	struct vma *v = RB_ROOT(&mm->vmas), *best = NULL;

	/* A hint is only ever a vma of the tree: writers reset it before they remove one. */
	if (hint && hint->start <= addr && addr < hint->end)
		return hint;
	while (v) {
		if (v->end > addr) {
			best = v;
			if (v->start <= addr)
				break;
			v = RB_LEFT(v, rb);
		} else {
			v = RB_RIGHT(v, rb);
		}
	}
	if (best)
		atomic_store_explicit(&mm->vma_hint, best, memory_order_relaxed);
	return best;
}

struct vma *vma_find(struct mm *mm, uint64_t addr)
{
	struct vma *v = vma_find_ge(mm, addr);

	return v && v->start <= addr ? v : NULL;
}

bool vma_any(struct mm *mm, uint64_t start, uint64_t end)
{
	struct vma *v = vma_find_ge(mm, start);

	return v && v->start < end;
}

bool vma_covered(struct mm *mm, uint64_t start, uint64_t end)
{
	struct vma *v = vma_find(mm, start);

	while (v && v->end < end) {
		struct vma *n = vma_next(v);

		if (!n || n->start != v->end)
			return false;
		v = n;
	}
	return v != NULL;
}

bool is_data(int prot, uint32_t flags)
{
	return (prot & PROT_WRITE) && !(flags & (VMF_SHARED | VMF_GROWSDOWN));
}

static void account(struct mm *mm, const struct vma *v, bool add)
{
	uint64_t n = v->end - v->start;

	if (!add)
		n = -n;
	mm->total_vm += n;
	if (mm->total_vm > mm->peak_vm)
		mm->peak_vm = mm->total_vm;
	if (is_data(v->prot, v->flags))
		mm->data_vm += n;
	if (v->flags & VMF_GROWSDOWN)
		mm->stack_vm += n;
	if ((v->prot & PROT_EXEC) && !(v->prot & PROT_WRITE) && !(v->flags & VMF_GROWSDOWN))
		mm->exec_vm += n;
	if (v->flags & VMF_LOCKED)
		mm->locked_vm += n;
}

struct vma *vma_alloc(uint64_t start, uint64_t end, int prot, uint32_t flags,
		      struct vm_object *obj, uint64_t off, struct file *file, const char *name)
{
	struct vma *v = kzalloc(sizeof(*v));

	kmem_add(VMA_HEAP);
	v->start = start;
	v->end = end;
	v->prot = prot;
	v->flags = flags;
	v->obj = obj;
	v->off = off;
	if (obj)
		obj->ops->get(obj);
	if (file)
		v->file = file_get(file);
	if (name)
		v->name = kstrdup(name);
	return v;
}

/* Frees a vma that is in no tree. Context: no mm.mu, since closing a file may take VFS locks. */
void vma_destroy(struct vma *v)
{
	if (v->obj)
		v->obj->ops->put(v->obj);
	if (v->file)
		file_put(v->file);
	free(v->name);
	free(v);
	kmem_uncharge(VMA_HEAP);
}

static bool shared_writable(const struct vma *v)
{
	return (v->flags & (VMF_SHARED | VMF_MAYWRITE)) == (VMF_SHARED | VMF_MAYWRITE);
}

static void tell_mapped(struct mm *mm, struct vma *v, uint64_t start, uint64_t end, bool mapped)
{
	const struct vm_object_ops *ops;

	if (!v->obj || start == end)
		return;
	ops = v->obj->ops;
	if (mapped && ops->mapped)
		ops->mapped(v->obj, mm, gaddr(start), end - start, vma_obj_off(v, start),
			    shared_writable(v));
	if (!mapped && ops->unmapped)
		ops->unmapped(v->obj, mm, gaddr(start), end - start, vma_obj_off(v, start),
			      shared_writable(v));
}

static void link_vma(struct mm *mm, struct vma *v)
{
	if (RB_INSERT(vma_tree, &mm->vmas, v))
		panic("overlapping vma");
	mm->map_count++;
	if (v->obj)
		objmap_add(v->obj, mm);
}

static void unlink_vma(struct mm *mm, struct vma *v)
{
	atomic_store_explicit(&mm->vma_hint, NULL, memory_order_relaxed);
	RB_REMOVE(vma_tree, &mm->vmas, v);
	mm->map_count--;
	if (v->obj)
		objmap_del(v->obj, mm);
	v->gc_next = mm->gc_vmas;
	mm->gc_vmas = v;
}

void vma_insert(struct mm *mm, struct vma *v)
{
	link_vma(mm, v);
	account(mm, v, true);
	tell_mapped(mm, v, v->start, v->end, true);
}

/* Address space was freed: the gap search must look there again. */
static void gap_freed(struct mm *mm, uint64_t end)
{
	if (end > mm->gap_top && end <= mm->mmap_base)
		mm->gap_top = end;
}

void vma_remove(struct mm *mm, struct vma *v)
{
	account(mm, v, false);
	tell_mapped(mm, v, v->start, v->end, false);
	gap_freed(mm, v->end);
	unlink_vma(mm, v);
}

struct vma *vma_split(struct mm *mm, struct vma *v, uint64_t addr)
{
	struct vma *hi = vma_alloc(addr, v->end, v->prot, v->flags, v->obj, vma_obj_off(v, addr),
				   v->file, v->name);

	v->end = addr;
	link_vma(mm, hi);
	return hi;
}

int vma_isolate(struct mm *mm, uint64_t start, uint64_t end)
{
	struct vma *a = vma_find(mm, start), *b = vma_find(mm, end - 1);
	unsigned splits = 0;

	if (a && a->start < start)
		splits++;
	if (b && b->end > end)
		splits++;
	if (splits && (mm->map_count + splits > MM_MAX_MAP_COUNT || kmem_full()))
		return -ENOMEM;
	if (a && a->start < start)
		vma_split(mm, a, start);
	b = vma_find(mm, end - 1);
	if (b && b->end > end)
		vma_split(mm, b, end);
	return 0;
}

static bool names_equal(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool can_merge(const struct vma *a, const struct vma *b)
{
	return a->end == b->start && a->prot == b->prot && a->flags == b->flags &&
	       !(a->flags & VMF_SPECIAL) && a->obj == b->obj && a->file == b->file &&
	       (!a->obj || vma_obj_off(a, b->start) == b->off) && names_equal(a->name, b->name);
}

void vma_merge_range(struct mm *mm, uint64_t start, uint64_t end)
{
	struct vma *v = vma_find_ge(mm, start ? start - 1 : 0);

	while (v && v->start < end) {
		struct vma *n = vma_next(v);

		if (!n || n->start > end)
			break;
		if (!can_merge(v, n)) {
			v = n;
			continue;
		}
		v->end = n->end;
		unlink_vma(mm, n);
	}
}

void vma_set_prot_flags(struct mm *mm, struct vma *v, int prot, uint32_t flags)
{
	account(mm, v, false);
	v->prot = prot;
	v->flags = flags;
	account(mm, v, true);
}

void vma_resize(struct mm *mm, struct vma *v, uint64_t start, uint64_t end)
{
	account(mm, v, false);
	if (end < v->end) {
		tell_mapped(mm, v, end, v->end, false);
		gap_freed(mm, v->end);
	}
	if (start > v->start) {
		tell_mapped(mm, v, v->start, start, false);
		gap_freed(mm, start);
	}
	if (end > v->end)
		tell_mapped(mm, v, v->end, end, true);
	if (v->obj)
		v->off += start - v->start;
	v->start = start;
	v->end = end;
	account(mm, v, true);
}

/* Where the space that @v needs begins: a stack keeps a guard gap below it (stack_guard_gap). */
static uint64_t vma_low(const struct vma *v)
{
	if (!(v->flags & VMF_GROWSDOWN))
		return v->start;
	return v->start > STACK_GUARD_GAP ? v->start - STACK_GUARD_GAP : 0;
}

static uint64_t scan_down(struct mm *mm, uint64_t len, uint64_t low, uint64_t high,
			  uint64_t *skipped)
{
	struct vma *v = high ? vma_find_ge(mm, high - 1) : NULL;
	uint64_t top = high;

	if (!v)
		v = RB_MAX(vma_tree, &mm->vmas);
	/* @v is the highest vma that may reach below @high, or the first one above it. */
	while (v && vma_low(v) >= high)
		v = vma_prev(v);
	if (v) {
		struct vma *n = vma_next(v);

		if (n && vma_low(n) < top)
			top = vma_low(n);
	}
	for (; v; v = vma_prev(v)) {
		if (v->end <= top) {
			uint64_t hole = top - MAX(v->end, low);

			if (v->end < low)
				break;
			if (hole >= len && top >= len)
				return top - len;
			if (hole > *skipped)
				*skipped = hole;
		}
		top = MIN(top, vma_low(v));
		if (top <= low)
			return 0;
	}
	return top >= len && top - len >= low && top - len >= MMAP_MIN_ADDR ? top - len : 0;
}

/*
 * The search remembers where it found the last gap and the largest hole that it passed on the way
 * (as Linux did before it had an augmented tree), so that thousands of mappings in a row don't each
 * walk over all earlier ones.
 */
uint64_t vma_find_gap(struct mm *mm, uint64_t len, uint64_t low, uint64_t high)
{
	bool cached = high == mm->mmap_base && len > mm->gap_skipped;
	uint64_t start = cached ? MIN(mm->gap_top, high) : high, skipped = 0, a;

	a = scan_down(mm, len, low, start, &skipped);
	if (!a && cached && start != high) {
		skipped = 0;
		cached = false;
		a = scan_down(mm, len, low, high, &skipped);
	}
	if (a && high == mm->mmap_base) {
		mm->gap_skipped = cached ? MAX(mm->gap_skipped, skipped) : skipped;
		mm->gap_top = a + len;
	}
	return a;
}
