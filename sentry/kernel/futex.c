// SPDX-License-Identifier: Apache-2.0
/*
 * Futexes (man 2 futex): wait, wake, requeue, wake-op. PI futexes are in futex_pi.c, robust lists in
 * futex_robust.c, futex_waitv in futex_waitv.c.
 *
 * The word is read without the bucket's lock, since reading guest memory may take mm.mu, which ranks above.
 * What replaces Linux's check under the lock:
 *
 *	wait:  queue the waiter; read the word; if it differs, dequeue and return EAGAIN
 *	wake:  (the guest has changed the word); take waiters off the queue
 *
 * A change of the word before our read makes us return EAGAIN; after it, the wake that follows the change
 * finds us queued: nothing is missed. The price: a wake may pick a waiter that is about to return EAGAIN.
 * It then passes the wake-up on to the next waiter of that word, so none is lost either; that waiter may get it
 * late, which looks like a spurious wake-up at worst.
 *
 * CMP_REQUEUE compares the word with no waiter coming in between: a bucket counts its queueings, and
 * the operation starts over when the count has changed between the read and the lock.
 *
 * No allocation: the waiter is on the stack of the waiting thread. Once dequeued (bucket == NULL) it
 * belongs to that thread again, so a waker takes its task reference first and wakes after unlocking.
 *
 * Lock order: bucket.mu (RANK_FUTEX), two of them lower address first. No guest memory under it.
 */
#include "sentry/kernel/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>

#include "base/err.h"
#include "base/mutex.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/futex_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/usermem.h"
#include "sentry/time/clock.h"

#define NBUCKETS 256 /* power of two */
#define WAKE_BATCH 16

struct futex_bucket {
	struct mutex mu;
	struct list waiters;        /* (mu) FIFO */
	uint64_t nqueued;           /* (mu) queueings so far */
	_Atomic uint32_t nwaiters;  /* lets a wake of nobody skip the lock */
} __attribute__((aligned(64)));

static struct futex_bucket buckets[NBUCKETS];

void futex_init(void)
{
	for (unsigned i = 0; i < NBUCKETS; i++) {
		mutex_init(&buckets[i].mu, RANK_FUTEX);
		list_init(&buckets[i].waiters);
	}
	futex_pi_init();
}

static struct futex_bucket *bucket_of(const struct futex_key *k)
{
	uint64_t h = (uint64_t)(uintptr_t)k->obj ^ (k->off >> 2) * 0x9e3779b97f4a7c15ULL;

	h *= 0xbf58476d1ce4e5b9ULL;
	return &buckets[(h >> 40) & (NBUCKETS - 1)];
}

static bool same_key(const struct futex_key *a, const struct futex_key *b)
{
	return a->obj == b->obj && a->off == b->off;
}

/* ---- queueing ---- */

void futex_waiter_queue(struct futex_waiter *w)
{
	struct futex_bucket *b = bucket_of(&w->key);

	/* seq_cst before the word is read: pairs with the fence in collect() */
	atomic_fetch_add(&b->nwaiters, 1);
	mutex_lock(&b->mu);
	list_add_tail(&b->waiters, &w->node);
	b->nqueued++;
	atomic_store(&w->bucket, b);
	mutex_unlock(&b->mu);
}

static void unlink_locked(struct futex_bucket *b, struct futex_waiter *w)
{
	list_del(&w->node);
	atomic_fetch_sub(&b->nwaiters, 1);
}

bool futex_waiter_dequeue(struct futex_waiter *w)
{
	struct futex_bucket *b;

	while ((b = atomic_load(&w->bucket)) != NULL) {
		mutex_lock(&b->mu);
		if (atomic_load(&w->bucket) == b) {
			unlink_locked(b, w);
			atomic_store(&w->bucket, NULL);
			mutex_unlock(&b->mu);
			return true;
		}
		mutex_unlock(&b->mu); /* requeued or woken just now */
	}
	return false;
}

/* References to woken tasks, to be woken with no lock held. */
struct wake_list {
	struct task *task[WAKE_BATCH];
	unsigned n;
};

static void wake_list_run(struct wake_list *wl)
{
	for (unsigned i = 0; i < wl->n; i++) {
		task_wake(wl->task[i]);
		task_put(wl->task[i]);
	}
	wl->n = 0;
}

