// SPDX-License-Identifier: Apache-2.0
/*
 * Mounts and mount namespaces: the tree, how it is copied, taken apart and shown.
 *
 * mount_mu (RANK_MNTNS, one for all namespaces) serialises changes; each change also holds dcache_mu,
 * so a path walk sees all of it or nothing. A namespace owns one reference on each of its mounts, a
 * child one on its parent, a path one on its mount.
 *
 * Propagation types are kept and shown in mountinfo, but mounts don't propagate between peers: inside
 * one sandbox that is seldom missed, and "private" is what container tools ask for first.
 */
#include "base/alloc.h"

#include <sys/mount.h>

#include "sentry/kernel/ns.h"
#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

#define MOUNT_BUCKETS 256

struct mutex mount_mu;
static struct list buckets[MOUNT_BUCKETS]; /* (M) */
static _Atomic int next_id = 21;

void mount_init(void)
{
	mutex_init(&mount_mu, RANK_MNTNS);
	for (unsigned i = 0; i < MOUNT_BUCKETS; i++)
		list_init(&buckets[i]);
}

static struct list *bucket(const struct mount *mnt, const struct dentry *d)
{
	uint64_t h = ((uint64_t)(uintptr_t)mnt >> 5) * 31 + ((uint64_t)(uintptr_t)d >> 5);

	return &buckets[(h ^ (h >> 9)) % MOUNT_BUCKETS];
}

struct mount *mount_get(struct mount *m)
{
	ref_get(&m->ref);
	return m;
}

void mount_put(struct mount *m)
{
	if (!m || !ref_put(&m->ref))
		return;
	dentry_put(m->root);
	super_deactivate(m->sb);
	free(m);
}

struct mount *mount_find_locked(struct mount *mnt, struct dentry *d)
{
	struct mount *m;

	list_for_each(m, bucket(mnt, d), hash_node)
		if (m->parent == mnt && m->mountpoint == d)
			return m;
	return NULL;
}

void mount_follow_down_locked(struct path *p)
{
	struct mount *m;

	while (p->mnt && atomic_load_explicit(&p->dentry->mounts, memory_order_relaxed) &&
	       (m = mount_find_locked(p->mnt, p->dentry)))
		*p = (struct path){ m, m->root };
}

bool mount_is_readonly(const struct mount *mnt)
{
	return mnt && ((atomic_load(&mnt->flags) | mnt->sb->flags) & MS_RDONLY);
}

unsigned long mount_flags(const struct mount *mnt)
{
	return mnt ? atomic_load_explicit(&mnt->flags, memory_order_relaxed) : 0;
}

struct super *mount_super(const struct mount *mnt)
{
	return mnt->sb;
}

int mount_id(const struct mount *mnt)
{
	return mnt ? mnt->id : 0;
}

/* A mount that is nowhere yet; the reference belongs to the caller. */
struct mount *mount_create(struct super *sb, struct dentry *root, unsigned long flags)
{
	struct mount *m = kzalloc(sizeof(*m));

	ref_init(&m->ref);
	super_activate(sb);
	m->sb = sb;
	m->root = dentry_get(root);
	m->id = atomic_fetch_add(&next_id, 1);
	atomic_init(&m->flags, flags);
	list_init(&m->hash_node);
	list_init(&m->children);
	list_init(&m->child_node);
	list_init(&m->ns_node);
	return m;
}

struct mount *mount_clone_one(struct mount *m, struct dentry *root)
{
	struct mount *c = mount_create(m->sb, root, atomic_load(&m->flags));

	c->locked_flags = m->locked_flags;
	c->prop = m->prop == MNT_UNBINDABLE ? MNT_PRIVATE : m->prop;
	c->peer_group = m->peer_group;
	return c;
}

bool mount_has_children(const struct mount *m)
{
	return !list_empty(&m->children);
}

/* Preorder, without a stack: the tree may be as deep as a guest likes. Context: mount_mu. */
struct mount *mount_next_in_tree(struct mount *m, struct mount *top)
{
	if (!list_empty(&m->children))
		return list_first(&m->children, struct mount, child_node);
	while (m != top) {
		if (m->child_node.next != &m->parent->children)
			return list_next(m, child_node);
		m = m->parent;
	}
	return NULL;
}

/* Context: mount_mu, dcache_mu. */
static void link_locked(struct mount *m, struct mount *parent, struct dentry *mountpoint)
{
	m->parent = mount_get(parent);
	m->mountpoint = dentry_get(mountpoint);
	atomic_fetch_add(&mountpoint->mounts, 1);
	list_add_tail(&parent->children, &m->child_node);
	list_add_tail(bucket(parent, mountpoint), &m->hash_node);
}

void mount_restore(struct mount *m)
{
	mount_group_seen(m->peer_group);
	AUTO_LOCK(&dcache_mu);
	atomic_fetch_add(&m->mountpoint->mounts, 1);
	list_add_tail(&m->parent->children, &m->child_node);
	list_add_tail(bucket(m->parent, m->mountpoint), &m->hash_node);
}

