// SPDX-License-Identifier: Apache-2.0
/*
 * Files outside any directory: anonymous inodes (eventfd, epoll, ...), and files on
 * inodes of pseudo file systems (pipes, sockets), whose supers are their own subsystems'.
 *
 * As in Linux all anonymous files share one inode: nothing of it can be changed by a guest that
 * another guest process could see, except its times.
 */
#include "base/alloc.h"

#include <fcntl.h>
#include <string.h>

#include "sentry/kernel/task.h"
#include "sentry/vfs/locks.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

#define ANON_MAGIC_G 0x09041934
#define PIPEFS_MAGIC_G 0x50495045
#define SOCKFS_MAGIC_G 0x534f434b

struct super *anon_super, *pipefs_super, *sockfs_super;
static struct inode *anon_inode;

static void pseudo_destroy(struct super *sb)
{
	super_fini(sb);
	free(sb);
}

static int pseudo_statfs(struct super *sb, struct statfs_g *ret)
{
	*ret = (struct statfs_g){ .f_type = (int64_t)sb->magic, .f_bsize = 4096, .f_frsize = 4096,
				  .f_namelen = NAME_MAX_G };
	return 0;
}

static const struct super_ops pseudo_super_ops = {
	.destroy = pseudo_destroy,
	.statfs = pseudo_statfs,
};

static struct super *pseudo_create(uint64_t magic)
{
	struct super *sb = kzalloc(sizeof(*sb));

	super_init(sb, &pseudo_super_ops, NULL, magic, 0);
	return sb;
}

static void anon_inode_destroy(struct inode *inode)
{
	inode_fini(inode);
	free(inode);
}

static int anon_setattr(struct inode *inode, const struct iattr *attr)
{
	(void)inode;
	(void)attr;
	return -EOPNOTSUPP; /* as anon_inode_setattr in Linux */
}

static const struct inode_ops anon_inode_ops = {
	.destroy = anon_inode_destroy,
	.setattr = anon_setattr,
	.state = &state_inode_anon,
};

static const struct file_ops anon_inode_fops = {
	.name = "anon_inode",
	.state = &file_state_anon_inode,
};
const struct file_state file_state_anon_inode = {
	.id = FILE_ANON_INODE,
	.ops = &anon_inode_fops,
};

struct inode *anon_inode_get(void)
{
	return inode_get(anon_inode);
}

void vfs_init(void)
{
	dcache_init();
	mount_init();
	locks_init();
	notify_init();
	anon_super = pseudo_create(ANON_MAGIC_G);
	pipefs_super = pseudo_create(PIPEFS_MAGIC_G);
	sockfs_super = pseudo_create(SOCKFS_MAGIC_G);
	anon_inode = kzalloc(sizeof(*anon_inode));
	/* No type bits: stat of an eventfd shows mode 0600. */
	inode_init(anon_inode, anon_super, &anon_inode_ops, &anon_inode_fops, inode_next_ino(), 0600, 0,
		   0);
}

static unsigned fmode_of(unsigned flags)
{
	switch (flags & O_ACCMODE) {
	case O_RDONLY:
		return FMODE_READ;
	case O_WRONLY:
		return FMODE_WRITE;
	default:
		return FMODE_READ | FMODE_WRITE;
	}
}

struct file *file_create_pseudo(struct inode *inode, const struct file_ops *ops, void *priv,
				unsigned flags, const char *name)
{
	struct task *t = current_task();
	struct file *f = file_alloc(flags, t ? task_cred(t) : NULL);

	if (is_err(f)) {
		inode_put(inode);
		return f;
	}
	f->ops = ops;
	f->priv = priv;
	f->inode = inode_get(inode);
	f->path.dentry = dentry_create_anon(inode, name);
	f->fmode = fmode_of(flags);
	if (!ops->llseek)
		f->fmode |= FMODE_STREAM;
	return f;
}

struct file *file_create_anon(const struct file_ops *ops, void *priv, unsigned flags,
			      const char *name)
{
	AUTO_FREE char *full = kasprintf("anon_inode:[%s]", name);

	return file_create_pseudo(inode_get(anon_inode), ops, priv, flags, full);
}
