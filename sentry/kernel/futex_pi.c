// SPDX-License-Identifier: Apache-2.0
/*
 * Priority-inheritance futexes (man 2 futex). The sentry's threads have no priorities to lend, so there is no
 * boosting; what stays is the ownership protocol: the word holds the owner's tid, the kernel sets
 * FUTEX_WAITERS, hands the lock to the first waiter on unlock, and marks it OWNER_DIED if its owner exits.
 *
 * One mutex guards all waiters of PI futexes and is held while guest words change, which is why it ranks above
 * mm.mu. PI futexes are rare; one lock keeps the hand-over easy to get right.
 *
 * Not served: FUTEX_WAIT_REQUEUE_PI and FUTEX_CMP_REQUEUE_PI (glibc stopped using them in 2.25).
 */
#include <errno.h>
#include <stdatomic.h>

#include "base/err.h"
#include "base/mutex.h"
#include "sentry/kernel/futex_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/usermem.h"

struct pi_waiter {
	struct list node;
	struct futex_key key;
	gaddr_t uaddr;             /* in task's memory */
	struct task *task;
	const struct task *owner;  /* compared only; who held the lock when we queued */
	_Atomic bool granted;
};

static struct mutex pi_mu;
static struct list pi_waiters = LIST_INIT(pi_waiters);
static _Atomic unsigned pi_count;

void futex_pi_init(void)
{
	mutex_init(&pi_mu, RANK_FUTEX_PI);
}

static struct pi_waiter *first_waiter(const struct futex_key *key)
{
	struct pi_waiter *w;

	list_for_each(w, &pi_waiters, node)
		if (w->key.obj == key->obj && w->key.off == key->off)
			return w;
	return NULL;
}

static void unqueue(struct pi_waiter *w)
{
	list_del(&w->node);
	atomic_fetch_sub(&pi_count, 1);
}

/* The lock at @w's word becomes @w's. @bits: FUTEX_OWNER_DIED or 0. Context: pi_mu. 0 or -EFAULT. */
static int hand_over(struct task *via, gaddr_t uaddr, struct pi_waiter *w, uint32_t bits)
{
	uint32_t word, seen, new = (uint32_t)task_tid(w->task) | FUTEX_WAITERS_G | bits;
	struct pi_waiter *o;
	int r = user_load32(via, uaddr, &word);

	while (r == 0) {
		r = user_cmpxchg32(via, uaddr, word, new, &seen);
		if (r == 0 && seen == word)
			break;
		word = seen;
	}
	if (r < 0)
		return r;
	unqueue(w);
	list_for_each(o, &pi_waiters, node)
		if (o->key.obj == w->key.obj && o->key.off == w->key.off)
			o->owner = w->task;
	/* its thread needs pi_mu to return, so *w stays */
	atomic_store(&w->granted, true);
	task_wake(w->task);
	return 0;
}

/* 0: the caller owns it now. 1: it has to wait; *ret_owner (borrowed, for comparison). */
static int try_lock(struct task *t, gaddr_t uaddr, const struct futex_key *key,
		    const struct task **ret_owner)
{
	uint32_t tid = (uint32_t)task_tid(t), word, new, seen;
	struct task *owner;
	int r = user_load32(t, uaddr, &word);

	for (; r == 0; word = seen) {
		if ((word & FUTEX_TID_MASK_G) == tid)
			return -EDEADLK;
		if ((word & FUTEX_TID_MASK_G) == 0) {
			new = tid | (word & FUTEX_OWNER_DIED_G) |
			      (first_waiter(key) ? FUTEX_WAITERS_G : 0);
			r = user_cmpxchg32(t, uaddr, word, new, &seen);
			if (r == 0 && seen == word)
				return 0;
			continue;
		}
		owner = task_find(t, (pid_t)(word & FUTEX_TID_MASK_G));
		if (!owner)
			return -ESRCH;
		*ret_owner = owner;
		task_put(owner);
		if (word & FUTEX_WAITERS_G)
			return 1;
		r = user_cmpxchg32(t, uaddr, word, word | FUTEX_WAITERS_G, &seen);
		if (r == 0 && seen == word)
			return 1;
	}
	return r;
}

