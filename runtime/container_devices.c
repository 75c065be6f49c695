// SPDX-License-Identifier: Apache-2.0
/*
 * What the runtime-spec promises in /dev (config-linux.md, "Default Devices", "/dev symbolic links") and
 * linux.devices. The nodes lead to devices of the guest's kernel: one that it doesn't have can be made
 * and looked at, and opening it is ENXIO.
 *
 * Nodes go into the tmpfs that the spec mounts on /dev. Host file systems hold no device nodes of ours: where a
 * node would be on one, it is bound over an empty file, and where the spec mounts nothing on /dev, a tmpfs
 * is.
 */
#include <errno.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/alloc.h"
#include "runtime/errno_text.h"
#include "runtime/container.h"
#include "runtime/mount_options.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/ns.h"

#define TTY_GID 5

static const struct spec_device default_devices[] = {
	{ "/dev/null", S_IFCHR | 0666, 1, 3, 0, 0 },
	{ "/dev/zero", S_IFCHR | 0666, 1, 5, 0, 0 },
	{ "/dev/full", S_IFCHR | 0666, 1, 7, 0, 0 },
	{ "/dev/random", S_IFCHR | 0666, 1, 8, 0, 0 },
	{ "/dev/urandom", S_IFCHR | 0666, 1, 9, 0, 0 },
	{ "/dev/tty", S_IFCHR | 0666, 5, 0, 0, TTY_GID },
};

static const struct {
	const char *name, *target;
} links[] = {
	{ "fd", "/proc/self/fd" },	     { "stdin", "/proc/self/fd/0" },
	{ "stdout", "/proc/self/fd/1" }, { "stderr", "/proc/self/fd/2" },
	{ "core", "/proc/kcore" },	     { "ptmx", "pts/ptmx" },
};

/* A node named @name in @dir. 0 or -errno. */
static int make_node(struct inode *dir, const char *name, uint32_t mode, dev_t rdev, uid_t uid,
		     gid_t gid)
{
	struct inode *n;

	mutex_lock(&dir->mu);
	n = dir->ops->mknod ? dir->ops->mknod(dir, name, mode, rdev, uid, gid) : err_ptr(-EPERM);
	mutex_unlock(&dir->mu);
	if (is_err(n))
		return (int)ptr_err(n);
	inode_put(n);
	return 0;
}

static bool on_tmpfs(const struct path *p)
{
	return !strcmp(mount_super(p->mnt)->type->name, "tmpfs");
}

int container_bind_device(struct container *c, struct mntns *mnt, const char *path, uint32_t mode,
			  dev_t rdev, uid_t uid, gid_t gid, unsigned long flags)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);
	struct super *sb = tmpfs_create_super(0, "mode=755,size=0");
	struct path at = { 0 }, node = { 0 };
	struct dentry *d = NULL;
	int r;

	if (is_err(sb))
		return (int)ptr_err(sb);
	r = make_node(dentry_inode(sb->root), "device", mode, rdev, uid, gid);
	if (!r)
		r = container_mountpoint(c, path, true, &at);
	if (!r) {
		d = dentry_lookup(sb->root, "device");
		node = (struct path){ at.mnt, d }; /* only its dentry is looked at */
		r = is_err(d) ? (int)ptr_err(d) : mntns_mount_super(mnt, &at, sb, &node, flags);
	}
	if (d && !is_err(d))
		dentry_put(d);
	path_put(&at);
	super_put(sb);
	return r;
}

