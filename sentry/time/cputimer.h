// SPDX-License-Identifier: Apache-2.0
/*
 * Timers on CPU time: ITIMER_VIRTUAL, ITIMER_PROF, RLIMIT_CPU and POSIX timers on process or thread
 * CPU clocks. See cputimer.c for how they work without ticks.
 */
#ifndef SENTRY_TIME_CPUTIMER_H
#define SENTRY_TIME_CPUTIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "sentry/kernel/task.h"

enum cputimer_kind {
	CPUTIMER_VIRT, /* user time */
	CPUTIMER_PROF, /* user and system time */
	CPUTIMER_KIND_COUNT
};

struct cputimer {
	struct list node;
	enum cputimer_kind kind;
	const struct task *thread; /* one thread's time, compared only; NULL: the process's */
	int64_t expires_ns;        /* INT64_MAX: off */
	/* The time was reached: sets expires_ns anew (INT64_MAX: off). Returns a signal for the process, or
	 * 0. Context: timer thread or the setter's, cputimers.mu held; may send signals. */
	int (*fn)(struct cputimer *ct, struct tgroup *tg, int64_t now_ns);
};

/* CPU time used so far; see kernel/usage.c. Context: no tasks_mu, no task.mu. */
int64_t task_cpu_ns(struct task *t);
int64_t tgroup_cpu_ns(struct tgroup *tg, enum cputimer_kind kind);

void cputimer_init(struct cputimer *ct, enum cputimer_kind kind, const struct task *thread,
		   int (*fn)(struct cputimer *ct, struct tgroup *tg, int64_t now_ns));
/* Sets (or with INT64_MAX clears) the expiry. Context: no sighand.mu, no tasks_mu. */
void cputimer_set(struct tgroup *tg, struct cputimer *ct, int64_t expires_ns);
int64_t cputimer_get(struct tgroup *tg, struct cputimer *ct);
void cputimer_remove(struct tgroup *tg, struct cputimer *ct);
/* RLIMIT_CPU of @tg was changed (setrlimit, prlimit). */
void cputimer_rlimit_changed(struct tgroup *tg);
void cputimer_resume(struct tgroup *tg);
/* The last thread is exiting: interval timers and this. Context: no locks held. */
void cputimers_destroy(struct tgroup *tg);

/* @t has slept and goes on: a parked check is armed again. */
static inline void cputimer_task_resumed(struct task *t)
{
	if (__builtin_expect(atomic_load_explicit(&t->tg->cputimers, memory_order_relaxed) !=
			     NULL, 0))
		cputimer_resume(t->tg);
}

#endif
