// SPDX-License-Identifier: Apache-2.0
/*
 * Control messages between the CLI and the sentry: JSON objects with descriptors, over a stream
 * socket. A message is a header (magic, length of the body), to which up to CONTROL_MAX_FDS
 * descriptors are attached, and the body. One request a connection; its replies follow in order.
 *
 * Requests ("op"): start, kill {signal, all}, wait, ps, exec {process}, state, stats ... (control_server.c has
 * the table). Replies: {"ok": true, ...} or {"error": "text"}.
 */
#ifndef RUNTIME_CONTROL_H
#define RUNTIME_CONTROL_H

#include <jansson.h>

#define CONTROL_MAX_FDS 64
#define CONTROL_MAX_BYTES (4u << 20)

/* 0 or -errno. @json is borrowed, descriptors stay the caller's. */
int control_send(int sock, json_t *json, const int *fds, unsigned nfds);
/* A message: new reference, or NULL at the end of the connection or on a malformed one. *nfds: in: room, out:
 * received, which the caller owns (surplus ones are closed). */
json_t *control_recv(int sock, int *fds, unsigned *nfds);

/* Connects to DIRFD/control.sock. Descriptor or -errno (-ECONNREFUSED: the sentry is gone). */
int control_connect(int dirfd);
/* Listens there. */
int control_listen(int dirfd);

/* Request and first reply in one. New reference or NULL. */
json_t *control_call(int sock, json_t *req, const int *fds, unsigned nfds);

#endif
