// SPDX-License-Identifier: Apache-2.0
/* The account of kmem.h. */
#include "sentry/kernel/kmem.h"

#include "base/size.h"

_Atomic uint64_t kmem_used;
uint64_t kmem_limit;

void kmem_init(uint64_t max_memory)
{
	uint64_t n = MAX(max_memory / KMEM_SHARE, KMEM_MIN);

	kmem_limit = max_memory ? MIN(n, KMEM_MAX) : 0;
}
