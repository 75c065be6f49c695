// SPDX-License-Identifier: Apache-2.0
/*
 * Guest addresses: a struct, so that no compiler lets one be dereferenced, mixed with a host
 * pointer or passed where a length belongs. Only sentry/mm/ and platform/ spell .va (make lint
 * checks it); everyone else goes through the helpers here and through sentry/mm/usermem.h.
 */
#ifndef BASE_GADDR_H
#define BASE_GADDR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

typedef struct {
	uint64_t va;
} gaddr_t;

#define GADDR_NULL ((gaddr_t){ 0 })

static inline gaddr_t gaddr(uint64_t va)
{
	return (gaddr_t){ va };
}

/* For printing, comparing with registers and putting into guest structures. */
static inline uint64_t gaddr_u64(gaddr_t a)
{
	return a.va;
}

static inline bool gaddr_is_null(gaddr_t a)
{
	return a.va == 0;
}

/* a + n without a check: for offsets inside an object whose size is known and small; a wrapped
 * address fails in copyin/copyout like any other bad one. */
static inline gaddr_t gaddr_off(gaddr_t a, uint64_t n)
{
	return (gaddr_t){ a.va + n };
}

/* a + n; false (and nothing written) when it wraps. */
static inline bool __must_check gaddr_add(gaddr_t a, uint64_t n, gaddr_t *ret)
{
	uint64_t v;

	if (__builtin_add_overflow(a.va, n, &v))
		return false;
	ret->va = v;
	return true;
}

static inline bool gaddr_eq(gaddr_t a, gaddr_t b)
{
	return a.va == b.va;
}

#endif
