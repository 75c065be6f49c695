// SPDX-License-Identifier: Apache-2.0
/*
 * The virtual file system's objects, in Linux's vocabulary:
 *
 *   super    a mounted file system instance
 *   inode    a file of it: attributes and operations
 *   dentry   a name of an inode in its parent's directory, cached; negative when inode is NULL
 *   mount    a super's (sub)tree at a place in a mount namespace
 *   path     (mount, dentry): where a lookup ended
 *   file     an open file description
 *
 * Attributes: the common ones live in struct inode and are kept current by the file system; a remote file
 * system (bind mounts through the gofer) refreshes them in ->getattr.
 *
 * Lock order: super.rename_mu > mntns.mu > file.pos_mu > inode.mu (parent before child; two
 * directories: ancestor first, else lower address first; rename: both parents, then the victims) >
 * dcache lock. See base/lock_rank.h. inode.mu may be held while file systems talk to the gofer. The
 * VFS core takes inode.mu of the parent around create/link/unlink/mkdir/rmdir/rename/lookup, and of the
 * inode around setattr/xattr changes; file ops take their own.
 */
#ifndef SENTRY_VFS_VFS_H
#define SENTRY_VFS_VFS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/gaddr.h"
#include "base/list.h"
#include "base/mutex.h"
#include "base/ref.h"
#include "sentry/kernel/waitq.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/usermem.h"

struct task;
struct cred;
struct files;
struct fsctx;
struct path;
struct super;
struct inode;
struct dentry;
struct mount;
struct mntns;
struct file;
struct pipe;
struct seqbuf;
struct notify_marks;
struct file_lock_ctx;
struct userns;
struct state_type;
struct file_state;

#define NAME_MAX_G 255
#define PATH_MAX_G 4096
#define SYMLINK_DEPTH_MAX 40

/* ---------------------------------------------------------------- super */

struct statfs_g { /* guest's struct statfs, 120 bytes */
	int64_t f_type, f_bsize;
	uint64_t f_blocks, f_bfree, f_bavail, f_files, f_ffree;
	int32_t f_fsid[2];
	int64_t f_namelen, f_frsize, f_flags, f_spare[4];
};

struct super_ops {
	void (*destroy)(struct super *sb); /* last reference gone: free sb itself, too */
	int (*statfs)(struct super *sb, struct statfs_g *ret);
	int (*sync)(struct super *sb); /* may be NULL */
	/* mount(2) MS_REMOUNT data; may be NULL */
	int (*remount)(struct super *sb, unsigned long flags, const char *data);
	void (*show_options)(struct super *sb, struct seqbuf *out);
	const struct state_type *state; /* how it is saved (vfs_state.h); NULL: can't be */
};

struct super {
	struct ref ref;
	const struct super_ops *ops;
	const struct fs_type *type;
	dev_t dev;                 /* st_dev */
	unsigned long flags;       /* SB: MS_RDONLY ... */
	struct mutex rename_mu;    /* RANK_VFS_RENAME */
	struct dentry *root;       /* reference */
	_Atomic int active;        /* mounts of it; kept by mount.c */
	bool keep;                 /* root survives the last umount: supers that are handed out again */
	uint64_t magic;            /* f_type */
	const char *source;        /* shown in mountinfo; heap */
	const char *shown_root;    /* where its root is on the host, for mountinfo; heap, or NULL */
	void *priv;
};

/* A file system that mount(2) knows by name. */
struct fs_type {
	const char *name;
	bool nodev;     /* as in /proc/filesystems */
	bool userns_ok; /* mountable with CAP_SYS_ADMIN of a non-initial user namespace */
	/* A new (or shared) super, err_ptr on failure. @t may be NULL at start-up. @data: options. */
	struct super *(*mount)(struct task *t, const char *source, unsigned long flags,
			       const char *data);
	struct list node;
};
void fs_register(struct fs_type *type);
struct fs_type *fs_find(const char *name);
void fs_show_filesystems(struct seqbuf *out);

struct super *super_get(struct super *sb);
void super_put(struct super *sb);
/* Base initialisation: ref 1, a fresh anonymous st_dev. */
void super_init(struct super *sb, const struct super_ops *ops, const struct fs_type *type,
		uint64_t magic, unsigned long flags);
