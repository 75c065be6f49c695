// SPDX-License-Identifier: Apache-2.0
/*
 * Attributes: stat, chmod, chown, truncate, utimes, access times, privileges lost by a write
 * (man 7 inode, 2 chown, 2 chmod, 2 utimensat).
 *
 * Access times are relatime unless the mount says otherwise, so that reading seldom writes an inode.
 * They are set in struct inode alone: a remote file system's host keeps its own.
 */
#include "base/alloc.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "sentry/kernel/task.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs_priv.h"

#define MS_NOSYMFOLLOW_G 256 /* Linux 5.10; glibc 2.36 has no name for it */
#define RELATIME_NS (24 * 3600 * NSEC_PER_SEC)

static int fill_stat(struct inode *inode, const struct mount *mnt, const struct dentry *d,
		     struct kstat *ret)
{
	if (inode->ops->getattr) {
		int err = inode->ops->getattr(inode);

		if (err)
			return err;
	}
	*ret = (struct kstat){
		.dev = inode->sb ? inode->sb->dev : 0,
		.ino = inode->ino,
		.nlink = inode->nlink,
		.rdev = inode->rdev,
		.size = atomic_load_explicit(&inode->size, memory_order_relaxed),
		.blocks = inode->blocks,
		.mode = inode->mode,
		.blksize = inode->blksize,
		.uid = inode->uid,
		.gid = inode->gid,
		.atime_ns = inode->atime_ns,
		.mtime_ns = inode->mtime_ns,
		.ctime_ns = inode->ctime_ns,
		.btime_ns = inode->btime_ns,
		.mnt_id = mount_id(mnt),
		.mount_root = mnt && mnt->root == d,
	};
	return 0;
}

int vfs_getattr(const struct path *p, struct kstat *ret)
{
	return fill_stat(dentry_inode(p->dentry), p->mnt, p->dentry, ret);
}

int file_getattr(struct file *f, struct kstat *ret)
{
	return fill_stat(f->inode, f->path.mnt, f->path.dentry, ret);
}

void touch_atime(const struct path *p, struct inode *inode)
{
	unsigned long flags = mount_flags(p->mnt);

	if (flags & (MS_NOATIME | MS_RDONLY))
		return;
	if ((flags & MS_NODIRATIME) && S_ISDIR(inode->mode))
		return;
	if (inode->sb && (inode->sb->flags & (MS_RDONLY | MS_NOATIME)))
		return;
	int64_t now = clock_realtime_ns();
	if (!(flags & MS_STRICTATIME) && inode->atime_ns > inode->mtime_ns &&
	    inode->atime_ns > inode->ctime_ns && now - inode->atime_ns < RELATIME_NS)
		return;
	inode->atime_ns = now;
}

static uint32_t notify_mask(const struct iattr *attr)
{
	uint32_t mask = 0;

	if (attr->valid & (ATTR_MODE | ATTR_UID | ATTR_GID))
		mask |= IN_ATTRIB;
	if (attr->valid & ATTR_SIZE)
		mask |= IN_MODIFY;
	/* As fsnotify_change(): both times are an attribute change, one tells of access or contents. */
	if ((attr->valid & (ATTR_ATIME | ATTR_MTIME)) == (ATTR_ATIME | ATTR_MTIME))
		mask |= IN_ATTRIB;
	else if (attr->valid & ATTR_ATIME)
		mask |= IN_ACCESS;
	else if (attr->valid & ATTR_MTIME)
		mask |= IN_MODIFY;
	return mask;
}

int inode_apply_attr(const struct path *p, struct inode *inode, const struct iattr *attr)
{
	int err;

	mutex_lock(&inode->mu);
	err = inode->ops->setattr ? inode->ops->setattr(inode, attr) : generic_setattr(inode, attr);
	mutex_unlock(&inode->mu);
	if (!err && p->dentry)
		notify_path(p, notify_mask(attr));
	return err;
}

/* ---------------------------------------------------------------- checks */

static int check_chown(struct inode *inode, const struct cred *c, struct iattr *attr)
{
	bool own = c->fsuid == inode->uid;

	if (attr->valid & ATTR_UID) {
		if (!(own && attr->uid == inode->uid) && !cred_capable_inode(c, inode, CAP_CHOWN))
			return -EPERM;
	}
	if (attr->valid & ATTR_GID) {
		bool ok = own && (cred_in_group(c, attr->gid) || attr->gid == inode->gid);

		if (!ok && !cred_capable_inode(c, inode, CAP_CHOWN))
			return -EPERM;
	}
	if (S_ISDIR(inode->mode))
		return 0;
	/* chown drops setuid and setgid for everybody, root too; see man 2 chown. */
	uint32_t mode = inode->mode & ~(uint32_t)S_ISUID;
	if (inode->mode & S_IXGRP)
		mode &= ~(uint32_t)S_ISGID;
	else if (!cred_in_group(c, inode->gid) && !cred_capable_inode(c, inode, CAP_FSETID))
		mode &= ~(uint32_t)S_ISGID;
	attr->valid |= ATTR_KILL_PRIV;
	if (mode != inode->mode) {
		attr->valid |= ATTR_MODE;
		attr->mode = mode & 07777;
	}
	return 0;
}

