// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of sentry/vfs/ share and nobody else sees: the layout of dentries and mounts, the
 * path walk, and the tree lock.
 *
 * dcache_mu (RANK_DENTRY) is the one lock of names: hash, children, parent and name of each dentry,
 * and the links between mounts. Changes to mounts hold mount_mu (RANK_MNTNS) as well. So a path walk
 * holds dcache_mu, and nothing else, from its start to its end as long as all it needs is cached.
 *
 * The cache owns one reference on each hashed dentry. It is dropped only after the dentry was
 * unhashed under dcache_mu, so whoever holds dcache_mu may use hashed dentries, their parents and
 * inodes without taking references. The same goes for mounts that are in a namespace.
 *
 * Field key: (d) dcache_mu   (M) mount_mu and dcache_mu to write, either to read   (c) const
 */
#ifndef SENTRY_VFS_VFS_PRIV_H
#define SENTRY_VFS_VFS_PRIV_H

#include "sentry/kernel/cred.h"
#include "sentry/vfs/vfs.h"

#define DCACHE_MAX 131072 /* cached names; unused ones beyond it are evicted */
#define MOUNTS_MAX 32768  /* mounts of one namespace (fs.mount-max): ENOSPC */

struct dentry {
	struct ref ref;
	struct inode *_Atomic inode; /* reference; set once, stays until the dentry is freed */
	struct dentry *parent;       /* (d) reference; NULL: root or anonymous */
	char *name;                  /* (d) heap */
	uint32_t namelen, hash;      /* (d) */
	bool hashed;                 /* (d) */
	bool deleted;                /* (d) unlinked: nothing may be created below */
	bool nolink;               /* O_TMPFILE|O_EXCL: never gets a name */
	bool is_root;                /* (c) */
	bool referenced;             /* (d) second chance of the eviction clock */
	_Atomic int mounts;          /* mounts on it, in any namespace */
	struct dentry *hnext, **hpprev; /* (d) */
	struct list children;        /* (d) hashed ones */
	struct list sibling;         /* (d) */
	struct list lru;             /* (d) hashed ones */
};

struct qname { /* a component of a path, not terminated */
	const char *s;
	uint32_t len, hash;
};

extern struct mutex dcache_mu;
extern struct mutex mount_mu;

struct qname qname_make(const char *s, size_t len);
/* Borrowed, or NULL when it isn't cached. Context: dcache_mu. */
struct dentry *d_find_locked(struct dentry *dir, const struct qname *q);
/* Through the cache or ->lookup: a reference, perhaps negative. Context: inode.mu of @dir. */
struct dentry *d_lookup_locked(struct dentry *dir, const struct qname *q);
/* A negative dentry got its inode (reference taken over). Context: inode.mu of the parent. */
void d_instantiate(struct dentry *d, struct inode *inode);
void d_drop(struct dentry *d);   /* forget the name */
void d_delete(struct dentry *d); /* it was unlinked */
/* rename(2). Context: inode.mu of both parents. */
void d_move(struct dentry *d, struct dentry *newdir, const struct qname *q);
void d_exchange(struct dentry *a, struct dentry *b);
/* Is @a @d itself or above it? Context: super.rename_mu, or a stable tree otherwise. */
bool d_is_ancestor(struct dentry *a, struct dentry *d);
/* An unhashed child, for O_TMPFILE; takes over the inode reference. */
struct dentry *d_alloc_unhashed(struct dentry *dir, const char *name, struct inode *inode);
bool d_unlinked(const struct dentry *d);
/* Loading: hashes @d, whose fields are set. False: there is one of that name. */
bool d_restore(struct dentry *d);
/* Any name of @inode that is cached: a reference, or NULL. Looks through the whole cache. */
struct dentry *d_find_alias(struct inode *inode);
void dcache_init(void);

/* ---- mounts ---- */

enum mnt_propagation { MNT_PRIVATE, MNT_SHARED, MNT_SLAVE, MNT_UNBINDABLE };

#define MNT_FLAGS_LOCKABLE (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)