static void take_locked(struct futex_bucket *b, struct futex_waiter *w, struct wake_list *wl)
{
	wl->task[wl->n++] = task_get(w->task);
	unlink_locked(b, w);
	/* the last access to *w: from here on its owner may go away */
	atomic_store(&w->bucket, NULL);
}

/* Takes up to @n waiters of @key off @b, @wl's room permitting. -EINVAL: met one of WAIT_REQUEUE_PI. */
static int collect_locked(struct futex_bucket *b, const struct futex_key *key, int n,
			  uint32_t bitset, struct wake_list *wl)
{
	struct futex_waiter *w, *tmp;
	int done = 0;

	list_for_each_safe(w, tmp, &b->waiters, node) {
		if (done >= n || wl->n == WAKE_BATCH)
			break;
		if (!same_key(&w->key, key))
			continue;
		if (w->pi) /* has to be requeued, as in Linux */
			return -EINVAL;
		if (!(w->bitset & bitset))
			continue;
		take_locked(b, w, wl);
		done++;
	}
	return done;
}

static int wake_key(const struct futex_key *key, int n, uint32_t bitset)
{
	struct futex_bucket *b = bucket_of(key);
	struct wake_list wl;
	int total = 0, got;

	/* the guest's change of the word comes before the look at the count, a waiter's count before
	 * its look at the word */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&b->nwaiters, memory_order_relaxed) == 0)
		return 0;
	do { /* one round unless there are more than fit the batch */
		wl.n = 0;
		mutex_lock(&b->mu);
		got = collect_locked(b, key, n - total, bitset, &wl);
		mutex_unlock(&b->mu);
		wake_list_run(&wl);
		if (got < 0)
			return got;
		total += got;
	} while (got == WAKE_BATCH && total < n);
	return total;
}

void futex_pass_on(const struct futex_waiter *w)
{
	(void)wake_key(&w->key, 1, w->bitset);
}

/* ---- wait and wake ---- */

long futex_wake(struct task *t, gaddr_t uaddr, bool shared, int n, uint32_t bitset)
{
	struct futex_key key;
	int r;

	if (!bitset)
		return -EINVAL;
	if (gaddr_u64(uaddr) % 4)
		return -EINVAL;
	r = mm_futex_key(t, uaddr, shared, false, &key);
	if (r < 0)
		return r;
	return wake_key(&key, n < 1 ? 1 : n, bitset); /* Linux wakes one for 0, too */
}

void futex_wake_addr(struct task *t, gaddr_t uaddr, int n)
{
	(void)futex_wake(t, uaddr, true, n, FUTEX_BITSET_MATCH_ANY);
}

/* Sleeps until @w was dequeued. */
static long sleep_queued(struct task *t, struct futex_waiter *w, int64_t deadline_ns)
{
	long r = 0;

	for (;;) {
		task_sleep_prepare(t);
		if (!atomic_load(&w->bucket))
			return 0;
		if (r < 0)
			break;
		r = task_sleep(t, deadline_ns);
	}
	return futex_waiter_dequeue(w) ? r : 0;
}

long futex_wait(struct task *t, gaddr_t uaddr, bool shared, uint32_t val, int64_t deadline_ns,
		uint32_t bitset)
{
	struct futex_waiter w = { .task = t, .bitset = bitset };
	uint32_t now;
	int r;

	if (!bitset || gaddr_u64(uaddr) % 4)
		return -EINVAL;
	r = mm_futex_key(t, uaddr, shared, false, &w.key);
	if (r == 0)
		r = user_load32(t, uaddr, &now);
	if (r < 0)
		return r;
	if (now != val)
		return -EAGAIN;
	futex_waiter_queue(&w);
	r = user_load32(t, uaddr, &now);
	if (r < 0 || now != val) {
		if (!futex_waiter_dequeue(&w))
			futex_pass_on(&w);
		return r < 0 ? r : -EAGAIN;
	}
	return sleep_queued(t, &w, deadline_ns);
}