void super_fini(struct super *sb);
void super_activate(struct super *sb);   /* mount.c: one more mount */
void super_deactivate(struct super *sb); /* one less; the last one drops the root unless ->keep */

/* Before any other call of the VFS, once. */
void vfs_init(void);
/* Super of the inode behind all anonymous files. */
extern struct super *anon_super, *pipefs_super, *sockfs_super;

/* ---------------------------------------------------------------- inode */

#define ATTR_MODE 0x01
#define ATTR_UID 0x02
#define ATTR_GID 0x04
#define ATTR_SIZE 0x08
#define ATTR_ATIME 0x10 /* to the given time */
#define ATTR_MTIME 0x20
#define ATTR_KILL_PRIV 0x40 /* also drop setuid/setgid and security.capability */
#define ATTR_OPEN 0x80 /* size: truncation by O_TRUNC */

struct iattr {
	unsigned valid;
	uint32_t mode;
	uid_t uid;
	gid_t gid;
	uint64_t size;
	int64_t atime_ns, mtime_ns;
};

struct inode_ops {
	/* The last reference is gone: free the inode (embedded in the file system's own struct). */
	void (*destroy)(struct inode *inode);

	/* Directories. @dir->mu is held. Names are checked (length, no '/', not "." or ".."). */

	/* Inode named @name: reference; NULL if there is none (negative); err_ptr. */
	struct inode *(*lookup)(struct inode *dir, const char *name);
	/* New inodes: reference returned. @c owns it (fsuid/fsgid; setgid directories handled by the VFS
	 * through @gid and @mode). */
	struct inode *(*create)(struct inode *dir, const char *name, uint32_t mode, uid_t uid,
				gid_t gid);
	struct inode *(*mkdir)(struct inode *dir, const char *name, uint32_t mode, uid_t uid,
			       gid_t gid);
	struct inode *(*mknod)(struct inode *dir, const char *name, uint32_t mode, dev_t rdev,
			       uid_t uid, gid_t gid);
	struct inode *(*symlink)(struct inode *dir, const char *name, const char *target, uid_t uid,
				 gid_t gid);
	int (*link)(struct inode *dir, const char *name, struct inode *inode);
	int (*unlink)(struct inode *dir, const char *name, struct inode *inode);
	int (*rmdir)(struct inode *dir, const char *name, struct inode *inode);
	/* @flags: RENAME_NOREPLACE (checked by the VFS), RENAME_EXCHANGE, RENAME_WHITEOUT. @victim may be
	 * NULL. */
	int (*rename)(struct inode *olddir, const char *oldname, struct inode *inode,
		      struct inode *newdir, const char *newname, struct inode *victim,
		      unsigned flags);
	/* O_TMPFILE: an inode without a name. */
	struct inode *(*tmpfile)(struct inode *dir, uint32_t mode, uid_t uid, gid_t gid);
	/* Cached name still right? NULL op: always. 0: drop it. Context: no locks. */
	int (*revalidate)(struct inode *dir, const char *name, struct inode *inode);

	/* All. */

	/* Heap string, or err_ptr. For symlinks. */
	char *(*readlink)(struct inode *inode);
	/* Magic links of /proc: jumps to a path instead. Fills *ret with references. May be NULL. */
	int (*follow)(struct inode *inode, struct task *t, struct path *ret);
	/* Brings struct inode's attributes up to date (remote file systems). May be NULL. */
	int (*getattr)(struct inode *inode);
	/* Applies @attr, permissions checked. NULL: generic_setattr (changes struct inode only). */
	int (*setattr)(struct inode *inode, const struct iattr *attr);
	/* Replaces the mode-bits check (proc, remote). May be NULL. @mask: MAY_*. */
	int (*permission)(struct inode *inode, const struct cred *c, int mask);
	/* Fills @f->ops, priv; @f->inode is set. NULL: inode->fops is used. */
	int (*open)(struct inode *inode, struct file *f);

	/* xattrs. Size or -errno: -ENODATA, -ERANGE (buffer too small; size 0 asks for the size),
	 * -EOPNOTSUPP. @flags: XATTR_CREATE/REPLACE. list: NUL-separated names. NULL: EOPNOTSUPP. */
	ssize_t (*getxattr)(struct inode *inode, const char *name, void *buf, size_t size);
	int (*setxattr)(struct inode *inode, const char *name, const void *buf, size_t size, int flags);
	ssize_t (*listxattr)(struct inode *inode, char *buf, size_t size);
	int (*removexattr)(struct inode *inode, const char *name);
	const struct state_type *state; /* how it is saved (vfs_state.h); NULL: can't be */
};

