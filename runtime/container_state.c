// SPDX-License-Identifier: Apache-2.0
/*
 * Saving and loading a container and its sessions (sentry/state/state.h). The container of a load is made
 * beforehand, with what its launcher handed over (container_new()); the image fills in the guest's side.
 *
 * A session's client and waiter are of the host and not saved: a loaded one ends by itself
 * (container_restore.c), its terminal is read and dropped until somebody attaches.
 */
#include "runtime/container_state.h"

#include "base/alloc.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/kernel/ns.h"
#include "sentry/state/state.h"
#include "sentry/vfs/vfs_state.h"

#define SESSIONS_MAX 65536

static struct container *loading;

void container_load_into(struct container *c)
{
	loading = c;
}

/* ---- sessions ---- */

static void *session_alloc(struct state *s)
{
	struct session *ses = kzalloc(sizeof(*ses));

	(void)s;
	list_init(&ses->node);
	ses->container = loading;
	return ses;
}

static void session_fields(struct state *s, void *obj)
{
	struct session *ses = obj;

	state_u32(s, &ses->number);
	state_ref(s, &state_task, &ses->leader);
	console_fields(s, &ses->console);
	if (!ses->leader)
		state_fail(s, "a session without a process");
}

const struct state_type state_session = {
	.id = STATE_SESSION,
	.version = 2, /* 2: scrollback of consoles */
	.name = "session",
	.alloc = session_alloc,
	.fields = session_fields,
	.phase = 7,
};

/* ---- the container ---- */

static void *container_alloc(struct state *s)
{
	struct container *c = loading;

	if (!c)
		state_fail(s, "no container is being made");
	else if (c->ns || c->init)
		state_fail(s, "two containers");
	return state_ok(s) ? c : NULL;
}

static void sessions_fields(struct state *s, struct container *c)
{
	struct session *ses;
	uint32_t n = 0;

	list_for_each(ses, &c->sessions, node)
		n++;
	n = state_count(s, n, SESSIONS_MAX);
	if (!state_loading(s)) {
		list_for_each(ses, &c->sessions, node)
			state_ptr(s, &state_session, &ses);
		return;
	}
	while (n-- && state_ok(s)) {
		state_ptr(s, &state_session, &ses);
		if (!ses || !list_empty(&ses->node)) {
			state_fail(s, "a session twice");
			return;
		}
		list_add_tail(&c->sessions, &ses->node);
	}
}

static void container_fields(struct state *s, void *obj)
{
	struct container *c = obj;
	uint32_t made = c->sessions_made;

	state_ref(s, &state_nsproxy, &c->ns);
	state_ref(s, &state_userns, &c->userns);
	state_path(s, &c->root);
	state_ref(s, &state_super_devpts, &c->devpts);
	state_ref(s, &state_seccomp, &c->seccomp);
	state_bool(s, &c->started);
	state_u32(s, &made);
	c->sessions_made = made;
	state_ptr(s, &state_session, &c->init);
	sessions_fields(s, c);
	if (!c->ns || !c->userns || !c->init || !c->root.dentry || !c->root.mnt)
		state_fail(s, "a container without namespaces, root or first process");
}

static void container_finish(struct state *s, void *obj)
{
	struct container *c = obj;

	if (!list_empty(&c->init->node))
		state_fail(s, "a first process that `exec` has started");
	else if (c->init->console)
		console_bind(c, console_tty(c->init->console));
}

const struct state_type state_container = {
	.id = STATE_CONTAINER,
	.version = 1,
	.name = "container",
	.alloc = container_alloc,
	.fields = container_fields,
	.finish = container_finish,
	.phase = 7,
};
