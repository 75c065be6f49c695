// SPDX-License-Identifier: Apache-2.0
/* Network namespaces: so far names of unix sockets and a loopback device that is always up. */
#include "sentry/socket/netns.h"

#include "base/alloc.h"

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
