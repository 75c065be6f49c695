// SPDX-License-Identifier: Apache-2.0
/* The generation counter. It changes only while nothing of the guest runs. */
#include "sentry/kernel/generation.h"

#include "sentry/state/state.h"

static uint64_t generation = 1;

uint64_t generation_get(void)
{
	return generation;
}

void generation_fields(struct state *s)
{
	state_u64(s, &generation);
	if (state_loading(s))
		generation++;
}
