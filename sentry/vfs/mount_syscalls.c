// SPDX-License-Identifier: Apache-2.0
/*
 * mount(2), umount2(2), pivot_root(2): permission, flags and Linux's rules. The tree itself is mount.c's.
 *
 * Left out: MNT_EXPIRE marks nothing (EAGAIN as on first use, every time), a remount to read-only
 * doesn't look for files that are open for writing.
 */
#include "base/alloc.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/mount.h>

#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_priv.h"

#ifndef MS_NOSYMFOLLOW
# define MS_NOSYMFOLLOW 256
#endif
#define MS_NOUSER_G (1UL << 31)
#define MS_MGC_VAL_G 0xc0ed0000UL
#define MS_MGC_MSK_G 0xffff0000UL
#define MNT_SETTABLE (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOSYMFOLLOW)
#define MNT_ATIME (MS_NOATIME | MS_NODIRATIME | MS_RELATIME | MS_STRICTATIME)
#define SB_SETTABLE (MS_RDONLY | MS_SYNCHRONOUS | MS_MANDLOCK | MS_DIRSYNC | MS_SILENT | MS_LAZYTIME)
#define MS_PROPAGATION (MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE)


static bool may_mount(struct task *t)
{
	return cred_capable_in(task_cred(t), t->ns->mnt->userns, CAP_SYS_ADMIN);
}

static bool is_mount_root(const struct path *p)
{
	return p->mnt && p->mnt->root == p->dentry;
}

static bool in_own_ns(struct task *t, const struct path *p)
{
	return p->mnt && p->mnt->ns == t->ns->mnt;
}

static unsigned long mnt_flags_of(unsigned long flags)
{
	unsigned long f = flags & (MNT_SETTABLE | MS_NODIRATIME);

	if (flags & MS_NOATIME)
		f |= MS_NOATIME;
	else if (flags & MS_STRICTATIME)
		f |= MS_STRICTATIME;
	else
		f |= MS_RELATIME;
	return f;
}

/* The place below all that is mounted on it: references stay on the original. */
static struct path topmost(const struct path *p)
{
	struct path top = *p;

	mutex_lock(&dcache_mu);
	mount_follow_down_locked(&top);
	path_get(&top);
	mutex_unlock(&dcache_mu);
	return top;
}

/* Attaches the tree @m (taken over) at @p; told to pollers of /proc/mounts. */
static long graft(struct mntns *ns, struct mount *m, const struct path *p)
{
	struct list dead = LIST_INIT(dead);
	struct path top = topmost(p);
	long err;

	mutex_lock(&mount_mu);
	err = top.mnt->ns == ns ? mount_attach(m, &top) : -EINVAL;
	if (err)
		mount_detach_tree(m, &dead);
	mutex_unlock(&mount_mu);
	path_put(&top);
	mounts_put_list(&dead);
	if (!err)
		waitq_wake(&ns->wq, ~0u);
	return err;
}

static long mount_new(struct task *t, const struct path *p, const char *source, const char *fstype,
		      unsigned long flags, const char *data)
{
	struct fs_type *ft;
	struct super *sb;
	struct mount *m;

	if (!fstype)
		return -EINVAL;
	ft = fs_find(fstype);
	if (!ft)
		return -ENODEV;
	if (!ft->userns_ok && !cred_capable(task_cred(t), CAP_SYS_ADMIN))
		return -EPERM;
	sb = ft->mount(t, source, flags & SB_SETTABLE, data);
	if (is_err(sb))
		return ptr_err(sb);
	if (!sb->root) {
		super_put(sb);
		return -EBUSY;
	}
	if (!sb->source)
		sb->source = kstrdup(source ? source : "none");
	if (is_mount_root(p) && p->mnt->sb == sb) {
		super_put(sb);
		return -EBUSY;
	}
	m = mount_create(sb, sb->root, mnt_flags_of(flags));
	super_put(sb);
	return graft(t->ns->mnt, m, p);
}

