// SPDX-License-Identifier: Apache-2.0
/*
 * Saving bind mounts and write-through roots. Their files are the host's and aren't in the image: what is in
 * use is saved as a path below the attach point, looked up at once when loading, and compared. A file that is
 * gone, of another type, or replaced by another one is refused with its name.
 *
 * Replaced means: another inode number or birth time, and also another size or time of the last change; so a
 * copy of the tree on another disk will do.
 *
 * What is deleted and still in use is the exception: nobody can find it by name, so nobody outside misses it
 * either. The bytes of a regular file go into the image, up to ORPHAN_MAX, and come back as a memory file that
 * only its open descriptors know; a directory comes back as an empty one. What has a name that isn't known here
 * (the host renamed it) can't be saved: a copy would go its own way.
 */
#include <limits.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/fs/gofer/fs.h"
#include "sentry/fs/gofer/priv.h"
#include "sentry/mm/mfile.h"
#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

#define ORPHAN_MAX (16UL << 20)
#define SAVED_PATH_MAX 65536
#define LISTING_MAX (16u << 20)

/* ---- mounts' supers ---- */

static void *super_alloc(struct state *s)
{
	struct gf_super *gs = kzalloc(sizeof(*gs));

	(void)s;
	super_init(&gs->sb, &gf_super_ops, &gofer_fs_type, 0, 0);
	mutex_init(&gs->inodes_mu, RANK_GOFER_INODES);
	return &gs->sb;
}

static void super_fields(struct state *s, void *obj)
{
	struct gf_super *gs = GF_SB(obj);
	uint32_t index = state_loading(s) ? 0 : gs->client->index, attach = gs->attach;

	super_state_fields(s, &gs->sb);
	state_u32(s, &index);
	state_u32(s, &attach);
	if (!state_loading(s))
		return;
	gs->client = gofer_client_find(index);
	gs->attach = gs->client ? gofer_loaded_attach(gs->client, attach) : UINT_MAX;
	if (gs->attach == UINT_MAX) {
		state_fail(s, "there is no bind mount number %u.%u here", index, attach);
		return;
	}
	if (gs->sb.type != &gofer_fs_type)
		state_fail(s, "a bind mount of another type");
	gs->readonly = gofer_attach_readonly(gs->client, gs->attach);
	if (gs->readonly)
		gs->sb.flags |= MS_RDONLY;
}

const struct state_type state_super_gofer = {
	.id = STATE_SUPER_GOFER,
	.version = 1,
	.name = "bind mount",
	.alloc = super_alloc,
	.fields = super_fields,
	.get = super_state_get,
	.put = super_state_put,
	.phase = 1,
};

/* ---- from path to node ---- */

/* Walks @path from the attach point. *ret_node is the caller's (0: the root's). 0 or -errno. */
static int walk_path(struct gf_super *gs, const char *path, uint64_t *ret_node, struct gofer_attr *ret)
{
	uint64_t node = gofer_root(gs->client, gs->attach, ret), held = 0;
	AUTO_FREE char *copy = kstrdup(path);
	char *save, *name;

	if (!*path) {
		*ret_node = node;
		return gofer_getattr(gs->client, node, ret);
	}
	for (name = strtok_r(copy, "/", &save); name; name = strtok_r(NULL, "/", &save)) {
		struct gofer_walked w;
		int err = gofer_name_ok(name) ? gofer_walk1(gs->client, node, name, &w) : -EINVAL;

		gofer_forget(gs->client, held);
		if (err)
			return err;
		free(w.target);
		node = held = w.node;
		*ret = w.attr;
	}
	*ret_node = node;
	return 0;
}

struct identity {
	uint64_t ino, size;
	int64_t btime_ns, mtime_ns;
	uint32_t mode;
};

static bool same(const struct identity *id, const struct gofer_attr *a)
{
	if ((id->mode ^ a->mode) & S_IFMT)
		return false;
	if (!S_ISREG(a->mode) || (id->ino == a->ino && id->btime_ns == a->btime_ns))
		return true;
	return id->size == a->size && id->mtime_ns == a->mtime_ns;
}

/* Path of @inode below the attach point by the names that are known: heap, or NULL. */
static char *path_of(struct inode *inode)
{
	struct dentry *d = NULL;
	char *path = NULL;

	if (inode->sb->root && dentry_inode(inode->sb->root) == inode)
		return kstrdup("");
	d = d_find_alias(inode);
	for (struct dentry *at = d; at; at = at->parent) {
		char *longer;

		if (!at->parent)
			break;
		longer = kasprintf("%s%s%s", at->name, path ? "/" : "", path ? path : "");
		free(path);
		path = longer;
	}
	dentry_put(d);
	return path;
}

