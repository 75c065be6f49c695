// SPDX-License-Identifier: Apache-2.0
/*
 * Saving mounts and mount namespaces. A namespace lists its mounts in their order; each mount says where it
 * is. Links between them are made when all names are there.
 */
#include "sentry/vfs/vfs_state.h"

#include <sys/mount.h>

#include "base/alloc.h"
#include "sentry/kernel/ns.h"
#include "sentry/vfs/vfs_priv.h"

/* ---- mounts ---- */

static void *mount_alloc(struct state *s)
{
	struct mount *m = kzalloc(sizeof(*m));

	(void)s;
	ref_init(&m->ref);
	list_init(&m->hash_node);
	list_init(&m->children);
	list_init(&m->child_node);
	list_init(&m->ns_node);
	return m;
}

static void mount_fields(struct state *s, void *obj)
{
	struct mount *m = obj;
	uint64_t flags = atomic_load(&m->flags), locked = m->locked_flags;
	int64_t prop = m->prop;

	state_ref_in(s, &state_super_class, &m->sb);
	state_ref(s, &state_dentry, &m->root);
	state_ref(s, &state_mount, &m->parent);
	state_ref(s, &state_dentry, &m->mountpoint);
	state_i32(s, &m->id);
	state_u64(s, &flags);
	state_u64(s, &locked);
	state_bool(s, &m->locked);
	state_range_i64(s, &prop, MNT_PRIVATE, MNT_UNBINDABLE);
	state_i32(s, &m->peer_group);
	if (state_loading(s)) {
		atomic_store(&m->flags, flags);
		m->locked_flags = locked;
		m->prop = (enum mnt_propagation)prop;
	}
}

static bool chain_ok(const struct mount *m)
{
	for (unsigned n = 0; n <= MOUNTS_MAX; n++) {
		if (!m)
			return true;
		m = m->parent;
	}
	return false;
}

static bool place_ok(const struct mount *m)
{
	struct inode *on, *root = dentry_inode(m->root);

	if (!m->parent)
		return !m->mountpoint;
	if (!m->mountpoint || !m->ns || m->parent->ns != m->ns || !chain_ok(m))
		return false;
	on = dentry_inode(m->mountpoint);
	return on && on->sb == m->parent->sb && S_ISDIR(on->mode) == S_ISDIR(root->mode);
}

static void mount_finish(struct state *s, void *obj)
{
	struct mount *m = obj;

	if (!m->sb || !m->root || dentry_inode(m->root)->sb != m->sb || !place_ok(m)) {
		state_fail(s, "impossible mount");
		return;
	}
	atomic_fetch_add(&m->sb->active, 1);
	if (m->parent)
		mount_restore(m);
}

static void *get_mount(void *obj)
{
	return mount_get(obj);
}

static void put_mount(void *obj)
{
	mount_put(obj);
}

const struct state_type state_mount = {
	.id = STATE_MOUNT,
	.version = 1,
	.name = "mount",
	.alloc = mount_alloc,
	.fields = mount_fields,
	.finish = mount_finish,
	.get = get_mount,
	.put = put_mount,
	.phase = 4,
};

/* ---- namespaces ---- */

static void *ns_alloc(struct state *s)
{
	struct mntns *ns = kzalloc(sizeof(*ns));

	(void)s;
	ref_init(&ns->ref);
	list_init(&ns->mounts);
	waitq_init(&ns->wq);
	mutex_lock(&mount_mu);
	mount_ns_register(ns);
	mutex_unlock(&mount_mu);
	return ns;
}

static void load_mounts(struct state *s, struct mntns *ns, uint32_t n)
{
	for (; n && state_ok(s); n--) {
		struct mount *m = NULL;

		state_ref(s, &state_mount, &m);
		if (!m || m->ns) {
			state_fail(s, "mount in two namespaces");
			return;
		}
		m->ns = ns;
		list_add_tail(&ns->mounts, &m->ns_node);
		ns->nmounts++;
	}
}

static void ns_fields(struct state *s, void *obj)
{
	struct mntns *ns = obj;
	struct mount *m;
	uint32_t n = state_count(s, ns->nmounts, MOUNTS_MAX);

	if (state_loading(s))
		load_mounts(s, ns, n);
	else
		list_for_each(m, &ns->mounts, ns_node)
			state_ref(s, &state_mount, &m);
	state_ptr(s, &state_mount, &ns->root);
	state_ref(s, &state_userns, &ns->userns);
	state_u64(s, &ns->inum);
}

static void ns_finish(struct state *s, void *obj)
{
	struct mntns *ns = obj;

	if (!ns->root || ns->root->ns != ns || ns->root->parent || !ns->userns)
		state_fail(s, "mount namespace without a root");
}

static void *get_ns(void *obj)
{
	return mntns_get(obj);
}

static void put_ns(void *obj)
{
	mntns_put(obj);
}

const struct state_type state_mntns = {
	.id = STATE_MNTNS,
	.version = 1,
	.name = "mount namespace",
	.alloc = ns_alloc,
	.fields = ns_fields,
	.finish = ns_finish,
	.get = get_ns,
	.put = put_ns,
	.phase = 4,
};
