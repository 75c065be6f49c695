// SPDX-License-Identifier: Apache-2.0
/*
 * Directories and names of bind mounts: every operation is the gofer's. A listing is read
 * when an open directory is at its start, and held until it is rewound: what one pass of
 * getdents shows is one state of the directory, as on most Linux file systems.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/gofer/fs.h"
#include "sentry/mm/mfile.h"
#include "sentry/vfs/vfs_state.h"

static uint64_t node_of(struct inode *i)
{
	return atomic_load(&GF(i)->node);
}

static void stale_attr(struct inode *i)
{
	atomic_store(&GF(i)->attr_ns, 0);
}

static struct inode *gf_lookup(struct inode *dir, const char *name)
{
	struct gofer_walked w;
	int err = GF(dir)->orphan ? -ENOENT : gofer_walk1(gf_client(dir), node_of(dir), name, &w);

	if (err == -ENOENT)
		return NULL;
	if (err)
		return err_ptr(err);
	return gf_iget(dir->sb, w.node, &w.attr, w.target);
}

/* Does @name still lead to @inode (NULL: to nothing)? Refreshes its attributes by the
 * way. */
static int gf_revalidate(struct inode *dir, const char *name, struct inode *inode)
{
	struct gofer_walked w;
	int err = gofer_walk1(gf_client(dir), node_of(dir), name, &w);

	if (err)
		return err == -ENOENT && !inode;
	bool same = inode && GF(inode)->id.dev == w.attr.dev && GF(inode)->id.ino == w.attr.ino &&
		    GF(inode)->id.btime_ns == w.attr.btime_ns &&
		    ((inode->mode ^ w.attr.mode) & S_IFMT) == 0;
	if (same) {
		gofer_forget(gf_client(dir), atomic_exchange(&GF(inode)->node, w.node));
		gf_update(inode, &w.attr);
	} else {
		gofer_forget(gf_client(dir), w.node);
	}
	free(w.target);
	return same;
}

static struct inode *new_inode(struct inode *dir, int err, uint64_t node,
			       const struct gofer_attr *a, char *target)
{
	stale_attr(dir);
	if (err) {
		free(target);
		return err_ptr(err);
	}
	return gf_iget(dir->sb, node, a, target);
}

static struct inode *gf_create(struct inode *dir, const char *name, uint32_t mode, uid_t uid,
			       gid_t gid)
{
	struct gofer_attr a;
	uint64_t node = 0;
	int fd = gofer_create(gf_client(dir), node_of(dir), name, mode, uid, gid, &node, &a);
	struct inode *inode = new_inode(dir, fd < 0 ? fd : 0, node, &a, NULL);

	if (!is_err(inode))
		gf_keep_fd(GF(inode), fd);
	return inode;
}

static struct inode *gf_tmpfile(struct inode *dir, uint32_t mode, uid_t uid, gid_t gid)
{
	return gf_create(dir, NULL, mode, uid, gid);
}

static struct inode *gf_mkdir(struct inode *dir, const char *name, uint32_t mode, uid_t uid,
			      gid_t gid)
{
	struct gofer_attr a;
	uint64_t node = 0;
	int err = gofer_mkdir(gf_client(dir), node_of(dir), name, mode, uid, gid, &node, &a);

	return new_inode(dir, err, node, &a, NULL);
}

static struct inode *gf_mknod(struct inode *dir, const char *name, uint32_t mode, dev_t rdev,
			      uid_t uid, gid_t gid)
{
	struct gofer_attr a;
	uint64_t node = 0;

	(void)rdev; /* devices are refused by the gofer */
	int err = gofer_mknod(gf_client(dir), node_of(dir), name, mode, uid, gid, &node, &a);
	return new_inode(dir, err, node, &a, NULL);
}

static struct inode *gf_symlink(struct inode *dir, const char *name, const char *target, uid_t uid,
				gid_t gid)
{
	struct gofer_attr a;
	uint64_t node = 0;
	int err = gofer_symlink(gf_client(dir), node_of(dir), name, target, uid, gid, &node, &a);

	return new_inode(dir, err, node, &a, kstrdup(target));
}

static int gf_link(struct inode *dir, const char *name, struct inode *inode)
{
	struct gofer_attr a;

	if (dir->sb != inode->sb)
		return -EXDEV;
	int err = gofer_link(gf_client(dir), node_of(inode), node_of(dir), name, &a);
	if (err)
		return err;
	stale_attr(dir);
	gf_update(inode, &a);
	return 0;
}

