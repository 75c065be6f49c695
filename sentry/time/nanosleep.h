// SPDX-License-Identifier: Apache-2.0
/* clock_nanosleep(2): time/nanosleep.c. */
#ifndef SENTRY_TIME_NANOSLEEP_H
#define SENTRY_TIME_NANOSLEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/gaddr.h"

struct task;

/* Sleeps until @ns of @clock (@abstime) or for @ns. 0, -EINTR-like restart codes, -EINVAL, -EOPNOTSUPP.
 * @rem: where the rest goes when a relative sleep is interrupted, may be null. */
long clock_nanosleep_ns(struct task *t, int clock, bool abstime, int64_t ns, gaddr_t rem);

/* Goes on with the interrupted sleep in t->restart. */
long nanosleep_restart(struct task *t);

#endif
