// SPDX-License-Identifier: Apache-2.0
/*
 * Saving tmpfs and the writable layer: instances, and inodes with what they hold. The bytes of files go by
 * tm_data_state().
 *
 * Of the image's files only those are saved that the guest has met (an inode was made) or removed (a
 * whiteout): a directory of the image is incomplete again when loaded, and what isn't noted in it comes from
 * the image once more, with the same numbers (lower.c). The places of such names in a listing matter only to
 * who is reading it: an open directory saves them.
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/overlay/overlay.h"
#include "sentry/fs/tmpfs/priv.h"
#include "sentry/kernel/kmem.h"
#include "sentry/vfs/vfs_state.h"

#define ENTRIES_MAX (16u << 20)
#define XATTRS_MAX (TM_XATTR_TOTAL_MAX / 2)
#define ALL_SEALS 0x3fu

/* ---- instances ---- */

static void *super_alloc(struct state *s)
{
	struct tm_super *ts = kzalloc(sizeof(*ts));

	(void)s;
	super_init(&ts->sb, &tm_super_ops, &overlay_fs_type, 0, 0);
	return &ts->sb;
}

static void super_fields(struct state *s, void *obj)
{
	struct tm_super *ts = TM_SB(obj);
	uint64_t max_pages = ts->max_pages, max_inodes = ts->max_inodes;

	super_state_fields(s, &ts->sb);
	state_u64(s, &max_pages);
	state_u64(s, &max_inodes);
	state_u32(s, &ts->root_mode);
	state_u32(s, &ts->root_uid);
	state_u32(s, &ts->root_gid);
	state_ref(s, &state_lower, &ts->lower);
	ts->max_pages = max_pages;
	ts->max_inodes = max_inodes;
	if (state_loading(s))
		ts->on_disk = ts->sb.type == &overlay_fs_type && mfile_disk_provided();
}

/* Other file systems' types have supers of other sizes. */
static void super_finish(struct state *s, void *obj)
{
	struct super *sb = obj;

	if (sb->type != &overlay_fs_type && strcmp(sb->type->name, "tmpfs") != 0 &&
	    strcmp(sb->type->name, "devtmpfs") != 0)
		state_fail(s, "a %s that is a tmpfs", sb->type->name);
}

const struct state_type state_super_tmpfs = {
	.id = STATE_SUPER_TMPFS,
	.version = 1,
	.name = "tmpfs",
	.alloc = super_alloc,
	.fields = super_fields,
	.finish = super_finish,
	.get = super_state_get,
	.put = super_state_put,
	.phase = 1,
};

/* ---- directories ---- */

/*
 * What the guest has only looked at needn't be saved: an inode of the image with nothing of its own (but an
 * access time, which is the image's again then), and a directory in which all is so. Such an inode is saved
 * only when something else refers to it, so that `find /` doesn't make images large. The first inode of an
 * instance that is saved has the whole tree looked through, bottom up.
 */
static unsigned epoch = 1;

void tm_save_begin(void)
{
	epoch++;
}

static bool pristine(const struct tm_inode *ti)
{
	if (!ti->lower || lower_is_linked(ti->lower) || ti->i.version != 1 ||
	    atomic_load(&ti->i.marks))
		return false;
	return !ti->file ||
	       (!ti->file->npages && ti->file->lower_end == ti->lower->attr.size);
}

/* A directory on the way down: a stack of its own, as trees are as deep as a guest likes. */
struct frame {
	struct tm_inode *ti;
	struct tm_entry *next;
	bool keep;
};

struct walk {
	struct frame *v;
	size_t n, size;
};

static void push(struct walk *w, struct tm_inode *dir)
{
	if (w->n == w->size) {
		w->size = w->size ? 2 * w->size : 64;
		w->v = krealloc_array(w->v, w->size, sizeof(*w->v));
	}
	w->v[w->n++] = (struct frame){ dir, dir->dir->hash, !pristine(dir) };
}

static void pop(struct walk *w)
{
	struct frame f = w->v[--w->n];

	if (!f.keep)
		f.ti->skip_epoch = epoch;
	else if (w->n)
		w->v[w->n - 1].keep = true;
}

static void look_through(struct tm_super *ts)
{
	struct inode *root = ts->sb.root ? dentry_inode(ts->sb.root) : NULL;
	struct walk w = { 0 };

	if (ts->marked_epoch == epoch)
		return;
	ts->marked_epoch = epoch;
	if (!ts->lower || !root)
		return;
	push(&w, TM(root));
	while (w.n) {
		struct frame *f = &w.v[w.n - 1];
		struct tm_entry *e = f->next;
		struct tm_inode *ti = e && e->inode ? TM(e->inode) : NULL;

		if (!e) {
			pop(&w);
			continue;
		}
		f->next = e->hh.next;
		if (ti && ti->dir)
			push(&w, ti);
		else if (ti && pristine(ti))
			ti->skip_epoch = epoch;
		else if (ti || e->in_lower == !e->lower)
			f->keep = true;
	}
	free(w.v);
}

