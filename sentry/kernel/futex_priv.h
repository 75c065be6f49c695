// SPDX-License-Identifier: Apache-2.0
/* Shared by kernel/futex*.c only. */
#ifndef SENTRY_KERNEL_FUTEX_PRIV_H
#define SENTRY_KERNEL_FUTEX_PRIV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/gaddr.h"
#include "base/list.h"
#include "sentry/mm/mm.h"

struct task;
struct futex_bucket;

#define FUTEX_WAITERS_G 0x80000000u
#define FUTEX_OWNER_DIED_G 0x40000000u
#define FUTEX_TID_MASK_G 0x3fffffffu

/* A thread that waits for a PI futex, or that is to be moved to one; on its sentry thread's stack. */
struct pi_waiter {
	struct list node;
	struct futex_key key;
	gaddr_t uaddr;             /* in task's memory */
	struct task *task;
	const struct task *owner;  /* compared only; who held the lock when we queued */
	_Atomic bool granted;
	bool queued;               /* (pi_mu) */
};

/* On the stack of the waiting sentry thread. */
struct futex_waiter {
	struct list node;
	struct futex_key key;
	struct task *task;
	uint32_t bitset;
	struct pi_waiter *pi; /* FUTEX_WAIT_REQUEUE_PI: only a requeue to pi->key ends the wait */
	struct futex_bucket *_Atomic bucket; /* where it is queued; NULL: dequeued by a wake-up */
};

/* futex_pi.c */
void futex_pi_init(void);
long futex_lock_pi(struct task *t, gaddr_t uaddr, bool shared, int64_t deadline_ns, bool try);
long futex_unlock_pi(struct task *t, gaddr_t uaddr, bool shared);
/* PI locks that the exiting @t still holds: handed over as owner-died. */
void futex_pi_exit(struct task *t);
long futex_wait_requeue_pi(struct task *t, gaddr_t uaddr, bool shared, uint32_t val,
			   int64_t deadline_ns, gaddr_t uaddr2);
long futex_cmp_requeue_pi(struct task *t, gaddr_t u1, bool shared, int nwake, int nmove, gaddr_t u2,
			  uint32_t cmpval);
/* The robust-list entry of a PI futex whose owner @t dies. */
void futex_pi_owner_died(struct task *t, gaddr_t uaddr);

/* futex_robust.c */
void futex_robust_exit(struct task *t);

/* futex.c */
long futex_wake(struct task *t, gaddr_t uaddr, bool shared, int n, uint32_t bitset);
long futex_wait(struct task *t, gaddr_t uaddr, bool shared, uint32_t val, int64_t deadline_ns,
		uint32_t bitset);

/* futex_waitv.c */
#define FUTEX_WAITV_MAX_G 128
struct l_futex_waitv {
	uint64_t val, uaddr;
	uint32_t flags, reserved;
};
long futex_wait_multiple(struct task *t, const struct l_futex_waitv *v, unsigned n,
			 int64_t deadline_ns);
void futex_waiter_queue(struct futex_waiter *w);
/* True when it was still queued. */
bool futex_waiter_dequeue(struct futex_waiter *w);
/* How often something was queued where @key hashes to. */
uint64_t futex_queue_count(const struct futex_key *key);
/*
 * Takes the first waiter for @key off its queue, if no queueing happened since *seen (NULL: don't care).
 * 1: *ret is it. 0: none. -EAGAIN: something was queued since. -EINVAL: it isn't a FUTEX_WAIT_REQUEUE_PI to
 * @to. Context: pi_mu held, which keeps *ret alive (its thread needs pi_mu to return).
 */
int futex_take_for_pi(const struct futex_key *key, const struct futex_key *to, const uint64_t *seen,
		      struct futex_waiter **ret);
/* A wake-up that @w took but doesn't want goes to the next waiter on the same word. */
void futex_pass_on(const struct futex_waiter *w);

#endif
