// SPDX-License-Identifier: Apache-2.0
/* sysfs (man 5 sysfs): the little of it that user space looks at. */
#ifndef SENTRY_FS_SYS_SYSFS_H
#define SENTRY_FS_SYS_SYSFS_H

/* Registers sysfs. */
void sysfs_init(void);

#endif
