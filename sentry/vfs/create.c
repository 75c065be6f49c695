// SPDX-License-Identifier: Apache-2.0
/*
 * New names: mkdir, mknod, symlink, link (man 2 mkdir, mknod, symlink, link).
 *
 * All go through one sequence: walk to the parent, look the name up under the directory's lock (EEXIST
 * comes before EROFS and EACCES, as in Linux), check, call the file system, instantiate, notify.
 *
 * Protected hard links are on (fs.protected_hardlinks = 1): a link to a file of somebody else needs
 * read and write access to it.
 */
#include "base/alloc.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs_priv.h"

struct new_node { /* what is to be made */
	uint32_t mode; /* with type */
	uint32_t umask;
	dev_t rdev;
	const char *target;  /* symlink */
	struct inode *inode; /* link */
	const struct path *old; /* link: where it is now */
	bool tmpfile;           /* link: from O_TMPFILE */
	uid_t uid;
	gid_t gid;
};

static struct inode *make(struct inode *dir, const char *name, const struct new_node *n)
{
	const struct inode_ops *ops = dir->ops;

	if (n->inode) {
		int err = ops->link ? ops->link(dir, name, n->inode) : -EPERM;

		return err ? err_ptr(err) : inode_get(n->inode);
	}
	switch (n->mode & S_IFMT) {
	case S_IFDIR:
		return ops->mkdir ? ops->mkdir(dir, name, n->mode, n->uid, n->gid) :
				    err_ptr(-EPERM);
	case S_IFLNK:
		return ops->symlink ? ops->symlink(dir, name, n->target, n->uid, n->gid) :
				      err_ptr(-EPERM);
	case S_IFREG:
		return ops->create ? ops->create(dir, name, n->mode, n->uid, n->gid) :
				     err_ptr(-EACCES);
	default:
		return ops->mknod ? ops->mknod(dir, name, n->mode, n->rdev, n->uid, n->gid) :
				    err_ptr(-EPERM);
	}
}

