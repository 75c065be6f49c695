// SPDX-License-Identifier: Apache-2.0
/*
 * The dentry cache: names of inodes, negative ones included (see vfs_priv.h for the lock and for who
 * owns what).
 *
 * Eviction is a clock over all hashed dentries: a hit only sets a flag, so it writes nothing when the
 * name is hot. Dentries that are in use (an open file, a child, a mount) are skipped; their number is
 * bounded by the limits on those users, so DCACHE_MAX bounds the rest.
 *
 * Negative dentries are not kept for directories with ->revalidate: somebody else may create the name
 * at any time, and asking costs as much as looking it up.
 *
 * Lock order: inode.mu of the directory > dcache_mu. Nothing is freed under dcache_mu: dropping an
 * inode may call into its file system.
 */
#include "base/alloc.h"
#include "base/log.h"

#include <string.h>

#include "sentry/vfs/vfs_priv.h"

#define DCACHE_BUCKETS 32768
#define EVICT_SCAN 64 /* dentries looked at for each one that is added over the limit */

struct mutex dcache_mu;
static struct dentry *buckets[DCACHE_BUCKETS]; /* (d) */
static struct list lru = LIST_INIT(lru);       /* (d) hand of the clock is at the tail */
static unsigned ncached;                       /* (d) */

void dcache_init(void)
{
	mutex_init(&dcache_mu, RANK_DENTRY);
}

struct qname qname_make(const char *s, size_t len)
{
	uint32_t h = 2166136261u;

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)s[i]) * 16777619u;
	return (struct qname){ .s = s, .len = (uint32_t)len, .hash = h };
}

void qname_copy(const struct qname *q, char buf[NAME_MAX_G + 1])
{
	memcpy(buf, q->s, q->len);
	buf[q->len] = '\0';
}

static struct dentry **bucket(const struct dentry *dir, uint32_t hash)
{
	uint64_t h = ((uint64_t)(uintptr_t)dir >> 6) * 0x9e3779b97f4a7c15u;

	return &buckets[((h >> 32) ^ hash ^ (hash >> 16)) % DCACHE_BUCKETS];
}

static struct dentry *d_alloc(struct dentry *dir, const char *name, size_t len, uint32_t hash)
{
	struct dentry *d = kzalloc(sizeof(*d));

	ref_init(&d->ref);
	d->name = kstrndup(name, len);
	d->namelen = (uint32_t)len;
	d->hash = hash;
	d->parent = dir ? dentry_get(dir) : NULL;
	list_init(&d->children);
	list_init(&d->sibling);
	list_init(&d->lru);
	return d;
}

static void hash_locked(struct dentry *d)
{
	struct dentry **b = bucket(d->parent, d->hash);

	mutex_assert_held(&dcache_mu);
	d->hnext = *b;
	d->hpprev = b;
	if (*b)
		(*b)->hpprev = &d->hnext;
	*b = d;
	d->hashed = true;
	list_add(&d->parent->children, &d->sibling);
	list_add(&lru, &d->lru);
	ncached++;
	ref_get(&d->ref);
}

/* The cache's reference passes to the caller. */
static void unhash_locked(struct dentry *d)
{
	mutex_assert_held(&dcache_mu);
	*d->hpprev = d->hnext;
	if (d->hnext)
		d->hnext->hpprev = d->hpprev;
	d->hnext = NULL;
	d->hpprev = NULL;
	d->hashed = false;
	list_del(&d->sibling);
	list_del(&d->lru);
	ncached--;
}

/* Takes unused names out until the cache is below its limit; they go to @dead (by lru). */
static void evict_locked(struct list *dead)
{
	for (unsigned i = 0; i < EVICT_SCAN && ncached > DCACHE_MAX && !list_empty(&lru); i++) {
		struct dentry *d = list_last(&lru, struct dentry, lru);

		if (d->referenced || ref_count(&d->ref) > 1) {
			d->referenced = false;
			list_del(&d->lru);
			list_add(&lru, &d->lru);
			continue;
		}
		unhash_locked(d);
		list_add_tail(dead, &d->lru);
	}
}

