// SPDX-License-Identifier: Apache-2.0
/* inotify(7): what the system calls need beside the notify_* calls of vfs.h. */
#ifndef SENTRY_VFS_NOTIFY_H
#define SENTRY_VFS_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

struct task;
struct file;
struct inode;
struct files;

#define INOTIFY_MAX_EVENTS 16384    /* fs.inotify.max_queued_events */
#define INOTIFY_MAX_INSTANCES 128   /* fs.inotify.max_user_instances */
#define INOTIFY_MAX_WATCHES 65536   /* fs.inotify.max_user_watches */

/* In masks of the kernel only: a rename within one directory, which dnotify tells apart. No IN_* has this bit. */
#define NOTIFY_DN_RENAME 0x08000000u

void notify_init(void);
/* inotify_init1(2) without the descriptor: err_ptr(-EMFILE) over the user's limit. */
struct file *inotify_create(struct task *t, unsigned flags);
bool file_is_inotify(const struct file *f);
/* wd or -errno. */
int inotify_add(struct file *f, struct inode *inode, uint32_t mask);
int inotify_remove(struct file *f, int wd);
void notify_inode(struct inode *inode, uint32_t mask);
/* Ties the two halves of a rename together. */
uint32_t notify_next_cookie(void);
/* fcntl(2) F_NOTIFY through descriptor @fd of @fs; a @mask without events ends it. -ENOTDIR. */
int dnotify_set(struct file *f, struct files *fs, int fd, unsigned mask);
/* A descriptor of @fs for @f was closed. */
void dnotify_file_closed(struct file *f, struct files *fs);
/* Is anything watched at all? The one test on hot paths. */
extern _Atomic unsigned notify_nwatches;

#endif
