// SPDX-License-Identifier: Apache-2.0
/* Inodes: life, attributes, and the table of operations. */
#include <errno.h>

#include "base/alloc.h"
#include "sentry/fs/tmpfs/priv.h"
#include "sentry/kernel/kmem.h"
#include "sentry/state/state.h"


static bool charge_inode(struct tm_super *ts)
{
	uint64_t max = atomic_load(&ts->max_inodes);

	if (atomic_fetch_add(&ts->used_inodes, 1) < max || !max)
		return true;
	atomic_fetch_sub(&ts->used_inodes, 1);
	return false;
}

static const struct file_ops *fops_for(uint32_t mode)
{
	if (S_ISREG(mode))
		return &tm_file_fops;
	return S_ISDIR(mode) ? &tm_dir_fops : NULL;
}

void tm_inode_set_type(struct tm_inode *ti)
{
	ti->i.fops = fops_for(ti->i.mode);
	if (S_ISDIR(ti->i.mode)) {
		ti->dir = tm_dir_create(!ti->lower);
	} else if (S_ISREG(ti->i.mode)) {
		ti->file = tm_file_create(ti);
		ti->i.vmobj = &ti->file->vmo;
	}
}

/* @l: its lower (reference taken over) or NULL. */
static struct inode *inode_new(struct super *sb, uint32_t mode, uid_t uid, gid_t gid, uint64_t ino,
			       struct lower *l)
{
	struct tm_inode *ti = kzalloc(sizeof(*ti));

	inode_init(&ti->i, sb, &tm_inode_ops, NULL, ino, mode, uid, gid);
	ti->lower = l;
	mutex_init(&ti->xattr_mu, RANK_FS);
	ti->xattrs_loaded = !l;
	tm_inode_set_type(ti);
	if (S_ISDIR(mode))
		ti->i.nlink = 2;
	return &ti->i;
}

struct tm_inode *tm_inode_alloc(void)
{
	struct tm_inode *ti = kzalloc(sizeof(*ti));

	inode_init(&ti->i, NULL, &tm_inode_ops, NULL, 0, 0, 0, 0);
	mutex_init(&ti->xattr_mu, RANK_FS);
	return ti;
}

/* A fresh inode with one link (directories: two). err_ptr(-ENOSPC) beyond nr_inodes. */
struct inode *tm_inode_create(struct super *sb, uint32_t mode, dev_t rdev, uid_t uid, gid_t gid)
{
	if (!kmem_charge_lasting(KMEM_INODE))
		return err_ptr(-ENOSPC);
	if (!charge_inode(TM_SB(sb))) {
		kmem_uncharge(KMEM_INODE);
		return err_ptr(-ENOSPC);
	}
	struct inode *inode = inode_new(sb, mode, uid, gid, inode_next_ino(), NULL);
	TM(inode)->heap = KMEM_INODE;
	inode->rdev = S_ISCHR(mode) || S_ISBLK(mode) ? rdev : 0;
	return inode;
}

static struct inode *from_lower(struct super *sb, struct lower *l)
{
	const struct gofer_attr *a = &l->attr;
	struct inode *inode = inode_new(sb, a->mode, a->uid, a->gid, l->ino, lower_get(l));

	inode->nlink = a->nlink;
	inode->rdev = a->rdev;
	inode->blocks = a->blocks;
	inode->atime_ns = a->atime_ns;
	inode->mtime_ns = a->mtime_ns;
	inode->ctime_ns = a->ctime_ns;
	inode->btime_ns = a->btime_ns;
	atomic_store(&inode->size, a->size);
	return inode;
}

/* The inode of a file of the image: a reference. Names of a linked file share one. */
struct inode *tm_inode_from_lower(struct super *sb, struct lower *l)
{
	if (!lower_is_linked(l)) {
		if (!charge_inode(TM_SB(sb)))
			return err_ptr(-ENOSPC);
		return from_lower(sb, l);
	}
	AUTO_LOCK(&l->fs->mu);
	if (l->inode)
		return inode_get(l->inode);
	if (!charge_inode(TM_SB(sb)))
		return err_ptr(-ENOSPC);
	struct inode *inode = from_lower(sb, l);
	if (!l->fs->closed)
		l->inode = inode_get(inode);
	return inode;
}

