// SPDX-License-Identifier: Apache-2.0
/* The writable root: a tmpfs over the image, which is attach point @attach of the gofer. */
#ifndef SENTRY_FS_OVERLAY_OVERLAY_H
#define SENTRY_FS_OVERLAY_OVERLAY_H

#include <stdint.h>

struct gofer_client;
struct fs_type;
struct super;

extern const struct fs_type overlay_fs_type;

/* @disk_size: what it may hold on disk, in bytes (mfile_set_disk_provider()); 0: it is in memory. */
struct super *overlay_create_super(struct gofer_client *c, unsigned attach, unsigned long flags, uint64_t disk_size);

#endif
