// SPDX-License-Identifier: Apache-2.0
/*
 * Limits inside the sandbox. The guest sees them in /proc/meminfo, /sys/fs/cgroup, nproc and
 * sched_getaffinity(2); the numbers are read wherever they are used, so a change works at once. Memory has
 * two halves: the size of the tmpfs that holds every page, which `update` changes from the host's side
 * (runtime/memlimit.c), and what the sentry knows of it, which is here.
 */
#include "runtime/limits.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "runtime/oom_event.h"
#include "sentry/kernel/kmem.h"

#define MAX_TASKS_DEFAULT 8192
#define FDS_PER_PROCESS 3 /* of ours: a stub's socket, its memory file twice */
#define FDS_RESERVED 2048 /* for files, sockets, control connections */
#define MAX_FILES_DEFAULT 400000 /* of a sandbox with plenty of memory */
#define MAX_FILES_MIN 32768
#define FILE_SHARE 16384 /* bytes of the memory limit for each open file: they cost us 1 KiB */
#define CPU_PERIOD_DEFAULT 100000

/* Processes cost us descriptors: fork has to fail before we run out of them. */
static unsigned possible_tasks(void)
{
	struct rlimit l = { 0 };
	rlim_t n;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur == RLIM_INFINITY)
		return MAX_TASKS_DEFAULT;
	n = (l.rlim_cur - MIN(l.rlim_cur / 4, (rlim_t)FDS_RESERVED)) / FDS_PER_PROCESS;
	return (unsigned)MIN(n, (rlim_t)MAX_TASKS_DEFAULT);
}

/* CPUs that we may run on; the calling thread isn't bound to one of them. */
static unsigned host_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set)) /* host: sched_getaffinity */
		return 1;
	return (unsigned)MAX(CPU_COUNT(&set), 1);
}

static void set_tasks(struct kernel_limits *l, int64_t limit)
{
	l->max_tasks = limit > 0 ? (unsigned)MIN(limit, (int64_t)l->possible_tasks) : l->possible_tasks;
}

/* A quota is so many whole CPUs: programs start as many threads as they see. */
static void set_cpus(struct kernel_limits *l, int64_t quota, int64_t period)
{
	uint64_t whole;

	l->ncpus = host_cpus();
	l->cpu_quota_us = quota > 0 ? (uint64_t)quota : 0;
	l->cpu_period_us = period > 0 ? (uint64_t)period : CPU_PERIOD_DEFAULT;
	if (!l->cpu_quota_us)
		return;
	whole = (l->cpu_quota_us + l->cpu_period_us - 1) / l->cpu_period_us;
	l->ncpus = (unsigned)MIN((uint64_t)l->ncpus, MAX(whole, (uint64_t)1));
}

void limits_init(struct kernel_limits *l, const struct boot *b)
{
	struct sysinfo si;

	l->possible_tasks = possible_tasks();
	set_tasks(l, (int64_t)b->spec->pids_limit);
	set_cpus(l, (int64_t)b->spec->cpu_quota, (int64_t)b->spec->cpu_period);
	l->max_memory = (uint64_t)json_integer_value(json_object_get(b->json, "memory"));
	if (sysinfo(&si) == 0)
		l->host_memory = (uint64_t)si.totalram * si.mem_unit;
	l->max_files = (unsigned)MIN(MAX(l->max_memory / FILE_SHARE, (uint64_t)MAX_FILES_MIN),
				     (uint64_t)MAX_FILES_DEFAULT);
}

/* A value of the request; -1 when it doesn't say. */
static int64_t asked(const json_t *req, const char *key)
{
	const json_t *v = json_object_get(req, key);

	return json_is_integer(v) ? json_integer_value(v) : -1;
}

/* {memory, memory_limited, pids, quota, period, cpus}: each may be missing; 0 is no limit, except for memory, where
 * "memory_limited" says whether somebody asked for the number. */
void control_limits(struct control_request *r)
{
	int64_t memory = asked(r->json, "memory"), pids = asked(r->json, "pids");
	int64_t quota = asked(r->json, "quota"), period = asked(r->json, "period");
	struct kernel_limits *l = &kernel.limits;
	json_t *rep;

	if (r->c->sandbox)
		memory = pids = quota = period = -1; /* they are the sandbox's, and its own container's `update` */
	if (memory > 0) {
		l->max_memory = (uint64_t)memory;
		kmem_init((uint64_t)memory);
		oom_event_limited(json_is_true(json_object_get(r->json, "memory_limited")));
	}
	if (pids >= 0)
		set_tasks(l, pids);
	if (!r->c->sandbox && (quota >= 0 || period >= 0 || json_object_get(r->json, "cpus")))
		set_cpus(l, quota >= 0 ? quota : (int64_t)l->cpu_quota_us,
			 period > 0 ? period : (int64_t)l->cpu_period_us);
	rep = json_pack("{s:b}", "ok", 1);
	(void)control_send(r->sock, rep, NULL, 0); /* a client that has gone needs no answer */
	json_decref(rep);
}
