// SPDX-License-Identifier: Apache-2.0
/* poll(2), select(2): waiting for several files at once. */
#ifndef SENTRY_VFS_POLL_H
#define SENTRY_VFS_POLL_H

#include <stdint.h>

#include "sentry/kernel/waitq.h"

struct task;
struct file;

/* One file of a set. The engine adds EPOLLERR and EPOLLHUP to what is asked for. */
struct poll_ent {
	struct file *file;  /* reference; NULL: entry is skipped */
	uint32_t events;    /* wanted */
	uint32_t revents;   /* out */
	struct waitq *wq;   /* engine's own, as is @w */
	struct waiter w;
};

#define POLL_STACK_ENTRIES 6 /* sets up to here need no heap */

/*
 * Waits until one of the @n entries is ready or @deadline_ns (guest CLOCK_MONOTONIC; 0: just look;
 * DEADLINE_NONE) has passed. @ready: entries that have an answer already (POLLNVAL): no waiting if > 0.
 * Number of entries with revents != 0 (@ready included), or -ERESTARTSYS.
 */
long poll_wait(struct task *t, struct poll_ent *ents, unsigned n, long ready, int64_t deadline_ns);
/* Drops the references. */
void poll_put(struct poll_ent *ents, unsigned n);

#endif
