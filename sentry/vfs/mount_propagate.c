// SPDX-License-Identifier: Apache-2.0
/*
 * Propagation of mounts between peers (man 7 mount_namespaces): what is mounted or unmounted below a shared
 * mount happens below its peers and slaves, too, in whatever namespace they are.
 *
 * A peer group is a number: its members are the shared mounts that have it, its slaves the slave mounts that
 * have it. Events are rare and mounts are few, so members are found by looking at all mounts of all
 * namespaces.
 *
 * Not as in Linux: slaves don't pass events on to slaves of their own (a mount is shared or a slave, not
 * both), MS_MOVE propagates nothing, and a receiver that is full is left out rather than failing the mount.
 *
 * Context of all: mount_mu.
 */
#include "base/alloc.h"
#include "sentry/vfs/vfs_priv.h"

static struct list namespaces = LIST_INIT(namespaces);
static int next_group = 1;

void mount_ns_register(struct mntns *ns)
{
	list_add_tail(&namespaces, &ns->all_node);
}

void mount_ns_forget(struct mntns *ns)
{
	list_del(&ns->all_node);
}

void mount_set_shared(struct mount *m)
{
	if (m->prop != MNT_SHARED)
		m->peer_group = next_group++;
	m->prop = MNT_SHARED;
}

void mount_group_seen(int group)
{
	next_group = MAX(next_group, group + 1);
}

struct receivers {
	struct mount **v;
	unsigned n;
};

/* Peers and slaves of @m that show @d, but @m itself: borrowed. */
static struct receivers find_receivers(const struct mount *m, struct dentry *d)
{
	struct receivers r = { 0 };
	struct mntns *ns;
	struct mount *x;

	list_for_each(ns, &namespaces, all_node)
		list_for_each(x, &ns->mounts, ns_node)
			if (x != m && x->peer_group == m->peer_group && x->sb == m->sb &&
			    (x->prop == MNT_SHARED || x->prop == MNT_SLAVE) && d_is_ancestor(x->root, d)) {
				r.v = krealloc_array(r.v, r.n + 1, sizeof(*r.v));
				r.v[r.n++] = x;
			}
	return r;
}

static void copy_to(struct mount *tree, struct mount *receiver, struct dentry *d, unsigned n)
{
	struct path at = { receiver, d };
	struct mount *copy;

	if (n > MOUNTS_MAX - MIN(receiver->ns->nmounts, (unsigned)MOUNTS_MAX))
		return;
	copy = mount_clone_tree(tree, tree->root, false);
	for (struct mount *c = copy; c && receiver->prop == MNT_SLAVE; c = mount_next_in_tree(c, copy))
		c->prop = MNT_SLAVE;
	mutex_lock(&dcache_mu);
	mount_follow_down_locked(&at);
	mutex_unlock(&dcache_mu);
	mount_attach_tree(copy, receiver->ns, at.mnt, at.dentry);
}

void mount_propagate(struct mount *tree, struct mount *parent, struct dentry *d)
{
	struct receivers r;
	unsigned n = 0;

	if (parent->prop != MNT_SHARED)
		return;
	for (struct mount *c = tree; c; c = mount_next_in_tree(c, tree)) {
		mount_set_shared(c);
		n++;
	}
	r = find_receivers(parent, d);
	for (unsigned i = 0; i < r.n; i++)
		copy_to(tree, r.v[i], d, n);
	free(r.v);
}

void mount_propagate_umount(struct mount *m, struct list *dead)
{
	struct receivers r;

	if (!m->parent || m->parent->prop != MNT_SHARED)
		return;
	r = find_receivers(m->parent, m->mountpoint);
	for (unsigned i = 0; i < r.n; i++) {
		struct mount *x;

		mutex_lock(&dcache_mu);
		x = mount_find_locked(r.v[i], m->mountpoint);
		mutex_unlock(&dcache_mu);
		if (x && x != m && x->sb == m->sb && x->root == m->root && !mount_has_children(x))
			mount_detach_tree(x, dead);
	}
	free(r.v);
}
