// SPDX-License-Identifier: Apache-2.0
/*
 * Saving names: those that something refers to (an open file, a working directory, a mount), with their
 * parents up to the root. Whatever else the cache knew is looked up again.
 */
#include "sentry/vfs/vfs_state.h"

#include <string.h>

#include "base/alloc.h"
#include "sentry/vfs/vfs_priv.h"

#define DEPTH_MAX (1u << 20) /* of a directory; a chain of parents that goes on is a circle */

static void *dentry_alloc(struct state *s)
{
	struct dentry *d = kzalloc(sizeof(*d));

	(void)s;
	ref_init(&d->ref);
	list_init(&d->children);
	list_init(&d->sibling);
	list_init(&d->lru);
	return d;
}

static void dentry_fields(struct state *s, void *obj)
{
	struct dentry *d = obj;
	struct inode *inode = dentry_inode(d);

	state_ref_in(s, &state_inode_class, &inode);
	state_ref(s, &state_dentry, &d->parent);
	state_heap_str(s, &d->name, PATH_MAX_G);
	state_bool(s, &d->hashed);
	state_bool(s, &d->deleted);
	state_bool(s, &d->nolink);
	state_bool(s, &d->is_root);
	if (state_loading(s))
		atomic_init(&d->inode, inode);
}

static bool chain_ok(const struct dentry *d)
{
	for (unsigned n = 0; n < DEPTH_MAX; n++) {
		if (!d)
			return true;
		d = d->parent;
	}
	return false;
}

static bool name_ok(const char *name)
{
	size_t len = strlen(name);

	return len && len <= NAME_MAX_G && !strchr(name, '/') && strcmp(name, ".") != 0 &&
	       strcmp(name, "..") != 0;
}

static void dentry_finish(struct state *s, void *obj)
{
	struct dentry *d = obj;
	struct qname q;

	if (!d->name || !dentry_inode(d) || (d->is_root && d->parent) || (d->hashed && !d->parent)) {
		state_fail(s, "impossible name");
		return;
	}
	q = qname_make(d->name, strlen(d->name));
	d->namelen = q.len;
	d->hash = d->parent ? q.hash : 0;
	if (!d->parent)
		return;
	if (!dentry_inode(d->parent) || !S_ISDIR(dentry_inode(d->parent)->mode) || !chain_ok(d) ||
	    dentry_inode(d)->sb != dentry_inode(d->parent)->sb)
		state_fail(s, "name in what is no directory");
	else if (d->hashed && (!name_ok(d->name) || !d_restore(d)))
		state_fail(s, "impossible name \"%s\"", d->name);
}

static void *get(void *obj)
{
	return dentry_get(obj);
}

static void put(void *obj)
{
	dentry_put(obj);
}

const struct state_type state_dentry = {
	.id = STATE_DENTRY,
	.version = 1,
	.name = "name",
	.alloc = dentry_alloc,
	.fields = dentry_fields,
	.finish = dentry_finish,
	.get = get,
	.put = put,
	.phase = 3,
};

void state_path(struct state *s, struct path *p)
{
	state_ref(s, &state_mount, &p->mnt);
	state_ref(s, &state_dentry, &p->dentry);
	if (state_loading(s) && p->mnt && !p->dentry)
		state_fail(s, "path without a name");
}