static void put_list(struct list *dead)
{
	struct dentry *d, *tmp;

	list_for_each_safe(d, tmp, dead, lru) {
		list_del(&d->lru);
		dentry_put(d);
	}
}

struct dentry *dentry_get(struct dentry *d)
{
	ref_get(&d->ref);
	return d;
}

void dentry_put(struct dentry *d)
{
	/* A loop, not a recursion: a chain of parents may be as long as a guest likes. */
	while (d && ref_put(&d->ref)) {
		struct dentry *parent = d->parent;
		struct inode *inode = atomic_load_explicit(&d->inode, memory_order_relaxed);

		if (inode) {
			if (inode->nlink == 0)
				notify_inode_gone(inode);
			inode_put(inode);
		}
		free(d->name);
		free(d);
		d = parent;
	}
}

struct inode *dentry_inode(const struct dentry *d)
{
	return atomic_load_explicit(&d->inode, memory_order_acquire);
}

struct dentry *dentry_create_root(struct inode *inode)
{
	struct dentry *d = d_alloc(NULL, "/", 1, 0);

	d->is_root = true;
	atomic_init(&d->inode, inode);
	return d;
}

struct dentry *dentry_create_anon(struct inode *inode, const char *name)
{
	struct dentry *d = d_alloc(NULL, name, strlen(name), 0);

	atomic_init(&d->inode, inode);
	return d;
}

struct dentry *d_alloc_unhashed(struct dentry *dir, const char *name, struct inode *inode)
{
	struct qname q = qname_make(name, strlen(name));
	struct dentry *d = d_alloc(dir, q.s, q.len, q.hash);

	atomic_init(&d->inode, inode);
	return d;
}

struct dentry *dentry_parent(struct dentry *d)
{
	AUTO_LOCK(&dcache_mu);
	return dentry_get(d->parent ? d->parent : d);
}

bool d_unlinked(const struct dentry *d)
{
	return d->parent && !d->hashed;
}

struct dentry *d_find_locked(struct dentry *dir, const struct qname *q)
{
	for (struct dentry *d = *bucket(dir, q->hash); d; d = d->hnext) {
		if (d->hash != q->hash || d->parent != dir || d->namelen != q->len)
			continue;
		if (memcmp(d->name, q->s, q->len) != 0)
			continue;
		if (!d->referenced)
			d->referenced = true;
		return d;
	}
	return NULL;
}

struct dentry *d_lookup_locked(struct dentry *dir, const struct qname *q)
{
	struct inode *di = dentry_inode(dir);
	struct list dead = LIST_INIT(dead);
	char name[NAME_MAX_G + 1];

	mutex_assert_held(&di->mu);
	mutex_lock(&dcache_mu);
	struct dentry *d = d_find_locked(dir, q);
	if (d)
		dentry_get(d);
	mutex_unlock(&dcache_mu);
	if (d && (dentry_inode(d) || !di->ops->revalidate))
		return d;
	if (d) {
		d_drop(d);
		dentry_put(d);
	}
	if (!di->ops->lookup)
		return err_ptr(-ENOTDIR);
	qname_copy(q, name);
	struct inode *inode = di->ops->lookup(di, name);
	if (is_err(inode))
		return (struct dentry *)inode;
	d = d_alloc(dir, q->s, q->len, q->hash);
	atomic_init(&d->inode, inode);
	mutex_lock(&dcache_mu);
	if ((inode || !di->ops->revalidate) && !dir->deleted)
		hash_locked(d);
	evict_locked(&dead);
	mutex_unlock(&dcache_mu);
	put_list(&dead);
	return d;
}

struct dentry *dentry_lookup(struct dentry *dir, const char *name)
{
	struct inode *di = dentry_inode(dir);
	struct qname q = qname_make(name, strlen(name));

	if (!di || !S_ISDIR(di->mode))
		return err_ptr(-ENOTDIR);
	if (q.len > NAME_MAX_G)
		return err_ptr(-ENAMETOOLONG);
	AUTO_LOCK(&di->mu);
	return d_lookup_locked(dir, &q);
}

