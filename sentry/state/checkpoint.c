// SPDX-License-Identifier: Apache-2.0
/* See checkpoint.h. */
#include "sentry/state/checkpoint.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/fp_state.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/kernel_state.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/mm/mm_state.h"
#include "sentry/state/state_priv.h"
#include "sentry/vfs/vfs_state.h"

#define TRACER_TRIES 50
static const struct timespec tracer_time = { .tv_nsec = 10000000 };

/* Roots, in this order. */
enum { ROOT_KERNEL, ROOT_VFS, ROOT_CONTAINER };

static int64_t host_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts); /* host: clock_gettime */
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/*
 * A tracee that has stopped in the middle of a call can't be saved. Its tracer mostly lets it go on at once
 * (strace -f at each fork), so that is waited for: some more tries, far apart for a guest to get something done.
 */
static int freeze_between_stops(struct checkpoint *c)
{
	for (int tries = TRACER_TRIES;; tries--) {
		int r;

		c->frozen_at = host_now();
		r = kernel_freeze();
		if (r < 0 || tries == 0 || !ptrace_any_unsavable())
			return r;
		kernel_thaw();
		nanosleep(&tracer_time, NULL); /* host: clock_nanosleep */
	}
}

static int freeze(struct checkpoint *c, char **ret_why)
{
	int r = freeze_between_stops(c);
	const char *who = kernel_freeze_culprit();

	if (r == -ETIMEDOUT)
		*ret_why = kasprintf("process %s does not stop", *who ? who : "of the sandbox's own");
	else if (r < 0)
		*ret_why = kstrdup("another checkpoint is being taken");
	return r;
}

static int save_objects(struct checkpoint *c, enum state_purpose purpose, void *container,
			struct state_pages *pages, char **ret_why)
{
	int r = mm_freeze_all();

	if (r == 0)
		r = tmpfs_freeze();
	if (r < 0) {
		mm_freeze_done();
		*ret_why = kasprintf("no memory: %s", strerror(-r));
		return r;
	}
	c->state = state_saver(purpose, pages);
	state_add_root(c->state, &state_kernel, &kernel);
	state_add_root(c->state, &state_vfs, &vfs_globals);
	state_add_root(c->state, &state_container, container);
	r = state_save(c->state, &c->objects, &c->objects_len);
	mm_freeze_done();
	if (r == 0) {
		c->nobjects = state_objects(c->state);
		return 0;
	}
	*ret_why = kstrdup(state_why(c->state));
	return -EOPNOTSUPP;
}

int checkpoint_take(struct checkpoint *c, enum state_purpose purpose, void *container, bool stay,
		    struct state_pages *pages, char **ret_why)
{
	int r;

	memset(c, 0, sizeof(*c));
	c->pages = pages;
	fp_state_prepare();
	r = freeze(c, ret_why);
	if (r < 0)
		return r;
	r = save_objects(c, purpose, container, pages, ret_why);
	if (r < 0 || !stay)
		checkpoint_thaw(c);
	return r;
}

void checkpoint_thaw(struct checkpoint *c)
{
	kernel_thaw();
	c->pause_ns = host_now() - c->frozen_at;
}

void checkpoint_fini(struct checkpoint *c)
{
	state_end(c->state);
	pages_release(c->pages);
	memset(c, 0, sizeof(*c));
}

void *checkpoint_load(enum state_purpose purpose, const void *objects, size_t len,
		      struct state_pages *pages, char **ret_why)
{
	struct state *s = state_loader(purpose, pages, objects, len, NULL);
	void *container = NULL;

	if (state_load(s) == 0 && state_root(s, ROOT_KERNEL, &state_kernel) &&
	    state_root(s, ROOT_VFS, &state_vfs))
		container = state_root(s, ROOT_CONTAINER, &state_container);
	if (!container) {
		*ret_why = kstrdup(state_why(s) ? state_why(s) : "it is not of a sandbox");
		return NULL; /* half of a sandbox is left, and the process ends */
	}
	state_end(s);
	pages_prefetch(pages);
	pages_release(pages);
	return container;
}
