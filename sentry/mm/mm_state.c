// SPDX-License-Identifier: Apache-2.0
/*
 * Saving and loading address spaces. What is saved is what the guest asked for (vmas) and its private
 * pages; pages of files and segments are their owners', and are asked for again at the first access.
 *
 * Loaded private pages are the image's, copy-on-write. A private range that was saved and is not data in the
 * image is zeroes: fresh memory, also where a file is mapped below it.
 *
 * [vdso] comes with the image, since threads may stand in it; if it is the same as ours, ours is mapped.
 * [vvar] is always ours.
 *
 * Address spaces are saved after mm_freeze_all(): they only have private pages then.
 */
#include "sentry/mm/mm_state.h"

#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "sentry/loader/loader.h"
#include "sentry/mm/mm_priv.h"
#include "sentry/mm/safecopy.h"
#include "sentry/mm/shmem.h"
#include "sentry/state/pages.h"
#include "sentry/state/state.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"

#define NAME_MAX_VMA 4096
#define PIECES_MAX (1u << 20) /* private ranges of one vma */
#define VDSO_MAX (16 * PAGE_SIZE)
#define VMF_KNOWN                                                                        \
	(VMF_SHARED | VMF_GROWSDOWN | VMF_NORESERVE | VMF_DONTFORK | VMF_WIPEONFORK |       \
	 VMF_LOCKED | VMF_DONTDUMP | VMF_SPECIAL | VMF_HUGEPAGE | VMF_NOHUGEPAGE |           \
	 VMF_MERGEABLE | VMF_MAYALL | VMF_LOCKONFAULT | VMF_RANDREAD | VMF_SEQREAD)

extern const struct vm_object_ops shm_vm_ops __weak; /* SysV segments: kernel/sysv_shm.c */

/* What is mapped; in images. */
enum vma_kind { KIND_ANON, KIND_SEGMENT, KIND_FILE, KIND_VVAR, KIND_VDSO, KIND_COUNT };

/* A vma between fields() and finish(), with its private pages. */
struct vma_load {
	struct vma_load *next;
	struct vma *v; /* not in the tree; obj set in finish() */
	int64_t kind;
	struct piece {
		struct piece *next;
		uint64_t start, end;
		struct mfile *mf; /* reference; NULL: zeroes */
		uint64_t off;
	} *pieces, **tail;
};

/* ---- saving ---- */

static const struct state_type *segment_type_of(const void *obj)
{
	const struct vm_object *o = obj;

	if (vm_object_is_shmem(o))
		return &state_shmem;
	return o->ops == &shm_vm_ops ? &state_sysv_shm : NULL;
}

static const struct state_type *const segment_types[] = { &state_shmem, &state_sysv_shm, NULL };
static const struct state_class segments = {
	.name = "shared segment",
	.type_of = segment_type_of,
	.types = segment_types,
};

static int64_t kind_of(struct state *s, const struct vma *v)
{
	if (v->flags & VMF_SPECIAL)
		return v->name && !strcmp(v->name, "[vvar]") ? KIND_VVAR : KIND_VDSO;
	if (!v->obj)
		return KIND_ANON;
	if (segment_type_of(v->obj))
		return KIND_SEGMENT;
	if (v->file && v->file->inode && v->file->inode->vmobj == v->obj)
		return KIND_FILE;
	state_fail(s, "a mapping of something that can't be saved: %s",
		   v->name ? v->name : v->file ? v->file->ops->name : "?");
	return KIND_ANON;
}

static void save_piece(struct state *s, uint64_t start, uint64_t end, struct mfile *mf, uint64_t off,
		       bool write, uint32_t *n)
{
	uint64_t len = end - start;

	if (len == 0)
		return;
	++*n;
	if (!write)
		return;
	state_u64(s, &start);
	state_u64(s, &len);
	state_pages_out(s, mf, off, len);
}