static int check_chmod(struct inode *inode, const struct cred *c, struct iattr *attr)
{
	if (!inode_owner_or_capable(inode, c))
		return -EPERM;
	gid_t gid = attr->valid & ATTR_GID ? attr->gid : inode->gid;
	if (!cred_in_group(c, gid) && !cred_capable_inode(c, inode, CAP_FSETID))
		attr->mode &= ~(uint32_t)S_ISGID;
	return 0;
}

/* May @t make a file @size bytes long? Sends SIGXFSZ. */
static int check_fsize(struct task *t, struct inode *inode, uint64_t size)
{
	if (!t || size <= atomic_load(&inode->size) || size <= task_rlimit(t, RLIMIT_FSIZE))
		return 0;
	signal_send_task(t, SIGXFSZ, NULL);
	return -EFBIG;
}

int vfs_setattr(struct task *t, const struct path *p, const struct iattr *attr)
{
	struct inode *inode = dentry_inode(p->dentry);
	const struct cred *c = task_cred(t);
	struct iattr a = *attr;
	int err = 0;

	if (path_is_ro(p))
		return -EROFS;
	if (inode->ops->getattr && (a.valid & (ATTR_MODE | ATTR_UID | ATTR_GID)))
		err = inode->ops->getattr(inode); /* rules below need what the host has now */
	if (err)
		return err;
	if (a.valid & ATTR_MODE) {
		if (S_ISLNK(inode->mode))
			return -EOPNOTSUPP;
		err = check_chmod(inode, c, &a);
	}
	if (!err && (a.valid & (ATTR_UID | ATTR_GID)))
		err = check_chown(inode, c, &a);
	if (!err && (a.valid & (ATTR_ATIME | ATTR_MTIME)) && !inode_owner_or_capable(inode, c))
		err = -EPERM;
	if (!err && (a.valid & ATTR_SIZE))
		err = check_fsize(t, inode, a.size);
	return err ? err : inode_apply_attr(p, inode, &a);
}

/* truncate(2) on a resolved path. */
int vfs_truncate_path(struct task *t, const struct path *p, uint64_t size)
{
	struct inode *inode = dentry_inode(p->dentry);
	struct iattr a = { .valid = ATTR_SIZE, .size = size };
	int err, w;

	if (S_ISDIR(inode->mode))
		return -EISDIR;
	if (!S_ISREG(inode->mode))
		return -EINVAL;
	err = path_permission(p, task_cred(t), MAY_WRITE);
	if (err)
		return err;
	w = atomic_load(&inode->writecount);
	if (w < 0)
		return -ETXTBSY;
	uint32_t mode = inode->mode & ~(uint32_t)S_ISUID;
	if (inode->mode & S_IXGRP)
		mode &= ~(uint32_t)S_ISGID;
	if (mode != inode->mode && !cred_capable_inode(task_cred(t), inode, CAP_FSETID)) {
		a.valid |= ATTR_MODE | ATTR_KILL_PRIV;
		a.mode = mode & 07777;
	}
	err = check_fsize(t, inode, size);
	return err ? err : inode_apply_attr(p, inode, &a);
}

/* ftruncate(2): the right was checked at open. */
int file_truncate(struct task *t, struct file *f, uint64_t size)
{
	struct iattr a = { .valid = ATTR_SIZE, .size = size };
	int err;

	if (!S_ISREG(f->inode->mode) || !(f->fmode & FMODE_WRITE))
		return -EINVAL;
	err = check_fsize(t, f->inode, size);
	if (!err)
		err = file_remove_privs(t, f);
	return err ? err : inode_apply_attr(&f->path, f->inode, &a);
}

/* utimensat(2) on a resolved path. @now: both times are "now", which a writer may set, too. */
int vfs_utimes(struct task *t, const struct path *p, struct iattr *attr, bool now)
{
	struct inode *inode = dentry_inode(p->dentry);
	const struct cred *c = task_cred(t);

	if (path_is_ro(p))
		return -EROFS;
	if (!inode_owner_or_capable(inode, c)) {
		int err = now ? inode_permission(inode, c, MAY_WRITE) : -EPERM;

		if (err)
			return err;
	}
	return inode_apply_attr(p, inode, attr);
}

