// SPDX-License-Identifier: Apache-2.0
/*
 * Who maps an object: a side table from vm_object to the address spaces that have vmas of it, so that
 * a file system can take pages away that it truncates or moves (Linux: i_mmap).
 *
 * Only (object, mm) pairs with a count of vmas are kept; the vmas themselves are found by walking
 * the mm, which is rare and cheap beside the flush that follows.
 *
 * Lock order: mm.mu > table lock. To walk, the mms are collected with references first and the table
 * lock is let go before any mm.mu is taken; an mm that maps the object after that sees its new size.
 */
#include <uthash.h>

#include "base/alloc.h"
#include "base/list.h"
#include "sentry/mm/mm_priv.h"

struct objmap_user {
	struct list node;
	struct mm *mm; /* borrowed: removed before the mm's vmas are gone */
	unsigned vmas;
};

struct objmap {
	struct vm_object *obj;
	struct list users;
	UT_hash_handle hh;
};

static struct objmap *table;
static struct mutex table_mu = { .m = PTHREAD_MUTEX_INITIALIZER, .rank = RANK_MM_SIDE };

static struct objmap *find(struct vm_object *o)
{
	struct objmap *e;

	HASH_FIND_PTR(table, &o, e);
	return e;
}

static struct objmap_user *find_user(struct objmap *e, struct mm *mm)
{
	struct objmap_user *u;

	list_for_each(u, &e->users, node)
		if (u->mm == mm)
			return u;
	return NULL;
}

void objmap_add(struct vm_object *o, struct mm *mm)
{
	struct objmap_user *u = NULL;
	struct objmap *e;

	mutex_lock(&table_mu);
	e = find(o);
	if (!e) {
		e = kzalloc(sizeof(*e));
		e->obj = o;
		list_init(&e->users);
		HASH_ADD_PTR(table, obj, e);
	} else {
		u = find_user(e, mm);
	}
	if (!u) {
		u = kzalloc(sizeof(*u));
		u->mm = mm;
		list_add(&e->users, &u->node);
	}
	u->vmas++;
	mutex_unlock(&table_mu);
}

void objmap_del(struct vm_object *o, struct mm *mm)
{
	struct objmap_user *u;
	struct objmap *e;

	mutex_lock(&table_mu);
	e = find(o);
	u = e ? find_user(e, mm) : NULL;
	if (!u)
		panic("unmapping an object that isn't mapped");
	if (--u->vmas == 0) {
		list_del(&u->node);
		free(u);
	}
	if (list_empty(&e->users)) {
		HASH_DEL(table, e);
		free(e);
	}
	mutex_unlock(&table_mu);
}

/* References on all mms that map @o, in a heap array that the caller frees. */
static struct mm **collect(struct vm_object *o, unsigned *ret_n)
{
	struct mm **mms = NULL;
	struct objmap_user *u;
	struct objmap *e;
	unsigned n = 0;

	mutex_lock(&table_mu);
	e = find(o);
	if (e) {
		list_for_each(u, &e->users, node)
			n++;
		mms = kcalloc(n, sizeof(struct mm *));
		n = 0;
		list_for_each(u, &e->users, node)
			if (ref_get_unless_zero(&u->mm->ref))
				mms[n++] = u->mm;
	}
	mutex_unlock(&table_mu);
	*ret_n = n;
	return mms;
}

/* Drops the object's own pages from [off, end) of the vma; private copies stay when @keep_private. */
static void drop_from_vma(struct mm *mm, struct vma *v, uint64_t off, uint64_t end,
			  bool keep_private)
{
	uint64_t vend = v->off + (v->end - v->start), a, b, e;
	struct pma *p;

	if (off >= vend || end <= v->off)
		return;
	a = v->start + (MAX(off, v->off) - v->off);
	b = v->start + (MIN(end, vend) - v->off);
	for (; a < b; a = e) {
		uint64_t s;

		p = pma_find_ge(mm, a);
		if (!p || p->start >= b)
			break;
		s = MAX(p->start, a);
		e = MIN(p->end, b);
		if (keep_private && (p->flags & PMA_COUNTED))
			continue;
		pma_remove(mm, s, e);
		(void)stub_unmap(mm, s, e); /* queueing fails only when the stub is dead */
	}
}

static void drop_object(struct vm_object *o, uint64_t off, uint64_t end, bool keep_private)
{
	unsigned n;
	struct mm **mms = collect(o, &n);

	for (unsigned i = 0; i < n; i++) {
		struct mm *mm = mms[i];
		struct vma *v;

		mm_write_lock(mm);
		if (mm->as) {
			mm_wait_unpinned(mm);
			for_each_vma(v, mm)
				if (v->obj == o)
					drop_from_vma(mm, v, off, end, keep_private);
		}
		mm_write_unlock(mm, NULL);
		mm_put(mm);
	}
	free(mms);
}

/* Truncation takes private copies beyond the end, too (unmap_mapping_range with even_cows). */
void mm_object_truncated(struct vm_object *o, uint64_t new_size)
{
	drop_object(o, page_up(new_size), UINT64_MAX, false);
}

void mm_object_moved(struct vm_object *o, uint64_t off, uint64_t len)
{
	uint64_t end;

	if (__builtin_add_overflow(off, len, &end))
		end = UINT64_MAX;
	drop_object(o, page_down(off), end > UINT64_MAX - PAGE_SIZE ? end : page_up(end), true);
}
