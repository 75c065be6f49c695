// SPDX-License-Identifier: Apache-2.0
/*
 * The kernel's own record, which is the first object of every image: what the CPU must have, clocks, the
 * initial namespaces, limits that root may set, and the list of processes. And the start of a loaded sandbox.
 *
 * Not saved: limits that come from the sandbox's configuration, and secrets: boot id, random numbers.
 */
#include "sentry/kernel/kernel_state.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "sentry/kernel/fp_state.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/generation.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/sysv.h"
#include "sentry/time/clock.h"
#include "sentry/time/cputimer.h"
#include "sentry/time/itimer.h"
#include "sentry/time/posix_timer.h"

#define GROUPS_MAX 1000000u

static struct container *loaded_container;

void kernel_load_begin(struct container *c)
{
	loaded_container = c;
	freeze_from_start();
}

struct container *kernel_loaded_container(void)
{
	return loaded_container;
}

/* ---- the record ---- */

static void *kernel_alloc(struct state *s)
{
	(void)s;
	return &kernel;
}

static void initial_fields(struct state *s)
{
	struct userns *u = &init_userns;
	struct pidns *p = kernel.init_pidns;
	uint64_t inum = ns_inum_next_is(), nforks = atomic_load(&kernel.nforks);

	state_ptr(s, &state_userns, &u);
	state_ptr(s, &state_pidns, &p);
	state_u64(s, &inum);
	state_u64(s, &nforks);
	if (!state_loading(s))
		return;
	if (u != &init_userns || p != kernel.init_pidns)
		state_fail(s, "not the initial namespaces");
	ns_set_next_inum(inum);
	atomic_store(&kernel.nforks, nforks);
}

static void limit_fields(struct state *s)
{
	_Atomic int64_t *v[] = { &sysv_limits.msgmax, &sysv_limits.msgmnb, &sysv_limits.msgmni,
				 &sysv_limits.shmmni, &sysv_limits.shmmax, &sysv_limits.shmall };

	for (unsigned i = 0; i < ARRAY_SIZE(v); i++) {
		int64_t x = atomic_load(v[i]);

		state_range_i64(s, &x, 0, INT64_MAX);
		atomic_store(v[i], x);
	}
}

/* Every process that isn't released; when loading they enter their tables by themselves. */
static void group_fields(struct state *s)
{
	struct tgroup *tg = NULL;
	struct task *t;
	uint32_t n = 0;

	if (state_loading(s)) {
		n = state_count(s, 0, GROUPS_MAX);
		while (n-- && state_ok(s))
			state_ptr(s, &state_tgroup, &tg);
		return;
	}
	list_for_each(t, &kernel.all_tasks, all_node)
		n += t->tg->leader == t;
	(void)state_count(s, n, GROUPS_MAX);
	list_for_each(t, &kernel.all_tasks, all_node)
		if (t->tg->leader == t)
			state_ptr(s, &state_tgroup, &t->tg);
}

static void kernel_fields(struct state *s, void *obj)
{
	(void)obj;
	initial_fields(s); /* first: see kernel/ns_state.c */
	state_cpu_features(s);
	clock_fields(s);
	limit_fields(s);
	generation_fields(s);
	group_fields(s);
}

const struct state_type state_kernel = {
	.id = STATE_KERNEL,
	.version = 1,
	.name = "kernel",
	.alloc = kernel_alloc,
	.fields = kernel_fields,
};

/* ---- the start of what was loaded ---- */

/* References to all tasks, as what is done with them needs tasks_mu free. Heap; *ret_n of them. */
static struct task **all_tasks(unsigned *ret_n)
{
	struct task **v, *t;
	unsigned n = 0;
	AUTO_LOCK(&kernel.tasks_mu);

	list_for_each(t, &kernel.all_tasks, all_node)
		n++;
	v = kcalloc(n + 1, sizeof(struct task *));
	n = 0;
	list_for_each(t, &kernel.all_tasks, all_node)
		v[n++] = task_get(t);
	*ret_n = n;
	return v;
}

static void resume_timers(struct tgroup *tg)
{
	posix_timers_resume(tg);
	itimers_resume(tg);
	cputimer_rlimit_changed(tg);
}

int kernel_resume_loaded(void)
{
	unsigned n = 0;
	struct task **v = all_tasks(&n);
	int r = 0;

	for (unsigned i = 0; i < n; i++)
		if (v[i]->tg->leader == v[i] && !v[i]->tg->zombie)
			resume_timers(v[i]->tg);
	generation_announce();
	for (unsigned i = 0; i < n; i++) {
		if (r == 0 && atomic_load(&v[i]->state) == TASK_RUNNING)
			r = task_start_thread(v[i]);
		task_put(v[i]);
	}
	free(v);
	return r;
}
