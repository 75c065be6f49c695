// SPDX-License-Identifier: Apache-2.0
/* The table of all types by number. */
#include "sentry/state/state_priv.h"

/* Weak: a unit test links what it needs, and reads an unknown type like any reader of an old release. */
#define WEAK(name) extern const struct state_type state_##name __weak;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
STATE_TYPES(WEAK)
#pragma GCC diagnostic pop

#define POINTER(name) &state_##name,
static const struct state_type *const all[] = { STATE_TYPES(POINTER) };

const struct state_type *state_type_find(unsigned id)
{
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (all[i] && all[i]->id == id)
			return all[i];
	return NULL;
}
