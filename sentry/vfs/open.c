// SPDX-License-Identifier: Apache-2.0
/*
 * open(2), openat2(2), O_TMPFILE, open for exec. The order of errors is Linux's (path_openat, may_open,
 * do_dentry_open): lookup, type, permission, read-only mount, text busy, the file system's own.
 *
 * Devices, FIFOs and sockets don't go through their file system's ->open: the inode's type decides
 * (chrdev_open, pipe_open_fifo, ENXIO), unless the file system brought its own ->open for a device
 * (ptys).
 *
 * Not done: O_DIRECT is accepted and has no effect on alignment.
 */
#include "base/alloc.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>

#include "sentry/fs/dev/chrdev.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

#define O_TMPFILE_BIT (O_TMPFILE & ~O_DIRECTORY)
#define O_LARGEFILE_G 0100000u

static unsigned open_fmode(unsigned flags)
{
	switch (flags & O_ACCMODE) {
	case O_RDONLY:
		return FMODE_READ;
	case O_WRONLY:
		return FMODE_WRITE;
	default: /* 3: no I/O, only ioctl, but needs both rights */
		return (flags & O_ACCMODE) == O_RDWR ? FMODE_READ | FMODE_WRITE : 0;
	}
}

static int open_mask(unsigned flags)
{
	static const int masks[4] = { MAY_READ, MAY_WRITE, MAY_READ | MAY_WRITE,
				      MAY_READ | MAY_WRITE };
	int mask = masks[flags & O_ACCMODE];

	return flags & O_TRUNC ? mask | MAY_WRITE : mask;
}

static int check_type(const struct path *p, struct inode *inode, unsigned flags)
{
	int mask = open_mask(flags);

	switch (inode->mode & S_IFMT) {
	case S_IFLNK:
		return -ELOOP;
	case S_IFDIR:
		return mask & MAY_WRITE ? -EISDIR : 0;
	case S_IFBLK:
	case S_IFCHR:
		return mount_flags(p->mnt) & MS_NODEV ? -EACCES : 0;
	default:
		return 0;
	}
}

static int may_open(const struct path *p, unsigned flags, const struct cred *c)
{
	struct inode *inode = dentry_inode(p->dentry);
	int err = check_type(p, inode, flags);

	if (err)
		return err;
	err = path_permission(p, c, open_mask(flags));
	if (err)
		return err;
	if ((flags & O_NOATIME) && !inode_owner_or_capable(inode, c))
		return -EPERM;
	return 0;
}

/* Counts a writer; -ETXTBSY while the file is being executed. */
static int get_write_access(struct inode *inode)
{
	int n = atomic_load(&inode->writecount);

	do {
		if (n < 0)
			return -ETXTBSY;
	} while (!atomic_compare_exchange_weak(&inode->writecount, &n, n + 1));
	return 0;
}

static int deny_write_access(struct inode *inode)
{
	int n = atomic_load(&inode->writecount);

	do {
		if (n > 0)
			return -ETXTBSY;
	} while (!atomic_compare_exchange_weak(&inode->writecount, &n, n - 1));
	return 0;
}

static int open_by_type(struct task *t, struct inode *inode, struct file *f)
{
	if (S_ISFIFO(inode->mode))
		return pipe_open_fifo(t, inode, f);
	if (S_ISSOCK(inode->mode) || S_ISBLK(inode->mode))
		return -ENXIO;
	if (inode->ops->open)
		return inode->ops->open(inode, f);
	if (S_ISCHR(inode->mode))
		return chrdev_open(inode, f);
	f->ops = inode->fops;
	return f->ops ? 0 : -ENXIO;
}

static const struct file_ops path_fops = { .name = "path", .state = &file_state_path };
const struct file_state file_state_path = { .id = FILE_PATH, .ops = &path_fops };

static struct file *open_o_path(const struct path *path, unsigned flags, const struct cred *c)
{
	struct file *f = file_alloc(flags & (O_PATH | O_DIRECTORY | O_NOFOLLOW), c);

	if (is_err(f))
		return f;
	f->path = *path;
	path_get(&f->path);
	f->inode = inode_get(dentry_inode(path->dentry));
	f->fmode = FMODE_PATH;
	f->ops = &path_fops;
	return f;
}