/* Counts the private pieces of @v, or writes them; pages of patched text as they are without. */
static uint32_t each_piece(struct state *s, struct mm *mm, struct vma *v, bool write)
{
	bool all = (v->flags & VMF_SPECIAL) != 0;
	struct clean_page *c = mm->clean;
	uint32_t n = 0;

	for (struct pma *p = pma_find_ge(mm, v->start); p && p->start < v->end; p = pma_next(p)) {
		uint64_t a = MAX(p->start, v->start), end = MIN(p->end, v->end);

		if (!all && !(p->flags & PMA_COUNTED))
			continue;
		while (c && c->addr < a)
			c = c->next;
		for (; c && c->addr < end; c = c->next) {
			save_piece(s, a, c->addr, p->mf, p->off + (a - p->start), write, &n);
			if (c->mf)
				save_piece(s, c->addr, c->addr + PAGE_SIZE, c->mf, c->off, write, &n);
			a = c->addr + PAGE_SIZE;
		}
		save_piece(s, a, end, p->mf, p->off + (a - p->start), write, &n);
	}
	return n;
}

static void save_pieces(struct state *s, struct mm *mm, struct vma *v)
{
	(void)state_count(s, each_piece(s, mm, v, false), PIECES_MAX);
	(void)each_piece(s, mm, v, true);
}

/* ---- one vma, both directions ---- */

static void vma_fields(struct state *s, struct vma_load *l)
{
	struct vma *v = l->v;
	int64_t prot = v->prot;

	state_u64(s, &v->start);
	state_u64(s, &v->end);
	state_range_i64(s, &prot, 0, PROT_READ | PROT_WRITE | PROT_EXEC);
	v->prot = (int)prot;
	state_u32(s, &v->flags);
	state_u64(s, &v->off);
	state_heap_str(s, &v->name, NAME_MAX_VMA);
	state_ref(s, &state_file, &v->file);
	state_range_i64(s, &l->kind, 0, KIND_COUNT - 1);
	if (l->kind == KIND_SEGMENT)
		state_ref_in(s, &segments, &v->obj);
}

static bool vma_ok(const struct vma_load *l)
{
	const struct vma *v = l->v;
	uint64_t len = v->end - v->start, end;
	bool obj = l->kind == KIND_SEGMENT || l->kind == KIND_FILE;
	bool special = l->kind == KIND_VVAR || l->kind == KIND_VDSO;

	if (!page_aligned(v->start | v->end | v->off) || v->start < MMAP_MIN_ADDR ||
	    v->end <= v->start || v->end > GUEST_TASK_SIZE || (v->flags & ~VMF_KNOWN))
		return false;
	if (__builtin_add_overflow(v->off, len, &end) || end > INT64_MAX)
		return false;
	if (special != ((v->flags & VMF_SPECIAL) != 0) || (vma_shared(v) && !obj))
		return false;
	if (special && (v->prot & PROT_WRITE))
		return false;
	if (vma_shared(v) && (v->prot & PROT_WRITE) && !(v->flags & VMF_MAYWRITE))
		return false;
	if ((l->kind == KIND_FILE) && !v->file)
		return false;
	return l->kind != KIND_SEGMENT || v->obj;
}

/* ---- loading: the pieces ---- */

struct piece_load {
	struct vma_load *l;
	uint64_t base, done;
};

static void add_piece(struct vma_load *l, uint64_t start, uint64_t end, struct mfile *mf, uint64_t off)
{
	struct piece *p;

	if (start == end)
		return;
	p = kzalloc(sizeof(*p));
	*p = (struct piece){ NULL, start, end, mf ? mfile_get(mf) : NULL, off };
	*l->tail = p;
	l->tail = &p->next;
}

static void take_piece(void *arg, uint64_t at, uint64_t len, struct mfile *mf, uint64_t off)
{
	struct piece_load *pl = arg;

	add_piece(pl->l, pl->done, pl->base + at, NULL, 0);
	pl->done = pl->base + at + len;
	add_piece(pl->l, pl->base + at, pl->done, mf, off);
}

static void load_pieces(struct state *s, struct vma_load *l)
{
	uint32_t n = state_count(s, 0, PIECES_MAX);
	uint64_t from = l->v->start;

	for (uint32_t i = 0; i < n && state_ok(s); i++) {
		struct piece_load pl = { .l = l };
		uint64_t len = 0;

		state_u64(s, &pl.base);
		state_u64(s, &len);
		if (!page_aligned(pl.base | len) || pl.base < from || pl.base > l->v->end ||
		    len > l->v->end - pl.base) {
			state_fail(s, "private pages outside of their mapping");
			return;
		}
		pl.done = pl.base;
		state_pages_in(s, len, take_piece, &pl);
		add_piece(l, pl.done, pl.base + len, NULL, 0);
		from = pl.base + len;
	}
}