/* A write or truncation by somebody without CAP_FSETID takes setuid and setgid away, and any write
 * takes file capabilities. The latter are looked for once for each open file: asking the file system at
 * every write would cost more than the write. */
int file_remove_privs(struct task *t, struct file *f)
{
	struct inode *inode = f->inode;
	uint32_t mode = inode->mode & ~(uint32_t)S_ISUID;
	bool first = !atomic_load_explicit(&f->privs_killed, memory_order_relaxed);

	if (likely(!first && !(inode->mode & (S_ISUID | S_ISGID))))
		return 0;
	if (!S_ISREG(inode->mode))
		return 0;
	if (inode->mode & S_IXGRP)
		mode &= ~(uint32_t)S_ISGID;
	struct iattr a = { .valid = 0 };
	if (mode != inode->mode && !(t && cred_capable_inode(task_cred(t), inode, CAP_FSETID)))
		a = (struct iattr){ .valid = ATTR_MODE | ATTR_KILL_PRIV, .mode = mode & 07777 };
	else if (first && inode->ops->getxattr &&
		 inode->ops->getxattr(inode, "security.capability", NULL, 0) > 0)
		a = (struct iattr){ .valid = ATTR_KILL_PRIV };
	atomic_store_explicit(&f->privs_killed, true, memory_order_relaxed);
	return a.valid ? inode_apply_attr(&f->path, inode, &a) : 0;
}

/* access(2) and faccessat2(2). @flags: AT_EACCESS, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, checked. */
long vfs_access(struct task *t, int dirfd, const char *name, int mode, int flags)
{
	unsigned lookup = flags & AT_SYMLINK_NOFOLLOW ? 0 : LOOKUP_FOLLOW;
	struct cred *c = flags & AT_EACCESS ? cred_dup(task_cred(t)) : cred_for_access(t);
	struct path p = { 0 };
	struct nameidata nd;
	int err;

	if (flags & AT_EMPTY_PATH)
		lookup |= LOOKUP_EMPTY;
	err = nd_begin(&nd, t, c, dirfd, name, lookup);
	if (!err) {
		err = nd_lookup(&nd, &p);
		nd_end(&nd);
	}
	if (!err && mode) {
		struct inode *inode = dentry_inode(p.dentry);

		if ((mode & MAY_EXEC) && S_ISREG(inode->mode) && (mount_flags(p.mnt) & MS_NOEXEC))
			err = -EACCES;
		if (!err)
			err = inode_permission(inode, c, mode);
		/* EROFS comes last and only for what a read-only mount really stops. */
		if (!err && (mode & MAY_WRITE) && path_is_ro(&p) &&
		    (S_ISREG(inode->mode) || S_ISDIR(inode->mode) || S_ISLNK(inode->mode)))
			err = -EROFS;
	}
	path_put(&p);
	cred_put(c);
	return err;
}

/* statfs(2). */
int vfs_statfs(const struct path *p, struct inode *inode, struct statfs_g *ret)
{
	static const struct {
		unsigned long ms, st;
	} map[] = {
		{ MS_NOSUID, 2 }, { MS_NODEV, 4 },	  { MS_NOEXEC, 8 },
		{ MS_NOATIME, 1024 }, { MS_NODIRATIME, 2048 }, { MS_RELATIME, 4096 },
		{ MS_NOSYMFOLLOW_G, 8192 },
	};
	struct super *sb = inode->sb;
	int err;

	*ret = (struct statfs_g){ 0 };
	if (!sb || !sb->ops->statfs)
		return -ENOSYS;
	err = sb->ops->statfs(sb, ret);
	if (err)
		return err;
	if (!ret->f_type)
		ret->f_type = (int64_t)sb->magic;
	if (!ret->f_namelen)
		ret->f_namelen = NAME_MAX_G;
	if (!ret->f_frsize)
		ret->f_frsize = ret->f_bsize;
	if (!ret->f_fsid[0] && !ret->f_fsid[1])
		ret->f_fsid[0] = (int32_t)sb->dev;
	ret->f_flags = 0x20; /* ST_VALID */
	if ((mount_flags(p->mnt) | sb->flags) & MS_RDONLY)
		ret->f_flags |= 1;
	for (unsigned i = 0; i < ARRAY_SIZE(map); i++)
		if (mount_flags(p->mnt) & map[i].ms)
			ret->f_flags |= (int64_t)map[i].st;
	return 0;
}
