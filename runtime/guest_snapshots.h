// SPDX-License-Identifier: Apache-2.0
/*
 * Snapshots that a guest asks for: the keeper's side of runtime/control_snapshots.c. They are called guest-NAME,
 * so that a guest can't replace an operator's, and there are at most as many as the operator allows.
 */
#ifndef RUNTIME_GUEST_SNAPSHOTS_H
#define RUNTIME_GUEST_SNAPSHOTS_H

#include "runtime/statedir.h"

#define GUEST_SNAPSHOTS_ANNOTATION "org.holdfast.guest-snapshots" /* how many are kept */
#define GUEST_SNAPSHOTS_MAX 1000
#define GUEST_SNAPSHOT_PREFIX "guest-"

/* The connection on which requests come, or -1 (logged). */
int guest_snapshots_connect(struct statedir *s);
/* Serves the next request: a message is there. @max: how many names it may have. -1: the connection is over. */
int guest_snapshots_serve(struct statedir *s, int sock, long max);

#endif
