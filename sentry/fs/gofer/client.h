// SPDX-License-Identifier: Apache-2.0
/*
 * Client of a gofer: one call of this header is one round trip. All are synchronous and
 * may be used from any thread, service threads included, with any lock ranked below
 * RANK_GOFER held. When the gofer is gone, everything fails with -EIO.
 *
 * A node id returned by a call belongs to the caller, who gives it up with
 * gofer_forget().
 */
#ifndef SENTRY_FS_GOFER_CLIENT_H
#define SENTRY_FS_GOFER_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"
#include "gofer/wire.h"

struct gofer_client;

/* Says hello over @sock (taken over). err_ptr on failure. */
struct gofer_client *gofer_client_create(int sock);
struct gofer_client *gofer_client_get(struct gofer_client *c);
void gofer_client_put(struct gofer_client *c);

/*
 * Which of the sandbox's gofers it is: they are counted from 0 in the order of their creation. A saved state
 * names them by this number; whoever loads one gives its gofers the numbers that they stand for.
 */
void gofer_client_set_index(struct gofer_client *c, unsigned index);
/* Where the attach points of a saved state are among @c's: its n-th is @v[n] here. Taken over (heap). Before loading. */
void gofer_client_set_attaches(struct gofer_client *c, unsigned *v, unsigned n);
/* The number here of attach point @saved; UINT_MAX: there is none. */
unsigned gofer_loaded_attach(const struct gofer_client *c, unsigned saved);
/* A reference, or NULL. */
struct gofer_client *gofer_client_find(unsigned index);

unsigned gofer_nattach(const struct gofer_client *c);
bool gofer_attach_readonly(const struct gofer_client *c, unsigned attach);
/* Node and attributes (as of the hello) of the root of an attach point. Roots are never
 * forgotten. */
uint64_t gofer_root(const struct gofer_client *c, unsigned attach, struct gofer_attr *ret);

struct gofer_walked {
	uint64_t node;
	struct gofer_attr attr;
	char *target; /* of a symlink: heap; else NULL */
};

/*
 * Resolves @names one below the other, starting in @dir, as far as it goes: until one is
 * missing, isn't a directory, or is a symlink. *ret_n: how many were found; @out has room
 * for @n <= GOFER_WALK_MAX. 0, or the error that stopped it (-ENOENT) when fewer than @n
 * were found; nodes found are the caller's in either case.
 */
int gofer_walk(struct gofer_client *c, uint64_t dir, const char *const *names, unsigned n,
	       struct gofer_walked *out, unsigned *ret_n);
int gofer_walk1(struct gofer_client *c, uint64_t dir, const char *name, struct gofer_walked *out);

typedef void (*gofer_dirent_fn)(void *arg, const char *name, const struct gofer_attr *a);
/* Calls @fn for a batch of entries ("." and ".." are left out). *cookie is 0 at first and
 * moved on. 1: there may be more, 0: end, -errno. @fn must not call the gofer. */
int gofer_readdir(struct gofer_client *c, uint64_t dir, uint64_t *cookie, gofer_dirent_fn fn,
		  void *arg);

/* Descriptor (the caller's) of a regular file, or -errno. @flags: GOFER_O_*. @ret may be
 * NULL. */
int gofer_open(struct gofer_client *c, uint64_t node, unsigned flags, struct gofer_attr *ret);
/* New regular file: descriptor, open for reading and writing, or -errno. @name NULL:
 * O_TMPFILE. */
int gofer_create(struct gofer_client *c, uint64_t dir, const char *name, uint32_t mode, uid_t uid,
		 gid_t gid, uint64_t *ret_node, struct gofer_attr *ret);
int gofer_mkdir(struct gofer_client *c, uint64_t dir, const char *name, uint32_t mode, uid_t uid,
		gid_t gid, uint64_t *ret_node, struct gofer_attr *ret);
/* FIFOs, sockets, regular files; -EPERM for devices. */
int gofer_mknod(struct gofer_client *c, uint64_t dir, const char *name, uint32_t mode, uid_t uid,
		gid_t gid, uint64_t *ret_node, struct gofer_attr *ret);
int gofer_symlink(struct gofer_client *c, uint64_t dir, const char *name, const char *target,
		  uid_t uid, gid_t gid, uint64_t *ret_node, struct gofer_attr *ret);
char *gofer_readlink(struct gofer_client *c, uint64_t node); /* heap, or err_ptr */
int gofer_link(struct gofer_client *c, uint64_t node, uint64_t dir, const char *name,
	       struct gofer_attr *ret);
/* @victim: node of what is removed, so that it can be used further, or 0. */
int gofer_unlink(struct gofer_client *c, uint64_t dir, const char *name, bool rmdir_flag,
		 uint64_t victim);
int gofer_rename(struct gofer_client *c, uint64_t olddir, const char *oldname, uint64_t newdir,
		 const char *newname, unsigned flags, uint64_t moved, uint64_t victim);
int gofer_getattr(struct gofer_client *c, uint64_t node, struct gofer_attr *ret);
int gofer_setattr(struct gofer_client *c, uint64_t node, const struct gofer_setattr *s,
		  struct gofer_attr *ret);

/* As in struct inode_ops. */
ssize_t gofer_getxattr(struct gofer_client *c, uint64_t node, const char *name, void *buf,
		       size_t size);
int gofer_setxattr(struct gofer_client *c, uint64_t node, const char *name, const void *buf,
		   size_t size, int flags);
ssize_t gofer_listxattr(struct gofer_client *c, uint64_t node, char *buf, size_t size);
int gofer_removexattr(struct gofer_client *c, uint64_t node, const char *name);

int gofer_statfs(struct gofer_client *c, uint64_t node, struct gofer_statfs *ret);
int gofer_fsync(struct gofer_client *c, uint64_t node);
/* Gives a node up. Batched: sent along with one of the next calls. */
void gofer_forget(struct gofer_client *c, uint64_t node);
/* A memory file: descriptors read-write [0] and read-only [1]. */
int gofer_mkmem(struct gofer_client *c, int fds[2]);
/* The same on disk, where the gofer was given a directory for it; -EOPNOTSUPP. */
int gofer_mkdisk(struct gofer_client *c, int fds[2]);

#endif
