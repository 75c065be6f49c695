// SPDX-License-Identifier: Apache-2.0
/*
 * Directories and inodes of pseudo file systems.
 *
 * An inode's number is a hash of its directory's number and its name, so it stays the same however often
 * the dcache forgets it, and readdir can tell it without making the inode. A directory with computed
 * entries is listed by key: position = PFS_DYN + key, so entries that come and go meanwhile neither
 * repeat nor hide others.
 */
#include "sentry/fs/pseudo/pseudofs.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/cred.h"
#include "sentry/vfs/vfs_state.h"

#define PFS_DYN 0x10000 /* position of the first computed entry */

static uint64_t pfs_ino(uint64_t dir, const char *name)
{
	uint64_t h = dir * 0x9e3779b97f4a7c15ULL ^ 0xcbf29ce484222325ULL;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001b3ULL;
	h ^= h >> 29;
	return (h & 0xffffffffULL) | 0xf0000000ULL;
}

static void pfs_destroy(struct inode *inode)
{
	struct pfs_inode *pi = pfs_of(inode);

	if (pi->ctx_ops)
		pi->ctx_ops->put(pi->ctx);
	inode_fini(inode);
	free(pi);
}

static void refresh(struct pfs_inode *pi)
{
	if (pi->ctx_ops && pi->ctx_ops->refresh)
		pi->ctx_ops->refresh(pi);
}

static int pfs_getattr(struct inode *inode)
{
	refresh(pfs_of(inode));
	return 0;
}

static bool mode_allows(struct inode *inode, const struct cred *c, int mask)
{
	uint32_t mode = inode->mode;

	if (c->fsuid == inode->uid)
		mode >>= 6;
	else if (cred_in_group(c, inode->gid))
		mode >>= 3;
	return ((uint32_t)mask & ~mode & 7) == 0;
}

static int pfs_permission(struct inode *inode, const struct cred *c, int mask)
{
	struct pfs_inode *pi = pfs_of(inode);

	refresh(pi);
	if (pi->node->permission) {
		int r = pi->node->permission(pi, c, mask);

		if (r != PFS_PERM_MODE)
			return r;
	}
	if (mode_allows(inode, c, mask))
		return 0;
	if (!(mask & MAY_WRITE) && (S_ISDIR(inode->mode) || mask == MAY_READ) &&
	    cred_capable_inode(c, inode, CAP_DAC_READ_SEARCH))
		return 0;
	if ((mask & MAY_EXEC) && !S_ISDIR(inode->mode))
		return -EACCES;
	return cred_capable_inode(c, inode, CAP_DAC_OVERRIDE) ? 0 : -EACCES;
}

/* Nothing here is chmod'ed or chown'ed; truncation at open is accepted and means nothing. */
static int pfs_setattr(struct inode *inode, const struct iattr *attr)
{
	(void)inode;
	return attr->valid & (ATTR_MODE | ATTR_UID | ATTR_GID) ? -EPERM : 0;
}

static const struct pfs_node *find_child(const struct pfs_node *n, const char *name)
{
	for (n = n->children; n && n->name; n++)
		if (strcmp(n->name, name) == 0)
			return n;
	return NULL;
}

static struct inode *pfs_lookup(struct inode *inode, const char *name)
{
	struct pfs_inode *dir = pfs_of(inode);
	const struct pfs_node *n = find_child(dir->node, name);

	if (dir->ctx_ops && dir->ctx_ops->valid && !dir->ctx_ops->valid(dir))
		return NULL;
	if (n)
		return pfs_inode_create(dir, n, name, NULL, NULL, dir->num);
	return dir->node->lookup ? dir->node->lookup(dir, name) : NULL;
}

static int pfs_revalidate(struct inode *dir, const char *name, struct inode *inode)
{
	struct pfs_inode *pi;

	(void)dir, (void)name;
	if (!inode)
		return 0;
	pi = pfs_of(inode);
	if (pi->node->valid)
		return pi->node->valid(pi);
	if (pi->ctx_ops && pi->ctx_ops->valid)
		return pi->ctx_ops->valid(pi);
	return 1;
}