struct mount {
	struct ref ref;
	struct super *sb;          /* (c) reference, counted in sb->active */
	struct dentry *root;       /* (c) reference */
	struct mount *parent;      /* (M) reference; NULL: root of a namespace, or detached */
	struct dentry *mountpoint; /* (M) reference; NULL with parent */
	struct mntns *ns;          /* (M) borrowed; NULL: detached */
	struct list hash_node;     /* (M) */
	struct list children;      /* (M) of child_node */
	struct list child_node;    /* (M) */
	struct list ns_node;       /* (M) order of mounting */
	int id;                    /* (c) */
	_Atomic unsigned long flags; /* MS_* of this mount */
	unsigned long locked_flags;  /* (M) of a more privileged owner: can't be cleared */
	bool locked;                 /* (M) can't be unmounted by itself */
	enum mnt_propagation prop;   /* (M) */
	int peer_group;              /* (M) number shown in mountinfo, 0: none */
	struct mount *copy;          /* (M) scratch while a tree is copied */
	struct mount *dead_parent;   /* (M) references to drop after a detach */
	struct dentry *dead_mountpoint;
};

struct mntns {
	struct ref ref;
	struct mount *root;    /* (M) reference */
	struct list mounts;    /* (M) of ns_node; one reference each */
	struct list all_node;  /* (M) of all namespaces (mount_propagate.c) */
	unsigned nmounts;      /* (M) */
	struct userns *userns; /* (c) reference */
	uint64_t inum;         /* (c) */
	struct waitq wq;       /* changes: /proc/mounts */
};

struct mount *mount_get(struct mount *m);
void mount_put(struct mount *m);
/* What is mounted on (@mnt, @d), borrowed. Context: dcache_mu. */
struct mount *mount_find_locked(struct mount *mnt, struct dentry *d);
/* Down through everything mounted there. Context: dcache_mu. */
void mount_follow_down_locked(struct path *p);
void mount_init(void);
/* mount.c, for mount_syscalls.c; mount_mu held. */
struct mount *mount_create(struct super *sb, struct dentry *root, unsigned long flags);
struct mount *mount_clone_one(struct mount *m, struct dentry *root);
struct mount *mount_clone_tree(struct mount *m, struct dentry *root, bool skip_unbindable);
int mount_attach(struct mount *m, const struct path *at);
/* The same with no checks and no propagation. */
void mount_attach_tree(struct mount *m, struct mntns *ns, struct mount *parent,
		       struct dentry *mountpoint);
/* mount_propagate.c; mount_mu held. Namespaces, while they have mounts. */
void mount_ns_register(struct mntns *ns);
void mount_ns_forget(struct mntns *ns);
/* Into a peer group of its own, unless it is in one. */
void mount_set_shared(struct mount *m);
/* A number that a restored mount has. */
void mount_group_seen(int group);
/* @tree is about to be attached to (@parent, @d); @m is about to be unmounted: what peers get of it. */
void mount_propagate(struct mount *tree, struct mount *parent, struct dentry *d);
void mount_propagate_umount(struct mount *m, struct list *dead);
/* Takes @m and all below out of the namespace; the tree's references go to @dead. */
void mount_detach_tree(struct mount *m, struct list *dead);
void mounts_put_list(struct list *dead);
/* MS_MOVE, pivot_root: @parent NULL makes it the namespace's root. References to the old place are
 * dropped by mount_relocated_put(), without locks. */
void mount_relocate(struct mount *m, struct mount *parent, struct dentry *mountpoint);
void mount_relocated_put(struct mount *m);
bool mount_has_children(const struct mount *m);
/* Loading: ties @m, whose fields are set, to the place that they name. */
void mount_restore(struct mount *m);
struct mount *mount_next_in_tree(struct mount *m, struct mount *top);

/* ---- path walk ---- */

enum last_type { LAST_NORM, LAST_DOT, LAST_DOTDOT, LAST_ROOT };

struct nd_saved {
	char *heap; /* a link's target that is being walked */
	const char *rest; /* what follows after it */
};

