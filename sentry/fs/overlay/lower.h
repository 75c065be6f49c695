// SPDX-License-Identifier: Apache-2.0
/*
 * The lower tree of an overlay: the image's files, read-only and immutable by contract,
 * reached through the gofer. What was learned of them (names, attributes, targets) stays
 * true for ever and is never asked again.
 *
 * A struct lower knows its parent and its name in the *image*, so it goes on working
 * wherever the guest renames the inode that refers to it. The gofer's node id is fetched
 * only when something needs one.
 */
#ifndef SENTRY_FS_OVERLAY_LOWER_H
#define SENTRY_FS_OVERLAY_LOWER_H

#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <uthash.h>

#include "base/list.h"
#include "base/mutex.h"
#include "base/ref.h"
#include "sentry/fs/gofer/client.h"

struct inode;
struct iter;
struct mfile;

#define LOWER_MAX_OPEN 4096 /* host descriptors kept for reading; RLIMIT_NOFILE is 20000 */

/* One lower tree. */
struct lower_fs {
	struct ref ref;
	struct gofer_client *client;
	unsigned attach;          /* (c) */
	struct mutex mu;          /* RANK_FS: links */
	struct lower *links;      /* (m) files with several names, by (dev, ino); references */
	bool closed;              /* (m) the root is gone: the table is empty and stays so */
};

struct lower_id {
	uint64_t dev, ino;
};

struct lower {
	struct ref ref;
	struct lower_fs *fs;      /* (c) reference */
	struct lower *parent;     /* (c) reference; NULL: root */
	char *name;               /* (c) */
	_Atomic uint64_t node;    /* gofer's id; 0: not asked for yet */
	struct gofer_attr attr;   /* (c) */
	uint64_t ino;             /* (c) number that the guest sees */
	char *_Atomic target;     /* of a symlink, once known */
	struct inode *inode;      /* (fs.mu) linked ones: the one inode of all names; reference */
	struct lower_id id;       /* key in fs.links */
	UT_hash_handle hh;
	struct mfile *mf;         /* (open_mu) open file; reference */
	struct list lru;          /* (open_mu) in the list of open ones */
	bool saved;               /* (c) attr is from a saved state: compared when it is looked up */
};

struct lower *lower_root(struct gofer_client *c, unsigned attach);
/* A tree without a root yet. */
struct lower_fs *lower_fs_create(struct gofer_client *c, unsigned attach);
/* The gofer's id, asked for if need be; 0 with *ret_err. -ESTALE: the file isn't the one that was saved. */
uint64_t lower_node(struct lower *l, int *ret_err);
/* Loading: notes a linked file under the identity that it has now. 0, or an error of the lookup. */
int lower_restore_link(struct lower *l);
struct lower *lower_get(struct lower *l);
void lower_put(struct lower *l);
static inline bool lower_is_linked(const struct lower *l)
{
	return l->attr.nlink > 1 && !S_ISDIR(l->attr.mode);
}

/* The root inode is gone: lets go of the files with several names, which nothing else
 * would. */
void lower_close_links(struct lower *root);

/* Child @name: reference; NULL if there is none; err_ptr. */
struct lower *lower_lookup(struct lower *dir, const char *name);
/* All children; @fn takes over the reference. 0 or -errno. */
int lower_readdir(struct lower *dir, void (*fn)(void *arg, const char *name, struct lower *l),
		  void *arg);
char *lower_readlink(struct lower *l); /* heap, or err_ptr */
ssize_t lower_getxattr(struct lower *l, const char *name, void *buf, size_t size);
ssize_t lower_listxattr(struct lower *l, char *buf, size_t size);

/* The open host file: reference, or err_ptr. Any lock ranked below RANK_LOWER may be
 * held. */
struct mfile *lower_open(struct lower *l);
/* Reads up to @len bytes from @pos into @it. Bytes, 0 at the end, -errno. */
ssize_t lower_read(struct lower *l, struct iter *it, size_t len, uint64_t pos);
/* The same into memory. The rest of the buffer is zeroed when the file is shorter. */
int lower_fill(struct lower *l, void *buf, size_t len, uint64_t pos);
/* pread and preadv on a host file into @it, through pinned guest memory. Also for bind
 * mounts. */
ssize_t host_read_iter(int fd, struct iter *it, size_t len, uint64_t pos);
ssize_t host_write_iter(int fd, struct iter *it, size_t len, uint64_t pos);

#endif
