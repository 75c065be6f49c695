// SPDX-License-Identifier: Apache-2.0
/* An instance of devpts: devpts.c, and devpts_state.c, which saves it. */
#ifndef SENTRY_FS_DEVPTS_DEVPTS_PRIV_H
#define SENTRY_FS_DEVPTS_DEVPTS_PRIV_H

#include "sentry/vfs/vfs.h"

struct tty;

#define DEVPTS_MAX 4096 /* limit of max=: sys/kernel/pty/max */
#define ROOT_INO 1
#define PTMX_INO 2
#define SLAVE_INO 3

struct devpts {
	struct super sb;
	struct mutex mu;
	struct tty *slot[DEVPTS_MAX]; /* (mu) borrowed */
	struct inode *node[DEVPTS_MAX]; /* (mu) slave's inode while the master is open; reference */
	uid_t owner;                  /* (c) of root and ptmx: who mounted it */
	gid_t group;
	uid_t uid;                    /* (mu) options */
	gid_t gid;
	bool set_uid, set_gid;
	uint32_t mode, ptmxmode;
	int max;
};

static inline struct devpts *devpts_of(struct super *sb)
{
	return container_of(sb, struct devpts, sb);
}

extern const struct inode_ops devpts_node_iops, devpts_root_iops;
extern const struct file_ops devpts_root_fops;
extern const struct super_ops devpts_sops;

#endif