static long wait_granted(struct task *t, struct pi_waiter *w, int64_t deadline_ns)
{
	long r = 0;

	for (;;) {
		task_sleep_prepare(t);
		if (atomic_load(&w->granted) || r < 0)
			break;
		r = task_sleep(t, deadline_ns);
	}
	/* under the lock even if granted: the granter is done with *w then */
	mutex_lock(&pi_mu);
	if (atomic_load(&w->granted))
		r = 0;
	else
		unqueue(w);
	mutex_unlock(&pi_mu);
	return r == -ERESTARTSYS ? -ERESTARTNOINTR : r;
}

long futex_lock_pi(struct task *t, gaddr_t uaddr, bool shared, int64_t deadline_ns, bool try)
{
	struct pi_waiter w = { .uaddr = uaddr, .task = t };
	int r;

	if (gaddr_u64(uaddr) % 4)
		return -EINVAL;
	r = mm_futex_key(t, uaddr, shared, true, &w.key);
	if (r < 0)
		return r;
	mutex_lock(&pi_mu);
	r = try_lock(t, uaddr, &w.key, &w.owner);
	if (r == 1 && try)
		r = -EAGAIN;
	if (r != 1) {
		mutex_unlock(&pi_mu);
		return r;
	}
	/* queued before the lock is dropped: an unlock comes to the kernel, as WAITERS is set, and
	 * finds us */
	list_add_tail(&pi_waiters, &w.node);
	atomic_fetch_add(&pi_count, 1);
	mutex_unlock(&pi_mu);
	return wait_granted(t, &w, deadline_ns);
}

/* Gives up the caller's lock. Context: pi_mu. @bits as in hand_over(). */
static int release(struct task *t, gaddr_t uaddr, const struct futex_key *key, uint32_t bits)
{
	uint32_t tid = (uint32_t)task_tid(t), word, seen;
	struct pi_waiter *w = first_waiter(key);
	int r = user_load32(t, uaddr, &word);

	if (r < 0)
		return r;
	if ((word & FUTEX_TID_MASK_G) != tid)
		return -EPERM;
	if (w)
		return hand_over(t, uaddr, w, bits);
	for (;;) {
		r = user_cmpxchg32(t, uaddr, word, bits, &seen);
		if (r < 0 || seen == word)
			return r;
		word = seen;
		if ((word & FUTEX_TID_MASK_G) != tid)
			return -EPERM;
	}
}

long futex_unlock_pi(struct task *t, gaddr_t uaddr, bool shared)
{
	struct futex_key key;
	long r;

	if (gaddr_u64(uaddr) % 4)
		return -EINVAL;
	r = mm_futex_key(t, uaddr, shared, true, &key);
	if (r < 0)
		return r;
	mutex_lock(&pi_mu);
	r = release(t, uaddr, &key, 0);
	mutex_unlock(&pi_mu);
	return r;
}

void futex_pi_owner_died(struct task *t, gaddr_t uaddr)
{
	struct futex_key key;

	if (mm_futex_key(t, uaddr, true, true, &key) < 0)
		return;
	mutex_lock(&pi_mu);
	(void)release(t, uaddr, &key, FUTEX_OWNER_DIED_G); /* a bad word: nobody to tell */
	mutex_unlock(&pi_mu);
}

void futex_pi_exit(struct task *t)
{
	struct pi_waiter *w, *tmp;

	if (atomic_load(&pi_count) == 0)
		return;
	mutex_lock(&pi_mu);
restart:
	list_for_each_safe(w, tmp, &pi_waiters, node) {
		if (w->owner != t)
			continue;
		/* through the waiter's memory: it sleeps, so its mm stays. On a fault it waits on. */
		if (hand_over(w->task, w->uaddr, w, FUTEX_OWNER_DIED_G) < 0)
			w->owner = NULL;
		goto restart;
	}
	mutex_unlock(&pi_mu);
}
