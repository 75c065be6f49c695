// SPDX-License-Identifier: Apache-2.0
/*
 * The spec's mounts, made inside the guest's own mount namespace. Nothing of the host is mounted:
 * bind mounts are attach points of the gofer, all other types are the sentry's own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>

#include "base/alloc.h"
#include "runtime/container.h"
#include "runtime/errno_text.h"
#include "runtime/mount_options.h"
#include "sentry/fs/mqueue/mqueue.h"
#include "sentry/fs/proc/proc.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/ns.h"

/* mkdir -p below the container's root; symbolic links on the way are followed within it. */
static int make_dirs(struct container *c, const char *dir, struct path *ret)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	AUTO_FREE char *have = kstrdup(dir);
	size_t n = strlen(have);
	struct path at;
	int r;

	while ((r = path_lookup_from(NULL, root, &c->root, &c->root, n ? have : "/", LOOKUP_FOLLOW,
				     &at)) == -ENOENT && n) {
		while (n && have[n - 1] == '/')
			n--;
		while (n && have[n - 1] != '/')
			n--;
		have[n] = 0;
	}
	if (r)
		return r;
	r = vfs_mkdir_p(&at, dir + n, 0755, ret);
	path_put(&at);
	return r;
}

/* An empty file where there is none. */
static int make_file(struct container *c, const char *name)
{
	AUTO_FREE char *parent = kstrdup(name);
	char *slash = strrchr(parent, '/');
	const char *base = slash ? slash + 1 : parent;
	struct inode *dir, *n = NULL;
	struct path at;
	int r;

	if (slash)
		*slash = 0;
	r = make_dirs(c, slash ? parent : "", &at);
	if (r)
		return r;
	dir = dentry_inode(at.dentry);
	mutex_lock(&dir->mu);
	if (dir->ops->create)
		n = dir->ops->create(dir, base, S_IFREG | 0644, c->uid0, c->gid0);
	mutex_unlock(&dir->mu);
	r = n ? (is_err(n) ? (int)ptr_err(n) : 0) : -EROFS;
	if (!r) {
		dentry_invalidate(at.dentry, base);
		inode_put(n);
	}
	path_put(&at);
	return r;
}

int container_mountpoint(struct container *c, const char *dest, bool file, struct path *ret)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	int r = path_lookup_from(NULL, root, &c->root, &c->root, dest, LOOKUP_FOLLOW, ret);

	if (r != -ENOENT)
		return r;
	if (!file)
		return make_dirs(c, dest, ret);
	r = make_file(c, dest);
	return r ? r : path_lookup_from(NULL, root, &c->root, &c->root, dest, LOOKUP_FOLLOW, ret);
}

/* @data with the ids in uid= and gid= as the kernel has them, and the root given to the container's. */
static char *map_owner(const struct container *c, const char *data, bool root)
{
	AUTO_FREE char *copy = kstrdup(data);
	char *save = NULL, *out = root ? kasprintf("uid=%u,gid=%u", c->uid0, c->gid0) : kstrdup("");

	for (char *o = strtok_r(copy, ",", &save); o; o = strtok_r(NULL, ",", &save)) {
		bool uid = !strncmp(o, "uid=", 4), gid = !strncmp(o, "gid=", 4);
		uint32_t id = uid || gid ? (uint32_t)strtoul(o + 4, NULL, 10) : 0;
		char *more = uid || gid ? kasprintf("%s%s%.4s%u", out, out[0] ? "," : "", o,
						    uid ? container_kuid(c, id) : container_kgid(c, id)) :
					  kasprintf("%s%s%s", out, out[0] ? "," : "", o);

		free(out);
		out = more;
	}
	return out;
}

static struct super *mount_fs(struct container *c, const struct spec_mount *m,
			      const struct mount_options *o)
{
	const char *type = m->type && m->type[0] ? m->type : "none";
	bool tmpfs = !strcmp(type, "tmpfs");
	AUTO_FREE char *data = c->userns == &init_userns || (!tmpfs && strcmp(type, "devpts") != 0) ?
				       kstrdup(o->data) :
				       map_owner(c, o->data, tmpfs);
	struct fs_type *fs;
	struct super *sb;

	if (!strcmp(type, "cgroup"))
		type = "cgroup2";
	/* What shows a namespace shows the container's. */
	if (!strcmp(type, "proc"))
		return proc_create_super(c->ns->pid_for_children, m->source, o->flags & MS_RDONLY, data);
	if (!strcmp(type, "mqueue"))
		return mqueue_get_super(c->ns->ipc);
	fs = fs_find(type);
	if (!fs)
		return err_ptr(-ENODEV);
	sb = fs->mount(NULL, m->source ? m->source : type, o->flags & MS_RDONLY, data);
	if (!is_err(sb) && !sb->source)
		sb->source = kstrdup(m->source ? m->source : type);
	return sb;
}