struct inode {
	struct ref ref;
	const struct inode_ops *ops;      /* (c) */
	const struct file_ops *fops;      /* (c) default for open */
	struct super *sb;                 /* (c) reference, NULL for anonymous ones */
	uint64_t ino;                     /* (c) */
	struct mutex mu;                  /* RANK_INODE */
	/* (mu) for writing; readers may look without: single words */
	uint32_t mode;
	uint32_t nlink;
	uid_t uid;
	gid_t gid;
	dev_t rdev;
	_Atomic uint64_t size;
	uint64_t blocks;                  /* 512-byte units */
	uint32_t blksize;
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
	uint64_t version;                 /* bumped on change; for caches */
	struct vm_object *vmobj;          /* for mmap; NULL: can't be mapped */
	struct notify_marks *_Atomic marks; /* inotify */
	struct file_lock_ctx *_Atomic locks;
	struct pipe *fifo;                /* FIFO's pipe while open (inode.mu) */
	void *sock;                       /* bound unix socket (socket/unix): RANK_SOCK_BIND */
	_Atomic int writecount;           /* >0 open for writing, <0 being executed (ETXTBSY) */
};

void inode_init(struct inode *inode, struct super *sb, const struct inode_ops *ops,
		const struct file_ops *fops, uint64_t ino, uint32_t mode, uid_t uid, gid_t gid);
void inode_fini(struct inode *inode);
struct inode *inode_get(struct inode *inode);
void inode_put(struct inode *inode);
/* A fresh number for file systems without their own. */
uint64_t inode_next_ino(void);
int generic_setattr(struct inode *inode, const struct iattr *attr);
/* Sets the times to now: any of ATTR_ATIME|ATTR_MTIME and always ctime. */
void inode_touch(struct inode *inode, unsigned which);

#define MAY_EXEC 1
#define MAY_WRITE 2
#define MAY_READ 4
/* Mode bits, ownership, CAP_DAC_*; not the mount's read-only state. 0 or -EACCES. */
int inode_permission(struct inode *inode, const struct cred *c, int mask);
/* Owner or CAP_FOWNER. */
bool inode_owner_or_capable(struct inode *inode, const struct cred *c);

/* ---------------------------------------------------------------- dentry, mount, path */

struct path {
	struct mount *mnt;
	struct dentry *dentry;
};

struct path *path_get(struct path *p); /* one more reference on both */
void path_put(struct path *p);         /* clears it; harmless on an empty one */
static inline bool path_equal(const struct path *a, const struct path *b)
{
	return a->mnt == b->mnt && a->dentry == b->dentry;
}

struct dentry *dentry_get(struct dentry *d);
void dentry_put(struct dentry *d);
struct inode *dentry_inode(const struct dentry *d); /* borrowed; NULL if negative */
/* Root dentry of a new super: takes over the inode reference. */
struct dentry *dentry_create_root(struct inode *inode);
/* A dentry outside any tree, for anonymous files ("anon_inode:[eventfd]", "pipe:[1]"). */
struct dentry *dentry_create_anon(struct inode *inode, const char *name);
struct dentry *dentry_parent(struct dentry *d); /* reference */
/* Child in the cache or through ->lookup: reference; may be negative. err_ptr. Takes dir inode.mu. */
struct dentry *dentry_lookup(struct dentry *dir, const char *name);
/* A file system learned that @name of @dir (or everything below @dir when NULL) changed behind our back. */
void dentry_invalidate(struct dentry *dir, const char *name);

/* Path as seen from @root: heap string; unreachable ones get "(unreachable)" and deleted ones " (deleted)"
 * as in Linux's d_path. */
char *path_to_string(const struct path *p, const struct path *root);
/* For anonymous files, too: what /proc/PID/fd/N links to. */
char *file_path_string(struct file *f, const struct path *root);

struct mntns *mntns_get(struct mntns *ns);
void mntns_put(struct mntns *ns);
/* A namespace whose root is @sb (reference kept by callee). */
struct mntns *mntns_create(struct super *sb, unsigned long mnt_flags, struct userns *userns);
struct mntns *mntns_clone(struct mntns *old, struct userns *userns, struct path *fix_root,
			  struct path *fix_cwd);
