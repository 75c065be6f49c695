// SPDX-License-Identifier: Apache-2.0
/* The steps by which a role gives up what it doesn't need. Each returns 0 or -errno. */
#ifndef RUNTIME_ISOLATE_H
#define RUNTIME_ISOLATE_H

#include <stdint.h>

#include "base/compiler.h"

/* Replaces the root of this mount namespace by an empty, read-only tmpfs. */
int __must_check isolate_empty_root(void);
/*
 * A copy of that root which is mounted nowhere: a descriptor for isolate_enter(), or 0 where there can't be one. From in
 * there nothing is in reach that is later mounted on the root of the mount namespace, for callers who enter it
 * (runtime/launch_view.c), not even by "/..".
 */
int __must_check isolate_copy_root(void);
/* Makes @root, which it closes, the root of this process. */
int __must_check isolate_enter(int root);
/* Keeps only the capabilities in @keep (bit mask), in permitted and effective; empties the bounding,
 * inheritable and ambient sets; sets no_new_privs, no dumps, no core. */
int __must_check isolate_drop(uint64_t keep);
/* Raises the soft limit of open files to the hard one. */
void isolate_raise_nofile(void);
/* Installs the sentry's system call filter (runtime/sentry_filter.c). */
int __must_check sentry_confine(void);
/* Leaves a process nothing but to wait for a guest's process (runtime/waiter_filter.c): no capabilities, few calls. */
int __must_check waiter_confine(void);

#endif