static char *pfs_readlink(struct inode *inode)
{
	struct pfs_inode *pi = pfs_of(inode);

	if (pi->node->readlink)
		return pi->node->readlink(pi);
	return pi->node->data ? kstrdup(pi->node->data) : err_ptr(-EINVAL);
}

static int pfs_follow(struct inode *inode, struct task *t, struct path *ret)
{
	struct pfs_inode *pi = pfs_of(inode);

	return pi->node->follow(pi, t, ret);
}

static bool emit_fixed(struct pfs_inode *dir, struct dir_ctx *ctx, int64_t *pos)
{
	const struct pfs_node *n = dir->node->children;
	int64_t i = 2;

	while (*pos < 2) {
		if (!ctx->emit(ctx, "..", (size_t)*pos + 1, dir->inode.ino, DT_DIR, *pos + 1))
			return false;
		(*pos)++;
	}
	for (; n && n->name; n++, i++) {
		if (i < *pos)
			continue;
		if (!ctx->emit(ctx, n->name, strlen(n->name), pfs_ino(dir->inode.ino, n->name),
			       IFTODT(n->mode), i + 1))
			return false;
		*pos = i + 1;
	}
	return true;
}

/* Remembers how far the emitting got, for the file's position. */
struct key_ctx {
	struct dir_ctx ctx;
	struct dir_ctx *outer;
	int64_t next;
};

static bool key_emit(struct dir_ctx *ctx, const char *name, size_t len, uint64_t ino, unsigned type,
		     int64_t next)
{
	struct key_ctx *k = container_of(ctx, struct key_ctx, ctx);

	if (!k->outer->emit(k->outer, name, len, ino, type, next))
		return false;
	k->next = next;
	return true;
}

static int pfs_iterate(struct file *f, struct dir_ctx *ctx, int64_t *pos)
{
	struct pfs_inode *dir = pfs_of(f->inode);
	struct key_ctx k = { .ctx.emit = key_emit, .outer = ctx };
	int r;

	if (*pos < 0)
		return -EINVAL;
	if (dir->ctx_ops && dir->ctx_ops->valid && !dir->ctx_ops->valid(dir))
		return -ENOENT;
	if (*pos < PFS_DYN && !emit_fixed(dir, ctx, pos))
		return 0;
	if (!dir->node->iterate)
		return 0;
	k.next = MAX(*pos, (int64_t)PFS_DYN);
	r = dir->node->iterate(dir, &k.ctx, k.next - PFS_DYN);
	*pos = k.next;
	return r;
}

bool pfs_emit(struct pfs_inode *dir, struct dir_ctx *ctx, const char *name, unsigned type,
	      int64_t key)
{
	return ctx->emit(ctx, name, strlen(name), pfs_ino(dir->inode.ino, name), type,
			 PFS_DYN + key + 1);
}

const struct file_ops pfs_dir_fops = {
	.name = "dir",
	.llseek = generic_llseek,
	.iterate = pfs_iterate,
	.state = &file_state_pfs_dir,
};

static int pfs_open(struct inode *inode, struct file *f)
{
	struct pfs_inode *pi = pfs_of(inode);
	int err;

	if (S_ISDIR(inode->mode)) {
		f->ops = &pfs_dir_fops;
		return pi->node->open ? pi->node->open(pi, f) : 0;
	}
	if (!S_ISREG(inode->mode))
		return -ELOOP;
	f->ops = pi->node->fops ? pi->node->fops : &pfs_file_fops;
	if (pi->node->open) {
		err = pi->node->open(pi, f);
		if (err)
			return err;
	}
	if (!f->priv && f->ops->release == pfs_file_release)
		f->priv = pfs_file_create();
	return 0;
}

