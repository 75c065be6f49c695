// SPDX-License-Identifier: Apache-2.0
/*
 * Saving and loading of what the VFS knows (sentry/state/state.h). Whoever adds
 *
 *   a file system   names a state_type in its super_ops and inode_ops (.state), and lists both in
 *                   super_state.c and inode_state.c
 *   a kind of file  names a file_state in its file_ops (.state), and lists it in FILE_STATES below
 *
 * One without makes saving fail with its name as long as it is in use, and tests/unit/vfs/test_state.c fail
 * for ever.
 *
 * What is saved and what is looked up again:
 *   tmpfs, writable layer  whole trees: every inode that the guest made or changed
 *   the image's files      by their path in the image (lower_state.c); compared when they are used again
 *   bind mounts            what is in use: by path below the attach point, compared at once
 *   proc, sys, cgroup      what is in use: by the name of its table entry
 *   names (dentries)       those in use, with their parents; all others are a cache
 */
#ifndef SENTRY_VFS_VFS_STATE_H
#define SENTRY_VFS_VFS_STATE_H

#include <stdint.h>

#include "sentry/state/state.h"
#include "sentry/vfs/vfs.h"

/* Any super, inode or socket behind a pointer to its common part. */
extern const struct state_class state_super_class, state_inode_class, state_socket_class;

/* How f->priv of one kind of file is saved. */
struct file_state {
	uint16_t id;                    /* in images: never reuse one */
	const struct file_ops *ops;
	/* Both directions; NULL: there is nothing. @f's common fields are read already, but what they point
	 * to may be empty still. */
	void (*fields)(struct state *s, struct file *f);
	/* Loading, phase 4: inodes have all of their state. May be NULL. */
	void (*finish)(struct state *s, struct file *f);
};

#define FILE_STATES(X)                                                                   \
	X(path) X(anon_inode) X(tmpfs) X(tmpfs_dir) X(gofer) X(gofer_dir) X(pfs) X(pfs_dir)  \
	X(proc_mem) X(proc_pagemap) X(proc_mounts) X(pipe) X(socket) X(epoll) X(eventfd)     \
	X(signalfd) X(timerfd) X(inotify) X(pidfd) X(ns) X(null) X(zero) X(full) X(random)   \
	X(kmsg) X(devpts_root) X(tty_master) X(tty_slave) X(mqueue) X(mqueue_root) X(host)   \
	X(host_regular) X(proc_generation) X(proc_snapshot)
#define FILE_STATE_DECLARE(name) extern const struct file_state file_state_##name;
FILE_STATES(FILE_STATE_DECLARE)

enum file_state_id {
	FILE_NONE = 0,
	FILE_PATH = 1,
	FILE_ANON_INODE,
	FILE_TMPFS,
	FILE_TMPFS_DIR,
	FILE_GOFER,
	FILE_GOFER_DIR,
	FILE_PFS,
	FILE_PFS_DIR,
	FILE_PROC_MEM,
	FILE_PROC_PAGEMAP,
	FILE_PROC_MOUNTS,
	FILE_PIPE,
	FILE_SOCKET,
	FILE_EPOLL,
	FILE_EVENTFD,
	FILE_SIGNALFD,
	FILE_TIMERFD,
	FILE_INOTIFY,
	FILE_PIDFD,
	FILE_NS,
	FILE_NULL,
	FILE_ZERO,
	FILE_FULL,
	FILE_RANDOM,
	FILE_KMSG,
	FILE_DEVPTS_ROOT,
	FILE_TTY_MASTER,
	FILE_TTY_SLAVE,
	FILE_MQUEUE,
	FILE_MQUEUE_ROOT,
	FILE_HOST,
	FILE_HOST_REGULAR,
	FILE_PROC_GENERATION,
	FILE_PROC_SNAPSHOT,
};

/* ---- for the types ---- */

/* Owning references on both halves. */
void state_path(struct state *s, struct path *p);
/* Attributes, locks, F_NOTIFY requests, the pipe of a FIFO. Not: super, operations, size of what is mapped. */
void inode_state_fields(struct state *s, struct inode *inode);
/* Type by name, flags, source, st_dev, root. */
void super_state_fields(struct state *s, struct super *sb);
/* Things for state_type.get and put of supers and inodes. */
void *super_state_get(void *sb);
void super_state_put(void *sb);
void *inode_state_get(void *inode);
void inode_state_put(void *inode);

/* For a finish(): is @f open on an inode of @type? Else the load has failed. */
bool file_state_on(struct state *s, const struct file *f, const struct state_type *type);

/* Parts of inode_state_fields(), beside their objects. */
void locks_state_fields(struct state *s, struct inode *inode);
void dnotify_state_fields(struct state *s, struct inode *inode);
void pipe_state_fields(struct state *s, struct inode *inode);

/* Parts of state_vfs: what there is once, beside its objects. */
void inode_state_globals(struct state *s);
void super_state_globals(struct state *s);
void mount_state_globals(struct state *s);
void inotify_state_globals(struct state *s);
void eventfd_state_globals(struct state *s);
void kmsg_state_globals(struct state *s);
void tmpfs_state_globals(struct state *s);
void mqueue_state_globals(struct state *s);

/* The one object of type state_vfs. */
struct vfs_globals;
extern struct vfs_globals vfs_globals;

#endif
