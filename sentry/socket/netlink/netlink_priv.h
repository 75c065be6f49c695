// SPDX-License-Identifier: Apache-2.0
/* Inside of AF_NETLINK: netlink.c (sockets), rtnetlink.c (answers about devices, addresses, routes). */
#ifndef SENTRY_SOCKET_NETLINK_NETLINK_PRIV_H
#define SENTRY_SOCKET_NETLINK_NETLINK_PRIV_H

#include <linux/netlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct task;
struct socket;

#define NL_REPLY_MAX 8192 /* the answer to one request; enough for all that there is to tell */

/* A datagram in the making: netlink messages one after the other. */
struct nl_reply {
	uint8_t buf[NL_REPLY_MAX] __attribute__((aligned(NLMSG_ALIGNTO)));
	size_t used;
	size_t msg;       /* start of the message being built */
	uint32_t seq, portid;
	bool overflow;
};

/* Starts a message whose fixed part is @fixed; nl_attr() adds attributes; nl_end() closes it. */
void nl_begin(struct nl_reply *r, uint16_t type, uint16_t flags, const void *fixed, size_t len);
void nl_attr(struct nl_reply *r, uint16_t type, const void *data, size_t len);
void nl_end(struct nl_reply *r);

/* Answers one rtnetlink request (payload of @len bytes). 0: the answer is in @r (may be empty);
 * -errno goes into an error message. *ret_done: a dump, to be closed with NLMSG_DONE. */
int rtnl_request(struct task *t, struct socket *s, const struct nlmsghdr *h, const uint8_t *payload,
		 size_t len, struct nl_reply *r, bool *ret_done);

#endif
