// SPDX-License-Identifier: Apache-2.0
/* The messages of gofer/wire.h, from the client's side. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "sentry/fs/gofer/priv.h"

/* Ends a call whose reply must have been consumed to its last byte. */
static int finish(struct gofer_client *c, struct gofer_call *call, int err)
{
	if (!err && !cursor_done(&call->r))
		err = -EIO;
	call_end(c, call);
	return err;
}

static int pull_walked(struct gofer_client *c, struct gofer_call *call, struct gofer_walked *w)
{
	AUTO_FREE char *target = NULL;

	w->node = pull_u64(&call->r);
	gofer_pull_attr(&call->r, &w->attr);
	w->target = NULL;
	if (!S_ISLNK(w->attr.mode)) {
		char none[1];

		pull_str(&call->r, none, sizeof(none));
	} else {
		target = kzalloc(GOFER_PATH_MAX);
		pull_str(&call->r, target, GOFER_PATH_MAX);
	}
	if (!cursor_ok(&call->r)) {
		gofer_forget(c, w->node);
		return -EIO;
	}
	if (target)
		w->target = kstrdup(target);
	return 0;
}

int gofer_walk(struct gofer_client *c, uint64_t dir, const char *const *names, unsigned n,
	       struct gofer_walked *out, unsigned *ret_n)
{
	struct gofer_call *call = call_begin(c, GOFER_WALK);

	push_u64(&call->w, dir);
	push_u32(&call->w, n);
	for (unsigned i = 0; i < n; i++)
		push_str(&call->w, names[i]);
	*ret_n = 0;
	int err = call_run(c, call);
	if (err)
		return finish(c, call, err);
	uint32_t found = pull_u32(&call->r);
	int stop = (int)pull_u32(&call->r);
	if (found > n || stop > 0 || stop < -MAX_ERRNO)
		return finish(c, call, -EIO);
	for (uint32_t i = 0; i < found && !err; i++) {
		err = pull_walked(c, call, &out[i]);
		if (!err)
			(*ret_n)++;
	}
	err = finish(c, call, err);
	if (!err && found < n && stop == 0 && found == 0)
		err = -EIO;
	return err ? err : stop;
}

int gofer_walk1(struct gofer_client *c, uint64_t dir, const char *name, struct gofer_walked *out)
{
	unsigned n;
	const char *names[1] = { name };
	int err = gofer_walk(c, dir, names, 1, out, &n);

	if (err && n) {
		gofer_forget(c, out->node);
		free(out->target);
	}
	return err;
}

int gofer_readdir(struct gofer_client *c, uint64_t dir, uint64_t *cookie, gofer_dirent_fn fn,
		  void *arg)
{
	struct gofer_call *call = call_begin(c, GOFER_READDIR);
	char name[GOFER_NAME_MAX + 1];
	struct gofer_attr a;

	push_u64(&call->w, dir);
	push_u64(&call->w, *cookie);
	int err = call_run(c, call);
	if (err)
		return finish(c, call, err);
	bool eof = pull_u8(&call->r) != 0;
	uint32_t n = pull_u32(&call->r);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t next = pull_u64(&call->r);

		pull_str(&call->r, name, sizeof(name));
		gofer_pull_attr(&call->r, &a);
		if (!cursor_ok(&call->r) || !gofer_name_ok(name))
			return finish(c, call, -EIO);
		*cookie = next;
		fn(arg, name, &a);
	}
	err = finish(c, call, 0);
	if (err)
		return err;
	return eof ? 0 : n ? 1 : -EIO; /* an empty batch that isn't the end would loop for ever */
}