void mount_state_globals(struct state *s)
{
	int32_t id = next_id;

	state_i32(s, &id);
	next_id = id;
}

/* Leaves the references in dead_*. Context: mount_mu, dcache_mu. */
static void unlink_locked(struct mount *m)
{
	if (!m->parent)
		return;
	atomic_fetch_sub(&m->mountpoint->mounts, 1);
	list_del(&m->child_node);
	list_del(&m->hash_node);
	m->dead_parent = m->parent;
	m->dead_mountpoint = m->mountpoint;
	m->parent = NULL;
	m->mountpoint = NULL;
}

static void put_dead(struct mount *m)
{
	struct mount *parent = steal_ptr(&m->dead_parent);

	dentry_put(steal_ptr(&m->dead_mountpoint));
	mount_put(parent);
}

/* Copies @m, from @root on, and all that is mounted below. Context: mount_mu. */
struct mount *mount_clone_tree(struct mount *m, struct dentry *root, bool skip_unbindable)
{
	struct mount *top = mount_clone_one(m, root), *c;

	m->copy = top;
	for (c = mount_next_in_tree(m, m); c; c = mount_next_in_tree(c, m)) {
		struct mount *to = c->parent->copy;

		c->copy = NULL;
		if (!to || (skip_unbindable && c->prop == MNT_UNBINDABLE))
			continue;
		if (c->parent == m && !d_is_ancestor(root, c->mountpoint))
			continue;
		c->copy = mount_clone_one(c, c->root);
		mutex_lock(&dcache_mu);
		link_locked(c->copy, to, c->mountpoint);
		mutex_unlock(&dcache_mu);
	}
	return top;
}

/* Hangs the tree @m (its references taken over) onto @at, or makes it the root of @ns. */
void mount_attach_tree(struct mount *m, struct mntns *ns, struct mount *parent,
		       struct dentry *mountpoint)
{
	mutex_lock(&dcache_mu);
	if (parent)
		link_locked(m, parent, mountpoint);
	for (struct mount *c = m; c; c = mount_next_in_tree(c, m)) {
		c->ns = ns;
		list_add_tail(&ns->mounts, &c->ns_node);
		ns->nmounts++;
	}
	mutex_unlock(&dcache_mu);
}

/* The references of @m's tree are taken over on success. -ENOENT, -ENOSPC, -ENOTDIR. Context:
 * mount_mu. */
int mount_attach(struct mount *m, const struct path *at)
{
	struct mntns *ns = at->mnt->ns;
	unsigned n = 0;

	mutex_assert_held(&mount_mu);
	if (!ns)
		return -EINVAL;
	if (d_unlinked(at->dentry))
		return -ENOENT;
	if (S_ISDIR(dentry_inode(m->root)->mode) != S_ISDIR(dentry_inode(at->dentry)->mode))
		return -ENOTDIR;
	for (struct mount *c = m; c; c = mount_next_in_tree(c, m))
		n++;
	if (n > MOUNTS_MAX - MIN(ns->nmounts, (unsigned)MOUNTS_MAX))
		return -ENOSPC;
	mount_propagate(m, at->mnt, at->dentry); /* before @m is there, which may be a peer itself */
	mount_attach_tree(m, ns, at->mnt, at->dentry);
	return 0;
}

void mount_detach_tree(struct mount *m, struct list *dead)
{
	struct mount *c, *next;

	mutex_assert_held(&mount_mu);
	/* Children last in, first out of the preorder: collect, then unlink. */
	mutex_lock(&dcache_mu);
	struct list all = LIST_INIT(all);
	for (c = m; c; c = mount_next_in_tree(c, m)) {
		if (c->ns) {
			c->ns->nmounts--;
			if (c->ns->root == c)
				c->ns->root = NULL;
		}
		list_del(&c->ns_node);
		list_add_tail(&all, &c->ns_node);
	}
	list_for_each_safe(c, next, &all, ns_node) {
		unlink_locked(c);
		c->ns = NULL;
	}
	list_splice_tail(dead, &all);
	mutex_unlock(&dcache_mu);
}

/* Context: no locks. */
void mounts_put_list(struct list *dead)
{
	struct mount *m, *tmp;

	list_for_each_safe(m, tmp, dead, ns_node) {
		list_del(&m->ns_node);
		put_dead(m);
		mount_put(m);
	}
}

/* pivot_root and MS_MOVE: @m, whose tree stays as it is, goes to (@parent, @mountpoint), or becomes
 * the root of its namespace. Context: mount_mu. The caller puts what mount_moved_put() names. */
void mount_relocate(struct mount *m, struct mount *parent, struct dentry *mountpoint)
{
	mutex_lock(&dcache_mu);
	unlink_locked(m);
	if (parent)
		link_locked(m, parent, mountpoint);
	else
		m->ns->root = m;
	mutex_unlock(&dcache_mu);
}

void mount_relocated_put(struct mount *m)
{
	put_dead(m);
}

