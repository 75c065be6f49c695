// SPDX-License-Identifier: Apache-2.0
/*
 * The sentry as a whole: the one struct kernel, its start, and random numbers.
 *
 * kernel_init() comes before everything else of the sentry, since the other parts' init functions may
 * already look at the limits.
 */
#include "sentry/kernel/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/generation.h"
#include "sentry/kernel/kmem.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/snapshot_request.h"
#include "sentry/kernel/task.h"
#include "sentry/time/clock.h"

struct kernel kernel;
void (*kernel_on_idle)(void);
void (*task_syscall_entry)(struct task *t);

/* A random (version 4) UUID, fresh for each sentry: a restored or branched sandbox has another one. */
static void make_boot_id(char out[37])
{
	uint8_t b[16];
	size_t n = 0;

	kernel_random(b, sizeof(b));
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	for (unsigned i = 0; i < sizeof(b); i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			out[n++] = '-';
		snprintf(out + n, 3, "%02x", b[i]);
		n += 2;
	}
	out[36] = 0;
}

/* Once, single-threaded. The clocks need not run yet: boot_realtime_ns is filled in by clock_init's
 * caller when it is still zero. */
void kernel_init(const struct kernel_limits *limits)
{
	mutex_init(&kernel.tasks_mu, RANK_TASKS);
	freeze_init();
	generation_init();
	snapshot_request_init();
	list_init(&kernel.all_tasks);
	cond_init(&kernel.tasks_cond);
	kernel.limits = *limits;
	kmem_init(limits->max_memory);
	if (!kernel.limits.ncpus)
		kernel.limits.ncpus = 1;
	if (!kernel.limits.max_tasks)
		kernel.limits.max_tasks = 32768;
	if (!kernel.limits.max_files)
		kernel.limits.max_files = 1024 * 1024;
	kernel.release = KERNEL_RELEASE;
	kernel.version = KERNEL_VERSION;
	make_boot_id(kernel.boot_id);
	mutex_init(&init_userns.mu, RANK_NS);
	kernel.init_pidns = pidns_create(NULL, &init_userns);
}

void kernel_random(void *buf, size_t len)
{
	uint8_t *p = buf;

	while (len) {
		ssize_t n = getrandom(p, len, 0); /* host: getrandom */

		if (n < 0) {
			if (errno == EINTR)
				continue;
			panic("getrandom: %s", strerror(errno));
		}
		p += n;
		len -= (size_t)n;
	}
}
