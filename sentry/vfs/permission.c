// SPDX-License-Identifier: Apache-2.0
/*
 * Who may do what to a file: mode bits, capabilities over inodes, the sticky rule, read-only mounts
 * (man 7 path_resolution, 7 capabilities). No ACLs: they are refused at the xattr calls, so mode bits
 * tell all.
 */
#include "base/alloc.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mount.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_priv.h"

static uint32_t mode_for(const struct inode *inode, const struct cred *c)
{
	uint32_t mode = inode->mode;

	if (c->fsuid == inode->uid)
		return mode >> 6 & 7;
	if ((mode & 070) != (mode & 7) << 3 && cred_in_group(c, inode->gid))
		return mode >> 3 & 7;
	return mode & 7;
}

int inode_permission(struct inode *inode, const struct cred *c, int mask)
{
	if (inode->ops->permission)
		return inode->ops->permission(inode, c, mask);
	/* Most path components: everybody may search. */
	if (mask == MAY_EXEC && (inode->mode & 0111) == 0111)
		return 0;
	if (((uint32_t)mask & ~mode_for(inode, c) & 7) == 0)
		return 0;
	if (S_ISDIR(inode->mode)) {
		if (!(mask & MAY_WRITE) && cred_capable_inode(c, inode, CAP_DAC_READ_SEARCH))
			return 0;
		return cred_capable_inode(c, inode, CAP_DAC_OVERRIDE) ? 0 : -EACCES;
	}
	if (mask == MAY_READ && cred_capable_inode(c, inode, CAP_DAC_READ_SEARCH))
		return 0;
	/* Nobody executes what has no x bit at all. */
	if (!(mask & MAY_EXEC) || (inode->mode & 0111))
		return cred_capable_inode(c, inode, CAP_DAC_OVERRIDE) ? 0 : -EACCES;
	return -EACCES;
}

bool inode_owner_or_capable(struct inode *inode, const struct cred *c)
{
	return c->fsuid == inode->uid || cred_capable_inode(c, inode, CAP_FOWNER);
}

bool path_is_ro(const struct path *p)
{
	struct inode *inode = dentry_inode(p->dentry);

	if (p->mnt && mount_is_readonly(p->mnt))
		return true;
	return inode && inode->sb && (inode->sb->flags & MS_RDONLY);
}

int path_permission(const struct path *p, const struct cred *c, int mask)
{
	struct inode *inode = dentry_inode(p->dentry);

	if ((mask & MAY_WRITE) && path_is_ro(p) &&
	    (S_ISREG(inode->mode) || S_ISDIR(inode->mode) || S_ISLNK(inode->mode)))
		return -EROFS;
	if ((mask & MAY_EXEC) && S_ISREG(inode->mode) && p->mnt &&
	    (mount_flags(p->mnt) & MS_NOEXEC))
		return -EACCES;
	return inode_permission(inode, c, mask);
}

int may_create(const struct path *dir, const struct cred *c)
{
	if (dir->dentry->deleted || dentry_inode(dir->dentry)->nlink == 0)
		return -ENOENT;
	return inode_permission(dentry_inode(dir->dentry), c, MAY_WRITE | MAY_EXEC);
}

static bool sticky_forbids(struct inode *dir, struct inode *inode, const struct cred *c)
{
	if (!(dir->mode & S_ISVTX))
		return false;
	if (inode->uid == c->fsuid || dir->uid == c->fsuid)
		return false;
	return !cred_capable_inode(c, inode, CAP_FOWNER);
}

int may_delete(const struct path *dir, struct dentry *victim, const struct cred *c, bool isdir)
{
	struct inode *di = dentry_inode(dir->dentry), *inode = dentry_inode(victim);
	int err;

	if (!inode)
		return -ENOENT;
	err = inode_permission(di, c, MAY_WRITE | MAY_EXEC);
	if (err)
		return err;
	if (sticky_forbids(di, inode, c))
		return -EPERM;
	if (isdir && !S_ISDIR(inode->mode))
		return -ENOTDIR;
	if (!isdir && S_ISDIR(inode->mode))
		return -EISDIR;
	if (dir->dentry->deleted)
		return -ENOENT;
	return 0;
}

void inode_new_owner(const struct inode *dir, const struct cred *c, uint32_t *mode, uid_t *uid,
		     gid_t *gid)
{
	*uid = c->fsuid;
	*gid = c->fsgid;
	if (!(dir->mode & S_ISGID))
		return;
	*gid = dir->gid;
	if (S_ISDIR(*mode))
		*mode |= S_ISGID;
}

uint32_t mode_prepare(const struct inode *dir, const struct cred *c, uint32_t mode, uint32_t umask)
{
	uint32_t exec_sgid = S_ISGID | S_IXGRP;

	if (!S_ISDIR(mode) && (dir->mode & S_ISGID) && (mode & exec_sgid) == exec_sgid &&
	    !cred_in_group(c, dir->gid) && !cred_capable_inode(c, dir, CAP_FSETID))
		mode &= ~(uint32_t)S_ISGID;
	return mode & ~umask;
}
