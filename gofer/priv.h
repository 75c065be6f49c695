// SPDX-License-Identifier: Apache-2.0
/* What the files of the gofer share. Single-threaded: no locks. */
#ifndef GOFER_PRIV_H
#define GOFER_PRIV_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "gofer/gofer.h"
#include "gofer/wire.h"

#define GOFER_MAX_NODES (1u << 20)  /* that a sentry may hold */
#define GOFER_MAX_NODE_FDS 8192     /* kept open between requests */
#define GOFER_MAX_PINNED 4096       /* of deleted files: can't be opened again */
#define GOFER_MAX_DEPTH 4096        /* of a node below its root (bounds recursion) */

/*
 * A file that the sentry knows. Identified by (parent, name) and checked by (dev, ino)
 * each time it has to be opened again, so a name swapped by somebody on the host is
 * noticed: ESTALE.
 */
struct node {
	uint32_t gen;        /* of the slot, upper half of the id */
	uint32_t slot;
	bool used;
	bool held;           /* by the sentry */
	bool pinned;         /* deleted or nameless: fd stays open */
	unsigned nchildren;  /* nodes whose parent this is */
	unsigned depth;
	unsigned attach;
	struct node *parent; /* NULL: root of an attach point */
	char *name;
	int fd;              /* O_PATH, or -1: opened on demand */
	int file_ro, file_rw; /* single file roots */
	uint64_t dev, ino;
	uint32_t type;       /* S_IFMT bits */
	struct list lru;     /* in gofer.lru when fd >= 0 and it may be closed */
};

struct attach_state {
	bool readonly, xdev;
	uint64_t mnt_id;
	struct node *root;
};

struct gofer {
	int memdirfd, diskdirfd;
	unsigned nattach;
	struct attach_state *attach;
	struct node **slots;
	uint32_t nslots, free_hint;
	unsigned nnodes, nfds, npinned, max_fds;
	struct list lru;     /* oldest first */
	bool greeted;
	uint64_t mem_seq;    /* names of memory files */
};

/* One request being served. */
struct req {
	struct gofer *g;
	struct cursor *in;
	struct writer *out;
	int *fds;            /* descriptors of the reply */
	unsigned nfds;
};

/* node.c */
struct node *node_find(struct gofer *g, uint64_t id);
uint64_t node_id(const struct node *n);
int node_create(struct gofer *g, struct node *parent, const char *name, int fd,
		const struct gofer_attr *a, struct node **ret);
void node_forget(struct gofer *g, struct node *n);
int node_fd(struct gofer *g, struct node *n);
void node_trim(struct gofer *g);
int node_pin(struct gofer *g, struct node *n);
void node_moved(struct gofer *g, struct node *n, struct node *newdir, const char *name);
int node_open(struct gofer *g, struct node *n, int flags);
bool node_readonly(const struct gofer *g, const struct node *n);
int node_root_create(struct gofer *g, unsigned attach, const struct gofer_attach *conf);
void node_destroy_all(struct gofer *g);
int open_beneath(const struct gofer *g, unsigned attach, int dirfd, const char *name, int flags);
int stat_at(const struct gofer *g, unsigned attach, int dirfd, const char *name,
	    struct gofer_attr *ret);

/* Operations: read their body from r->in, write the reply's to r->out. 0 or -errno. */
int op_hello(struct req *r);
int op_walk(struct req *r);
int op_readdir(struct req *r);
int op_open(struct req *r);
int op_readlink(struct req *r);
int op_getattr(struct req *r);
int op_statfs(struct req *r);
int op_fsync(struct req *r);
int op_forget(struct req *r);
int op_mkmem(struct req *r);
int op_connect(struct req *r);
int op_create(struct req *r);
int op_tmpfile(struct req *r);
int op_mkdir(struct req *r);
int op_mknod(struct req *r);
int op_symlink(struct req *r);
int op_link(struct req *r);
int op_unlink(struct req *r);
int op_rename(struct req *r);
int op_setattr(struct req *r);
int op_getxattr(struct req *r);
int op_setxattr(struct req *r);
int op_listxattr(struct req *r);
int op_removexattr(struct req *r);

/* serve.c: pieces of the bodies */
struct node *pull_node(struct req *r, int *err);
int pull_dir_name(struct req *r, struct node **ret_dir, char name[GOFER_NAME_MAX + 1]);
void reply_fd(struct req *r, int fd);

#endif
