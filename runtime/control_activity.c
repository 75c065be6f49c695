// SPDX-License-Identifier: Apache-2.0
/*
 * The control request "activity", for the keeper: what differs between two answers when a task of the guest has
 * run in between. Counts that exist anyway, so that a sandbox pays for the question only when it is asked.
 *
 *   {op: activity}  ->  {ok, cpu_ns, forks, attended, running}
 *
 * cpu_ns is the time of the processes that live: it can shrink. attended: clients that follow a process or sit at
 * a terminal.
 */
#include "base/cleanup.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/pid.h"
#include "sentry/time/cputimer.h"

static struct task *leader_of(struct pid *p)
{
	AUTO_LOCK(&kernel.tasks_mu);

	return p->tgroup && p->tgroup->leader ? task_get(p->tgroup->leader) : NULL;
}

static int64_t cpu_of_all(void)
{
	int64_t sum = 0;
	struct pid *p;
	pid_t nr = 0;

	while ((p = pid_next(kernel.init_pidns, nr + 1))) {
		struct task *t = leader_of(p);

		nr = pid_nr(p, kernel.init_pidns);
		if (t)
			sum += tgroup_cpu_ns(t->tg, CPUTIMER_PROF);
		task_put(t);
		pid_put(p);
	}
	return sum;
}

void control_activity(struct control_request *r)
{
	struct container *c = r->c;
	unsigned attended = c->attended;
	bool running;
	int64_t ns;
	json_t *json;

	world_enter();
	ns = cpu_of_all();
	mutex_lock(&c->mu);
	running = c->started && !c->stopped && !c->frozen;
	if (c->init->console)
		attended += console_attended(c->init->console);
	mutex_unlock(&c->mu);
	world_leave();
	json = json_pack("{s:b, s:I, s:I, s:i, s:b}", "ok", 1, "cpu_ns", (json_int_t)ns, "forks",
			 (json_int_t)kernel.nforks, "attended", (int)attended, "running", running);
	(void)control_send(r->sock, json, NULL, 0); /* a client that has gone needs no answer */
	json_decref(json);
}
