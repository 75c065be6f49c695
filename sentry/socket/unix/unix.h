// SPDX-License-Identifier: Apache-2.0
/* AF_UNIX (man 7 unix). */
#ifndef SENTRY_SOCKET_UNIX_UNIX_H
#define SENTRY_SOCKET_UNIX_UNIX_H

#include <stddef.h>

struct netns;
struct path;

void unix_init(void);

/* unix_sink.c: from now on messages to the socket file @file go to @fn: from the sender's thread, no lock held. 0 or -errno. */
typedef void (*unix_sink_fn)(void *arg, const void *msg, size_t len);
int unix_bind_sink(struct netns *net, const struct path *file, unix_sink_fn fn, void *arg);

#endif
