// SPDX-License-Identifier: Apache-2.0
/*
 * Tells the host that a container ran out of memory. containerd, Docker and CRI hear of it from the kernel
 * only: from an out-of-memory kill in the container's cgroup. But the sentry holds its guest to the limit
 * before the host would, so that no kill ever happens there.
 */
#ifndef RUNTIME_OOM_EVENT_H
#define RUNTIME_OOM_EVENT_H

#include "runtime/container.h"

/*
 * Call when all is said and the sentry is about to exit. If the container's first process died of its memory
 * limit, the sentry takes what the cgroup still allows, until the host kills it: the same status, 137, and
 * the event. Returns at once otherwise, and in the end where the host lets it have more than the limit.
 */
void oom_event_raise(const struct container *c);
/* `update` has given it a limit, or taken it away. */
void oom_event_limited(bool limited);

#endif
