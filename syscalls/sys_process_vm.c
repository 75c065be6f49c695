// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of other processes: process_vm_readv, process_vm_writev, process_madvise (man 2 of each).
 */
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/kernel/process.h"
#include "sentry/mm/mm.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"

#define VM_BOUNCE (64UL << 10) /* moved in one go */

/* The remote vector: like a local one, but its addresses are those of another mm. */
static int copyin_remote(struct task *t, gaddr_t iov, uint64_t n, struct giov **ret)
{
	struct giov *v;
	uint64_t sum = 0;

	if (n > UIO_MAXIOV_GUEST)
		return -EINVAL;
	v = kcalloc(n + 1, sizeof(*v));
	if (n && copyin(t, v, iov, n * sizeof(*v)) < 0) {
		free(v);
		return -EFAULT;
	}
	for (uint64_t i = 0; i < n; i++) {
		if (v[i].len > INT64_MAX || __builtin_add_overflow(sum, v[i].len, &sum)) {
			free(v);
			return -EINVAL;
		}
	}
	*ret = v;
	return 0;
}

/* One bounce buffer of a remote segment; bytes moved, 0 or -EFAULT at a fault. */
static ssize_t move_some(struct mm *mm, struct iter *it, gaddr_t remote, char *buf, size_t n, bool write)
{
	ssize_t r;

	if (!write) {
		r = mm_read(mm, remote, buf, n, false);
		return r <= 0 ? r : iter_copy_to(it, buf, (size_t)r);
	}
	r = iter_copy_from(it, buf, n);
	return r <= 0 ? r : mm_write(mm, remote, buf, (size_t)r, false);
}

static long move_all(struct mm *mm, struct iter *it, const struct giov *rv, uint64_t nr, bool write)
{
	AUTO_FREE char *buf = kzalloc(VM_BOUNCE);
	long done = 0;

	for (uint64_t i = 0; i < nr && it->left; i++) {
		uint64_t off = 0;

		while (off < rv[i].len && it->left) {
			size_t n = (size_t)MIN(rv[i].len - off, (uint64_t)VM_BOUNCE);
			ssize_t r;

			n = MIN(n, it->left);
			r = move_some(mm, it, gaddr_off(rv[i].base, off), buf, n, write);
			if (r <= 0)
				return done ? done : r;
			done += r;
			off += (uint64_t)r;
			if ((size_t)r < n)
				return done;
		}
	}
	return done;
}

/* Moves between the local vector and process @pid's. */
static long move_with(struct task *t, pid_t pid, struct iter *it, const struct giov *rv, uint64_t nr,
		      bool write)
{
	struct task *target = task_find(t, pid);
	struct mm *mm;
	long r;

	if (!target)
		return -ESRCH;
	r = task_may_access(t, target, true);
	mm = r == 0 ? task_mm_get(target) : NULL;
	task_put(target);
	if (r < 0)
		return r;
	if (!mm)
		return -ESRCH;
	r = move_all(mm, it, rv, nr, write);
	mm_put(mm);
	return r;
}

static long process_vm(struct task *t, const struct sysargs *a, bool write)
{
	AUTO_FREE struct giov *rv = NULL;
	struct iter it;
	long r;

	if (arg_u64(a, 5))
		return -EINVAL;
	r = iter_init_uiov(&it, t, arg_gaddr(a, 1), arg_u64(a, 2));
	if (r < 0)
		return r;
	r = copyin_remote(t, arg_gaddr(a, 3), arg_u64(a, 4), &rv);
	if (r == 0 && it.left)
		r = move_with(t, arg_int(a, 0), &it, rv, arg_u64(a, 4), write);
	iter_fini(&it);
	return r;
}

long sys_process_vm_readv(struct task *t, const struct sysargs *a)
{
	return process_vm(t, a, false);
}

long sys_process_vm_writev(struct task *t, const struct sysargs *a)
{
	return process_vm(t, a, true);
}

/* The task behind a pidfd: reference or err_ptr. */
static struct task *pidfd_task(struct task *t, int fd)
{
	AUTO_FILE struct file *f = fd_get(t, fd);
	struct task *target;
	struct pid *p;

	if (!f)
		return err_ptr(-EBADF);
	p = pidfd_pid(f);
	if (!p)
		return err_ptr(-EBADF);
	target = task_find(t, pid_nr(p, task_pidns(t)));
	return target ? target : err_ptr(-ESRCH);
}

/* Only advice without an effect on contents is allowed on others: hints that we needn't follow. */
static bool remote_advice(int advice)
{
	return advice == MADV_COLD || advice == MADV_PAGEOUT || advice == MADV_WILLNEED ||
	       advice == 25 /* MADV_COLLAPSE */;
}

static long advise_others(struct mm *mm, const struct giov *v, uint64_t n)
{
	long done = 0;

	for (uint64_t i = 0; i < n; i++) {
		struct vma_info vi;

		if (!page_aligned(gaddr_u64(v[i].base)))
			return done ? done : -EINVAL;
		if (v[i].len && !mm_find(mm, v[i].base, &vi))
			return done ? done : -ENOMEM;
		done += (long)v[i].len;
	}
	return done;
}

static long advise_self(struct task *t, const struct giov *v, uint64_t n, int advice)
{
	long done = 0;

	for (uint64_t i = 0; i < n; i++) {
		long r = mm_madvise(t, v[i].base, v[i].len, advice);

		if (r < 0)
			return done ? done : r;
		done += (long)v[i].len;
	}
	return done;
}

long sys_process_madvise(struct task *t, const struct sysargs *a)
{
	AUTO_FREE struct giov *v = NULL;
	int advice = arg_int(a, 3);
	struct task *target;
	struct mm *mm;
	long r;

	if (arg_u32(a, 4))
		return -EINVAL;
	r = copyin_remote(t, arg_gaddr(a, 1), arg_u64(a, 2), &v);
	if (r < 0)
		return r;
	target = pidfd_task(t, arg_int(a, 0));
	if (is_err(target))
		return ptr_err(target);
	r = task_may_access(t, target, false);
	mm = r == 0 ? task_mm_get(target) : NULL;
	task_put(target);
	if (r < 0)
		return r;
	if (!mm)
		return -ESRCH;
	if (mm == t->mm)
		r = advise_self(t, v, arg_u64(a, 2), advice);
	else if (!remote_advice(advice))
		r = -EINVAL;
	else if (!task_capable(t, 23 /* CAP_SYS_NICE */))
		r = -EPERM;
	else
		r = advise_others(mm, v, arg_u64(a, 2));
	mm_put(mm);
	return r;
}
