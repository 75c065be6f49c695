// SPDX-License-Identifier: Apache-2.0
/*
 * rename(2), renameat2(2). Locks: super.rename_mu when the parents differ, so that the tree above them
 * holds still; then the parents, ancestor first, else lower address first; then what is replaced.
 *
 * Errors in Linux's order: EXDEV, EBUSY (last component), look-ups, EEXIST, ENOENT, ENOTDIR (slashes),
 * EINVAL / ENOTEMPTY (into itself / onto an ancestor), permissions, EBUSY (mount points).
 */
#include "base/alloc.h"

#include <linux/fs.h>
#include <sys/inotify.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs_priv.h"

struct rename {
	struct nameidata from, to;
	struct dentry *old, *new; /* references */
	unsigned flags;
	bool old_isdir, new_isdir, had_target;
};

static void lock_parents(struct rename *r)
{
	struct dentry *a = r->from.path.dentry, *b = r->to.path.dentry;
	struct inode *ia = dentry_inode(a), *ib = dentry_inode(b);

	if (ia == ib) {
		mutex_lock(&ia->mu);
		return;
	}
	bool a_first = d_is_ancestor(a, b) || (!d_is_ancestor(b, a) && (uintptr_t)ia < (uintptr_t)ib);
	mutex_lock(a_first ? &ia->mu : &ib->mu);
	mutex_lock_nested(a_first ? &ib->mu : &ia->mu);
}

static void unlock_parents(struct rename *r)
{
	struct inode *ia = dentry_inode(r->from.path.dentry), *ib = dentry_inode(r->to.path.dentry);

	mutex_unlock(&ia->mu);
	if (ib != ia)
		mutex_unlock(&ib->mu);
}

static int lookup_both(struct rename *r)
{
	struct dentry *d = d_lookup_locked(r->from.path.dentry, &r->from.last);

	if (is_err(d))
		return (int)ptr_err(d);
	r->old = d;
	if (!dentry_inode(d))
		return -ENOENT;
	d = d_lookup_locked(r->to.path.dentry, &r->to.last);
	if (is_err(d))
		return (int)ptr_err(d);
	r->new = d;
	r->had_target = dentry_inode(d) != NULL;
	if ((r->flags & RENAME_NOREPLACE) && r->had_target)
		return -EEXIST;
	if ((r->flags & RENAME_EXCHANGE) && !r->had_target)
		return -ENOENT;
	r->old_isdir = S_ISDIR(dentry_inode(r->old)->mode);
	r->new_isdir = r->had_target && S_ISDIR(dentry_inode(d)->mode);
	return 0;
}

static int check_shape(struct rename *r)
{
	if ((r->flags & RENAME_EXCHANGE) && r->to.trailing && !r->new_isdir)
		return -ENOTDIR;
	if (!r->old_isdir && (r->from.trailing || (!(r->flags & RENAME_EXCHANGE) && r->to.trailing)))
		return -ENOTDIR;
	if (d_is_ancestor(r->old, r->to.path.dentry))
		return -EINVAL;
	if (d_is_ancestor(r->new, r->from.path.dentry))
		return r->flags & RENAME_EXCHANGE ? -EINVAL : -ENOTEMPTY;
	return 0;
}

static int check_rights(struct rename *r)
{
	const struct cred *c = r->from.cred;
	bool exchange = r->flags & RENAME_EXCHANGE;
	int err;

	if (path_is_ro(&r->from.path))
		return -EROFS;
	err = may_delete(&r->from.path, r->old, c, r->old_isdir);
	if (err)
		return err;
	if (!r->had_target)
		err = may_create(&r->to.path, c);
	else
		err = may_delete(&r->to.path, r->new, c, exchange ? r->new_isdir : r->old_isdir);
	if (err)
		return err;
	/* ".." of a directory that moves is rewritten. */
	if (r->from.path.dentry != r->to.path.dentry) {
		if (r->old_isdir)
			err = inode_permission(dentry_inode(r->old), c, MAY_WRITE);
		if (!err && exchange && r->new_isdir)
			err = inode_permission(dentry_inode(r->new), c, MAY_WRITE);
	}
	if (err)
		return err;
	if (atomic_load(&r->old->mounts) || (r->new && atomic_load(&r->new->mounts)))
		return -EBUSY;
	return 0;
}

