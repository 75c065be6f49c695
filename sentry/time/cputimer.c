// SPDX-License-Identifier: Apache-2.0
/*
 * Timers on CPU time, without ticks. A group with any has one kernel timer, set to the earliest moment at
 * which the CPU time could be reached if all its threads ran all the time. When it fires, the time really used
 * is asked for: what was reached fires, the rest waits again. So a busy process is looked at about as often as
 * its timers expire, with MIN_CHECK_NS between two looks.
 *
 * A process that sleeps uses no CPU time: if nothing was used since the last look and no thread is
 * running, the timer is parked, and the first thread that comes back from a sleep sets it again
 * (cputimer_task_resumed()). An idle sandbox has no timer armed at all.
 *
 * RLIMIT_CPU is one of these timers: SIGXCPU at the soft limit and each second after it, SIGKILL at the hard one.
 *
 * Lock order: cputimers.mu (RANK_CPUTIMER) > tasks_mu > sighand.mu > timer queue. Callbacks run under it.
 */
#include "sentry/time/cputimer.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "sentry/kernel/kernel.h"
#include "sentry/time/clock.h"
#include "sentry/time/itimer.h"
#include "sentry/time/ktimer.h"

#define MIN_CHECK_NS 1000000LL

struct cputimers {
	struct mutex mu;
	struct tgroup *tg;          /* borrowed: cputimers_destroy() comes before its end */
	struct list timers;         /* (mu) of cputimer.node, armed ones */
	struct ktimer kt;
	struct cputimer rlimit;
	int64_t last_ns;            /* (mu) CPU time at the last look */
	_Atomic bool parked;        /* kt isn't armed though timers are */
	bool dead;                  /* (mu) */
};

/* ---- CPU time ---- */

int64_t task_cpu_ns(struct task *t)
{
	struct task_usage u;

	task_usage_get(t, &u);
	return (int64_t)(u.utime_ns + u.stime_ns);
}

int64_t tgroup_cpu_ns(struct tgroup *tg, enum cputimer_kind kind)
{
	struct task_usage u;

	tgroup_usage_get(tg, &u);
	return (int64_t)(u.utime_ns + (kind == CPUTIMER_PROF ? u.stime_ns : 0));
}

/* Time that @ct measures; the thread of a thread timer is looked up among the live ones. */
static int64_t timer_now(struct tgroup *tg, const struct cputimer *ct, const struct task_usage *u)
{
	struct task *t;
	struct task_usage one = { 0 };

	if (!ct->thread)
		return (int64_t)(u->utime_ns + (ct->kind == CPUTIMER_PROF ? u->stime_ns : 0));
	mutex_lock(&kernel.tasks_mu);
	list_for_each(t, &tg->threads, tg_node) {
		if (t == ct->thread) {
			task_usage_get(t, &one);
			break;
		}
	}
	mutex_unlock(&kernel.tasks_mu);
	return (int64_t)(one.utime_ns + one.stime_ns);
}

/* ---- the look ---- */

static bool any_running(struct tgroup *tg)
{
	struct task *t;
	bool r = false;

	mutex_lock(&kernel.tasks_mu);
	list_for_each(t, &tg->threads, tg_node)
		r |= atomic_load(&t->state) == TASK_RUNNING;
	mutex_unlock(&kernel.tasks_mu);
	return r;
}

/* Fires what is due, arms the kernel timer for the rest. Context: mu held. */
static void look_locked(struct cputimers *c)
{
	struct cputimer *ct, *tmp;
	struct task_usage u;
	int64_t total, next = INT64_MAX, now;
	unsigned n;

	if (c->dead || list_empty(&c->timers))
		return;
	tgroup_usage_get(c->tg, &u);
	total = (int64_t)(u.utime_ns + u.stime_ns);
	list_for_each_safe(ct, tmp, &c->timers, node) {
		now = timer_now(c->tg, ct, &u);
		if (now >= ct->expires_ns) {
			int sig = ct->fn(ct, c->tg, now);

			if (sig)
				(void)signal_send_tgroup(c->tg, sig, NULL);
			if (ct->expires_ns == INT64_MAX) {
				list_del(&ct->node);
				continue;
			}
		}
		next = MIN(next, ct->expires_ns - now);
	}
	if (next == INT64_MAX)
		return;
	if (total == c->last_ns && !any_running(c->tg)) {
		atomic_store(&c->parked, true);
		if (!any_running(c->tg)) /* else it came back before it could see the flag */
			return;
		atomic_store(&c->parked, false);
	}
	c->last_ns = total;
	n = MAX(READ_ONCE(c->tg->nthreads), 1u);
	ktimer_arm(&c->kt, deadline_after(clock_monotonic_ns(), MAX(next / n, MIN_CHECK_NS)));
}

