// SPDX-License-Identifier: Apache-2.0
/*
 * Mutexes with a rank (base/lock_rank.h) and condition variables over CLOCK_MONOTONIC. They spin a
 * little before they sleep, since waking a thread on another core is what costs most on a VM.
 */
#ifndef BASE_MUTEX_H
#define BASE_MUTEX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock_rank.h"

struct mutex {
	pthread_mutex_t m;
	enum lock_rank rank;
	_Atomic uint64_t owner; /* thread token of the holder, 0 if none; for mutex_assert_held */
};

struct rwmutex {
	pthread_rwlock_t rw;
	enum lock_rank rank;
};

void mutex_init(struct mutex *m, enum lock_rank rank);
void mutex_fini(struct mutex *m);
void mutex_lock(struct mutex *m);
/* Takes a second lock of the same rank as one already held. The caller's file says in which order. */
void mutex_lock_nested(struct mutex *m);
bool mutex_trylock(struct mutex *m);
void mutex_unlock(struct mutex *m);
void mutex_assert_held(struct mutex *m);

void rwmutex_init(struct rwmutex *m, enum lock_rank rank);
void rwmutex_fini(struct rwmutex *m);
void rwmutex_rdlock(struct rwmutex *m);
void rwmutex_wrlock(struct rwmutex *m);
void rwmutex_wrlock_nested(struct rwmutex *m);
void rwmutex_unlock(struct rwmutex *m);

struct cond {
	pthread_cond_t c;
};

void cond_init(struct cond *c);
void cond_fini(struct cond *c);
void cond_wait(struct cond *c, struct mutex *m);
/* Waits until @deadline_ns (CLOCK_MONOTONIC); false on timeout. */
bool cond_wait_until(struct cond *c, struct mutex *m, int64_t deadline_ns);
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);

static inline void mutex_unlock_p(struct mutex **m)
{
	if (*m)
		mutex_unlock(*m);
}

/* Holds @m until the end of the enclosing scope. */
#define AUTO_LOCK_CAT2(a, b) a##b
#define AUTO_LOCK_CAT(a, b) AUTO_LOCK_CAT2(a, b)
#define AUTO_LOCK(mu)                                                                    \
	__attribute__((cleanup(mutex_unlock_p), unused)) struct mutex *AUTO_LOCK_CAT(        \
		auto_lock_, __LINE__) = (mutex_lock(mu), (mu))

#endif
