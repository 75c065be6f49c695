// SPDX-License-Identifier: Apache-2.0
/*
 * Shared anonymous memory. The pages live in an mfile of the object's own: a stub that maps the
 * segment is given a writable descriptor of that mfile, which must hold nothing else.
 */
#include "sentry/mm/shmem.h"

#include "base/alloc.h"
#include "sentry/mm/mm_priv.h"

struct shmem {
	struct vm_object obj; /* first */
	struct ref ref;
	struct mfile *mf; /* (c) reference */
	uint64_t off;     /* (c) of byte 0 in it */
	uint64_t size;    /* (c) page multiple */
};

static struct shmem *to_shmem(struct vm_object *o)
{
	return container_of(o, struct shmem, obj);
}

static void shmem_get(struct vm_object *o)
{
	ref_get(&to_shmem(o)->ref);
}

static void shmem_put(struct vm_object *o)
{
	struct shmem *s = to_shmem(o);

	if (!ref_put(&s->ref))
		return;
	mfile_range_put(s->mf, s->off, s->size);
	mfile_put(s->mf);
	free(s);
}

static int shmem_translate(struct vm_object *o, uint64_t off, uint64_t *len, bool write,
			   struct mfile **ret_mf, uint64_t *ret_off)
{
	struct shmem *s = to_shmem(o);

	(void)write; /* a hole becomes memory when the host sees the first access */
	if (off >= s->size)
		return -EFAULT;
	*len = MIN(*len, s->size - off);
	*ret_mf = mfile_get(s->mf);
	*ret_off = s->off + off;
	return 0;
}

static const struct vm_object_ops shmem_ops = {
	.get = shmem_get,
	.put = shmem_put,
	.translate = shmem_translate,
};

struct vm_object *shmem_object_create(uint64_t size)
{
	struct shmem *s;
	struct mfile *mf;
	uint64_t off;
	int r;

	if (size == 0 || size > GUEST_TASK_SIZE)
		return err_ptr(-ENOMEM);
	size = page_up(size);
	mf = mfile_create("shmem");
	if (is_err(mf))
		return err_ptr(ptr_err(mf));
	r = mfile_alloc(mf, size, &off);
	if (r < 0) {
		mfile_put(mf);
		return err_ptr(r);
	}
	s = kzalloc(sizeof(*s));
	s->obj.ops = &shmem_ops;
	ref_init(&s->ref);
	s->mf = mf;
	s->off = off;
	s->size = size;
	return &s->obj;
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
	mfile_range_discard(s->mf, s->off + off, MIN(len, s->size - off));
}

uint64_t shmem_object_ino(const struct vm_object *o)
{
	return mfile_id(container_of(o, const struct shmem, obj)->mf);
}
