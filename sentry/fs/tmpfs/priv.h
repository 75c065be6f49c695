// SPDX-License-Identifier: Apache-2.0
/*
 * The in-memory file system behind tmpfs, memfds and the overlay root. An inode may have
 * a *lower*, a file of the image: what the guest hasn't changed comes from there.
 *
 * Lock order: inode.mu > lower_fs.mu (FS) > mm.mu > tm_file.mu (INODE_PAGES) > lower open
 * list > mfile
 *
 * Field key: (i) inode.mu   (p) tm_file.mu   (a) atomic   (c) const after creation
 */
#ifndef SENTRY_FS_TMPFS_PRIV_H
#define SENTRY_FS_TMPFS_PRIV_H

#include "base/size.h"

#include <bsd/sys/tree.h>
#include <uthash.h>

#include "sentry/fs/overlay/lower.h"
#include "sentry/mm/mfile.h"
#include "sentry/vfs/vfs.h"

#define TMPFS_MAGIC_G 0x01021994
#define OVERLAYFS_MAGIC_G 0x794c7630
#define TM_LOOKUPS_BEFORE_LISTING 8  /* single lookups in a lower directory before it is read whole */
#define TM_KEEP_SHARE 16             /* files leave one part in so many of the memory to processes ... */
#define TM_KEEP_MAX (64UL << 20)     /* ... but not more than this */
#define TM_XATTR_TOTAL_MAX (1u << 20) /* bytes of names and values of one inode: ENOSPC */
#define TM_PREALLOC_MAX 256          /* pages reserved ahead of a file that grows by appending */
#define TM_SHARED_MAX (4UL << 20)    /* a larger file gets an mfile of its own */
#define TM_OWN_SOFT_MAX 1024         /* mfiles of single files; above it they are given up on unmap */
#define TM_OWN_HARD_MAX 6144         /* two descriptors each: ENOMEM */
#define TM_CLUSTER 16                /* pages copied up around a write fault */
#define TM_FAULT_PAGES 512           /* pages allocated by a fault where a size limit counts them */

struct tm_super {
	struct super sb;
	_Atomic uint64_t max_pages, max_inodes; /* 0: no limit */
	_Atomic uint64_t used_pages, used_inodes;
	uint32_t root_mode;
	uid_t root_uid;
	gid_t root_gid;
	struct lower *lower;      /* root of the lower tree, or NULL; reference */
	bool on_disk;             /* (c) where the pages of its files are */
	unsigned marked_epoch;    /* of the save that has looked at the tree (tmpfs_state.c) */
};

/* A name. Neither inode nor lower: it is known that there is none. */
struct tm_entry {
	UT_hash_handle hh;
	RB_ENTRY(tm_entry) tree;  /* by seq; only positive ones */
	uint64_t seq;             /* cookie of getdents; 0: not in the tree */
	struct inode *inode;      /* reference */
	struct lower *lower;      /* reference; inode not made yet */
	bool charged;             /* to sentry/kernel/kmem.h */
	bool in_lower;            /* the image has this name: a whiteout when it is gone */
	char name[];
};
RB_HEAD(tm_entries, tm_entry);
RB_PROTOTYPE(tm_entries, tm_entry, tree, )

struct tm_dir {                   /* all (i) */
	struct tm_entry *hash;
	struct tm_entries tree;
	uint64_t next_seq;
	uint64_t count;           /* positive entries */
	struct inode *parent;     /* borrowed; NULL when removed */
	bool complete;            /* lower listing is merged: what isn't here doesn't exist */
	unsigned misses;
};

struct tm_extent {
	RB_ENTRY(tm_extent) tree;
	uint64_t page, npages;    /* of the file */
	struct mfile *mf;         /* reference; not the file's current one: frozen, see data.c */
	uint64_t off;             /* in the mfile */
	bool common;              /* other files' pages are in that mfile, too: stubs can't have it; or it
				   * can't be executed from */
};
RB_HEAD(tm_extents, tm_extent);
RB_PROTOTYPE(tm_extents, tm_extent, tree, )

