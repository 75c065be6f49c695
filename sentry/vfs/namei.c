// SPDX-License-Identifier: Apache-2.0
/*
 * Path resolution (man 7 path_resolution, 2 openat2).
 *
 * A walk holds dcache_mu and takes no references while everything it meets is cached and its permission
 * is a matter of mode bits. Whatever may block (->lookup, ->revalidate, ->permission, ->readlink,
 * ->follow) runs after nd_unlazy(), which puts references on the position and drops the lock. So a
 * cached path costs one lock and a pair of references however long it is.
 *
 * Links: a link's target becomes what is to be walked; what came behind the link waits on a stack,
 * unless nothing did, so that tail links need no stack.
 *
 * Protected symlinks are on (fs.protected_symlinks = 1): a link in a sticky, world-writable directory is
 * followed only by its owner, or when it belongs to the directory's owner.
 */
#include "base/alloc.h"

#include <linux/securebits.h>
#include <string.h>
#include <sys/mount.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_priv.h"

#define LOOKUP_SCOPED (LOOKUP_BENEATH | LOOKUP_IN_ROOT)
#ifndef MS_NOSYMFOLLOW
# define MS_NOSYMFOLLOW 256
#endif

void nd_lock(struct nameidata *nd)
{
	if (!nd->locked) {
		mutex_lock(&dcache_mu);
		nd->locked = true;
	}
}

void nd_unlazy(struct nameidata *nd)
{
	struct path old = nd->held;
	struct dentry *found = steal_ptr(&nd->found);

	if (nd->locked) {
		nd->held = nd->path;
		path_get(&nd->held);
		nd->locked = false;
		mutex_unlock(&dcache_mu);
		path_put(&old);
	}
	dentry_put(found);
}

void nd_end(struct nameidata *nd)
{
	if (nd->locked)
		mutex_unlock(&dcache_mu);
	nd->locked = false;
	dentry_put(nd->found);
	nd->found = NULL;
	path_put(&nd->root);
	path_put(&nd->held);
	free(nd->heap);
	while (nd->depth)
		free(nd->stack[--nd->depth].heap);
	nd->heap = NULL;
}

static void nd_clear(struct nameidata *nd, struct task *t, const struct cred *c, const char *name,
		     unsigned flags)
{
	/* Not memset: the stack of links is large and seldom used. */
	nd->t = t;
	nd->cred = c;
	nd->flags = flags;
	nd->name = name;
	nd->root = nd->held = nd->path = (struct path){ 0 };
	nd->found = NULL;
	nd->locked = nd->trailing = false;
	nd->links = nd->depth = 0;
	nd->heap = NULL;
	nd->last_type = LAST_ROOT;
	nd->last = (struct qname){ 0 };
}

/* Where a relative walk starts: references. */
static int start_path(struct task *t, int dirfd, bool need_dir, struct path *ret)
{
	if (dirfd == AT_FDCWD_G) {
		*ret = fsctx_cwd(t->fs);
		return 0;
	}
	AUTO_FILE struct file *f = fd_get_any(t, dirfd);
	if (!f)
		return -EBADF;
	if (!f->path.dentry)
		return need_dir ? -ENOTDIR : -EINVAL;
	if (need_dir && !S_ISDIR(f->inode->mode))
		return -ENOTDIR;
	*ret = f->path;
	path_get(ret);
	return 0;
}

int nd_begin(struct nameidata *nd, struct task *t, const struct cred *c, int dirfd,
	     const char *name, unsigned flags)
{
	int err;

	nd_clear(nd, t, c, name, flags);
	if (!*name && !(flags & LOOKUP_EMPTY))
		return -ENOENT;
	if (*name == '/' && !(flags & LOOKUP_IN_ROOT)) {
		if (flags & LOOKUP_BENEATH)
			return -EXDEV;
		nd->root = fsctx_root(t->fs);
		nd->held = *path_get(&nd->root);
	} else {
		err = start_path(t, dirfd, *name, &nd->held);
		if (err)
			return err;
		nd->root = flags & LOOKUP_SCOPED ? *path_get(&nd->held) : fsctx_root(t->fs);
	}
	nd->path = nd->held;
	return 0;
}