static void load_vmas(struct state *s, struct mm *mm, uint32_t n)
{
	struct vma_load **tail = &mm->loads;
	uint64_t from = 0;

	for (uint32_t i = 0; i < n && state_ok(s); i++) {
		struct vma_load *l = kzalloc(sizeof(*l));

		l->v = vma_alloc(0, 0, 0, 0, NULL, 0, NULL, NULL);
		l->tail = &l->pieces;
		*tail = l;
		tail = &l->next;
		vma_fields(s, l);
		if (state_ok(s) && (!vma_ok(l) || l->v->start < from)) {
			state_fail(s, "an impossible mapping");
			return;
		}
		from = l->v->end;
		load_pieces(s, l);
		if (l->pieces && vma_shared(l->v))
			state_fail(s, "a shared mapping with private pages");
	}
}

/* ---- an address space ---- */

static void layout_fields(struct state *s, struct mm_layout *l)
{
	gaddr_t *all[] = { &l->start_code, &l->end_code, &l->start_data, &l->end_data,
			   &l->start_brk,  &l->brk,	 &l->start_stack, &l->arg_start,
			   &l->arg_end,	   &l->env_start, &l->env_end,	  &l->vdso };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		state_u64(s, &all[i]->va);
		if (all[i]->va > GUEST_TASK_SIZE)
			state_fail(s, "an address beyond the address space");
	}
	if (l->brk.va < l->start_brk.va || l->end_data.va < l->start_data.va)
		state_fail(s, "a heap that ends before it begins");
}

static void mm_fields(struct state *s, void *obj)
{
	struct mm *mm = obj;
	int32_t dumpable = mm_get_dumpable(mm);
	bool dead = !mm->as;
	struct vma *v;
	uint32_t n = 0;

	layout_fields(s, &mm->layout);
	state_ref(s, &state_file, &mm->exe);
	mm->nauxv = state_count(s, mm->nauxv, AUXV_MAX);
	state_bytes(s, mm->auxv, mm->nauxv * sizeof(mm->auxv[0]));
	state_i32(s, &dumpable);
	mm_set_dumpable(mm, dumpable);
	state_u32(s, &mm->pkeys);
	state_u32(s, &mm->def_flags);
	state_u64(s, &mm->mmap_base);
	if (mm->mmap_base > GUEST_TASK_SIZE || !page_aligned(mm->mmap_base) ||
	    (mm->def_flags & ~(VMF_LOCKED | VMF_LOCKONFAULT)))
		state_fail(s, "bad parameters of an address space");
	state_u64(s, &mm->peak_vm);
	state_bool(s, &dead);
	for_each_vma(v, mm)
		n += !patch_is_area(v);
	n = state_count(s, n, MM_MAX_MAP_COUNT + 1);
	if (state_loading(s)) {
		mm->load_dead = dead;
		load_vmas(s, mm, n);
		return;
	}
	for_each_vma(v, mm) {
		struct vma_load l = { .v = v, .kind = kind_of(s, v) };

		if (patch_is_area(v))
			continue;
		vma_fields(s, &l);
		save_pieces(s, mm, v);
	}
}

/* ---- loading: into force ---- */

static void drop_pieces(struct vma_load *l)
{
	while (l->pieces) {
		struct piece *p = l->pieces;

		l->pieces = p->next;
		if (p->mf)
			mfile_put(p->mf);
		free(p);
	}
}

/* Is what the image has for [vdso] what we would map? */
static bool same_vdso(const struct vma_load *l, struct mfile *mf, uint64_t off, uint64_t len)
{
	AUTO_FREE char *a = NULL, *b = NULL;
	const struct piece *p = l->pieces;
	uint64_t n = len, m = len;
	const void *ours, *theirs;

	if (!p || p->next || !p->mf || len > VDSO_MAX || p->start != l->v->start ||
	    p->end != l->v->end || p->end - p->start != len)
		return false;
	ours = mfile_cptr(mf, off, &n);
	theirs = mfile_cptr(p->mf, p->off, &m);
	if (!ours || !theirs || n < len || m < len)
		return false;
	a = kzalloc(len);
	b = kzalloc(len);
	return !safecopy(a, ours, len) && !safecopy(b, theirs, len) && !memcmp(a, b, len);
}

