// SPDX-License-Identifier: Apache-2.0
/*
 * Robust futex lists (man 2 set_robust_list): when a thread exits or execs, each lock on its list that it
 * still owns is marked FUTEX_OWNER_DIED and a waiter is woken. The list is guest memory: it is walked with a
 * limit, and the walk ends quietly at the first fault.
 */
#include <linux/futex.h>
#include <stdbool.h>

#include "sentry/kernel/futex.h"
#include "sentry/kernel/futex_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/usermem.h"

struct l_robust_list_head {
	uint64_t next;
	int64_t futex_offset;
	uint64_t list_op_pending;
};
_Static_assert(sizeof(struct l_robust_list_head) == 24, "robust_list_head is 24 bytes");

/* 0, or -1: stop walking. */
static int owner_died(struct task *t, gaddr_t uaddr, bool pi, bool pending)
{
	uint32_t word, new, seen, tid = (uint32_t)task_tid(t);

	if (gaddr_u64(uaddr) % 4 || user_load32(t, uaddr, &word) < 0)
		return -1;
	/* unlocked in user space, but killed before it could wake a waiter */
	if (pending && !pi && word == 0) {
		(void)futex_wake(t, uaddr, true, 1, FUTEX_BITSET_MATCH_ANY);
		return 0;
	}
	if ((word & FUTEX_TID_MASK_G) != tid)
		return 0;
	if (pi) {
		futex_pi_owner_died(t, uaddr);
		return 0;
	}
	for (;;) {
		new = (word & FUTEX_WAITERS_G) | FUTEX_OWNER_DIED_G;
		if (user_cmpxchg32(t, uaddr, word, new, &seen) < 0)
			return -1;
		if (seen == word)
			break;
		if ((seen & FUTEX_TID_MASK_G) != tid)
			return 0;
		word = seen;
	}
	if (word & FUTEX_WAITERS_G)
		(void)futex_wake(t, uaddr, true, 1, FUTEX_BITSET_MATCH_ANY);
	return 0;
}

/* Bit 0 of a link says that the lock is a PI futex. */
static gaddr_t lock_word(uint64_t link, int64_t offset)
{
	return gaddr((link & ~1ULL) + (uint64_t)offset);
}

void futex_robust_exit(struct task *t)
{
	gaddr_t head_addr = t->robust_list;
	struct l_robust_list_head head;
	uint64_t link, next;
	unsigned left = ROBUST_LIST_LIMIT;

	t->robust_list = GADDR_NULL;
	if (gaddr_is_null(head_addr) || copyin_obj(t, &head, head_addr) < 0)
		return;
	for (link = head.next; (link & ~1ULL) != gaddr_u64(head_addr) && left; left--) {
		/* read before the lock is given up: its new owner may unlink it */
		bool more = copyin_obj(t, &next, gaddr(link & ~1ULL)) == 0;

		if (link != head.list_op_pending &&
		    owner_died(t, lock_word(link, head.futex_offset), link & 1, false) < 0)
			return;
		if (!more)
			return;
		link = next;
	}
	if (head.list_op_pending)
		(void)owner_died(t, lock_word(head.list_op_pending, head.futex_offset),
				 head.list_op_pending & 1, true);
}
