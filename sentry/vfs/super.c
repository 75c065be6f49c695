// SPDX-License-Identifier: Apache-2.0
/*
 * Super blocks and the registry of file system types.
 *
 * Inodes refer to their super, and the super to its root dentry, so that references alone would never
 * end. A super's root lives as long as something mounts it (super.active, kept by mount.c): with the last
 * mount the cached names and the root go, and the super itself with the last inode in use. Supers
 * that a file system hands out again and again set ->keep and stay.
 */
#include "base/alloc.h"
#include "base/log.h"

#include <string.h>
#include <sys/sysmacros.h>

#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

static struct list types = LIST_INIT(types); /* filled at start-up, before any guest runs */
static _Atomic unsigned next_minor = 1;

void fs_register(struct fs_type *type)
{
	list_add_tail(&types, &type->node);
}

struct fs_type *fs_find(const char *name)
{
	struct fs_type *ft;

	list_for_each(ft, &types, node)
		if (strcmp(ft->name, name) == 0)
			return ft;
	return NULL;
}

/* /proc/filesystems. */
void fs_show_filesystems(struct seqbuf *out)
{
	struct fs_type *ft;

	list_for_each(ft, &types, node)
		seq_printf(out, "%s\t%s\n", ft->nodev ? "nodev" : "", ft->name);
}

struct super *super_get(struct super *sb)
{
	ref_get(&sb->ref);
	return sb;
}

void super_put(struct super *sb)
{
	if (sb && ref_put(&sb->ref))
		sb->ops->destroy(sb);
}

void super_init(struct super *sb, const struct super_ops *ops, const struct fs_type *type,
		uint64_t magic, unsigned long flags)
{
	memset(sb, 0, sizeof(*sb));
	ref_init(&sb->ref);
	sb->ops = ops;
	sb->type = type;
	sb->magic = magic;
	sb->flags = flags;
	sb->dev = makedev(0, atomic_fetch_add(&next_minor, 1));
	mutex_init(&sb->rename_mu, RANK_VFS_RENAME);
}

void super_state_globals(struct state *s)
{
	uint32_t minor = next_minor;

	state_u32(s, &minor);
	next_minor = minor;
}

void super_fini(struct super *sb)
{
	char *source = (char *)(uintptr_t)sb->source;

	if (sb->root)
		dentry_put(sb->root);
	free(source);
	free((char *)(uintptr_t)sb->shown_root);
	sb->source = sb->shown_root = NULL;
	sb->root = NULL;
	mutex_fini(&sb->rename_mu);
}

/* One more mount of @sb. */
void super_activate(struct super *sb)
{
	atomic_fetch_add(&sb->active, 1);
	super_get(sb);
}

void super_deactivate(struct super *sb)
{
	if (atomic_fetch_sub(&sb->active, 1) == 1 && !sb->keep && sb->root) {
		dentry_invalidate(sb->root, NULL);
		dentry_put(steal_ptr(&sb->root));
	}
	super_put(sb);
}