long futex_restart(struct task *t)
{
	struct restart_block rb = t->restart;
	bool shared = !(rb.futex.op & FUTEX_PRIVATE_FLAG);
	long r = futex_wait(t, rb.futex.uaddr, shared, rb.futex.val, rb.futex.deadline_ns,
			    rb.futex.bitset);

	if (r != -ERESTARTSYS)
		return r;
	t->restart = rb;
	t->restart.kind = RESTART_FUTEX;
	return -ERESTART_RESTARTBLOCK;
}

static long wait_op(struct task *t, gaddr_t uaddr, int op, uint32_t val, int64_t deadline_ns,
		    uint32_t bitset)
{
	long r = futex_wait(t, uaddr, !(op & FUTEX_PRIVATE_FLAG), val, deadline_ns, bitset);

	if (r != -ERESTARTSYS || deadline_ns == DEADLINE_NONE)
		return r;
	t->restart.kind = RESTART_FUTEX;
	t->restart.futex.uaddr = uaddr;
	t->restart.futex.val = val;
	t->restart.futex.bitset = bitset;
	t->restart.futex.op = op;
	t->restart.futex.deadline_ns = deadline_ns;
	return -ERESTART_RESTARTBLOCK;
}

/* ---- requeue ---- */

static void lock_two(struct futex_bucket *a, struct futex_bucket *b)
{
	if (a > b) {
		struct futex_bucket *x = a;

		a = b;
		b = x;
	}
	mutex_lock(&a->mu);
	if (a != b)
		mutex_lock_nested(&b->mu);
}

static void unlock_two(struct futex_bucket *a, struct futex_bucket *b)
{
	if (a != b)
		mutex_unlock(&b->mu);
	mutex_unlock(&a->mu);
}

static void move_locked(struct futex_bucket *from, struct futex_bucket *to, struct futex_waiter *w,
			const struct futex_key *key)
{
	unlink_locked(from, w);
	w->key = *key;
	list_add_tail(&to->waiters, &w->node);
	atomic_fetch_add(&to->nwaiters, 1);
	to->nqueued++;
	atomic_store(&w->bucket, to);
}

/* Wakes up to @nwake and moves up to @nmove. Context: both locked. Returns how many of both. */
static int requeue_locked(struct futex_bucket *b1, const struct futex_key *k1,
			  struct futex_bucket *b2, const struct futex_key *k2, int nwake,
			  int nmove, struct wake_list *wl)
{
	struct futex_waiter *w, *tmp;
	int woken = 0, moved = 0, r = 0;
	struct list todo;

	/* detached first, so that moving within one bucket ends */
	list_init(&todo);
	list_for_each_safe(w, tmp, &b1->waiters, node) {
		if (!same_key(&w->key, k1))
			continue;
		if (w->pi) {
			r = -EINVAL;
			break;
		}
		if (woken < nwake && wl->n < WAKE_BATCH) {
			take_locked(b1, w, wl);
			woken++;
		} else if (moved < nmove) {
			list_del(&w->node);
			list_add_tail(&todo, &w->node);
			moved++;
		} else {
			break;
		}
	}
	list_for_each_safe(w, tmp, &todo, node)
		move_locked(b1, b2, w, k2);
	return r < 0 ? r : woken + moved;
}

static uint64_t queue_count(struct futex_bucket *b)
{
	AUTO_LOCK(&b->mu);

	return b->nqueued;
}

static long requeue(struct task *t, gaddr_t u1, bool shared, int nwake, int nmove, gaddr_t u2,
		    const uint32_t *cmpval)
{
	struct futex_bucket *b1, *b2;
	struct futex_key k1, k2;
	struct wake_list wl = { .n = 0 };
	uint64_t seen;
	uint32_t now;
	int r, woken = 0;

	if (nwake < 0 || nmove < 0 || gaddr_u64(u1) % 4 || gaddr_u64(u2) % 4)
		return -EINVAL;
	r = mm_futex_key(t, u1, shared, false, &k1);
	if (r == 0)
		r = mm_futex_key(t, u2, shared, false, &k2);
	if (r < 0)
		return r;
	b1 = bucket_of(&k1);
	b2 = bucket_of(&k2);
	for (;;) {
		seen = cmpval ? queue_count(b1) : 0;
		if (cmpval) {
			r = user_load32(t, u1, &now);
			if (r < 0)
				return r;
			if (now != *cmpval)
				return -EAGAIN;
		}
		lock_two(b1, b2);
		if (!cmpval || b1->nqueued == seen)
			break;
		unlock_two(b1, b2); /* somebody queued since: compare again */
	}
	/* More to wake than the batch holds: in rounds. Who queues between them may be woken, too, and
	 * takes it for a spurious wake-up. */
	for (; nwake - woken > WAKE_BATCH; woken += r) {
		r = collect_locked(b1, &k1, WAKE_BATCH, FUTEX_BITSET_MATCH_ANY, &wl);
		if (r < WAKE_BATCH)
			break;
		unlock_two(b1, b2);
		wake_list_run(&wl);
		lock_two(b1, b2);
	}
	r = r < 0 ? r : requeue_locked(b1, &k1, b2, &k2, nwake - woken, nmove, &wl);
	unlock_two(b1, b2);
	wake_list_run(&wl);
	return r < 0 ? r : woken + r;
}

