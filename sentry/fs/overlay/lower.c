// SPDX-License-Identifier: Apache-2.0
/*
 * Names and attributes of the lower tree. See lower.h.
 *
 * Locks: lower_fs.mu (RANK_FS) guards the table of files with several names. Everything
 * else is constant after creation, or a single word set once by compare and exchange (the
 * loser undoes its work).
 */
#include "sentry/fs/overlay/lower.h"

#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "sentry/mm/mfile.h"
#include "sentry/vfs/vfs.h"

static void lower_fs_put(struct lower_fs *fs)
{
	if (!ref_put(&fs->ref))
		return;
	gofer_client_put(fs->client);
	mutex_fini(&fs->mu);
	free(fs);
}

/*
 * The number that the guest sees: made of the name in the image, so that it is the same when a saved sandbox
 * comes back and looks the file up again. The highest bits are those of no other inode's number.
 */
static uint64_t ino_of(const struct lower *parent, const char *name)
{
	uint64_t h = parent ? parent->ino : 0xcbf29ce484222325u;

	for (; *name; name++)
		h = (h ^ (uint8_t)*name) * 0x100000001b3u;
	h ^= h >> 32;
	h *= 0x9e3779b97f4a7c15u;
	return (h >> 2) | 1ULL << 61;
}

/* Takes over nothing; references on @fs and @parent are taken. */
static struct lower *lower_new(struct lower_fs *fs, struct lower *parent, const char *name,
			       const struct gofer_attr *a)
{
	struct lower *l = kzalloc(sizeof(*l));

	ref_init(&l->ref);
	ref_get(&fs->ref);
	l->fs = fs;
	l->parent = parent ? lower_get(parent) : NULL;
	l->name = kstrdup(name);
	l->attr = *a;
	l->ino = ino_of(parent, name);
	l->id = (struct lower_id){ a->dev, a->ino };
	list_init(&l->lru);
	return l;
}

/* A linked file that is known by another name already takes @l's place. */
static struct lower *intern(struct lower *l)
{
	struct lower *old;

	if (!lower_is_linked(l))
		return l;
	mutex_lock(&l->fs->mu);
	HASH_FIND(hh, l->fs->links, &l->id, sizeof(l->id), old);
	if (old) {
		lower_get(old);
	} else if (!l->fs->closed) {
		HASH_ADD(hh, l->fs->links, id, sizeof(l->id), l);
		lower_get(l); /* the table's */
	}
	mutex_unlock(&l->fs->mu);
	if (!old)
		return l;
	lower_put(l);
	return old;
}

void lower_close_links(struct lower *root)
{
	struct lower_fs *fs = root->fs;

	for (;;) {
		struct inode *inode = NULL;

		mutex_lock(&fs->mu);
		struct lower *l = fs->links;
		if (l) {
			HASH_DEL(fs->links, l);
			inode = steal_ptr(&l->inode);
		}
		fs->closed = true;
		mutex_unlock(&fs->mu);
		if (!l)
			return;
		inode_put(inode);
		lower_put(l);
	}
}

struct lower_fs *lower_fs_create(struct gofer_client *c, unsigned attach)
{
	struct lower_fs *fs = kzalloc(sizeof(*fs));

	ref_init(&fs->ref);
	fs->client = gofer_client_get(c);
	fs->attach = attach;
	mutex_init(&fs->mu, RANK_FS);
	return fs;
}

struct lower *lower_root(struct gofer_client *c, unsigned attach)
{
	struct gofer_attr a;
	uint64_t node = gofer_root(c, attach, &a);
	struct lower_fs *fs = lower_fs_create(c, attach);
	struct lower *l = lower_new(fs, NULL, "", &a);
	lower_fs_put(fs); /* the root's reference stays */
	atomic_store(&l->node, node);
	return l;
}

/* @l is about to be freed: nobody else can reach it but through the list of open ones. */
static void lower_close(struct lower *l);

