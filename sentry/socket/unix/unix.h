// SPDX-License-Identifier: Apache-2.0
/* AF_UNIX (man 7 unix). */
#ifndef SENTRY_SOCKET_UNIX_UNIX_H
#define SENTRY_SOCKET_UNIX_UNIX_H

void unix_init(void);

#endif
