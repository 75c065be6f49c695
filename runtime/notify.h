// SPDX-License-Identifier: Apache-2.0
/*
 * The socket of NOTIFY_SOCKET (sd_notify(3)), as runc passes it on: the guest gets one of its own, and READY=1 in it is told to
 * the host's, with the container's pid as MAINPID.
 */
#ifndef RUNTIME_NOTIFY_H
#define RUNTIME_NOTIFY_H

#include <stdbool.h>

#include "runtime/spec.h"
#include "runtime/statedir.h"

#define NOTIFY_DIR "/run/notify"
#define NOTIFY_NAME "notify.sock"
#define NOTIFY_INSIDE NOTIFY_DIR "/" NOTIFY_NAME

/* Were we called by somebody who wants to hear of it? */
bool notify_wanted(void);
/* Tells the container's process of its socket. */
void notify_prepare(struct spec *spec);
/* Waits until the container of @s says that it is ready, and passes it on; or until it has stopped. Without a caller that
 * wants to hear of it nothing. */
void notify_wait(struct statedir *s);
/* The same by a process of its own. */
void notify_wait_aside(struct statedir *s);

#endif
