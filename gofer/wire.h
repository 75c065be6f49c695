// SPDX-License-Identifier: Apache-2.0
/*
 * The gofer protocol: what goes over the SOCK_SEQPACKET pair between a sentry and its
 * gofer. gofer/README.md describes each message. Everything is little endian, written and
 * read through base/cursor.h, never cast.
 *
 * Request: u32 id, u16 op, u16 zero, body.    Reply: u32 id, i32 error (0 or -errno),
 * body if 0. Descriptors ride on replies only; a gofer closes any that come with a
 * request.
 */
#ifndef GOFER_WIRE_H
#define GOFER_WIRE_H

#include <stdint.h>

#include "base/cursor.h"

#define GOFER_VERSION 1
#define GOFER_MSG_MAX 61440       /* bytes of a message; well below the default SO_SNDBUF */
#define GOFER_HDR_SIZE 8
#define GOFER_WALK_MAX 64         /* components of one walk */
#define GOFER_NAME_MAX 255
#define GOFER_PATH_MAX 4096       /* symlink targets, NUL included */
#define GOFER_XATTR_NAME_MAX 255
#define GOFER_XATTR_SIZE_MAX 49152
#define GOFER_MEM_MAX 16          /* pairs of one mkmem */
#define GOFER_FDS_MAX (2 * GOFER_MEM_MAX)
#define GOFER_ATTACH_MAX 512

enum gofer_op {
	GOFER_HELLO = 1, /* u32 version -> u32 version, u32 n, n * (u64 node, u8 readonly, attr) */
	GOFER_WALK,      /* node, u32 n, n * name -> u32 m, i32 stop, m * (node, attr, target) */
	GOFER_READDIR,   /* node, u64 cookie -> u8 eof, u32 n, n * (u64 next, name, attr) */
	GOFER_OPEN,      /* node, u32 flags -> attr, fd */
	GOFER_CREATE,    /* dir, name, mode, uid, gid -> node, attr, fd (read-write) */
	GOFER_TMPFILE,   /* dir, mode, uid, gid -> node, attr, fd (read-write) */
	GOFER_MKDIR,     /* dir, name, mode, uid, gid -> node, attr */
	GOFER_MKNOD,     /* dir, name, mode, uid, gid -> node, attr */
	GOFER_SYMLINK,   /* dir, name, target, uid, gid -> node, attr */
	GOFER_READLINK,  /* node -> target */
	GOFER_LINK,      /* node, dir, name -> attr */
	GOFER_UNLINK,    /* dir, name, u32 rmdir, node of the victim or 0 -> nothing */
	GOFER_RENAME,    /* dir, name, dir, name, u32 flags, node moved or 0, node replaced or 0 */
	GOFER_GETATTR,   /* node -> attr */
	GOFER_SETATTR,   /* node, valid, mode, uid, gid, size, atime, mtime -> attr */
	GOFER_GETXATTR,  /* node, name -> u32 size, bytes */
	GOFER_SETXATTR,  /* node, name, u32 flags, u32 size, bytes -> nothing */
	GOFER_LISTXATTR, /* node -> u32 size, NUL-terminated names */
	GOFER_REMOVEXATTR, /* node, name -> nothing */
	GOFER_STATFS,    /* node -> 8 * u64 */
	GOFER_FSYNC,     /* node -> nothing */
	GOFER_FORGET,    /* u32 n, n * node -> nothing */
	GOFER_MKMEM,     /* u32 n, u32 disk -> 2n descriptors: read-write, read-only, read-write ... */
	GOFER_CONNECT,   /* node, u32 type -> refused */
	GOFER_OP_COUNT
};

/* GOFER_OPEN flags */
#define GOFER_O_WRITE 1u
#define GOFER_O_TRUNC 2u

/* GOFER_SETATTR valid bits */
#define GOFER_SET_MODE 0x01u
#define GOFER_SET_UID 0x02u
#define GOFER_SET_GID 0x04u
#define GOFER_SET_SIZE 0x08u
#define GOFER_SET_ATIME 0x10u
#define GOFER_SET_MTIME 0x20u
#define GOFER_SET_ALL 0x3fu

#define GOFER_FORGET_MAX ((GOFER_MSG_MAX - GOFER_HDR_SIZE - 4) / 8)

/* Attributes of a file, as statx(2) has them. */
struct gofer_attr {
	uint64_t dev, ino, rdev, size, blocks;
	uint32_t mode, nlink, uid, gid, blksize;
	int64_t atime_ns, mtime_ns, ctime_ns, btime_ns;
};
#define GOFER_ATTR_SIZE 92

struct gofer_setattr {
	uint32_t valid, mode, uid, gid;
	uint64_t size;
	int64_t atime_ns, mtime_ns;
};

struct gofer_statfs {
	uint64_t bsize, blocks, bfree, bavail, files, ffree, namelen, frsize;
};

void gofer_push_attr(struct writer *w, const struct gofer_attr *a);
void gofer_pull_attr(struct cursor *c, struct gofer_attr *a);
void gofer_push_setattr(struct writer *w, const struct gofer_setattr *a);
void gofer_pull_setattr(struct cursor *c, struct gofer_setattr *a);
void gofer_push_statfs(struct writer *w, const struct gofer_statfs *s);
void gofer_pull_statfs(struct cursor *c, struct gofer_statfs *s);
/* Is @name one path component that names an entry: not empty, no '/', not "." or "..",
 * not too long? */
bool gofer_name_ok(const char *name);

#endif
