// SPDX-License-Identifier: Apache-2.0
/* Network namespaces: so far names of unix sockets and a loopback device that is always up. */
#include "sentry/socket/netns.h"

#include "base/alloc.h"
#include "sentry/state/state.h"

struct netns *netns_create(struct userns *userns)
{
	struct netns *ns = kzalloc(sizeof(*ns));

	ref_init(&ns->ref);
	ns->userns = userns_get(userns);
	ns->inum = ns_next_inum();
	list_init(&ns->unix_socks);
	return ns;
}

struct netns *netns_get(struct netns *ns)
{
	ref_get(&ns->ref);
	return ns;
}

/* Sockets hold references, so the tables are empty when the last one goes. */
void netns_put(struct netns *ns)
{
	if (!ns || !ref_put(&ns->ref))
		return;
	userns_put(ns->userns);
	free(ns);
}

uint64_t netns_inum(const struct netns *ns)
{
	return ns->inum;
}

struct userns *netns_userns(const struct netns *ns)
{
	return ns->userns;
}

/* ---- saving: sockets enter their namespace's tables by themselves ---- */

static void *netns_alloc(struct state *s)
{
	struct netns *ns = kzalloc(sizeof(*ns));

	(void)s;
	ref_init(&ns->ref);
	list_init(&ns->unix_socks);
	return ns;
}

static void netns_fields(struct state *s, void *obj)
{
	struct netns *ns = obj;

	state_ref(s, &state_userns, &ns->userns);
	state_u64(s, &ns->inum);
	state_u32(s, &ns->autobind_next);
	if (!ns->userns)
		state_fail(s, "network namespace of nobody");
}

static void *netns_state_get(void *obj)
{
	return netns_get(obj);
}

static void netns_state_put(void *obj)
{
	netns_put(obj);
}

const struct state_type state_netns = {
	.id = STATE_NETNS,
	.version = 1,
	.name = "network namespace",
	.alloc = netns_alloc,
	.fields = netns_fields,
	.get = netns_state_get,
	.put = netns_state_put,
};