static long mount_bind(struct task *t, const struct path *p, const char *source, bool rec)
{
	struct path src;
	struct mount *m = NULL;
	int err;

	if (!source || !*source)
		return -EINVAL;
	err = path_lookup(t, AT_FDCWD_G, source, LOOKUP_FOLLOW, &src);
	if (err)
		return err;
	mutex_lock(&mount_mu);
	if (!in_own_ns(t, &src) || src.mnt->prop == MNT_UNBINDABLE)
		err = -EINVAL;
	else if (rec)
		m = mount_clone_tree(src.mnt, src.dentry, true);
	else
		m = mount_clone_one(src.mnt, src.dentry);
	mutex_unlock(&mount_mu);
	path_put(&src);
	return err ? err : graft(t->ns->mnt, m, p);
}

/* New flags for @m; -EPERM when one that is locked would go away. Context: mount_mu. */
static long change_flags(struct mount *m, unsigned long flags)
{
	unsigned long new = mnt_flags_of(flags);

	if (!(flags & MNT_ATIME))
		new = (new & MNT_SETTABLE) | (atomic_load(&m->flags) & MNT_ATIME);
	if (m->locked_flags & ~new)
		return -EPERM;
	atomic_store(&m->flags, new);
	return 0;
}

static long remount(struct task *t, const struct path *p, unsigned long flags, const char *data)
{
	struct super *sb = p->mnt->sb;
	long err;

	if (!is_mount_root(p) || !in_own_ns(t, p))
		return -EINVAL;
	if (flags & MS_BIND) {
		AUTO_LOCK(&mount_mu);
		return change_flags(p->mnt, flags);
	}
	if (!cred_capable(task_cred(t), CAP_SYS_ADMIN))
		return -EPERM;
	err = sb->ops->remount ? sb->ops->remount(sb, flags & SB_SETTABLE, data) : 0;
	if (err)
		return err;
	mutex_lock(&mount_mu);
	err = change_flags(p->mnt, flags);
	if (!err)
		sb->flags = (sb->flags & ~(unsigned long)SB_SETTABLE) |
			    (flags & SB_SETTABLE & ~(unsigned long)MS_SILENT);
	mutex_unlock(&mount_mu);
	return err;
}

static void set_propagation(struct mount *m, unsigned long type)
{
	switch (type) {
	case MS_SHARED:
		mount_set_shared(m);
		return;
	case MS_SLAVE:
		/* A slave of nobody is private. */
		m->prop = m->prop == MNT_SHARED || m->prop == MNT_SLAVE ? MNT_SLAVE : MNT_PRIVATE;
		return;
	case MS_UNBINDABLE:
		m->prop = MNT_UNBINDABLE;
		break;
	default:
		m->prop = MNT_PRIVATE;
		break;
	}
	m->peer_group = 0;
}

void mount_set_flags(const struct path *p, unsigned long set)
{
	AUTO_LOCK(&mount_mu);
	atomic_fetch_or(&p->mnt->flags, set);
}

void mount_set_propagation(const struct path *p, unsigned long flags)
{
	unsigned long type = flags & ~(unsigned long)MS_REC;
	AUTO_LOCK(&mount_mu);

	for (struct mount *m = p->mnt; m; m = flags & MS_REC ? mount_next_in_tree(m, p->mnt) : NULL)
		set_propagation(m, type);
}

static long change_propagation(struct task *t, const struct path *p, unsigned long flags)
{
	unsigned long type = flags & ~(unsigned long)(MS_REC | MS_SILENT);

	if ((type & ~(unsigned long)MS_PROPAGATION) || (type & (type - 1)))
		return -EINVAL;
	if (!is_mount_root(p) || !in_own_ns(t, p))
		return -EINVAL;
	AUTO_LOCK(&mount_mu);
	for (struct mount *m = p->mnt; m;
	     m = flags & MS_REC ? mount_next_in_tree(m, p->mnt) : NULL)
		set_propagation(m, type);
	return 0;
}

/* Is @m in the tree below @top, or @top itself? Context: mount_mu. */
static bool below_mount(const struct mount *m, const struct mount *top)
{
	for (; m; m = m->parent)
		if (m == top)
			return true;
	return false;
}

