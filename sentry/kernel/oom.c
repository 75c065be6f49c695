// SPDX-License-Identifier: Apache-2.0
/*
 * Out of memory. All guest memory is pages of memory files, and these are born on a tmpfs whose size is the
 * sandbox's limit (runtime/role_gofer.c). So the limit costs nothing while it isn't reached: there is no
 * count of ours on any path. When it is, the host answers the touch of a fresh page with SIGBUS, in a
 * stub or in safecopy, or a fallocate with ENOSPC. Those who meet that come here:
 *
 *   a guest's own access, copy-on-write, copies to and from guest memory   oom_relieve(): a process dies
 *   write(2), fallocate(2) to a file of tmpfs or the writable layer        ENOSPC (fs/tmpfs), nobody dies
 *
 * The victim is chosen as man 5 proc says under oom_score_adj: the largest, -1000 is never chosen. The one
 * whose access failed waits until the victim's memory is back; it may hold locks that the victim needs
 * on its way out, so it waits for a bounded time, and then the next one is chosen.
 *
 * Not done: memory.high, oom_group, a reaper that takes a victim's memory before it has exited.
 *
 * Locks: one killer at a time (busy). kernel.tasks_mu is taken for the list and for the kill, each mm.mu for
 * reading while its pages are counted, one after the other.
 */
#include "sentry/kernel/oom.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/log.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/mm.h"
#include "sentry/time/clock.h"

#define OOM_MIN_LEFT (128UL << 10) /* less is no memory: a fault may want a cluster of pages */
#define OOM_WAIT_NS 3000000000LL   /* for one victim to exit, before there is another: the host may be busy */
#define OOM_TAIL_NS 50000000LL     /* from its exit to the end of its stub, which holds pages, too */
#define OOM_PATIENCE_MS 15000       /* in all, before an access is given up */
#define OOM_ADJ_NEVER (-1000)

static _Atomic bool busy;
static struct {
	struct tgroup *tg; /* reference */
	int64_t until_ns;
} victim; /* (busy) the last one, while its memory is awaited */
static _Atomic uint64_t nkills;

bool oom_short(void)
{
	uint64_t total, left;

	return mfile_space(&total, &left) && left < OOM_MIN_LEFT;
}

uint64_t oom_kills(void)
{
	return atomic_load(&nkills);
}

static int64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* host: clock_gettime */
	return (int64_t)ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void pause_1ms(void)
{
	struct timespec ts = { .tv_nsec = 1000000 };

	(void)clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL); /* host: clock_nanosleep */
}

/* The first thread of its process that has memory: it stands for the process. */
static bool represents_locked(const struct task *t)
{
	struct task *i;

	list_for_each(i, &t->tg->threads, tg_node) {
		if (atomic_load(&i->state) < TASK_ZOMBIE)
			return i == t;
	}
	return false;
}

/* One task for each process that may be killed. References; the array is the caller's. */
static struct task **candidates(size_t *ret_n)
{
	struct task **v, *t;
	size_t n = 0, cap;
	AUTO_LOCK(&kernel.tasks_mu);

	cap = atomic_load(&kernel.ntasks) + 1;
	v = kcalloc(cap, sizeof(*v));
	list_for_each(t, &kernel.all_tasks, all_node) {
		if (n < cap && !t->tg->group_exit && t->tg->oom_score_adj > OOM_ADJ_NEVER &&
		    represents_locked(t))
			v[n++] = task_get(t);
	}
	*ret_n = n;
	return v;
}

/* As Linux's oom_badness(): what the process holds, shifted by its oom_score_adj in thousandths of all. */
static int64_t badness(struct task *t, uint64_t *ret_held)
{
	struct mm *mm = task_mm_get(t);

	*ret_held = 0;
	if (!mm)
		return INT64_MIN;
	*ret_held = mm_oom_weight(mm);
	mm_put(mm);
	return (int64_t)*ret_held +
	       (int64_t)(kernel.limits.max_memory / 1000) * t->tg->oom_score_adj;
}

/* Kills the worst process, if there is any. Context: busy. */
static void kill_one(void)
{
	struct task *worst = NULL;
	int64_t worst_points = INT64_MIN;
	uint64_t worst_held = 0;
	size_t n;
	struct task **v = candidates(&n);

	for (size_t i = 0; i < n; i++) {
		uint64_t held;
		int64_t points = badness(v[i], &held);

		if (points > worst_points) {
			worst = v[i];
			worst_points = points;
			worst_held = held;
		}
	}
	if (worst) {
		char comm[TASK_COMM_LEN];

		task_get_comm(worst, comm);
		atomic_fetch_add(&nkills, 1);
		log_warn("out of memory: process %d (%s) is killed, which holds %lu MiB",
			 task_tgid(worst), comm, (unsigned long)(worst_held >> 20));
		victim.tg = tgroup_get(worst->tg);
		victim.until_ns = now_ns() + OOM_WAIT_NS;
		task_group_exit(worst, SIGKILL);
	}
	for (size_t i = 0; i < n; i++)
		task_put(v[i]);
	free(v);
}

/*
 * Is the last victim still giving its memory back? That goes in pieces, and meanwhile others take them: a
 * shortage right after a kill is no reason for the next one.
 */
static bool victim_pending(void)
{
	int64_t now = now_ns();

	if (!victim.tg)
		return false;
	if (READ_ONCE(victim.tg->nthreads) == 0)
		victim.until_ns = MIN(victim.until_ns, now + OOM_TAIL_NS);
	if (now < victim.until_ns)
		return true;
	tgroup_put(victim.tg);
	victim.tg = NULL;
	return false;
}

static void maybe_kill(void)
{
	if (atomic_exchange(&busy, true))
		return;
	if (!victim_pending())
		kill_one(); /* without a candidate there may be some that are on their way out */
	atomic_store(&busy, false);
}

bool oom_relieve(struct task *t)
{
	for (int ms = 0; ms < OOM_PATIENCE_MS; ms++) {
		if (!oom_short())
			return true;
		if (t && atomic_load(&t->exiting))
			return false;
		maybe_kill();
		pause_1ms();
	}
	return false;
}
