// SPDX-License-Identifier: Apache-2.0
/*
 * dnotify: fcntl(2) F_NOTIFY, a signal to a directory's watcher when something in it changes. Obsolete
 * since inotify, but every distribution's kernel has it, and programs probe for it.
 *
 * A request belongs to an open description and a descriptor table, as in Linux: the first close of any
 * descriptor for it in that table ends it. So it holds no reference: its file outlives it.
 *
 * Lock order: all under notify_mu (inotify.c), in which the owner's signal is sent.
 */
#include "base/alloc.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/inotify.h>

#include "sentry/vfs/inotify_priv.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs_priv.h"
#include "sentry/vfs/vfs_state.h"

struct dnotify {
	struct list node;   /* in notify_marks.dnotify */
	struct file *file;
	struct files *fs;
	int fd;             /* si_fd */
	uint32_t mask;      /* IN_* */
	bool multishot;
};

static uint32_t mask_of(unsigned dn)
{
	static const struct {
		unsigned dn;
		uint32_t in;
	} map[] = {
		{ DN_ACCESS, IN_ACCESS },
		{ DN_MODIFY, IN_MODIFY },
		{ DN_CREATE, IN_CREATE | IN_MOVED_TO },
		{ DN_DELETE, IN_DELETE | IN_MOVED_FROM },
		{ DN_RENAME, NOTIFY_DN_RENAME },
		{ DN_ATTRIB, IN_ATTRIB },
	};
	uint32_t in = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(map); i++)
		if (dn & map[i].dn)
			in |= map[i].in;
	return in;
}

static struct dnotify *find_locked(struct file *f, struct files *fs)
{
	struct notify_marks *m = atomic_load(&f->inode->marks);
	struct dnotify *dn;

	if (!m)
		return NULL;
	list_for_each(dn, &m->dnotify, node)
		if (dn->file == f && dn->fs == fs)
			return dn;
	return NULL;
}

static void end_locked(struct dnotify *dn)
{
	list_del(&dn->node);
	atomic_fetch_sub(&notify_nwatches, 1);
	free(dn);
}

static void add_locked(struct file *f, struct files *fs, int fd, unsigned mask)
{
	struct dnotify *dn = find_locked(f, fs);

	if (!dn) {
		dn = kzalloc(sizeof(*dn));
		dn->file = f;
		dn->fs = fs;
		list_add_tail(&marks_make_locked(f->inode)->dnotify, &dn->node);
		atomic_fetch_add(&notify_nwatches, 1);
	}
	dn->fd = fd;
	dn->mask |= mask_of(mask); /* man 2 fcntl: requests accumulate */
	dn->multishot = dn->multishot || (mask & (unsigned)DN_MULTISHOT);
}

int dnotify_set(struct file *f, struct files *fs, int fd, unsigned mask)
{
	if (!(mask & ~(unsigned)DN_MULTISHOT)) {
		dnotify_file_closed(f, fs);
		return 0;
	}
	if (!S_ISDIR(f->inode->mode))
		return -ENOTDIR;
	AUTO_LOCK(&notify_mu);
	if (!find_locked(f, fs) && atomic_load(&notify_nwatches) >= INOTIFY_MAX_WATCHES)
		return -ENOMEM;
	add_locked(f, fs, fd, mask);
	return 0;
}

void dnotify_file_closed(struct file *f, struct files *fs)
{
	struct dnotify *dn;

	if (likely(!atomic_load_explicit(&notify_nwatches, memory_order_relaxed)))
		return;
	if (!f->inode || !S_ISDIR(f->inode->mode))
		return;
	AUTO_LOCK(&notify_mu);
	dn = find_locked(f, fs);
	if (dn) {
		end_locked(dn);
		marks_trim_locked(f->inode);
	}
}

/* The caller trims the marks: it may have to end inotify's one-shot watches first. */
void dnotify_tell_locked(struct notify_marks *m, uint32_t mask)
{
	struct dnotify *dn, *tmp;

	mutex_assert_held(&notify_mu);
	list_for_each_safe(dn, tmp, &m->dnotify, node) {
		if (!(dn->mask & mask))
			continue;
		file_sigio(dn->file, dn->fd, POLL_MSG);
		if (!dn->multishot)
			end_locked(dn);
	}
}

/* ---- saving ---- */

static void request_fields(struct state *s, struct dnotify *dn)
{
	state_weak(s, &state_file, &dn->file);
	state_weak(s, &state_files, &dn->fs);
	state_i32(s, &dn->fd);
	state_u32(s, &dn->mask);
	state_bool(s, &dn->multishot);
}

static void load_request(struct state *s, struct inode *inode)
{
	struct dnotify *dn = kzalloc(sizeof(*dn));

	list_init(&dn->node);
	request_fields(s, dn);
	if (!dn->file || !dn->fs) {
		free(dn);
		return;
	}
	AUTO_LOCK(&notify_mu);
	list_add_tail(&marks_make_locked(inode)->dnotify, &dn->node);
	atomic_fetch_add(&notify_nwatches, 1);
}

void dnotify_state_fields(struct state *s, struct inode *inode)
{
	struct notify_marks *m = atomic_load(&inode->marks);
	struct dnotify *dn;
	uint32_t n = 0;

	if (m)
		list_for_each(dn, &m->dnotify, node)
			n++;
	n = state_count(s, n, INOTIFY_MAX_WATCHES);
	for (; state_loading(s) && n && state_ok(s); n--)
		load_request(s, inode);
	if (state_loading(s) || !m)
		return;
	list_for_each(dn, &m->dnotify, node)
		request_fields(s, dn);
}