static bool entry_saved(const struct tm_entry *e)
{
	return e->inode || (e->in_lower && !e->lower);
}

static void entry_fields(struct state *s, struct tm_dir *d, struct tm_entry *e)
{
	char name[NAME_MAX_G + 1];
	uint64_t seq = e ? e->seq : 0;
	struct inode *inode = e ? e->inode : NULL;
	bool in_lower = e && e->in_lower, weak = false;

	state_str(s, e ? e->name : name, sizeof(name));
	state_u64(s, &seq);
	state_bool(s, &in_lower);
	if (!state_loading(s))
		weak = inode && TM(inode)->skip_epoch == epoch;
	state_bool(s, &weak);
	if (weak) {
		state_weak(s, &state_inode_tmpfs, &inode);
		if (state_loading(s) && inode)
			inode_get(inode);
	} else {
		state_ref(s, &state_inode_tmpfs, &inode);
	}
	if (!state_loading(s) || !state_ok(s) || (weak && !inode))
		return;
	if (!gofer_name_ok(name) || tm_entry_find(d, name) || !inode != !seq ||
	    (seq && (seq < 2 || seq >= d->next_seq))) {
		state_fail(s, "impossible entry \"%s\"", name);
		return;
	}
	e = tm_entry_new(d, name);
	e->inode = inode;
	e->in_lower = in_lower;
	e->seq = seq;
	if (!in_lower) {
		e->charged = true;
		kmem_add(sizeof(*e) + strlen(name) + 1);
	}
	if (!seq)
		return;
	d->count++;
	if (RB_INSERT(tm_entries, &d->tree, e))
		state_fail(s, "two entries in one place");
}

static void dir_fields(struct state *s, struct tm_inode *ti)
{
	struct tm_dir *d = ti->dir;
	struct tm_entry *e, *tmp;
	uint32_t n = 0;

	state_u64(s, &d->next_seq);
	state_weak(s, &state_inode_tmpfs, &d->parent);
	HASH_ITER(hh, d->hash, e, tmp)
		n += entry_saved(e);
	n = state_count(s, n, ENTRIES_MAX);
	for (; state_loading(s) && n && state_ok(s); n--)
		entry_fields(s, d, NULL);
	if (state_loading(s))
		return;
	HASH_ITER(hh, d->hash, e, tmp)
		if (entry_saved(e))
			entry_fields(s, d, e);
}

/* ---- other parts ---- */

static void xattr_fields(struct state *s, struct tm_inode *ti, struct tm_xattr *x)
{
	char name[256] = "";
	void *value = x ? x->value : NULL;
	size_t size = x ? x->size : 0;

	if (x && strlen(x->name) < sizeof(name))
		memcpy(name, x->name, strlen(x->name) + 1);
	state_str(s, name, sizeof(name));
	state_blob(s, &value, &size, TM_XATTR_TOTAL_MAX);
	if (!state_loading(s))
		return;
	tm_xattr_add(ti, name, value, size);
	free(value);
}

static void xattrs_fields(struct state *s, struct tm_inode *ti)
{
	struct tm_xattr *x;
	uint32_t n = 0;

	state_bool(s, &ti->xattrs_loaded);
	for (x = ti->xattrs; x; x = x->next)
		n++;
	n = state_count(s, n, XATTRS_MAX);
	for (; state_loading(s) && n && state_ok(s); n--)
		xattr_fields(s, ti, NULL);
	for (x = state_loading(s) ? NULL : ti->xattrs; x; x = x->next)
		xattr_fields(s, ti, x);
}

static void file_fields(struct state *s, struct tm_file *f)
{
	uint32_t seals = f->seals;

	state_u32(s, &seals);
	state_u64(s, &f->lower_end);
	state_bool(s, &f->ahead);
	f->seals = seals & ALL_SEALS;
	if (f->lower_end && (!f->ti->lower || f->lower_end > INT64_MAX))
		state_fail(s, "bytes of the image in a file that isn't there");
	tm_data_state(s, f);
}

/* Counted against the limits again. */
static void charge(struct tm_inode *ti, bool charged)
{
	atomic_fetch_add(&TM_SB(ti->i.sb)->used_inodes, 1);
	ti->heap = charged ? KMEM_INODE + (ti->target ? strlen(ti->target) : 0) : 0;
	kmem_add(ti->heap);
}

/* ---- inodes ---- */

static void *inode_alloc(struct state *s)
{
	(void)s;
	return &tm_inode_alloc()->i;
}