/* Replaces what is there: the spec's own nodes win over the default ones. */
static int make_device(struct container *c, struct mntns *mnt, const struct spec_device *d)
{
	AUTO_FREE char *parent = kstrdup(d->path);
	char *slash = strrchr(parent, '/');
	uid_t uid = container_kuid(c, d->uid);
	gid_t gid = container_kgid(c, d->gid);
	dev_t rdev = makedev(d->major, d->minor);
	struct path dir;
	int r;

	*slash = 0;
	r = container_mountpoint(c, parent[0] ? parent : "/", false, &dir);
	if (r)
		return r;
	if (!on_tmpfs(&dir)) {
		path_put(&dir);
		return container_bind_device(c, mnt, d->path, d->mode, rdev, uid, gid, 0);
	}
	r = make_node(dentry_inode(dir.dentry), slash + 1, d->mode, rdev, uid, gid);
	if (r == -EEXIST) {
		struct dentry *old = dentry_lookup(dir.dentry, slash + 1);
		struct inode *i = is_err(old) ? NULL : dentry_inode(old);
		struct iattr a = { .valid = ATTR_MODE | ATTR_UID | ATTR_GID, .mode = d->mode, .uid = uid,
				   .gid = gid };

		/* The same device again, as callers list the default ones: with their owner and mode. */
		r = !i || i->rdev != rdev || (i->mode & S_IFMT) != (d->mode & S_IFMT) ? -EEXIST : 0;
		if (!r) {
			mutex_lock(&i->mu);
			r = i->ops->setattr ? i->ops->setattr(i, &a) : generic_setattr(i, &a);
			mutex_unlock(&i->mu);
		}
		if (!is_err(old))
			dentry_put(old);
	}
	path_put(&dir);
	return r;
}

static int make_links(struct container *c, const struct path *dev)
{
	struct inode *dir = dentry_inode(dev->dentry);

	for (unsigned i = 0; i < ARRAY_SIZE(links); i++) {
		struct inode *n;

		mutex_lock(&dir->mu);
		n = dir->ops->symlink ? dir->ops->symlink(dir, links[i].name, links[i].target, c->uid0,
							  c->gid0) :
					err_ptr(-EPERM);
		mutex_unlock(&dir->mu);
		if (is_err(n) && ptr_err(n) != -EEXIST)
			return (int)ptr_err(n);
		if (!is_err(n))
			inode_put(n);
	}
	return 0;
}

/* What the spec has on /dev: its mount, or NULL. */
static const struct spec_mount *dev_mount(const struct spec *s)
{
	for (unsigned i = 0; i < s->nmounts; i++)
		if (!strcmp(s->mounts[i].destination, "/dev"))
			return &s->mounts[i];
	return NULL;
}

static int mount_dev(struct container *c, struct mntns *mnt)
{
	AUTO_FREE char *data = kasprintf("mode=755,size=64k,uid=%u,gid=%u", c->uid0, c->gid0);
	struct super *sb = tmpfs_create_super(0, data);
	struct path at = { 0 };
	int r;

	if (is_err(sb))
		return (int)ptr_err(sb);
	r = container_mountpoint(c, "/dev", false, &at);
	if (!r)
		r = mntns_mount_super(mnt, &at, sb, NULL, MS_NOSUID);
	path_put(&at);
	super_put(sb);
	return r;
}

/* The terminal of the first process is the container's console. */
static int make_console(struct container *c, struct mntns *mnt)
{
	const struct spec_device console = { "/dev/console", S_IFCHR | 0620, 5, 1, 0, TTY_GID };

	return c->boot->console >= 0 ? make_device(c, mnt, &console) : 0;
}

static int populate(struct container *c, struct mntns *mnt)
{
	const struct spec_mount *m = dev_mount(c->boot->spec);
	struct path dev;
	int r = 0;

	if (m && mount_is_bind(m))
		return 0; /* the caller's business, as with runc */
	if (!m)
		r = mount_dev(c, mnt);
	for (unsigned i = 0; i < ARRAY_SIZE(default_devices) && !r; i++)
		r = make_device(c, mnt, &default_devices[i]);
	if (!r)
		r = make_console(c, mnt);
	if (!r)
		r = container_mountpoint(c, "/dev", false, &dev);
	if (r)
		return r;
	r = on_tmpfs(&dev) ? make_links(c, &dev) : 0;
	path_put(&dev);
	return r;
}

int container_devices(struct container *c, struct mntns *mnt, char **ret_why)
{
	const struct spec *s = c->boot->spec;
	int r = populate(c, mnt);

	if (r) {
		*ret_why = kasprintf("cannot set up /dev: %s", errno_text(-r));
		return -1;
	}
	for (unsigned i = 0; i < s->ndevices; i++) {
		if (!strcmp(s->devices[i].path, "/dev/ptmx"))
			continue; /* a link to our own, as runc has it, whatever a privileged caller lists */
		r = make_device(c, mnt, &s->devices[i]);
		if (r) {
			*ret_why = kasprintf("device %s: %s", s->devices[i].path, errno_text(-r));
			return -1;
		}
	}
	return 0;
}
