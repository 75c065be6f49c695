// SPDX-License-Identifier: Apache-2.0
/*
 * Backing guest memory: at mmap time where that is cheap, else when the guest (or the sentry on its
 * behalf) touches it; copy-on-write; growing stacks; and the verdict on faults that can't be helped.
 *
 * A platform may not know whether a fault was a read or a write (ptrace doesn't). What is missing is
 * then made accessible as far as the vma allows; if everything is in place already, either another
 * thread has just resolved the same fault (its batch was applied after the guest was resumed, or is
 * still queued), or the access is a true violation: see maybe_spurious().
 *
 * Context: mm.mu held for writing throughout.
 */
#include "sentry/mm/mm_priv.h"

#include <signal.h>

#include "base/stats.h"
#include "sentry/kernel/oom.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/safecopy.h"

#define SPURIOUS_MAX 4

int back_anon(struct mm *mm, struct vma *v, uint64_t start, uint64_t end)
{
	uint64_t a = start;

	while (a < end) {
		struct pma *p = pma_find_ge(mm, a);
		uint64_t gap = a, off, n;
		struct mfile *mf;

		if (p && p->start <= a) {
			a = p->end;
			continue;
		}
		if (p && p->start < end)
			gap = p->start;
		else
			gap = end;
		while (a < gap) {
			int r = own_alloc(mm, a, gap - a, &mf, &off, &n);

			if (r < 0)
				return r;
			pma_insert(mm, a, a + n, mf, off, PMA_COUNTED);
			r = stub_map_range(mm, v, a, a + n);
			if (r < 0)
				return r;
			a += n;
		}
	}
	return 0;
}

/* Does replacing what backs [start, end) by (@mf, @off) change the pages? */
static bool backing_differs(struct mm *mm, uint64_t start, struct mfile *mf, uint64_t off)
{
	struct pma *p = pma_find(mm, start);

	return p && (p->mf != mf || p->off + (start - p->start) != off);
}

/* Backs pages of an object from @addr (page) up to @end at most. *ret_end: how far it came. */
static int back_object(struct mm *mm, struct vma *v, uint64_t addr, uint64_t end, bool write,
		       uint64_t *ret_end)
{
	uint64_t off = vma_obj_off(v, addr), len = end - addr, moff;
	unsigned flags = vma_shared(v) && write ? 0 : PMA_RO;
	struct mfile *mf;
	int r = v->obj->ops->translate(v->obj, off, &len, write && vma_shared(v), &mf, &moff);

	if (r < 0)
		return r;
	len = MIN(page_down(len), end - addr);
	if (len == 0) {
		mfile_put(mf);
		return -EFAULT;
	}
	if (backing_differs(mm, addr, mf, moff))
		mm->need_flush = true;
	pma_remove(mm, addr, addr + len);
	pma_insert(mm, addr, addr + len, mf, moff, flags);
	*ret_end = addr + len;
	return stub_map_range(mm, v, addr, addr + len);
}

void back_eager(struct mm *mm, struct vma *v, uint64_t start, uint64_t end)
{
	if (v->prot == PROT_NONE)
		return;
	for (int i = 0; i < EAGER_PIECES_MAX && start < end; i++) {
		struct pma *p = pma_find_ge(mm, start);
		uint64_t stop = p && p->start < end ? p->start : end;

		if (p && p->start <= start) {
			start = p->end;
			continue;
		}
		if (back_object(mm, v, start, stop, false, &start) < 0)
			return; /* the guest will fault and be told */
	}
}

int back_new(struct mm *mm, struct vma *v, uint64_t start, uint64_t end)
{
	if (v->prot == PROT_NONE || (v->flags & VMF_SPECIAL))
		return 0;
	if (!vma_anon(v)) {
		back_eager(mm, v, start, end);
		return 0;
	}
	return end - start >= LAZY_MIN ? 0 : back_anon(mm, v, start, end);
}

/* ---- copy-on-write ---- */

uint64_t copy_pages(struct mfile *dst, uint64_t doff, struct mfile *src, uint64_t soff,
			   uint64_t len)
{
	uint64_t done = 0;

	while (done < len) {
		uint64_t n = len - done, dl = n, sl = n;
		void *d = mfile_ptr(dst, doff + done, &dl);
		const void *s = mfile_cptr(src, soff + done, &sl);
		size_t left;

		if (!d || !s)
			break;
		n = MIN(dl, sl); /* both are cut to n */
		left = safecopy(d, s, n);
		done += n - left;
		if (left)
			break;
	}
	return page_down(done);
}

