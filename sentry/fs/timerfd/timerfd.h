// SPDX-License-Identifier: Apache-2.0
/* man 2 timerfd_create */
#ifndef SENTRY_FS_TIMERFD_TIMERFD_H
#define SENTRY_FS_TIMERFD_TIMERFD_H

#include <stdbool.h>

#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"

struct file *timerfd_create_file(int clockid, unsigned flags);
bool file_is_timerfd(const struct file *f);
/* @f is one. 0, -EINVAL, -ECANCELED. */
long timerfd_set(struct file *f, int flags, const struct l_itimerspec *new,
		 struct l_itimerspec *ret_old);
void timerfd_get(struct file *f, struct l_itimerspec *ret);

#endif
