// SPDX-License-Identifier: Apache-2.0
/*
 * Shared anonymous memory. The pages live in an mfile of the object's own: a stub that maps the
 * segment is given a writable descriptor of that mfile, which must hold nothing else.
 *
 * A checkpoint freezes the pages where they are (sentry/state/pages.h): the segment goes on in a fresh mfile,
 * and what it has of older ones is listed (`frozen`). At a freeze nobody has the segment mapped any
 * more, and the first access to a frozen place, of whatever kind, copies a cluster of pages over. So all who
 * map the segment always agree on where a page is.
 *
 * Locks: mm.mu (of any of its users) > shmem.mu (RANK_INODE_PAGES) > mfile.mu
 */
#include "sentry/mm/shmem.h"

#include "base/alloc.h"
#include "sentry/mm/mm_priv.h"
#include "sentry/state/pages.h"
#include "sentry/state/state.h"

/* [at, end) of the segment is to be found at @off of @mf. */
struct frozen {
	struct frozen *next;
	uint64_t at, end;
	struct mfile *mf; /* reference, and one on each page */
	uint64_t off;
};

struct shmem {
	struct vm_object obj; /* first */
	struct ref ref;
	uint64_t size;        /* (c) page multiple */
	uint64_t ino;         /* (c) for /proc */
	struct mutex mu;
	struct mfile *mf;     /* (mu) reference; NULL: nothing was touched since the freeze */
	uint64_t off;         /* (mu) of byte 0 in it */
	struct frozen *frozen; /* (mu) sorted */
};

static struct shmem *to_shmem(struct vm_object *o)
{
	return container_of(o, struct shmem, obj);
}

static void shmem_get(struct vm_object *o)
{
	ref_get(&to_shmem(o)->ref);
}

static struct frozen *frozen_new(uint64_t at, uint64_t end, struct mfile *mf, uint64_t off)
{
	struct frozen *z = kzalloc(sizeof(*z));

	mfile_range_get(mf, off, end - at);
	*z = (struct frozen){ .at = at, .end = end, .mf = mfile_get(mf), .off = off };
	return z;
}

static void frozen_free(struct frozen *z)
{
	mfile_range_put(z->mf, z->off, z->end - z->at);
	mfile_put(z->mf);
	free(z);
}

static void shmem_put(struct vm_object *o)
{
	struct shmem *s = to_shmem(o);

	if (!ref_put(&s->ref))
		return;
	while (s->frozen) {
		struct frozen *z = s->frozen;

		s->frozen = z->next;
		frozen_free(z);
	}
	if (s->mf) {
		mfile_range_put(s->mf, s->off, s->size);
		mfile_put(s->mf);
	}
	mutex_fini(&s->mu);
	free(s);
}

/* Nothing of [at, end) is frozen any more. */
static void forget_frozen_locked(struct shmem *s, uint64_t at, uint64_t end)
{
	struct frozen **p = &s->frozen;

	while (*p && (*p)->at < end) {
		struct frozen *z = *p, *next = z->next;

		if (z->end <= at) {
			p = &z->next;
			continue;
		}
		*p = next;
		if (z->end > end) {
			*p = frozen_new(end, z->end, z->mf, z->off + (end - z->at));
			(*p)->next = next;
		}
		if (z->at < at) {
			struct frozen *lo = frozen_new(z->at, at, z->mf, z->off);

			lo->next = *p;
			*p = lo;
			p = &lo->next;
		}
		frozen_free(z);
	}
}

/* The first piece that ends beyond @at. */
static struct frozen *frozen_find_locked(struct shmem *s, uint64_t at)
{
	struct frozen *z = s->frozen;

	while (z && z->end <= at)
		z = z->next;
	return z;
}

static int own_mfile_locked(struct shmem *s)
{
	struct mfile *mf;
	int r;

	if (s->mf)
		return 0;
	mf = mfile_create("shmem");
	if (is_err(mf))
		return (int)ptr_err(mf);
	r = mfile_alloc(mf, s->size, &s->off);
	if (r < 0)
		mfile_put(mf);
	else
		s->mf = mf;
	return r;
}

/* Brings the cluster around @at over if it is frozen; *ret_end: how far the same mfile holds from there. */
static int thaw_locked(struct shmem *s, uint64_t at, uint64_t *ret_end)
{
	struct frozen *z = frozen_find_locked(s, at);
	uint64_t a, b;
	int r;

	if (!z || z->at > at) {
		*ret_end = z ? z->at : s->size;
		return 0;
	}
	a = MAX(at & ~(FILE_CLUSTER - 1), z->at);
	b = MIN((at & ~(FILE_CLUSTER - 1)) + FILE_CLUSTER, z->end);
	r = mfile_copy(s->mf, s->off + a, z->mf, z->off + (a - z->at), b - a);
	if (r < 0) {
		mfile_range_discard(s->mf, s->off + a, b - a);
		return r;
	}
	forget_frozen_locked(s, a, b);
	*ret_end = b;
	return 0;
}

static int shmem_translate(struct vm_object *o, uint64_t off, uint64_t *len, bool write,
			   struct mfile **ret_mf, uint64_t *ret_off)
{
	struct shmem *s = to_shmem(o);
	uint64_t end;

