// SPDX-License-Identifier: Apache-2.0
/*
 * Wait queues, and how a task's sentry thread sleeps.
 *
 * A sleeper's word (task.park) is PARK_IDLE, PARK_ASLEEP while it is in the host's futex call, or
 * PARK_WOKEN. Who wakes swaps in PARK_WOKEN and makes the host call only if it found PARK_ASLEEP, so
 * waking a task that hasn't got to sleep yet costs one atomic operation. No wake-up is lost as long as the
 * sleeper does prepare / check / sleep in this order: a wake-up between the check and the sleep leaves
 * PARK_WOKEN behind.
 *
 * Interruption: task_interrupt() sets its flag first and wakes then; the sleeper looks at the flag after
 * it has set PARK_ASLEEP, so one of the two sees the other.
 *
 * Waking a thread on another core costs some 60 us on a VM, a bounded spin may save it. How long a task
 * spins follows what it got from it: each success doubles the bound, each failure halves it, and at the
 * floor only every 16th sleep tries. An idle task spins a few microseconds once per sleep at most.
 *
 * Lock order: anything of lower rank > waitq.mu > what wake callbacks take (RANK_EPOLL_READY and above).
 */
#include "sentry/kernel/waitq.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/stats.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"
#include "sentry/time/clock.h"
#include "sentry/time/cputimer.h"

enum { PARK_IDLE, PARK_ASLEEP, PARK_WOKEN };

#define SPIN_MIN 8   /* rounds of 4 pauses: about 0.2 us */
#define SPIN_MAX 128 /* about 5 us */

void waitq_init(struct waitq *q)
{
	mutex_init(&q->mu, RANK_WAITQ);
	list_init(&q->waiters);
	atomic_init(&q->nwaiters, 0);
}

void waitq_fini(struct waitq *q)
{
	mutex_fini(&q->mu);
}

void waitq_add(struct waitq *q, struct waiter *w)
{
	mutex_lock(&q->mu);
	list_add_tail(&q->waiters, &w->node);
	/* seq_cst: the waiter's look at its condition comes after this, see waitq_wake() */
	atomic_fetch_add(&q->nwaiters, 1);
	mutex_unlock(&q->mu);
}

void waitq_remove(struct waitq *q, struct waiter *w)
{
	mutex_lock(&q->mu);
	list_del(&w->node);
	atomic_fetch_sub(&q->nwaiters, 1);
	mutex_unlock(&q->mu);
}

static void wake_waiters(struct waitq *q, uint32_t events, bool one)
{
	bool all = events & (EPOLLHUP | EPOLLERR), taken = false; /* the end of it concerns everybody */
	struct waiter *w, *tmp;

	/* The caller's change of state comes before the look at the count, the waiter's change of
	 * the count before its look at the state: one of them sees the other's. */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&q->nwaiters, memory_order_relaxed) == 0)
		return;
	mutex_lock(&q->mu);
	list_for_each_safe (w, tmp, &q->waiters, node) {
		bool exclusive = w->exclusive, once = w->once;

		if (!(w->mask & events) || (once && taken && !all))
			continue;
		w->took = false;
		w->wake(w, events);
		if (once) /* an epoll item: it stays where it is */
			taken = taken || w->took;
		if (one && exclusive)
			break;
	}
	mutex_unlock(&q->mu);
}

void waitq_wake(struct waitq *q, uint32_t events)
{
	wake_waiters(q, events, false);
}

void waitq_wake_one(struct waitq *q, uint32_t events)
{
	wake_waiters(q, events, true);
}

bool waitq_empty(struct waitq *q)
{
	return atomic_load_explicit(&q->nwaiters, memory_order_relaxed) == 0;
}

/* ---- sleeping ---- */

static void waiter_wake_task(struct waiter *w, uint32_t events)
{
	(void)events;
	task_wake(w->task);
}

void waiter_init_task(struct waiter *w, struct task *t, uint32_t mask)
{
	list_init(&w->node);
	w->mask = mask;
	w->exclusive = false;
	w->once = false;
	w->wake = waiter_wake_task;
	w->task = t;
}