/* Where @inode is found again: heap; NULL: it has no name any more. */
static char *checked_path(struct inode *inode)
{
	struct gf_inode *gi = GF(inode);
	char *path = gi->orphan ? NULL : path_of(inode);
	struct gofer_attr a;
	uint64_t node;

	if (!path || walk_path(GF_SB(inode->sb), path, &node, &a)) {
		free(path);
		return NULL;
	}
	if (*path)
		gofer_forget(gf_client(inode), node);
	if (a.dev != gi->id.dev || a.ino != gi->id.ino || a.btime_ns != gi->id.btime_ns) {
		free(path);
		return NULL;
	}
	return path;
}

/* ---- deleted files ---- */

static void save_orphan(struct state *s, struct gf_inode *gi)
{
	struct mfile *mf = NULL;
	size_t size = 0, done = 0;
	void *buf;

	atomic_store(&gi->attr_ns, 0);
	if (gf_getattr(&gi->i) || gi->i.nlink) {
		state_fail(s, "inode %llu of a bind mount is in use, and the host has renamed or replaced it",
			   (unsigned long long)gi->i.ino);
		return;
	}
	if (S_ISREG(gi->i.mode)) {
		mf = gi->rw ? gi->rw : gi->ro;
		mf = mf ? mfile_get(mf) : gf_mfile(gi, false);
		size = (size_t)atomic_load(&gi->i.size);
	}
	if (is_err(mf) || size > ORPHAN_MAX) {
		state_fail(s, "a deleted file of a bind mount is in use and has %zu MiB: only what is open "
			      "and up to %zu MiB can be saved", size >> 20, ORPHAN_MAX >> 20);
		return;
	}
	buf = kzalloc(size ? size : 1);
	while (done < size) {
		ssize_t n = pread(mfile_rofd(mf), (char *)buf + done, size - done,
				  (off_t)done); /* host: pread64 */

		if (n <= 0)
			break;
		done += (size_t)n;
	}
	mfile_put(mf);
	state_blob(s, &buf, &size, ORPHAN_MAX);
	free(buf);
}