struct path mntns_root(struct mntns *ns); /* references */
uint64_t mntns_inum(struct mntns *ns);
void mntns_show_mountinfo(struct mntns *ns, const struct path *root, struct seqbuf *out);
void mntns_show_mounts(struct mntns *ns, const struct path *root, struct seqbuf *out);
struct waitq *mntns_waitq(struct mntns *ns); /* poll of /proc/mounts */
void mntns_sync(struct mntns *ns); /* sync(2): every super that is mounted there */
bool mount_is_readonly(const struct mount *mnt);
unsigned long mount_flags(const struct mount *mnt); /* MS_RDONLY, MS_NOSUID, MS_NOEXEC, MS_NODEV ... */
struct super *mount_super(const struct mount *mnt);
int mount_id(const struct mount *mnt);

/* Mounting at start-up, no permission checks. @at: where (a path in @ns), NULL for relative to nothing. */
int mntns_mount_super(struct mntns *ns, const struct path *at, struct super *sb,
		      const struct path *bind_root, unsigned long mnt_flags);

/* The same for flags and propagation (MS_SHARED ..., MS_REC) of the mount that @p is the root of. */
void mount_set_flags(const struct path *p, unsigned long set);
void mount_set_propagation(const struct path *p, unsigned long flags);

/* The system calls (permission checks included). */
long vfs_mount(struct task *t, const char *source, const char *target, const char *fstype,
	       unsigned long flags, const char *data);
long vfs_umount(struct task *t, const char *target, int flags);
long vfs_pivot_root(struct task *t, const char *new_root, const char *put_old);

/* ---------------------------------------------------------------- file */

struct dir_ctx {
	/* Takes one entry; false: buffer full, stop (the entry isn't consumed). */
	bool (*emit)(struct dir_ctx *ctx, const char *name, size_t len, uint64_t ino, unsigned type,
		     int64_t next_pos);
};

#define RWF_NOWAIT_G 0x8

struct file_ops {
	const char *name; /* for debug output and /proc/PID/fd ("eventfd") */
	void (*release)(struct file *f); /* last reference: free f->priv */
	/* A descriptor that refers to it was closed (posix locks, mqueue); may be NULL. */
	void (*flush)(struct file *f, struct files *owner);

	/*
	 * Read into / write from @it. @pos: position to use and advance; NULL for streams. Returns
	 * bytes moved, 0 at the end, or -errno; blocking ones obey f->flags & O_NONBLOCK and return
	 * -ERESTARTSYS when interrupted before the first byte. NULL: EINVAL.
	 */
	ssize_t (*read)(struct task *t, struct file *f, struct iter *it, int64_t *pos);
	ssize_t (*write)(struct task *t, struct file *f, struct iter *it, int64_t *pos);
	/* NULL: ESPIPE. generic_llseek for regular files. */
	int64_t (*llseek)(struct file *f, int64_t off, int whence);
	/* Directory entries from *@pos on, "." and ".." included. NULL: ENOTDIR. */
	int (*iterate)(struct file *f, struct dir_ctx *ctx, int64_t *pos);

	/* What is ready now (EPOLL*), and where changes are told. NULL: always readable and writable
	 * (and EPERM in epoll_ctl). */
	uint32_t (*poll)(struct file *f);
	struct waitq *(*waitq)(struct file *f);

	/* -ENOIOCTLCMD: not mine. */
	long (*ioctl)(struct task *t, struct file *f, unsigned cmd, uint64_t arg);
	/* NULL: f->inode->vmobj is mapped. Returns the object to map (borrowed) or err_ptr; may adjust
	 * *off. @prot and @flags checked against the open mode already. */
	struct vm_object *(*mmap)(struct task *t, struct file *f, int prot, int flags, uint64_t *off,
				  uint64_t len);
	int (*fsync)(struct file *f, bool datasync);
	int (*fallocate)(struct file *f, int mode, uint64_t off, uint64_t len);
	/* O_APPEND/O_NONBLOCK/O_ASYNC about to change; NULL: fine. */
	int (*set_flags)(struct file *f, unsigned flags);
	void (*show_fdinfo)(struct file *f, struct seqbuf *out);
	/* splice/sendfile without bouncing: moves up to @len bytes into / out of a pipe; NULL: through
	 * read and write with a buffer. */
	ssize_t (*splice_read)(struct task *t, struct file *f, int64_t *pos, struct pipe *to, size_t len);
	/* Host descriptor to read from / write to directly, or -1: pread on it is what ->read would do. */
	int (*host_fd)(struct file *f);
	const struct file_state *state; /* how it is saved (vfs_state.h); NULL: can't be */
};