struct lower *lower_get(struct lower *l)
{
	ref_get(&l->ref);
	return l;
}

/* A loop, not a recursion: trees are as deep as an image makes them. */
void lower_put(struct lower *l)
{
	while (l && ref_put(&l->ref)) {
		struct lower *parent = l->parent;

		if (parent)
			gofer_forget(l->fs->client, atomic_load(&l->node));
		lower_close(l);
		free(atomic_load(&l->target));
		free(l->name);
		lower_fs_put(l->fs);
		free(l);
		l = parent;
	}
}

/* Images are copied and packed: of the times the seconds of the last change survive that. */
static bool same_file(const struct gofer_attr *a, const struct gofer_attr *b)
{
	if ((a->mode ^ b->mode) & S_IFMT)
		return false;
	return !S_ISREG(a->mode) || (a->size == b->size && a->mtime_ns / 1000000000 ==
							       b->mtime_ns / 1000000000);
}

/* Asks for the id of @l, whose parent's is known. */
static int resolve_node(struct lower *l)
{
	struct gofer_walked w;
	uint64_t none = 0;
	int err = gofer_walk1(l->fs->client, atomic_load(&l->parent->node), l->name, &w);

	if (err)
		return err;
	free(w.target);
	if (l->saved && !same_file(&l->attr, &w.attr)) {
		log_error("the image has changed: \"%s\" isn't the file that was saved", l->name);
		gofer_forget(l->fs->client, w.node);
		return -ESTALE;
	}
	l->id = (struct lower_id){ w.attr.dev, w.attr.ino };
	if (!atomic_compare_exchange_strong(&l->node, &none, w.node))
		gofer_forget(l->fs->client, w.node); /* somebody was faster */
	return 0;
}

/* The gofer's id of @l, or 0 with *err set. The root's is always known, so this ends. */
uint64_t lower_node(struct lower *l, int *err)
{
	uint64_t node;

	*err = 0;
	while (!(node = atomic_load(&l->node))) {
		struct lower *top = l;

		while (!atomic_load(&top->parent->node))
			top = top->parent;
		*err = resolve_node(top);
		if (*err)
			return 0;
	}
	return node;
}

struct lower *lower_lookup(struct lower *dir, const char *name)
{
	struct gofer_walked w;
	int err;
	uint64_t node = lower_node(dir, &err);

	if (!node)
		return err_ptr(err);
	err = gofer_walk1(dir->fs->client, node, name, &w);
	/* EXDEV: a mount of the host's inside the image; not part of it. */
	if (err == -ENOENT || err == -EXDEV)
		return NULL;
	if (err)
		return err_ptr(err);
	struct lower *l = lower_new(dir->fs, dir, name, &w.attr);
	atomic_store(&l->node, w.node);
	atomic_store(&l->target, w.target);
	return intern(l);
}

int lower_restore_link(struct lower *l)
{
	int err;

	if (!lower_node(l, &err))
		return err;
	AUTO_LOCK(&l->fs->mu);
	HASH_ADD(hh, l->fs->links, id, sizeof(l->id), l);
	lower_get(l); /* the table's */
	return 0;
}

struct readdir_arg {
	struct lower *dir;
	struct lower **v;
	size_t n, size;
};

/* Called below the gofer client: only collects. */
static void collect(void *arg, const char *name, const struct gofer_attr *a)
{
	struct readdir_arg *ra = arg;

	if (ra->n == ra->size) {
		ra->size = ra->size ? ra->size * 2 : 64;
		ra->v = krealloc_array(ra->v, ra->size, sizeof(struct lower *));
	}
	ra->v[ra->n++] = lower_new(ra->dir->fs, ra->dir, name, a);
}