void d_instantiate(struct dentry *d, struct inode *inode)
{
	AUTO_LOCK(&dcache_mu);
	atomic_store_explicit(&d->inode, inode, memory_order_release);
	if (!d->hashed && d->parent) {
		struct qname q = { d->name, d->namelen, d->hash };

		if (!d_find_locked(d->parent, &q))
			hash_locked(d);
	}
}

static void drop(struct dentry *d, bool deleted)
{
	bool put = false;

	mutex_lock(&dcache_mu);
	if (d->hashed) {
		unhash_locked(d);
		put = true;
	}
	d->deleted |= deleted;
	mutex_unlock(&dcache_mu);
	if (put)
		dentry_put(d);
}

void d_drop(struct dentry *d)
{
	drop(d, false);
}

void d_delete(struct dentry *d)
{
	drop(d, true);
}

/* Everything unhashable below @top, depth first without recursion, into @dead. Mount points and what
 * leads to them stay. */
static void unhash_below_locked(struct dentry *top, struct list *dead)
{
	struct list todo = LIST_INIT(todo);
	struct dentry *d = top, *c, *tmp;

	for (;;) {
		list_for_each_safe(c, tmp, &d->children, sibling) {
			if (atomic_load(&c->mounts))
				continue;
			unhash_locked(c);
			list_add_tail(&todo, &c->lru);
		}
		if (list_empty(&todo))
			return;
		d = list_first(&todo, struct dentry, lru);
		list_del(&d->lru);
		list_add_tail(dead, &d->lru);
	}
}

void dentry_invalidate(struct dentry *dir, const char *name)
{
	struct list dead = LIST_INIT(dead);

	mutex_lock(&dcache_mu);
	if (name) {
		struct qname q = qname_make(name, strlen(name));
		struct dentry *d = d_find_locked(dir, &q);

		if (d && !atomic_load(&d->mounts)) {
			unhash_locked(d);
			list_add_tail(&dead, &d->lru);
		}
	} else {
		unhash_below_locked(dir, &dead);
	}
	mutex_unlock(&dcache_mu);
	put_list(&dead);
}

static void rename_locked(struct dentry *d, struct dentry *newdir, char *name, uint32_t len,
			  uint32_t hash)
{
	if (d->hashed) {
		unhash_locked(d);
		ref_put(&d->ref); /* the caller holds one, too */
	}
	d->parent = newdir;
	d->name = name;
	d->namelen = len;
	d->hash = hash;
	hash_locked(d);
}

void d_move(struct dentry *d, struct dentry *newdir, const struct qname *q)
{
	char *name = kstrndup(q->s, q->len);

	dentry_get(newdir);
	mutex_lock(&dcache_mu);
	struct dentry *oldparent = d->parent, *other = d_find_locked(newdir, q);
	char *oldname = d->name;

	if (other)
		unhash_locked(other);
	rename_locked(d, newdir, name, q->len, q->hash);
	mutex_unlock(&dcache_mu);
	free(oldname);
	dentry_put(oldparent);
	dentry_put(other);
}

void d_exchange(struct dentry *a, struct dentry *b)
{
	AUTO_LOCK(&dcache_mu);
	struct dentry *pa = a->parent, *pb = b->parent;
	char *na = a->name, *nb = b->name;
	uint32_t la = a->namelen, lb = b->namelen, ha = a->hash, hb = b->hash;

	rename_locked(a, pb, nb, lb, hb);
	rename_locked(b, pa, na, la, ha);
}

bool d_is_ancestor(struct dentry *a, struct dentry *d)
{
	AUTO_LOCK(&dcache_mu);
	for (; d; d = d->parent)
		if (d == a)
			return true;
	return false;
}

bool d_restore(struct dentry *d)
{
	struct qname q = { d->name, d->namelen, d->hash };
	AUTO_LOCK(&dcache_mu);

	if (d_find_locked(d->parent, &q))
		return false;
	hash_locked(d);
	return true;
}

struct dentry *d_find_alias(struct inode *inode)
{
	struct dentry *d;
	AUTO_LOCK(&dcache_mu);

	list_for_each(d, &lru, lru)
		if (dentry_inode(d) == inode)
			return dentry_get(d);
	return NULL;
}