#define FMODE_READ 1u
#define FMODE_WRITE 2u
#define FMODE_EXEC 4u
#define FMODE_PATH 8u    /* O_PATH: no I/O */
#define FMODE_STREAM 16u /* no position */
#define FMODE_CREATED 32u /* its open made the file (F_CREATED_QUERY) */

struct fown { /* F_SETOWN, F_SETSIG */
	struct pid *pid; /* reference or NULL */
	int type;        /* F_OWNER_* */
	int sig;
	int fd;          /* through which O_ASYNC was set: si_fd */
	uid_t uid, euid;
};

struct file {
	struct ref ref;
	const struct file_ops *ops;    /* (c) */
	struct path path;              /* (c) references; mnt may be NULL for anonymous files */
	struct inode *inode;           /* (c) reference */
	unsigned fmode;                /* (c) FMODE_* */
	_Atomic unsigned flags;        /* (a) O_* as F_GETFL shows them */
	struct mutex pos_mu;           /* RANK_FILE_POS */
	int64_t pos;                   /* (pos_mu) */
	struct cred *cred;             /* (c) opener's; reference */
	struct mutex own_mu;           /* RANK_TASK: fown */
	struct fown fown;
	struct mutex ep_mu;            /* RANK_WAITQ - epoll items watching us (epoll.c) */
	struct list ep_items;
	struct list fasync_node;       /* O_ASYNC */
	bool wrote;                    /* counts in inode->writecount */
	_Atomic bool privs_killed;     /* setuid bits and file capabilities were dropped by a write */
	void *priv;                    /* of the ops */
};

/* A file on @path (references are taken) with f->ops from the inode. The VFS's open path; also for
 * file systems that open by themselves. @flags as in open(2). */
struct file *file_open_path(struct task *t, const struct path *path, unsigned flags,
			    const struct cred *c);
/* An anonymous file: @name as in "anon_inode:[name]". @priv belongs to @ops->release. */
struct file *file_create_anon(const struct file_ops *ops, void *priv, unsigned flags,
			      const char *name);
/* A file on an inode of a pseudo file system without a path ("pipe:[ino]", "socket:[ino]"). Takes
 * over the inode reference. */
struct file *file_create_pseudo(struct inode *inode, const struct file_ops *ops, void *priv,
				unsigned flags, const char *name);
/* epoll.c: forgets @f, whose last reference is gone, in every interest list. */
void epoll_file_released(struct file *f) __weak;
struct file *file_get(struct file *f);
void file_put(struct file *f);
static inline void cleanup_file_put(struct file **f)
{
	if (*f && !is_err(*f))
		file_put(*f);
}
#define AUTO_FILE __attribute__((cleanup(cleanup_file_put)))

/* read(2) and so on at the level of files: access mode, position, limits (RLIMIT_FSIZE), notify, SIGPIPE
 * left to the caller. @pos NULL: the file's own position. */
ssize_t file_read(struct task *t, struct file *f, struct iter *it, int64_t *pos);
ssize_t file_write(struct task *t, struct file *f, struct iter *it, int64_t *pos);
int64_t file_llseek(struct file *f, int64_t off, int whence);
uint32_t file_poll(struct file *f);
struct waitq *file_waitq(struct file *f); /* NULL: never changes */
int64_t generic_llseek(struct file *f, int64_t off, int whence);
/* Reads from kernel buffers, for exec and the loader. Bytes or -errno. */
ssize_t file_kread(struct task *t, struct file *f, void *buf, size_t len, int64_t pos);
/* Signals @f's owner about readiness (O_ASYNC, F_SETSIG). Cheap when unused. Any lock below RANK_TASKS. */
void file_fasync(struct file *f, uint32_t events);
void file_sigio(struct file *f, int fd, int code);

