// SPDX-License-Identifier: Apache-2.0
/* The generation counter. It changes only while nothing of the guest runs. */
#include "sentry/kernel/generation.h"

#include <sys/epoll.h>

#include "sentry/kernel/waitq.h"
#include "sentry/state/state.h"

static uint64_t generation = 1;
static struct waitq wq;

void generation_init(void)
{
	waitq_init(&wq);
}

uint64_t generation_get(void)
{
	return generation;
}

struct waitq *generation_waitq(void)
{
	return &wq;
}

void generation_announce(void)
{
	waitq_wake(&wq, EPOLLPRI | EPOLLERR);
}

void generation_fields(struct state *s)
{
	state_u64(s, &generation);
	if (state_loading(s))
		generation++;
}
