// SPDX-License-Identifier: Apache-2.0
/*
 * Mapping a file (vm_object). The first translation moves the file into an mfile of its
 * own, since the stub gets that mfile's descriptor. Pages of the image that nobody has
 * written to are mapped from the host file, so sandboxes share the host's page cache.
 *
 * Everything here runs with mm.mu held: no inode.mu, and no call that drops mappings.
 * That is why a shared writable mapping of an image's file copies its range up
 * beforehand, in ->mmap (file.c).
 */
#include "base/alloc.h"

#include <linux/fcntl.h>

#include "sentry/fs/tmpfs/priv.h"

static struct tm_file *FILE_OF(struct vm_object *o)
{
	return container_of(o, struct tm_file, vmo);
}

static void object_get(struct vm_object *o)
{
	struct tm_file *f = FILE_OF(o);

	inode_get(&f->ti->i);
	atomic_fetch_add(&f->uses, 1);
}

static void object_put(struct vm_object *o)
{
	struct tm_file *f = FILE_OF(o);

	mutex_lock(&f->mu);
	if (atomic_fetch_sub(&f->uses, 1) == 1)
		tm_disown_locked(f);
	mutex_unlock(&f->mu);
	inode_put(&f->ti->i);
}

/* Allocates at a fault: how much of the hole of @n pages, of which @avail are in the file
 * and wanted. */
static uint64_t fault_pages(struct tm_file *f, uint64_t page, uint64_t n)
{
	if (page << PAGE_SHIFT < f->lower_end)
		return MIN(n, (uint64_t)TM_CLUSTER);
	if (atomic_load(&TM_SB(f->ti->i.sb)->max_pages))
		return MIN(n, (uint64_t)TM_FAULT_PAGES);
	return n; /* sparse: costs nothing until it is touched */
}

static int translate_lower(struct tm_file *f, uint64_t off, uint64_t max, uint64_t *len,
			   struct mfile **ret_mf, uint64_t *ret_off)
{
	struct mfile *mf = lower_open(f->ti->lower);

	if (is_err(mf))
		return -EFAULT;
	*len = MIN(max, page_up(f->lower_end) - off);
	*ret_mf = mf;
	*ret_off = off;
	return 0;
}

static int object_translate(struct vm_object *o, uint64_t off, uint64_t *len, bool write,
			    struct mfile **ret_mf, uint64_t *ret_off)
{
	struct tm_file *f = FILE_OF(o);
	uint64_t size = page_up(atomic_load(&f->ti->i.size)), hole, page = off >> PAGE_SHIFT;

	if (off >= size)
		return -EFAULT;
	uint64_t max = MIN(MAX(*len, PAGE_SIZE), size - off);
	AUTO_LOCK(&f->mu);
	struct tm_extent *e = tm_extent_find_locked(f, page, &hole);
	if (!e) {
		uint64_t n = MIN(hole, max >> PAGE_SHIFT);

		if (off < f->lower_end && !write)
			return translate_lower(f, off, n << PAGE_SHIFT, len, ret_mf, ret_off);
		/* First its own mfile, so that what is sparse need not move there. */
		if (tm_own_locked(f) || tm_populate_locked(f, page, fault_pages(f, page, n)))
			return -EFAULT; /* no space: SIGBUS, as on Linux */
		e = tm_extent_find_locked(f, page, &hole);
		if (!e)
			return -EFAULT;
	}
	/* Of a frozen page everybody maps the same copy: the frozen one while nobody can write through a
	 * mapping, else a new one. */
	bool frozen = tm_frozen_locked(f, e);
	if (frozen && (write || f->thaw_maps || e->common)) {
		uint64_t n = MIN(max >> PAGE_SHIFT, e->npages - (page - e->page));

		if (tm_own_locked(f) || tm_thaw_locked(f, page, MIN(n, (uint64_t)TM_FAULT_PAGES)))
			return -EFAULT;
		frozen = false;
	}
	if (!frozen && tm_own_locked(f))
		return -EFAULT;
	e = tm_extent_find_locked(f, page, &hole);
	if (!e)
		return -EFAULT;
	uint64_t at = off - (e->page << PAGE_SHIFT);
	*len = MIN(max, (e->npages << PAGE_SHIFT) - at);
	*ret_mf = mfile_get(e->mf);
	*ret_off = e->off + at;
	return 0;
}

static void object_mapped(struct vm_object *o, struct mm *mm, gaddr_t addr, uint64_t len,
			  uint64_t off, bool shared_writable)
{
	struct tm_file *f = FILE_OF(o);

	(void)mm, (void)addr, (void)len, (void)off;
	if (!shared_writable)
		return;
	AUTO_LOCK(&f->mu);
	f->writable_maps++;
}

static void object_unmapped(struct vm_object *o, struct mm *mm, gaddr_t addr, uint64_t len,
			    uint64_t off, bool shared_writable)
{
	struct tm_file *f = FILE_OF(o);

	(void)mm, (void)addr, (void)len, (void)off;
	if (!shared_writable)
		return;
	AUTO_LOCK(&f->mu);
	if (f->writable_maps)
		f->writable_maps--;
}

static bool object_write_sealed(struct vm_object *o)
{
	struct tm_file *f = FILE_OF(o);

	return READ_ONCE(f->seals) & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
}

const struct vm_object_ops tm_object_ops = {
	.get = object_get,
	.put = object_put,
	.translate = object_translate,
	.write_sealed = object_write_sealed,
	.mapped = object_mapped,
	.unmapped = object_unmapped,
};

void tm_moved(struct tm_file *f, uint64_t off, uint64_t len)
{
	if (atomic_load(&f->uses))
		mm_object_moved(&f->vmo, off, len);
}