/* fs.protected_hardlinks. */
static bool safe_to_link(struct inode *inode, const struct cred *c)
{
	if (inode_owner_or_capable(inode, c))
		return true;
	if (!S_ISREG(inode->mode) || (inode->mode & S_ISUID))
		return false;
	if ((inode->mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
		return false;
	return inode_permission(inode, c, MAY_READ | MAY_WRITE) == 0;
}

static int check_link(const struct inode *dir, const struct new_node *n)
{
	if (n->inode->sb != dir->sb)
		return -EXDEV;
	if (S_ISDIR(n->inode->mode))
		return -EPERM;
	/* No name left: only O_TMPFILE files may get one again. */
	return n->inode->nlink == 0 && !n->tmpfile ? -ENOENT : 0;
}

/* The missing name @d of @dir gets its node. Context: inode.mu of the directory. */
static int make_locked(struct nameidata *nd, struct dentry *d, struct new_node *n)
{
	struct inode *dir = dentry_inode(nd->path.dentry);
	char name[NAME_MAX_G + 1];
	int err;

	if (dentry_inode(d))
		return -EEXIST;
	/* "name/" with nothing there: only a directory can be made. */
	if (nd->trailing && !S_ISDIR(n->mode))
		return -ENOENT;
	if (path_is_ro(&nd->path))
		return -EROFS;
	if (n->inode && n->old->mnt != nd->path.mnt)
		return -EXDEV;
	if (n->inode && !safe_to_link(n->inode, nd->cred))
		return -EPERM;
	err = may_create(&nd->path, nd->cred);
	if (!err && n->inode)
		err = check_link(dir, n);
	if (err)
		return err;
	n->mode = mode_prepare(dir, nd->cred, n->mode, n->umask);
	if (!n->inode)
		inode_new_owner(dir, nd->cred, &n->mode, &n->uid, &n->gid);
	qname_copy(&nd->last, name);
	struct inode *inode = make(dir, name, n);
	if (is_err(inode))
		return (int)ptr_err(inode);
	d_instantiate(d, inode);
	return 0;
}

/* Context: nd open, at the parent, unlocked. *ret_d (may be NULL): the new dentry, a reference. */
static int make_at(struct nameidata *nd, struct new_node *n, struct dentry **ret_d)
{
	struct inode *dir = dentry_inode(nd->path.dentry);
	char name[NAME_MAX_G + 1];
	struct dentry *d;
	int err;

	if (nd->last_type != LAST_NORM)
		return -EEXIST;
	mutex_lock(&dir->mu);
	d = d_lookup_locked(nd->path.dentry, &nd->last);
	err = is_err(d) ? (int)ptr_err(d) : make_locked(nd, d, n);
	mutex_unlock(&dir->mu);
	if (is_err(d))
		return err;
	if (!err) {
		qname_copy(&nd->last, name);
		notify_dir(dir, name, IN_CREATE, 0, S_ISDIR(n->mode));
		if (n->inode)
			notify_inode(n->inode, IN_ATTRIB);
	}
	if (!err && ret_d)
		*ret_d = dentry_get(d);
	dentry_put(d);
	return err;
}

static int make_by_name(struct task *t, int dirfd, const char *name, struct new_node *n,
			struct path *ret)
{
	struct dentry *d = NULL;
	struct nameidata nd;
	int err = nd_begin_parent(&nd, t, dirfd, name);

	if (err)
		return err;
	err = make_at(&nd, n, ret ? &d : NULL);
	if (!err && ret) {
		*ret = (struct path){ nd.path.mnt, d };
		if (ret->mnt)
			mount_get(ret->mnt);
	}
	nd_end(&nd);
	return err;
}

long vfs_mkdir(struct task *t, int dirfd, const char *name, uint32_t mode)
{
	/* Linux keeps the sticky bit of mkdir's mode and drops setuid and setgid. */
	struct new_node n = { .mode = S_IFDIR | (mode & 01777 & ~fsctx_umask(t->fs)) };

	return make_by_name(t, dirfd, name, &n, NULL);
}

int vfs_mknod_path(struct task *t, int dirfd, const char *name, uint32_t mode, dev_t dev,
		   struct path *ret)
{
	struct new_node n = { .mode = mode & (S_IFMT | 07777),
			      .umask = fsctx_umask(t->fs),
			      .rdev = dev };

	return make_by_name(t, dirfd, name, &n, ret);
}

long vfs_mknod(struct task *t, int dirfd, const char *name, uint32_t mode, dev_t dev)
{
	switch (mode & S_IFMT) {
	case 0:
		mode |= S_IFREG;
		break;
	case S_IFREG:
	case S_IFIFO:
	case S_IFSOCK:
		break;
	case S_IFCHR:
		/* Device 0:0 is overlayfs' whiteout, which everybody may make. */
		if (dev != 0 && !task_capable(t, CAP_MKNOD))
			return -EPERM;
		break;
	case S_IFBLK:
		if (!task_capable(t, CAP_MKNOD))
			return -EPERM;
		break;
	case S_IFDIR:
		return -EPERM;
	default:
		return -EINVAL;
	}
	return vfs_mknod_path(t, dirfd, name, mode, dev, NULL);
}

long vfs_symlink(struct task *t, const char *target, int dirfd, const char *name)
{
	struct new_node n = { .mode = S_IFLNK | 0777, .target = target };

	if (!*target)
		return -ENOENT;
	return make_by_name(t, dirfd, name, &n, NULL);
}

/* linkat(2). @flags: AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, checked. */
long vfs_link(struct task *t, int olddirfd, const char *oldname, int newdirfd, const char *newname,
	      int flags)
{
	unsigned lookup = flags & AT_SYMLINK_FOLLOW ? LOOKUP_FOLLOW : 0;
	struct path old;
	struct nameidata nd;
	int err;

	if (flags & AT_EMPTY_PATH) {
		/* Only with CAP_DAC_READ_SEARCH: the descriptor may come from somebody else. */
		if (!*oldname && !task_capable(t, CAP_DAC_READ_SEARCH))
			return -ENOENT;
		lookup |= LOOKUP_EMPTY;
	}
	err = path_lookup(t, olddirfd, oldname, lookup, &old);
	if (err)
		return err;
	err = nd_begin_parent(&nd, t, newdirfd, newname);
	if (!err) {
		struct inode *inode = dentry_inode(old.dentry);
		struct new_node n = {
			.mode = inode->mode & S_IFMT,
			.inode = inode,
			.old = &old,
			.tmpfile = d_unlinked(old.dentry) && !old.dentry->deleted &&
				   !old.dentry->nolink,
		};

		err = make_at(&nd, &n, NULL);
		nd_end(&nd);
	}
	path_put(&old);
	return err;
}

int vfs_mkdir_p(const struct path *root, const char *name, uint32_t mode, struct path *ret)
{
	struct path p = *root;
	char part[NAME_MAX_G + 1];

	path_get(&p);
	for (const char *s = name; *s;) {
		size_t n = strcspn(s, "/");
		struct qname q = qname_make(s, n);

		s += n + (s[n] == '/');
		if (n == 0)
			continue;
		if (n > NAME_MAX_G || (n == 1 && q.s[0] == '.') || (n == 2 && !memcmp(q.s, "..", 2))) {
			path_put(&p);
			return -EINVAL;
		}
		struct inode *dir = dentry_inode(p.dentry);
		if (!dir || !S_ISDIR(dir->mode)) {
			path_put(&p);
			return -ENOTDIR;
		}
		qname_copy(&q, part);
		mutex_lock(&dir->mu);
		struct dentry *d = d_lookup_locked(p.dentry, &q);
		if (!is_err(d) && !dentry_inode(d)) {
			struct new_node node = { .mode = S_IFDIR | (mode & 07777) };
			struct inode *inode = make(dir, part, &node);

			if (is_err(inode)) {
				dentry_put(d);
				d = (struct dentry *)inode;
			} else {
				d_instantiate(d, inode);
			}
		}
		mutex_unlock(&dir->mu);
		if (is_err(d)) {
			path_put(&p);
			return (int)ptr_err(d);
		}
		struct path next = { p.mnt, d };
		mutex_lock(&dcache_mu);
		mount_follow_down_locked(&next);
		path_get(&next);
		mutex_unlock(&dcache_mu);
		dentry_put(d);
		path_put(&p);
		p = next;
	}
	*ret = p;
	return 0;
}
