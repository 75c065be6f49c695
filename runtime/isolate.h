// SPDX-License-Identifier: Apache-2.0
/* The steps by which a role gives up what it doesn't need. Each returns 0 or -errno. */
#ifndef RUNTIME_ISOLATE_H
#define RUNTIME_ISOLATE_H

#include <stdint.h>

#include "base/compiler.h"

/* Replaces the root of this mount namespace by an empty, read-only tmpfs. */
int __must_check isolate_empty_root(void);
/* Keeps only the capabilities in @keep (bit mask), in permitted and effective; empties the bounding,
 * inheritable and ambient sets; sets no_new_privs, no dumps, no core. */
int __must_check isolate_drop(uint64_t keep);
/* Raises the soft limit of open files to the hard one. */
void isolate_raise_nofile(void);
/* Installs the sentry's system call filter (runtime/sentry_filter.c). */
int __must_check sentry_confine(void);

#endif
