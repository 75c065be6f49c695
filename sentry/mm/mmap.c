// SPDX-License-Identifier: Apache-2.0
/*
 * mmap, munmap, brk: making and removing mappings (man 2 mmap, 2 brk).
 *
 * Memory is backed here, at once, wherever that is one host mapping: private anonymous memory that is
 * accessible gets its sparse range, a file its pages as far as they are contiguous. PROT_NONE
 * reservations get nothing until mprotect() opens them, so terabytes of them cost one vma.
 */
#include "sentry/mm/mm_priv.h"

#include "sentry/kernel/task.h"
#include "sentry/mm/mm_load.h"
#include "sentry/mm/shmem.h"
#include "sentry/kernel/kmem.h"
#include "sentry/vfs/vfs.h"

#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/personality.h>

#define BRK_POPULATE_MAX (512UL << 10) /* a heap grown by no more than this is touched soon */

static int prot_vmf(int prot)
{
	return prot & (PROT_READ | PROT_WRITE | PROT_EXEC);
}

bool may_lock(struct task *t, struct mm *mm, uint64_t extra)
{
	uint64_t lim;

	if (task_capable(t, CAP_IPC_LOCK))
		return true;
	lim = task_rlimit(t, RLIMIT_MEMLOCK);
	return lim == RLIM_INFINITY_G || mm->locked_vm + extra <= lim;
}

int check_limits(struct task *t, struct mm *mm, uint64_t len, int prot, uint32_t flags, bool anon)
{
	uint64_t as = task_rlimit(t, RLIMIT_AS), data = task_rlimit(t, RLIMIT_DATA);

	if (len > as || mm->total_vm > as - len)
		return -ENOMEM;
	if (!is_data(prot, flags))
		return 0;
	if (len > data || mm->data_vm > data - len)
		return -ENOMEM;
	(void)anon; /* private file mappings that are writable are charged like anonymous ones */
	if (!(flags & VMF_NORESERVE) && len > mm_commit_limit())
		return -ENOMEM;
	return 0;
}

long pick_address(struct task *t, struct mm *mm, uint64_t addr, uint64_t len, int flags)
{
	uint64_t a;

	(void)t;
	if (len > GUEST_TASK_SIZE)
		return -ENOMEM;
	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
		if (!page_aligned(addr))
			return -EINVAL;
		if (addr > GUEST_TASK_SIZE - len)
			return -ENOMEM;
		if (addr < MMAP_MIN_ADDR)
			return -EPERM;
		if ((flags & MAP_FIXED_NOREPLACE) && vma_any(mm, addr, addr + len))
			return -EEXIST;
		return (long)addr;
	}
	addr = page_down(addr);
	if (addr && addr < MMAP_MIN_ADDR)
		addr = MMAP_MIN_ADDR;
	if (addr && addr <= GUEST_TASK_SIZE - len) {
		struct vma *v = vma_find_ge(mm, addr);
		uint64_t gap = v && (v->flags & VMF_GROWSDOWN) ? STACK_GUARD_GAP : 0;

		if (!v || (v->start >= gap && addr + len <= v->start - gap))
			return (long)addr;
	}
	if (flags & MAP_32BIT)
		a = vma_find_gap(mm, len, 0x40000000, 0x80000000);
	else
		a = vma_find_gap(mm, len, MMAP_MIN_ADDR, mm->mmap_base);
	if (!a && !(flags & MAP_32BIT)) /* bottom-up as the last resort, above mmap_base, too */
		a = vma_find_gap(mm, len, MMAP_MIN_ADDR, GUEST_TASK_SIZE);
	return a ? (long)a : -ENOMEM;
}

int unmap_range(struct mm *mm, uint64_t start, uint64_t end)
{
	struct vma *v;
	struct pma *p;
	int r;

	if (!vma_any(mm, start, end))
		return 0;
	patch_release(mm, start, end);
	r = vma_isolate(mm, start, end);
	if (r < 0)
		return r;
	while ((v = vma_find_ge(mm, start)) && v->start < end)
		vma_remove(mm, v);
	p = pma_find_ge(mm, start);
	if (!p || p->start >= end)
		return 0;
	pma_remove(mm, start, end);
	return stub_unmap(mm, start, end);
}

