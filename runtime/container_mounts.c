// SPDX-License-Identifier: Apache-2.0
/*
 * The spec's mounts, made inside the guest's own mount namespace. Nothing of the host is mounted:
 * bind mounts are attach points of the gofer, all other types are the sentry's own.
 */
#include <errno.h>
#include <string.h>
#include <sys/mount.h>

#include "base/alloc.h"
#include "runtime/container.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/fs/gofer/gofer.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/ns.h"

static const struct {
	const char *name;
	unsigned long set, clear;
} flag_names[] = {
	{ "ro", MS_RDONLY, 0 },
	{ "rro", MS_RDONLY, 0 },
	{ "rw", 0, MS_RDONLY },
	{ "rrw", 0, MS_RDONLY },
	{ "nosuid", MS_NOSUID, 0 },
	{ "suid", 0, MS_NOSUID },
	{ "nodev", MS_NODEV, 0 },
	{ "dev", 0, MS_NODEV },
	{ "noexec", MS_NOEXEC, 0 },
	{ "exec", 0, MS_NOEXEC },
	{ "noatime", MS_NOATIME, 0 },
	{ "nodiratime", MS_NODIRATIME, 0 },
	{ "relatime", MS_RELATIME, 0 },
	{ "strictatime", MS_STRICTATIME, 0 },
	{ "sync", MS_SYNCHRONOUS, 0 },
	{ "dirsync", MS_DIRSYNC, 0 },
	{ "bind", MS_BIND, 0 },
	{ "rbind", MS_BIND | MS_REC, 0 },
	{ "private", 0, 0 },
	{ "rprivate", 0, 0 },
	{ "slave", 0, 0 },
	{ "rslave", 0, 0 },
	{ "shared", 0, 0 },
	{ "rshared", 0, 0 },
	{ "defaults", 0, 0 },
	{ "z", 0, 0 },
	{ "Z", 0, 0 },
	{ "tmpcopyup", 0, 0 },
};

/* Splits options into mount flags and a comma-separated rest (heap) for the file system. */
static unsigned long parse_options(const struct spec_mount *m, char **ret_data)
{
	unsigned long flags = 0;
	char *data = kstrdup("");

	for (unsigned i = 0; i < m->noptions; i++) {
		bool known = false;

		for (unsigned k = 0; k < ARRAY_SIZE(flag_names); k++)
			if (!strcmp(m->options[i], flag_names[k].name)) {
				flags = (flags | flag_names[k].set) & ~flag_names[k].clear;
				known = true;
			}
		if (!known) {
			char *more = kasprintf("%s%s%s", data, data[0] ? "," : "", m->options[i]);

			free(data);
			data = more;
		}
	}
	*ret_data = data;
	return flags;
}

/* The attach point made for mount @index by the launcher, or -1. */
static int find_attach(const struct container *c, unsigned index, bool *ret_file)
{
	const json_t *a = json_object_get(c->boot->json, "attach");
	const json_t *o;
	size_t i;

	json_array_foreach(a, i, o) {
		if (json_integer_value(json_object_get(o, "mount")) == (json_int_t)index) {
			*ret_file = json_is_true(json_object_get(o, "file"));
			return (int)i;
		}
	}
	return -1;
}

/* Creates what is missing of the mount point. */
static int make_mountpoint(struct container *c, const char *dest, bool file, struct path *ret)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	AUTO_FREE char *parent = kstrdup(dest);
	char *slash = strrchr(parent, '/');
	struct path dir;
	int r;

	r = path_lookup_from(NULL, root, &c->root, &c->root, dest, LOOKUP_FOLLOW, ret);
	if (r != -ENOENT)
		return r;
	if (!file)
		return vfs_mkdir_p(&c->root, dest, 0755, ret);
	if (slash)
		*slash = 0;
	r = slash && slash != parent ? vfs_mkdir_p(&c->root, parent, 0755, &dir) :
				       (dir = c->root, path_get(&dir), 0);
	if (r)
		return r;
	mutex_lock(&dentry_inode(dir.dentry)->mu);
	struct inode *dirino = dentry_inode(dir.dentry);
	struct inode *n = dirino->ops->create ? dirino->ops->create(dirino, slash ? slash + 1 : dest,
								    S_IFREG | 0644, 0, 0) :
						err_ptr(-EROFS);
	mutex_unlock(&dirino->mu);
	if (!is_err(n)) {
		dentry_invalidate(dir.dentry, slash ? slash + 1 : dest);
		inode_put(n);
		r = path_lookup_from(NULL, root, &c->root, &c->root, dest, LOOKUP_FOLLOW, ret);
	} else {
		r = (int)ptr_err(n);
	}
	path_put(&dir);
	return r;
}