struct tm_grave {                 /* ranges to be freed when no copy is in flight */
	struct tm_grave *next;
	struct mfile *mf;         /* reference */
	uint64_t off, len;
};

struct tm_file {
	struct tm_inode *ti;      /* (c) */
	struct mutex mu;          /* RANK_INODE_PAGES */
	struct tm_extents extents; /* (p) */
	struct mfile *own;        /* (p) its own mfile; NULL: data is in the shared one */
	uint64_t own_era;         /* (p) `own` is of this era; frozen since if that isn't today's */
	bool thaw_maps;           /* (p) frozen pages are not mapped, but copied: it was mapped writable */
	uint64_t npages;          /* (p) in extents */
	uint64_t lower_end;       /* (p) bytes below it that no extent covers are the lower's */
	bool ahead;               /* (p) pages beyond the end are a guess at what comes */
	uint64_t gen;             /* (p) bumped when pages move */
	unsigned inflight;        /* (p) copies that use page addresses without the lock */
	struct tm_grave *graves;  /* (p) */
	struct vm_object vmo;
	_Atomic unsigned uses;    /* vmas */
	unsigned writable_maps;   /* (p) */
	unsigned seals;           /* (p) F_SEAL_* */
};

struct tm_xattr {
	struct tm_xattr *next;
	char *name;
	void *value;
	size_t size;
};

struct tm_inode {
	struct inode i;
	struct tm_dir *dir;       /* (c) directories */
	struct tm_file *file;     /* (c) regular files */
	char *target;             /* (c) symlinks; NULL: the lower's */
	size_t heap;              /* (c) charged for it (sentry/kernel/kmem.h); the image's files are free */
	struct lower *lower;      /* (c) reference or NULL */
	struct mutex xattr_mu;    /* RANK_FS */
	struct tm_xattr *xattrs;  /* (xattr_mu) */
	bool xattrs_loaded;       /* (xattr_mu) the lower's are merged in */
	struct tm_inode *drain;   /* list of directories being freed */
	unsigned skip_epoch;      /* of the save that may leave it out (tmpfs_state.c) */
};

static inline struct tm_inode *TM(struct inode *i)
{
	return container_of(i, struct tm_inode, i);
}

static inline struct tm_super *TM_SB(struct super *sb)
{
	return container_of(sb, struct tm_super, sb);
}

/* super.c */
struct super *tm_super_create(const struct fs_type *type, uint64_t magic, unsigned long flags,
			      const char *data, struct lower *lower);
/* May its files take @npages more of the sandbox's memory, or of the disk? */
bool tm_room(const struct tm_super *ts, uint64_t npages);
extern const struct super_ops tm_super_ops;
bool tm_charge_pages(struct tm_super *ts, uint64_t n);
void tm_uncharge_pages(struct tm_super *ts, uint64_t n);

/* inode.c */
extern const struct inode_ops tm_inode_ops;
/* An empty inode on no super, for loading; tm_inode_set_type() when its mode and lower are there. */
struct tm_inode *tm_inode_alloc(void);
void tm_inode_set_type(struct tm_inode *ti);
struct inode *tm_inode_create(struct super *sb, uint32_t mode, dev_t rdev, uid_t uid, gid_t gid);
struct inode *tm_inode_from_lower(struct super *sb, struct lower *l);
void tm_nlink_dec(struct inode *inode);