struct file *file_open_path(struct task *t, const struct path *path, unsigned flags,
			    const struct cred *c)
{
	struct inode *inode = dentry_inode(path->dentry);
	int err = 0;

	if (flags & O_PATH)
		return open_o_path(path, flags, c);
	struct file *f = file_alloc(flags, c);
	if (is_err(f))
		return f;
	f->path = *path;
	path_get(&f->path);
	f->inode = inode_get(inode);
	f->fmode = open_fmode(flags);
	if ((f->fmode & FMODE_WRITE) && S_ISREG(inode->mode)) {
		err = path_is_ro(path) ? -EROFS : get_write_access(inode);
		f->wrote = !err;
	}
	/* Only the opening itself may see O_NOCTTY: F_GETFL never shows it. */
	f->flags |= flags & O_NOCTTY;
	if (!err)
		err = open_by_type(t, inode, f);
	f->flags &= ~(unsigned)O_NOCTTY;
	if (err) {
		f->ops = NULL; /* nothing to release */
		file_put(f);
		return err_ptr(err);
	}
	if (!f->ops->llseek && !S_ISDIR(inode->mode))
		f->fmode |= FMODE_STREAM;
	return f;
}

static struct file *finish_open(struct task *t, const struct path *p, unsigned flags, bool created)
{
	const struct cred *c = task_cred(t);
	struct inode *inode = dentry_inode(p->dentry);
	int err = 0;

	if (S_ISLNK(inode->mode) && !(flags & O_PATH))
		return err_ptr(-ELOOP);
	if ((flags & O_DIRECTORY) && !S_ISDIR(inode->mode))
		return err_ptr(-ENOTDIR);
	if (flags & O_PATH)
		return file_open_path(t, p, flags, c);
	if (created) /* the creator gets what it asked for, whatever mode the file has */
		err = 0;
	else
		err = may_open(p, flags, c);
	if (err)
		return err_ptr(err);
	struct file *f = file_open_path(t, p, flags, c);
	if (is_err(f))
		return f;
	if (created)
		f->fmode |= FMODE_CREATED; /* nobody else has the file yet */
	notify_file(f, IN_OPEN); /* before IN_MODIFY, as since Linux 6.8 */
	if ((flags & O_TRUNC) && S_ISREG(inode->mode) && !created) {
		struct iattr a = { .valid = ATTR_SIZE | ATTR_OPEN };

		/* O_RDONLY|O_TRUNC truncates, too, but counts no writer. */
		err = path_is_ro(p) ? -EROFS : file_remove_privs(t, f);
		if (!err && !f->wrote && atomic_load(&inode->writecount) < 0)
			err = -ETXTBSY;
		if (!err)
			err = inode_apply_attr(p, inode, &a);
		if (err) {
			file_put(f);
			return err_ptr(err);
		}
	}
	return f;
}

/* Makes the missing file @d in the directory at nd's position. Context: its inode.mu. */
static int create_locked(struct nameidata *nd, struct dentry *d, uint32_t mode)
{
	struct inode *dir = dentry_inode(nd->path.dentry);
	char name[NAME_MAX_G + 1];
	uid_t uid;
	gid_t gid;
	int err;

	if (path_is_ro(&nd->path))
		return -EROFS;
	err = may_create(&nd->path, nd->cred);
	if (err)
		return err;
	if (!dir->ops->create)
		return -EACCES;
	mode = mode_prepare(dir, nd->cred, S_IFREG | (mode & 07777), fsctx_umask(nd->t->fs));
	inode_new_owner(dir, nd->cred, &mode, &uid, &gid);
	qname_copy(&nd->last, name);
	struct inode *inode = dir->ops->create(dir, name, mode, uid, gid);
	if (is_err(inode))
		return (int)ptr_err(inode);
	d_instantiate(d, inode);
	return 0;
}

/* The last component of an O_CREAT open: *ret is its dentry (reference). Context: unlocked. */
static int lookup_or_create(struct nameidata *nd, unsigned flags, uint32_t mode,
			    struct dentry **ret, bool *created)
{
	struct inode *dir = dentry_inode(nd->path.dentry);
	struct dentry *d;
	int err = 0;