/* What may be created here: nothing. Linux says ENOENT for new names in proc, EPERM for directories. */
static struct inode *pfs_no_create(struct inode *dir, const char *name, uint32_t mode, uid_t uid,
				   gid_t gid)
{
	(void)dir, (void)name, (void)uid, (void)gid;
	return err_ptr(S_ISDIR(mode) ? -EPERM : -ENOENT);
}

static const struct inode_ops pfs_dir_iops = {
	.destroy = pfs_destroy,
	.lookup = pfs_lookup,
	.create = pfs_no_create,
	.revalidate = pfs_revalidate,
	.getattr = pfs_getattr,
	.setattr = pfs_setattr,
	.permission = pfs_permission,
	.open = pfs_open,
	.state = &state_inode_pfs,
};

static const struct inode_ops pfs_file_iops = {
	.destroy = pfs_destroy,
	.getattr = pfs_getattr,
	.setattr = pfs_setattr,
	.permission = pfs_permission,
	.open = pfs_open,
	.state = &state_inode_pfs,
};

static const struct inode_ops pfs_link_iops = {
	.destroy = pfs_destroy,
	.getattr = pfs_getattr,
	.setattr = pfs_setattr,
	.readlink = pfs_readlink,
	.state = &state_inode_pfs,
};

static const struct inode_ops pfs_magic_iops = {
	.destroy = pfs_destroy,
	.getattr = pfs_getattr,
	.setattr = pfs_setattr,
	.readlink = pfs_readlink,
	.follow = pfs_follow,
	.state = &state_inode_pfs,
};

const struct inode_ops *pfs_iops_of(const struct pfs_node *n)
{
	if (S_ISDIR(n->mode))
		return &pfs_dir_iops;
	if (S_ISLNK(n->mode))
		return n->follow ? &pfs_magic_iops : &pfs_link_iops;
	return &pfs_file_iops;
}

static uint32_t subdirs(const struct pfs_node *n)
{
	uint32_t count = 2;

	for (n = n->children; n && n->name; n++)
		count += S_ISDIR(n->mode);
	return count;
}

static struct pfs_inode *alloc_inode(struct super *sb, const struct pfs_node *node, uint64_t ino)
{
	struct pfs_inode *pi = kzalloc(sizeof(*pi));

	inode_init(&pi->inode, sb, pfs_iops_of(node), NULL, ino, node->mode, 0, 0);
	pi->inode.blksize = 1024;
	if (S_ISDIR(node->mode))
		pi->inode.nlink = subdirs(node);
	pi->node = node;
	return pi;
}

struct inode *pfs_inode_create(struct pfs_inode *dir, const struct pfs_node *node, const char *name,
			       const struct pfs_ctx_ops *ops, void *ctx, int64_t num)
{
	struct pfs_inode *pi = alloc_inode(dir->inode.sb, node, pfs_ino(dir->inode.ino, name));

	pi->ctx_ops = ops ? ops : dir->ctx_ops;
	pi->ctx = ops ? ctx : dir->ctx;
	if (pi->ctx_ops)
		pi->ctx_ops->get(pi->ctx);
	pi->num = num;
	refresh(pi);
	return &pi->inode;
}

void pfs_set_root(struct super *sb, const struct pfs_node *root, uint64_t root_ino)
{
	sb->root = dentry_create_root(&alloc_inode(sb, root, root_ino)->inode);
}

int pfs_statfs(struct super *sb, struct statfs_g *ret)
{
	ret->f_type = (int64_t)sb->magic;
	ret->f_bsize = ret->f_frsize = 4096;
	ret->f_namelen = NAME_MAX_G;
	return 0;
}

void pfs_super_destroy(struct super *sb)
{
	super_fini(sb);
	free(sb);
}

const struct super_ops pfs_super_ops = {
	.destroy = pfs_super_destroy,
	.statfs = pfs_statfs,
	.state = &state_super_pfs,
};
