// SPDX-License-Identifier: Apache-2.0
/*
 * nanosleep(2), clock_nanosleep(2). A relative sleep is measured on the monotonic clock whatever clock it names
 * (a step of CLOCK_REALTIME must not change it); interrupted, it leaves a restart block with its deadline. An
 * absolute one is simply started again.
 *
 * An absolute sleep on CLOCK_REALTIME is turned into a monotonic deadline; a host clock set back
 * meanwhile is noticed at its end and slept off, one set forward isn't noticed before.
 *
 * Sleeping on CPU clocks isn't supported (EOPNOTSUPP).
 */
#include "sentry/time/nanosleep.h"

#include <errno.h>
#include <time.h>

#include "base/err.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/usermem.h"
#include "sentry/time/clock.h"

static bool is_realtime(int clock)
{
	return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM || clock == CLOCK_TAI;
}

static long sleep_until(struct task *t, int64_t deadline_ns)
{
	long r;

	do {
		task_sleep_prepare(t);
		r = task_sleep(t, deadline_ns);
	} while (r == 0);
	return r == -ETIMEDOUT ? 0 : r;
}

static long restart_nanosleep(struct task *t);

static long relative(struct task *t, int clock, int64_t deadline_ns, gaddr_t rem)
{
	long r = sleep_until(t, deadline_ns);
	struct l_timespec left;
	int64_t ns;

	if (r != -ERESTARTSYS)
		return r;
	ns = deadline_ns - clock_monotonic_ns();
	if (ns <= 0)
		return 0;
	if (!gaddr_is_null(rem)) {
		left = ns_to_timespec(ns);
		if (copyout_obj(t, rem, &left) < 0)
			return -EFAULT;
	}
	t->restart.fn = restart_nanosleep;
	t->restart.nanosleep.clock = clock;
	t->restart.nanosleep.deadline_ns = deadline_ns;
	t->restart.nanosleep.rem = rem;
	return -ERESTART_RESTARTBLOCK;
}

static long restart_nanosleep(struct task *t)
{
	struct restart_block rb = t->restart;

	return relative(t, rb.nanosleep.clock, rb.nanosleep.deadline_ns, rb.nanosleep.rem);
}

static long absolute(struct task *t, int clock, int64_t ns)
{
	int64_t now;
	long r;

	for (;;) {
		now = is_realtime(clock) ? clock_realtime_ns() : clock_monotonic_ns();
		if (now >= ns)
			return 0;
		r = sleep_until(t, deadline_after(clock_monotonic_ns(), ns - now));
		if (r < 0)
			return r == -ERESTARTSYS ? -ERESTARTNOHAND : r;
	}
}

long clock_nanosleep_ns(struct task *t, int clock, bool abstime, int64_t ns, gaddr_t rem)
{
	if (clock < 0 || clock == CLOCK_PROCESS_CPUTIME_ID)
		return -EOPNOTSUPP;
	if (abstime)
		return absolute(t, clock, ns);
	return relative(t, clock, deadline_after(clock_monotonic_ns(), ns), rem);
}
