// SPDX-License-Identifier: Apache-2.0
/*
 * mprotect (man 2 mprotect, 2 pkey_mprotect). Rights that are taken away are in force when the call
 * returns, in every thread; rights that are given may be, since a fault finds them.
 */
#include "sentry/mm/mm_priv.h"

#include <sys/personality.h>

#include "sentry/kernel/task.h"

static bool allowed(const struct vma *v, int prot)
{
	return !((prot & PROT_READ) && !(v->flags & VMF_MAYREAD)) &&
	       !((prot & PROT_WRITE) && !(v->flags & VMF_MAYWRITE)) &&
	       !((prot & PROT_EXEC) && !(v->flags & VMF_MAYEXEC));
}

static int protect_vma(struct task *t, struct mm *mm, struct vma *v, int prot)
{
	int old = v->prot, r;

	if (old == prot)
		return 0;
	if (is_data(prot, v->flags) && !is_data(old, v->flags)) {
		uint64_t len = v->end - v->start, lim = task_rlimit(t, RLIMIT_DATA);

		if (len > lim || mm->data_vm > lim - len)
			return -ENOMEM;
		if (!(v->flags & VMF_NORESERVE) && len > mm_commit_limit())
			return -ENOMEM;
	}
	if ((prot & PROT_WRITE) || (v->flags & VMF_SPECIAL))
		patch_undo(mm, v->start, v->end);
	vma_set_prot_flags(mm, v, prot, v->flags);
	if (old & ~prot)
		mm->need_flush = true;
	r = (prot & PROT_EXEC) && !vma_shared(v) ? copy_noexec(mm, v->start, v->end) : 0;
	if (r >= 0)
		r = r ? stub_map_range(mm, v, v->start, v->end) :
			stub_protect(mm, v, v->start, v->end);
	if (r == 0 && vma_anon(v))
		r = back_new(mm, v, v->start, v->end);
	return r;
}

static int protect_range(struct task *t, struct mm *mm, uint64_t start, uint64_t end, int prot,
			 bool growsdown)
{
	struct vma *v = vma_find_ge(mm, start);
	uint64_t a = start;
	int r;

	if (!v)
		return -ENOMEM;
	if (growsdown) {
		if (v->start >= end)
			return -ENOMEM;
		if (!(v->flags & VMF_GROWSDOWN))
			return -EINVAL;
		start = a = v->start;
	}
	/* As in Linux, what lies before the first hole or refusal is changed all the same. */
	while (a < end) {
		uint64_t stop;

		v = vma_find(mm, a);
		if (!v)
			return -ENOMEM;
		if (!allowed(v, prot))
			return -EACCES;
		stop = MIN(v->end, end);
		if (v->prot != prot) {
			r = vma_isolate(mm, a, stop);
			if (r == 0)
				r = protect_vma(t, mm, vma_find(mm, a), prot);
			if (r < 0)
				return r;
		}
		a = stop;
	}
	return 0;
}

long mm_mprotect(struct task *t, gaddr_t addr, uint64_t len, int prot)
{
	struct mm *mm = t->mm;
	bool down = prot & PROT_GROWSDOWN;
	uint64_t end;
	int r;

	if ((prot & PROT_GROWSDOWN) && (prot & PROT_GROWSUP))
		return -EINVAL;
	prot &= ~(PROT_GROWSDOWN | PROT_GROWSUP);
	if (!page_aligned(addr.va))
		return -EINVAL;
	if (len == 0)
		return 0;
	len = page_up(len);
	if (len == 0 || __builtin_add_overflow(addr.va, len, &end))
		return -ENOMEM;
	if (prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC | 0x8 /* PROT_SEM */))
		return -EINVAL;
	prot &= PROT_READ | PROT_WRITE | PROT_EXEC;
	if ((prot & PROT_READ) && (t->personality & READ_IMPLIES_EXEC))
		prot |= PROT_EXEC;
	if (end > GUEST_TASK_SIZE)
		return -ENOMEM;
	mm_write_lock(mm);
	r = protect_range(t, mm, addr.va, end, prot, down);
	vma_merge_range(mm, addr.va, end);
	mm_write_unlock(mm, t);
	return r;
}
