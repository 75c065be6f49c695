// SPDX-License-Identifier: Apache-2.0
/*
 * Reading and writing guest memory from the sentry.
 *
 * The fast path takes mm.mu for reading, finds vma and pma (both usually by the last hit), and
 * copies through the sentry's own mapping of the mfile. Whatever is missing (a page never touched,
 * copy-on-write, a stack that grows) is resolved under the write lock as a guest's fault would be,
 * and the copy goes on.
 *
 * A copy may hit a host file that somebody truncates: safecopy reports that as -EFAULT.
 */
#include "sentry/mm/usermem.h"

#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/oom.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/access.h"
#include "sentry/mm/mm_priv.h"
#include "sentry/mm/safecopy.h"

#define ACCESS_TRIES 8 /* for one page: a racing munmap or fork may undo what we resolved */

static bool may_access(const struct vma *v, bool write, bool force)
{
	if (!write)
		return v->prot != PROT_NONE || (force && (v->flags & VMF_MAYREAD));
	if (v->prot & PROT_WRITE)
		return true;
	/* ptrace writes break copy-on-write even where the guest may not write (FOLL_FORCE). */
	return force && !vma_shared(v) && (v->flags & VMF_MAYWRITE) && !(v->flags & VMF_SPECIAL);
}

/*
 * Host address of @addr, with *len cut to what is contiguous and accessible. NULL: needs
 * access_resolve(). err_ptr(-EFAULT): not accessible. Context: mm.mu held for reading.
 */
static char *access_lookup(struct mm *mm, uint64_t addr, size_t *len, bool write, bool force)
{
	struct vma *v = vma_find(mm, addr);
	struct pma *p;
	uint64_t n, end;

	if (!v)
		return NULL; /* a stack may grow */
	if (!may_access(v, write, force))
		return err_ptr(-EFAULT);
	p = pma_find(mm, addr);
	if (!p || (write && (p->flags & PMA_RO)))
		return NULL;
	end = MIN(p->end, v->end);
	n = MIN((uint64_t)*len, end - addr);
	*len = n;
	if (write) {
		char *d = mfile_ptr(p->mf, p->off + (addr - p->start), &n);

		*len = MIN(*len, n);
		return d ? d : err_ptr(-EFAULT);
	}
	/* The cast only strips const: callers don't write through it without @write. */
	uintptr_t s = (uintptr_t)mfile_cptr(p->mf, p->off + (addr - p->start), &n);

	*len = MIN(*len, n);
	return s ? (char *)s : err_ptr(-EFAULT);
}

/* Resolves what access_lookup() couldn't. 0 or -EFAULT. Context: no mm.mu. */
static int access_resolve(struct mm *mm, struct task *t, uint64_t addr, bool write, bool force)
{
	struct vma *v;
	int r = -EFAULT;

	if (addr >= GUEST_TASK_SIZE)
		return -EFAULT;
	mm_write_lock(mm);
	v = mm->as ? vma_find_or_grow(t, mm, addr) : NULL;
	if (v && may_access(v, write, force)) {
		struct pma *p = pma_find(mm, addr);

		/* Other threads may be reading the page that a copy is about to replace. */
		if (p && write && (p->flags & PMA_RO))
			mm->need_flush = true;
		r = fault_in(mm, v, addr, write);
	}
	mm_write_unlock(mm, t);
	if (r < 0 && (r == -EAGAIN || oom_short()) && oom_relieve(t))
		return 0; /* try once more */
	return r < 0 ? -EFAULT : 0;
}

enum access_op { ACCESS_IN, ACCESS_OUT, ACCESS_ZERO };

static size_t access_piece(char *guest, void *buf, size_t n, enum access_op op)
{
	switch (op) {
	case ACCESS_IN:
		return safecopy(buf, guest, n);
	case ACCESS_OUT:
		return safecopy(guest, buf, n);
	case ACCESS_ZERO:
		return safezero(guest, n);
	}
	return n;
}

/*
 * A copy stopped at @guest. Is it guest memory that is lacking, rather than the
 * other side (a page of a file that is being written: its file system tells ENOSPC)?
 */
static bool guest_side(const char *guest, enum access_op op)
{
	uintptr_t word = (uintptr_t)guest & ~(uintptr_t)3;
	uint32_t v;

	return op != ACCESS_IN || safe_load32((const uint32_t *)word, &v) < 0;
}

static bool is_text(struct mm *mm, uint64_t addr)
{
	const struct vma *v;
	bool yes;

	mm_read_lock(mm);
	v = vma_find(mm, addr);
	yes = v && (v->prot & PROT_EXEC) && !mm->loading;
	mm_read_unlock(mm);
	return yes;
}

