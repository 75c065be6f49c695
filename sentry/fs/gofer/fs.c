// SPDX-License-Identifier: Apache-2.0
/*
 * The write-through file system: instances, inodes, attributes.
 *
 * The host may change anything at any time, so names are revalidated at each use and
 * attributes at each stat; only what is younger than GF_ATTR_WINDOW_NS is believed, which
 * spares the second question when a lookup is followed by a stat. While a file is open,
 * its attributes come from the descriptor, with no round trip. One host file is one inode
 * here, whatever name led to it, for locks, mappings and inotify.
 */
#include "sentry/fs/gofer/fs.h"

#include <errno.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "sentry/fs/gofer/gofer.h"
#include "sentry/mm/mfile.h"
#include "sentry/state/state.h"
#include "sentry/time/clock.h"

void gf_update(struct inode *inode, const struct gofer_attr *a)
{
	if ((inode->mode & S_IFMT) != (a->mode & S_IFMT))
		return; /* another file: the next revalidation says so */
	inode->mode = a->mode;
	inode->nlink = a->nlink;
	inode->uid = a->uid;
	inode->gid = a->gid;
	inode->rdev = a->rdev;
	inode->blocks = a->blocks;
	inode->atime_ns = a->atime_ns;
	inode->ctime_ns = a->ctime_ns;
	if (inode->mtime_ns != a->mtime_ns || atomic_load(&inode->size) != a->size)
		inode->version++;
	inode->mtime_ns = a->mtime_ns;
	atomic_store(&inode->size, a->size);
	atomic_store(&GF(inode)->attr_ns, clock_monotonic_ns());
}

static void update_from_stat(struct inode *inode, const struct stat *st)
{
	struct gofer_attr a = {
		.mode = st->st_mode,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.rdev = st->st_rdev,
		.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.atime_ns = st->st_atim.tv_sec * NSEC_PER_SEC + st->st_atim.tv_nsec,
		.mtime_ns = st->st_mtim.tv_sec * NSEC_PER_SEC + st->st_mtim.tv_nsec,
		.ctime_ns = st->st_ctim.tv_sec * NSEC_PER_SEC + st->st_ctim.tv_nsec,
	};

	gf_update(inode, &a);
}

int gf_getattr(struct inode *inode)
{
	struct gf_inode *gi = GF(inode);
	struct gofer_attr a;
	struct mfile *mf;
	struct stat st;
	int64_t since = atomic_load(&gi->attr_ns);

	if (since && clock_monotonic_ns() - since < GF_ATTR_WINDOW_NS)
		return 0;
	if (gi->orphan && !S_ISREG(inode->mode))
		return 0;
	mutex_lock(&gi->io_mu);
	mf = gi->rw ? gi->rw : gi->ro;
	if (mf)
		mfile_get(mf);
	mutex_unlock(&gi->io_mu);
	if (mf) {
		int err = fstat(mfile_rofd(mf), &st) < 0 ? -errno : 0; /* host: fstat */

		mfile_put(mf);
		if (!err && gi->orphan) {
			atomic_store(&inode->size, (uint64_t)st.st_size);
			inode->blocks = (uint64_t)st.st_blocks;
		} else if (!err) {
			update_from_stat(inode, &st);
		}
		return err;
	}
	int err = gofer_getattr(gf_client(inode), atomic_load(&gi->node), &a);
	if (!err)
		gf_update(inode, &a);
	return err;
}

struct gf_inode *gf_inode_alloc(void)
{
	struct gf_inode *gi = kzalloc(sizeof(*gi));

	inode_init(&gi->i, NULL, &gf_inode_ops, NULL, 0, 0, 0, 0);
	mutex_init(&gi->io_mu, RANK_LOWER);
	gi->vmo.ops = &gf_object_ops;
	return gi;
}

void gf_inode_set_type(struct gf_inode *gi)
{
	if (S_ISREG(gi->i.mode)) {
		gi->i.fops = &gf_file_fops;
		gi->i.vmobj = &gi->vmo;
	} else if (S_ISDIR(gi->i.mode)) {
		gi->i.fops = &gf_dir_fops;
	}
}

bool gf_inode_hash(struct gf_inode *gi)
{
	struct gf_super *gs = GF_SB(gi->i.sb);
	struct gf_inode *same;
	AUTO_LOCK(&gs->inodes_mu);

	HASH_FIND(hh, gs->inodes, &gi->id, sizeof(gi->id), same);
	if (same)
		return false;
	HASH_ADD(hh, gs->inodes, id, sizeof(gi->id), gi);
	gi->hashed = true;
	return true;
}

