// SPDX-License-Identifier: Apache-2.0
/* Working directory, root and umask of a process (shared by CLONE_FS). Lock: fsctx.mu. */
#include "base/alloc.h"

#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

struct fsctx {
	struct ref ref;
	struct mutex mu;        /* RANK_FSCTX */
	struct path root, cwd;  /* (m) references */
	_Atomic uint32_t umask;
};

struct fsctx *fsctx_create(const struct path *root, const struct path *cwd, uint32_t umask)
{
	struct fsctx *fs = kzalloc(sizeof(*fs));

	ref_init(&fs->ref);
	mutex_init(&fs->mu, RANK_FSCTX);
	fs->root = *root;
	fs->cwd = *cwd;
	path_get(&fs->root);
	path_get(&fs->cwd);
	atomic_init(&fs->umask, umask & 0777);
	return fs;
}

struct fsctx *fsctx_dup(struct fsctx *old)
{
	struct path root = fsctx_root(old), cwd = fsctx_cwd(old);
	struct fsctx *fs = fsctx_create(&root, &cwd, fsctx_umask(old));

	path_put(&root);
	path_put(&cwd);
	return fs;
}

struct fsctx *fsctx_get(struct fsctx *fs)
{
	ref_get(&fs->ref);
	return fs;
}

void fsctx_put(struct fsctx *fs)
{
	if (!fs || !ref_put(&fs->ref))
		return;
	path_put(&fs->root);
	path_put(&fs->cwd);
	mutex_fini(&fs->mu);
	free(fs);
}

struct path fsctx_root(struct fsctx *fs)
{
	AUTO_LOCK(&fs->mu);
	return *path_get(&fs->root);
}

struct path fsctx_cwd(struct fsctx *fs)
{
	AUTO_LOCK(&fs->mu);
	return *path_get(&fs->cwd);
}

uint32_t fsctx_umask(struct fsctx *fs)
{
	return atomic_load_explicit(&fs->umask, memory_order_relaxed);
}

uint32_t fsctx_set_umask(struct fsctx *fs, uint32_t umask)
{
	return atomic_exchange(&fs->umask, umask & 0777);
}

static void replace(struct fsctx *fs, struct path *which, const struct path *p)
{
	struct path new = *p, old;

	path_get(&new);
	mutex_lock(&fs->mu);
	old = *which;
	*which = new;
	mutex_unlock(&fs->mu);
	path_put(&old);
}

void fsctx_set_root(struct fsctx *fs, const struct path *p)
{
	replace(fs, &fs->root, p);
}

void fsctx_set_cwd(struct fsctx *fs, const struct path *p)
{
	replace(fs, &fs->cwd, p);
}

/* pivot_root(2): whoever had @from as root or working directory gets @to. */
void fsctx_move_root(struct fsctx *fs, const struct path *from, const struct path *to)
{
	struct path root = fsctx_root(fs), cwd = fsctx_cwd(fs);

	if (path_equal(&root, from))
		fsctx_set_root(fs, to);
	if (path_equal(&cwd, from))
		fsctx_set_cwd(fs, to);
	path_put(&root);
	path_put(&cwd);
}

/* ---- saving ---- */

static void *fsctx_alloc(struct state *s)
{
	struct fsctx *fs = kzalloc(sizeof(*fs));

	(void)s;
	ref_init(&fs->ref);
	mutex_init(&fs->mu, RANK_FSCTX);
	return fs;
}

static void fsctx_fields(struct state *s, void *obj)
{
	struct fsctx *fs = obj;
	uint32_t umask = fs->umask;

	state_path(s, &fs->root);
	state_path(s, &fs->cwd);
	state_u32(s, &umask);
	if (state_loading(s))
		fs->umask = umask & 0777;
}

static void fsctx_finish(struct state *s, void *obj)
{
	struct fsctx *fs = obj;

	if (!fs->root.mnt || !fs->cwd.mnt || !S_ISDIR(dentry_inode(fs->root.dentry)->mode) ||
	    !S_ISDIR(dentry_inode(fs->cwd.dentry)->mode))
		state_fail(s, "no root or working directory");
}

static void *fsctx_state_get(void *obj)
{
	return fsctx_get(obj);
}

static void fsctx_state_put(void *obj)
{
	fsctx_put(obj);
}

const struct state_type state_fsctx = {
	.id = STATE_FSCTX,
	.version = 1,
	.name = "directories of a process",
	.alloc = fsctx_alloc,
	.fields = fsctx_fields,
	.finish = fsctx_finish,
	.get = fsctx_state_get,
	.put = fsctx_state_put,
	.phase = 4,
};