/* A name of @inode went away. With the last one, the table of linked files lets go of it.
 * */
void tm_nlink_dec(struct inode *inode)
{
	struct lower *l = TM(inode)->lower;
	struct inode *held = NULL;

	if (inode->nlink)
		inode->nlink--;
	if (inode->nlink || !l || !lower_is_linked(l))
		return;
	mutex_lock(&l->fs->mu);
	if (l->inode == inode)
		held = steal_ptr(&l->inode);
	mutex_unlock(&l->fs->mu);
	inode_put(held);
}

static void free_one(struct tm_inode *ti)
{
	struct tm_super *ts = TM_SB(ti->i.sb);

	tm_file_destroy(ti->file);
	tm_xattrs_free(ti);
	mutex_fini(&ti->xattr_mu);
	free(ti->dir);
	free(ti->target);
	if (ti->lower && !ti->lower->parent)
		lower_close_links(ti->lower);
	lower_put(ti->lower);
	atomic_fetch_sub(&ts->used_inodes, 1);
	kmem_uncharge(ti->heap);
	inode_fini(&ti->i);
	free(ti);
}

/* May run with mm.mu held (the last mapping of a deleted file): takes no lock ranked
 * below it. */
static void tm_destroy(struct inode *inode)
{
	struct tm_inode *drain = TM(inode);

	drain->drain = NULL;
	while (drain) {
		struct tm_inode *ti = drain;

		drain = ti->drain;
		if (ti->dir)
			tm_dir_free_entries(ti, &drain);
		free_one(ti);
	}
}

static char *tm_readlink(struct inode *inode)
{
	struct tm_inode *ti = TM(inode);

	return ti->target ? kstrdup(ti->target) : lower_readlink(ti->lower);
}

static int tm_getattr(struct inode *inode)
{
	struct tm_inode *ti = TM(inode);

	if (ti->file)
		inode->blocks = tm_blocks(ti->file);
	return 0;
}

/* security.capability goes with a change of owner or content. */
static void kill_capability(struct inode *inode)
{
	(void)tm_removexattr(inode, "security.capability"); /* mostly there is none */
}

static int tm_setattr(struct inode *inode, const struct iattr *attr)
{
	struct tm_file *f = TM(inode)->file;
	struct iattr rest = *attr;

	if ((attr->valid & ATTR_MODE) && f && (f->seals & 0x20 /* F_SEAL_EXEC */) &&
	    ((inode->mode ^ attr->mode) & 0111))
		return -EPERM;
	if (attr->valid & ATTR_SIZE) {
		if (!f)
			return S_ISDIR(inode->mode) ? -EISDIR : -EINVAL;
		uint64_t old = atomic_load(&inode->size);
		int err = tm_truncate(inode, attr->size);

		if (err)
			return err;
		/* truncate(2) to the same size leaves the times alone; open(O_TRUNC)
		 * doesn't. */
		if (old == attr->size && !(attr->valid & ~(unsigned)ATTR_SIZE))
			return 0;
	}
	if (attr->valid & ATTR_KILL_PRIV)
		kill_capability(inode);
	return generic_setattr(inode, &rest);
}

const struct inode_ops tm_inode_ops = {
	.destroy = tm_destroy,
	.lookup = tm_lookup,
	.create = tm_create,
	.mkdir = tm_mkdir,
	.mknod = tm_mknod,
	.symlink = tm_symlink,
	.link = tm_link,
	.unlink = tm_unlink,
	.rmdir = tm_rmdir,
	.rename = tm_rename,
	.tmpfile = tm_tmpfile,
	.readlink = tm_readlink,
	.getattr = tm_getattr,
	.setattr = tm_setattr,
	.getxattr = tm_getxattr,
	.setxattr = tm_setxattr,
	.listxattr = tm_listxattr,
	.removexattr = tm_removexattr,
	.state = &state_inode_tmpfs,
};
