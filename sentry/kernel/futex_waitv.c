// SPDX-License-Identifier: Apache-2.0
/*
 * futex_waitv(2): waits for any of up to 128 futexes. Each has a waiter of its own; the same protocol as
 * in futex.c: queue all, then read all words.
 */
#include <errno.h>
#include <linux/futex.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "sentry/kernel/futex_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/usermem.h"

#define FUTEX_32_G 2u

static int check_entry(const struct l_futex_waitv *v)
{
	if ((v->flags & ~(FUTEX_32_G | FUTEX_PRIVATE_FLAG)) || v->reserved)
		return -EINVAL;
	if (!(v->flags & FUTEX_32_G) || v->val > UINT32_MAX || v->uaddr % 4)
		return -EINVAL;
	return 0;
}

/* Takes all off their queues. Index of the last one that was woken, or -1; further wake-ups are passed on. */
static long dequeue_all(struct futex_waiter *w, unsigned n, bool keep_one)
{
	long woken = -1;

	for (unsigned i = 0; i < n; i++) {
		if (futex_waiter_dequeue(&w[i]))
			continue;
		if (woken >= 0 || !keep_one)
			futex_pass_on(&w[i]);
		if (woken < 0)
			woken = i;
	}
	return woken;
}

static bool any_woken(struct futex_waiter *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!atomic_load(&w[i].bucket))
			return true;
	return false;
}

static long sleep_any(struct task *t, struct futex_waiter *w, unsigned n, int64_t deadline_ns)
{
	long r = 0, woken;

	for (;;) {
		task_sleep_prepare(t);
		if (any_woken(w, n) || r < 0)
			break;
		r = task_sleep(t, deadline_ns);
	}
	woken = dequeue_all(w, n, true);
	return woken >= 0 ? woken : r;
}

long futex_wait_multiple(struct task *t, const struct l_futex_waitv *v, unsigned n,
			 int64_t deadline_ns)
{
	AUTO_FREE struct futex_waiter *w = kcalloc(n, sizeof(*w));
	uint32_t now;
	int r;

	for (unsigned i = 0; i < n; i++) {
		r = check_entry(&v[i]);
		if (r == 0)
			r = mm_futex_key(t, gaddr(v[i].uaddr),
					 !(v[i].flags & FUTEX_PRIVATE_FLAG), false, &w[i].key);
		if (r < 0)
			return r;
		w[i].task = t;
		w[i].bitset = FUTEX_BITSET_MATCH_ANY;
	}
	for (unsigned i = 0; i < n; i++)
		futex_waiter_queue(&w[i]);
	for (unsigned i = 0; i < n; i++) {
		r = user_load32(t, gaddr(v[i].uaddr), &now);
		if (r == 0 && now == (uint32_t)v[i].val)
			continue;
		(void)dequeue_all(w, n, false);
		return r < 0 ? r : -EAGAIN;
	}
	return sleep_any(t, w, n, deadline_ns);
}