static void map_special(struct state *s, struct mm *mm, struct vma_load *l)
{
	uint64_t off, len = PAGE_SIZE;
	struct mfile *mf;

	if (l->kind == KIND_VVAR) {
		mf = clock_vvar_mfile(&off);
		if (l->v->end - l->v->start != PAGE_SIZE) {
			state_fail(s, "a page of clock parameters of another size");
			return;
		}
	} else {
		mf = vdso_mfile(&off, &len);
		if (!same_vdso(l, mf, off, len))
			return; /* as any other private page */
	}
	drop_pieces(l);
	pma_insert(mm, l->v->start, l->v->end, mfile_get(mf), off, PMA_RO);
}

static int back_zeroes(struct mm *mm, uint64_t start, uint64_t end)
{
	while (start < end) {
		struct mfile *mf;
		uint64_t off, n;
		int r = own_alloc(mm, start, end - start, &mf, &off, &n);

		if (r < 0)
			return r;
		pma_insert(mm, start, start + n, mf, off, PMA_COUNTED);
		start += n;
	}
	return 0;
}

static int install(struct mm *mm, struct vma_load *l)
{
	struct vma *v = l->v;
	struct piece *p;
	int r = 0;

	for (p = l->pieces; p && r == 0; p = p->next) {
		if (!p->mf) {
			r = back_zeroes(mm, p->start, p->end);
			continue;
		}
		mfile_range_get(p->mf, p->off, p->end - p->start);
		pma_insert(mm, p->start, p->end, mfile_get(p->mf), p->off, PMA_COUNTED | PMA_RO);
	}
	if (r == 0 && (v->prot & PROT_EXEC))
		r = copy_noexec(mm, v->start, v->end);
	if (r >= 0)
		r = stub_map_range(mm, v, v->start, v->end);
	if (r == 0 && l->kind == KIND_ANON)
		r = back_new(mm, v, v->start, v->end);
	return r;
}

static void enter_vma(struct state *s, struct mm *mm, struct vma_load *l)
{
	struct vma *v = l->v;
	int r;

	if (l->kind == KIND_FILE) {
		v->obj = v->file->inode ? v->file->inode->vmobj : NULL;
		if (!v->obj) {
			state_fail(s, "a mapping of a file that can't be mapped");
			return;
		}
		v->obj->ops->get(v->obj);
	}
	vma_insert(mm, v);
	if (v->flags & VMF_SPECIAL)
		map_special(s, mm, l);
	r = state_ok(s) ? install(mm, l) : 0;
	if (r < 0)
		state_fail(s, "memory: %s", strerror(-r));
	drop_pieces(l);
}

static void mm_finish(struct state *s, void *obj)
{
	struct mm *mm = obj;
	uint64_t peak = mm->peak_vm;

	mm->gap_top = mm->mmap_base;
	rwmutex_wrlock(&mm->mu);
	mm->loading = true;
	if (mm->load_dead) {
		plat->as_destroy(mm->as);
		mm->as = NULL;
	}
	while (mm->loads && state_ok(s)) {
		struct vma_load *l = mm->loads;

		mm->loads = l->next;
		if (mm->load_dead)
			state_fail(s, "mappings of a process that has ended");
		else
			enter_vma(s, mm, l);
		free(l);
	}
	mm->peak_vm = MAX(peak, mm->total_vm);
	mm->loading = false;
	mm->need_flush = false;
	rwmutex_unlock(&mm->mu);
}

static void *mm_alloc(struct state *s)
{
	struct mm *mm = mm_create();

	if (!is_err(mm))
		return mm;
	state_fail(s, "cannot make an address space: %s", strerror((int)-ptr_err(mm)));
	return NULL;
}

static void *mm_state_get(void *obj)
{
	return mm_get(obj);
}

/* The load's own: that of mm_create(), with its use. */
static void mm_state_put(void *obj)
{
	mm_unuse(obj);
}

void mm_state_use(struct mm *mm)
{
	atomic_fetch_add(&mm->users, 1);
}

const struct state_type state_mm = {
	.id = STATE_MM,
	.version = 1,
	.name = "address space",
	.alloc = mm_alloc,
	.fields = mm_fields,
	.finish = mm_finish,
	.get = mm_state_get,
	.put = mm_state_put,
	.phase = 5,
};
