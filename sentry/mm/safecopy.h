// SPDX-License-Identifier: Apache-2.0
/*
 * Memory copies that survive a fault. The sentry's mappings of guest memory can vanish below it (a
 * host file truncated by somebody else, no page left in the cgroup), which the host reports as
 * SIGBUS. These functions are written in assembly with a known range of addresses; the signal
 * handler sends a fault inside it to an error return.
 */
#ifndef SENTRY_MM_SAFECOPY_H
#define SENTRY_MM_SAFECOPY_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* Installs the SIGBUS/SIGSEGV handler; any other fault of the sentry panics. Once, at start. */
void safecopy_init(void);

/* Number of bytes NOT copied: 0 is success. */
size_t __must_check safecopy(void *dst, const void *src, size_t len);
size_t __must_check safezero(void *dst, size_t len);
/* Atomic 32-bit operations on guest memory (futex words). 0 or -EFAULT. */
int __must_check safe_load32(const uint32_t *p, uint32_t *ret);
/* *ret_old is what was there; the exchange happened if it equals @expect. */
int __must_check safe_cmpxchg32(uint32_t *p, uint32_t expect, uint32_t desired, uint32_t *ret_old);
int __must_check safe_swap32(uint32_t *p, uint32_t v, uint32_t *ret_old);

#endif
