// SPDX-License-Identifier: Apache-2.0
/* getdents, getdents64 (man 2 getdents). */
#include "syscalls/sys.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_priv.h"

#include <string.h>
#include <sys/inotify.h>

#define GETDENTS_BUF_MAX 65536u /* entries are collected here, then copied out at once */

struct getdents {
	struct dir_ctx ctx; /* first */
	uint8_t *buf;
	size_t used, size;
	bool old;
	bool any_refused;
};

struct l_dirent_head { /* struct linux_dirent64 and, but for the type, linux_dirent */
	uint64_t ino;
	int64_t off;
	uint16_t reclen;
	uint8_t type;
} __packed;

static bool emit(struct dir_ctx *ctx, const char *name, size_t len, uint64_t ino, unsigned type,
		 int64_t next_pos)
{
	struct getdents *g = container_of(ctx, struct getdents, ctx);
	/* Old form: name behind an 18-byte header, NUL, type in the record's last byte. */
	size_t head = g->old ? 18 : 19;
	size_t reclen = (head + len + 1 + (g->old ? 1 : 0) + 7) & ~(size_t)7;
	struct l_dirent_head h = { ino, next_pos, (uint16_t)reclen, (uint8_t)type };
	uint8_t *p = g->buf + g->used;

	if (reclen > g->size - g->used) {
		g->any_refused = true;
		return false;
	}
	memset(p, 0, reclen);
	memcpy(p, &h, head);
	memcpy(p + head, name, len);
	if (g->old)
		p[reclen - 1] = (uint8_t)type;
	g->used += reclen;
	return true;
}

static long getdents_common(struct task *t, const struct sysargs *a, bool old)
{
	AUTO_FILE struct file *f = fd_get(t, arg_int(a, 0));
	size_t size = MIN((size_t)arg_u32(a, 2), (size_t)GETDENTS_BUF_MAX);
	struct getdents g = { .ctx.emit = emit, .size = size, .old = old };
	int err;

	if (!f)
		return -EBADF;
	if (!f->ops->iterate || !S_ISDIR(f->inode->mode))
		return -ENOTDIR;
	AUTO_FREE uint8_t *buf = kmalloc_guest(size ? size : 1);
	if (!buf)
		return -ENOMEM;
	g.buf = buf;
	mutex_lock(&f->pos_mu);
	int64_t pos = f->pos;
	/* A removed directory has no entries, not even dots. */
	err = f->inode->nlink == 0 ? -ENOENT : f->ops->iterate(f, &g.ctx, &f->pos);
	if (g.used)
		err = 0;
	else if (!err && g.any_refused)
		err = -EINVAL;
	if (!err && g.used && copyout(t, arg_gaddr(a, 1), buf, g.used)) {
		f->pos = pos;
		err = -EFAULT;
	}
	mutex_unlock(&f->pos_mu);
	if (!err) {
		notify_file(f, IN_ACCESS);
		touch_atime(&f->path, f->inode);
	}
	return err ? err : (long)g.used;
}

long sys_getdents(struct task *t, const struct sysargs *a)
{
	return getdents_common(t, a, true);
}

long sys_getdents64(struct task *t, const struct sysargs *a)
{
	return getdents_common(t, a, false);
}
