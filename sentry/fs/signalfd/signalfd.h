// SPDX-License-Identifier: Apache-2.0
/* man 2 signalfd */
#ifndef SENTRY_FS_SIGNALFD_SIGNALFD_H
#define SENTRY_FS_SIGNALFD_SIGNALFD_H

#include <stdbool.h>

#include "sentry/kernel/signal.h"
#include "sentry/vfs/vfs.h"

struct file *signalfd_create_file(struct task *t, sigset_g mask, unsigned flags);
bool file_is_signalfd(const struct file *f);
void signalfd_set_mask(struct file *f, sigset_g mask);

#endif
