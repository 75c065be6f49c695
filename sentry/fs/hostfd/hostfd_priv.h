// SPDX-License-Identifier: Apache-2.0
/* A host descriptor: hostfd.c, and hostfd_state.c, which saves it. */
#ifndef SENTRY_FS_HOSTFD_HOSTFD_PRIV_H
#define SENTRY_FS_HOSTFD_HOSTFD_PRIV_H

#include "base/list.h"
#include "sentry/kernel/waitq.h"
#include "sentry/vfs/vfs.h"

/* HOST_GONE: the sandbox came back without it. Reads end of file, takes whatever is written. */
enum host_kind { HOST_FILE, HOST_PIPE, HOST_TTY, HOST_SOCK, HOST_DIR, HOST_GONE };

/* The inode holds the descriptor, so that opening /proc/self/fd/1 gets to it, too. */
struct hostfd {
	struct inode inode;
	uint64_t id;         /* (c) what the watcher's events carry */
	struct list node;    /* (table_mu) */
	uint32_t armed;      /* (table_mu) what the watcher waits for */
	int fd;              /* (c) owned */
	enum host_kind kind; /* (c) */
	unsigned group, slot; /* (c) whose stdio it is: see hostfd_label() */
	bool watchable;      /* (c) the host's epoll takes it */
	_Atomic bool nowait; /* (a) RWF_NOWAIT works */
	struct waitq wq;
};

extern const struct file_ops hostfd_fops, hostfd_regular_fops;
extern const struct inode_ops hostfd_inode_ops;

/* One without a descriptor (HOST_GONE). */
struct hostfd *hostfd_alloc(void);
/* Gives it one, which it owns from now on (also on failure). -errno of fstat. */
int hostfd_attach(struct hostfd *h, int hostfd);
/* Sets @f's operations: never fails. */
int hostfd_open(struct inode *inode, struct file *f);
/* Somebody may wait for it already: asks the host for events. */
void hostfd_arm(struct hostfd *h);

#endif