int map_at(struct mm *mm, const struct map_req *r)
{
	uint64_t start = r->addr, end = r->addr + r->len;
	struct vma *v;
	int err = unmap_range(mm, start, end);

	if (err < 0)
		return err;
	if (mm->map_count > MM_MAX_MAP_COUNT || kmem_full())
		return -ENOMEM;
	v = vma_alloc(start, end, prot_vmf(r->prot), r->flags, r->obj, r->off, r->file, r->name);
	vma_insert(mm, v);
	vma_merge_range(mm, start, end);
	v = vma_find(mm, start);
	err = back_new(mm, v, start, end);
	if (err < 0)
		(void)unmap_range(mm, start, end);
	return err;
}

/* ---- mmap ---- */

#define MAP_LEGACY_FLAGS                                                                  \
	(MAP_SHARED | MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_DENYWRITE | MAP_EXECUTABLE | \
	 MAP_GROWSDOWN | MAP_LOCKED | MAP_NORESERVE | MAP_POPULATE | MAP_NONBLOCK | MAP_STACK |  \
	 MAP_HUGETLB | MAP_32BIT | MAP_FIXED_NOREPLACE | (63 << MAP_HUGE_SHIFT_G) |             \
	 0x4000000 /* MAP_UNINITIALIZED */)
#define MAP_HUGE_SHIFT_G 26

/* What the open mode and the mount allow (mm/mmap.c do_mmap). Fills in VMF_*. 0 or -errno. */
static int check_file(struct file *f, int type, int flags, struct map_req *r)
{
	if (f->fmode & FMODE_PATH)
		return -EBADF;
	if (type == MAP_SHARED_VALIDATE && (flags & ~MAP_LEGACY_FLAGS))
		return -EOPNOTSUPP;
	if (type != MAP_PRIVATE) {
		if ((r->prot & PROT_WRITE) && !(f->fmode & FMODE_WRITE))
			return -EACCES;
		r->flags |= VMF_SHARED;
		if (!(f->fmode & FMODE_WRITE))
			r->flags &= ~VMF_MAYWRITE;
	}
	if (!(f->fmode & FMODE_READ))
		return -EACCES;
	if (f->path.mnt && (mount_flags(f->path.mnt) & MS_NOEXEC)) {
		if (r->prot & PROT_EXEC)
			return -EPERM;
		r->flags &= ~VMF_MAYEXEC;
	}
	if (r->flags & VMF_GROWSDOWN)
		return -EINVAL;
	return 0;
}

static int file_object(struct task *t, struct file *f, int flags, struct map_req *r)
{
	struct vm_object *o;

	if (f->ops->mmap) {
		o = f->ops->mmap(t, f, r->prot, flags, &r->off, r->len);
		if (is_err(o))
			return (int)ptr_err(o);
	} else {
		o = f->inode ? f->inode->vmobj : NULL;
	}
	if (!o)
		return -ENODEV;
	/* mprotect() mustn't make writable what mmap() refuses */
	if ((r->flags & VMF_SHARED) && o->ops->write_sealed && o->ops->write_sealed(o))
		r->flags &= ~VMF_MAYWRITE;
	r->obj = o;
	r->file = f;
	return 0;
}

static int request_flags(struct task *t, int prot, int flags, struct map_req *r)
{
	r->prot = prot_vmf(prot);
	if ((prot & PROT_READ) && (t->personality & READ_IMPLIES_EXEC))
		r->prot |= PROT_EXEC;
	r->flags = VMF_MAYALL;
	if (flags & MAP_GROWSDOWN)
		r->flags |= VMF_GROWSDOWN;
	if (flags & MAP_NORESERVE)
		r->flags |= VMF_NORESERVE;
	if (flags & MAP_LOCKED) {
		if (!task_capable(t, CAP_IPC_LOCK) && task_rlimit(t, RLIMIT_MEMLOCK) == 0)
			return -EPERM;
		r->flags |= VMF_LOCKED;
	}
	return 0;
}

/* Type of mapping and what it maps. On success *ret_own is an object reference to drop, or NULL. */
static int request_object(struct task *t, struct file *f, int flags, struct map_req *r,
			  struct vm_object **ret_own)
{
	int type = flags & MAP_TYPE, e;

	*ret_own = NULL;
	if (type != MAP_SHARED && type != MAP_PRIVATE && type != MAP_SHARED_VALIDATE)
		return -EINVAL;
	if (flags & MAP_HUGETLB)
		return f ? -EINVAL : -ENOMEM; /* the pool of huge pages is empty */
	if (f) {
		e = check_file(f, type, flags, r);
		return e < 0 ? e : file_object(t, f, flags, r);
	}
	if (type == MAP_SHARED_VALIDATE)
		return -EINVAL;
	r->off = 0;
	if (type == MAP_PRIVATE)
		return 0;
	if (r->flags & VMF_GROWSDOWN)
		return -EINVAL;
	if (!(flags & MAP_NORESERVE) && r->len > mm_commit_limit())
		return -ENOMEM;
	r->flags |= VMF_SHARED;
	r->obj = shmem_object_create(r->len);
	if (is_err(r->obj))
		return (int)ptr_err(r->obj);
	r->name = "/dev/zero (deleted)";
	*ret_own = r->obj;
	return 0;
}