/* Moves up to @len bytes; returns how many. */
static size_t access_mem(struct mm *mm, struct task *t, uint64_t addr, void *buf, size_t len,
			 enum access_op op, bool force)
{
	bool write = op != ACCESS_IN;
	size_t done = 0;
	unsigned tries = 0;

	/* Debuggers want text as it is (process_vm_readv doesn't force), and put breakpoints there. */
	if (unlikely(!t || t->mm != mm || (force && write)) && !atomic_load(&mm->no_patches) &&
	    is_text(mm, addr))
		mm_unpatch_all(mm);
	mm_read_lock(mm);
	while (done < len) {
		size_t n = len - done, left;
		char *g = access_lookup(mm, addr + done, &n, write, force);

		if (!g) {
			mm_read_unlock(mm);
			if (++tries > ACCESS_TRIES ||
			    access_resolve(mm, t, addr + done, write, force) < 0)
				return done;
			mm_read_lock(mm);
			continue;
		}
		if (is_err(g))
			break;
		left = access_piece(g, buf ? (char *)buf + done : NULL, n, op);
		done += n - left;
		if (unlikely(left)) {
			bool ours = guest_side(g + (n - left), op);

			mm_read_unlock(mm);
			if (!ours || !oom_short() || ++tries > ACCESS_TRIES || !oom_relieve(t))
				return done;
			mm_read_lock(mm);
			continue;
		}
		tries = 0;
	}
	mm_read_unlock(mm);
	return done;
}

static bool range_ok(gaddr_t a, size_t len)
{
	return a.va < GUEST_TASK_SIZE && len <= GUEST_TASK_SIZE - a.va;
}

int copyin(struct task *t, void *dst, gaddr_t src, size_t len)
{
	if (len == 0)
		return 0;
	if (!range_ok(src, len))
		return -EFAULT;
	return access_mem(t->mm, t, src.va, dst, len, ACCESS_IN, false) == len ? 0 : -EFAULT;
}

int copyout(struct task *t, gaddr_t dst, const void *src, size_t len)
{
	union {
		const void *c;
		void *v;
	} u = { .c = src }; /* ACCESS_OUT only reads from it */

	if (len == 0)
		return 0;
	if (!range_ok(dst, len))
		return -EFAULT;
	return access_mem(t->mm, t, dst.va, u.v, len, ACCESS_OUT, false) == len ? 0 : -EFAULT;
}

int zeroout(struct task *t, gaddr_t dst, size_t len)
{
	if (len == 0)
		return 0;
	if (!range_ok(dst, len))
		return -EFAULT;
	return access_mem(t->mm, t, dst.va, NULL, len, ACCESS_ZERO, false) == len ? 0 : -EFAULT;
}

static size_t clamp_range(gaddr_t a, size_t len)
{
	if (a.va >= GUEST_TASK_SIZE)
		return 0;
	return MIN(len, (size_t)(GUEST_TASK_SIZE - a.va));
}

/* For iter.c: bytes moved, 0 on a fault at once. @buf NULL with @write: zeroes. */
size_t mm_access(struct mm *mm, struct task *t, gaddr_t a, void *buf, size_t len, bool write)
{
	enum access_op op = !write ? ACCESS_IN : buf ? ACCESS_OUT : ACCESS_ZERO;

	return access_mem(mm, t, a.va, buf, clamp_range(a, len), op, false);
}

ssize_t mm_read(struct mm *mm, gaddr_t src, void *dst, size_t len, bool force)
{
	size_t n = access_mem(mm, current_task(), src.va, dst, clamp_range(src, len), ACCESS_IN,
			      force);

	return n || !len ? (ssize_t)n : -EFAULT;
}

ssize_t mm_write(struct mm *mm, gaddr_t dst, const void *src, size_t len, bool force)
{
	union {
		const void *c;
		void *v;
	} u = { .c = src };
	size_t n = access_mem(mm, current_task(), dst.va, u.v, clamp_range(dst, len), ACCESS_OUT,
			      force);

	return n || !len ? (ssize_t)n : -EFAULT;
}

/* ---- strings ---- */

ssize_t copyin_str(struct task *t, char *buf, gaddr_t src, size_t size, int too_long)
{
	size_t done = 0;

	while (done < size) {
		/* Up to the end of a page: the string may end right before an unmapped one. */
		size_t n = PAGE_SIZE - ((src.va + done) & (PAGE_SIZE - 1)), got;
		const char *nul;

		n = MIN(n, size - done);
		got = mm_access(t->mm, t, gaddr_off(src, done), buf + done, n, false);
		nul = memchr(buf + done, 0, got);
		if (nul)
			return nul - buf;
		if (got < n)
			return -EFAULT;
		done += n;
	}
	return too_long;
}

