// SPDX-License-Identifier: Apache-2.0
/*
 * How the two sides of a hand-over wait for each other. There are two ways:
 *
 *   bound     both threads on one CPU (host_pin.c), and each sleeps at once: a hand-over is a context
 *             switch. Costs no CPU time that anybody else could use.
 *   spinning  each on a CPU of its own, and each looks at the turn for up to SPIN_NS before it
 *             sleeps. Cheaper by far as long as both CPUs really are there, and much dearer when
 *             they aren't: the other side waits for a CPU then, and may be woken across CPUs.
 *
 * Which one is better can't be known from here: it depends on what else the host runs. So it is
 * measured: a busy context counts what a call costs it, in windows of WINDOW calls, bound; from time
 * to time it tries a window of spinning, and keeps to it as long as that is cheaper. A trial that
 * goes badly is broken off early, and the next one comes later: at most one in RETRY_MAX_NS. Nobody
 * spins, not even for a trial, when guest threads are running that need the CPUs.
 *
 * A guest thread that computes for long between its calls neither spins nor is bound.
 */
#include <sched.h>

#include "platform/trap/trap_priv.h"

#define WINDOW       128U
#define WINDOW_SPIN  1024U       /* while spinning: so long that one preemption doesn't decide */
#define HICCUP_NS    1000000U    /* what a trial may lose by something that came between */
#define SPIN_NS      20000U      /* how long a side spins before it sleeps */
#define LONG_NS      100000U     /* a stay in the guest, or in the sentry, that isn't part of a burst */
#define LONG_MAX     8U          /* so many of them in one window, and spinning is a waste */
#define WARM_CALLS   16U         /* of a trial that aren't counted: the two have to get apart first */
#define WARM_NS      5000000U    /* and how long that may take */
#define RETRY_SOON_NS 1000000U   /* to the next trial, after spinning that paid until something came between */
#define RETRY_MIN_NS 100000000U  /* between trials that failed */
#define RETRY_MAX_NS 5000000000U
#define GOOD_NS      200000000U  /* so long a context's finding is believed by new ones */

static struct {
	_Atomic unsigned running; /* guest threads in the guest */
	unsigned ncpus;           /* (c) */
	unsigned budget;          /* (c) iterations in SPIN_NS */
	/* What some context has found last, as a start for new ones: most processes end before they could
	 * find it out. Words that are right or a little old. */
	_Atomic uint64_t bound_cost, good; /* a call bound; when spinning was last seen to be cheaper */
} pacing;

void pace_init(void)
{
	const unsigned n = 2000;
	cpu_set_t set;
	uint64_t t, best = UINT64_MAX;

	/* host: sched_getaffinity */
	pacing.ncpus = sched_getaffinity(0, sizeof(set), &set) ? 1 : (unsigned)CPU_COUNT(&set);
	for (int round = 0; round < 3; round++) {
		t = mono_ns();
		for (unsigned i = 0; i < n; i++)
			__builtin_ia32_pause();
		t = mono_ns() - t;
		best = MIN(best, t);
	}
	pacing.budget = (unsigned)(MIN((uint64_t)SPIN_NS * n / MAX(best, (uint64_t)n), (uint64_t)SPIN_NS));
}

static void new_window(struct pace *p, uint64_t now)
{
	p->calls = p->longs = 0;
	p->start = now;
}

static void stop_spinning(struct pace *p, uint64_t now)
{
	p->spinning = false;
	if (p->paid)
		p->gap = RETRY_SOON_NS;
	else
		p->gap = MIN(MAX(p->gap * 2, (uint64_t)RETRY_MIN_NS), (uint64_t)RETRY_MAX_NS);
	p->paid = false;
	p->retry = now + p->gap;
	new_window(p, now);
}

/* The first stay of a new context. */
static void adopt(struct plat_ctx *ctx, struct pace *p, uint64_t now)
{
	uint64_t good = atomic_load_explicit(&pacing.good, memory_order_relaxed);

	new_window(p, now);
	if (!good || now - good > GOOD_NS)
		return; /* it measures for itself */
	p->bound_cost = atomic_load_explicit(&pacing.bound_cost, memory_order_relaxed);
	p->spinning = p->bound_cost != 0;
	if (p->spinning)
		pin_release(ctx);
}

void pace_enter(struct plat_ctx *ctx, uint64_t now)
{
	bool room = (atomic_fetch_add_explicit(&pacing.running, 1, memory_order_relaxed) + 1) * 2 <=
		    pacing.ncpus;
	struct pace *p = &ctx->pace;
	unsigned spin = 0;

	if (unlikely(!p->left))
		adopt(ctx, p, now);
	else if (now - p->left > LONG_NS)
		new_window(p, now);
	if (!p->spinning && room && p->bound_cost && now > p->retry) {
		pin_release(ctx);
		p->spinning = true;
		p->warming = WARM_CALLS;
		new_window(p, now);
	}
	if (!p->spinning)
		pin_enter(ctx);
	else if (room)
		spin = pacing.budget;
	ctx->spin = spin;
	if (READ_ONCE(ctx->page->spin) != spin)
		WRITE_ONCE(ctx->page->spin, spin);
}

/* After a window of calls in a row. */
static void judge(struct pace *p, uint64_t now)
{
	uint64_t cost = (now - p->start) / p->calls;

	if (!p->spinning) {
		p->bound_cost = p->bound_cost ? (3 * p->bound_cost + cost) / 4 : cost;
		atomic_store_explicit(&pacing.bound_cost, p->bound_cost, memory_order_relaxed);
	} else if (cost * 10 > p->bound_cost * 9) {
		stop_spinning(p, now);
		return;
	} else {
		p->gap = 0;
		p->paid = true;
		atomic_store_explicit(&pacing.good, now, memory_order_relaxed);
	}
	new_window(p, now);
}

void pace_leave(struct plat_ctx *ctx, uint64_t from, uint64_t now)
{
	struct pace *p = &ctx->pace;

	atomic_fetch_sub_explicit(&pacing.running, 1, memory_order_relaxed);
	p->left = now;
	if (unlikely(p->spinning && p->warming)) {
		if (now - p->start > WARM_NS)
			stop_spinning(p, now);
		else if (--p->warming == 0)
			new_window(p, now);
		return;
	}
	p->calls++;
	if (now - from > LONG_NS)
		p->longs++;
	if (p->spinning &&
	    (p->longs >= LONG_MAX || now - p->start > 2 * p->calls * p->bound_cost + HICCUP_NS))
		stop_spinning(p, now);
	else if (p->calls >= (p->spinning ? WINDOW_SPIN : WINDOW))
		judge(p, now);
}