int lower_readdir(struct lower *dir, void (*fn)(void *arg, const char *name, struct lower *l),
		  void *arg)
{
	struct readdir_arg ra = { .dir = dir };
	uint64_t cookie = 0;
	int err;
	uint64_t node = lower_node(dir, &err);

	if (!node)
		return err;
	do {
		err = gofer_readdir(dir->fs->client, node, &cookie, collect, &ra);
	} while (err > 0);
	for (size_t i = 0; i < ra.n; i++) {
		if (err) {
			lower_put(ra.v[i]);
			continue;
		}
		/* The name is this directory's, the object may be another name's. */
		AUTO_FREE char *name = kstrdup(ra.v[i]->name);

		fn(arg, name, intern(ra.v[i]));
	}
	free(ra.v);
	return err;
}

char *lower_readlink(struct lower *l)
{
	char *target = atomic_load(&l->target), *none = NULL;
	int err;

	if (target)
		return kstrdup(target);
	uint64_t node = lower_node(l, &err);
	if (!node)
		return err_ptr(err);
	target = gofer_readlink(l->fs->client, node);
	if (is_err(target))
		return target;
	char *ret = kstrdup(target);
	if (!atomic_compare_exchange_strong(&l->target, &none, target))
		free(target);
	return ret;
}

ssize_t lower_getxattr(struct lower *l, const char *name, void *buf, size_t size)
{
	int err;
	uint64_t node = lower_node(l, &err);

	return node ? gofer_getxattr(l->fs->client, node, name, buf, size) : err;
}

ssize_t lower_listxattr(struct lower *l, char *buf, size_t size)
{
	int err;
	uint64_t node = lower_node(l, &err);

	return node ? gofer_listxattr(l->fs->client, node, buf, size) : err;
}

/* ---- open files ---- */

/* The list holds no references: an object leaves it when it dies (lower_put). */
static struct mutex open_mu = { .m = PTHREAD_MUTEX_INITIALIZER, .rank = RANK_LOWER };
static struct list open_list = LIST_INIT(open_list); /* (open_mu) oldest first */
static unsigned nopen;                                /* (open_mu) */

/*
 * The oldest open file is closed when there are too many; mappings of it and readers in
 * flight have references of their own.
 */
static struct mfile *evict_locked(void)
{
	mutex_assert_held(&open_mu);
	if (nopen <= LOWER_MAX_OPEN)
		return NULL;
	struct lower *old = list_first(&open_list, struct lower, lru);
	list_del(&old->lru);
	nopen--;
	return steal_ptr(&old->mf);
}

static void lower_close(struct lower *l)
{
	struct mfile *mf;

	mutex_lock(&open_mu);
	if (l->mf) {
		list_del(&l->lru);
		nopen--;
	}
	mf = steal_ptr(&l->mf);
	mutex_unlock(&open_mu);
	mfile_put(mf);
}

struct mfile *lower_open(struct lower *l)
{
	struct mfile *mf, *victim;
	int err;

	mutex_lock(&open_mu);
	mf = l->mf ? mfile_get(l->mf) : NULL;
	mutex_unlock(&open_mu);
	if (mf)
		return mf;
	uint64_t node = lower_node(l, &err);
	if (!node)
		return err_ptr(err);
	int fd = gofer_open(l->fs->client, node, 0, NULL);
	if (fd < 0)
		return err_ptr(fd);
	mf = mfile_wrap_host(fd, false);
	if (is_err(mf))
		return mf;
	mutex_lock(&open_mu);
	if (l->mf) { /* somebody was faster */
		victim = mf;
		mf = mfile_get(l->mf);
	} else {
		l->mf = mfile_get(mf);
		list_add_tail(&open_list, &l->lru);
		nopen++;
		victim = evict_locked();
	}
	mutex_unlock(&open_mu);
	mfile_put(victim);
	return mf;
}

ssize_t lower_read(struct lower *l, struct iter *it, size_t len, uint64_t pos)
{
	struct mfile *mf = lower_open(l);

	if (is_err(mf))
		return ptr_err(mf);
	ssize_t n = host_read_iter(mfile_rofd(mf), it, len, pos);
	mfile_put(mf);
	return n;
}
