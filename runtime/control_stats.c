// SPDX-License-Identifier: Apache-2.0
/*
 * The control request "stats": what `events` tells beside the host's counts. For a sandbox's first container that is
 * little, since the host counts the sandbox. Of the others only the sentry knows: it adds up what their
 * processes have used (as getrusage and RSS have it), so memory that processes share counts for each of them.
 */
#include "base/alloc.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/oom.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/mm.h"

struct used {
	unsigned threads;
	uint64_t cpu_ns, rss;
};

/* The container's leaders (heap; references), and how many threads it has. */
static struct task **leaders(const struct container *c, unsigned *ret_n, unsigned *ret_threads)
{
	struct task **v = NULL, *t;
	unsigned n = 0, threads = 0;
	AUTO_LOCK(&kernel.tasks_mu);

	list_for_each(t, &kernel.all_tasks, all_node) {
		if (!container_owns(c, t->tg))
			continue;
		threads++;
		if (t != t->tg->leader)
			continue;
		v = krealloc_array(v, n + 1, sizeof(struct task *));
		v[n++] = task_get(t);
	}
	*ret_n = n;
	*ret_threads = threads;
	return v;
}

static void add(struct used *u, struct task *leader)
{
	struct mm *mm = task_mm_get(leader);
	struct task_usage own, children;
	struct mm_stat st;

	tgroup_usage_get(leader->tg, &own);
	mutex_lock(&kernel.tasks_mu);
	children = leader->tg->child_usage;
	mutex_unlock(&kernel.tasks_mu);
	u->cpu_ns += own.utime_ns + own.stime_ns + children.utime_ns + children.stime_ns;
	if (!mm)
		return;
	mm_stat(mm, &st);
	u->rss += st.rss;
	mm_put(mm);
}

static struct used add_up(const struct container *c)
{
	struct used u = { 0 };
	struct task **v;
	unsigned n;

	world_enter();
	v = leaders(c, &n, &u.threads);
	for (unsigned i = 0; i < n; i++) {
		if (c->sandbox)
			add(&u, v[i]);
		task_put(v[i]);
	}
	world_leave();
	free(v);
	return u;
}

void control_stats(struct control_request *r)
{
	struct used u = add_up(r->c);
	uint64_t total = 0, left = 0;
	json_t *rep;

	(void)mfile_space(&total, &left); /* without an answer both are 0 */
	rep = json_pack("{s:b, s:I, s:I, s:I, s:I, s:I}", "ok", 1, "pids", (json_int_t)u.threads, "pids_limit",
			(json_int_t)kernel.limits.max_tasks, "memory", (json_int_t)(total - left), "memory_limit",
			(json_int_t)kernel.limits.max_memory, "oom_kills", (json_int_t)oom_kills());
	if (r->c->sandbox)
		json_object_set_new(rep, "own", json_pack("{s:I, s:I}", "cpu_ns", (json_int_t)u.cpu_ns, "memory",
							  (json_int_t)u.rss));
	(void)control_send(r->sock, rep, NULL, 0); /* a client that has gone needs no answer */
	json_decref(rep);
}
