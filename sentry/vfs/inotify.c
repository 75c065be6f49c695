// SPDX-License-Identifier: Apache-2.0
/*
 * inotify(7): watches, and the events that the VFS tells them. The descriptor's own operations are in
 * inotify_file.c.
 *
 * A watch holds a reference on its inode, and is listed both there and in its instance. One lock,
 * notify_mu, guards marks and queues: events are rare, and an event has to reach a consistent set of
 * instances. With no watch in the sandbox every notify_ call is one load and a branch.
 *
 * A watcher of a directory hears of its children by name. The parent is found through the dentry,
 * that is, through the name by which the file was opened or changed, as in Linux.
 *
 * Lock order: dcache_mu is released before notify_mu (RANK_NOTIFY) is taken; > waitq.mu.
 */
#include "base/alloc.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>

#include "sentry/vfs/inotify_priv.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

struct mutex notify_mu;
_Atomic unsigned notify_nwatches;
static _Atomic uint32_t next_cookie = 1;

void notify_init(void)
{
	mutex_init(&notify_mu, RANK_NOTIFY);
}

uint32_t notify_next_cookie(void)
{
	return atomic_fetch_add(&next_cookie, 1);
}

void inotify_state_globals(struct state *s)
{
	uint32_t cookie = next_cookie;

	state_u32(s, &cookie);
	next_cookie = cookie;
}

static struct notify_marks *marks_of(struct inode *inode)
{
	return atomic_load_explicit(&inode->marks, memory_order_acquire);
}

struct notify_marks *marks_make_locked(struct inode *inode)
{
	struct notify_marks *m = marks_of(inode);

	mutex_assert_held(&notify_mu);
	if (!m) {
		m = kzalloc(sizeof(*m));
		list_init(&m->watches);
		list_init(&m->dnotify);
		atomic_store_explicit(&inode->marks, m, memory_order_release);
	}
	return m;
}

void marks_trim_locked(struct inode *inode)
{
	struct notify_marks *m = marks_of(inode);

	mutex_assert_held(&notify_mu);
	if (list_empty(&m->watches) && list_empty(&m->dnotify)) {
		atomic_store_explicit(&inode->marks, NULL, memory_order_release);
		free(m);
	}
}

/* ---------------------------------------------------------------- queue */

struct ievent *ievent_new(int wd, uint32_t mask, uint32_t cookie, const char *name)
{
	size_t len = name ? strlen(name) : 0;
	struct ievent *e = kzalloc(sizeof(*e) + len + 1);

	e->wd = wd;
	e->mask = mask;
	e->cookie = cookie;
	e->len = (uint32_t)len;
	if (len)
		memcpy(e->name, name, len);
	return e;
}

static bool same_event(const struct ievent *e, int wd, uint32_t mask, uint32_t cookie,
		       const char *name)
{
	return e->wd == wd && e->mask == mask && e->cookie == cookie &&
	       strcmp(e->name, name ? name : "") == 0;
}

void inotify_queue_locked(struct inotify *in, int wd, uint32_t mask, uint32_t cookie,
			  const char *name)
{
	mutex_assert_held(&notify_mu);
	if (!list_empty(&in->events)) {
		struct ievent *tail = list_last(&in->events, struct ievent, node);

		if (same_event(tail, wd, mask, cookie, name) || (tail->mask & IN_Q_OVERFLOW))
			return;
	}
	if (in->nevents >= INOTIFY_MAX_EVENTS) {
		wd = -1;
		mask = IN_Q_OVERFLOW;
		cookie = 0;
		name = NULL;
	}
	struct ievent *e = ievent_new(wd, mask, cookie, name);
	list_add_tail(&in->events, &e->node);
	in->nevents++;
	in->bytes += ievent_size(e);
	waitq_wake(&in->wq, EPOLLIN | EPOLLRDNORM);
	if (in->file)
		file_fasync(in->file, EPOLLIN);
}

/* The watch is gone: IN_IGNORED. The inode's reference goes to the caller. */
struct inode *watch_remove_locked(struct watch *w, bool tell)
{
	struct inode *inode = w->inode;

	mutex_assert_held(&notify_mu);
	if (tell)
		inotify_queue_locked(w->in, w->wd, IN_IGNORED, 0, NULL);
	list_del(&w->inode_node);
	HASH_DEL(w->in->watches, w);
	atomic_fetch_sub(&notify_nwatches, 1);
	marks_trim_locked(inode);
	free(w);
	return inode;
}

/* ---------------------------------------------------------------- events */

