// SPDX-License-Identifier: Apache-2.0
/*
 * tmpcopyup: a tmpfs that starts with what the directory below it has (an option of runc's that podman
 * uses). Names, kinds, owners, modes and contents are copied; times, extended attributes and hard links are
 * not, and neither is what is mounted further down.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "runtime/container.h"
#include "sentry/mm/usermem.h"

#define MAX_DEPTH 64
#define COPY_CHUNK 65536

struct names {
	struct dir_ctx ctx;
	char **v;
	size_t n;
};

static bool take_name(struct dir_ctx *ctx, const char *name, size_t len, uint64_t ino, unsigned type,
		      int64_t next)
{
	struct names *l = container_of(ctx, struct names, ctx);

	(void)ino, (void)type, (void)next;
	if ((len == 1 && name[0] == '.') || (len == 2 && name[0] == '.' && name[1] == '.'))
		return true;
	l->v = krealloc_array(l->v, l->n + 1, sizeof(*l->v));
	l->v[l->n++] = kstrndup(name, len);
	return true;
}

static int list_names(const struct path *dir, const struct cred *root, struct names *ret)
{
	AUTO_FILE struct file *f = file_open_path(NULL, dir, O_RDONLY | O_DIRECTORY, root);
	int64_t pos = 0;

	ret->ctx.emit = take_name;
	if (is_err(f))
		return (int)ptr_err(f);
	return f->ops->iterate ? f->ops->iterate(f, &ret->ctx, &pos) : -ENOTDIR;
}

static int copy_contents(const struct path *from, const struct path *to, const struct cred *root)
{
	AUTO_FILE struct file *in = file_open_path(NULL, from, O_RDONLY, root);
	AUTO_FILE struct file *out = file_open_path(NULL, to, O_WRONLY, root);
	AUTO_FREE char *buf = kzalloc(COPY_CHUNK);
	int64_t pos = 0, written = 0;
	ssize_t n;

	if (is_err(in) || is_err(out))
		return (int)ptr_err(is_err(in) ? in : out);
	while ((n = file_kread(NULL, in, buf, COPY_CHUNK, pos)) > 0) {
		struct iter it;
		ssize_t w;

		iter_init_kernel(&it, buf, (size_t)n);
		w = out->ops->write(NULL, out, &it, &written);
		if (w != n)
			return w < 0 ? (int)w : -ENOSPC;
		pos += n;
	}
	return (int)n;
}

/* The like of @from as @name in @dir. */
static struct inode *make_like(struct inode *from, struct inode *dir, const char *name)
{
	uint32_t mode = from->mode;
	struct inode *n;
	char *target;

	if (S_ISLNK(mode)) {
		target = from->ops->readlink ? from->ops->readlink(from) : err_ptr(-EINVAL);
		if (is_err(target))
			return (struct inode *)target;
		mutex_lock(&dir->mu);
		n = dir->ops->symlink(dir, name, target, from->uid, from->gid);
		mutex_unlock(&dir->mu);
		free(target);
		return n;
	}
	mutex_lock(&dir->mu);
	if (S_ISDIR(mode))
		n = dir->ops->mkdir(dir, name, mode, from->uid, from->gid);
	else if (S_ISREG(mode))
		n = dir->ops->create(dir, name, mode, from->uid, from->gid);
	else
		n = dir->ops->mknod(dir, name, mode, from->rdev, from->uid, from->gid);
	mutex_unlock(&dir->mu);
	return n;
}

static int copy_dir(const struct path *from, const struct path *to, const struct cred *root, int depth);

static int copy_one(const struct path *from, const struct path *to, const char *name,
		    const struct cred *root, int depth)
{
	struct path src = { from->mnt, dentry_lookup(from->dentry, name) }, dst = { to->mnt, NULL };
	struct inode *i, *n;
	int r = 0;

	if (is_err(src.dentry))
		return (int)ptr_err(src.dentry);
	i = dentry_inode(src.dentry);
	n = i ? make_like(i, dentry_inode(to->dentry), name) : NULL;
	if (n && is_err(n))
		r = (int)ptr_err(n);
	else if (n)
		inode_put(n);
	if (n && !r && (S_ISDIR(i->mode) || S_ISREG(i->mode))) {
		dentry_invalidate(to->dentry, name);
		dst.dentry = dentry_lookup(to->dentry, name);
		r = is_err(dst.dentry)	? (int)ptr_err(dst.dentry) :
		    S_ISDIR(i->mode) ? copy_dir(&src, &dst, root, depth + 1) :
				       copy_contents(&src, &dst, root);
		if (!is_err(dst.dentry))
			dentry_put(dst.dentry);
	}
	dentry_put(src.dentry);
	return r;
}

static int copy_dir(const struct path *from, const struct path *to, const struct cred *root, int depth)
{
	struct names l = { 0 };
	int r = depth > MAX_DEPTH ? -ELOOP : list_names(from, root, &l);

	for (size_t i = 0; i < l.n && !r; i++)
		r = copy_one(from, to, l.v[i], root, depth);
	for (size_t i = 0; i < l.n; i++)
		free(l.v[i]);
	free(l.v);
	return r;
}

int container_copy_up(const struct path *from, const struct path *to)
{
	AUTO(cred_put) struct cred *root = cred_create_root(CAP_FULL_SET);

	return copy_dir(from, to, root, 0);
}
