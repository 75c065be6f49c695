// SPDX-License-Identifier: Apache-2.0
/* Sizes and page arithmetic that can't wrap unnoticed. */
#ifndef BASE_SIZE_H
#define BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define PAGE_SHIFT 12
#define PAGE_SIZE 4096UL
#define PAGE_MASK (~(PAGE_SIZE - 1))

static inline uint64_t page_down(uint64_t v)
{
	return v & PAGE_MASK;
}

/* Rounds up; wraps to 0 at the very top, which callers must treat as an overflow. */
static inline uint64_t page_up(uint64_t v)
{
	return (v + PAGE_SIZE - 1) & PAGE_MASK;
}

static inline bool page_aligned(uint64_t v)
{
	return (v & (PAGE_SIZE - 1)) == 0;
}

/* True when it overflowed. */
static inline bool __must_check size_add(size_t a, size_t b, size_t *ret)
{
	return __builtin_add_overflow(a, b, ret);
}

static inline bool __must_check size_mul(size_t a, size_t b, size_t *ret)
{
	return __builtin_mul_overflow(a, b, ret);
}

#endif