/* dir.c */
struct tm_dir *tm_dir_create(bool complete);
/* A fresh entry, which names nothing yet. / The entry of a name, negative or not; or NULL. */
struct tm_entry *tm_entry_new(struct tm_dir *d, const char *name);
struct tm_entry *tm_entry_find(struct tm_dir *d, const char *name);
/* Merges the whole listing of the lower in. */
int tm_dir_complete(struct tm_inode *ti);
void tm_dir_free_entries(struct tm_inode *ti, struct tm_inode **drain);
struct inode *tm_lookup(struct inode *dir, const char *name);
struct inode *tm_create(struct inode *dir, const char *name, uint32_t mode, uid_t uid, gid_t gid);
struct inode *tm_mkdir(struct inode *dir, const char *name, uint32_t mode, uid_t uid, gid_t gid);
struct inode *tm_mknod(struct inode *dir, const char *name, uint32_t mode, dev_t rdev, uid_t uid,
		       gid_t gid);
struct inode *tm_symlink(struct inode *dir, const char *name, const char *target, uid_t uid,
			 gid_t gid);
struct inode *tm_tmpfile(struct inode *dir, uint32_t mode, uid_t uid, gid_t gid);
int tm_link(struct inode *dir, const char *name, struct inode *inode);
int tm_unlink(struct inode *dir, const char *name, struct inode *inode);
int tm_rmdir(struct inode *dir, const char *name, struct inode *inode);
int tm_rename(struct inode *olddir, const char *oldname, struct inode *inode, struct inode *newdir,
	      const char *newname, struct inode *victim, unsigned flags);
extern const struct file_ops tm_dir_fops;

/* xattr.c */
ssize_t tm_getxattr(struct inode *inode, const char *name, void *buf, size_t size);
int tm_setxattr(struct inode *inode, const char *name, const void *buf, size_t size, int flags);
ssize_t tm_listxattr(struct inode *inode, char *buf, size_t size);
int tm_removexattr(struct inode *inode, const char *name);
void tm_xattrs_free(struct tm_inode *ti);
/* As the last one, charged; takes nothing over. */
void tm_xattr_add(struct tm_inode *ti, const char *name, const void *value, size_t size);

/* data.c */
struct tm_file *tm_file_create(struct tm_inode *ti);
void tm_file_destroy(struct tm_file *f);
int tm_populate_locked(struct tm_file *f, uint64_t page, uint64_t npages);
struct tm_extent *tm_extent_find_locked(struct tm_file *f, uint64_t page, uint64_t *ret_hole);
void tm_remove_locked(struct tm_file *f, uint64_t page, uint64_t npages);
int tm_zero_locked(struct tm_file *f, uint64_t off, uint64_t len);
/* Bytes that are left where the files of a layer on disk are. */
uint64_t tm_disk_left(void);
struct mfile *tm_mfile_locked(struct tm_file *f);
bool tm_frozen_locked(struct tm_file *f, const struct tm_extent *e);
bool tm_any_frozen_locked(struct tm_file *f);
int tm_thaw_locked(struct tm_file *f, uint64_t page, uint64_t npages);
void tm_extent_add_locked(struct tm_file *f, uint64_t page, uint64_t npages, struct mfile *mf,
			  uint64_t off);
int tm_own_locked(struct tm_file *f);
void tm_disown_locked(struct tm_file *f);
void tm_inflight_get_locked(struct tm_file *f);
void tm_inflight_put_locked(struct tm_file *f);
uint64_t tm_blocks(struct tm_file *f);

/* file.c */
extern const struct file_ops tm_file_fops;
int tm_truncate(struct inode *inode, uint64_t size);

/* tmpfs_state.c: another save begins. Context: the sandbox is frozen. */
void tm_save_begin(void);

/* object.c */
extern const struct vm_object_ops tm_object_ops;
/* Pages of the range come from somewhere else now. Context: tm_file.mu not held. */
void tm_moved(struct tm_file *f, uint64_t off, uint64_t len);

/* data_state.c: both directions; pages are counted against the super when loading. */
struct state;
void tm_data_state(struct state *s, struct tm_file *f);

/* The pages of a file, both directions (sentry/state/pages.h); the inode's attributes are there. */

/* memfd.c */
int tm_check_seals(struct tm_file *f, uint64_t old_size, uint64_t new_size, bool write);

#endif