/* ---------------------------------------------------------------- lookup (namei.c) */

#define LOOKUP_FOLLOW 0x01      /* follow a symlink in the last component */
#define LOOKUP_DIRECTORY 0x02   /* must be a directory (trailing slash) */
#define LOOKUP_EMPTY 0x04       /* AT_EMPTY_PATH: "" names dirfd itself */
#define LOOKUP_CREATE 0x08      /* last component may be missing: negative dentry returned */
#define LOOKUP_NO_XDEV 0x10     /* openat2 RESOLVE_* */
#define LOOKUP_NO_MAGICLINKS 0x20
#define LOOKUP_NO_SYMLINKS 0x40
#define LOOKUP_BENEATH 0x80
#define LOOKUP_IN_ROOT 0x100
#define LOOKUP_NO_AUTOMOUNT 0x200
#define LOOKUP_EXCL 0x400 /* with CREATE: final symlinks not followed */
#define LOOKUP_REAL_UID 0x800 /* access(2): check with real ids */

#define AT_FDCWD_G (-100)

/* Resolves @name relative to @dirfd of @t. *ret holds references. */
int path_lookup(struct task *t, int dirfd, const char *name, unsigned flags, struct path *ret);
/* From a start path with root @root, with credentials @c; for the loader, mounts, the runtime. */
int path_lookup_from(struct task *t, const struct cred *c, const struct path *root,
		     const struct path *start, const char *name, unsigned flags, struct path *ret);

struct open_how_g {
	uint64_t flags, mode, resolve;
};
/* openat2(2) without the descriptor. err_ptr. */
struct file *vfs_open(struct task *t, int dirfd, const char *name, const struct open_how_g *how);
/* For exec: checks MAY_EXEC, noexec, regular file, takes writecount (deny write). */
struct file *vfs_open_exec(struct task *t, int dirfd, const char *name, unsigned at_flags);

struct l_stat { /* guest's struct stat */
	uint64_t st_dev, st_ino, st_nlink;
	uint32_t st_mode, st_uid, st_gid, pad0;
	uint64_t st_rdev;
	int64_t st_size, st_blksize, st_blocks;
	int64_t atime_sec, atime_nsec, mtime_sec, mtime_nsec, ctime_sec, ctime_nsec;
	int64_t unused[3];
};
_Static_assert(sizeof(struct l_stat) == 144, "struct stat is 144 bytes");

struct kstat { /* attributes in kernel ids */
	uint64_t dev, ino, nlink, rdev, size, blocks;
	uint32_t mode, blksize;
	uid_t uid;
	gid_t gid;
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
	int mnt_id;
	bool mount_root;
};
int vfs_getattr(const struct path *p, struct kstat *ret);
int file_getattr(struct file *f, struct kstat *ret);

long vfs_mkdir(struct task *t, int dirfd, const char *name, uint32_t mode);
long vfs_mknod(struct task *t, int dirfd, const char *name, uint32_t mode, dev_t dev);
long vfs_symlink(struct task *t, const char *target, int dirfd, const char *name);
long vfs_link(struct task *t, int olddirfd, const char *oldname, int newdirfd, const char *newname,
	      int flags);
long vfs_unlink(struct task *t, int dirfd, const char *name);
long vfs_rmdir(struct task *t, int dirfd, const char *name);
long vfs_rename(struct task *t, int olddirfd, const char *oldname, int newdirfd,
		const char *newname, unsigned flags);
/* chmod, chown, truncate, utimes on a resolved path; all checks. @c NULL: t's. */
int vfs_setattr(struct task *t, const struct path *p, const struct iattr *attr);
int vfs_truncate_path(struct task *t, const struct path *p, uint64_t size);
int file_truncate(struct task *t, struct file *f, uint64_t size);
int vfs_utimes(struct task *t, const struct path *p, struct iattr *attr, bool now);
long vfs_access(struct task *t, int dirfd, const char *name, int mode, int flags);
int vfs_statfs(const struct path *p, struct inode *inode, struct statfs_g *ret);
long file_fallocate(struct task *t, struct file *f, int mode, int64_t off, int64_t len);
int file_fsync(struct file *f, bool datasync);
/* mkdir -p below @root, for mount points at start-up; *ret: references. */
int vfs_mkdir_p(const struct path *root, const char *name, uint32_t mode, struct path *ret);
/* xattrs by name, all checks. */
ssize_t vfs_getxattr(struct task *t, const struct path *p, const char *name, void *buf, size_t size);
int vfs_setxattr(struct task *t, const struct path *p, const char *name, const void *buf,
		 size_t size, int flags);
