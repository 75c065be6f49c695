// SPDX-License-Identifier: Apache-2.0
/* cgroup2 (man 7 cgroups), the guest's view of the one group that the sandbox is. */
#ifndef SENTRY_FS_CGROUP_CGROUPFS_H
#define SENTRY_FS_CGROUP_CGROUPFS_H

/* Registers cgroup2. */
void cgroupfs_init(void);

#endif
