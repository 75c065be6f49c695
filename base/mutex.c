// SPDX-License-Identifier: Apache-2.0
/*
 * Mutexes with ranks: see mutex.h and lock_rank.h.
 *
 * The lock itself is glibc's, of type ADAPTIVE_NP: it spins a bounded number of times before it
 * sleeps in a futex. Waking a thread on another core costs 60 us on a VM, a critical section of the
 * sentry well under one, so a short spin nearly always wins.
 *
 * Debug and sanitizer builds keep a per-thread stack of the ranks held, and panic on inversion: an
 * order that could deadlock is found the first time it is taken, not the first time it hangs.
 */
#include "base/mutex.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "base/log.h"
#include "base/stats.h"

#define HELD_MAX 32 /* locks of one thread at a time; deeper nesting is a bug */

/* The address of a thread-local variable is a token that no two live threads share. */
static _Thread_local char thread_token;

static uint64_t self_token(void)
{
	return (uint64_t)(uintptr_t)&thread_token;
}

#ifdef HF_DEBUG
static _Thread_local struct {
	unsigned n;
	struct {
		const void *lock;
		enum lock_rank rank;
	} held[HELD_MAX];
} ranks;

static void rank_push(const void *lock, enum lock_rank rank, bool nested)
{
	for (unsigned i = 0; i < ranks.n; i++) {
		enum lock_rank h = ranks.held[i].rank;

		if (ranks.held[i].lock == lock)
			panic("lock of rank %d taken twice by one thread", (int)rank);
		if (rank == RANK_NONE || h == RANK_NONE)
			continue;
		if (h > rank || (h == rank && !nested))
			panic("lock order: rank %d taken with rank %d held", (int)rank,
			      (int)h);
	}
	if (ranks.n == HELD_MAX)
		panic("more than %d locks held by one thread", HELD_MAX);
	ranks.held[ranks.n].lock = lock;
	ranks.held[ranks.n].rank = rank;
	ranks.n++;
}

static void rank_pop(const void *lock)
{
	for (unsigned i = ranks.n; i-- > 0;) {
		if (ranks.held[i].lock != lock)
			continue;
		ranks.n--;
		memmove(&ranks.held[i], &ranks.held[i + 1],
			(ranks.n - i) * sizeof(ranks.held[0]));
		return;
	}
	panic("unlock of a lock that this thread doesn't hold");
}
#else
static void rank_push(const void *lock __unused, enum lock_rank rank __unused,
		      bool nested __unused)
{
}

static void rank_pop(const void *lock __unused)
{
}
#endif

static void must(int err, const char *what)
{
	if (unlikely(err))
		panic("%s: %s", what, strerror(err));
}

void mutex_init(struct mutex *m, enum lock_rank rank)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
	must(pthread_mutex_init(&m->m, &a), "mutex_init");
	pthread_mutexattr_destroy(&a);
	m->rank = rank;
	m->owner = 0;
}

void mutex_fini(struct mutex *m)
{
	must(pthread_mutex_destroy(&m->m), "mutex_fini");
}

static void lock_ranked(struct mutex *m, bool nested)
{
	rank_push(m, m->rank, nested);
	if (likely(!stats_on()) || pthread_mutex_trylock(&m->m)) {
		stat_inc(STAT_LOCK_BUSY);
		must(pthread_mutex_lock(&m->m), "mutex_lock"); /* host: futex */
	}
	atomic_store_explicit(&m->owner, self_token(), memory_order_relaxed);
}

void mutex_lock(struct mutex *m)
{
	lock_ranked(m, false);
}

void mutex_lock_nested(struct mutex *m)
{
	lock_ranked(m, true);
}

/* A try can't deadlock, so it may go against the order; what is locked under it may not. */
bool mutex_trylock(struct mutex *m)
{
	int err = pthread_mutex_trylock(&m->m);

	if (err == EBUSY)
		return false;
	must(err, "mutex_trylock");
#ifdef HF_DEBUG
	if (ranks.n == HELD_MAX)
		panic("more than %d locks held by one thread", HELD_MAX);
	ranks.held[ranks.n].lock = m;
	ranks.held[ranks.n].rank = m->rank;
	ranks.n++;
#endif
	atomic_store_explicit(&m->owner, self_token(), memory_order_relaxed);
	return true;
}