/* To each watcher of @inode. @child: an event of a directory's entry @name (excl: it is unlinked). */
static void tell_locked(struct inode *inode, uint32_t mask, uint32_t cookie, const char *name,
			bool excl, struct list *oneshot)
{
	struct notify_marks *m = marks_of(inode);
	struct watch *w, *tmp;
	uint32_t extra = mask & IN_ISDIR, what = mask & IN_ALL_EVENTS;

	if (!m)
		return;
	/* inotify never told that the object itself is a directory (Linux keeps it so for its users). */
	if (what & (IN_MOVE_SELF | IN_DELETE_SELF))
		extra = 0;
	list_for_each_safe(w, tmp, &m->watches, inode_node) {
		if (!(w->mask & what))
			continue;
		if (excl && name && (w->mask & IN_EXCL_UNLINK))
			continue;
		inotify_queue_locked(w->in, w->wd, (w->mask & what) | extra, cookie, name);
		if (w->mask & IN_ONESHOT)
			list_add_tail(oneshot, &w->oneshot_node);
	}
	dnotify_tell_locked(m, mask & (IN_ALL_EVENTS | NOTIFY_DN_RENAME));
}

static void tell(struct inode *inode, uint32_t mask, uint32_t cookie, const char *name, bool excl)
{
	struct inode *gone[ONESHOT_BATCH];
	struct list oneshot = LIST_INIT(oneshot);
	unsigned n = 0;

	if (!marks_of(inode))
		return;
	mutex_lock(&notify_mu);
	tell_locked(inode, mask, cookie, name, excl, &oneshot);
	while (!list_empty(&oneshot) && n < ONESHOT_BATCH) {
		struct watch *w = list_first(&oneshot, struct watch, oneshot_node);

		list_del(&w->oneshot_node);
		gone[n++] = watch_remove_locked(w, true);
	}
	/* More than a batch: the rest stays for one more event. */
	while (!list_empty(&oneshot))
		list_del(oneshot.next);
	if (marks_of(inode))
		marks_trim_locked(inode); /* a dnotify request may have been the last mark */
	mutex_unlock(&notify_mu);
	while (n)
		inode_put(gone[--n]);
}

void notify_dir(struct inode *dir, const char *name, uint32_t mask, uint32_t cookie, bool isdir)
{
	if (likely(!atomic_load_explicit(&notify_nwatches, memory_order_relaxed)))
		return;
	tell(dir, mask | (isdir ? IN_ISDIR : 0), cookie, name, false);
}

static void tell_dentry(struct dentry *d, uint32_t mask)
{
	struct inode *inode = dentry_inode(d), *dir = NULL;
	char name[NAME_MAX_G + 1] = "";
	struct dentry *parent = NULL;
	bool excl = false;

	if (!inode || !mask)
		return;
	if (S_ISDIR(inode->mode))
		mask |= IN_ISDIR;
	mutex_lock(&dcache_mu);
	if (d->parent && marks_of(dentry_inode(d->parent))) {
		parent = dentry_get(d->parent);
		memcpy(name, d->name, d->namelen);
		name[d->namelen] = '\0';
		excl = d_unlinked(d);
	}
	mutex_unlock(&dcache_mu);
	if (parent) {
		dir = dentry_inode(parent);
		tell(dir, mask, 0, name, excl);
	}
	tell(inode, mask, 0, NULL, false);
	dentry_put(parent);
}

void notify_path(const struct path *p, uint32_t mask)
{
	if (likely(!atomic_load_explicit(&notify_nwatches, memory_order_relaxed)))
		return;
	tell_dentry(p->dentry, mask);
}

void notify_file(struct file *f, uint32_t mask)
{
	if (likely(!atomic_load_explicit(&notify_nwatches, memory_order_relaxed)))
		return;
	if (f->path.dentry && !(f->fmode & FMODE_PATH))
		tell_dentry(f->path.dentry, mask);
}

/* To @inode's own watchers only: link counts, IN_MOVE_SELF. */
void notify_inode(struct inode *inode, uint32_t mask)
{
	if (likely(!atomic_load_explicit(&notify_nwatches, memory_order_relaxed)))
		return;
	tell(inode, mask | (S_ISDIR(inode->mode) ? IN_ISDIR : 0), 0, NULL, false);
}

/* The last name and the last user are gone: IN_DELETE_SELF, IN_IGNORED. */
void notify_inode_gone(struct inode *inode)
{
	if (likely(!marks_of(inode)))
		return;
	tell(inode, IN_DELETE_SELF | (S_ISDIR(inode->mode) ? IN_ISDIR : 0), 0, NULL, false);
	for (;;) {
		struct notify_marks *m;

		mutex_lock(&notify_mu);
		m = marks_of(inode);
		if (m && list_empty(&m->watches))
			m = NULL; /* dnotify's end with their file */
		if (m)
			watch_remove_locked(list_first(&m->watches, struct watch, inode_node), true);
		mutex_unlock(&notify_mu);
		if (!m)
			return;
		inode_put(inode); /* the caller still holds one */
	}
}
