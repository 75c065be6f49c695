// SPDX-License-Identifier: Apache-2.0
/*
 * pipefs and sockfs: supers that exist so that fstat() of pipes and of sockets shows one st_dev for each
 * kind, as on Linux. Made on first use, never destroyed. What an inode stands for hangs on its file.
 */
#include "sentry/fs/pipe/pseudo.h"

#include <linux/magic.h>
#include <pthread.h>

#include "base/alloc.h"
#include "sentry/kernel/cred.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_state.h"

static void pseudo_super_destroy(struct super *sb)
{
	(void)sb; /* static: the reference of pseudo_init() is never dropped */
}

static int pseudo_statfs(struct super *sb, struct statfs_g *ret)
{
	*ret = (struct statfs_g){ .f_type = (int64_t)sb->magic,
				  .f_bsize = 4096,
				  .f_namelen = NAME_MAX_G,
				  .f_frsize = 4096 };
	return 0;
}

static const struct super_ops pseudo_super_ops = {
	.destroy = pseudo_super_destroy,
	.statfs = pseudo_statfs,
};

static const struct fs_type pseudo_types[PSEUDO_COUNT] = {
	[PSEUDO_PIPE] = { .name = "pipefs", .nodev = true },
	[PSEUDO_SOCK] = { .name = "sockfs", .nodev = true },
};

static struct super supers[PSEUDO_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void pseudo_init(void)
{
	static const uint64_t magic[PSEUDO_COUNT] = {
		[PSEUDO_PIPE] = PIPEFS_MAGIC,
		[PSEUDO_SOCK] = SOCKFS_MAGIC,
	};

	for (int i = 0; i < PSEUDO_COUNT; i++)
		super_init(&supers[i], &pseudo_super_ops, &pseudo_types[i], magic[i], 0);
}

static void pseudo_inode_destroy(struct inode *inode)
{
	inode_fini(inode);
	free(inode);
}

static const struct inode_ops pseudo_inode_ops = {
	.destroy = pseudo_inode_destroy,
	.state = &state_inode_pseudo,
};

struct inode *pseudo_inode_create(enum pseudo_fs which, uint32_t mode, struct task *t)
{
	struct inode *inode = kzalloc(sizeof(*inode));
	uid_t uid = t ? task_cred(t)->fsuid : 0;
	gid_t gid = t ? task_cred(t)->fsgid : 0;

	pthread_once(&once, pseudo_init);
	inode_init(inode, &supers[which], &pseudo_inode_ops, NULL, inode_next_ino(), mode, uid,
		   gid);
	return inode;
}

struct super *pseudo_super(enum pseudo_fs which)
{
	pthread_once(&once, pseudo_init);
	return &supers[which];
}

/* ---- saving: the pipe of a pipe's inode is saved with it, a socket with its file ---- */

static void *pseudo_alloc(struct state *s)
{
	struct inode *inode = kzalloc(sizeof(*inode));

	(void)s;
	inode_init(inode, NULL, &pseudo_inode_ops, NULL, 0, 0, 0, 0);
	return inode;
}

static void pseudo_fields(struct state *s, void *obj)
{
	struct inode *inode = obj;
	int64_t which = inode->sb == &supers[PSEUDO_SOCK] ? PSEUDO_SOCK : PSEUDO_PIPE;

	state_range_i64(s, &which, 0, PSEUDO_COUNT - 1);
	inode_state_fields(s, inode);
	if (!state_loading(s))
		return;
	inode->sb = super_get(pseudo_super((enum pseudo_fs)which));
	if ((inode->mode & S_IFMT) != (which == PSEUDO_SOCK ? S_IFSOCK : S_IFIFO))
		state_fail(s, "mode 0%o", inode->mode);
}

const struct state_type state_inode_pseudo = {
	.id = STATE_INODE_PSEUDO,
	.version = 1,
	.name = "inode of a pipe or socket",
	.alloc = pseudo_alloc,
	.fields = pseudo_fields,
	.get = inode_state_get,
	.put = inode_state_put,
	.phase = 2,
};