struct nameidata {
	struct task *t;
	const struct cred *cred;
	unsigned flags;          /* LOOKUP_* */
	struct path root;        /* references */
	struct path held;        /* references: start, then what the position was at the last unlazy */
	struct path path;        /* position; own references only in ->held */
	struct dentry *found;    /* reference: result of a lookup that left the cache */
	bool locked;             /* dcache_mu is ours: position needs no reference */
	const char *name;        /* what is left to walk */
	struct qname last;
	enum last_type last_type;
	bool trailing;           /* slash behind the last component */
	unsigned links, depth;
	char *heap;              /* storage behind ->name when it came from a link */
	struct nd_saved stack[SYMLINK_DEPTH_MAX + 1];
};

/* 0 or -errno; nd_end() after each nd_begin that returned 0. */
int nd_begin(struct nameidata *nd, struct task *t, const struct cred *c, int dirfd,
	     const char *name, unsigned flags);
int nd_begin_at(struct nameidata *nd, struct task *t, const struct cred *c, const struct path *root,
		const struct path *start, const char *name, unsigned flags);
void nd_end(struct nameidata *nd);
/* Walks to the directory of the last component. */
int nd_parent(struct nameidata *nd);
/* Steps onto the symlink @d (last component, parent is the position): a link's target is now to be
 * walked (nd_parent again), or, *jumped, the position is where a magic link led. */
int nd_follow(struct nameidata *nd, struct dentry *d, bool trailing, bool *jumped);
/* References on the position, dcache_mu released. */
void nd_unlazy(struct nameidata *nd);
/* @q in the directory at the position; borrowed until the position moves. Locked before and after. */
int nd_find(struct nameidata *nd, const struct qname *q, struct dentry **ret);
/* Walks to the end: *ret holds references, also when it is negative (LOOKUP_CREATE). */
int nd_lookup(struct nameidata *nd, struct path *ret);
void nd_lock(struct nameidata *nd);
/* Credentials of access(2): real ids; a reference. */
struct cred *cred_for_access(struct task *t);
/* @unreachable: not below @root. */
char *path_string(const struct path *p, const struct path *root, bool *unreachable);

/* A walk to the parent for create, unlink and rename: nd stays open. */
int nd_begin_parent(struct nameidata *nd, struct task *t, int dirfd, const char *name);
void qname_copy(const struct qname *q, char buf[NAME_MAX_G + 1]);

/* ---- permission.c, attr.c, open.c ---- */

/* inode_permission() plus the mount's and super's read-only state (EROFS). */
int path_permission(const struct path *p, const struct cred *c, int mask);
int may_create(const struct path *dir, const struct cred *c);
/* Sticky rule, mount points, types. @isdir: rmdir. */
int may_delete(const struct path *dir, struct dentry *victim, const struct cred *c, bool isdir);
/* Owner, gid and mode of something new in @dir: umask and setgid rule. */
void inode_new_owner(const struct inode *dir, const struct cred *c, uint32_t *mode, uid_t *uid,
		     gid_t *gid);
/* The mode of a new file in @dir: without setgid where its creator couldn't give it for the directory's
 * group. That is decided before the umask, which might hide the group's x (CVE-2021-4037). */
uint32_t mode_prepare(const struct inode *dir, const struct cred *c, uint32_t mode, uint32_t umask);
void touch_atime(const struct path *p, struct inode *inode);
/* Setattr without checks, with notification. */
int inode_apply_attr(const struct path *p, struct inode *inode, const struct iattr *attr);
int file_remove_privs(struct task *t, struct file *f);
struct file *file_alloc(unsigned flags, const struct cred *c);
bool path_is_ro(const struct path *p);
/* The inode that all anonymous files share: a reference. */
struct inode *anon_inode_get(void);

/* ---- fdtable.c ---- */

/* A number for a file that is still to be opened, so that EMFILE comes before any effect. */
int fd_reserve(struct task *t, unsigned flags);
void fd_commit(struct task *t, int fd, struct file *f);
void fd_unreserve(struct task *t, int fd);
/* True when only the calling thread can look up descriptors of its table. */
bool files_private(struct task *t);

#endif
