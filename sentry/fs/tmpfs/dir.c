// SPDX-License-Identifier: Apache-2.0
/*
 * Directories: a hash of names, and a tree of the same entries by the order of their
 * making, whose keys are the positions that getdents shows. So a listing goes on at the
 * right place whatever was added or removed meanwhile, also with 40,000 entries.
 *
 * With a lower directory: names are looked up there one by one at first
 * (TM_LOOKUPS_BEFORE_LISTING), then its whole listing is merged in. Entries without inode
 * and lower say that there is no such name: a whiteout, or a cached miss. Once the
 * listing is merged ("complete"), no such notes are needed.
 *
 * Context of everything here: inode.mu of the directories, taken by the VFS; iterate
 * takes its own.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/tmpfs/priv.h"
#include "sentry/kernel/kmem.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs_state.h"

#define FIRST_SEQ 2      /* 0 and 1 are "." and ".." */
#define DIRENT_SIZE 20   /* what Linux's tmpfs adds to a directory's size for each entry */

static int entry_cmp(struct tm_entry *a, struct tm_entry *b)
{
	return a->seq < b->seq ? -1 : a->seq > b->seq;
}

RB_GENERATE(tm_entries, tm_entry, tree, entry_cmp)

struct tm_dir *tm_dir_create(bool complete)
{
	struct tm_dir *d = kzalloc(sizeof(*d));

	RB_INIT(&d->tree);
	d->next_seq = FIRST_SEQ;
	d->complete = complete;
	return d;
}

/* ---- entries ---- */

struct tm_entry *tm_entry_new(struct tm_dir *d, const char *name)
{
	size_t len = strlen(name);
	struct tm_entry *e = kzalloc(sizeof(*e) + len + 1);

	memcpy(e->name, name, len + 1);
	HASH_ADD_KEYPTR(hh, d->hash, e->name, len, e);
	return e;
}

static size_t entry_heap(const struct tm_entry *e)
{
	return sizeof(*e) + strlen(e->name) + 1;
}

static void entry_free(struct tm_entry *e)
{
	if (e->charged)
		kmem_uncharge(entry_heap(e));
	free(e);
}

/* A name that the guest makes. Those of the image are as many as there are: they aren't charged. */
static struct tm_entry *entry_make(struct tm_dir *d, const char *name)
{
	struct tm_entry *e = tm_entry_new(d, name);

	e->charged = true;
	kmem_add(entry_heap(e));
	return e;
}

struct tm_entry *tm_entry_find(struct tm_dir *d, const char *name)
{
	struct tm_entry *e;

	HASH_FIND(hh, d->hash, name, strlen(name), e);
	return e;
}

static bool entry_exists(const struct tm_entry *e)
{
	return e && (e->inode || e->lower);
}

/* The entry names something now: it gets a place in the listing. */
static void entry_show(struct tm_dir *d, struct tm_entry *e)
{
	if (e->seq)
		return;
	e->seq = d->next_seq++;
	d->count++;
	RB_INSERT(tm_entries, &d->tree, e);
}

static void entry_clear(struct tm_dir *d, struct tm_entry *e)
{
	if (e->seq) {
		RB_REMOVE(tm_entries, &d->tree, e);
		d->count--;
		e->seq = 0;
	}
	lower_put(e->lower);
	e->lower = NULL;
}

/* Does an entry without a file stay? As a whiteout (a saved directory starts incomplete again), or as a
 * note that there is none. */
static bool stays_negative(const struct tm_dir *d, const struct tm_entry *e)
{
	return !d->complete || e->in_lower;
}

/* The name is gone; the entry stays as a whiteout while the lower might still have one.
 * The inode's reference passes to the caller. */
static struct inode *entry_remove(struct tm_dir *d, struct tm_entry *e)
{
	struct inode *inode = steal_ptr(&e->inode);

	entry_clear(d, e);
	if (!stays_negative(d, e)) {
		HASH_DEL(d->hash, e);
		entry_free(e);
	}
	return inode;
}

/* @dir is being freed: drops its entries; subdirectories that only it held go to @drain,
 * so that the depth of a tree doesn't become the depth of a stack. */
void tm_dir_free_entries(struct tm_inode *ti, struct tm_inode **drain)
{
	struct tm_dir *d = ti->dir;
	struct tm_entry *e, *tmp;

	HASH_ITER(hh, d->hash, e, tmp) {
		bool stays = stays_negative(d, e);
		struct inode *inode = entry_remove(d, e);

		if (stays) {
			HASH_DEL(d->hash, e);
			entry_free(e);
		}
		if (!inode)
			continue;
		struct tm_inode *child = TM(inode);
		if (child->dir && ref_count(&inode->ref) == 1) {
			child->drain = *drain;
			*drain = child;
		} else {
			if (child->dir)
				child->dir->parent = NULL;
			inode_put(inode);
		}
	}
}

