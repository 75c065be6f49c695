// SPDX-License-Identifier: Apache-2.0
/*
 * Building blocks of file systems whose content is made when it is read: proc, sysfs, cgroup. A tree is
 * described by tables of struct pfs_node; an inode is made from a node when it is looked up.
 *
 *   static const struct pfs_node nodes[] = {
 *           { .name = "version", .mode = S_IFREG | 0444, .show = show_version },
 *           { .name = "sys", .mode = S_IFDIR | 0555, .children = sys_nodes },
 *           { .name = NULL },
 *   };
 *
 * A directory has fixed children (a table), computed ones (->lookup and ->iterate), or both. An inode
 * may stand for an object (a process): ctx, inherited by what is below it.
 */
#ifndef SENTRY_FS_PSEUDO_PSEUDOFS_H
#define SENTRY_FS_PSEUDO_PSEUDOFS_H

#include <stdbool.h>
#include <stdint.h>

#include "sentry/vfs/vfs.h"

struct pfs_inode;
struct state;
struct state_type;
struct task;

struct pfs_node {
	const char *name; /* NULL ends a table */
	uint32_t mode;    /* with the type */
	const struct pfs_node *children;
	const void *data; /* for ->show and so on */

	/* Regular files: text on reading; a whole write at once (@buf is NUL-terminated, @len without it).
	 * 0 or -errno; bytes taken or -errno. */
	int (*show)(struct pfs_inode *pi, struct seqbuf *out);
	ssize_t (*store)(struct task *t, struct pfs_inode *pi, char *buf, size_t len);
	/* Or operations of its own; ->open is a check, or sets f->priv. */
	const struct file_ops *fops;
	int (*open)(struct pfs_inode *pi, struct file *f);

	/* Symbolic links. */
	char *(*readlink)(struct pfs_inode *pi);
	int (*follow)(struct pfs_inode *pi, struct task *t, struct path *ret);

	/* Computed entries of a directory. lookup: reference, NULL, err_ptr; made with pfs_inode_create().
	 * iterate: emits entries with key >= @key through pfs_emit() until that returns false. */
	struct inode *(*lookup)(struct pfs_inode *dir, const char *name);
	int (*iterate)(struct pfs_inode *dir, struct dir_ctx *ctx, int64_t key);
	/* Is a computed entry still what its name says? NULL: as ctx_ops->valid says. */
	bool (*valid)(struct pfs_inode *pi);
	/* Replaces the mode bits: 0 or -errno, or PFS_PERM_MODE: go by the mode. */
	int (*permission)(struct pfs_inode *pi, const struct cred *c, int mask);
};
#define PFS_PERM_MODE 1

struct pfs_ctx_ops {
	void (*get)(void *ctx);
	void (*put)(void *ctx);
	bool (*valid)(struct pfs_inode *pi);   /* may be NULL */
	void (*refresh)(struct pfs_inode *pi); /* owner and mode up to date; may be NULL */
};

struct pfs_inode {
	struct inode inode;
	const struct pfs_node *node;
	const struct pfs_ctx_ops *ctx_ops; /* NULL: no object */
	void *ctx;                         /* reference */
	int64_t num;                       /* which of a row: descriptor, CPU */
};

static inline struct pfs_inode *pfs_of(struct inode *inode)
{
	return container_of(inode, struct pfs_inode, inode);
}

/* An inode of @node below @dir. It inherits dir's ctx unless @ops is given (whose get is called). */
struct inode *pfs_inode_create(struct pfs_inode *dir, const struct pfs_node *node, const char *name,
			       const struct pfs_ctx_ops *ops, void *ctx, int64_t num);
/* Emits one computed entry; @key decides the order and where a later call goes on. */
bool pfs_emit(struct pfs_inode *dir, struct dir_ctx *ctx, const char *name, unsigned type,
	      int64_t key);
/* Fills in the root of @sb, already super_init()ed. */
void pfs_set_root(struct super *sb, const struct pfs_node *root, uint64_t root_ino);
int pfs_statfs(struct super *sb, struct statfs_g *ret);
/* Frees a super that is nothing but a struct super. */
void pfs_super_destroy(struct super *sb);

/* The operations of show/store files, for tables of one's own that differ in one of them. */
ssize_t pfs_file_read(struct task *t, struct file *f, struct iter *it, int64_t *pos);
ssize_t pfs_file_write(struct task *t, struct file *f, struct iter *it, int64_t *pos);
int64_t pfs_file_llseek(struct file *f, int64_t off, int whence);
void pfs_file_release(struct file *f);
struct pfs_file *pfs_file_create(void); /* f->priv of those */
/* The text state alone, for a file that embeds it in a state of its own. */
void pfs_text_free(struct pfs_file *pf);
ssize_t pfs_text_read(struct pfs_inode *pi, struct pfs_file *pf, struct iter *it, int64_t *pos);
extern const struct file_ops pfs_file_fops;

/* f->priv of a show/store file, both directions of sentry/state. Also for one that embeds it. */
void pfs_text_fields(struct state *s, struct pfs_file **pf);

/*
 * A table from whose nodes inodes are made, by a name for images: a node is saved as the names that lead to it.
 * Whoever makes inodes of a node that isn't a child of another registers it. Once, at start.
 */
struct pfs_root {
	const char *name;
	const struct pfs_node *node;
	const struct state_type *super;   /* of the file system that it belongs to */
	const struct pfs_ctx_ops *ctx_ops; /* of its inodes; NULL: none */
	const struct state_type *ctx;     /* type of their ctx */
};
void pfs_register(const struct pfs_root *root);
/* Ops of an inode of @n. */
const struct inode_ops *pfs_iops_of(const struct pfs_node *n);
extern const struct super_ops pfs_super_ops; /* of supers that are nothing but a struct super */
extern const struct file_ops pfs_dir_fops;

/* A decimal number in @buf, white space around it allowed. 0, -EINVAL. */
int pfs_parse(const char *buf, int64_t min, int64_t max, int64_t *ret);

#endif