int nd_begin_at(struct nameidata *nd, struct task *t, const struct cred *c, const struct path *root,
		const struct path *start, const char *name, unsigned flags)
{
	nd_clear(nd, t, c, name, flags);
	if (!*name && !(flags & LOOKUP_EMPTY))
		return -ENOENT;
	nd->root = *root;
	nd->held = *name == '/' ? *root : *start;
	path_get(&nd->root);
	path_get(&nd->held);
	nd->path = nd->held;
	return 0;
}

/* ---------------------------------------------------------------- steps */

static int may_search(struct nameidata *nd)
{
	struct inode *inode = dentry_inode(nd->path.dentry);
	int err;

	if (!inode->ops->permission)
		return inode_permission(inode, nd->cred, MAY_EXEC);
	nd_unlazy(nd);
	err = inode_permission(inode, nd->cred, MAY_EXEC);
	nd_lock(nd);
	return err;
}

/* Asks the file system whether cached @d is still right. 1: yes. Leaves the lock and takes it again. */
static int revalidate(struct nameidata *nd, const struct qname *q, struct dentry *d)
{
	struct inode *di = dentry_inode(nd->path.dentry), *inode = dentry_inode(d);
	char name[NAME_MAX_G + 1];
	int ok;

	qname_copy(q, name);
	dentry_get(d);
	nd_unlazy(nd);
	ok = di->ops->revalidate(di, name, inode);
	if (ok == 0 && atomic_load(&d->mounts))
		ok = 1; /* what is mounted there hides it anyway */
	if (ok == 0)
		d_drop(d);
	if (ok > 0)
		nd->found = d;
	else
		dentry_put(d);
	nd_lock(nd);
	return ok;
}

int nd_find(struct nameidata *nd, const struct qname *q, struct dentry **ret)
{
	struct inode *di = dentry_inode(nd->path.dentry);
	struct dentry *d = d_find_locked(nd->path.dentry, q);

	if (d && di->ops->revalidate && dentry_inode(d)) {
		int ok = revalidate(nd, q, d);

		if (ok < 0)
			return ok;
		if (ok == 0)
			d = NULL;
	}
	if (likely(d)) {
		*ret = d;
		return 0;
	}
	nd_unlazy(nd);
	mutex_lock(&di->mu);
	d = d_lookup_locked(nd->path.dentry, q);
	mutex_unlock(&di->mu);
	if (!is_err(d))
		nd->found = d;
	nd_lock(nd);
	if (is_err(d))
		return (int)ptr_err(d);
	*ret = d;
	return 0;
}

/* ".." from the position. Context: dcache_mu. */
static int step_up(struct nameidata *nd)
{
	struct path p = nd->path;

	if (path_equal(&p, &nd->root))
		return nd->flags & LOOKUP_BENEATH ? -EXDEV : 0;
	while (p.mnt && p.dentry == p.mnt->root) {
		if (!p.mnt->parent)
			return 0;
		p = (struct path){ p.mnt->parent, p.mnt->mountpoint };
		if (path_equal(&p, &nd->root))
			return nd->flags & LOOKUP_BENEATH ? -EXDEV : 0;
	}
	if (p.dentry->parent)
		p.dentry = p.dentry->parent;
	mount_follow_down_locked(&p);
	if (p.mnt != nd->path.mnt && (nd->flags & LOOKUP_NO_XDEV))
		return -EXDEV;
	nd->path = p;
	return 0;
}

/* Onto @d, and down into what is mounted there. */
static int step_into(struct nameidata *nd, struct dentry *d)
{
	struct path p = { nd->path.mnt, d };

	if (unlikely(atomic_load_explicit(&d->mounts, memory_order_relaxed))) {
		mount_follow_down_locked(&p);
		if (p.mnt != nd->path.mnt && (nd->flags & LOOKUP_NO_XDEV))
			return -EXDEV;
	}
	nd->path = p;
	return 0;
}

static int may_follow(struct nameidata *nd, struct inode *link, bool trailing)
{
	struct inode *dir = dentry_inode(nd->path.dentry);

	if (++nd->links > SYMLINK_DEPTH_MAX)
		return -ELOOP;
	if (nd->flags & LOOKUP_NO_SYMLINKS)
		return -ELOOP;
	if (nd->path.mnt && (mount_flags(nd->path.mnt) & MS_NOSYMFOLLOW))
		return -ELOOP;
	if (trailing && (dir->mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH) &&
	    link->uid != nd->cred->fsuid && link->uid != dir->uid)
		return -EACCES;
	return 0;
}

