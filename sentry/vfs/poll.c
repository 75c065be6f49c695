// SPDX-License-Identifier: Apache-2.0
/*
 * The engine of poll and select. What is ready at once is answered without touching a wait queue.
 *
 * Context: no locks held; the files' own locks are taken inside their poll functions.
 */
#include "sentry/vfs/poll.h"

#include <sys/epoll.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs.h"

/* Looks at every entry once. Number of entries that are ready. */
static long scan(struct poll_ent *ents, unsigned n)
{
	long count = 0;

	for (unsigned i = 0; i < n; i++) {
		struct poll_ent *e = &ents[i];

		if (!e->file)
			continue;
		e->revents = file_poll(e->file) & (e->events | EPOLLERR | EPOLLHUP);
		count += e->revents != 0;
	}
	return count;
}

static void enqueue(struct task *t, struct poll_ent *ents, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct poll_ent *e = &ents[i];

		e->wq = e->file ? file_waitq(e->file) : NULL;
		if (!e->wq)
			continue;
		waiter_init_task(&e->w, t, e->events | EPOLLERR | EPOLLHUP);
		waitq_add(e->wq, &e->w);
	}
}

static void dequeue(struct poll_ent *ents, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (ents[i].wq)
			waitq_remove(ents[i].wq, &ents[i].w);
}

long poll_wait(struct task *t, struct poll_ent *ents, unsigned n, long ready, int64_t deadline_ns)
{
	long count = scan(ents, n) + ready, r = 0;

	if (count || deadline_ns == 0)
		return count;
	enqueue(t, ents, n);
	for (;;) {
		task_sleep_prepare(t);
		count = scan(ents, n);
		if (count || r < 0)
			break;
		r = task_sleep(t, deadline_ns);
	}
	dequeue(ents, n);
	if (count || r == -ETIMEDOUT)
		return count;
	return r;
}

void poll_put(struct poll_ent *ents, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (ents[i].file)
			file_put(ents[i].file);
}