/* ---- merging with the lower ---- */

static void merge_one(void *arg, const char *name, struct lower *l)
{
	struct tm_dir *d = arg;

	struct tm_entry *e = tm_entry_find(d, name);

	if (e) { /* known, replaced or whited out */
		e->in_lower = true;
		lower_put(l);
		return;
	}
	e = tm_entry_new(d, name);
	e->lower = l;
	e->in_lower = true;
	entry_show(d, e);
}

/* Merges the whole lower listing in. */
int tm_dir_complete(struct tm_inode *ti)
{
	struct tm_dir *d = ti->dir;
	struct tm_entry *e, *tmp;

	if (d->complete)
		return 0;
	int err = lower_readdir(ti->lower, merge_one, d);
	if (err)
		return err;
	d->complete = true;
	HASH_ITER(hh, d->hash, e, tmp) {
		if (entry_exists(e) || e->in_lower)
			continue;
		HASH_DEL(d->hash, e);
		entry_free(e);
	}
	return 0;
}

/* The entry of @name, negative or not; NULL when there is none for sure. err_ptr. */
static struct tm_entry *dir_find(struct tm_inode *ti, const char *name)
{
	struct tm_dir *d = ti->dir;
	struct tm_entry *e = tm_entry_find(d, name);

	if (e || d->complete)
		return e;
	if (++d->misses > TM_LOOKUPS_BEFORE_LISTING) {
		int err = tm_dir_complete(ti);

		return err ? err_ptr(err) : tm_entry_find(d, name);
	}
	struct lower *l = lower_lookup(ti->lower, name);
	if (is_err(l))
		return (void *)l;
	e = tm_entry_new(d, name);
	e->lower = l;
	e->in_lower = l != NULL;
	if (l)
		entry_show(d, e);
	return e;
}

/* The inode of an existing entry, made if need be: borrowed, or err_ptr. */
static struct inode *entry_inode(struct tm_inode *dir, struct tm_entry *e)
{
	if (e->inode)
		return e->inode;
	struct inode *inode = tm_inode_from_lower(dir->i.sb, e->lower);
	if (is_err(inode))
		return inode;
	if (TM(inode)->dir)
		TM(inode)->dir->parent = &dir->i;
	e->inode = inode;
	lower_put(e->lower);
	e->lower = NULL;
	return inode;
}

struct inode *tm_lookup(struct inode *dir, const char *name)
{
	struct tm_entry *e = dir_find(TM(dir), name);

	if (is_err(e))
		return (void *)e;
	if (!entry_exists(e))
		return NULL;
	struct inode *inode = entry_inode(TM(dir), e);
	return is_err(inode) ? inode : inode_get(inode);
}

/* ---- changes ---- */

static void dir_changed(struct inode *dir, int entries)
{
	int64_t delta = entries * DIRENT_SIZE;
	uint64_t size = atomic_load(&dir->size);

	if (!TM(dir)->lower)
		atomic_store(&dir->size, size + (uint64_t)delta);
	inode_touch(dir, ATTR_MTIME);
}

/* Puts @inode (a reference is taken) under @name, which must be free. */
static int dir_insert(struct inode *dir, const char *name, struct inode *inode)
{
	struct tm_inode *ti = TM(dir);

	if (!ti->dir->parent && dir->nlink == 0)
		return -ENOENT; /* removed directory */
	struct tm_entry *e = dir_find(ti, name);
	if (is_err(e))
		return (int)ptr_err(e);
	if (entry_exists(e))
		return -EEXIST;
	if (!e)
		e = entry_make(ti->dir, name);
	e->inode = inode_get(inode);
	entry_show(ti->dir, e);
	if (TM(inode)->dir)
		TM(inode)->dir->parent = dir;
	dir_changed(dir, 1);
	return 0;
}

/* Inserts a fresh inode; its reference is returned, or dropped on failure. */
static struct inode *insert_new(struct inode *dir, const char *name, struct inode *inode)
{
	if (is_err(inode))
		return inode;
	int err = dir_insert(dir, name, inode);
	if (err) {
		inode->nlink = 0;
		inode_put(inode);
		return err_ptr(err);
	}
	return inode;
}

struct inode *tm_create(struct inode *dir, const char *name, uint32_t mode, uid_t uid, gid_t gid)
{
	return insert_new(dir, name,
			  tm_inode_create(dir->sb, (mode & 07777) | S_IFREG, 0, uid, gid));
}

