// SPDX-License-Identifier: Apache-2.0
/* Listening sockets of the host that the sandbox was given (LISTEN_FDS), and connections accepted from them. */
#ifndef SENTRY_SOCKET_HOST_HOST_SOCK_H
#define SENTRY_SOCKET_HOST_HOST_SOCK_H

#include <stdbool.h>

struct file;
struct netns;

/* Is it a socket that listens? */
bool host_sock_listens(int hostfd);
/* A guest's socket over @hostfd, which it owns from now on (also on failure). err_ptr. */
struct file *host_sock_create_file(struct netns *net, int hostfd);

#endif
