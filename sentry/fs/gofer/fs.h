// SPDX-License-Identifier: Apache-2.0
/*
 * What fs*.c share.
 *
 * Lock order: inode.mu > mm.mu > gf_inode.io_mu (LOWER) > gf_super.inodes_mu
 * (GOFER_INODES) > channel Field key: (I) inodes_mu   (o) io_mu   (c) const   (a) atomic
 */
#ifndef SENTRY_FS_GOFER_FS_H
#define SENTRY_FS_GOFER_FS_H

#include <uthash.h>

#include "sentry/fs/gofer/client.h"
#include "sentry/vfs/vfs.h"

struct mfile;

#define GOFER_FS_MAGIC 0x01021997        /* V9FS_MAGIC, as other sandboxes show such mounts */
#define GF_ATTR_WINDOW_NS 1000000        /* attributes this fresh aren't asked for again */

struct gf_super {
	struct super sb;
	struct gofer_client *client; /* (c) reference */
	unsigned attach;             /* (c) */
	bool readonly;               /* (c) the gofer refuses changes anyway */
	struct mutex inodes_mu;
	struct gf_inode *inodes;     /* (I) by identity; borrowed */
};

struct gf_id { /* a host file: the birth time tells a reused number from the old file */
	uint64_t dev, ino;
	int64_t btime_ns;
};

struct gf_inode {
	struct inode i;
	struct gf_id id;             /* (c) */
	bool hashed;                 /* (I) */
	bool orphan;                 /* (c) deleted, and restored (gofer_state.c): the gofer knows nothing of it */
	struct gf_loading *loading;  /* while a saved one is read (gofer_state.c) */
	UT_hash_handle hh;
	_Atomic uint64_t node;       /* replaced by that of the newest walk */
	_Atomic int64_t attr_ns;     /* when the attributes came; 0: ask again */
	char *target;                /* (c) of a symlink */
	struct mutex io_mu;          /* RANK_LOWER */
	struct mfile *ro, *rw;       /* (o) open host file; kept while users > 0 */
	unsigned users;              /* (o) open files and mappings */
	struct vm_object vmo;
};

static inline struct gf_inode *GF(struct inode *i)
{
	return container_of(i, struct gf_inode, i);
}

static inline struct gf_super *GF_SB(struct super *sb)
{
	return container_of(sb, struct gf_super, sb);
}

static inline struct gofer_client *gf_client(struct inode *i)
{
	return GF_SB(i->sb)->client;
}

/* fs.c */
extern const struct super_ops gf_super_ops;
extern const struct fs_type gofer_fs_type;
/* An empty inode on no super, for loading. */
struct gf_inode *gf_inode_alloc(void);
/* ->fops and mapping by its mode. */
void gf_inode_set_type(struct gf_inode *gi);
/* Into the table of its super, by id. False: it is there. */
bool gf_inode_hash(struct gf_inode *gi);
struct inode *gf_iget(struct super *sb, uint64_t node, const struct gofer_attr *a, char *target);
void gf_update(struct inode *inode, const struct gofer_attr *a);
int gf_getattr(struct inode *inode);

/* fs_file.c */
extern const struct file_ops gf_file_fops;
extern const struct vm_object_ops gf_object_ops;
int gf_open(struct inode *inode, struct file *f);
/* The open host file, opened if need be: reference or err_ptr. */
struct mfile *gf_mfile(struct gf_inode *gi, bool write);
/* A descriptor that came with the creation: kept for the open that follows. */
void gf_keep_fd(struct gf_inode *gi, int fd);
/* The last name of an open regular file may be about to go, after which nobody can open it again: opens what
 * later mappings will need. */
void gf_before_unlink(struct inode *inode);
/* One more open file or mapping. */
void gf_users_get(struct gf_inode *gi);
int gf_truncate(struct inode *inode, uint64_t size);

/* fs_dir.c */
struct gf_dirent {
	char *name;
	uint64_t ino;
	uint32_t mode;
};

struct gf_listing { /* f->priv; guarded by file.pos_mu, which the VFS holds around iterate */
	size_t n, size;
	struct gf_dirent *v;
};

/* Takes @name over. */
void gf_listing_add(struct gf_listing *l, char *name, uint64_t ino, uint32_t mode);
extern const struct inode_ops gf_inode_ops;
extern const struct file_ops gf_dir_fops;

#endif
