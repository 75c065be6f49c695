// SPDX-License-Identifier: Apache-2.0
/* AF_NETLINK (man 7 netlink, 7 rtnetlink). */
#ifndef SENTRY_SOCKET_NETLINK_NETLINK_H
#define SENTRY_SOCKET_NETLINK_NETLINK_H

void netlink_init(void);

#endif
