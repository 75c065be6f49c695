// SPDX-License-Identifier: Apache-2.0
/*
 * devtmpfs: a tmpfs that comes with the device nodes, links and directories which programs expect in
 * /dev. Unlike Linux's, each mount is an instance of its own, so that containers don't share nodes.
 */
#include <sys/sysmacros.h>

#include "sentry/fs/dev/chrdev.h"
#include "sentry/vfs/vfs.h"

struct dev_node {
	const char *name;
	uint32_t mode; /* with type: S_IFCHR, S_IFLNK or S_IFDIR */
	unsigned major, minor;
	gid_t gid;
	const char *target;
};

#define TTY_GID 5

static const struct dev_node dev_nodes[] = {
	{ "null", S_IFCHR | 0666, 1, 3 },
	{ "zero", S_IFCHR | 0666, 1, 5 },
	{ "full", S_IFCHR | 0666, 1, 7 },
	{ "random", S_IFCHR | 0666, 1, 8 },
	{ "urandom", S_IFCHR | 0666, 1, 9 },
	{ "kmsg", S_IFCHR | 0644, 1, 11 },
	{ "tty", S_IFCHR | 0666, 5, 0, TTY_GID },
	{ "console", S_IFCHR | 0600, 5, 1, TTY_GID },
	{ "ptmx", S_IFLNK | 0777, .target = "pts/ptmx" },
	{ "fd", S_IFLNK | 0777, .target = "/proc/self/fd" },
	{ "stdin", S_IFLNK | 0777, .target = "/proc/self/fd/0" },
	{ "stdout", S_IFLNK | 0777, .target = "/proc/self/fd/1" },
	{ "stderr", S_IFLNK | 0777, .target = "/proc/self/fd/2" },
	{ "core", S_IFLNK | 0777, .target = "/proc/kcore" },
	{ "shm", S_IFDIR | 01777 },
	{ "pts", S_IFDIR | 0755 },
	{ "mqueue", S_IFDIR | 01777 },
};

static int make_node(struct inode *dir, const struct dev_node *n)
{
	struct inode *inode;

	if (S_ISLNK(n->mode))
		inode = dir->ops->symlink(dir, n->name, n->target, 0, 0);
	else if (S_ISDIR(n->mode))
		inode = dir->ops->mkdir(dir, n->name, n->mode, 0, 0);
	else
		inode = dir->ops->mknod(dir, n->name, n->mode, makedev(n->major, n->minor), 0,
					n->gid);
	if (is_err(inode))
		return (int)ptr_err(inode);
	inode_put(inode);
	return 0;
}

static struct super *devtmpfs_mount(struct task *t, const char *source, unsigned long flags,
				    const char *data);

static struct fs_type devtmpfs_type = {
	.name = "devtmpfs",
	.nodev = true,
	.mount = devtmpfs_mount,
};

static struct super *devtmpfs_mount(struct task *t, const char *source, unsigned long flags,
				    const char *data)
{
	struct fs_type *tmpfs = fs_find("tmpfs");
	struct super *sb;
	struct inode *root;
	int err = 0;

	if (!tmpfs)
		return err_ptr(-ENODEV);
	sb = tmpfs->mount(t, source, flags, data && *data ? data : "mode=755");
	if (is_err(sb))
		return sb;
	sb->type = &devtmpfs_type;
	root = dentry_inode(sb->root);
	mutex_lock(&root->mu);
	for (unsigned i = 0; i < ARRAY_SIZE(dev_nodes) && !err; i++)
		err = make_node(root, &dev_nodes[i]);
	mutex_unlock(&root->mu);
	if (err) {
		super_put(sb);
		return err_ptr(err);
	}
	return sb;
}

void fs_dev_init(void)
{
	fs_register(&devtmpfs_type);
}