static int remove_name(struct inode *dir, const char *name, struct inode *inode, bool rmdir_flag)
{
	int err = gofer_unlink(gf_client(dir), node_of(dir), name, rmdir_flag, node_of(inode));

	if (err)
		return err;
	stale_attr(dir);
	stale_attr(inode);
	if (rmdir_flag)
		inode->nlink = 0;
	else if (inode->nlink)
		inode->nlink--;
	return 0;
}

static int gf_unlink(struct inode *dir, const char *name, struct inode *inode)
{
	gf_before_unlink(inode);
	return remove_name(dir, name, inode, false);
}

static int gf_rmdir(struct inode *dir, const char *name, struct inode *inode)
{
	return remove_name(dir, name, inode, true);
}

static int gf_rename(struct inode *olddir, const char *oldname, struct inode *inode,
		     struct inode *newdir, const char *newname, struct inode *victim, unsigned flags)
{
	int err;

	if (victim)
		gf_before_unlink(victim);
	err = gofer_rename(gf_client(olddir), node_of(olddir), oldname, node_of(newdir), newname, flags,
			   node_of(inode), victim ? node_of(victim) : 0);
	if (err)
		return err;
	stale_attr(olddir);
	stale_attr(newdir);
	stale_attr(inode);
	if (victim)
		stale_attr(victim);
	return 0;
}

static char *gf_readlink(struct inode *inode)
{
	struct gf_inode *gi = GF(inode);

	/* A symlink's target can't change, only the name can lead to another symlink. */
	return gi->target ? kstrdup(gi->target) : gofer_readlink(gf_client(inode), node_of(inode));
}

static int gf_setattr(struct inode *inode, const struct iattr *attr)
{
	struct gofer_setattr s = { .mode = attr->mode & 07777,
				   .uid = attr->uid,
				   .gid = attr->gid,
				   .atime_ns = attr->atime_ns,
				   .mtime_ns = attr->mtime_ns };
	struct gofer_attr a;
	int err = 0;

	if (attr->valid & ATTR_SIZE)
		err = gf_truncate(inode, attr->size);
	if (err)
		return err;
	if (GF(inode)->orphan)
		return generic_setattr(inode, attr);
	stale_attr(inode);
	s.valid = (attr->valid & ATTR_MODE ? GOFER_SET_MODE : 0) |
		  (attr->valid & ATTR_UID ? GOFER_SET_UID : 0) |
		  (attr->valid & ATTR_GID ? GOFER_SET_GID : 0) |
		  (attr->valid & ATTR_ATIME ? GOFER_SET_ATIME : 0) |
		  (attr->valid & ATTR_MTIME ? GOFER_SET_MTIME : 0);
	if (attr->valid & ATTR_KILL_PRIV)
		(void)gofer_removexattr(gf_client(inode), node_of(inode),
					"security.capability"); /* mostly there is none */
	if (!s.valid)
		return gf_getattr(inode);
	err = gofer_setattr(gf_client(inode), node_of(inode), &s, &a);
	if (!err)
		gf_update(inode, &a);
	return err;
}

static ssize_t gf_getxattr(struct inode *inode, const char *name, void *buf, size_t size)
{
	return gofer_getxattr(gf_client(inode), node_of(inode), name, buf, size);
}

static int gf_setxattr(struct inode *inode, const char *name, const void *buf, size_t size,
		       int flags)
{
	stale_attr(inode);
	return gofer_setxattr(gf_client(inode), node_of(inode), name, buf, size, flags);
}

static ssize_t gf_listxattr(struct inode *inode, char *buf, size_t size)
{
	ssize_t n = gofer_listxattr(gf_client(inode), node_of(inode), buf, size);

	return n == -EOPNOTSUPP ? 0 : n;
}

static int gf_removexattr(struct inode *inode, const char *name)
{
	stale_attr(inode);
	return gofer_removexattr(gf_client(inode), node_of(inode), name);
}

/* May run with mm.mu held: takes only locks ranked above it. */
static void gf_destroy(struct inode *inode)
{
	struct gf_inode *gi = GF(inode);
	struct gf_super *gs = GF_SB(inode->sb);

	mutex_lock(&gs->inodes_mu);
	if (gi->hashed)
		HASH_DEL(gs->inodes, gi);
	mutex_unlock(&gs->inodes_mu);
	mfile_put(gi->ro);
	mfile_put(gi->rw);
	gofer_forget(gs->client, atomic_load(&gi->node));
	free(gi->target);
	mutex_fini(&gi->io_mu);
	inode_fini(inode);
	free(gi);
}

