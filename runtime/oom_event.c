// SPDX-License-Identifier: Apache-2.0
/* See oom_event.h. */
#include "runtime/oom_event.h"

#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>

#include "base/compiler.h"
#include "runtime/cgroup_priv.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/oom.h"

#define CHUNK  (32u << 20)
#define PAGE   4096u
#define EXCESS (256LL << 20) /* what a group may hold beyond its limit, counted lazily */

static _Atomic bool unlimited; /* since an update */

void oom_event_limited(bool limited)
{
	unlimited = !limited;
}

static bool wanted(const struct container *c)
{
	return json_is_true(json_object_get(c->boot->json, "oom_event")) && !unlimited && oom_kills() &&
	       container_exit_code(c->exit_status) == 128 + SIGKILL;
}

void oom_event_raise(const struct container *c)
{
	int64_t left = cgroup_host_memory((int64_t)kernel.limits.max_memory) + EXCESS;

	if (!wanted(c))
		return;
	for (; left > 0; left -= CHUNK) {
		/* host: mmap, madvise. Huge pages make it short */
		volatile char *p = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (p == MAP_FAILED)
			return;
		(void)madvise((void *)(uintptr_t)p, CHUNK, MADV_HUGEPAGE); /* or small ones */
		for (size_t i = 0; i < CHUNK; i += PAGE)
			p[i] = 1;
	}
}
