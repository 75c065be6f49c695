// SPDX-License-Identifier: Apache-2.0
/*
 * Pods: several containers of one sandbox, as containerd's CRI plugin and CRI-O ask for them by annotations.
 */
#ifndef RUNTIME_POD_H
#define RUNTIME_POD_H

#include <sys/types.h>

#include "runtime/spec.h"
#include "runtime/statedir.h"

/* The id of the sandbox that container @id is to join (borrowed of @s); NULL: it has a sandbox of its own. */
const char *pod_sandbox_of(const struct spec *s, const char *id);

/*
 * The first container of a pod is what the host's limits hold, since all the others run in its sentry: it gets
 * those that the caller has summed up for the pod (annotations sandbox-memory, sandbox-cpu-*), where the spec
 * itself has none.
 */
void pod_size_sandbox(struct spec *s);

/* Whether mount @index of a pod's first container is there for the others: /dev/shm, which callers give that one
 * read-only. */
bool pod_holds(const struct spec *s, unsigned index);

/* The container of @sandbox's pod, itself included, that process @pid of the host stands for: its id (heap), or
 * NULL. */
char *pod_find(const struct statedir *sandbox, pid_t pid);

#endif