uint64_t futex_queue_count(const struct futex_key *key)
{
	return queue_count(bucket_of(key));
}

int futex_take_for_pi(const struct futex_key *key, const struct futex_key *to, const uint64_t *seen,
		      struct futex_waiter **ret)
{
	struct futex_bucket *b = bucket_of(key);
	struct futex_waiter *w;
	AUTO_LOCK(&b->mu);

	if (seen && b->nqueued != *seen)
		return -EAGAIN;
	list_for_each(w, &b->waiters, node) {
		if (!same_key(&w->key, key))
			continue;
		if (!w->pi || !same_key(&w->pi->key, to))
			return -EINVAL;
		unlink_locked(b, w);
		atomic_store(&w->bucket, NULL);
		*ret = w;
		return 1;
	}
	return 0;
}

/* ---- wake-op ---- */

static int op_apply(int op, uint32_t old, uint32_t arg, uint32_t *ret)
{
	switch (op) {
	case FUTEX_OP_SET:
		*ret = arg;
		return 0;
	case FUTEX_OP_ADD:
		*ret = old + arg;
		return 0;
	case FUTEX_OP_OR:
		*ret = old | arg;
		return 0;
	case FUTEX_OP_ANDN:
		*ret = old & ~arg;
		return 0;
	case FUTEX_OP_XOR:
		*ret = old ^ arg;
		return 0;
	default:
		return -ENOSYS;
	}
}

static int op_compare(int cmp, int32_t old, int32_t arg)
{
	switch (cmp) {
	case FUTEX_OP_CMP_EQ:
		return old == arg;
	case FUTEX_OP_CMP_NE:
		return old != arg;
	case FUTEX_OP_CMP_LT:
		return old < arg;
	case FUTEX_OP_CMP_GE:
		return old >= arg;
	case FUTEX_OP_CMP_LE:
		return old <= arg;
	case FUTEX_OP_CMP_GT:
		return old > arg;
	default:
		return -ENOSYS;
	}
}

static int32_t sext12(uint32_t v)
{
	return (int32_t)(v << 20) >> 20;
}

static long wake_op(struct task *t, gaddr_t u1, bool shared, int n1, int n2, gaddr_t u2,
		    uint32_t enc)
{
	int op = (int)(enc >> 28 & 7), cmp = (int)(enc >> 24 & 15), r, total;
	uint32_t arg = (uint32_t)sext12(enc >> 12 & 0xfff), old, new, seen;
	struct futex_key k1, k2;

	if (enc >> 31) /* FUTEX_OP_OPARG_SHIFT; a shift out of range is masked as Linux does */
		arg = 1u << (arg & 31);
	if (gaddr_u64(u1) % 4 || gaddr_u64(u2) % 4)
		return -EINVAL;
	r = mm_futex_key(t, u1, shared, false, &k1);
	if (r == 0)
		r = mm_futex_key(t, u2, shared, true, &k2);
	if (r == 0)
		r = user_load32(t, u2, &old);
	if (r < 0)
		return r;
	for (;;) {
		r = op_apply(op, old, arg, &new);
		if (r == 0)
			r = user_cmpxchg32(t, u2, old, new, &seen);
		if (r < 0)
			return r;
		if (seen == old)
			break;
		old = seen;
	}
	r = op_compare(cmp, (int32_t)old, sext12(enc & 0xfff));
	if (r < 0)
		return r;
	total = wake_key(&k1, n1 < 1 ? 1 : n1, FUTEX_BITSET_MATCH_ANY);
	if (r == 0 || total < 0)
		return total;
	r = wake_key(&k2, n2 < 1 ? 1 : n2, FUTEX_BITSET_MATCH_ANY);
	return r < 0 ? r : total + r;
}