static long check_move(struct task *t, const struct path *from, const struct path *to)
{
	struct mount *m = from->mnt;

	if (!is_mount_root(from) || !in_own_ns(t, from) || !in_own_ns(t, to) || !m->parent)
		return -EINVAL;
	if (m->locked || m->parent->prop == MNT_SHARED)
		return -EINVAL;
	if (S_ISDIR(dentry_inode(from->dentry)->mode) != S_ISDIR(dentry_inode(to->dentry)->mode))
		return -EINVAL;
	if (d_unlinked(to->dentry))
		return -ENOENT;
	return below_mount(to->mnt, m) ? -ELOOP : 0;
}

static long mount_move(struct task *t, const struct path *p, const char *source)
{
	struct path src, top;
	long err;

	if (!source || !*source)
		return -EINVAL;
	err = path_lookup(t, AT_FDCWD_G, source, LOOKUP_FOLLOW, &src);
	if (err)
		return err;
	top = topmost(p);
	mutex_lock(&mount_mu);
	err = check_move(t, &src, &top);
	if (!err)
		mount_relocate(src.mnt, top.mnt, top.dentry);
	mutex_unlock(&mount_mu);
	if (!err) {
		mount_relocated_put(src.mnt);
		waitq_wake(&t->ns->mnt->wq, ~0u);
	}
	path_put(&top);
	path_put(&src);
	return err;
}

long vfs_mount(struct task *t, const char *source, const char *target, const char *fstype,
	       unsigned long flags, const char *data)
{
	struct path p;
	long err;

	if ((flags & MS_MGC_MSK_G) == MS_MGC_VAL_G)
		flags &= ~MS_MGC_MSK_G;
	err = path_lookup(t, AT_FDCWD_G, target, LOOKUP_FOLLOW, &p);
	if (err)
		return err;
	if (!may_mount(t))
		err = -EPERM;
	else if ((flags & MS_NOUSER_G) || !p.mnt)
		err = -EINVAL;
	else if (flags & MS_REMOUNT)
		err = remount(t, &p, flags, data);
	else if (flags & MS_BIND)
		err = mount_bind(t, &p, source, flags & MS_REC);
	else if (flags & MS_PROPAGATION)
		err = change_propagation(t, &p, flags);
	else if (flags & MS_MOVE)
		err = mount_move(t, &p, source);
	else
		err = mount_new(t, &p, source, fstype, flags, data);
	path_put(&p);
	return err;
}

/* ---------------------------------------------------------------- umount */

/* In use beyond the tree's and our own reference? Context: mount_mu. */
static bool mount_busy(const struct mount *m)
{
	return mount_has_children(m) || ref_count(&m->ref) > 2;
}

static long check_umount(struct task *t, const struct path *p, int flags)
{
	if (!is_mount_root(p) || !in_own_ns(t, p))
		return -EINVAL;
	if (p->mnt->locked)
		return -EINVAL;
	if (flags & MNT_EXPIRE)
		return flags & (MNT_FORCE | MNT_DETACH) ? -EINVAL : -EAGAIN;
	if (!p->mnt->parent)
		return flags & MNT_DETACH ? -EINVAL : -EBUSY; /* the namespace's root */
	if (!(flags & MNT_DETACH) && mount_busy(p->mnt))
		return -EBUSY;
	return 0;
}

long vfs_umount(struct task *t, const char *target, int flags)
{
	struct list dead = LIST_INIT(dead);
	struct path found, p;
	long err;

	if (flags & ~(MNT_FORCE | MNT_DETACH | MNT_EXPIRE | UMOUNT_NOFOLLOW))
		return -EINVAL;
	err = path_lookup(t, AT_FDCWD_G, target, flags & UMOUNT_NOFOLLOW ? 0 : LOOKUP_FOLLOW, &found);
	if (err)
		return err;
	/* Also for ".", below which pivot_root(".", ".") may have put the old root. */
	p = topmost(&found);
	path_put(&found);
	if (!may_mount(t)) {
		path_put(&p);
		return -EPERM;
	}
	mutex_lock(&mount_mu);
	err = check_umount(t, &p, flags);
	if (!err && (flags & MNT_FORCE) && !cred_capable(task_cred(t), CAP_SYS_ADMIN))
		err = -EPERM;
	if (!err) {
		mount_propagate_umount(p.mnt, &dead);
		mount_detach_tree(p.mnt, &dead);
	}
	mutex_unlock(&mount_mu);
	path_put(&p);
	mounts_put_list(&dead);
	if (!err)
		waitq_wake(&t->ns->mnt->wq, ~0u);
	return err;
}