static struct super *mount_super_of(struct container *c, const struct spec_mount *m, unsigned index,
				    unsigned long flags, const char *data, bool *ret_file)
{
	const char *type = m->type ? m->type : "none";
	struct fs_type *fs;

	*ret_file = false;
	if ((flags & MS_BIND) || !strcmp(type, "bind")) {
		int a = find_attach(c, index, ret_file);

		return a < 0 ? err_ptr(-ENOENT) :
			       gofer_create_super(c->gofer, (unsigned)a, flags & MS_RDONLY, *ret_file);
	}
	/* The default devices belong to every container's /dev. */
	if (!strcmp(type, "tmpfs") && !strcmp(m->destination, "/dev"))
		type = "devtmpfs";
	if (!strcmp(type, "cgroup"))
		type = "cgroup2";
	fs = fs_find(type);
	return fs ? fs->mount(NULL, m->source ? m->source : type, flags & MS_RDONLY, data) :
		    err_ptr(-ENODEV);
}

static int mount_one(struct container *c, struct mntns *mnt, unsigned index, char **ret_why)
{
	const struct spec_mount *m = &c->boot->spec->mounts[index];
	AUTO_FREE char *data = NULL;
	unsigned long flags = parse_options(m, &data);
	struct path at = { 0 };
	bool file;
	struct super *sb = mount_super_of(c, m, index, flags, data, &file);
	int r = is_err(sb) ? (int)ptr_err(sb) : make_mountpoint(c, m->destination, file, &at);

	if (!r)
		r = mntns_mount_super(mnt, &at, sb, NULL, flags & ~(unsigned long)(MS_BIND | MS_REC));
	if (r)
		*ret_why = kasprintf("mount of %s on %s: %s", m->type ? m->type : "bind",
				     m->destination, strerror(-r));
	path_put(&at);
	if (!is_err(sb))
		super_put(sb);
	return r ? -1 : 0;
}

/* The devpts instance that consoles are made in. */
static void find_devpts(struct container *c)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	struct path p;

	if (path_lookup_from(NULL, root, &c->root, &c->root, "/dev/pts", LOOKUP_FOLLOW, &p))
		return;
	if (!strcmp(mount_super(p.mnt)->type->name, "devpts"))
		c->devpts = super_get(mount_super(p.mnt));
	path_put(&p);
}

/* Makes @path read-only where it is, or, with @mask, unreadable: an empty directory or /dev/null in its
 * place. A path that doesn't exist needs neither. */
static int restrict_path(struct container *c, struct mntns *mnt, const char *path, bool mask)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	struct path at = { 0 }, null = { 0 };
	struct super *empty = NULL;
	int r = path_lookup_from(NULL, root, &c->root, &c->root, path, LOOKUP_FOLLOW, &at);

	if (r)
		return r == -ENOENT || r == -ENOTDIR ? 0 : r;
	if (!mask) {
		r = mntns_mount_super(mnt, &at, mount_super(at.mnt), &at,
				      mount_flags(at.mnt) | MS_RDONLY);
	} else if (S_ISDIR(dentry_inode(at.dentry)->mode)) {
		empty = tmpfs_create_super(MS_RDONLY, "mode=755,size=0");
		r = is_err(empty) ? (int)ptr_err(empty) :
				    mntns_mount_super(mnt, &at, empty, NULL, MS_RDONLY);
	} else {
		r = path_lookup_from(NULL, root, &c->root, &c->root, "/dev/null", 0, &null);
		if (!r)
			r = mntns_mount_super(mnt, &at, mount_super(null.mnt), &null, 0);
	}
	if (empty && !is_err(empty))
		super_put(empty);
	path_put(&null);
	path_put(&at);
	return r;
}

static int restrict_paths(struct container *c, struct mntns *mnt, char **ret_why)
{
	const struct spec *s = c->boot->spec;

	for (unsigned i = 0; i < s->nreadonly + s->nmasked; i++) {
		bool mask = i >= s->nreadonly;
		const char *path = mask ? s->masked_paths[i - s->nreadonly] : s->readonly_paths[i];
		int r = restrict_path(c, mnt, path, mask);

		if (r) {
			*ret_why = kasprintf("%s path %s: %s", mask ? "masked" : "read-only", path,
					     strerror(-r));
			return -1;
		}
	}
	return 0;
}

int container_mount_all(struct container *c, struct mntns *mnt, char **ret_why)
{
	for (unsigned i = 0; i < c->boot->spec->nmounts; i++)
		if (mount_one(c, mnt, i, ret_why))
			return -1;
	find_devpts(c);
	return restrict_paths(c, mnt, ret_why);
}