int gofer_open(struct gofer_client *c, uint64_t node, unsigned flags, struct gofer_attr *ret)
{
	struct gofer_call *call = call_begin(c, GOFER_OPEN);
	struct gofer_attr a;

	push_u64(&call->w, node);
	push_u32(&call->w, flags);
	int err = call_run(c, call);
	if (err)
		return finish(c, call, err);
	gofer_pull_attr(&call->r, &a);
	int fd = call_take_fd(call, 0);
	err = finish(c, call, fd < 0 ? fd : 0);
	if (err) {
		if (fd >= 0)
			close(fd);
		return err;
	}
	if (ret)
		*ret = a;
	return fd;
}

/* The common end of calls that make a file. @ret_fd NULL: no descriptor comes with it. */
static int run_new(struct gofer_client *c, struct gofer_call *call, uint64_t *ret_node,
		   struct gofer_attr *ret, int *ret_fd)
{
	int err = call_run(c, call);

	if (err)
		return finish(c, call, err);
	uint64_t node = pull_u64(&call->r);
	gofer_pull_attr(&call->r, ret);
	int fd = ret_fd ? call_take_fd(call, 0) : -1;
	err = finish(c, call, ret_fd && fd < 0 ? fd : 0);
	if (err) {
		if (fd >= 0)
			close(fd);
		return err;
	}
	*ret_node = node;
	if (ret_fd)
		*ret_fd = fd;
	return 0;
}

static void push_owner(struct gofer_call *call, uint32_t mode, uid_t uid, gid_t gid)
{
	push_u32(&call->w, mode);
	push_u32(&call->w, uid);
	push_u32(&call->w, gid);
}

int gofer_create(struct gofer_client *c, uint64_t dir, const char *name, uint32_t mode, uid_t uid,
		 gid_t gid, uint64_t *ret_node, struct gofer_attr *ret)
{
	struct gofer_call *call = call_begin(c, name ? GOFER_CREATE : GOFER_TMPFILE);
	int fd = -1;

	push_u64(&call->w, dir);
	if (name)
		push_str(&call->w, name);
	push_owner(call, mode, uid, gid);
	int err = run_new(c, call, ret_node, ret, &fd);
	return err ? err : fd;
}

static int make_node(struct gofer_client *c, enum gofer_op op, uint64_t dir, const char *name,
		     uint32_t mode, uid_t uid, gid_t gid, uint64_t *ret_node,
		     struct gofer_attr *ret)
{
	struct gofer_call *call = call_begin(c, op);

	push_u64(&call->w, dir);
	push_str(&call->w, name);
	push_owner(call, mode, uid, gid);
	return run_new(c, call, ret_node, ret, NULL);
}

int gofer_mkdir(struct gofer_client *c, uint64_t dir, const char *name, uint32_t mode, uid_t uid,
		gid_t gid, uint64_t *ret_node, struct gofer_attr *ret)
{
	return make_node(c, GOFER_MKDIR, dir, name, mode, uid, gid, ret_node, ret);
}

int gofer_mknod(struct gofer_client *c, uint64_t dir, const char *name, uint32_t mode, uid_t uid,
		gid_t gid, uint64_t *ret_node, struct gofer_attr *ret)
{
	return make_node(c, GOFER_MKNOD, dir, name, mode, uid, gid, ret_node, ret);
}

int gofer_symlink(struct gofer_client *c, uint64_t dir, const char *name, const char *target,
		  uid_t uid, gid_t gid, uint64_t *ret_node, struct gofer_attr *ret)
{
	struct gofer_call *call = call_begin(c, GOFER_SYMLINK);

	push_u64(&call->w, dir);
	push_str(&call->w, name);
	push_str(&call->w, target);
	push_u32(&call->w, uid);
	push_u32(&call->w, gid);
	return run_new(c, call, ret_node, ret, NULL);
}

char *gofer_readlink(struct gofer_client *c, uint64_t node)
{
	struct gofer_call *call = call_begin(c, GOFER_READLINK);
	AUTO_FREE char *target = kzalloc(GOFER_PATH_MAX);

	push_u64(&call->w, node);
	int err = call_run(c, call);
	if (!err)
		pull_str(&call->r, target, GOFER_PATH_MAX);
	err = finish(c, call, err);
	return err ? err_ptr(err) : kstrdup(target);
}

