// SPDX-License-Identifier: Apache-2.0
/* Pipes and FIFOs (man 7 pipe, 7 fifo). Design: README.md in this folder. */
#ifndef SENTRY_FS_PIPE_PIPE_H
#define SENTRY_FS_PIPE_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/size.h"

struct task;
struct file;
struct inode;
struct pipe;

#define PIPE_SLOTS_DEFAULT 16                 /* pages of a new pipe: 64 KiB */
#define PIPE_SLOTS_MIN 2                      /* of a new pipe when many slots are in use */
#define PIPE_MAX_SIZE (1UL << 20)             /* fs.pipe-max-size: F_SETPIPE_SZ without privilege */
#define PIPE_MAX_SIZE_PRIV (16UL << 20)       /* with CAP_SYS_RESOURCE */
#define PIPE_USER_SLOTS_SOFT 16384            /* fs.pipe-user-pages-soft, over the whole sandbox */
#define PIPE_PAGES_MAX 65536                  /* pages that hold data, over the whole sandbox */

/* pipe2(2) without descriptors: fills ret[0] (read end) and ret[1]. @flags: O_NONBLOCK, O_DIRECT. 0,
 * -ENFILE. */
int pipe_create(struct task *t, unsigned flags, struct file *ret[2]);

/*
 * open(2) of a FIFO: the VFS calls it with @f->inode, flags and fmode set. Blocks until the other side is
 * there (man 7 fifo). 0: @f->ops and priv are set; -ENXIO, -ERESTARTSYS.
 */
int pipe_open_fifo(struct task *t, struct inode *inode, struct file *f);

/* F_SETPIPE_SZ, F_GETPIPE_SZ. Size, -EBADF (no pipe), -EINVAL, -EPERM, -EBUSY, -ENOMEM. */
long pipe_fcntl(struct file *f, unsigned cmd, unsigned long arg);

/* The pipe behind @f, borrowed; NULL if it isn't one. */
struct pipe *pipe_of_file(const struct file *f);

/* ---- for splice (vfs/splice.c) ---- */

/* One page's worth of data on its way into a pipe; page memory belongs to whoever holds it. */
struct pipe_page {
	uint8_t *data;
	uint32_t off, len;
	bool packet;
};

/* A page for pipe data, NULL when the sandbox's limit is reached. */
uint8_t *pipe_page_alloc(void);
void pipe_page_free(uint8_t *data);

/*
 * Claims the right to read: waits for data, keeps other readers out until pipe_unclaim_read(). @iov
 * gets up to @max pieces of at most @len bytes in all. Number of pieces; 0 at the end of the stream
 * (nothing claimed); -EAGAIN, -ERESTARTSYS.
 */
long pipe_claim_read(struct task *t, struct pipe *p, bool nonblock, size_t len, struct iovec *iov,
		     unsigned max);
/* @consumed bytes leave the pipe. */
void pipe_unclaim_read(struct pipe *p, size_t consumed);

/*
 * Claims the right to write: waits for room, keeps other writers out until pipe_unclaim_write().
 * Number of free slots (> 0), -EPIPE, -EAGAIN, -ERESTARTSYS.
 */
long pipe_claim_write(struct task *t, struct pipe *p, bool nonblock);
/* Appends @n pages (at most the number claimed); their memory goes to the pipe. */
void pipe_unclaim_write(struct pipe *p, struct pipe_page *pages, unsigned n);

/* Moves (or copies, for tee) up to @len bytes from one pipe to another. */
ssize_t pipe_move(struct task *t, struct pipe *from, struct pipe *to, size_t len, bool nonblock,
		  bool copy);

#endif
