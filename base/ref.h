// SPDX-License-Identifier: Apache-2.0
/*
 * Reference counts. An object embeds a struct ref and offers x_get() (returns its argument) and
 * x_put() (takes NULL; runs the destructor on the last put). A count that would wrap saturates:
 * the object leaks, which is harmless, instead of being freed under its users.
 */
#ifndef BASE_REF_H
#define BASE_REF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"

#define REF_SATURATED (INT32_MAX / 2)

struct ref {
	_Atomic int32_t count;
};

static inline void ref_init(struct ref *r)
{
	atomic_store_explicit(&r->count, 1, memory_order_relaxed);
}

static inline void ref_get(struct ref *r)
{
	int32_t old = atomic_fetch_add_explicit(&r->count, 1, memory_order_relaxed);

	if (old <= 0)
		panic("reference taken on a dead object");
	if (old >= REF_SATURATED)
		atomic_store_explicit(&r->count, REF_SATURATED, memory_order_relaxed);
}

/* Takes a reference unless the count is zero already (lookup in a table without ownership). */
static inline bool ref_get_unless_zero(struct ref *r)
{
	int32_t old = atomic_load_explicit(&r->count, memory_order_relaxed);

	do {
		if (old == 0)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&r->count, &old, old + 1,
							memory_order_acquire,
							memory_order_relaxed));
	return true;
}

/* Drops a reference; true when it was the last one and the caller must destroy the object. */
static inline bool ref_put(struct ref *r)
{
	int32_t old = atomic_load_explicit(&r->count, memory_order_relaxed);

	if (old >= REF_SATURATED)
		return false;
	old = atomic_fetch_sub_explicit(&r->count, 1, memory_order_acq_rel);
	if (old <= 0)
		panic("reference count underflow");
	return old == 1;
}

static inline int32_t ref_count(const struct ref *r)
{
	return atomic_load_explicit(&r->count, memory_order_relaxed);
}

#endif
