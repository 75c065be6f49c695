// SPDX-License-Identifier: Apache-2.0
/*
 * Memory calls of one address space: mmap and its family. Access to other processes' memory is in
 * sys_process_vm.c.
 *
 * membarrier: the query answers that no command is supported. A barrier on all running guest threads needs
 * either a host membarrier (not among the sentry's host calls) or a stop of each; programs that
 * find none fall back to mprotect, which is a barrier here as on Linux.
 * Protection keys: as on a CPU without them.
 */
#include <linux/mempolicy.h>
#include <sys/mman.h>

#include "base/size.h"
#include "sentry/mm/mm.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"

long sys_mmap(struct task *t, const struct sysargs *a)
{
	gaddr_t addr = arg_gaddr(a, 0);
	uint64_t len = arg_u64(a, 1), off = arg_u64(a, 5);
	int prot = arg_int(a, 2), flags = arg_int(a, 3);
	AUTO_FILE struct file *f = NULL;

	if (!page_aligned(off))
		return -EINVAL;
	if (!(flags & MAP_ANONYMOUS)) {
		f = fd_get(t, arg_int(a, 4));
		if (!f)
			return -EBADF;
	}
	return mm_mmap(t, addr, len, prot, flags, f, off);
}

long sys_munmap(struct task *t, const struct sysargs *a)
{
	return mm_munmap(t, arg_gaddr(a, 0), arg_u64(a, 1));
}

long sys_mprotect(struct task *t, const struct sysargs *a)
{
	return mm_mprotect(t, arg_gaddr(a, 0), arg_u64(a, 1), arg_int(a, 2));
}

long sys_pkey_mprotect(struct task *t, const struct sysargs *a)
{
	if (arg_int(a, 3) != -1)
		return -EINVAL;
	return mm_mprotect(t, arg_gaddr(a, 0), arg_u64(a, 1), arg_int(a, 2));
}

long sys_pkey_alloc(struct task *t, const struct sysargs *a)
{
	(void)t;
	if (arg_u64(a, 0) || (arg_u64(a, 1) & ~3UL)) /* PKEY_DISABLE_ACCESS | _WRITE */
		return -EINVAL;
	return -ENOSPC;
}

long sys_pkey_free(struct task *t, const struct sysargs *a)
{
	(void)t;
	(void)a;
	return -EINVAL;
}

long sys_mremap(struct task *t, const struct sysargs *a)
{
	uint64_t flags = arg_u64(a, 3);

	if (flags >> 31)
		return -EINVAL;
	return mm_mremap(t, arg_gaddr(a, 0), arg_u64(a, 1), arg_u64(a, 2), (int)flags,
			 arg_gaddr(a, 4));
}

long sys_brk(struct task *t, const struct sysargs *a)
{
	return mm_brk(t, arg_gaddr(a, 0));
}

long sys_madvise(struct task *t, const struct sysargs *a)
{
	return mm_madvise(t, arg_gaddr(a, 0), arg_u64(a, 1), arg_int(a, 2));
}

long sys_mincore(struct task *t, const struct sysargs *a)
{
	return mm_mincore(t, arg_gaddr(a, 0), arg_u64(a, 1), arg_gaddr(a, 2));
}

long sys_msync(struct task *t, const struct sysargs *a)
{
	return mm_msync(t, arg_gaddr(a, 0), arg_u64(a, 1), arg_int(a, 2));
}

long sys_mlock(struct task *t, const struct sysargs *a)
{
	return mm_mlock(t, arg_gaddr(a, 0), arg_u64(a, 1), 0);
}

long sys_mlock2(struct task *t, const struct sysargs *a)
{
	return mm_mlock(t, arg_gaddr(a, 0), arg_u64(a, 1), arg_int(a, 2));
}

long sys_munlock(struct task *t, const struct sysargs *a)
{
	return mm_munlock(t, arg_gaddr(a, 0), arg_u64(a, 1));
}

long sys_mlockall(struct task *t, const struct sysargs *a)
{
	return mm_mlockall(t, arg_int(a, 0));
}

long sys_munlockall(struct task *t, const struct sysargs *a)
{
	(void)a;
	return mm_munlockall(t);
}

long sys_remap_file_pages(struct task *t, const struct sysargs *a)
{
	uint64_t start = page_down(arg_u64(a, 0)), size = page_down(arg_u64(a, 1));
	uint64_t pgoff = arg_u64(a, 3), end, off;

	if (arg_u64(a, 2)) /* prot must be 0 */
		return -EINVAL;
	if (size == 0 || __builtin_add_overflow(start, size, &end))
		return -EINVAL;
	if (__builtin_mul_overflow(pgoff, PAGE_SIZE, &off) ||
	    __builtin_add_overflow(off, size, &end))
		return -EINVAL;
	return mm_remap_file_pages(t, gaddr(start), size, off, arg_int(a, 4));
}