/* The walk goes on at the target of a magic link. Context: unlocked. */
static int jump_to(struct nameidata *nd, struct path *to)
{
	struct path old = nd->held;
	int err = 0;

	if (nd->flags & LOOKUP_SCOPED)
		err = -EXDEV;
	else if ((nd->flags & LOOKUP_NO_XDEV) && to->mnt != nd->path.mnt)
		err = -EXDEV;
	if (err) {
		path_put(to);
		return err;
	}
	nd->held = nd->path = *to;
	path_put(&old);
	return 0;
}

/* Makes @target (heap, taken over) what is to be walked next. Context: unlocked. */
static int push_target(struct nameidata *nd, char *target)
{
	const char *rest = nd->name;

	if (!*target) {
		free(target);
		return -ENOENT;
	}
	if (*rest == '/')
		nd->trailing = true;
	while (*rest == '/')
		rest++;
	if (*rest) {
		nd->stack[nd->depth++] = (struct nd_saved){ nd->heap, rest };
		nd->trailing = false;
	} else {
		free(nd->heap);
	}
	nd->heap = target;
	nd->name = target;
	if (*target != '/')
		return 0;
	if (nd->flags & LOOKUP_BENEATH)
		return -EXDEV;
	if ((nd->flags & LOOKUP_NO_XDEV) && nd->root.mnt != nd->path.mnt)
		return -EXDEV;
	struct path old = nd->held;
	nd->held = nd->path = *path_get(&nd->root);
	path_put(&old);
	return 0;
}

int nd_follow(struct nameidata *nd, struct dentry *d, bool trailing, bool *jumped)
{
	struct inode *inode = dentry_inode(d);
	int err = may_follow(nd, inode, trailing);

	*jumped = false;
	if (err)
		return err;
	dentry_get(d);
	nd_unlazy(nd);
	if (inode->ops->follow) {
		struct path to = { 0 };

		err = nd->flags & LOOKUP_NO_MAGICLINKS ? -ELOOP :
							 inode->ops->follow(inode, nd->t, &to);
		if (!err)
			err = jump_to(nd, &to);
		*jumped = true;
	} else {
		char *target = inode->ops->readlink ? inode->ops->readlink(inode) :
						      err_ptr(-EINVAL);

		if (is_err(target)) {
			err = (int)ptr_err(target);
		} else {
			touch_atime(&(struct path){ nd->path.mnt, d }, inode);
			err = push_target(nd, target);
		}
	}
	dentry_put(d);
	nd_lock(nd);
	return err;
}

/* A component that isn't the last: must lead to a directory. */
static int walk_component(struct nameidata *nd, const struct qname *q)
{
	struct dentry *d = NULL;
	bool jumped;
	int err = nd_find(nd, q, &d);

	if (err)
		return err;
	struct inode *inode = dentry_inode(d);
	if (!inode)
		return -ENOENT;
	if (S_ISLNK(inode->mode)) {
		err = nd_follow(nd, d, false, &jumped);
		if (err || !jumped)
			return err;
	} else {
		err = step_into(nd, d);
		if (err)
			return err;
	}
	inode = dentry_inode(nd->path.dentry);
	return inode && S_ISDIR(inode->mode) ? 0 : -ENOTDIR;
}

/* Cuts the next component off nd->name. */
static int next_component(struct nameidata *nd, struct qname *q)
{
	const char *s = nd->name;
	uint32_t h = 2166136261u;
	size_t n = 0;

	for (; s[n] && s[n] != '/'; n++)
		h = (h ^ (uint8_t)s[n]) * 16777619u;
	nd->name = s + n;
	*q = (struct qname){ s, (uint32_t)n, h };
	return n > NAME_MAX_G ? -ENAMETOOLONG : 0;
}

/* Is what was just cut off the last one? Skips slashes and remembers them. */
static bool at_end(struct nameidata *nd)
{
	const char *rest = nd->name;

	while (*rest == '/')
		rest++;
	if (*rest || nd->depth)
		return false;
	if (*nd->name == '/')
		nd->trailing = true;
	return true;
}