static struct gf_inode *inode_new(struct super *sb, uint64_t node, const struct gofer_attr *a,
				  char *target)
{
	struct gf_inode *gi = gf_inode_alloc();

	gi->i.sb = super_get(sb);
	gi->i.ino = a->ino;
	gi->i.mode = a->mode;
	gi->id = (struct gf_id){ a->dev, a->ino, a->btime_ns };
	gi->i.btime_ns = a->btime_ns;
	if (a->blksize)
		gi->i.blksize = a->blksize;
	atomic_store(&gi->node, node);
	gi->target = target;
	gf_inode_set_type(gi);
	gf_update(&gi->i, a);
	return gi;
}

/* The inode of what a walk found: a reference. Takes over @node and @target. */
struct inode *gf_iget(struct super *sb, uint64_t node, const struct gofer_attr *a, char *target)
{
	struct gf_super *gs = GF_SB(sb);
	struct gf_id id = { a->dev, a->ino, a->btime_ns };
	struct gf_inode *gi;

	mutex_lock(&gs->inodes_mu);
	HASH_FIND(hh, gs->inodes, &id, sizeof(id), gi);
	if (gi && ((gi->i.mode ^ a->mode) & S_IFMT) == 0 && ref_get_unless_zero(&gi->i.ref)) {
		mutex_unlock(&gs->inodes_mu);
		/* The newest way there is the one that still works when the host renames
		 * things. */
		gofer_forget(gs->client, atomic_exchange(&gi->node, node));
		free(target);
		gf_update(&gi->i, a);
		return &gi->i;
	}
	if (gi) { /* dying, or the number was reused at once */
		HASH_DEL(gs->inodes, gi);
		gi->hashed = false;
	}
	gi = inode_new(sb, node, a, target);
	HASH_ADD(hh, gs->inodes, id, sizeof(gi->id), gi);
	gi->hashed = true;
	mutex_unlock(&gs->inodes_mu);
	return &gi->i;
}

static int gf_statfs(struct super *sb, struct statfs_g *ret)
{
	struct gofer_statfs s;
	struct inode *root = dentry_inode(sb->root);
	int err = gofer_statfs(GF_SB(sb)->client, atomic_load(&GF(root)->node), &s);

	if (err)
		return err;
	*ret = (struct statfs_g){
		.f_type = GOFER_FS_MAGIC,
		.f_bsize = (int64_t)s.bsize,
		.f_blocks = s.blocks,
		.f_bfree = s.bfree,
		.f_bavail = s.bavail,
		.f_files = s.files,
		.f_ffree = s.ffree,
		.f_namelen = (int64_t)s.namelen,
		.f_frsize = (int64_t)s.frsize,
	};
	return 0;
}

static void gf_super_destroy(struct super *sb)
{
	struct gf_super *gs = GF_SB(sb);

	super_fini(sb);
	gofer_client_put(gs->client);
	mutex_fini(&gs->inodes_mu);
	free(gs);
}

static void gf_show_options(struct super *sb, struct seqbuf *out)
{
	(void)sb, (void)out;
}

const struct super_ops gf_super_ops = {
	.destroy = gf_super_destroy,
	.statfs = gf_statfs,
	.show_options = gf_show_options,
	.state = &state_super_gofer,
};

const struct fs_type gofer_fs_type = { .name = "9p", .nodev = true };

struct super *gofer_create_super(struct gofer_client *c, unsigned attach, unsigned long flags,
				 bool single_file)
{
	struct gofer_attr a;
	uint64_t node = gofer_root(c, attach, &a);

	if (single_file != !S_ISDIR(a.mode))
		return err_ptr(single_file ? -EISDIR : -ENOTDIR);
	struct gf_super *gs = kzalloc(sizeof(*gs));
	gs->readonly = gofer_attach_readonly(c, attach);
	if (gs->readonly)
		flags |= MS_RDONLY;
	super_init(&gs->sb, &gf_super_ops, &gofer_fs_type, GOFER_FS_MAGIC, flags);
	gs->client = gofer_client_get(c);
	gs->attach = attach;
	mutex_init(&gs->inodes_mu, RANK_GOFER_INODES);
	gs->sb.root = dentry_create_root(gf_iget(&gs->sb, node, &a, NULL));
	return &gs->sb;
}