static int rename_locked(struct rename *r)
{
	struct inode *od = dentry_inode(r->from.path.dentry), *ndir = dentry_inode(r->to.path.dentry);
	struct inode *inode, *victim;
	char oldname[NAME_MAX_G + 1], newname[NAME_MAX_G + 1];
	int err = lookup_both(r);

	if (!err)
		err = check_shape(r);
	if (err)
		return err;
	inode = dentry_inode(r->old);
	victim = dentry_inode(r->new);
	if (inode == victim)
		return 1; /* two names of one file: nothing happens */
	err = check_rights(r);
	if (err)
		return err;
	if (!od->ops->rename)
		return -EPERM;
	qname_copy(&r->from.last, oldname);
	qname_copy(&r->to.last, newname);
	if (victim)
		mutex_lock_nested(&victim->mu);
	err = od->ops->rename(od, oldname, inode, ndir, newname, victim, r->flags);
	if (!err && (r->flags & RENAME_EXCHANGE)) {
		d_exchange(r->old, r->new);
	} else if (!err) {
		d_delete(r->new);
		d_move(r->old, r->to.path.dentry, &r->to.last);
	}
	if (victim)
		mutex_unlock(&victim->mu);
	return err;
}

static void notify_moved(struct dentry *d, struct nameidata *from,
			 struct nameidata *to, bool isdir)
{
	char oldname[NAME_MAX_G + 1], newname[NAME_MAX_G + 1];
	uint32_t cookie = notify_next_cookie();

	uint32_t out = IN_MOVED_FROM;

	qname_copy(&from->last, oldname);
	qname_copy(&to->last, newname);
	/* man 2 fcntl: DN_RENAME is a rename within the directory */
	if (from->path.dentry == to->path.dentry)
		out |= NOTIFY_DN_RENAME;
	notify_dir(dentry_inode(from->path.dentry), oldname, out, cookie, isdir);
	notify_dir(dentry_inode(to->path.dentry), newname, IN_MOVED_TO, cookie, isdir);
	notify_inode(dentry_inode(d), IN_MOVE_SELF);
}

static void notify_rename(struct rename *r)
{
	if (!atomic_load(&notify_nwatches))
		return;
	notify_moved(r->old, &r->from, &r->to, r->old_isdir);
	if (r->flags & RENAME_EXCHANGE)
		notify_moved(r->new, &r->to, &r->from, r->new_isdir);
	else if (r->had_target)
		notify_inode(dentry_inode(r->new), IN_ATTRIB);
}

static int do_rename(struct rename *r)
{
	struct super *sb = dentry_inode(r->from.path.dentry)->sb;
	bool cross = r->from.path.dentry != r->to.path.dentry;
	int err;

	if (r->from.path.mnt != r->to.path.mnt)
		return -EXDEV;
	if (r->from.last_type != LAST_NORM)
		return -EBUSY;
	if (r->to.last_type != LAST_NORM)
		return r->flags & RENAME_NOREPLACE ? -EEXIST : -EBUSY;
	if (cross)
		mutex_lock(&sb->rename_mu);
	lock_parents(r);
	err = rename_locked(r);
	unlock_parents(r);
	if (cross)
		mutex_unlock(&sb->rename_mu);
	if (err == 0)
		notify_rename(r);
	return err > 0 ? 0 : err;
}

long vfs_rename(struct task *t, int olddirfd, const char *oldname, int newdirfd,
		const char *newname, unsigned flags)
{
	struct rename r = { .flags = flags };
	int err;

	if (flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
		return -EINVAL;
	if ((flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)) && (flags & RENAME_EXCHANGE))
		return -EINVAL;
	err = nd_begin_parent(&r.from, t, olddirfd, oldname);
	if (err)
		return err;
	err = nd_begin_parent(&r.to, t, newdirfd, newname);
	if (!err) {
		err = do_rename(&r);
		dentry_put(r.old);
		dentry_put(r.new);
		nd_end(&r.to);
	}
	nd_end(&r.from);
	return err;
}
