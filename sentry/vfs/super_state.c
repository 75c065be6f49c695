// SPDX-License-Identifier: Apache-2.0
/*
 * Saving file system instances: the part that all share, the list of kinds, and state_vfs, the one object
 * for what exists once. How often a super is mounted isn't saved: mounts count themselves (mount_state.c).
 */
#include "sentry/vfs/vfs_state.h"

#include <string.h>

#include "sentry/fs/pipe/pseudo.h"
#include "sentry/vfs/vfs_priv.h"

static const struct state_type *type_of(const void *obj)
{
	return ((const struct super *)obj)->ops->state;
}

static const struct state_type *const types[] = {
	&state_super_tmpfs, &state_super_gofer,  &state_super_proc,
	&state_super_pfs,   &state_super_devpts, &state_super_mqueue,
	NULL,
};

const struct state_class state_super_class = {
	.name = "file system",
	.type_of = type_of,
	.types = types,
};

void *super_state_get(void *sb)
{
	return super_get(sb);
}

void super_state_put(void *sb)
{
	super_put(sb);
}

/* The type by name. @sb->type may be set already to one that mount(2) doesn't know. */
static void type_fields(struct state *s, struct super *sb)
{
	char name[32] = "";

	if (!state_loading(s) && strlen(sb->type->name) < sizeof(name))
		memcpy(name, sb->type->name, strlen(sb->type->name) + 1);
	state_str(s, name, sizeof(name));
	if (!state_loading(s) || (sb->type && strcmp(sb->type->name, name) == 0))
		return;
	sb->type = fs_find(name);
	if (!sb->type)
		state_fail(s, "there is no file system \"%s\"", name);
}

void super_state_fields(struct state *s, struct super *sb)
{
	uint64_t dev = sb->dev, flags = sb->flags;

	type_fields(s, sb);
	state_u64(s, &dev);
	state_u64(s, &flags);
	state_u64(s, &sb->magic);
	state_bool(s, &sb->keep);
	state_heap_str(s, (char **)(uintptr_t)&sb->source, PATH_MAX_G);
	state_ref(s, &state_dentry, &sb->root);
	if (state_loading(s)) {
		sb->dev = (dev_t)dev;
		sb->flags = flags;
	}
}

/* ---- what there is once ---- */

struct vfs_globals {
	int unused;
};
struct vfs_globals vfs_globals;

static void dev_fields(struct state *s, struct super *sb)
{
	uint64_t dev = sb->dev;

	state_u64(s, &dev);
	if (state_loading(s))
		sb->dev = (dev_t)dev;
}

static void *vfs_alloc(struct state *s)
{
	(void)s;
	return &vfs_globals;
}

static void vfs_fields(struct state *s, void *obj)
{
	(void)obj;
	super_state_globals(s);
	dev_fields(s, anon_super);
	for (int i = 0; i < PSEUDO_COUNT; i++)
		dev_fields(s, pseudo_super((enum pseudo_fs)i));
	inode_state_globals(s);
	mount_state_globals(s);
	inotify_state_globals(s);
	eventfd_state_globals(s);
	kmsg_state_globals(s);
	tmpfs_state_globals(s);
	mqueue_state_globals(s);
}

const struct state_type state_vfs = {
	.id = STATE_VFS,
	.version = 1,
	.name = "vfs",
	.alloc = vfs_alloc,
	.fields = vfs_fields,
	.phase = 1,
};