/* ---------------------------------------------------------------- pivot_root */

/* Is (@m, @d) at or below @top? Context: mount_mu. */
static bool reachable(const struct mount *m, struct dentry *d, const struct path *top)
{
	while (m != top->mnt && m->parent) {
		d = m->mountpoint;
		m = m->parent;
	}
	return m == top->mnt && d_is_ancestor(top->dentry, d);
}

/* The rules of man 2 pivot_root, in the kernel's order. */
static long check_pivot(struct task *t, const struct path *root, const struct path *new,
			const struct path *old)
{
	if (old->mnt->prop == MNT_SHARED)
		return -EINVAL;
	if ((new->mnt->parent && new->mnt->parent->prop == MNT_SHARED) ||
	    (root->mnt->parent && root->mnt->parent->prop == MNT_SHARED))
		return -EINVAL;
	if (!in_own_ns(t, root) || !in_own_ns(t, new) || !in_own_ns(t, old))
		return -EINVAL;
	if (new->mnt->locked)
		return -EINVAL;
	if (d_unlinked(new->dentry) || d_unlinked(old->dentry))
		return -ENOENT;
	if (new->mnt == root->mnt || old->mnt == root->mnt)
		return -EBUSY;
	if (!is_mount_root(root) || !is_mount_root(new) || !new->mnt->parent)
		return -EINVAL;
	if (!reachable(old->mnt, old->dentry, new))
		return -EINVAL;
	if (!reachable(new->mnt, new->dentry, root))
		return -EINVAL;
	return 0;
}

/* Context: mount_mu. @ret: what mount_relocated_put() needs afterwards. */
static void do_pivot(const struct path *root, const struct path *new, const struct path *old)
{
	struct mount *parent = root->mnt->parent;
	struct dentry *mountpoint = root->mnt->mountpoint;

	/* First the new root to the old one's place, so that no walk finds a circle. */
	mount_relocate(new->mnt, parent, mountpoint);
	mount_relocate(root->mnt, old->mnt, old->dentry);
}

/* Everybody whose root or working directory was the old root. */
static void move_roots(const struct path *from, const struct path *to)
{
	struct pid *p;

	for (pid_t nr = 1; (p = pid_next(kernel.init_pidns, nr)); nr++) {
		struct task *t = NULL;
		struct fsctx *fs;

		nr = pid_nr(p, kernel.init_pidns);
		mutex_lock(&kernel.tasks_mu);
		if (p->task)
			t = task_get(p->task);
		mutex_unlock(&kernel.tasks_mu);
		fs = t ? task_fs_get(t) : NULL;
		if (fs)
			fsctx_move_root(fs, from, to);
		fsctx_put(fs);
		task_put(t);
		pid_put(p);
	}
}

long vfs_pivot_root(struct task *t, const char *new_root, const char *put_old)
{
	struct path new, old = { 0 }, root, top;
	long err;

	if (!may_mount(t))
		return -EPERM;
	err = path_lookup(t, AT_FDCWD_G, new_root, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &new);
	if (err)
		return err;
	err = path_lookup(t, AT_FDCWD_G, put_old, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &old);
	if (err) {
		path_put(&new);
		return err;
	}
	root = fsctx_root(t->fs);
	top = topmost(&old);
	mutex_lock(&mount_mu);
	err = !new.mnt || !top.mnt ? -EINVAL : check_pivot(t, &root, &new, &top);
	if (!err)
		do_pivot(&root, &new, &top);
	mutex_unlock(&mount_mu);
	if (!err) {
		mount_relocated_put(new.mnt);
		mount_relocated_put(root.mnt);
		move_roots(&root, &new);
		waitq_wake(&t->ns->mnt->wq, ~0u);
	}
	path_put(&top);
	path_put(&root);
	path_put(&old);
	path_put(&new);
	return err;
}
