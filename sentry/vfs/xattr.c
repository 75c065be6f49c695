// SPDX-License-Identifier: Apache-2.0
/*
 * Extended attributes (man 7 xattr): which name spaces there are and who may touch them. POSIX ACLs
 * (system.posix_acl_*) are refused with EOPNOTSUPP: nothing here would enforce them.
 */
#include "base/alloc.h"

#include <linux/capability.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/inotify.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_priv.h"

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* 0: ask the file system. @mask: MAY_READ or MAY_WRITE. */
static int check_name(const struct path *p, const struct cred *c, const char *name, int mask)
{
	struct inode *inode = dentry_inode(p->dentry);

	if ((mask & MAY_WRITE) && path_is_ro(p))
		return -EROFS;
	if (has_prefix(name, "security.")) {
		if (!(mask & MAY_WRITE))
			return 0;
		int cap = strcmp(name, "security.capability") == 0 ? CAP_SETFCAP : CAP_SYS_ADMIN;
		return cred_capable_inode(c, inode, cap) ? 0 : -EPERM;
	}
	if (has_prefix(name, "trusted.")) {
		if (cred_capable(c, CAP_SYS_ADMIN))
			return 0;
		return mask & MAY_WRITE ? -EPERM : -ENODATA;
	}
	if (!has_prefix(name, "user."))
		return -EOPNOTSUPP;
	if (!S_ISREG(inode->mode) && !S_ISDIR(inode->mode))
		return mask & MAY_WRITE ? -EPERM : -ENODATA;
	if (S_ISDIR(inode->mode) && (inode->mode & S_ISVTX) && (mask & MAY_WRITE) &&
	    !inode_owner_or_capable(inode, c))
		return -EPERM;
	return inode_permission(inode, c, mask);
}

ssize_t vfs_getxattr(struct task *t, const struct path *p, const char *name, void *buf, size_t size)
{
	struct inode *inode = dentry_inode(p->dentry);
	int err = check_name(p, task_cred(t), name, MAY_READ);

	if (err)
		return err;
	if (!inode->ops->getxattr)
		return -EOPNOTSUPP;
	return inode->ops->getxattr(inode, name, buf, size);
}

int vfs_setxattr(struct task *t, const struct path *p, const char *name, const void *buf,
		 size_t size, int flags)
{
	struct inode *inode = dentry_inode(p->dentry);
	int err = check_name(p, task_cred(t), name, MAY_WRITE);

	if (err)
		return err;
	if (!inode->ops->setxattr)
		return -EOPNOTSUPP;
	mutex_lock(&inode->mu);
	err = inode->ops->setxattr(inode, name, buf, size, flags);
	mutex_unlock(&inode->mu);
	if (!err)
		notify_path(p, IN_ATTRIB);
	return err;
}

/* trusted.* is shown to CAP_SYS_ADMIN only. Compacts @buf in place; the new length. */
static size_t hide_trusted(char *buf, size_t len)
{
	size_t out = 0;

	for (size_t i = 0; i < len;) {
		size_t n = strnlen(buf + i, len - i) + 1;

		if (i + n > len)
			break;
		if (!has_prefix(buf + i, "trusted.")) {
			memmove(buf + out, buf + i, n);
			out += n;
		}
		i += n;
	}
	return out;
}

ssize_t vfs_listxattr(struct task *t, const struct path *p, char *buf, size_t size)
{
	struct inode *inode = dentry_inode(p->dentry);

	if (!inode->ops->listxattr)
		return -EOPNOTSUPP;
	if (cred_capable(task_cred(t), CAP_SYS_ADMIN))
		return inode->ops->listxattr(inode, buf, size);
	AUTO_FREE char *all = kmalloc_guest(XATTR_LIST_MAX);
	if (!all)
		return -ENOMEM;
	ssize_t n = inode->ops->listxattr(inode, all, XATTR_LIST_MAX);
	if (n < 0)
		return n;
	size_t len = hide_trusted(all, (size_t)n);
	if (size && len > size)
		return -ERANGE;
	if (size)
		memcpy(buf, all, len);
	return (ssize_t)len;
}

int vfs_removexattr(struct task *t, const struct path *p, const char *name)
{
	struct inode *inode = dentry_inode(p->dentry);
	int err = check_name(p, task_cred(t), name, MAY_WRITE);

	if (err)
		return err;
	if (!inode->ops->removexattr)
		return -EOPNOTSUPP;
	mutex_lock(&inode->mu);
	err = inode->ops->removexattr(inode, name);
	mutex_unlock(&inode->mu);
	if (!err)
		notify_path(p, IN_ATTRIB);
	return err;
}
