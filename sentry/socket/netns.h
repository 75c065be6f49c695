// SPDX-License-Identifier: Apache-2.0
/* Network namespaces. Lifetime functions are in kernel/ns.h. */
#ifndef SENTRY_SOCKET_NETNS_H
#define SENTRY_SOCKET_NETNS_H

#include <stdint.h>

#include "base/list.h"
#include "base/ref.h"
#include "sentry/kernel/ns.h"

struct seqbuf;
struct unix_sock;

struct netns {
	struct ref ref;
	struct userns *userns;       /* (c) reference */
	uint64_t inum;               /* (c) /proc/PID/ns/net */
	struct unix_sock *abstract;  /* hash of abstract names; unix_bind_mu */
	uint32_t autobind_next;      /* unix_bind_mu */
	struct list unix_socks;      /* all unix sockets; unix_bind_mu */
};

/* /proc/net/unix. */
void unix_show_proc(struct netns *ns, struct seqbuf *out);

#endif