/*
 * Nobody else refers to the pages any more (the other side of the fork has exited or copied): the
 * whole exclusive extent becomes writable where it is. Only in the mm's own mfile: the stub has no
 * write descriptor of any other.
 */
static bool reuse_exclusive(struct mm *mm, struct vma *v, struct pma *p, uint64_t addr, int *ret)
{
	uint64_t a = MAX(p->start, v->start), b = MIN(p->end, v->end), n;

	if (!(p->flags & PMA_COUNTED) || p->mf != mm->own)
		return false;
	n = mfile_range_exclusive(p->mf, p->off + (a - p->start), b - a);
	if (a + n <= addr) {
		a = addr;
		n = mfile_range_exclusive(p->mf, p->off + (a - p->start), b - a);
		if (n == 0)
			return false;
	}
	pma_set_flags(mm, a, a + n, PMA_RO, 0);
	*ret = stub_protect(mm, v, a, a + n);
	return true;
}

/* The pages to copy for a fault at @addr: aligned clusters, which grow while faults come in order. */
static void cow_cluster(struct mm *mm, const struct vma *v, const struct pma *p, uint64_t addr,
			uint64_t *ret_start, uint64_t *ret_end)
{
	uint64_t size, start;

	if (addr == mm->cow_next && mm->cow_pages)
		mm->cow_pages = MIN(mm->cow_pages * 2, (unsigned)COW_CLUSTER_MAX);
	else
		mm->cow_pages = COW_CLUSTER_MIN;
	size = mm->cow_pages * PAGE_SIZE;
	start = addr == mm->cow_next ? addr : addr & ~(size - 1);
	*ret_end = MIN(v->end, p->end);
	*ret_end = MIN(*ret_end, start + size);
	start = MAX(start, v->start);
	*ret_start = MAX(start, p->start);
	mm->cow_next = *ret_end;
}

/* Gives [start, end), within one read-only pma, private pages. Returns how far it came, or -errno. */
static long cow_copy(struct mm *mm, const struct pma *p, uint64_t start, uint64_t end)
{
	struct mfile *src = p->mf; /* stays alive: the removed pma keeps it until unlock */
	uint64_t soff = p->off + (start - p->start), a = start;
	bool counted = p->flags & PMA_COUNTED;
	bool hole = counted && mfile_range_resident(src, soff, end - start) == 0;

	mfile_get(src);
	while (a < end) {
		uint64_t off, n, c;
		struct mfile *mf;
		int r = own_alloc(mm, a, end - a, &mf, &off, &n);

		if (r < 0) {
			mfile_put(src);
			return a > start ? (long)a : r;
		}
		c = hole ? n : copy_pages(mf, off, src, soff + (a - start), n);
		if (c < n)
			mfile_range_put(mf, off + c, n - c);
		stat_add(STAT_FAULT_COPIED, c / PAGE_SIZE);
		if (c == 0) {
			mfile_put(mf);
			break;
		}
		pma_remove(mm, a, a + c);
		pma_insert(mm, a, a + c, mf, off, PMA_COUNTED);
		a += c;
		if (c < n)
			break;
	}
	mfile_put(src);
	return (long)a;
}

int copy_noexec(struct mm *mm, uint64_t start, uint64_t end)
{
	int copied = 0;

	for (uint64_t a = start; a < end;) {
		struct pma *p = pma_find_ge(mm, a);
		uint64_t from, to;
		long done;

		if (!p || p->start >= end)
			break;
		from = MAX(p->start, a);
		to = MIN(p->end, end);
		a = to;
		if (!mfile_noexec(p->mf))
			continue;
		done = cow_copy(mm, p, from, to);
		if (done < (long)to)
			return done < 0 ? (int)done : -ENOMEM;
		copied = 1;
	}
	return copied;
}

