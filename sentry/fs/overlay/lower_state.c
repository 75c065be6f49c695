// SPDX-License-Identifier: Apache-2.0
/*
 * Saving files of the image: by name below their directory, with the attributes that they had. They are looked
 * up when they are used for the first time, so a restore doesn't wait for it, and compared then
 * (lower.c). Files with several names are looked up at once: another name must lead to the same inode.
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/gofer/priv.h"
#include "sentry/fs/overlay/lower.h"
#include "sentry/vfs/vfs_state.h"

#define LINKS_MAX (4u << 20)
#define DEPTH_MAX 4096u

static void *lower_alloc(struct state *s)
{
	struct lower *l = kzalloc(sizeof(*l));

	(void)s;
	ref_init(&l->ref);
	list_init(&l->lru);
	l->saved = true;
	return l;
}

static void attr_fields(struct state *s, struct gofer_attr *a)
{
	state_u64(s, &a->rdev);
	state_u64(s, &a->size);
	state_u64(s, &a->blocks);
	state_u32(s, &a->mode);
	state_u32(s, &a->nlink);
	state_u32(s, &a->uid);
	state_u32(s, &a->gid);
	state_u32(s, &a->blksize);
	state_i64(s, &a->atime_ns);
	state_i64(s, &a->mtime_ns);
	state_i64(s, &a->ctime_ns);
	state_i64(s, &a->btime_ns);
}

/* Those of which a name may be left that nothing else refers to. */
static void links_fields(struct state *s, struct lower_fs *fs)
{
	struct lower *l, *tmp;
	uint32_t n = 0;

	HASH_ITER(hh, fs->links, l, tmp)
		n += l->inode != NULL;
	n = state_count(s, n, LINKS_MAX);
	for (; state_loading(s) && n && state_ok(s); n--) {
		state_ptr(s, &state_lower, &l); /* it notes itself in finish() */
		if (!l)
			state_fail(s, "no linked file");
	}
	if (state_loading(s))
		return;
	HASH_ITER(hh, fs->links, l, tmp)
		if (l->inode)
			state_ptr(s, &state_lower, &l);
}

/* The root knows the tree. */
static void root_fields(struct state *s, struct lower *l)
{
	uint32_t index = 0, attach = 0;
	struct gofer_client *c;
	struct gofer_attr a;
	bool closed;

	if (!state_loading(s)) {
		index = l->fs->client->index;
		attach = l->fs->attach;
	}
	state_u32(s, &index);
	state_u32(s, &attach);
	if (state_loading(s)) {
		c = gofer_client_find(index);
		if (!c || attach >= gofer_nattach(c)) {
			state_fail(s, "there is no root file system number %u.%u", index, attach);
			gofer_client_put(c);
			return;
		}
		l->fs = lower_fs_create(c, attach);
		atomic_store(&l->node, gofer_root(c, attach, &a));
		gofer_client_put(c);
		if (!S_ISDIR(a.mode))
			state_fail(s, "the root file system is no directory");
	}
	closed = l->fs->closed;
	state_bool(s, &closed);
	l->fs->closed = closed;
	links_fields(s, l->fs);
}

static void lower_fields(struct state *s, void *obj)
{
	struct lower *l = obj;

	state_ref(s, &state_lower, &l->parent);
	state_heap_str(s, &l->name, NAME_MAX_G);
	state_u64(s, &l->ino);
	attr_fields(s, &l->attr);
	state_ref(s, &state_inode_tmpfs, &l->inode);
	if (!l->parent && state_ok(s))
		root_fields(s, l);
}

/* A tree's root without parent, reached in finite time. */
static struct lower *root_of(struct lower *l)
{
	for (unsigned n = 0; n < DEPTH_MAX; n++) {
		if (!l->parent)
			return l;
		l = l->parent;
	}
	return NULL;
}

static void lower_finish(struct state *s, void *obj)
{
	struct lower *l = obj, *root = root_of(l);
	int err = 0;

	if (!l->name || !root || !root->fs || (l->parent && !gofer_name_ok(l->name)) ||
	    (l->inode && !lower_is_linked(l))) {
		state_fail(s, "impossible file of an image");
		return;
	}
	/* Directories above, too: they may be finished later, and a lookup goes through them. */
	for (struct lower *a = l; a != root; a = a->parent) {
		if (a->fs)
			continue;
		a->fs = root->fs;
		ref_get(&a->fs->ref);
	}
	if (l->inode && !l->fs->closed)
		err = lower_restore_link(l);
	if (err)
		state_fail(s, "\"%s\" of the root file system: %s", l->name, strerror(-err));
}

static void *get(void *obj)
{
	return lower_get(obj);
}

static void put(void *obj)
{
	lower_put(obj);
}

const struct state_type state_lower = {
	.id = STATE_LOWER,
	.version = 1,
	.name = "file of the image",
	.alloc = lower_alloc,
	.fields = lower_fields,
	.finish = lower_finish,
	.get = get,
	.put = put,
	.phase = 1,
};
