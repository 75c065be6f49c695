// SPDX-License-Identifier: Apache-2.0
/* eventfd(2). */
#ifndef SENTRY_FS_EVENTFD_EVENTFD_H
#define SENTRY_FS_EVENTFD_EVENTFD_H

#include <stdbool.h>
#include <stdint.h>

struct file;

/* @flags: O_NONBLOCK. err_ptr(-ENFILE). */
struct file *eventfd_create(uint32_t count, bool semaphore, unsigned flags);

#endif
