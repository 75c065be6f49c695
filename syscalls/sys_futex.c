// SPDX-License-Identifier: Apache-2.0
/* man 2 futex, futex_waitv, set_robust_list */
#include <errno.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "sentry/kernel/futex.h"
#include "sentry/kernel/futex_priv.h"
#include "sentry/time/clock.h"
#include "syscalls/sys.h"

#define ROBUST_HEAD_SIZE 24

long sys_futex(struct task *t, const struct sysargs *a)
{
	return futex_op(t, arg_gaddr(a, 0), arg_int(a, 1), arg_u32(a, 2), arg_gaddr(a, 3),
			arg_gaddr(a, 4), arg_u32(a, 5));
}

long sys_futex_waitv(struct task *t, const struct sysargs *a)
{
	uint32_t n = arg_u32(a, 1);
	int64_t deadline = DEADLINE_NONE;
	struct l_timespec ts;
	int r;

	if (arg_u32(a, 2) || n == 0 || n > FUTEX_WAITV_MAX_G || a->v[0] == 0)
		return -EINVAL;
	if (a->v[3]) {
		int clock = arg_int(a, 4);

		if (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME)
			return -EINVAL;
		r = copyin_obj(t, &ts, arg_gaddr(a, 3));
		if (r < 0)
			return r;
		if (!timespec_valid(&ts))
			return -EINVAL;
		deadline = timespec_to_ns(&ts);
		if (clock == CLOCK_REALTIME && deadline != INT64_MAX)
			deadline -= clock_realtime_ns() - clock_monotonic_ns();
	}
	AUTO_FREE struct l_futex_waitv *v = kcalloc(n, sizeof(*v));

	r = copyin(t, v, arg_gaddr(a, 0), n * sizeof(*v));
	if (r < 0)
		return r;
	return futex_wait_multiple(t, v, n, deadline);
}

long sys_set_robust_list(struct task *t, const struct sysargs *a)
{
	if (arg_size(a, 1) != ROBUST_HEAD_SIZE)
		return -EINVAL;
	t->robust_list = arg_gaddr(a, 0);
	t->robust_len = ROBUST_HEAD_SIZE;
	return 0;
}

long sys_get_robust_list(struct task *t, const struct sysargs *a)
{
	uint64_t head, len = ROBUST_HEAD_SIZE;
	int pid = arg_int(a, 0), r = 0;
	struct task *target;

	target = pid == 0 ? task_get(t) : task_find(t, pid);
	if (!target)
		return -ESRCH;
	if (target != t)
		r = task_may_access(t, target, false);
	head = gaddr_u64(target->robust_list);
	task_put(target);
	if (r < 0)
		return -EPERM;
	r = copyout_obj(t, arg_gaddr(a, 2), &len);
	return r < 0 ? r : copyout_obj(t, arg_gaddr(a, 1), &head);
}