static void inode_fields(struct state *s, void *obj)
{
	struct tm_inode *ti = TM(obj);
	bool charged = ti->heap;

	if (!state_loading(s))
		look_through(TM_SB(ti->i.sb));
	inode_state_fields(s, &ti->i);
	state_ref(s, &state_super_tmpfs, &ti->i.sb);
	state_ref(s, &state_lower, &ti->lower);
	state_heap_str(s, &ti->target, PATH_MAX_G);
	state_bool(s, &charged);
	if (state_loading(s)) {
		if (!ti->i.sb || (S_ISLNK(ti->i.mode) && !ti->target && !ti->lower)) {
			state_fail(s, "impossible inode");
			return;
		}
		charge(ti, charged);
		tm_inode_set_type(ti);
	}
	xattrs_fields(s, ti);
	if (ti->dir)
		dir_fields(s, ti);
	if (ti->file)
		file_fields(s, ti->file);
}

/* A file of the image is still what its inode says. */
static void inode_finish(struct state *s, void *obj)
{
	struct tm_inode *ti = TM(obj);

	if (ti->lower && ((ti->lower->attr.mode ^ ti->i.mode) & S_IFMT))
		state_fail(s, "inode of another kind than its image's file");
	if (!ti->lower && !ti->xattrs_loaded)
		state_fail(s, "attributes of no image");
	if (ti->dir && ti->dir->parent && !TM(ti->dir->parent)->dir)
		state_fail(s, "directory in what is none");
}

const struct state_type state_inode_tmpfs = {
	.id = STATE_INODE_TMPFS,
	.version = 1,
	.name = "inode on tmpfs",
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
	if (file_state_on(s, f, &state_inode_tmpfs) && !S_ISREG(f->inode->mode))
		state_fail(s, "a regular file on what is none");
}

const struct file_state file_state_tmpfs = {
	.id = FILE_TMPFS,
	.ops = &tm_file_fops,
	.finish = file_finish,
};

/* Places of a directory's names that come from the image, for who is in the middle of a listing. */
struct places {
	uint32_t n;
	struct place {
		char *name;
		uint64_t seq;
	} *v;
};

static bool placed(const struct tm_entry *e)
{
	return e->lower && e->seq;
}

static void save_places(struct state *s, struct file *f)
{
	struct tm_dir *d = TM(f->inode)->dir;
	struct tm_entry *e, *tmp;
	uint32_t n = 0;

	if (f->pos > 2)
		HASH_ITER(hh, d->hash, e, tmp)
			n += placed(e);
	n = state_count(s, n, ENTRIES_MAX);
	if (!n)
		return;
	HASH_ITER(hh, d->hash, e, tmp) {
		char *name = e->name;

		if (!placed(e))
			continue;
		state_heap_str(s, &name, NAME_MAX_G);
		state_u64(s, &e->seq);
	}
}

static void dir_file_fields(struct state *s, struct file *f)
{
	struct places *p;

	if (!state_loading(s)) {
		save_places(s, f);
		return;
	}
	p = kzalloc(sizeof(*p));
	f->priv = p;
	p->n = state_count(s, 0, ENTRIES_MAX);
	for (uint32_t i = 0; i < p->n && state_ok(s); i++) {
		/* The count is only a claim until the bytes are there. */
		if ((i & (i - 1)) == 0)
			p->v = krealloc_array(p->v, i ? 2 * (size_t)i : 1, sizeof(*p->v));
		p->v[i] = (struct place){ 0 };
		state_heap_str(s, &p->v[i].name, NAME_MAX_G);
		state_u64(s, &p->v[i].seq);
	}
}

/* Gives a name from the image the place it had. */
static void put_in_place(struct tm_dir *d, const struct place *pl)
{
	struct tm_entry *e = pl->name ? tm_entry_find(d, pl->name) : NULL;
	uint64_t seq;

	if (!e || !placed(e) || pl->seq < 2 || pl->seq >= d->next_seq)
		return;
	RB_REMOVE(tm_entries, &d->tree, e);
	seq = e->seq;
	e->seq = pl->seq;
	if (RB_INSERT(tm_entries, &d->tree, e)) { /* taken: stays where it is */
		e->seq = seq;
		RB_INSERT(tm_entries, &d->tree, e);
	}
}

static void dir_file_finish(struct state *s, struct file *f)
{
	struct places *p = steal_ptr(&f->priv);
	int err = 0;

	if (!file_state_on(s, f, &state_inode_tmpfs))
		return;
	if (!S_ISDIR(f->inode->mode)) {
		state_fail(s, "listing of what is no directory");
		return;
	}
	if (p->n)
		err = tm_dir_complete(TM(f->inode));
	for (uint32_t i = 0; i < p->n; i++) {
		if (!err)
			put_in_place(TM(f->inode)->dir, &p->v[i]);
		free(p->v[i].name);
	}
	free(p->v);
	free(p);
	if (err)
		state_fail(s, "a directory of the image can't be read: %s", strerror(-err));
}

const struct file_state file_state_tmpfs_dir = {
	.id = FILE_TMPFS_DIR,
	.ops = &tm_dir_fops,
	.fields = dir_file_fields,
	.finish = dir_file_finish,
};
