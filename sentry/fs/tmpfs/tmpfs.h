// SPDX-License-Identifier: Apache-2.0
/* tmpfs (man 5 tmpfs) and memfds (man 2 memfd_create). The overlay root is made by
 * fs/overlay/overlay.h. */
#ifndef SENTRY_FS_TMPFS_TMPFS_H
#define SENTRY_FS_TMPFS_TMPFS_H

#include <stdint.h>

struct file;
struct super;

/* Registers the type "tmpfs". Once, at start. */
void tmpfs_init(void);
/* All pages of all files stay where they are from now on: who writes to one copies it first. 0 or -errno.
 * Context: the sandbox is frozen (sentry/kernel/freeze.h), after mm_freeze_all(). */
int tmpfs_freeze(void);
/* A new instance. @data: mount options (size=, nr_blocks=, nr_inodes=, mode=, uid=,
 * gid=), may be NULL. err_ptr(-EINVAL) for unknown ones. */
struct super *tmpfs_create_super(unsigned long flags, const char *data);

/* memfd_create(2), @flags: MFD_* (checked by the caller). @name as the guest gave it. A
 * file, or err_ptr. */
struct file *memfd_create_file(const char *name, unsigned flags);
/* F_ADD_SEALS and F_GET_SEALS of fcntl(2). -EINVAL when @f isn't on tmpfs. */
long memfd_fcntl(struct file *f, unsigned cmd, unsigned long arg);

#endif