/* Under the lock: limits, address, mapping. */
static long place(struct task *t, struct mm *mm, uint64_t hint, int flags, struct map_req *r)
{
	long a;
	int e;

	if (!mm->as)
		return -EFAULT;
	if (mm->map_count > MM_MAX_MAP_COUNT || kmem_full())
		return -ENOMEM;
	a = pick_address(t, mm, hint, r->len, flags);
	if (a < 0)
		return a;
	r->addr = (uint64_t)a;
	r->flags |= mm->def_flags;
	if ((r->flags & VMF_LOCKED) && !may_lock(t, mm, r->len))
		return -EAGAIN;
	/* A fixed mapping replaces some: what it replaces isn't charged twice. */
	e = check_limits(t, mm, r->len, r->prot, r->flags, !r->obj);
	if (e < 0 && vma_covered(mm, r->addr, r->addr + r->len) && r->len <= mm_commit_limit())
		e = 0;
	if (e < 0)
		return e;
	e = map_at(mm, r);
	if (e < 0)
		return e;
	if (r->prot != PROT_NONE &&
	    ((flags & (MAP_POPULATE | MAP_NONBLOCK)) == MAP_POPULATE ||
	     (r->flags & (VMF_LOCKED | VMF_LOCKONFAULT)) == VMF_LOCKED))
		plat->as_populate(mm->as, gaddr(r->addr), r->len,
				  !r->obj && (r->prot & PROT_WRITE));
	return a;
}

long mm_mmap(struct task *t, gaddr_t addr, uint64_t len, int prot, int flags, struct file *f,
	     uint64_t off)
{
	struct map_req r = { .off = off };
	struct vm_object *own;
	uint64_t end;
	long a;
	int e;

	if (len == 0)
		return -EINVAL;
	r.len = page_up(len);
	if (r.len == 0 || r.len > GUEST_TASK_SIZE)
		return -ENOMEM;
	/* file_mmap_ok(): no page of it beyond what a file may have */
	if (f && (__builtin_add_overflow(off, r.len, &end) || end > INT64_MAX))
		return -EOVERFLOW;
	e = request_flags(t, prot, flags, &r);
	if (e == 0)
		e = request_object(t, f, flags, &r, &own);
	if (e < 0)
		return e;
	mm_write_lock(t->mm);
	a = place(t, t->mm, addr.va, flags, &r);
	mm_write_unlock(t->mm, t);
	if (own)
		own->ops->put(own);
	return a;
}

long mm_map_object(struct task *t, struct mm *mm, gaddr_t addr, uint64_t len, int prot, int flags,
		   struct vm_object *o, uint64_t off, const char *name)
{
	struct map_req r = { .len = page_up(len), .obj = o, .off = off, .name = name };
	long a;

	if (r.len == 0)
		return len ? -ENOMEM : -EINVAL;
	r.prot = prot_vmf(prot);
	r.flags = VMF_MAYALL;
	if ((flags & MAP_TYPE) != MAP_PRIVATE) {
		r.flags |= VMF_SHARED;
		/* shmat(SHM_RDONLY): mprotect may not make it writable afterwards. */
		if (!(prot & PROT_WRITE))
			r.flags &= ~VMF_MAYWRITE;
	}
	mm_write_lock(mm);
	a = place(t, mm, addr.va, flags, &r);
	mm_write_unlock(mm, t);
	return a;
}

long mm_munmap(struct task *t, gaddr_t addr, uint64_t len)
{
	struct mm *mm = t->mm;
	int r;

	if (!page_aligned(addr.va) || addr.va > GUEST_TASK_SIZE ||
	    len > GUEST_TASK_SIZE - addr.va || len == 0)
		return -EINVAL;
	mm_write_lock(mm);
	r = unmap_range(mm, addr.va, addr.va + page_up(len));
	mm_write_unlock(mm, t);
	return r;
}

/* ---- brk ---- */