	(void)write; /* a hole becomes memory when the host sees the first access */
	if (off >= s->size)
		return -EFAULT;
	AUTO_LOCK(&s->mu);
	if (own_mfile_locked(s) < 0 || thaw_locked(s, off, &end) < 0)
		return -EFAULT;
	*len = MIN(*len, end - off);
	*ret_mf = mfile_get(s->mf);
	*ret_off = s->off + off;
	return 0;
}

static const struct vm_object_ops shmem_ops = {
	.get = shmem_get,
	.put = shmem_put,
	.translate = shmem_translate,
};

static struct shmem *shmem_new(uint64_t size)
{
	struct shmem *s = kzalloc(sizeof(*s));

	s->obj.ops = &shmem_ops;
	ref_init(&s->ref);
	mutex_init(&s->mu, RANK_INODE_PAGES);
	s->size = size;
	return s;
}

struct vm_object *shmem_object_create(uint64_t size)
{
	struct shmem *s;
	int r;

	if (size == 0 || size > GUEST_TASK_SIZE)
		return err_ptr(-ENOMEM);
	s = shmem_new(page_up(size));
	mutex_lock(&s->mu);
	r = own_mfile_locked(s);
	if (r == 0)
		s->ino = mfile_id(s->mf);
	mutex_unlock(&s->mu);
	if (r < 0) {
		shmem_put(&s->obj);
		return err_ptr(r);
	}
	return &s->obj;
}

uint64_t shmem_object_size(const struct vm_object *o)
{
	return ((const struct shmem *)(const void *)o)->size;
}

bool vm_object_is_shmem(const struct vm_object *o)
{
	return o->ops == &shmem_ops;
}

void shmem_object_punch(struct vm_object *o, uint64_t off, uint64_t len)
{
	struct shmem *s = to_shmem(o);

	if (off >= s->size)
		return;
	len = MIN(len, s->size - off);
	AUTO_LOCK(&s->mu);
	forget_frozen_locked(s, off, off + len);
	if (s->mf)
		mfile_range_discard(s->mf, s->off + off, len);
}

uint64_t shmem_object_ino(const struct vm_object *o)
{
	return container_of(o, const struct shmem, obj)->ino;
}

/* ---- saving and loading: pointers to the object itself ---- */

#define FROZEN_MAX (1u << 20) /* pieces of one segment in an image */

/* What isn't frozen yet gets a piece; the current mfile is left to the image. */
static void freeze_all(struct shmem *s)
{
	struct frozen **p = &s->frozen;
	uint64_t at = 0;

	if (!s->mf)
		return;
	while (at < s->size) {
		uint64_t end = *p ? (*p)->at : s->size;

		if (at < end) {
			struct frozen *z = frozen_new(at, end, s->mf, s->off + at);

			z->next = *p;
			*p = z;
			p = &z->next;
		}
		at = end;
		if (*p) {
			at = (*p)->end;
			p = &(*p)->next;
		}
	}
	mfile_range_put(s->mf, s->off, s->size);
	mfile_put(s->mf);
	s->mf = NULL;
}

struct loading {
	struct shmem *s;
	struct frozen **tail;
	uint64_t base;
};

static void add_piece(void *arg, uint64_t at, uint64_t len, struct mfile *mf, uint64_t off)
{
	struct loading *l = arg;

	at += l->base;
	*l->tail = frozen_new(at, at + len, mf, off);
	l->tail = &(*l->tail)->next;
}

static void fields_loading(struct state *st, struct shmem *s)
{
	struct loading l = { .s = s, .tail = &s->frozen };
	uint32_t n = state_count(st, 0, FROZEN_MAX);
	uint64_t from = 0;

	for (uint32_t i = 0; i < n && state_ok(st); i++) {
		uint64_t at = 0, len = 0;

		state_u64(st, &at);
		state_u64(st, &len);
		if (!page_aligned(at | len) || at < from || at > s->size || len > s->size - at) {
			state_fail(st, "pages outside of a shared segment");
			return;
		}
		from = at + len;
		l.base = at;
		state_pages_in(st, len, add_piece, &l);
	}
}

static void shmem_fields(struct state *st, void *obj)
{
	struct shmem *s = to_shmem(obj);
	struct frozen *z;
	uint32_t n = 0;

	state_u64(st, &s->size);
	state_u64(st, &s->ino);
	if (!page_aligned(s->size) || s->size == 0 || s->size > GUEST_TASK_SIZE)
		state_fail(st, "bad size of a shared segment");
	if (state_loading(st)) {
		fields_loading(st, s);
		return;
	}
	freeze_all(s);
	for (z = s->frozen; z; z = z->next)
		n++;
	state_count(st, n, FROZEN_MAX);
	for (z = s->frozen; z; z = z->next) {
		uint64_t len = z->end - z->at;

		state_u64(st, &z->at);
		state_u64(st, &len);
		state_pages_out(st, z->mf, z->off, len);
	}
}

static void *shmem_alloc(struct state *st)
{
	(void)st;
	return &shmem_new(0)->obj;
}

static void *shmem_state_get(void *obj)
{
	shmem_get(obj);
	return obj;
}

static void shmem_state_put(void *obj)
{
	shmem_put(obj);
}

const struct state_type state_shmem = {
	.id = STATE_SHMEM,
	.version = 1,
	.name = "shared segment",
	.alloc = shmem_alloc,
	.fields = shmem_fields,
	.get = shmem_state_get,
	.put = shmem_state_put,
};