ssize_t copyin_path(struct task *t, gaddr_t src, char **ret)
{
	/* Not zeroed first: PATH_MAX bytes, of which a path uses few. */
	char buf[PATH_MAX] __uninitialized;
	ssize_t n = copyin_str(t, buf, src, sizeof(buf), -ENAMETOOLONG);

	if (n < 0)
		return n;
	*ret = kstrndup(buf, (size_t)n);
	return n;
}

/* ---- single words ---- */

enum word_op { WORD_LOAD, WORD_CMPXCHG };

static int word_op(struct task *t, gaddr_t a, enum word_op op, uint32_t expect, uint32_t val,
		   uint32_t *ret)
{
	bool write = op != WORD_LOAD;
	struct mm *mm = t->mm;
	int r = -EFAULT;

	if (a.va & 3)
		return -EINVAL;
	for (int i = 0; i < ACCESS_TRIES; i++) {
		size_t n = sizeof(uint32_t);
		char *g;

		mm_read_lock(mm);
		g = access_lookup(mm, a.va, &n, write, false);
		if (g && !is_err(g)) {
			uint32_t *w = (uint32_t *)(void *)g;

			r = op == WORD_LOAD ? safe_load32(w, ret) :
					      safe_cmpxchg32(w, expect, val, ret);
		}
		mm_read_unlock(mm);
		if (g && r == -EFAULT && oom_short() && oom_relieve(t))
			continue;
		if (g)
			return r;
		if (access_resolve(mm, t, a.va, write, false) < 0)
			return -EFAULT;
	}
	return -EFAULT;
}

int user_load32(struct task *t, gaddr_t a, uint32_t *ret)
{
	return word_op(t, a, WORD_LOAD, 0, 0, ret);
}

int user_cmpxchg32(struct task *t, gaddr_t a, uint32_t expect, uint32_t desired, uint32_t *ret_old)
{
	return word_op(t, a, WORD_CMPXCHG, expect, desired, ret_old);
}

/* ---- for host I/O and futexes ---- */

void mm_pin_begin(struct mm *mm)
{
	mm_read_lock(mm);
}

int mm_pin_try(struct mm *mm, gaddr_t a, size_t len, bool write, struct iovec *ret)
{
	size_t n = len;
	char *g;

	if (a.va >= GUEST_TASK_SIZE)
		return -EFAULT;
	g = access_lookup(mm, a.va, &n, write, false);
	if (!g)
		return 0;
	if (is_err(g))
		return -EFAULT;
	ret->iov_base = g;
	ret->iov_len = n;
	return 1;
}

void mm_pin_end(struct mm *mm, bool pin)
{
	if (pin)
		atomic_fetch_add(&mm->pins, 1);
	mm_read_unlock(mm);
}

int mm_pin_resolve(struct mm *mm, struct task *t, gaddr_t a, bool write)
{
	return access_resolve(mm, t, a.va, write, false);
}

void mm_unpin(struct mm *mm)
{
	if (atomic_fetch_sub(&mm->pins, 1) != 1 || atomic_load(&mm->pin_waits) == 0)
		return;
	mutex_lock(&mm->pin_mu);
	cond_broadcast(&mm->pin_cond);
	mutex_unlock(&mm->pin_mu);
}

int mm_futex_key(struct task *t, gaddr_t addr, bool shared, bool write, struct futex_key *ret)
{
	struct mm *mm = t->mm;

	if (addr.va & 3)
		return -EINVAL;
	if (addr.va >= GUEST_TASK_SIZE)
		return -EFAULT;
	ret->obj = mm;
	ret->off = addr.va;
	if (!shared)
		return 0;
	for (int i = 0; i < ACCESS_TRIES; i++) {
		struct vma *v;
		struct pma *p;
		bool ok;

		mm_read_lock(mm);
		v = vma_find(mm, addr.va);
		ok = v && may_access(v, write, false);
		p = ok ? pma_find(mm, addr.va) : NULL;
		if (ok && !vma_shared(v)) {
			/* Private memory: no other mm can name it. */
			mm_read_unlock(mm);
			return 0;
		}
		if (p && !(write && (p->flags & PMA_RO))) {
			/* By what is mapped, not where its pages are: those move. */
			ret->obj = v->obj;
			ret->off = vma_obj_off(v, addr.va);
			mm_read_unlock(mm);
			return 0;
		}
		mm_read_unlock(mm);
		if (access_resolve(mm, t, addr.va, write, false) < 0)
			return -EFAULT;
	}
	return -EFAULT;
}