struct inode *tm_mkdir(struct inode *dir, const char *name, uint32_t mode, uid_t uid, gid_t gid)
{
	struct inode *inode = insert_new(
		dir, name, tm_inode_create(dir->sb, (mode & 07777) | S_IFDIR, 0, uid, gid));

	if (!is_err(inode))
		dir->nlink++;
	return inode;
}

struct inode *tm_mknod(struct inode *dir, const char *name, uint32_t mode, dev_t rdev, uid_t uid,
		       gid_t gid)
{
	if (!(mode & S_IFMT))
		mode |= S_IFREG;
	return insert_new(dir, name, tm_inode_create(dir->sb, mode, rdev, uid, gid));
}

struct inode *tm_symlink(struct inode *dir, const char *name, const char *target, uid_t uid,
			 gid_t gid)
{
	struct inode *inode = tm_inode_create(dir->sb, S_IFLNK | 0777, 0, uid, gid);

	if (is_err(inode))
		return inode;
	TM(inode)->target = kstrdup(target);
	TM(inode)->heap += strlen(target);
	kmem_add(strlen(target));
	atomic_store(&inode->size, strlen(target));
	return insert_new(dir, name, inode);
}

struct inode *tm_tmpfile(struct inode *dir, uint32_t mode, uid_t uid, gid_t gid)
{
	struct inode *inode =
		tm_inode_create(dir->sb, (mode & 07777) | S_IFREG, 0, uid, gid);

	if (!is_err(inode))
		inode->nlink = 0;
	return inode;
}

int tm_link(struct inode *dir, const char *name, struct inode *inode)
{
	int err = kmem_full() ? -ENOSPC : dir_insert(dir, name, inode);

	if (err)
		return err;
	inode->nlink++;
	inode_touch(inode, 0);
	return 0;
}

/* Removes an existing name: the inode's reference, or err_ptr. */
static struct inode *dir_remove(struct inode *dir, const char *name, struct inode *inode)
{
	struct tm_entry *e = dir_find(TM(dir), name);

	if (is_err(e))
		return (void *)e;
	if (!entry_exists(e) || e->inode != inode)
		return err_ptr(-ENOENT); /* the VFS looked it up: it can't have changed since */
	dir_changed(dir, -1);
	return entry_remove(TM(dir)->dir, e);
}

int tm_unlink(struct inode *dir, const char *name, struct inode *inode)
{
	struct inode *old = dir_remove(dir, name, inode);

	if (is_err(old))
		return (int)ptr_err(old);
	inode_touch(inode, 0);
	tm_nlink_dec(inode);
	inode_put(old);
	return 0;
}

static int dir_empty(struct inode *dir)
{
	int err = tm_dir_complete(TM(dir));

	if (err)
		return err;
	return TM(dir)->dir->count ? -ENOTEMPTY : 0;
}

/* A directory lost its name. */
static void dir_dead(struct inode *parent, struct inode *inode)
{
	parent->nlink--;
	inode->nlink = 0;
	TM(inode)->dir->parent = NULL;
	inode_touch(inode, 0);
}

int tm_rmdir(struct inode *dir, const char *name, struct inode *inode)
{
	int err = dir_empty(inode);

	if (err)
		return err;
	struct inode *old = dir_remove(dir, name, inode);
	if (is_err(old))
		return (int)ptr_err(old);
	dir_dead(dir, inode);
	inode_put(old);
	return 0;
}

/* ---- rename ---- */

/* A directory has moved from below @from to below @to. */
static void reparent(struct inode *inode, struct inode *from, struct inode *to)
{
	if (!TM(inode)->dir)
		return;
	TM(inode)->dir->parent = to;
	if (from != to) {
		from->nlink--;
		to->nlink++;
	}
}

static int rename_exchange(struct inode *olddir, struct tm_entry *a, struct inode *newdir,
			   struct tm_entry *b)
{
	struct inode *ia = a->inode, *ib = b->inode;

	a->inode = ib;
	b->inode = ia;
	reparent(ia, olddir, newdir);
	reparent(ib, newdir, olddir);
	dir_changed(olddir, 0);
	dir_changed(newdir, 0);
	inode_touch(ia, 0);
	inode_touch(ib, 0);
	return 0;
}

/* What RENAME_WHITEOUT leaves at the old name: the device 0/0. */
static struct inode *make_whiteout(struct inode *dir)
{
	return tm_inode_create(dir->sb, S_IFCHR, 0, dir->uid, dir->gid);
}

