// SPDX-License-Identifier: Apache-2.0
/*
 * Sandboxes without processes. Suspending saves a sandbox into its store (image_store.h), and when the image
 * is in place ends its processes and removes its control groups; waking makes new ones that go on from there, in
 * the same state directory. At every moment in between there is either the running sandbox or a whole
 * image that the lineage names.
 *
 * Hooks see it as what it is on the host: poststop when it is suspended, those of a creation when it wakes.
 */
#ifndef RUNTIME_PARK_H
#define RUNTIME_PARK_H

#include <stdbool.h>

#include "runtime/statedir.h"

/* @groups: its control groups go as well (not for a caller that is in them). 0, or 1 after a message, with the
 * sandbox running. Context: store locked. */
int park_suspend(struct statedir *s, bool groups);
/* Goes on from image @number, from the newest one that can be read where that is NULL; what it was doing is
 * ended. 0, or 1 after a message, with the sandbox suspended. Context: store locked. */
int park_wake(struct statedir *s, const char *number);

/* The number of an image of now: a suspended one has it already. Heap, or NULL after a message. Context: store
 * locked. */
char *park_image(struct statedir *s);

/* Wakes it if it is suspended, and waits for somebody who does. 0, or 1 after a message. */
int park_wake_if_suspended(struct statedir *s);
/* cli_open() for commands that need it running: wakes it first. */
struct statedir *park_open_awake(const char *id);
/* control_connect() for those; -errno if it isn't suspended and has no sentry, or can't be woken. */
int park_connect(struct statedir *s);

#endif
