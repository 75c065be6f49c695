// SPDX-License-Identifier: Apache-2.0
/* splice, tee, vmsplice, sendfile, copy_file_range at the level of files. */
#ifndef SENTRY_VFS_SPLICE_H
#define SENTRY_VFS_SPLICE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct task;
struct file;
struct iter;

#define SPLICE_FLAGS (SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT)

/* @pos_in, @pos_out: offsets to use and advance; NULL: the files' own. Bytes, or -errno as the system
 * calls have it (-EBADF for the wrong access mode). */
ssize_t vfs_splice(struct task *t, struct file *in, int64_t *pos_in, struct file *out,
		   int64_t *pos_out, size_t len, unsigned flags);
ssize_t vfs_tee(struct task *t, struct file *in, struct file *out, size_t len, unsigned flags);
/* Write end: guest memory into the pipe; read end: the other way round. */
ssize_t vfs_vmsplice(struct task *t, struct file *f, struct iter *it, unsigned flags);
ssize_t vfs_sendfile(struct task *t, struct file *out, struct file *in, int64_t *pos, size_t len);
ssize_t vfs_copy_file_range(struct task *t, struct file *in, int64_t *pos_in, struct file *out,
			    int64_t *pos_out, size_t len);

#endif