int break_cow(struct mm *mm, struct vma *v, uint64_t addr, unsigned pages)
{
	struct pma *p = pma_find(mm, addr);
	uint64_t start, end;
	long done;
	int r = 0;

	if (reuse_exclusive(mm, v, p, addr, &r))
		return r;
	if (pages) {
		start = addr;
		end = MIN(addr + pages * PAGE_SIZE, p->end);
	} else {
		hot_note(mm, addr);
		cow_cluster(mm, v, p, addr, &start, &end);
	}
	done = cow_copy(mm, p, start, end);
	if (done < 0)
		return (int)done;
	if (done > (long)start)
		r = stub_map_range(mm, v, start, (uint64_t)done);
	if (r == 0 && done <= (long)addr) {
		/* A page before it can't be read (past the end of its file): this one alone. */
		p = pma_find(mm, addr);
		start = addr;
		done = cow_copy(mm, p, addr, addr + PAGE_SIZE);
		if (done < 0)
			return (int)done;
		if (done <= (long)addr)
			return (mfile_is_host(p->mf) || mfile_is_on_disk(p->mf)) && !oom_short() ? -EFAULT : -EAGAIN;
		r = stub_map_range(mm, v, addr, addr + PAGE_SIZE);
	}
	if (r == 0 && (v->prot & PROT_WRITE))
		plat->as_populate(mm->as, gaddr(start), (uint64_t)done - start, true);
	return r;
}

/* ---- one page, for guest faults and the sentry's own accesses ---- */

/* The unbacked stretch around @addr, within one window: of mappings too large to back as a whole. */
static int fault_anon(struct mm *mm, struct vma *v, uint64_t addr)
{
	uint64_t win = addr & ~(LAZY_WINDOW - 1), end = MIN(v->end, win + LAZY_WINDOW);

	return back_anon(mm, v, MAX(v->start, win), end);
}

static int fault_object(struct mm *mm, struct vma *v, uint64_t addr, bool write)
{
	struct pma *p = pma_find_ge(mm, addr);
	uint64_t end = v->end, got;

	if (p && p->start <= addr)
		end = MIN(p->end, end);
	else if (p)
		end = MIN(p->start, end);
	if (write && vma_shared(v)) {
		uint64_t cluster = (addr & ~(FILE_CLUSTER - 1)) + FILE_CLUSTER;
		int r = back_object(mm, v, addr, MIN(end, cluster), true, &got);

		/* Host files: offsets are the file's own, so all of it at once costs nothing. */
		if (r == 0 && got < end && got == cluster &&
		    mfile_is_host(pma_find(mm, addr)->mf))
			(void)back_object(mm, v, got, end, true, &got); /* faults again if not */
		return r;
	}
	return back_object(mm, v, addr, end, false, &got);
}

int fault_in(struct mm *mm, struct vma *v, uint64_t addr, bool write)
{
	struct pma *p;
	int r;

	addr = page_down(addr);
	p = pma_find_ge(mm, addr);
	if (!p || p->start > addr) {
		r = vma_anon(v) ? fault_anon(mm, v, addr) : fault_object(mm, v, addr, write);
		if (r < 0 || !write || vma_anon(v) || vma_shared(v))
			return r;
		p = pma_find(mm, addr);
	}
	if (!write || !(p->flags & PMA_RO))
		return 0;
	return vma_shared(v) ? fault_object(mm, v, addr, true) : break_cow(mm, v, addr, 0);
}

/* ---- stacks ---- */

static bool may_grow(struct task *t, struct mm *mm, struct vma *v, uint64_t start)
{
	struct vma *prev = vma_prev(v);
	uint64_t add = v->start - start;

	if (start < MMAP_MIN_ADDR || v->end - start > task_rlimit(t, RLIMIT_STACK))
		return false;
	if (mm->total_vm + add > task_rlimit(t, RLIMIT_AS))
		return false;
	if ((v->flags & VMF_LOCKED) && !may_lock(t, mm, add))
		return false;
	if (!prev)
		return true;
	if (prev->end > start)
		return false;
	return (prev->flags & VMF_GROWSDOWN) || prev->prot == PROT_NONE ||
	       start - prev->end >= STACK_GUARD_GAP;
}

#define STACK_STEP (128UL << 10) /* grown at once where the rules allow, so that faults are few */

struct vma *vma_find_or_grow(struct task *t, struct mm *mm, uint64_t addr)
{
	struct vma *v = vma_find_ge(mm, addr);
	uint64_t start = page_down(addr), old;

	if (!v || v->start <= addr)
		return v;
	if (!(v->flags & VMF_GROWSDOWN) || !t || t->mm != mm)
		return NULL;
	old = v->start;
	if (old - start < STACK_STEP && old > STACK_STEP && may_grow(t, mm, v, old - STACK_STEP))
		start = old - STACK_STEP;
	else if (!may_grow(t, mm, v, start))
		return NULL;
	vma_resize(mm, v, start, v->end);
	if (v->prot != PROT_NONE)
		(void)back_anon(mm, v, start, old); /* or the fault fails on its own */
	return v;
}

