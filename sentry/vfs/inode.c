// SPDX-License-Identifier: Apache-2.0
/*
 * Inodes: life, numbers, and the attribute changes of file systems that keep everything in struct
 * inode. An inode is embedded in its file system's own struct; ->destroy frees that.
 *
 * Not here: an inode cache by number. File systems that need one inode per host file keep their own.
 */
#include "sentry/vfs/vfs.h"

#include "base/alloc.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/locks.h"
#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

static _Atomic uint64_t next_ino = 1;

uint64_t inode_next_ino(void)
{
	return atomic_fetch_add_explicit(&next_ino, 1, memory_order_relaxed);
}

void inode_state_globals(struct state *s)
{
	uint64_t ino = next_ino;

	state_u64(s, &ino);
	next_ino = ino;
}

void inode_init(struct inode *inode, struct super *sb, const struct inode_ops *ops,
		const struct file_ops *fops, uint64_t ino, uint32_t mode, uid_t uid, gid_t gid)
{
	int64_t now = clock_realtime_ns();

	ref_init(&inode->ref);
	inode->ops = ops;
	inode->fops = fops;
	inode->sb = sb ? super_get(sb) : NULL;
	inode->ino = ino;
	mutex_init(&inode->mu, RANK_INODE);
	inode->mode = mode;
	inode->nlink = 1;
	inode->uid = uid;
	inode->gid = gid;
	inode->rdev = 0;
	atomic_init(&inode->size, 0);
	inode->blocks = 0;
	inode->blksize = 4096;
	inode->atime_ns = inode->mtime_ns = inode->ctime_ns = inode->btime_ns = now;
	inode->version = 1;
	inode->vmobj = NULL;
	atomic_init(&inode->marks, NULL);
	atomic_init(&inode->locks, NULL);
	inode->fifo = NULL;
	inode->sock = NULL;
	atomic_init(&inode->writecount, 0);
}

void inode_fini(struct inode *inode)
{
	struct super *sb = inode->sb;

	locks_inode_fini(inode);
	mutex_fini(&inode->mu);
	inode->sb = NULL;
	super_put(sb);
}

struct inode *inode_get(struct inode *inode)
{
	ref_get(&inode->ref);
	return inode;
}

void inode_put(struct inode *inode)
{
	if (inode && ref_put(&inode->ref))
		inode->ops->destroy(inode);
}

/* Changes struct inode only. Context: inode.mu held by the VFS. */
int generic_setattr(struct inode *inode, const struct iattr *attr)
{
	if (attr->valid & ATTR_MODE)
		inode->mode = (inode->mode & S_IFMT) | (attr->mode & 07777);
	if (attr->valid & ATTR_UID)
		inode->uid = attr->uid;
	if (attr->valid & ATTR_GID)
		inode->gid = attr->gid;
	if (attr->valid & ATTR_SIZE)
		atomic_store(&inode->size, attr->size);
	if (attr->valid & ATTR_ATIME)
		inode->atime_ns = attr->atime_ns;
	inode->ctime_ns = clock_realtime_ns();
	if (attr->valid & ATTR_MTIME)
		inode->mtime_ns = attr->mtime_ns;
	else if (attr->valid & ATTR_SIZE)
		inode->mtime_ns = inode->ctime_ns;
	inode->version++;
	return 0;
}

void inode_touch(struct inode *inode, unsigned which)
{
	int64_t now = clock_realtime_ns();

	if (which & ATTR_ATIME)
		inode->atime_ns = now;
	if (which & ATTR_MTIME)
		inode->mtime_ns = now;
	inode->ctime_ns = now;
	inode->version++;
}