static int run_attr(struct gofer_client *c, struct gofer_call *call, struct gofer_attr *ret)
{
	struct gofer_attr a;
	int err = call_run(c, call);

	if (!err)
		gofer_pull_attr(&call->r, &a);
	err = finish(c, call, err);
	if (!err)
		*ret = a;
	return err;
}

int gofer_link(struct gofer_client *c, uint64_t node, uint64_t dir, const char *name,
	       struct gofer_attr *ret)
{
	struct gofer_call *call = call_begin(c, GOFER_LINK);

	push_u64(&call->w, node);
	push_u64(&call->w, dir);
	push_str(&call->w, name);
	return run_attr(c, call, ret);
}

int gofer_unlink(struct gofer_client *c, uint64_t dir, const char *name, bool rmdir_flag,
		 uint64_t victim)
{
	struct gofer_call *call = call_begin(c, GOFER_UNLINK);

	push_u64(&call->w, dir);
	push_str(&call->w, name);
	push_u32(&call->w, rmdir_flag);
	push_u64(&call->w, victim);
	return finish(c, call, call_run(c, call));
}

int gofer_rename(struct gofer_client *c, uint64_t olddir, const char *oldname, uint64_t newdir,
		 const char *newname, unsigned flags, uint64_t moved, uint64_t victim)
{
	struct gofer_call *call = call_begin(c, GOFER_RENAME);

	push_u64(&call->w, olddir);
	push_str(&call->w, oldname);
	push_u64(&call->w, newdir);
	push_str(&call->w, newname);
	push_u32(&call->w, flags);
	push_u64(&call->w, moved);
	push_u64(&call->w, victim);
	return finish(c, call, call_run(c, call));
}

int gofer_getattr(struct gofer_client *c, uint64_t node, struct gofer_attr *ret)
{
	struct gofer_call *call = call_begin(c, GOFER_GETATTR);

	push_u64(&call->w, node);
	return run_attr(c, call, ret);
}

int gofer_setattr(struct gofer_client *c, uint64_t node, const struct gofer_setattr *s,
		  struct gofer_attr *ret)
{
	struct gofer_call *call = call_begin(c, GOFER_SETATTR);

	push_u64(&call->w, node);
	gofer_push_setattr(&call->w, s);
	return run_attr(c, call, ret);
}

/* A reply of u32 size and bytes into the caller's buffer, by the rules of getxattr(2). */
static ssize_t run_bytes(struct gofer_client *c, struct gofer_call *call, void *buf, size_t size)
{
	int err = call_run(c, call);

	if (err)
		return finish(c, call, err);
	uint32_t n = pull_u32(&call->r);
	const void *p = pull_bytes(&call->r, n);
	if (cursor_done(&call->r) && size) {
		if (n > size)
			err = -ERANGE;
		else if (n)
			memcpy(buf, p, n);
	}
	err = finish(c, call, err);
	return err ? err : (ssize_t)n;
}

ssize_t gofer_getxattr(struct gofer_client *c, uint64_t node, const char *name, void *buf,
		       size_t size)
{
	struct gofer_call *call = call_begin(c, GOFER_GETXATTR);

	push_u64(&call->w, node);
	push_str(&call->w, name);
	return run_bytes(c, call, buf, size);
}

int gofer_setxattr(struct gofer_client *c, uint64_t node, const char *name, const void *buf,
		   size_t size, int flags)
{
	if (size > GOFER_XATTR_SIZE_MAX)
		return -ENOSPC; /* what a host file system says of one it can't store */
	struct gofer_call *call = call_begin(c, GOFER_SETXATTR);

	push_u64(&call->w, node);
	push_str(&call->w, name);
	push_u32(&call->w, (uint32_t)flags);
	push_u32(&call->w, (uint32_t)size);
	push_bytes(&call->w, buf, size);
	return finish(c, call, call_run(c, call));
}

