// SPDX-License-Identifier: Apache-2.0
/* The limits that the sentry itself holds a sandbox to: from the spec at its start, from `update` later. */
#ifndef RUNTIME_LIMITS_H
#define RUNTIME_LIMITS_H

#include "runtime/container.h"
#include "sentry/kernel/kernel.h"

/* What the spec asks for, within what the host and our descriptors allow. Context: before anything runs; our
 * control groups have been entered. */
void limits_init(struct kernel_limits *l, const struct boot *b);

#endif
