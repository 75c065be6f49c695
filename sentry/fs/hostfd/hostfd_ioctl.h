// SPDX-License-Identifier: Apache-2.0
#ifndef SENTRY_FS_HOSTFD_HOSTFD_IOCTL_H
#define SENTRY_FS_HOSTFD_HOSTFD_IOCTL_H

#include <stdbool.h>
#include <stdint.h>

struct task;

/* ioctl(2) on a host descriptor: the few that only look. -ENOIOCTLCMD for all others. */
long hostfd_do_ioctl(struct task *t, int fd, bool tty, unsigned cmd, uint64_t arg);

#endif