/* ---------------------------------------------------------------- namespaces */

static struct mntns *ns_alloc(struct userns *userns)
{
	struct mntns *ns = kzalloc(sizeof(*ns));

	ref_init(&ns->ref);
	list_init(&ns->mounts);
	ns->userns = userns_get(userns);
	ns->inum = ns_next_inum();
	waitq_init(&ns->wq);
	return ns;
}

struct mntns *mntns_create(struct super *sb, unsigned long mnt_flags, struct userns *userns)
{
	struct mntns *ns = ns_alloc(userns);

	if (!(mnt_flags & (MS_NOATIME | MS_STRICTATIME)))
		mnt_flags |= MS_RELATIME;
	AUTO_LOCK(&mount_mu);
	mount_ns_register(ns);
	ns->root = mount_create(sb, sb->root, mnt_flags);
	mount_attach_tree(ns->root, ns, NULL, NULL);
	return ns;
}

static void fix_path(struct path *p, struct mntns *old)
{
	struct mount *from = p ? p->mnt : NULL;

	if (!from || from->ns != old || !from->copy)
		return;
	p->mnt = mount_get(from->copy);
	mount_put(from);
}

/* CLONE_NEWNS. A namespace of a less privileged user may not undo what protects the old one: flags and
 * the mounts themselves are locked (man 7 mount_namespaces). */
struct mntns *mntns_clone(struct mntns *old, struct userns *userns, struct path *fix_root,
			  struct path *fix_cwd)
{
	struct mntns *ns = ns_alloc(userns);

	mutex_lock(&mount_mu);
	mount_ns_register(ns);
	ns->root = mount_clone_tree(old->root, old->root->root, false);
	mount_attach_tree(ns->root, ns, NULL, NULL);
	if (userns != old->userns) {
		for (struct mount *m = ns->root; m; m = mount_next_in_tree(m, ns->root)) {
			m->locked = m != ns->root;
			m->locked_flags |= atomic_load(&m->flags) & MNT_FLAGS_LOCKABLE;
			if (m->prop == MNT_SHARED)
				m->prop = MNT_SLAVE;
		}
	}
	fix_path(fix_root, old);
	fix_path(fix_cwd, old);
	mutex_unlock(&mount_mu);
	return ns;
}

struct mntns *mntns_get(struct mntns *ns)
{
	ref_get(&ns->ref);
	return ns;
}

void mntns_put(struct mntns *ns)
{
	struct list dead = LIST_INIT(dead);

	if (!ns || !ref_put(&ns->ref))
		return;
	mutex_lock(&mount_mu);
	mount_ns_forget(ns);
	if (ns->root)
		mount_detach_tree(ns->root, &dead);
	mutex_unlock(&mount_mu);
	mounts_put_list(&dead);
	userns_put(ns->userns);
	waitq_fini(&ns->wq);
	free(ns);
}

/* The topmost root: what a process that enters the namespace starts from. */
struct path mntns_root(struct mntns *ns)
{
	AUTO_LOCK(&dcache_mu);
	struct path p = { ns->root, ns->root->root };

	mount_follow_down_locked(&p);
	return *path_get(&p);
}

/* Borrowed. */
struct userns *mntns_userns(const struct mntns *ns)
{
	return ns->userns;
}

uint64_t mntns_inum(struct mntns *ns)
{
	return ns->inum;
}

struct waitq *mntns_waitq(struct mntns *ns)
{
	return &ns->wq;
}

int mntns_mount_super(struct mntns *ns, const struct path *at, struct super *sb,
		      const struct path *bind_root, unsigned long mnt_flags)
{
	struct path top = at ? *path_get(&(struct path){ at->mnt, at->dentry }) : mntns_root(ns);
	struct dentry *root = bind_root ? bind_root->dentry : sb->root;
	struct mount *m;
	int err;

	if (!sb)
		sb = bind_root->mnt->sb;
	if (!(mnt_flags & (MS_NOATIME | MS_STRICTATIME)))
		mnt_flags |= MS_RELATIME;
	m = mount_create(sb, root, mnt_flags);
	mutex_lock(&mount_mu);
	struct path p = top;
	mutex_lock(&dcache_mu);
	mount_follow_down_locked(&p);
	mutex_unlock(&dcache_mu);
	err = mount_attach(m, &p);
	mutex_unlock(&mount_mu);
	path_put(&top);
	if (err)
		mount_put(m);
	return err;
}

void mntns_sync(struct mntns *ns)
{
	struct super **sbs;
	struct mount *m;
	unsigned n = 0;

	mutex_lock(&mount_mu);
	sbs = kcalloc(ns->nmounts + 1, sizeof(struct super *));
	list_for_each(m, &ns->mounts, ns_node)
		if (m->sb->ops->sync)
			sbs[n++] = super_get(m->sb);
	mutex_unlock(&mount_mu);
	while (n) {
		n--;
		sbs[n]->ops->sync(sbs[n]);
		super_put(sbs[n]);
	}
	free(sbs);
}
