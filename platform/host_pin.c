// SPDX-License-Identifier: Apache-2.0
/*
 * Keeps a guest thread and its sentry thread on one CPU while they hand over to each other often.
 *
 * The two never run at the same time, but the host's scheduler doesn't know that: it wakes the one
 * that is to go on upon another, idle CPU, if there is any. On a VM that costs 60 us against
 * 5 us for a plain context switch, so it is most of the price of a system call. So the pair is bound to
 * the CPU where the sentry thread happens to be: both of them, since either alone is led astray by
 * the wake-up of the other (measured, in README.md).
 *
 * A bound thread can't be moved to a CPU that has become free, so a bond never lasts:
 *   - a stay in the guest that is long (the guest computes) ends it, when it is over or, if it
 *     doesn't end, by the watcher
 *   - it is renewed every REBOND_NS, so the scheduler may place the pair anew
 *   - the watcher ends bonds of pairs that have done nothing since its last look
 * The watcher is a thread that looks every WATCH_NS as long as there are bonds, and sleeps otherwise: a
 * sandbox that is idle has none.
 *
 * Locks: pins.mu (RANK_PLATFORM): the list, and the affinity of threads in it.
 */
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/stats.h"
#include "platform/host_as.h"

#define QUICK_NS  400000U   /* a stay in the guest up to this counts as quick */
#define LONG_NS   2000000U  /* one from this on ends the bond */
#define QUICK_MIN 2U        /* so many quick stays in a row make a bond */
#define REBOND_NS 20000000U /* a bond is renewed after this */
#define WATCH_NS  10000000  /* between two looks of the watcher */

static struct {
	struct mutex mu;
	struct cond work;
	struct list bonds; /* (m) of plat_ctx.pin_link */
	bool enabled;      /* (c) more than one CPU */
	cpu_set_t all;     /* (c) where we may run at all */
} pins;

static void set_cpus(int tid, const cpu_set_t *set)
{
	/* host: sched_setaffinity. Only speed depends on it; a thread may be gone already. */
	(void)HOST(AFFINITY, sched_setaffinity(tid, sizeof(*set), set));
}

/* @ctx is in no list any more; where its threads may run is as it was. */
static bool forget_locked(struct plat_ctx *ctx)
{
	if (atomic_load_explicit(&ctx->pinned, memory_order_relaxed) < 0)
		return false;
	list_del(&ctx->pin_link);
	atomic_store_explicit(&ctx->pinned, -1, memory_order_relaxed);
	return true;
}

static void release_locked(struct plat_ctx *ctx)
{
	if (!forget_locked(ctx) && !ctx->inherited)
		return;
	ctx->inherited = false;
	set_cpus(ctx->tid, &pins.all);
	set_cpus(ctx->owner_tid, &pins.all);
}

static void release(struct plat_ctx *ctx)
{
	mutex_lock(&pins.mu);
	release_locked(ctx);
	mutex_unlock(&pins.mu);
}

static void bind_pair(struct plat_ctx *ctx)
{
	int cpu = sched_getcpu(); /* host: getcpu, mostly by rseq */
	cpu_set_t one;

	if (cpu < 0 || cpu >= CPU_SETSIZE)
		return;
	CPU_ZERO(&one);
	CPU_SET((size_t)cpu, &one);
	mutex_lock(&pins.mu);
	set_cpus(ctx->owner_tid, &one);
	set_cpus(ctx->tid, &one);
	ctx->bond_ns = mono_ns();
	ctx->seen_ns = 0;
	ctx->inherited = false;
	atomic_store_explicit(&ctx->pinned, cpu, memory_order_relaxed);
	if (list_empty(&pins.bonds))
		cond_signal(&pins.work);
	list_add_tail(&pins.bonds, &ctx->pin_link);
	mutex_unlock(&pins.mu);
}

/* Ends bonds that are in the way or of no use any more. */
static void look_locked(void)
{
	struct plat_ctx *ctx, *tmp;
	uint64_t now = mono_ns();

	list_for_each_safe(ctx, tmp, &pins.bonds, pin_link) {
		uint64_t since =
			atomic_load_explicit(&ctx->entered_ns, memory_order_relaxed);
		uint64_t sum = atomic_load_explicit(&ctx->guest_ns, memory_order_relaxed);

		if (since ? since < now && now - since > LONG_NS : sum == ctx->seen_ns)
			release_locked(ctx);
		ctx->seen_ns = sum;
	}
}

static void *watcher(void *arg __unused)
{
	mutex_lock(&pins.mu);
	for (;;) {
		if (list_empty(&pins.bonds)) {
			cond_wait(&pins.work, &pins.mu);
			continue;
		}
		/* Nobody signals while there are bonds: this is a sleep without the lock. */
		cond_wait_until(&pins.work, &pins.mu, (int64_t)mono_ns() + WATCH_NS);
		look_locked();
	}
	return NULL;
}

void pin_release(struct plat_ctx *ctx)
{
	if (pins.enabled)
		release(ctx);
}

int pin_init(void)
{
	mutex_init(&pins.mu, RANK_PLATFORM);
	cond_init(&pins.work);
	list_init(&pins.bonds);
	if (sched_getaffinity(0, sizeof(pins.all),
			      &pins.all)) /* host: sched_getaffinity */
		return 0;
	if (CPU_COUNT(&pins.all) < 2)
		return 0;
	pins.enabled = true;
	return host_start_thread(watcher);
}

/* By the sentry thread that owns @ctx. It and the host thread were made by threads that may have been
 * bound, and have inherited that; or are left from a context that has ended. The first stay settles it: a bond,
 * or pin_release(). */
void pin_add(struct plat_ctx *ctx)
{
	atomic_store_explicit(&ctx->pinned, -1, memory_order_relaxed);
	list_init(&ctx->pin_link);
	if (!pins.enabled)
		return;
	ctx->owner_tid = (int)syscall(SYS_gettid); /* host: gettid */
	ctx->quick = QUICK_MIN;
	ctx->inherited = true;
}

void pin_del(struct plat_ctx *ctx)
{
	if (!pins.enabled)
		return;
	mutex_lock(&pins.mu);
	(void)forget_locked(ctx);
	mutex_unlock(&pins.mu);
}

void pin_enter(struct plat_ctx *ctx)
{
	if (pins.enabled && ctx->quick >= QUICK_MIN &&
	    atomic_load_explicit(&ctx->pinned, memory_order_relaxed) < 0)
		bind_pair(ctx);
}

void pin_leave(struct plat_ctx *ctx, uint64_t stay_ns, uint64_t now)
{
	bool bound;

	if (!pins.enabled)
		return;
	bound = atomic_load_explicit(&ctx->pinned, memory_order_relaxed) >= 0;
	if (stay_ns <= QUICK_NS)
		ctx->quick++;
	else
		ctx->quick = 0;
	if (bound && (stay_ns >= LONG_NS || now - ctx->bond_ns > REBOND_NS)) {
		release(ctx);
		ctx->quick = MIN(ctx->quick, QUICK_MIN - 1);
	}
}