long sys_membarrier(struct task *t, const struct sysargs *a)
{
	(void)t;
	/* cmd 0: MEMBARRIER_CMD_QUERY. A mask of supported commands, see the head of this file. */
	return arg_int(a, 0) == 0 && arg_u32(a, 1) == 0 ? 0 : -EINVAL;
}

/* ---- memory policy: one node, 0, so that every policy has the same effect ---- */

#define MAX_NODES 1024 /* MAX_NUMNODES: larger masks must be zero above it */

/* Which nodes a guest's mask names: bit 0, and whether any other is set. */
static int copyin_nodes(struct task *t, gaddr_t mask, uint64_t maxnode, bool *ret_zero, bool *ret_other)
{
	uint64_t word, bits;

	*ret_zero = *ret_other = false;
	if (maxnode == 0 || gaddr_is_null(mask))
		return 0;
	bits = maxnode - 1; /* the kernel's own off-by-one (man 2 set_mempolicy, BUGS) */
	if (bits > PAGE_SIZE * 8)
		return -EINVAL;
	for (uint64_t i = 0; i < bits; i += 64) {
		if (copyin(t, &word, gaddr_off(mask, i / 8), sizeof(word)) < 0)
			return -EFAULT;
		if (bits - i < 64)
			word &= (1ULL << (bits - i)) - 1;
		if (i == 0) {
			*ret_zero = word & 1;
			word &= ~1ULL;
		}
		*ret_other = *ret_other || word;
	}
	return 0;
}

long sys_set_mempolicy(struct task *t, const struct sysargs *a)
{
	int mode = arg_int(a, 0), flags;
	bool zero, other;
	int r;

	flags = mode & MPOL_MODE_FLAGS;
	mode &= ~MPOL_MODE_FLAGS;
	if (mode < 0 || mode >= MPOL_MAX)
		return -EINVAL;
	if ((flags & MPOL_F_STATIC_NODES) && (flags & MPOL_F_RELATIVE_NODES))
		return -EINVAL;
	r = copyin_nodes(t, arg_gaddr(a, 1), arg_u64(a, 2), &zero, &other);
	if (r < 0)
		return r;
	if (mode == MPOL_DEFAULT || mode == MPOL_LOCAL) {
		if (zero || other)
			return -EINVAL;
	} else if (mode == MPOL_PREFERRED && !zero && !other) {
		mode = MPOL_LOCAL; /* an empty set means local */
	} else if (!zero) {
		return -EINVAL; /* no node of the set is there */
	}
	t->mempolicy = mode | flags;
	return 0;
}

long sys_get_mempolicy(struct task *t, const struct sysargs *a)
{
	gaddr_t policy = arg_gaddr(a, 0), mask = arg_gaddr(a, 1);
	uint64_t maxnode = arg_u64(a, 2), flags = arg_u64(a, 4);
	int mode = t->mempolicy, val;
	bool has_node;

	if (flags & ~(uint64_t)(MPOL_F_NODE | MPOL_F_ADDR | MPOL_F_MEMS_ALLOWED))
		return -EINVAL;
	if (!gaddr_is_null(mask) && maxnode < 1)
		return -EINVAL;
	if ((flags & MPOL_F_MEMS_ALLOWED) && (flags & (MPOL_F_NODE | MPOL_F_ADDR)))
		return -EINVAL;
	if (flags & MPOL_F_ADDR) {
		struct vma_info vi;

		if (!mm_find(t->mm, arg_gaddr(a, 3), &vi))
			return -EFAULT;
		mode = MPOL_DEFAULT;
	} else if (arg_u64(a, 3)) {
		return -EINVAL;
	}
	val = flags & MPOL_F_NODE ? 0 : mode;
	if ((flags & MPOL_F_NODE) && !(flags & MPOL_F_ADDR) &&
	    (mode & ~MPOL_MODE_FLAGS) != MPOL_INTERLEAVE)
		return -EINVAL;
	if (flags & MPOL_F_MEMS_ALLOWED)
		val = 0;
	if (!gaddr_is_null(policy) && copyout_obj(t, policy, &val) < 0)
		return -EFAULT;
	mode &= ~MPOL_MODE_FLAGS;
	has_node = (flags & MPOL_F_MEMS_ALLOWED) || (mode != MPOL_DEFAULT && mode != MPOL_LOCAL);
	if (!gaddr_is_null(mask)) {
		uint64_t word = has_node, len = ((maxnode - 1 + 63) / 64) * 8;

		if (len > PAGE_SIZE)
			return -EINVAL;
		if (len && zeroout(t, mask, len) < 0)
			return -EFAULT;
		if (len && copyout_obj(t, mask, &word) < 0)
			return -EFAULT;
	}
	return 0;
}
