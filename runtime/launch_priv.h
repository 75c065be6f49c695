// SPDX-License-Identifier: Apache-2.0
/* What the launcher's files (launch*.c) share. */
#ifndef RUNTIME_LAUNCH_PRIV_H
#define RUNTIME_LAUNCH_PRIV_H

#include <jansson.h>

#include "runtime/launch.h"

/* launch_mounts.c */

/*
 * Makes the mount points that are missing in a rootfs which is written through and read-only for the guest,
 * as runc does: neither the gofer nor the sentry may write there. Nothing else needs it. What fails here fails
 * in the sentry with a message.
 */
void launch_make_mountpoints(const struct launch *l, const char *rootfs);
/* Whether @path is a device; then it is added to @devices for the sentry, as mount @index. */
bool launch_add_device(json_t *devices, const char *path, unsigned index);

/* launch_netns.c */

/* The namespaces among CLONE_NEW* that the sentry gets anew, by the spec. */
unsigned long launch_namespaces(const struct spec *spec);
/*
 * Checks the spec's namespace paths and enters the network namespace among them, which the sentry then
 * inherits; launch_leave_netns() goes back. *ret_back: for that, or -1. 0, or -1 with *ret_why.
 */
int launch_enter_netns(const struct spec *spec, int *ret_back, char **ret_why);
void launch_leave_netns(int back);

#endif