static bool brk_grow(struct task *t, struct mm *mm, uint64_t old, uint64_t new)
{
	struct map_req r = { .addr = old, .len = new - old, .prot = PROT_READ | PROT_WRITE,
			     .flags = VMF_MAYALL | mm->def_flags };
	struct vma *v = vma_find_ge(mm, old);

	if (v && v->start < new + ((v->flags & VMF_GROWSDOWN) ? STACK_GUARD_GAP : 0) + PAGE_SIZE)
		return false;
	if (new > GUEST_TASK_SIZE || check_limits(t, mm, r.len, r.prot, r.flags, true) < 0)
		return false;
	if ((r.flags & VMF_LOCKED) && !may_lock(t, mm, r.len))
		return false;
	if (map_at(mm, &r) < 0)
		return false;
	if (r.len <= BRK_POPULATE_MAX)
		plat->as_populate(mm->as, gaddr(old), r.len, true);
	return true;
}

long mm_brk(struct task *t, gaddr_t brk)
{
	struct mm *mm = t->mm;
	struct mm_layout *l = &mm->layout;
	uint64_t old, new, lim = task_rlimit(t, RLIMIT_DATA), data;
	bool ok = true;
	long ret;

	mm_write_lock(mm);
	data = l->end_data.va - l->start_data.va;
	if (brk.va < l->start_brk.va || brk.va > GUEST_TASK_SIZE ||
	    (lim != RLIM_INFINITY_G && brk.va - l->start_brk.va + data > lim)) {
		ok = false;
	} else {
		old = page_up(l->brk.va);
		new = page_up(brk.va);
		if (new < old)
			ok = unmap_range(mm, new, old) == 0;
		else if (new > old)
			ok = brk_grow(t, mm, old, new);
	}
	if (ok)
		l->brk = brk;
	ret = (long)l->brk.va;
	mm_write_unlock(mm, t);
	return ret;
}

/* ---- for the loader: sentry/mm/mm_load.h ---- */

int mm_load_map(struct mm *mm, struct task *t, uint64_t addr, uint64_t len, int prot,
		struct file *f, uint64_t off)
{
	struct map_req r = { .addr = addr, .len = len, .prot = prot, .flags = VMF_MAYALL,
			     .off = off };
	int e = 0;

	if (addr < MMAP_MIN_ADDR || len == 0 || len > GUEST_TASK_SIZE ||
	    addr > GUEST_TASK_SIZE - len)
		return -ENOMEM;
	if (f)
		e = file_object(t, f, MAP_PRIVATE | MAP_FIXED, &r);
	if (e < 0)
		return e;
	mm_write_lock(mm);
	e = check_limits(t, mm, len, prot, r.flags, !f);
	if (e == 0)
		e = map_at(mm, &r);
	mm_write_unlock(mm, NULL);
	return e;
}

int mm_load_stack(struct mm *mm, uint64_t addr, uint64_t len, int prot)
{
	struct map_req r = { .addr = addr, .len = len, .prot = prot,
			     .flags = VMF_MAYALL | VMF_GROWSDOWN };
	int e;

	mm_write_lock(mm);
	e = map_at(mm, &r);
	mm_write_unlock(mm, NULL);
	return e;
}

int mm_load_special(struct mm *mm, uint64_t addr, uint64_t len, int prot, struct mfile *mf,
		    uint64_t off, const char *name)
{
	struct vma *v;
	int e;

	mm_write_lock(mm);
	v = vma_alloc(addr, addr + len, prot,
		      (VMF_MAYALL & ~VMF_MAYWRITE) | VMF_SPECIAL | VMF_DONTDUMP, NULL, 0, NULL,
		      name);
	vma_insert(mm, v);
	pma_insert(mm, addr, addr + len, mfile_get(mf), off, PMA_RO);
	e = stub_map_range(mm, v, addr, addr + len);
	mm_write_unlock(mm, NULL);
	return e;
}

long mm_load_find(struct mm *mm, uint64_t len)
{
	uint64_t a;

	mm_write_lock(mm);
	a = vma_find_gap(mm, len, MMAP_MIN_ADDR, mm->mmap_base);
	mm_write_unlock(mm, NULL);
	return a ? (long)a : -ENOMEM;
}

void mm_load_set_base(struct mm *mm, uint64_t mmap_base)
{
	mm_write_lock(mm);
	mm->mmap_base = mmap_base;
	mm->gap_top = mmap_base;
	mm->gap_skipped = 0;
	mm->loading = true;
	mm_write_unlock(mm, NULL);
}

void mm_load_done(struct mm *mm)
{
	rwmutex_wrlock(&mm->mu);
	mm->loading = false;
	mm->need_flush = false;
	rwmutex_unlock(&mm->mu);
}
