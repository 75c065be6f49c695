// SPDX-License-Identifier: Apache-2.0
/* System V IPC calls (man 7 sysvipc). On x86-64 commands come without IPC_64; it is accepted and dropped. */
#include <errno.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/sysv.h"
#include "sentry/time/clock.h"
#include "syscalls/sys.h"

long sys_semget(struct task *t, const struct sysargs *a)
{
	return sysv_semget(t, arg_int(a, 0), arg_int(a, 1), arg_int(a, 2));
}

static long do_semop(struct task *t, const struct sysargs *a, int64_t deadline)
{
	uint32_t n = arg_u32(a, 2);
	int r;

	if (n == 0 || arg_int(a, 0) < 0)
		return -EINVAL;
	if (n > SEMOPM_G)
		return -E2BIG;
	AUTO_FREE struct l_sembuf *ops = kcalloc(n, sizeof(*ops));

	r = copyin(t, ops, arg_gaddr(a, 1), n * sizeof(*ops));
	if (r < 0)
		return r;
	return sysv_semop(t, arg_int(a, 0), ops, n, deadline);
}

long sys_semop(struct task *t, const struct sysargs *a)
{
	return do_semop(t, a, DEADLINE_NONE);
}

long sys_semtimedop(struct task *t, const struct sysargs *a)
{
	int64_t deadline = DEADLINE_NONE;
	struct l_timespec ts;
	int r;

	if (a->v[3]) {
		r = copyin_obj(t, &ts, arg_gaddr(a, 3));
		if (r < 0)
			return r;
		if (!timespec_valid(&ts))
			return -EINVAL;
		deadline = task_call_deadline(
			t, deadline_after(clock_monotonic_ns(), timespec_to_ns(&ts)));
	}
	return do_semop(t, a, deadline);
}

long sys_semctl(struct task *t, const struct sysargs *a)
{
	return sysv_semctl(t, arg_int(a, 0), arg_int(a, 1), arg_int(a, 2) & ~0x100, arg_u64(a, 3));
}

long sys_msgget(struct task *t, const struct sysargs *a)
{
	return sysv_msgget(t, arg_int(a, 0), arg_int(a, 1));
}

long sys_msgsnd(struct task *t, const struct sysargs *a)
{
	return sysv_msgsnd(t, arg_int(a, 0), arg_gaddr(a, 1), arg_size(a, 2), arg_int(a, 3));
}

long sys_msgrcv(struct task *t, const struct sysargs *a)
{
	return sysv_msgrcv(t, arg_int(a, 0), arg_gaddr(a, 1), arg_size(a, 2), arg_s64(a, 3),
			   arg_int(a, 4));
}

long sys_msgctl(struct task *t, const struct sysargs *a)
{
	return sysv_msgctl(t, arg_int(a, 0), arg_int(a, 1) & ~0x100, arg_gaddr(a, 2));
}

long sys_shmget(struct task *t, const struct sysargs *a)
{
	return sysv_shmget(t, arg_int(a, 0), arg_u64(a, 1), arg_int(a, 2));
}

long sys_shmat(struct task *t, const struct sysargs *a)
{
	return sysv_shmat(t, arg_int(a, 0), arg_gaddr(a, 1), arg_int(a, 2));
}

long sys_shmdt(struct task *t, const struct sysargs *a)
{
	return sysv_shmdt(t, arg_gaddr(a, 0));
}

long sys_shmctl(struct task *t, const struct sysargs *a)
{
	return sysv_shmctl(t, arg_int(a, 0), arg_int(a, 1) & ~0x100, arg_gaddr(a, 2));
}
