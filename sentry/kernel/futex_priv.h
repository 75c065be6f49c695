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

/* On the stack of the waiting sentry thread. */
struct futex_waiter {
	struct list node;
	struct futex_key key;
	struct task *task;
	uint32_t bitset;
	struct futex_bucket *_Atomic bucket; /* where it is queued; NULL: dequeued by a wake-up */
};

/* futex_pi.c */
void futex_pi_init(void);
long futex_lock_pi(struct task *t, gaddr_t uaddr, bool shared, int64_t deadline_ns, bool try);
long futex_unlock_pi(struct task *t, gaddr_t uaddr, bool shared);
/* PI locks that the exiting @t still holds: handed over as owner-died. */
void futex_pi_exit(struct task *t);
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
/* A wake-up that @w took but doesn't want goes to the next waiter on the same word. */
void futex_pass_on(const struct futex_waiter *w);

#endif