const struct inode_ops gf_inode_ops = {
	.destroy = gf_destroy,
	.lookup = gf_lookup,
	.create = gf_create,
	.mkdir = gf_mkdir,
	.mknod = gf_mknod,
	.symlink = gf_symlink,
	.link = gf_link,
	.unlink = gf_unlink,
	.rmdir = gf_rmdir,
	.rename = gf_rename,
	.tmpfile = gf_tmpfile,
	.revalidate = gf_revalidate,
	.readlink = gf_readlink,
	.getattr = gf_getattr,
	.setattr = gf_setattr,
	.open = gf_open,
	.getxattr = gf_getxattr,
	.setxattr = gf_setxattr,
	.listxattr = gf_listxattr,
	.removexattr = gf_removexattr,
	.state = &state_inode_gofer,
};

/* ---- listing ---- */

static void listing_free(struct gf_listing *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		free(l->v[i].name);
	free(l->v);
	free(l);
}

void gf_listing_add(struct gf_listing *l, char *name, uint64_t ino, uint32_t mode)
{
	if (l->n == l->size) {
		l->size = l->size ? 2 * l->size : 64;
		l->v = krealloc_array(l->v, l->size, sizeof(*l->v));
	}
	l->v[l->n++] = (struct gf_dirent){ name, ino, mode };
}

static void listing_add(void *arg, const char *name, const struct gofer_attr *a)
{
	gf_listing_add(arg, kstrdup(name), a->ino, a->mode);
}

static int listing_read(struct file *f)
{
	struct gf_listing *l = kzalloc(sizeof(*l));
	uint64_t cookie = 0;
	int err = !GF(f->inode)->orphan;

	while (err > 0)
		err = gofer_readdir(gf_client(f->inode), node_of(f->inode), &cookie, listing_add, l);
	if (err) {
		listing_free(l);
		return err;
	}
	listing_free(f->priv);
	f->priv = l;
	return 0;
}

static uint64_t parent_ino(struct file *f)
{
	struct dentry *parent = f->path.dentry ? dentry_parent(f->path.dentry) : NULL;
	uint64_t ino = f->inode->ino;

	if (parent && dentry_inode(parent))
		ino = dentry_inode(parent)->ino;
	if (parent)
		dentry_put(parent);
	return ino;
}

static int gf_iterate(struct file *f, struct dir_ctx *ctx, int64_t *pos)
{
	if (*pos == 0 || !f->priv) {
		int err = listing_read(f);

		if (err)
			return err;
	}
	if (*pos == 0) {
		if (!ctx->emit(ctx, ".", 1, f->inode->ino, DT_DIR, 1))
			return 0;
		*pos = 1;
	}
	if (*pos == 1) {
		if (!ctx->emit(ctx, "..", 2, parent_ino(f), DT_DIR, 2))
			return 0;
		*pos = 2;
	}
	struct gf_listing *l = f->priv;
	while (*pos >= 2 && (uint64_t)*pos - 2 < l->n) {
		const struct gf_dirent *de = &l->v[*pos - 2];

		if (!ctx->emit(ctx, de->name, strlen(de->name), de->ino, (de->mode & S_IFMT) >> 12,
			       *pos + 1))
			return 0;
		(*pos)++;
	}
	return 0;
}

static int64_t gf_dir_llseek(struct file *f, int64_t off, int whence)
{
	int64_t pos = off;

	if (whence == SEEK_CUR && __builtin_add_overflow(f->pos, off, &pos))
		return -EOVERFLOW;
	if ((whence != SEEK_SET && whence != SEEK_CUR) || pos < 0)
		return -EINVAL;
	f->pos = pos;
	return pos;
}

static void gf_dir_release(struct file *f)
{
	listing_free(f->priv);
	f->priv = NULL;
}

static int gf_dir_fsync(struct file *f, bool datasync)
{
	(void)datasync;
	return gofer_fsync(gf_client(f->inode), node_of(f->inode));
}

const struct file_ops gf_dir_fops = {
	.name = "gofer-dir",
	.release = gf_dir_release,
	.llseek = gf_dir_llseek,
	.iterate = gf_iterate,
	.fsync = gf_dir_fsync,
	.state = &file_state_gofer_dir,
};