int tm_rename(struct inode *olddir, const char *oldname, struct inode *inode, struct inode *newdir,
	      const char *newname, struct inode *victim, unsigned flags)
{
	struct inode *whiteout = NULL;
	int err = 0;

	if (!TM(newdir)->dir->parent && newdir->nlink == 0)
		return -ENOENT;
	if (victim && TM(victim)->dir && !(flags & RENAME_EXCHANGE))
		err = dir_empty(victim);
	if (err)
		return err;
	struct tm_entry *to = dir_find(TM(newdir), newname);
	if (is_err(to))
		return (int)ptr_err(to);
	/* Second: dir_find() of the same directory may free negative entries, never
	 * positive ones. */
	struct tm_entry *from = dir_find(TM(olddir), oldname);
	if (is_err(from))
		return (int)ptr_err(from);
	if (!entry_exists(from) || from->inode != inode)
		return -ENOENT;
	to = tm_entry_find(TM(newdir)->dir, newname);
	if (flags & RENAME_EXCHANGE) {
		if (!entry_exists(to) || to->inode != victim || !victim)
			return -ENOENT;
		return rename_exchange(olddir, from, newdir, to);
	}
	if (flags & RENAME_WHITEOUT) {
		whiteout = make_whiteout(olddir);
		if (is_err(whiteout))
			return (int)ptr_err(whiteout);
	}

	/* Nothing can fail any more. */
	struct inode *old = NULL;
	if (!to)
		to = entry_make(TM(newdir)->dir, newname);
	else
		old = steal_ptr(&to->inode);
	bool fresh = !to->seq;
	entry_clear(TM(newdir)->dir, to); /* a new place in the listing, as for a new file */
	to->inode = inode_get(inode);
	entry_show(TM(newdir)->dir, to);
	reparent(inode, olddir, newdir);
	if (old) {
		if (TM(old)->dir) {
			dir_dead(newdir, old);
		} else {
			inode_touch(old, 0);
			tm_nlink_dec(old);
		}
		inode_put(old);
	}
	if (whiteout) {
		inode_put(from->inode);
		from->inode = whiteout;
		dir_changed(olddir, 0);
	} else {
		inode_put(entry_remove(TM(olddir)->dir, from));
		dir_changed(olddir, -1);
	}
	dir_changed(newdir, fresh ? 1 : 0);
	inode_touch(inode, 0);
	return 0;
}

/* ---- listing ---- */

static bool emit_dots(struct inode *dir, struct dir_ctx *ctx, int64_t *pos)
{
	if (*pos == 0) {
		if (!ctx->emit(ctx, ".", 1, dir->ino, DT_DIR, 1))
			return false;
		*pos = 1;
	}
	if (*pos == 1) {
		struct inode *parent = TM(dir)->dir->parent;

		if (!ctx->emit(ctx, "..", 2, parent ? parent->ino : dir->ino, DT_DIR, FIRST_SEQ))
			return false;
		*pos = FIRST_SEQ;
	}
	return true;
}

static int tm_iterate(struct file *f, struct dir_ctx *ctx, int64_t *pos)
{
	struct inode *dir = f->inode;
	struct tm_dir *d = TM(dir)->dir;

	AUTO_LOCK(&dir->mu);
	int err = tm_dir_complete(TM(dir));
	if (err)
		return err;
	if (*pos < 0 || !emit_dots(dir, ctx, pos))
		return 0;
	struct tm_entry key = { .seq = (uint64_t)*pos };
	struct tm_entry *e;
	for (e = RB_NFIND(tm_entries, &d->tree, &key); e; e = RB_NEXT(tm_entries, &d->tree, e)) {
		uint64_t ino = e->inode ? e->inode->ino : e->lower->ino;
		uint32_t mode = e->inode ? e->inode->mode : e->lower->attr.mode;

		if (!ctx->emit(ctx, e->name, strlen(e->name), ino, (mode & S_IFMT) >> 12,
			       (int64_t)e->seq + 1))
			return 0;
		*pos = (int64_t)e->seq + 1;
	}
	return 0;
}

/* Any position is fine: iterate goes on at the next entry behind it. */
static int64_t tm_dir_llseek(struct file *f, int64_t off, int whence)
{
	int64_t pos = off;

	if (whence == SEEK_CUR && __builtin_add_overflow(f->pos, off, &pos))
		return -EOVERFLOW;
	if ((whence != SEEK_SET && whence != SEEK_CUR) || pos < 0)
		return -EINVAL;
	f->pos = pos;
	return pos;
}

static void tm_dir_release(struct file *f)
{
	(void)f;
}

static int tm_dir_fsync(struct file *f, bool datasync)
{
	(void)f, (void)datasync;
	return 0;
}

const struct file_ops tm_dir_fops = {
	.name = "tmpfs-dir",
	.release = tm_dir_release,
	.llseek = tm_dir_llseek,
	.iterate = tm_iterate,
	.fsync = tm_dir_fsync,
	.state = &file_state_tmpfs_dir,
};