ssize_t gofer_listxattr(struct gofer_client *c, uint64_t node, char *buf, size_t size)
{
	struct gofer_call *call = call_begin(c, GOFER_LISTXATTR);

	push_u64(&call->w, node);
	return run_bytes(c, call, buf, size);
}

int gofer_removexattr(struct gofer_client *c, uint64_t node, const char *name)
{
	struct gofer_call *call = call_begin(c, GOFER_REMOVEXATTR);

	push_u64(&call->w, node);
	push_str(&call->w, name);
	return finish(c, call, call_run(c, call));
}

int gofer_statfs(struct gofer_client *c, uint64_t node, struct gofer_statfs *ret)
{
	struct gofer_call *call = call_begin(c, GOFER_STATFS);
	struct gofer_statfs s;

	push_u64(&call->w, node);
	int err = call_run(c, call);
	if (!err)
		gofer_pull_statfs(&call->r, &s);
	err = finish(c, call, err);
	if (!err)
		*ret = s;
	return err;
}

int gofer_fsync(struct gofer_client *c, uint64_t node)
{
	struct gofer_call *call = call_begin(c, GOFER_FSYNC);

	push_u64(&call->w, node);
	return finish(c, call, call_run(c, call));
}

void gofer_forget(struct gofer_client *c, uint64_t node)
{
	uint64_t batch[FORGET_BATCH];
	unsigned n = 0;

	if (!node)
		return;
	mutex_lock(&c->mu);
	c->forget[c->nforget++] = node;
	if (c->nforget == FORGET_BATCH) {
		memcpy(batch, c->forget, sizeof(batch));
		n = c->nforget;
		c->nforget = 0;
	}
	mutex_unlock(&c->mu);
	if (!n)
		return;
	struct gofer_call *call = call_begin(c, GOFER_FORGET);
	push_u32(&call->w, n);
	for (unsigned i = 0; i < n; i++)
		push_u64(&call->w, batch[i]);
	(void)finish(c, call, call_run(c, call)); /* a dead gofer remembers nothing */
}

static bool take_spare(struct gofer_client *c, int fds[2])
{
	AUTO_LOCK(&c->mu);
	if (!c->nmem)
		return false;
	c->nmem--;
	fds[0] = c->mem[c->nmem][0];
	fds[1] = c->mem[c->nmem][1];
	return true;
}

int gofer_mkdisk(struct gofer_client *c, int fds[2])
{
	struct gofer_call *call = call_begin(c, GOFER_MKMEM);
	push_u32(&call->w, 1);
	push_u32(&call->w, 1);
	int err = call_run(c, call);
	if (!err && call->nfds != 2)
		err = -EIO;
	if (err)
		return finish(c, call, err);
	fds[0] = call_take_fd(call, 0);
	fds[1] = call_take_fd(call, 1);
	return finish(c, call, 0);
}

int gofer_mkmem(struct gofer_client *c, int fds[2])
{
	if (take_spare(c, fds))
		return 0;
	struct gofer_call *call = call_begin(c, GOFER_MKMEM);
	push_u32(&call->w, MEM_BATCH);
	push_u32(&call->w, 0);
	int err = call_run(c, call);
	if (!err && call->nfds != 2 * MEM_BATCH)
		err = -EIO;
	if (err)
		return finish(c, call, err);
	fds[0] = call_take_fd(call, 0);
	fds[1] = call_take_fd(call, 1);
	mutex_lock(&c->mu);
	for (unsigned i = 1; i < MEM_BATCH && c->nmem < MEM_SPARE_MAX; i++) {
		c->mem[c->nmem][0] = call_take_fd(call, 2 * i);
		c->mem[c->nmem][1] = call_take_fd(call, 2 * i + 1);
		c->nmem++;
	}
	mutex_unlock(&c->mu);
	return finish(c, call, 0);
}
