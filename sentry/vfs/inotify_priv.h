// SPDX-License-Identifier: Apache-2.0
/* Shared by inotify.c and inotify_file.c. All fields: notify_mu, unless marked (c). */
#ifndef SENTRY_VFS_INOTIFY_PRIV_H
#define SENTRY_VFS_INOTIFY_PRIV_H

#include <uthash.h>

#include "sentry/vfs/vfs.h"

#define ONESHOT_BATCH 32 /* IN_ONESHOT watches of one inode that one event ends */

struct ievent {
	struct list node;
	int wd;
	uint32_t mask, cookie, len; /* length of name without NUL */
	char name[];
};

struct inotify {
	struct file *file;      /* borrowed; NULL while being released */
	struct list events;     /* of ievent */
	unsigned nevents;
	size_t bytes;           /* FIONREAD */
	struct watch *watches;  /* by wd */
	int last_wd;
	unsigned nwatches;
	uid_t uid;              /* (c) who pays for the instance */
	struct waitq wq;
};

struct watch {
	UT_hash_handle hh;
	int wd;
	uint32_t mask;
	struct inotify *in;
	struct inode *inode;     /* reference */
	struct list inode_node;  /* in notify_marks.watches */
	struct list oneshot_node;
};

struct notify_marks {
	struct list watches; /* of watch */
	struct list dnotify; /* of struct dnotify (dnotify.c) */
};

extern struct mutex notify_mu;

/* @inode's marks, made if there are none. / Freed if nothing is left in them. */
struct notify_marks *marks_make_locked(struct inode *inode);
void marks_trim_locked(struct inode *inode);
/* To those who asked for it with F_NOTIFY. */
void dnotify_tell_locked(struct notify_marks *m, uint32_t mask);

/* As read(2) shows it: header of 16 bytes, name padded to a multiple of it with at least one NUL. */
static inline size_t ievent_size(const struct ievent *e)
{
	return 16 + (e->len ? (e->len + 16u) / 16u * 16u : 0);
}
struct ievent *ievent_new(int wd, uint32_t mask, uint32_t cookie, const char *name);
void inotify_queue_locked(struct inotify *in, int wd, uint32_t mask, uint32_t cookie,
			  const char *name);
struct inode *watch_remove_locked(struct watch *w, bool tell);

#endif
