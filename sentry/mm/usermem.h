// SPDX-License-Identifier: Apache-2.0
/*
 * Reading and writing guest memory. Everything that a handler looks at is copied in once and then
 * checked; nothing is read twice.
 *
 * The task variants use t->mm. A copy obeys the vma's protection, resolves what a guest's access
 * would resolve (copy-on-write, pages of files) and returns 0 or -EFAULT; a partial copy out may
 * have happened. None of these may be called with a lock of rank above RANK_MM held.
 */
#ifndef SENTRY_MM_USERMEM_H
#define SENTRY_MM_USERMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"
#include "base/gaddr.h"

struct task;
struct mm;

int __must_check copyin(struct task *t, void *dst, gaddr_t src, size_t len);
int __must_check copyout(struct task *t, gaddr_t dst, const void *src, size_t len);
/* Copies *objp, whose size is the type's. */
#define copyin_obj(t, objp, src) copyin((t), (objp), (src), sizeof(*(objp)))
#define copyout_obj(t, dst, objp) copyout((t), (dst), (objp), sizeof(*(objp)))
int __must_check zeroout(struct task *t, gaddr_t dst, size_t len);

/* A NUL-terminated string into @buf. Its length without NUL, -EFAULT, or @too_long when no NUL came
 * within @size bytes (-ENAMETOOLONG for paths, -E2BIG for arguments). */
ssize_t __must_check copyin_str(struct task *t, char *buf, gaddr_t src, size_t size, int too_long);
/* A path: at most PATH_MAX with NUL. *ret is heap, free() it. Length, or -errno. */
ssize_t __must_check copyin_path(struct task *t, gaddr_t src, char **ret);

/* The same on any mm, and with what ptrace may do (@force: writes through read-only private
 * mappings, as POKEDATA does). Returns bytes copied (may be short) or -EFAULT if none. */
ssize_t mm_read(struct mm *mm, gaddr_t src, void *dst, size_t len, bool force);
ssize_t mm_write(struct mm *mm, gaddr_t dst, const void *src, size_t len, bool force);

/* Atomic access to one aligned 32-bit word of t->mm. 0 or -EFAULT (or -EINVAL unaligned). */
int __must_check user_load32(struct task *t, gaddr_t a, uint32_t *ret);
int __must_check user_cmpxchg32(struct task *t, gaddr_t a, uint32_t expect, uint32_t desired,
				uint32_t *ret_old);

/*
 * An I/O vector: guest segments, or one kernel buffer. Consumed from the front by the iter_*
 * functions; left is what remains.
 */
#define UIO_MAXIOV_GUEST 1024
#define MAX_RW_COUNT_GUEST 0x7ffff000UL

struct giov { /* same layout as the guest's struct iovec */
	gaddr_t base;
	uint64_t len;
};

struct iter {
	struct task *task;  /* whose memory; NULL: kernel buffer */
	struct mm *mm;      /* overrides task->mm when set (process_vm_*) */
	struct iovec *kvec; /* kernel segments, when task and mm are NULL */
	struct giov *gvec;  /* guest segments */
	unsigned nseg, seg; /* segments, current one */
	size_t seg_off;     /* consumed of the current one */
	size_t left;        /* bytes left in all */
	bool pinned;        /* between iter_pin() and iter_unpin(); private to iter.c */
	struct iovec kone;  /* storage for the single-segment cases */
	struct giov gone;
};

/* One guest buffer; @len is cut to MAX_RW_COUNT_GUEST. */
void iter_init_user(struct iter *it, struct task *t, gaddr_t base, size_t len);
void iter_init_kernel(struct iter *it, void *buf, size_t len);
/* Copies in and checks a guest iovec array: -EINVAL (count, lengths, overflow) or -EFAULT. On success
 * the caller must iter_fini(). */
int __must_check iter_init_uiov(struct iter *it, struct task *t, gaddr_t iov, uint64_t count);
void iter_fini(struct iter *it);

/* Copies min(len, it->left) bytes; returns the count, short only on a fault; -EFAULT if the fault
 * came before the first byte. */
ssize_t __must_check iter_copy_to(struct iter *it, const void *src, size_t len);   /* kernel -> iter */
ssize_t __must_check iter_copy_from(struct iter *it, void *dst, size_t len);       /* iter -> kernel */
ssize_t __must_check iter_zero(struct iter *it, size_t len);
void iter_advance(struct iter *it, size_t n);
/* Gives back the last @n bytes consumed (a read that must be undone). */
void iter_revert(struct iter *it, size_t n);
/*
 * Host addresses of the next bytes of the iterator (at most @max bytes, @maxseg pieces), for handing to
 * a host preadv/pwritev. Guest memory stays pinned until iter_unpin(). Returns the number of pieces or
 * -EFAULT. @write: the memory will be written. The caller then iter_advance()s by what was moved.
 * Between pin and unpin: the host call and nothing else, no lock taken, no guest memory touched.
 */
int __must_check iter_pin(struct iter *it, bool write, size_t max, struct iovec *out,
			  unsigned maxseg);
void iter_unpin(struct iter *it);

#endif