/* As a memory file, which the gofer's tmpfs has room for or not. */
static int make_orphan(struct gf_inode *gi, const void *buf, size_t size)
{
	size_t done = 0;
	int fds[2], err = gofer_mkmem(gf_client(&gi->i), fds);

	if (err)
		return err;
	gi->rw = mfile_wrap_host(fds[0], true);
	gi->ro = mfile_wrap_host(fds[1], false);
	if (is_err(gi->rw) || is_err(gi->ro))
		return -ENFILE;
	while (done < size) {
		ssize_t n = pwrite(mfile_rwfd(gi->rw), (const char *)buf + done, size - done,
				   (off_t)done); /* host: pwrite64 */

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

/* ---- inodes ---- */

/* What is read in fields() and needed in finish(). */
struct gf_loading {
	char *path; /* NULL: an orphan, with its bytes */
	struct identity id;
	void *buf;
	size_t size;
};

static void *inode_alloc(struct state *s)
{
	struct gf_inode *gi = gf_inode_alloc();

	(void)s;
	gi->loading = kzalloc(sizeof(*gi->loading));
	return &gi->i;
}

static void identity_fields(struct state *s, struct gf_inode *gi, struct identity *id)
{
	if (!state_loading(s))
		*id = (struct identity){ gi->id.ino, atomic_load(&gi->i.size), gi->id.btime_ns,
					 gi->i.mtime_ns, gi->i.mode };
	state_u64(s, &id->ino);
	state_u64(s, &id->size);
	state_i64(s, &id->btime_ns);
	state_i64(s, &id->mtime_ns);
	state_u32(s, &id->mode);
}

static void inode_fields(struct state *s, void *obj)
{
	struct gf_inode *gi = GF(obj);
	char *path = state_loading(s) ? NULL : checked_path(&gi->i);
	struct gf_loading saved = { 0 }, *gl = state_loading(s) ? gi->loading : &saved;

	inode_state_fields(s, &gi->i);
	state_ref(s, &state_super_gofer, &gi->i.sb);
	state_heap_str(s, &gi->target, PATH_MAX_G);
	identity_fields(s, gi, &gl->id);
	state_heap_str(s, &path, SAVED_PATH_MAX);
	if (!state_loading(s)) {
		if (!path)
			save_orphan(s, gi);
		free(path);
		return;
	}
	gl->path = path;
	if (!path)
		state_blob(s, &gl->buf, &gl->size, ORPHAN_MAX);
	gf_inode_set_type(gi);
}

/* A deleted file has no number that it could be found by. */
static void finish_orphan(struct state *s, struct gf_inode *gi, const struct gf_loading *gl)
{
	int err;

	gi->orphan = true;
	gi->i.nlink = 0;
	if (!S_ISREG(gi->i.mode))
		return;
	err = make_orphan(gi, gl->buf, gl->size);
	if (err)
		state_fail(s, "a deleted file of a bind mount can't be made again: %s", strerror(-err));
}

static void finish_found(struct state *s, struct gf_inode *gi, const struct gf_loading *gl)
{
	struct gofer_attr a;
	uint64_t node;
	int err = walk_path(GF_SB(gi->i.sb), gl->path, &node, &a);

	if (err) {
		state_fail(s, "\"%s\" of a bind mount isn't there any more: %s", gl->path,
			   strerror(-err));
		return;
	}
	atomic_store(&gi->node, node);
	if (!same(&gl->id, &a) || ((a.mode ^ gi->i.mode) & S_IFMT)) {
		state_fail(s, "\"%s\" of a bind mount has been replaced by another file", gl->path);
		return;
	}
	gi->id = (struct gf_id){ a.dev, a.ino, a.btime_ns };
	gi->i.ino = a.ino;
	gf_update(&gi->i, &a);
	if (!gf_inode_hash(gi))
		state_fail(s, "\"%s\" of a bind mount is the same file as another now", gl->path);
}

static void inode_finish(struct state *s, void *obj)
{
	struct gf_inode *gi = GF(obj);
	struct gf_loading *gl = steal_ptr(&gi->loading);

	if (!gi->i.sb)
		state_fail(s, "inode on no file system");
	else if (gl->path)
		finish_found(s, gi, gl);
	else
		finish_orphan(s, gi, gl);
	free(gl->path);
	free(gl->buf);
	free(gl);
}

const struct state_type state_inode_gofer = {
	.id = STATE_INODE_GOFER,
	.version = 1,
	.name = "file of a bind mount",
	.alloc = inode_alloc,
	.fields = inode_fields,
	.finish = inode_finish,
	.get = inode_state_get,
	.put = inode_state_put,
	.phase = 2,
};

/* ---- open files ---- */

static void file_finish(struct state *s, struct file *f)
{
	struct mfile *mf;

	if (!file_state_on(s, f, &state_inode_gofer))
		return;
	if (!S_ISREG(f->inode->mode)) {
		state_fail(s, "a regular file on what is none");
		return;
	}
	gf_users_get(GF(f->inode));
	mf = gf_mfile(GF(f->inode), (f->fmode & FMODE_WRITE) != 0);
	if (is_err(mf)) {
		AUTO_FREE char *path = file_path_string(f, NULL);

		state_fail(s, "%s can't be opened again: %s", path, strerror((int)-ptr_err(mf)));
		return;
	}
	f->priv = mf;
}

const struct file_state file_state_gofer = {
	.id = FILE_GOFER,
	.ops = &gf_file_fops,
	.finish = file_finish,
};

/* The listing as it was read, so that its positions stay what they are. */
static void dir_file_fields(struct state *s, struct file *f)
{
	struct gf_listing *l = f->priv;
	bool have = l;
	uint32_t n;

	state_bool(s, &have);
	if (!have)
		return;
	if (state_loading(s)) {
		l = kzalloc(sizeof(*l));
		f->priv = l;
	}
	n = state_count(s, (uint32_t)l->n, LISTING_MAX);
	for (uint32_t i = 0; i < n && state_ok(s); i++) {
		struct gf_dirent de = { 0 };

		if (!state_loading(s))
			de = l->v[i];
		state_heap_str(s, &de.name, GOFER_NAME_MAX);
		state_u64(s, &de.ino);
		state_u32(s, &de.mode);
		if (state_loading(s) && !de.name)
			state_fail(s, "entry without a name");
		else if (state_loading(s))
			gf_listing_add(l, de.name, de.ino, de.mode);
	}
}

static void dir_file_finish(struct state *s, struct file *f)
{
	if (file_state_on(s, f, &state_inode_gofer) && !S_ISDIR(f->inode->mode))
		state_fail(s, "listing of what is no directory");
}

const struct file_state file_state_gofer_dir = {
	.id = FILE_GOFER_DIR,
	.ops = &gf_dir_fops,
	.fields = dir_file_fields,
	.finish = dir_file_finish,
};
