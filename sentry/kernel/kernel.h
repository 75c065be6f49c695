// SPDX-License-Identifier: Apache-2.0
/* The one sentry of this process: global tables, limits, and what started it. */
#ifndef SENTRY_KERNEL_KERNEL_H
#define SENTRY_KERNEL_KERNEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"
#include "base/mutex.h"
#include "sentry/kernel/pid.h"

struct task;
struct cred;

struct kernel_limits {
	unsigned possible_tasks;   /* what our descriptors allow: max_tasks is never more */
	unsigned max_tasks;        /* threads of the sandbox, all namespaces: fork fails with EAGAIN */
	uint64_t max_memory;       /* bytes of pages in mfiles; the host holds us to it; 0: none */
	uint64_t host_memory;      /* of the machine: what one mapping may not exceed; 0: not known */
	unsigned max_files;        /* open file descriptions in all: ENFILE */
	unsigned ncpus;            /* shown to the guest */
	uint64_t cpu_quota_us;     /* in each period; 0: none. The host's control group enforces it */
	uint64_t cpu_period_us;
};

struct kernel {
	struct mutex tasks_mu;     /* RANK_TASKS: process tree, pid tables, groups, sessions, tracing */
	struct pidns *init_pidns;
	_Atomic unsigned ntasks;   /* live tasks */
	_Atomic uint64_t nforks;   /* for /proc/stat */
	struct list all_tasks;     /* (tasks_mu) of task.all_node: every task that isn't released */
	struct cond tasks_cond;    /* (tasks_mu) a task exited, exec'ed or was released */
	struct kernel_limits limits; /* changed by `update`: word by word, read without a lock */
	int64_t boot_realtime_ns;  /* CLOCK_REALTIME when CLOCK_BOOTTIME was 0 */
	bool strace;               /* --strace */
	char boot_id[37];
	const char *release, *version; /* uname */
};

extern struct kernel kernel;

#define KERNEL_SYSNAME "Linux"
#define KERNEL_RELEASE "6.12.0-holdfast"
#define KERNEL_VERSION "#1 SMP PREEMPT_DYNAMIC holdfast"
#define KERNEL_MACHINE "x86_64"

/* Once, before anything else of the sentry. */
void kernel_init(const struct kernel_limits *limits);

/* Random bytes for the guest and for ourselves (host getrandom, never fails). */
void kernel_random(void *buf, size_t len);

/* Called when the last task of the init pid namespace is gone. Set by runtime/. */
extern void (*kernel_on_idle)(void);

#endif