/* What is mounted, and in *ret_file whether it is no directory. */
static struct super *mount_super_of(struct container *c, unsigned index, const struct mount_options *o,
				    bool *ret_file)
{
	const struct spec_mount *m = &c->boot->spec->mounts[index];

	*ret_file = false;
	return mount_is_bind(m) ? container_bind_super(c, index, o->flags & MS_RDONLY, ret_file) :
				  mount_fs(c, m, o);
}

/* A device of the host that is bound: the guest's device of that number. */
static int mount_device(struct container *c, struct mntns *mnt, const struct spec_mount *m,
			const json_t *attach, const struct mount_options *o)
{
	const json_t *v = json_object_get(attach, "device");
	dev_t rdev = makedev((unsigned)json_integer_value(json_array_get(v, 1)),
			     (unsigned)json_integer_value(json_array_get(v, 2)));

	return container_bind_device(c, mnt, m->destination,
				     (uint32_t)json_integer_value(json_array_get(v, 0)), rdev, c->uid0,
				     c->gid0, o->flags & ~(unsigned long)(MS_BIND | MS_REC));
}

static const json_t *find_device(const struct container *c, unsigned index)
{
	const json_t *o;
	size_t i;

	json_array_foreach(json_object_get(c->boot->json, "devices"), i, o)
		if (json_integer_value(json_object_get(o, "mount")) == (json_int_t)index)
			return o;
	return NULL;
}

/* What comes after a mount on @below. */
static int finish_mount(struct container *c, const struct spec_mount *m, const struct path *below,
			const struct mount_options *o)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	struct path top;
	int r = path_lookup_from(NULL, root, &c->root, &c->root, m->destination, LOOKUP_FOLLOW, &top);

	if (r)
		return r;
	if (o->copy_up && !mount_is_bind(m) && S_ISDIR(dentry_inode(below->dentry)->mode))
		r = container_copy_up(below, &top);
	if (!r && o->propagation)
		mount_set_propagation(&top, o->propagation);
	path_put(&top);
	return r;
}

static int mount_with(struct container *c, struct mntns *mnt, unsigned index,
		      const struct mount_options *o)
{
	const struct spec_mount *m = &c->boot->spec->mounts[index];
	const json_t *device = find_device(c, index);
	struct path at = { 0 };
	struct super *sb;
	bool file;
	int r;

	if (device)
		return mount_device(c, mnt, m, device, o);
	sb = mount_super_of(c, index, o, &file);
	if (is_err(sb))
		return (int)ptr_err(sb);
	r = container_mountpoint(c, m->destination, file, &at);
	if (!r)
		r = mntns_mount_super(mnt, &at, sb, NULL, o->flags & ~(unsigned long)(MS_BIND | MS_REC));
	if (!r)
		r = finish_mount(c, m, &at, o);
	path_put(&at);
	super_put(sb);
	return r;
}

static int mount_one(struct container *c, struct mntns *mnt, unsigned index, char **ret_why)
{
	const struct spec_mount *m = &c->boot->spec->mounts[index];
	struct mount_options o;
	int r;

	mount_options_parse(m, &o);
	r = mount_with(c, mnt, index, &o);
	mount_options_fini(&o);
	if (r)
		*ret_why = kasprintf("error mounting \"%s\" to rootfs at \"%s\": mount of %s on %s: %s",
				     m->source ? m->source : "none", m->destination,
				     m->type ? m->type : "bind", m->destination, errno_text(-r));
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
					     errno_text(-r));
			return -1;
		}
	}
	return 0;
}

static bool mounted_before(const json_t *was_mounts, const char *destination)
{
	json_t *m;
	size_t i;

	json_array_foreach(was_mounts, i, m)
		if (!strcmp(json_string_value(json_object_get(m, "destination")) ?: "", destination))
			return true;
	return false;
}

int container_mount_new(struct container *c, const json_t *was_mounts, char **ret_why)
{
	const struct spec *s = c->boot->spec;

	for (unsigned i = 0; i < s->nmounts; i++)
		if (!mounted_before(was_mounts, s->mounts[i].destination) && mount_one(c, c->ns->mnt, i, ret_why))
			return -1;
	return 0;
}

int container_mount_all(struct container *c, struct mntns *mnt, char **ret_why)
{
	const struct spec *s = c->boot->spec;
	struct path root;

	for (unsigned i = 0; i < s->nmounts; i++)
		if (mount_one(c, mnt, i, ret_why))
			return -1;
	if (container_devices(c, mnt, ret_why))
		return -1;
	find_devpts(c);
	if (restrict_paths(c, mnt, ret_why))
		return -1;
	root = mntns_root(mnt);
	/* Last: mount points were made in it. */
	if (s->root_readonly)
		mount_set_flags(&root, MS_RDONLY);
	if (s->rootfs_propagation)
		mount_set_propagation(&root, s->rootfs_propagation);
	path_put(&root);
	return 0;
}