	mutex_lock(&dir->mu);
	d = d_lookup_locked(nd->path.dentry, &nd->last);
	if (is_err(d)) {
		mutex_unlock(&dir->mu);
		return (int)ptr_err(d);
	}
	if (!dentry_inode(d)) {
		err = create_locked(nd, d, mode);
		*created = !err;
	} else if (flags & O_EXCL) {
		err = -EEXIST;
	}
	mutex_unlock(&dir->mu);
	if (err) {
		dentry_put(d);
		return err;
	}
	if (*created) {
		char name[NAME_MAX_G + 1];

		qname_copy(&nd->last, name);
		notify_dir(dir, name, IN_CREATE, 0, false);
	}
	*ret = d;
	return 0;
}

/* Cached and there: no need for the directory's lock. */
static bool found_in_cache(struct nameidata *nd, struct dentry **ret)
{
	int err = nd_find(nd, &nd->last, ret);

	if (err || !dentry_inode(*ret))
		return false;
	dentry_get(*ret);
	return true;
}

/* One round of an O_CREAT open: 1: *ret is what to open; 0: a link was followed, go round. */
static int create_step(struct nameidata *nd, unsigned flags, uint32_t mode, struct path *ret,
		       bool *created)
{
	struct dentry *d = NULL;
	bool jumped = false;
	int err = nd_parent(nd);

	if (err)
		return err;
	if (nd->last_type != LAST_NORM || nd->trailing)
		return -EISDIR;
	if ((flags & O_EXCL) || !found_in_cache(nd, &d)) {
		nd_unlazy(nd);
		err = lookup_or_create(nd, flags, mode, &d, created);
		if (err)
			return err;
		nd_lock(nd);
	}
	struct inode *inode = dentry_inode(d);
	if (S_ISLNK(inode->mode) && !(flags & O_NOFOLLOW)) {
		err = nd_follow(nd, d, true, &jumped);
		nd_unlazy(nd);
		dentry_put(d);
		if (err || !jumped)
			return err;
		*ret = nd->path;
		path_get(ret);
		return 1;
	}
	*ret = (struct path){ nd->path.mnt, d };
	mount_follow_down_locked(ret);
	bool xdev = ret->mnt != nd->path.mnt && (nd->flags & LOOKUP_NO_XDEV);
	path_get(ret);
	nd_unlazy(nd);
	dentry_put(d);
	if (xdev) {
		path_put(ret);
		return -EXDEV;
	}
	return 1;
}

static struct file *open_create(struct task *t, int dirfd, const char *name, unsigned flags,
				uint32_t mode, unsigned lookup)
{
	struct path p = { 0 };
	struct nameidata nd;
	bool created = false;
	int err = nd_begin(&nd, t, task_cred(t), dirfd, name, lookup | LOOKUP_FOLLOW);

	if (err)
		return err_ptr(err);
	do {
		err = create_step(&nd, flags, mode, &p, &created);
	} while (err == 0);
	nd_end(&nd);
	if (err < 0)
		return err_ptr(err);
	struct file *f = S_ISDIR(dentry_inode(p.dentry)->mode) ?
				 err_ptr(-EISDIR) :
				 finish_open(t, &p, flags, created);
	path_put(&p);
	return f;
}

static struct file *open_tmpfile(struct task *t, const struct path *dir, unsigned flags,
				 uint32_t mode)
{
	struct inode *di = dentry_inode(dir->dentry);
	const struct cred *c = task_cred(t);
	char name[NAME_MAX_G + 1];
	uid_t uid;
	gid_t gid;
	int err;

	if (path_is_ro(dir))
		return err_ptr(-EROFS);
	err = inode_permission(di, c, MAY_WRITE | MAY_EXEC);
	if (err)
		return err_ptr(err);
	if (!di->ops->tmpfile)
		return err_ptr(-EOPNOTSUPP);
	mode = mode_prepare(di, c, S_IFREG | (mode & 07777), fsctx_umask(t->fs));
	inode_new_owner(di, c, &mode, &uid, &gid);
	mutex_lock(&di->mu);
	struct inode *inode = di->ops->tmpfile(di, mode, uid, gid);
	mutex_unlock(&di->mu);
	if (is_err(inode))
		return (struct file *)inode;
	snprintf(name, sizeof(name), "#%llu", (unsigned long long)inode->ino);
	struct path p = { dir->mnt, d_alloc_unhashed(dir->dentry, name, inode) };
	mount_get(p.mnt);
	struct file *f = file_open_path(t, &p, flags & ~(unsigned)(O_TMPFILE_BIT | O_EXCL), c);
	if (!is_err(f)) {
		p.dentry->nolink = flags & O_EXCL;
		atomic_store(&f->flags, atomic_load(&f->flags) | (flags & O_TMPFILE));
		notify_file(f, IN_OPEN);
	}
	path_put(&p);
	return f;
}

