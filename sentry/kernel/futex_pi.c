// SPDX-License-Identifier: Apache-2.0
/*
 * Priority-inheritance futexes (man 2 futex). The sentry's threads have no priorities to lend, so there is no
 * boosting; what stays is the ownership protocol: the word holds the owner's tid, the kernel sets
 * FUTEX_WAITERS, hands the lock to the first waiter on unlock, and marks it OWNER_DIED if its owner exits.
 *
 * One mutex guards all waiters of PI futexes and is held while guest words change, which is why it ranks above
 * mm.mu. PI futexes are rare; one lock keeps the hand-over easy to get right.
 *
 * FUTEX_WAIT_REQUEUE_PI queues an ordinary waiter that carries a pi_waiter. FUTEX_CMP_REQUEUE_PI, under
 * pi_mu, takes such waiters off and locks the PI futex for the first or queues them on it. A waiter that wakes by
 * itself meanwhile finds itself off its queue and learns from its pi_waiter, under pi_mu, what it became.
 */
#include <errno.h>
#include <stdatomic.h>

#include "base/err.h"
#include "base/mutex.h"
#include "sentry/kernel/futex_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/usermem.h"

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
	w->queued = false;
	atomic_fetch_sub(&pi_count, 1);
}

static void queue(struct pi_waiter *w)
{
	list_add_tail(&pi_waiters, &w->node);
	w->queued = true;
	atomic_fetch_add(&pi_count, 1);
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

/*
 * Tries to lock @uaddr (in @t's memory) for @locker. 0: it owns it now. 1: it has to wait; *ret_owner (borrowed, for
 * comparison). Context: pi_mu.
 */
static int try_lock(struct task *t, gaddr_t uaddr, const struct futex_key *key,
		    struct task *locker, const struct task **ret_owner)
{
	uint32_t tid = (uint32_t)task_tid(locker), word, new, seen;
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
	r = try_lock(t, uaddr, &w.key, t, &w.owner);
	if (r == 1 && try)
		r = -EAGAIN;
	if (r != 1) {
		mutex_unlock(&pi_mu);
		return r;
	}
	/* queued before the lock is dropped: an unlock comes to the kernel, as WAITERS is set, and
	 * finds us */
	queue(&w);
	mutex_unlock(&pi_mu);
	return wait_granted(t, &w, deadline_ns);
}

/* ---- requeue ---- */

/* The wait is over with @r < 0, or with the lock granted: what became of @w? */
static long requeue_wait_end(struct futex_waiter *w, long r)
{
	for (;;) {
		if (futex_waiter_dequeue(w))
			return r == -ERESTARTSYS ? -ERESTARTNOINTR : r;
		AUTO_LOCK(&pi_mu);
		if (atomic_load(&w->pi->granted))
			return 0;
		if (w->pi->queued) {
			unqueue(w->pi);
			/* a restart would find the word changed (Linux does the same) */
			return r == -ERESTARTSYS ? -EAGAIN : r;
		}
		/* a requeue that failed put it back */
	}
}

/* FUTEX_WAIT_REQUEUE_PI: returns 0 with the PI futex @uaddr2 locked. */
long futex_wait_requeue_pi(struct task *t, gaddr_t uaddr, bool shared, uint32_t val,
			   int64_t deadline_ns, gaddr_t uaddr2)
{
	struct pi_waiter pi = { .uaddr = uaddr2, .task = t };
	struct futex_waiter w = { .task = t, .bitset = ~0u, .pi = &pi };
	uint32_t now;
	long r;

	if (gaddr_u64(uaddr) == gaddr_u64(uaddr2) || gaddr_u64(uaddr) % 4 || gaddr_u64(uaddr2) % 4)
		return -EINVAL;
	r = mm_futex_key(t, uaddr2, shared, true, &pi.key);
	if (r == 0)
		r = mm_futex_key(t, uaddr, shared, false, &w.key);
	if (r == 0)
		r = user_load32(t, uaddr, &now);
	if (r < 0)
		return r;
	if (now != val)
		return -EAGAIN;
	futex_waiter_queue(&w);
	r = user_load32(t, uaddr, &now);
	if (r == 0 && now != val)
		r = -EAGAIN;
	if (r < 0 && futex_waiter_dequeue(&w))
		return r;
	/* queued, or moved already: then the lock comes, whatever the word says now */
	for (r = 0;;) {
		task_sleep_prepare(t);
		if (atomic_load(&pi.granted) || r < 0)
			return requeue_wait_end(&w, r);
		r = task_sleep(t, deadline_ns);
	}
}

/* Makes @w own the PI futex or wait for it. Context: pi_mu. 0 or an error: then it is as before. */
static int move_to_pi(struct task *t, gaddr_t u2, struct futex_waiter *w)
{
	struct pi_waiter *pi = w->pi;
	int r = try_lock(t, u2, &pi->key, pi->task, &pi->owner);

	if (r < 0) {
		futex_waiter_queue(w);
		return r;
	}
	if (r == 1) {
		queue(pi);
		return 0;
	}
	atomic_store(&pi->granted, true);
	task_wake(pi->task);
	return 0;
}

static int word_is(struct task *t, gaddr_t uaddr, uint32_t val)
{
	uint32_t now;
	int r = user_load32(t, uaddr, &now);

	return r < 0 ? r : now == val ? 0 : -EAGAIN;
}

/* FUTEX_CMP_REQUEUE_PI: how many waiters got the lock or wait for it now. */
long futex_cmp_requeue_pi(struct task *t, gaddr_t u1, bool shared, int nwake, int nmove, gaddr_t u2,
			  uint32_t cmpval)
{
	struct futex_key k1, k2;
	struct futex_waiter *w;
	uint64_t seen;
	int64_t n = 0;
	int r;

	if (nwake != 1 || nmove < 0 || gaddr_u64(u1) == gaddr_u64(u2) || gaddr_u64(u1) % 4 ||
	    gaddr_u64(u2) % 4)
		return -EINVAL;
	r = mm_futex_key(t, u1, shared, false, &k1);
	if (r == 0)
		r = mm_futex_key(t, u2, shared, true, &k2);
	if (r < 0)
		return r;
	if (k1.obj == k2.obj && k1.off == k2.off)
		return -EINVAL;
	AUTO_LOCK(&pi_mu);
	do { /* compared with nobody queueing in between, as in futex.c */
		seen = futex_queue_count(&k1);
		r = word_is(t, u1, cmpval);
		if (r < 0)
			return r;
		r = futex_take_for_pi(&k1, &k2, &seen, &w);
	} while (r == -EAGAIN);
	while (r == 1) {
		r = move_to_pi(t, u2, w);
		if (r < 0 || ++n >= (int64_t)nmove + nwake)
			break;
		r = futex_take_for_pi(&k1, &k2, NULL, &w);
	}
	return r < 0 ? r : n;
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
