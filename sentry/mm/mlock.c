// SPDX-License-Identifier: Apache-2.0
/*
 * mlock and friends (man 2 mlock). Nothing of the guest's is swapped by us, so locking is accounting,
 * limits and populating; the host may still swap the mfile.
 */
#include "sentry/mm/mm_priv.h"

#include <linux/capability.h>

#include "sentry/kernel/task.h"

#define LOCK_ONFAULT 1 /* MLOCK_ONFAULT, which the header has as unsigned */

static int lock_range(struct mm *mm, uint64_t start, uint64_t end, uint32_t set)
{
	uint64_t a = start;

	while (a < end) {
		struct vma *v = vma_find(mm, a);
		uint64_t stop;
		int r;

		if (!v)
			return -ENOMEM;
		stop = MIN(v->end, end);
		if (!(v->flags & VMF_SPECIAL)) {
			r = vma_isolate(mm, a, stop);
			if (r < 0)
				return r;
			v = vma_find(mm, a);
			vma_set_prot_flags(mm, v, v->prot,
					   (v->flags & ~(VMF_LOCKED | VMF_LOCKONFAULT)) | set);
		}
		a = stop;
	}
	return 0;
}

static void populate_range(struct mm *mm, uint64_t start, uint64_t end)
{
	for (struct vma *v = vma_find_ge(mm, start); v && v->start < end; v = vma_next(v)) {
		uint64_t a = MAX(v->start, start), b = MIN(v->end, end);

		if (v->prot != PROT_NONE)
			plat->as_populate(mm->as, gaddr(a), b - a,
					  vma_anon(v) && (v->prot & PROT_WRITE));
	}
}

/* Bytes of [start, end) that are locked already: locking twice isn't charged twice. */
static uint64_t locked_in(struct mm *mm, uint64_t start, uint64_t end)
{
	uint64_t n = 0;

	for (struct vma *v = vma_find_ge(mm, start); v && v->start < end; v = vma_next(v))
		if (v->flags & VMF_LOCKED)
			n += MIN(v->end, end) - MAX(v->start, start);
	return n;
}

static bool can_lock(struct task *t)
{
	return task_capable(t, CAP_IPC_LOCK) || task_rlimit(t, RLIMIT_MEMLOCK) != 0;
}

/* Rounds a guest's range to pages. -EINVAL when it wraps. */
static int round_range(gaddr_t addr, uint64_t len, uint64_t *start, uint64_t *end)
{
	uint64_t e;

	if (__builtin_add_overflow(addr.va, len, &e) || e > UINT64_MAX - PAGE_SIZE)
		return -EINVAL;
	*start = page_down(addr.va);
	*end = page_up(e);
	return 0;
}

long mm_mlock(struct task *t, gaddr_t addr, uint64_t len, int flags)
{
	struct mm *mm = t->mm;
	uint64_t start, end;
	int r;

	if (flags & ~LOCK_ONFAULT)
		return -EINVAL;
	if (!can_lock(t))
		return -EPERM;
	r = round_range(addr, len, &start, &end);
	if (r < 0 || start == end)
		return r;
	mm_write_lock(mm);
	if (!may_lock(t, mm, end - start - locked_in(mm, start, end)))
		r = -ENOMEM;
	else
		r = lock_range(mm, start, end,
			       VMF_LOCKED | (flags & LOCK_ONFAULT ? VMF_LOCKONFAULT : 0));
	vma_merge_range(mm, start, end);
	if (r == 0 && !(flags & LOCK_ONFAULT))
		populate_range(mm, start, end);
	mm_write_unlock(mm, t);
	return r;
}

long mm_munlock(struct task *t, gaddr_t addr, uint64_t len)
{
	uint64_t start, end;
	int r = round_range(addr, len, &start, &end);

	if (r < 0 || start == end)
		return r;
	mm_write_lock(t->mm);
	r = lock_range(t->mm, start, end, 0);
	vma_merge_range(t->mm, start, end);
	mm_write_unlock(t->mm, t);
	return r;
}

static void lock_all(struct mm *mm, uint32_t set)
{
	struct vma *v;

	for_each_vma(v, mm)
		if (!(v->flags & VMF_SPECIAL))
			vma_set_prot_flags(mm, v, v->prot,
					   (v->flags & ~(VMF_LOCKED | VMF_LOCKONFAULT)) | set);
	vma_merge_range(mm, 0, UINT64_MAX);
}

long mm_mlockall(struct task *t, int flags)
{
	uint32_t lock = VMF_LOCKED | (flags & MCL_ONFAULT ? VMF_LOCKONFAULT : 0);
	struct mm *mm = t->mm;
	int r = 0;

	if (!flags || (flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) || flags == MCL_ONFAULT)
		return -EINVAL;
	if (!can_lock(t))
		return -EPERM;
	mm_write_lock(mm);
	if ((flags & MCL_CURRENT) && !task_capable(t, CAP_IPC_LOCK) &&
	    mm->total_vm > task_rlimit(t, RLIMIT_MEMLOCK)) {
		r = -ENOMEM;
	} else {
		mm->def_flags = flags & MCL_FUTURE ? lock : 0;
		if (flags & MCL_CURRENT) {
			lock_all(mm, lock);
			/* Failures are ignored here as in Linux; sparse giants stay sparse. */
			if (!(flags & MCL_ONFAULT) && mm->total_vm <= mm_commit_limit() &&
			    mm->total_vm <= MCL_POPULATE_MAX)
				populate_range(mm, 0, GUEST_TASK_SIZE);
		}
	}
	mm_write_unlock(mm, t);
	return r;
}

long mm_munlockall(struct task *t)
{
	mm_write_lock(t->mm);
	t->mm->def_flags = 0;
	lock_all(t->mm, 0);
	mm_write_unlock(t->mm, t);
	return 0;
}
