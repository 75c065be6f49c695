// SPDX-License-Identifier: Apache-2.0
/* unlink(2) and rmdir(2). */
#include "base/alloc.h"

#include <sys/inotify.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs_priv.h"

static int last_error(const struct nameidata *nd, bool isdir)
{
	if (!isdir)
		return nd->last_type == LAST_NORM ? 0 : -EISDIR;
	switch (nd->last_type) {
	case LAST_NORM:
		return 0;
	case LAST_DOT:
		return -EINVAL;
	case LAST_DOTDOT:
		return -ENOTEMPTY;
	case LAST_ROOT:
		return -EBUSY;
	}
	return -EINVAL;
}

/* Context: inode.mu of the directory. */
static int remove_locked(struct nameidata *nd, struct dentry *d, bool isdir)
{
	struct inode *dir = dentry_inode(nd->path.dentry), *inode = dentry_inode(d);
	char name[NAME_MAX_G + 1];
	int err;

	if (!inode)
		return -ENOENT;
	if (nd->trailing && !isdir)
		return S_ISDIR(inode->mode) ? -EISDIR : -ENOTDIR;
	if (path_is_ro(&nd->path))
		return -EROFS;
	err = may_delete(&nd->path, d, nd->cred, isdir);
	if (err)
		return err;
	if (atomic_load(&d->mounts))
		return -EBUSY;
	qname_copy(&nd->last, name);
	if (isdir && !dir->ops->rmdir)
		return -EPERM;
	if (!isdir && !dir->ops->unlink)
		return -EPERM;
	/* The victim's own lock, so that nothing is created in a directory that is going away. */
	mutex_lock_nested(&inode->mu);
	err = isdir ? dir->ops->rmdir(dir, name, inode) : dir->ops->unlink(dir, name, inode);
	if (!err)
		d_delete(d);
	mutex_unlock(&inode->mu);
	return err;
}

static long remove_name(struct task *t, int dirfd, const char *name, bool isdir)
{
	struct nameidata nd;
	char last[NAME_MAX_G + 1];
	int err = nd_begin_parent(&nd, t, dirfd, name);

	if (err)
		return err;
	err = last_error(&nd, isdir);
	if (err) {
		nd_end(&nd);
		return err;
	}
	struct inode *dir = dentry_inode(nd.path.dentry);
	mutex_lock(&dir->mu);
	struct dentry *d = d_lookup_locked(nd.path.dentry, &nd.last);
	err = is_err(d) ? (int)ptr_err(d) : remove_locked(&nd, d, isdir);
	mutex_unlock(&dir->mu);
	if (!is_err(d)) {
		if (!err) {
			if (!isdir)
				notify_inode(dentry_inode(d), IN_ATTRIB);
			qname_copy(&nd.last, last);
			notify_dir(dir, last, IN_DELETE, 0, isdir);
		}
		dentry_put(d);
	}
	nd_end(&nd);
	return err;
}

long vfs_unlink(struct task *t, int dirfd, const char *name)
{
	return remove_name(t, dirfd, name, false);
}

long vfs_rmdir(struct task *t, int dirfd, const char *name)
{
	return remove_name(t, dirfd, name, true);
}