static unsigned resolve_to_lookup(uint64_t resolve)
{
	/* RESOLVE_NO_XDEV 1, NO_MAGICLINKS 2, NO_SYMLINKS 4, BENEATH 8, IN_ROOT 16 */
	static const unsigned map[] = { LOOKUP_NO_XDEV, LOOKUP_NO_MAGICLINKS,
					LOOKUP_NO_SYMLINKS | LOOKUP_NO_MAGICLINKS, LOOKUP_BENEATH,
					LOOKUP_IN_ROOT };
	unsigned flags = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(map); i++)
		if (resolve & 1u << i)
			flags |= map[i];
	return flags;
}

/* Flags are those of openat2(2), checked by the caller; open(2) has dropped what it ignores. */
struct file *vfs_open(struct task *t, int dirfd, const char *name, const struct open_how_g *how)
{
	unsigned flags = (unsigned)how->flags | O_LARGEFILE_G;
	unsigned lookup = resolve_to_lookup(how->resolve);
	struct path p;
	int err;

	if (flags & O_PATH)
		flags &= O_DIRECTORY | O_NOFOLLOW | O_PATH | O_CLOEXEC;
	if ((flags & O_CREAT) && !(flags & O_TMPFILE_BIT)) {
		if (flags & O_DIRECTORY)
			return err_ptr(-EINVAL); /* since Linux 6.4 */
		if (flags & O_EXCL)
			flags |= O_NOFOLLOW;
		return open_create(t, dirfd, name, flags, (uint32_t)how->mode, lookup);
	}
	if (!(flags & O_NOFOLLOW))
		lookup |= LOOKUP_FOLLOW;
	if (flags & O_DIRECTORY)
		lookup |= LOOKUP_DIRECTORY;
	err = path_lookup(t, dirfd, name, lookup, &p);
	if (err)
		return err_ptr(err);
	struct file *f = flags & O_TMPFILE_BIT ? open_tmpfile(t, &p, flags, (uint32_t)how->mode) :
						 finish_open(t, &p, flags, false);
	path_put(&p);
	return f;
}

struct file *vfs_open_exec(struct task *t, int dirfd, const char *name, unsigned at_flags)
{
	unsigned lookup = at_flags & AT_SYMLINK_NOFOLLOW ? 0 : LOOKUP_FOLLOW;
	const struct cred *c = task_cred(t);
	struct path p;
	int err;

	if (at_flags & AT_EMPTY_PATH)
		lookup |= LOOKUP_EMPTY;
	err = path_lookup(t, dirfd, name, lookup, &p);
	if (err)
		return err_ptr(err);
	struct inode *inode = dentry_inode(p.dentry);
	struct file *f = NULL;
	if (S_ISLNK(inode->mode))
		err = -ELOOP;
	else if (!S_ISREG(inode->mode))
		err = -EACCES;
	else
		err = path_permission(&p, c, MAY_EXEC);
	if (!err)
		err = deny_write_access(inode);
	if (!err) {
		f = file_open_path(t, &p, O_RDONLY | O_LARGEFILE_G, c);
		if (is_err(f))
			atomic_fetch_add(&inode->writecount, 1);
		else
			f->fmode |= FMODE_EXEC;
	}
	path_put(&p);
	if (err)
		return err_ptr(err);
	if (!is_err(f))
		notify_file(f, IN_OPEN);
	return f;
}
