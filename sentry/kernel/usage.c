// SPDX-License-Identifier: Apache-2.0
/*
 * CPU time and the other counts of getrusage(2) and wait4(2).
 *
 * User time is what the platform says the guest's host thread used; system time is the CPU time of the
 * task's sentry thread. Both are read from the host only when somebody asks, so a system call pays
 * nothing for them.
 */
#include <string.h>
#include <time.h>

#include "base/stats.h"
#include "sentry/kernel/process.h"
#include "sentry/mm/mm.h"
#include "sentry/time/clock.h"

void task_usage_add(struct task_usage *to, const struct task_usage *from)
{
	to->utime_ns += from->utime_ns;
	to->stime_ns += from->stime_ns;
	to->minflt += from->minflt;
	to->majflt += from->majflt;
	to->inblock += from->inblock;
	to->oublock += from->oublock;
	to->nvcsw += from->nvcsw;
	to->nivcsw += from->nivcsw;
	to->maxrss_kb = MAX(to->maxrss_kb, from->maxrss_kb);
}

/* Brings t->usage up to date. Context: t->mu. Never goes back, whatever the host says. */
static void refresh_locked(struct task *t)
{
	uint64_t u = t->utime_base_ns, s = t->stime_base_ns;
	struct timespec ts;

	if (t->ctx)
		u += plat->ctx_cpu_ns(t->ctx);
	/* host: clock_gettime */
	if (t->host_clock_ok && HOST(CLOCK, clock_gettime(t->host_cpu_clock, &ts)) == 0)
		s += (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
	t->usage.utime_ns = MAX(t->usage.utime_ns, u);
	t->usage.stime_ns = MAX(t->usage.stime_ns, s);
}

/* The task's own thread counts without a lock: single words, of which the newest or the last is as good. */
__attribute__((no_sanitize("thread"))) void task_usage_get(struct task *t, struct task_usage *ret)
{
	AUTO_LOCK(&t->mu);

	refresh_locked(t);
	*ret = t->usage;
}

/* Takes tasks_mu. */
void tgroup_usage_get(struct tgroup *tg, struct task_usage *ret)
{
	struct task_usage one;
	struct task *t;
	AUTO_LOCK(&kernel.tasks_mu);

	*ret = tg->dead_usage;
	list_for_each(t, &tg->threads, tg_node) {
		if (t->state == TASK_ZOMBIE || t->state == TASK_DEAD)
			continue; /* in dead_usage already */
		task_usage_get(t, &one);
		task_usage_add(ret, &one);
	}
}

/* The context is about to go (exec): its time becomes part of the base. */
void task_usage_leave_ctx(struct task *t)
{
	AUTO_LOCK(&t->mu);

	refresh_locked(t);
	t->utime_base_ns = t->usage.utime_ns;
}

/* Final numbers; afterwards the host thread may vanish. */
void task_usage_freeze(struct task *t)
{
	uint64_t peak = t->mm ? mm_peak_rss(t->mm) : 0; /* RANK_MM: before t->mu */

	mutex_lock(&t->mu);
	refresh_locked(t);
	t->utime_base_ns = t->usage.utime_ns;
	t->host_clock_ok = false;
	t->usage.maxrss_kb = MAX(t->usage.maxrss_kb, peak / 1024);
	mutex_unlock(&t->mu);
}
