// SPDX-License-Identifier: Apache-2.0
/*
 * nanosleep(2), clock_nanosleep(2). A relative sleep is measured on the monotonic clock whatever clock it names
 * (a step of CLOCK_REALTIME must not change it); interrupted, it leaves a restart block with its deadline. An
 * absolute one is simply started again.
 *
 * An absolute sleep on CLOCK_REALTIME is turned into a monotonic deadline; a host clock set back
 * meanwhile is noticed at its end and slept off, one set forward isn't noticed before.
 *
 * On the CPU clock of the caller's process, a CPU timer (cputimer.h) ends the sleep; on those of other
 * processes and threads it isn't supported (EOPNOTSUPP).
 */
#include "sentry/time/nanosleep.h"

#include <errno.h>
#include <time.h>

#include "base/err.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/usermem.h"
#include "sentry/time/clock.h"
#include "sentry/time/cputimer.h"

static bool is_realtime(int clock)
{
	return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM || clock == CLOCK_TAI;
}

static bool is_boottime(int clock)
{
	return clock == CLOCK_BOOTTIME || clock == CLOCK_BOOTTIME_ALARM;
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
	t->restart.kind = RESTART_NANOSLEEP;
	t->restart.nanosleep.clock = clock;
	t->restart.nanosleep.deadline_ns = deadline_ns;
	t->restart.nanosleep.rem = rem;
	return -ERESTART_RESTARTBLOCK;
}

/* ---- CPU time of the process ---- */

struct cpu_sleep {
	struct cputimer timer;
	struct task *task;
	_Atomic bool done;
};

static int cpu_sleep_over(struct cputimer *ct, struct tgroup *tg, int64_t now_ns)
{
	struct cpu_sleep *s = container_of(ct, struct cpu_sleep, timer);

	(void)tg;
	(void)now_ns;
	ct->expires_ns = INT64_MAX;
	atomic_store(&s->done, true);
	task_wake(s->task);
	return 0;
}

/* Until the process has used @until_ns of CPU time. */
static long cpu_sleep_until(struct task *t, int64_t until_ns)
{
	struct cpu_sleep s = { .task = t };
	long r = 0;

	cputimer_init(&s.timer, CPUTIMER_PROF, NULL, cpu_sleep_over);
	cputimer_set(t->tg, &s.timer, until_ns);
	for (;;) {
		task_sleep_prepare(t);
		if (atomic_load(&s.done) || r < 0)
			break;
		r = task_sleep(t, DEADLINE_NONE);
	}
	cputimer_remove(t->tg, &s.timer); /* takes the lock that the callback runs under */
	return atomic_load(&s.done) ? 0 : r;
}

static long cpu_relative(struct task *t, int clock, int64_t until_ns, gaddr_t rem)
{
	long r = cpu_sleep_until(t, until_ns);
	struct l_timespec left;
	int64_t ns;

	if (r != -ERESTARTSYS)
		return r;
	ns = until_ns - tgroup_cpu_ns(t->tg, CPUTIMER_PROF);
	if (ns <= 0)
		return 0;
	left = ns_to_timespec(ns);
	if (!gaddr_is_null(rem) && copyout_obj(t, rem, &left) < 0)
		return -EFAULT;
	t->restart.kind = RESTART_NANOSLEEP;
	t->restart.nanosleep.clock = clock;
	t->restart.nanosleep.deadline_ns = until_ns;
	t->restart.nanosleep.rem = rem;
	return -ERESTART_RESTARTBLOCK;
}

static long cpu_nanosleep(struct task *t, bool abstime, int64_t ns, gaddr_t rem)
{
	long r;

	if (!abstime)
		return cpu_relative(
			t, CLOCK_PROCESS_CPUTIME_ID,
			task_call_deadline(t, deadline_after(tgroup_cpu_ns(t->tg, CPUTIMER_PROF), ns)),
			rem);
	r = cpu_sleep_until(t, ns);
	return r == -ERESTARTSYS ? -ERESTARTNOHAND : r;
}

long nanosleep_restart(struct task *t)
{
	struct restart_block rb = t->restart;

	if (rb.nanosleep.clock == CLOCK_PROCESS_CPUTIME_ID)
		return cpu_relative(t, rb.nanosleep.clock, rb.nanosleep.deadline_ns,
				    rb.nanosleep.rem);

	return relative(t, rb.nanosleep.clock, rb.nanosleep.deadline_ns, rb.nanosleep.rem);
}

static long absolute(struct task *t, int clock, int64_t ns)
{
	int64_t now;
	long r;

	for (;;) {
		if (is_realtime(clock))
			now = clock_realtime_ns();
		else
			now = is_boottime(clock) ? clock_boottime_ns() : clock_monotonic_ns();
		if (now >= ns)
			return 0;
		r = sleep_until(t, deadline_after(clock_monotonic_ns(), ns - now));
		if (r < 0)
			return r == -ERESTARTSYS ? -ERESTARTNOHAND : r;
	}
}

long clock_nanosleep_ns(struct task *t, int clock, bool abstime, int64_t ns, gaddr_t rem)
{
	if (clock == CLOCK_PROCESS_CPUTIME_ID)
		return cpu_nanosleep(t, abstime, ns, rem);
	if (clock < 0)
		return -EOPNOTSUPP;
	if (abstime)
		return absolute(t, clock, ns);
	return relative(t, clock,
			task_call_deadline(t, deadline_after(clock_monotonic_ns(), ns)), rem);
}