/* ---- the call ---- */

static bool has_timeout(int cmd)
{
	return cmd == FUTEX_WAIT || cmd == FUTEX_WAIT_BITSET || cmd == FUTEX_LOCK_PI ||
	       cmd == FUTEX_LOCK_PI2 || cmd == FUTEX_WAIT_REQUEUE_PI;
}

/* FUTEX_WAIT's is relative; the others' absolute, on the clock that the flag says (LOCK_PI: real time). */
static int get_deadline(struct task *t, int op, int cmd, gaddr_t timeout, int64_t *ret)
{
	bool realtime = (op & FUTEX_CLOCK_REALTIME) || cmd == FUTEX_LOCK_PI;
	struct l_timespec ts;
	int64_t ns, now;
	int r;

	*ret = DEADLINE_NONE;
	if (!has_timeout(cmd) || gaddr_is_null(timeout))
		return 0;
	r = copyin_obj(t, &ts, timeout);
	if (r < 0)
		return r;
	if (!timespec_valid(&ts))
		return -EINVAL;
	ns = timespec_to_ns(&ts);
	now = clock_monotonic_ns();
	if (cmd == FUTEX_WAIT)
		*ret = task_call_deadline(t, deadline_after(now, ns));
	else if (realtime && ns != INT64_MAX)
		*ret = ns - (clock_realtime_ns() - now);
	else
		*ret = ns;
	return 0;
}

long futex_op(struct task *t, gaddr_t uaddr, int op, uint32_t val, gaddr_t timeout, gaddr_t uaddr2,
	      uint32_t val3)
{
	int cmd = op & FUTEX_CMD_MASK, val2 = (int)(uint32_t)gaddr_u64(timeout), r;
	bool shared = !(op & FUTEX_PRIVATE_FLAG);
	int64_t deadline;

	if ((op & FUTEX_CLOCK_REALTIME) && cmd != FUTEX_WAIT && cmd != FUTEX_WAIT_BITSET &&
	    cmd != FUTEX_WAIT_REQUEUE_PI && cmd != FUTEX_LOCK_PI2)
		return -ENOSYS;
	r = get_deadline(t, op, cmd, timeout, &deadline);
	if (r < 0)
		return r;
	switch (cmd) {
	case FUTEX_WAIT:
		val3 = FUTEX_BITSET_MATCH_ANY;
		fallthrough;
	case FUTEX_WAIT_BITSET:
		return wait_op(t, uaddr, op, val, deadline, val3);
	case FUTEX_WAKE:
		val3 = FUTEX_BITSET_MATCH_ANY;
		fallthrough;
	case FUTEX_WAKE_BITSET:
		return futex_wake(t, uaddr, shared, (int)val, val3);
	case FUTEX_REQUEUE:
		return requeue(t, uaddr, shared, (int)val, val2, uaddr2, NULL);
	case FUTEX_CMP_REQUEUE:
		return requeue(t, uaddr, shared, (int)val, val2, uaddr2, &val3);
	case FUTEX_WAKE_OP:
		return wake_op(t, uaddr, shared, (int)val, val2, uaddr2, val3);
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2:
		return futex_lock_pi(t, uaddr, shared, deadline, false);
	case FUTEX_TRYLOCK_PI:
		return futex_lock_pi(t, uaddr, shared, deadline, true);
	case FUTEX_UNLOCK_PI:
		return futex_unlock_pi(t, uaddr, shared);
	case FUTEX_WAIT_REQUEUE_PI:
		return futex_wait_requeue_pi(t, uaddr, shared, val, deadline, uaddr2);
	case FUTEX_CMP_REQUEUE_PI:
		return futex_cmp_requeue_pi(t, uaddr, shared, (int)val, val2, uaddr2, val3);
	default: /* FUTEX_FD is gone from Linux */
		return -ENOSYS;
	}
}

void futex_exit_task(struct task *t)
{
	futex_robust_exit(t);
	futex_pi_exit(t);
}