ssize_t vfs_listxattr(struct task *t, const struct path *p, char *buf, size_t size);
int vfs_removexattr(struct task *t, const struct path *p, const char *name);
/* Creates a node for a bound unix socket and returns its path. */
int vfs_mknod_path(struct task *t, int dirfd, const char *name, uint32_t mode, dev_t dev,
		   struct path *ret);

/* inotify (vfs/inotify.c): tell watchers of @inode and of its parent. IN_* bits. */
void notify_path(const struct path *p, uint32_t mask);
void notify_file(struct file *f, uint32_t mask);
void notify_dir(struct inode *dir, const char *name, uint32_t mask, uint32_t cookie, bool isdir);
void notify_inode_gone(struct inode *inode);

/* Locks (vfs/locks.c). Closing a descriptor drops posix locks of the owner; last close drops flocks. */
void locks_file_closed(struct file *f, struct files *owner);
void locks_file_released(struct file *f);

/* ---------------------------------------------------------------- per-task tables */

/* Descriptor table (vfs/fdtable.c). */
struct files *files_create(void);
struct files *files_dup(struct files *old, unsigned limit); /* fork: copy */
struct files *files_get(struct files *fs);
void files_put(struct files *fs); /* closes all on the last one */
/* Reference, or NULL (EBADF). O_PATH files only by fd_get_any(). */
struct file *fd_get(struct task *t, int fd);
struct file *fd_get_any(struct task *t, int fd);
struct file *files_lookup(struct files *fs, int fd);
/* Takes over @f's reference (also on failure). @flags: O_CLOEXEC. Lowest free >= @min. fd or -EMFILE. */
int fd_install(struct task *t, struct file *f, unsigned flags);
int fd_install_min(struct task *t, struct file *f, int min, unsigned flags);
/* At exactly @fd (start-up, dup2): closes what was there. Takes over the reference. */
int files_install_at(struct files *fs, int fd, struct file *f, unsigned flags);
int fd_close(struct task *t, int fd);
long fd_close_range(struct task *t, unsigned first, unsigned last, unsigned flags);
long fd_dup(struct task *t, int oldfd, int newfd, unsigned flags); /* dup3 */
int fd_get_cloexec(struct task *t, int fd);
int fd_set_cloexec(struct task *t, int fd, bool on);
void files_exec(struct task *t); /* unshares, closes close-on-exec ones */
int files_unshare(struct task *t);
/* Next used descriptor >= @fd, -1 at the end; for /proc. */
int files_next(struct files *fs, int fd);
unsigned files_count(struct files *fs);

/* cwd, root, umask (vfs/fsctx.c). */
struct fsctx *fsctx_create(const struct path *root, const struct path *cwd, uint32_t umask);
struct fsctx *fsctx_dup(struct fsctx *old);
struct fsctx *fsctx_get(struct fsctx *fs);
void fsctx_put(struct fsctx *fs);
struct path fsctx_root(struct fsctx *fs); /* references */
struct path fsctx_cwd(struct fsctx *fs);
uint32_t fsctx_umask(struct fsctx *fs);
uint32_t fsctx_set_umask(struct fsctx *fs, uint32_t umask);
void fsctx_set_root(struct fsctx *fs, const struct path *p);
void fsctx_set_cwd(struct fsctx *fs, const struct path *p);
void fsctx_move_root(struct fsctx *fs, const struct path *from, const struct path *to);

/* ---------------------------------------------------------------- seqbuf: text of /proc files */

struct seqbuf {
	char *buf;
	size_t len, size;
};
void seq_init(struct seqbuf *s);
void seq_fini(struct seqbuf *s);
void seq_printf(struct seqbuf *s, const char *fmt, ...) __printf(2, 3);
void seq_putc(struct seqbuf *s, char c);
void seq_write(struct seqbuf *s, const void *buf, size_t len);
/* Octal-escapes space, tab, newline and backslash, as mountinfo and maps do. */
void seq_escape(struct seqbuf *s, const char *str, const char *esc);

#endif