/* ---- the verdict ---- */

/*
 * Everything is in place. Has somebody else repaired it just now, or is it a violation? The last change
 * was queued when the platform's batch counter stood at queued_seq; a thread that was resumed with a
 * higher count has it in force. Otherwise it shall try again, after its resume has applied what is
 * queued; that ends as soon as nobody changes mappings between a resume and the fault. Should the
 * counter not move at all in SPURIOUS_MAX tries, nothing was queued and it is a violation.
 */
static bool maybe_spurious(struct task *t, const struct mm *mm, const struct plat_trap *trap)
{
	if (trap->map_seq > mm->queued_seq)
		return false;
	if (t->fault_seq / SPURIOUS_MAX != trap->map_seq)
		t->fault_seq = trap->map_seq * SPURIOUS_MAX;
	else if (t->fault_seq % SPURIOUS_MAX == SPURIOUS_MAX - 1)
		return false;
	else
		t->fault_seq++;
	return true;
}

static int segv(int *ret_code, int code)
{
	*ret_code = code;
	return SIGSEGV;
}

static int sigbus(int *ret_code)
{
	*ret_code = BUS_ADRERR;
	return SIGBUS;
}

/* The host says SIGBUS: past the end of a mapped file, or no memory left. -ENOMEM: the latter. */
static int resolve_sigbus(struct task *t, struct mm *mm, struct vma *v,
			  const struct plat_trap *trap, int *ret_code)
{
	uint64_t addr = page_down(trap->addr), len = PAGE_SIZE, off;
	struct pma *p = pma_find(mm, addr);
	struct mfile *mf;

	/* Our own files have no end that a mapping could be past. */
	if (p && !mfile_is_host(p->mf)) /* of one on disk the disk is full */
		return mfile_is_on_disk(p->mf) ? sigbus(ret_code) : -ENOMEM;
	if (vma_anon(v) ||
	    v->obj->ops->translate(v->obj, vma_obj_off(v, addr), &len, false, &mf, &off) < 0)
		return sigbus(ret_code);
	mfile_put(mf);
	/* The file has grown since: once more. */
	if (t->fault_seq == (addr | 1))
		return sigbus(ret_code);
	t->fault_seq = addr | 1;
	return 0;
}

/* A signal, 0: it can go on, -ENOMEM: when there is memory again. */
static int resolve(struct task *t, struct mm *mm, const struct plat_trap *trap, int *ret_code)
{
	struct vma *v;
	struct pma *p;
	bool write;
	int r;

	if (trap->addr >= GUEST_TASK_SIZE)
		return segv(ret_code, SEGV_MAPERR);
	v = vma_find_or_grow(t, mm, trap->addr);
	if (!v)
		return segv(ret_code, SEGV_MAPERR);
	if (trap->signo == SIGBUS)
		return resolve_sigbus(t, mm, v, trap, ret_code);
	if (v->prot == PROT_NONE)
		return segv(ret_code, SEGV_ACCERR);
	if (trap->write_known && ((trap->write && !(v->prot & PROT_WRITE)) ||
				  (trap->exec && !(v->prot & PROT_EXEC))))
		return segv(ret_code, SEGV_ACCERR);
	p = pma_find(mm, trap->addr);
	write = trap->write_known ? trap->write : (v->prot & PROT_WRITE) && (p || vma_shared(v));
	if (p && !(write && (p->flags & PMA_RO)))
		return maybe_spurious(t, mm, trap) ? 0 : segv(ret_code, SEGV_ACCERR);
	r = fault_in(mm, v, trap->addr, write);
	if (r == -EAGAIN)
		return -ENOMEM;
	if (r < 0)
		return sigbus(ret_code);
	t->fault_seq = 0;
	return 0;
}

int mm_handle_fault(struct task *t, const struct plat_trap *trap, int *ret_code)
{
	struct mm *mm = t->mm;
	int r;

	if (trap->code == SI_KERNEL) {
		/* Not a page fault at all: a non-canonical address (#GP). */
		*ret_code = SI_KERNEL;
		return SIGSEGV;
	}
	stat_inc(STAT_FAULT);
	mm_write_lock(mm);
	r = resolve(t, mm, trap, ret_code);
	mm_write_unlock(mm, t);
	t->usage.minflt++;
	if (r == -ENOMEM) {
		if (oom_relieve(t) || atomic_load(&t->exiting))
			return 0;
		return sigbus(ret_code);
	}
	return r;
}
