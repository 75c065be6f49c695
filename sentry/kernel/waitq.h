// SPDX-License-Identifier: Apache-2.0
/*
 * Wait queues and sleeping. An object that somebody can wait for has a struct waitq and wakes it with
 * the poll events that became true. Waiters are tasks (wait_event) or anything with a callback
 * (epoll items).
 *
 * A wake callback runs with the waitq's lock held: it may take only locks that rank above RANK_WAITQ
 * and must not block or touch guest memory. waitq_remove() returns only when no callback of that
 * waiter is running.
 */
#ifndef SENTRY_KERNEL_WAITQ_H
#define SENTRY_KERNEL_WAITQ_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"

struct task;
struct waiter;

struct waitq {
	struct mutex mu;
	struct list waiters;
	_Atomic uint32_t nwaiters; /* written under mu; lets a wake-up of nobody skip the lock */
};

struct waiter {
	struct list node;
	uint32_t mask;   /* events of interest (EPOLL*); ~0 for all */
	bool exclusive;  /* waitq_wake_one() stops at the first of these */
	bool once;       /* of these, a wake-up reaches only as many as to find one that sets took */
	bool took;       /* set by the callback: somebody woke up */
	void (*wake)(struct waiter *w, uint32_t events);
	struct task *task; /* for task waiters */
};

void waitq_init(struct waitq *q);
void waitq_fini(struct waitq *q);
void waitq_add(struct waitq *q, struct waiter *w);
void waitq_remove(struct waitq *q, struct waiter *w);
/* Wakes every waiter whose mask meets @events. */
void waitq_wake(struct waitq *q, uint32_t events);
/* Wakes non-exclusive ones and one exclusive waiter. */
void waitq_wake_one(struct waitq *q, uint32_t events);
bool waitq_empty(struct waitq *q); /* a hint: no lock taken */
/* waitq_wake() that costs nothing when nobody waits. The caller has changed what waiters check under
 * the lock with which they check it (after their waitq_add), so the hint can't miss one. */
static inline void waitq_poke(struct waitq *q, uint32_t events)
{
	if (!waitq_empty(q))
		waitq_wake(q, events);
}

/* ---- sleeping ---- */

#define DEADLINE_NONE INT64_MAX

/* Sets up @w to wake @t. */
void waiter_init_task(struct waiter *w, struct task *t, uint32_t mask);

/* Forgets earlier wake-ups. Then check the condition, then task_sleep(). */
void task_sleep_prepare(struct task *t);
/*
 * Sleeps until task_wake(), the deadline (CLOCK_MONOTONIC of the guest, in ns) or an interruption (a
 * signal to act upon, a fatal one, a stop for saving state). 0 when woken, -ETIMEDOUT, or
 * -ERESTARTSYS when interrupted: the caller turns that into what its call has to return.
 * Context: the calling sentry thread is @t's own; no locks held.
 */
long task_sleep(struct task *t, int64_t deadline_ns);
/* Sleeps until the next task_wake(), whatever signals are pending; may return for no reason, too. Shown as
 * @state (TASK_STOPPED, TASK_TRACED) meanwhile. Prepare and check as for task_sleep(). */
void task_sleep_unmasked(struct task *t, int state);
/* Ends the current, or the next unprepared, sleep of @t. Any thread. */
void task_wake(struct task *t);

/*
 * Sleeps on @q until @cond holds. Evaluates to 0, -ETIMEDOUT or -ERESTARTSYS. @cond is evaluated
 * without the waitq's lock; it may take locks itself.
 */
#define wait_event(t, q, mask, deadline_ns, cond)                                        \
	__extension__({                                                                  \
		struct waiter we_w;                                                      \
		long we_r = 0;                                                           \
		waiter_init_task(&we_w, (t), (mask));                                    \
		waitq_add((q), &we_w);                                                   \
		for (;;) {                                                               \
			task_sleep_prepare(t);                                           \
			if (cond) {                                                      \
				we_r = 0;                                                \
				break;                                                   \
			}                                                                \
			if (we_r < 0)                                                    \
				break;                                                   \
			we_r = task_sleep((t), (deadline_ns));                           \
		}                                                                        \
		waitq_remove((q), &we_w);                                                \
		we_r;                                                                    \
	})

#endif