void mutex_unlock(struct mutex *m)
{
	rank_pop(m);
	atomic_store_explicit(&m->owner, 0, memory_order_relaxed);
	must(pthread_mutex_unlock(&m->m), "mutex_unlock"); /* host: futex */
}

void mutex_assert_held(struct mutex *m)
{
	if (atomic_load_explicit(&m->owner, memory_order_relaxed) != self_token())
		panic("lock of rank %d isn't held", (int)m->rank);
}

/*
 * Writers are preferred, or readers that come and go could starve an mmap() for ever. That makes a
 * second read lock by the same thread a deadlock once a writer waits; the rank check forbids it.
 */
void rwmutex_init(struct rwmutex *m, enum lock_rank rank)
{
	pthread_rwlockattr_t a;

	pthread_rwlockattr_init(&a);
	pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	must(pthread_rwlock_init(&m->rw, &a), "rwmutex_init");
	pthread_rwlockattr_destroy(&a);
	m->rank = rank;
}

void rwmutex_fini(struct rwmutex *m)
{
	must(pthread_rwlock_destroy(&m->rw), "rwmutex_fini");
}

void rwmutex_rdlock(struct rwmutex *m)
{
	rank_push(m, m->rank, false);
	must(pthread_rwlock_rdlock(&m->rw), "rwmutex_rdlock"); /* host: futex */
}

void rwmutex_wrlock(struct rwmutex *m)
{
	rank_push(m, m->rank, false);
	must(pthread_rwlock_wrlock(&m->rw), "rwmutex_wrlock"); /* host: futex */
}

void rwmutex_wrlock_nested(struct rwmutex *m)
{
	rank_push(m, m->rank, true);
	must(pthread_rwlock_wrlock(&m->rw), "rwmutex_wrlock_nested"); /* host: futex */
}

void rwmutex_unlock(struct rwmutex *m)
{
	rank_pop(m);
	must(pthread_rwlock_unlock(&m->rw), "rwmutex_unlock"); /* host: futex */
}

void cond_init(struct cond *c)
{
	pthread_condattr_t a;

	pthread_condattr_init(&a);
	must(pthread_condattr_setclock(&a, CLOCK_MONOTONIC), "cond_init");
	must(pthread_cond_init(&c->c, &a), "cond_init");
	pthread_condattr_destroy(&a);
}

void cond_fini(struct cond *c)
{
	must(pthread_cond_destroy(&c->c), "cond_fini");
}

/* The rank stays on the stack of this thread while it sleeps: it can't lock anything meanwhile. */
void cond_wait(struct cond *c, struct mutex *m)
{
	atomic_store_explicit(&m->owner, 0, memory_order_relaxed);
	must(pthread_cond_wait(&c->c, &m->m), "cond_wait"); /* host: futex */
	atomic_store_explicit(&m->owner, self_token(), memory_order_relaxed);
}

bool cond_wait_until(struct cond *c, struct mutex *m, int64_t deadline_ns)
{
	struct timespec ts;
	int err;

	if (deadline_ns < 0)
		deadline_ns = 0;
	ts.tv_sec = deadline_ns / 1000000000;
	ts.tv_nsec = deadline_ns % 1000000000;
	atomic_store_explicit(&m->owner, 0, memory_order_relaxed);
	err = pthread_cond_timedwait(&c->c, &m->m, &ts); /* host: futex */
	atomic_store_explicit(&m->owner, self_token(), memory_order_relaxed);
	if (err == ETIMEDOUT)
		return false;
	must(err, "cond_wait_until");
	return true;
}

void cond_signal(struct cond *c)
{
	must(pthread_cond_signal(&c->c), "cond_signal"); /* host: futex */
}

void cond_broadcast(struct cond *c)
{
	must(pthread_cond_broadcast(&c->c), "cond_broadcast"); /* host: futex */
}
