// SPDX-License-Identifier: Apache-2.0
/*
 * Kernel timers: two queues (red-black trees ordered by deadline), one for monotonic time and one for real
 * time, each with a thread that is started by its first timer and sleeps in the host's futex call until the
 * earliest deadline. The host's own real-time clock ends the second one's sleep, so a step of the host's
 * clock is followed without polling. Nothing armed: both sleep for good.
 *
 * The thread is woken only by a deadline earlier than the one it sleeps for.
 *
 * Lock order: owner's lock (RANK_TIMER and above) > queue.mu (RANK_TIMER_QUEUE). Callbacks run with none.
 */
#include "sentry/time/ktimer.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/stats.h"
#include "sentry/kernel/freeze.h"
#include "sentry/time/clock.h"

#include <bsd/sys/tree.h> /* after base/compiler.h, whose names its headers respect */

/* Lives in ktimer.key. */
struct link {
	RB_ENTRY(link) rb;
	struct ktimer *kt;
};
_Static_assert(sizeof(struct link) <= sizeof(((struct ktimer *)0)->key), "ktimer.key too small");

RB_HEAD(timer_tree, link);

struct timer_queue {
	struct mutex mu;           /* RANK_TIMER_QUEUE */
	struct timer_tree tree;    /* (mu) */
	struct cond idle;          /* a callback has ended */
	struct ktimer *running;    /* (mu) */
	pthread_t thread;          /* (mu) valid if started */
	bool started;              /* (mu) */
	int64_t sleeping_until;    /* (mu) INT64_MIN while the thread is awake */
	_Atomic uint32_t kick;     /* futex word: changes when the thread has to look again */
	bool realtime;             /* (c) */
};

static struct timer_queue queues[2];

static int cmp(struct link *a, struct link *b)
{
	if (a->kt->deadline_ns != b->kt->deadline_ns)
		return a->kt->deadline_ns < b->kt->deadline_ns ? -1 : 1;
	return a == b ? 0 : (uintptr_t)a < (uintptr_t)b ? -1 : 1;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_STATIC(timer_tree, link, rb, cmp)
#pragma GCC diagnostic pop

static struct link *link_of(struct ktimer *kt)
{
	return (struct link *)(void *)kt->key;
}

static struct timer_queue *queue_of(const struct ktimer *kt)
{
	return &queues[kt->clock == CLOCK_REALTIME];
}

static int64_t queue_now(const struct timer_queue *q)
{
	return q->realtime ? clock_realtime_ns() : clock_monotonic_ns();
}

void ktimer_init_system(void)
{
	for (unsigned i = 0; i < ARRAY_SIZE(queues); i++) {
		mutex_init(&queues[i].mu, RANK_TIMER_QUEUE);
		cond_init(&queues[i].idle);
		RB_INIT(&queues[i].tree);
		queues[i].realtime = i == 1;
		queues[i].sleeping_until = INT64_MIN;
	}
}

void ktimer_init(struct ktimer *kt, int clock, void (*fn)(struct ktimer *kt))
{
	memset(kt, 0, sizeof(*kt));
	kt->clock = clock;
	kt->fn = fn;
}

/* Runs what is due; returns the next deadline. Context: q->mu held; dropped around callbacks. */
static int64_t run_due(struct timer_queue *q)
{
	for (;;) {
		struct link *l = RB_MIN(timer_tree, &q->tree);
		struct ktimer *kt;

		if (!l)
			return INT64_MAX;
		kt = l->kt;
		if (kt->deadline_ns > queue_now(q))
			return kt->deadline_ns;
		RB_REMOVE(timer_tree, &q->tree, l);
		kt->queued = false;
		q->running = kt;
		mutex_unlock(&q->mu);
		kt->fn(kt); /* may free kt: not looked at again */
		mutex_lock(&q->mu);
		q->running = NULL;
		cond_broadcast(&q->idle);
	}
}

static void wait_for_kick(struct timer_queue *q, uint32_t seen, int64_t until)
{
	struct timespec ts, *tsp = NULL;
	int op = FUTEX_WAIT_BITSET_PRIVATE | (q->realtime ? FUTEX_CLOCK_REALTIME : 0);

	if (until != INT64_MAX) {
		int64_t ns = q->realtime ? until : clock_to_host_ns(until);

		if (ns < 0)
			ns = 0;
		ts.tv_sec = ns / NSEC_PER_SEC;
		ts.tv_nsec = ns % NSEC_PER_SEC;
		tsp = &ts;
	}
	(void)HOST(FUTEX, syscall(SYS_futex, &q->kick, op, seen, tsp, NULL,
				  FUTEX_BITSET_MATCH_ANY)); /* host: futex */
}

static void *timer_main(void *arg)
{
	struct timer_queue *q = arg;

	world_enter(); /* before a timer is taken: who cancels it may wait for its callback */
	mutex_lock(&q->mu);
	for (;;) {
		int64_t next = run_due(q);
		uint32_t seen = atomic_load(&q->kick);

		q->sleeping_until = next;
		mutex_unlock(&q->mu);
		world_leave();
		wait_for_kick(q, seen, next);
		world_enter();
		mutex_lock(&q->mu);
		q->sleeping_until = INT64_MIN;
	}
	return NULL;
}

static void start_thread(struct timer_queue *q)
{
	sigset_t all, old;
	int r;

	/* host signals are for other threads */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* host: rt_sigprocmask */
	r = pthread_create(&q->thread, NULL, timer_main, q); /* host: clone */
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r != 0)
		panic("timer thread: %s", strerror(r));
	q->started = true;
}

void ktimer_arm(struct ktimer *kt, int64_t deadline_ns)
{
	struct timer_queue *q = queue_of(kt);
	bool kick;

	mutex_lock(&q->mu);
	if (kt->queued)
		RB_REMOVE(timer_tree, &q->tree, link_of(kt));
	kt->deadline_ns = deadline_ns;
	kt->queued = true;
	link_of(kt)->kt = kt;
	RB_INSERT(timer_tree, &q->tree, link_of(kt));
	if (!q->started)
		start_thread(q);
	kick = deadline_ns < q->sleeping_until;
	if (kick) {
		q->sleeping_until = deadline_ns;
		atomic_fetch_add(&q->kick, 1);
	}
	mutex_unlock(&q->mu);
	if (kick)
		(void)HOST(FUTEX, syscall(SYS_futex, &q->kick, FUTEX_WAKE_PRIVATE, 1, NULL, NULL,
					  0)); /* host: futex */
}

void ktimer_disarm(struct ktimer *kt)
{
	struct timer_queue *q = queue_of(kt);

	mutex_lock(&q->mu);
	if (kt->queued) {
		RB_REMOVE(timer_tree, &q->tree, link_of(kt));
		kt->queued = false;
	}
	mutex_unlock(&q->mu);
}

static void cancel_in(struct timer_queue *q, struct ktimer *kt)
{
	mutex_lock(&q->mu);
	for (;;) {
		if (kt->queued && queue_of(kt) == q) {
			RB_REMOVE(timer_tree, &q->tree, link_of(kt));
			kt->queued = false;
		}
		if (q->running != kt || pthread_equal(q->thread, pthread_self()))
			break;
		cond_wait(&q->idle, &q->mu); /* the callback may re-arm: look again */
	}
	mutex_unlock(&q->mu);
}

/* Both queues: a timer whose owner has changed its clock may still be running on the other one. */
void ktimer_cancel(struct ktimer *kt)
{
	for (unsigned i = 0; i < ARRAY_SIZE(queues); i++)
		cancel_in(&queues[i], kt);
}