static void fired(struct ktimer *kt)
{
	struct cputimers *c = container_of(kt, struct cputimers, kt);
	AUTO_LOCK(&c->mu);

	look_locked(c);
}

void cputimer_resume(struct tgroup *tg)
{
	struct cputimers *c = atomic_load(&tg->cputimers);

	if (c && atomic_exchange(&c->parked, false))
		ktimer_arm(&c->kt, deadline_after(clock_monotonic_ns(), MIN_CHECK_NS));
}

/* ---- RLIMIT_CPU ---- */

static int rlimit_fired(struct cputimer *ct, struct tgroup *tg, int64_t now_ns)
{
	struct rlimit_g lim;
	uint64_t used = (uint64_t)now_ns / NSEC_PER_SEC;

	tgroup_get_rlimit(tg, RLIMIT_CPU, &lim);
	if (used >= lim.max) {
		ct->expires_ns = INT64_MAX;
		return SIGKILL;
	}
	if (used < lim.cur) {
		ct->expires_ns = lim.cur > INT64_MAX / NSEC_PER_SEC
					 ? INT64_MAX
					 : (int64_t)lim.cur * NSEC_PER_SEC;
		return 0;
	}
	ct->expires_ns = now_ns + NSEC_PER_SEC; /* again each second, as Linux does */
	return SIGXCPU;
}

/* ---- management ---- */

void cputimer_init(struct cputimer *ct, enum cputimer_kind kind, const struct task *thread,
		   int (*fn)(struct cputimer *ct, struct tgroup *tg, int64_t now_ns))
{
	list_init(&ct->node);
	ct->kind = kind;
	ct->thread = thread;
	ct->expires_ns = INT64_MAX;
	ct->fn = fn;
}

static struct cputimers *cputimers_of(struct tgroup *tg, bool create)
{
	struct cputimers *c = atomic_load(&tg->cputimers), *none = NULL;

	if (c || !create)
		return c;
	c = kzalloc(sizeof(*c));
	mutex_init(&c->mu, RANK_CPUTIMER);
	c->tg = tg;
	list_init(&c->timers);
	ktimer_init(&c->kt, CLOCK_MONOTONIC, fired);
	cputimer_init(&c->rlimit, CPUTIMER_PROF, NULL, rlimit_fired);
	if (atomic_compare_exchange_strong(&tg->cputimers, &none, c))
		return c;
	mutex_fini(&c->mu);
	free(c);
	return none;
}

void cputimer_set(struct tgroup *tg, struct cputimer *ct, int64_t expires_ns)
{
	struct cputimers *c = cputimers_of(tg, expires_ns != INT64_MAX);

	if (!c)
		return;
	mutex_lock(&c->mu);
	list_del(&ct->node);
	ct->expires_ns = expires_ns;
	if (expires_ns != INT64_MAX) {
		list_add_tail(&c->timers, &ct->node);
		atomic_store(&c->parked, false);
		look_locked(c);
	}
	mutex_unlock(&c->mu);
}

int64_t cputimer_get(struct tgroup *tg, struct cputimer *ct)
{
	struct cputimers *c = cputimers_of(tg, false);
	int64_t r;

	if (!c)
		return INT64_MAX;
	mutex_lock(&c->mu);
	r = ct->expires_ns;
	mutex_unlock(&c->mu);
	return r;
}

void cputimer_remove(struct tgroup *tg, struct cputimer *ct)
{
	cputimer_set(tg, ct, INT64_MAX);
}

void cputimer_rlimit_changed(struct tgroup *tg)
{
	struct rlimit_g lim;
	struct cputimers *c;

	tgroup_get_rlimit(tg, RLIMIT_CPU, &lim);
	c = cputimers_of(tg, lim.cur != RLIM_INFINITY_G);
	if (!c)
		return;
	if (lim.cur > INT64_MAX / NSEC_PER_SEC)
		cputimer_set(tg, &c->rlimit, INT64_MAX);
	else
		cputimer_set(tg, &c->rlimit, (int64_t)MAX(lim.cur, 1u) * NSEC_PER_SEC);
}

void cputimers_destroy(struct tgroup *tg)
{
	struct cputimers *c;

	itimers_exit(tg); /* has timers of ours */
	c = atomic_load(&tg->cputimers);
	if (!c)
		return;
	mutex_lock(&c->mu);
	c->dead = true;
	mutex_unlock(&c->mu);
	ktimer_cancel(&c->kt);
	atomic_store(&tg->cputimers, NULL);
	mutex_fini(&c->mu);
	free(c);
}
