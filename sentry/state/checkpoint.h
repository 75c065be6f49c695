// SPDX-License-Identifier: Apache-2.0
/*
 * Taking a checkpoint of the sandbox and loading one: the steps in their order. What the bytes are then
 * wrapped in, and who they are sent to, is the runtime's.
 */
#ifndef SENTRY_STATE_CHECKPOINT_H
#define SENTRY_STATE_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "sentry/state/pages.h"
#include "sentry/state/state.h"

struct checkpoint {
	struct state *state;       /* owned */
	struct state_pages *pages; /* owned */
	const void *objects;       /* borrowed from state */
	size_t objects_len;
	uint32_t nobjects;
	int64_t pause_ns;          /* how long the guest stood still; 0 while it still does */
	int64_t frozen_at;         /* CLOCK_MONOTONIC of the host */
};

/*
 * Freezes the sandbox, saves every object, thaws it (unless @stay: then checkpoint_thaw() does, or the process
 * ends). @container: of type state_container. 0, or -errno with *ret_why (heap) and the sandbox running.
 * Context: a service thread outside of the world (world_enter()).
 */
int checkpoint_take(struct checkpoint *c, enum state_purpose purpose, void *container, bool stay,
		    struct state_pages *pages, char **ret_why);
void checkpoint_thaw(struct checkpoint *c);
/* Frees what it holds; pages too. */
void checkpoint_fini(struct checkpoint *c);

/*
 * Loads all objects into this sentry, in which there is nothing yet; the sandbox is frozen when it returns,
 * kernel_thaw() lets it go. The container (borrowed, lives on), or NULL with *ret_why (heap): then the process
 * must end. @pages is taken over.
 */
void *checkpoint_load(enum state_purpose purpose, const void *objects, size_t len,
		      struct state_pages *pages, char **ret_why);

#endif