int nd_parent(struct nameidata *nd)
{
	struct qname q;
	int err;

	nd_lock(nd);
	nd->last_type = LAST_ROOT;
	for (;;) {
		while (*nd->name == '/')
			nd->name++;
		if (!*nd->name) {
			if (!nd->depth)
				return 0;
			free(nd->heap);
			nd->depth--;
			nd->heap = nd->stack[nd->depth].heap;
			nd->name = nd->stack[nd->depth].rest;
			continue;
		}
		struct inode *dir = dentry_inode(nd->path.dentry);
		if (!dir || !S_ISDIR(dir->mode))
			return -ENOTDIR;
		err = may_search(nd);
		if (err)
			return err;
		err = next_component(nd, &q);
		if (err)
			return err;
		bool last = at_end(nd);
		if (q.len <= 2 && q.s[0] == '.' && (q.len == 1 || q.s[1] == '.')) {
			nd->last_type = q.len == 1 ? LAST_DOT : LAST_DOTDOT;
			err = q.len == 1 ? 0 : step_up(nd);
			if (err || last)
				return err;
			continue;
		}
		nd->last_type = LAST_NORM;
		if (last) {
			nd->last = q;
			return 0;
		}
		err = walk_component(nd, &q);
		if (err)
			return err;
	}
}

/* ---------------------------------------------------------------- whole walks */

int nd_lookup(struct nameidata *nd, struct path *ret)
{
	struct inode *inode;
	bool jumped = false;
	int err;

	for (;;) {
		struct dentry *d = NULL;

		err = nd_parent(nd);
		if (err)
			return err;
		if (nd->last_type != LAST_NORM)
			break;
		err = nd_find(nd, &nd->last, &d);
		if (err)
			return err;
		inode = dentry_inode(d);
		if (!inode && !(nd->flags & LOOKUP_CREATE))
			return -ENOENT;
		if (!inode) {
			*ret = (struct path){ nd->path.mnt, d };
			path_get(ret);
			return 0;
		}
		if (!S_ISLNK(inode->mode) || !((nd->flags & LOOKUP_FOLLOW) || nd->trailing)) {
			err = step_into(nd, d);
			if (err)
				return err;
			break;
		}
		err = nd_follow(nd, d, true, &jumped);
		if (err)
			return err;
		if (jumped)
			break;
	}
	inode = dentry_inode(nd->path.dentry);
	if (((nd->flags & LOOKUP_DIRECTORY) || nd->trailing) && !(inode && S_ISDIR(inode->mode)))
		return -ENOTDIR;
	*ret = nd->path;
	path_get(ret);
	return 0;
}

/* Real ids, and the capabilities that go with them (man 2 access). A reference. */
struct cred *cred_for_access(struct task *t)
{
	const struct cred *own = task_cred(t);
	struct cred *c = cred_dup(own);

	c->fsuid = c->uid;
	c->fsgid = c->gid;
	if (!(c->securebits & (1u << SECURE_NO_SETUID_FIXUP))) {
		if (c->uid == userns_map_uid(c->userns, 0))
			c->effective = c->permitted;
		else
			c->effective = 0;
	}
	return c;
}

int path_lookup(struct task *t, int dirfd, const char *name, unsigned flags, struct path *ret)
{
	struct nameidata nd;
	struct cred *real = flags & LOOKUP_REAL_UID ? cred_for_access(t) : NULL;
	int err = nd_begin(&nd, t, real ? real : task_cred(t), dirfd, name, flags);

	*ret = (struct path){ 0 };
	if (!err) {
		err = nd_lookup(&nd, ret);
		nd_end(&nd);
	}
	cred_put(real);
	return err;
}

int path_lookup_from(struct task *t, const struct cred *c, const struct path *root,
		     const struct path *start, const char *name, unsigned flags, struct path *ret)
{
	struct nameidata nd;
	int err = nd_begin_at(&nd, t, c, root, start, name, flags);

	*ret = (struct path){ 0 };
	if (err)
		return err;
	err = nd_lookup(&nd, ret);
	nd_end(&nd);
	return err;
}

int nd_begin_parent(struct nameidata *nd, struct task *t, int dirfd, const char *name)
{
	int err = nd_begin(nd, t, task_cred(t), dirfd, name, 0);

	if (err)
		return err;
	err = nd_parent(nd);
	if (err) {
		nd_end(nd);
		return err;
	}
	nd_unlazy(nd);
	return 0;
}
