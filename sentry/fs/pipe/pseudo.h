// SPDX-License-Identifier: Apache-2.0
/* Inodes without a name: pipefs and sockfs, which nobody can mount. */
#ifndef SENTRY_FS_PIPE_PSEUDO_H
#define SENTRY_FS_PIPE_PSEUDO_H

#include <stdint.h>

#include "sentry/vfs/vfs.h"

enum pseudo_fs { PSEUDO_PIPE, PSEUDO_SOCK, PSEUDO_COUNT };

/* A fresh inode of @mode owned by @t's fsuid/fsgid (root when NULL). Reference. */
struct inode *pseudo_inode_create(enum pseudo_fs which, uint32_t mode, struct task *t);
struct super *pseudo_super(enum pseudo_fs which); /* borrowed */

#endif