void task_sleep_prepare(struct task *t)
{
	/* a full barrier: the caller's look at its condition comes after */
	atomic_exchange(&t->park, PARK_IDLE);
}

void task_wake(struct task *t)
{
	if (atomic_exchange(&t->park, PARK_WOKEN) == PARK_ASLEEP)
		(void)HOST(FUTEX, syscall(SYS_futex, &t->park, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
}

static bool interrupted(struct task *t)
{
	return atomic_load(&t->interrupted) || atomic_load(&t->sigpending) ||
	       atomic_load(&t->exiting);
}

/* True when woken within the task's current bound. */
static bool spin(struct task *t)
{
	uint32_t bound = t->park_spin;

	if (kernel.limits.ncpus < 2)
		return false;
	if (bound < SPIN_MIN) { /* counts the sleeps until the next try */
		t->park_spin = bound == 0 ? SPIN_MIN : bound - 1;
		return false;
	}
	for (uint32_t i = 0; i < bound; i++) {
		if (atomic_load_explicit(&t->park, memory_order_relaxed) == PARK_WOKEN) {
			t->park_spin = MIN(bound * 2, (uint32_t)SPIN_MAX);
			return true;
		}
		for (int j = 0; j < 4; j++)
			__builtin_ia32_pause();
	}
	t->park_spin = bound / 2 >= SPIN_MIN ? bound / 2 : SPIN_MIN - 1;
	return false;
}

/* One host sleep; returns on a wake-up, the deadline, or for no reason. */
static void host_sleep(struct task *t, int64_t deadline_ns)
{
	struct timespec ts, *tsp = NULL;

	if (deadline_ns != DEADLINE_NONE) {
		int64_t host = clock_to_host_ns(deadline_ns);

		if (host < 0)
			host = 0;
		ts.tv_sec = host / NSEC_PER_SEC;
		ts.tv_nsec = host % NSEC_PER_SEC;
		tsp = &ts;
	}
	/* FUTEX_WAIT_BITSET takes an absolute CLOCK_MONOTONIC time. Errors mean "look again". */
	(void)HOST(FUTEX, syscall(SYS_futex, &t->park, FUTEX_WAIT_BITSET_PRIVATE, PARK_ASLEEP, tsp,
				  NULL, FUTEX_BITSET_MATCH_ANY));
}

static long sleep_until_woken(struct task *t, int64_t deadline_ns)
{
	uint32_t expect = PARK_IDLE;

	if (!atomic_compare_exchange_strong(&t->park, &expect, PARK_ASLEEP))
		return 0;
	t->usage.nvcsw++;
	for (;;) {
		if (atomic_load(&t->park) == PARK_WOKEN)
			return 0;
		if (interrupted(t))
			return -ERESTARTSYS;
		if (deadline_ns != DEADLINE_NONE && clock_monotonic_ns() >= deadline_ns)
			return -ETIMEDOUT;
		host_sleep(t, deadline_ns);
	}
}

void task_sleep_unmasked(struct task *t, int state)
{
	uint32_t expect = PARK_IDLE;

	atomic_store(&t->state, state);
	if (atomic_compare_exchange_strong(&t->park, &expect, PARK_ASLEEP)) {
		t->usage.nvcsw++;
		while (atomic_load(&t->park) == PARK_ASLEEP)
			host_sleep(t, DEADLINE_NONE);
	}
	atomic_store(&t->park, PARK_IDLE);
	atomic_store(&t->state, TASK_RUNNING);
}

long task_sleep(struct task *t, int64_t deadline_ns)
{
	long r;

	if (interrupted(t))
		return -ERESTARTSYS;
	if (atomic_load(&t->park) == PARK_WOKEN || spin(t)) {
		atomic_store(&t->park, PARK_IDLE);
		return interrupted(t) ? -ERESTARTSYS : 0;
	}
	atomic_store_explicit(&t->state, TASK_SLEEPING, memory_order_relaxed);
	r = sleep_until_woken(t, deadline_ns);
	atomic_store_explicit(&t->state, TASK_RUNNING, memory_order_relaxed);
	atomic_store(&t->park, PARK_IDLE);
	cputimer_task_resumed(t);
	if (r == 0 && interrupted(t))
		r = -ERESTARTSYS;
	return r;
}
