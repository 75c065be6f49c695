// SPDX-License-Identifier: Apache-2.0
/*
 * What guests make the sentry's own heap hold: bytes under way in pipes, sockets and queues, names and
 * attributes of files, mappings. Guest pages are not in it, they are in memory files with a limit of their
 * own (sentry/kernel/oom.c). Together the two bound what a sandbox makes the host hold: the memory limit and
 * KMEM_SHARE of it, beside what is there for each task and each open file, whose numbers are limited.
 *
 * One relaxed addition for each buffer that is allocated or freed, not for each transfer. Every charge has
 * its uncharge where the object is freed.
 */
#ifndef SENTRY_KERNEL_KMEM_H
#define SENTRY_KERNEL_KMEM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define KMEM_SHARE 4               /* a quarter of the memory limit ... */
#define KMEM_MIN (64ULL << 20)     /* ... but not less than this */
#define KMEM_MAX (4ULL << 30)      /* ... nor more */
#define KMEM_INODE 1024            /* an inode, its file, its name */

extern _Atomic uint64_t kmem_used;
extern uint64_t kmem_limit; /* (c) after kmem_init(); 0: none (unit tests) */

void kmem_init(uint64_t max_memory);

/* For objects that are made in any case; kmem_full() says beforehand that there should be no more. */
static inline void kmem_add(size_t n)
{
	atomic_fetch_add_explicit(&kmem_used, n, memory_order_relaxed);
}

static inline void kmem_uncharge(size_t n)
{
	atomic_fetch_sub_explicit(&kmem_used, n, memory_order_relaxed);
}

static inline bool kmem_below(size_t n, uint64_t limit)
{
	if (atomic_fetch_add_explicit(&kmem_used, n, memory_order_relaxed) + n <= limit || !limit)
		return true;
	kmem_uncharge(n);
	return false;
}

/* False, and nothing charged, at the limit: ENOMEM, ENOBUFS or ENOSPC for the guest. */
static inline bool __must_check kmem_charge(size_t n)
{
	return kmem_below(n, kmem_limit);
}

/* For what stays: it leaves a part to what comes and goes, or a directory full of files stops every pipe. */
static inline bool __must_check kmem_charge_lasting(size_t n)
{
	return kmem_below(n, kmem_limit - kmem_limit / 4);
}

static inline bool kmem_full(void)
{
	return kmem_limit && atomic_load_explicit(&kmem_used, memory_order_relaxed) >= kmem_limit;
}

#endif
