// SPDX-License-Identifier: Apache-2.0
/* Shared by epoll.c (interest list, events) and epoll_nest.c (epolls that watch epolls). */
#ifndef SENTRY_FS_EPOLL_EPOLL_PRIV_H
#define SENTRY_FS_EPOLL_EPOLL_PRIV_H

#include <uthash.h>

#include "base/mutex.h"
#include "sentry/fs/epoll/epoll.h"
#include "sentry/kernel/waitq.h"
#include "sentry/vfs/vfs.h"

struct epkey {
	struct file *file;
	uint64_t fd;
};

/*
 * One interest. It holds no reference on the file: epoll_file_released() removes it.
 * Field key: (m) ep->mu   (r) ep->ready_mu   (f) file->ep_mu   (c) const
 */
struct epitem {
	struct epkey key;        /* (c) */
	UT_hash_handle hh;       /* (m) */
	struct epoll *ep;        /* (c) */
	struct waitq *wq;        /* (c) the file's; NULL: never changes */
	struct waiter w;         /* mask under wq->mu */
	uint32_t events;         /* (m) as given, EPOLLERR and EPOLLHUP added */
	uint64_t data;           /* (m) */
	struct list ready_node;  /* (r) */
	bool queued;             /* (r) */
	struct list file_node;   /* (f) in file->ep_items */
};

struct epoll {
	struct mutex mu;         /* RANK_EPOLL */
	struct epitem *items;    /* (m) hash by key */
	struct mutex ready_mu;   /* RANK_EPOLL_READY */
	struct list ready;       /* (r) of epitem.ready_node, oldest first */
	struct waitq wq;         /* who waits for us: epoll_wait, poll, outer epolls */
	struct file *file;       /* (c) borrowed */
	uint64_t mark_down, mark_up; /* (tree mutex) visited by this walk */
	int depth_down, depth_up;    /* (tree mutex) what it found */
	struct epoll_box *loading;   /* while a saved one is read (epoll_state.c) */
};

extern struct mutex epoll_tree_mu; /* RANK_EPOLL_TREE: nesting, and destruction of files and epolls */

extern const struct file_ops epoll_fops;
struct epoll *epoll_alloc(void);
/* Adds an interest in @tf, @events as in epitem. NULL: too many in the sandbox. Context: ep->mu. */
struct epitem *epitem_add_locked(struct epoll *ep, struct file *tf, uint64_t fd, uint32_t events,
				 uint64_t data);
/* Onto the ready list. False: it is there. */
bool epitem_enqueue(struct epoll *ep, struct epitem *it);
/* NULL when @f isn't an epoll. */
struct epoll *epoll_of_file(const struct file *f);
/* May @ep come to watch @inner? 0 or -ELOOP. Context: epoll_tree_mu. */
int epoll_nest_check_locked(struct epoll *ep, struct epoll *inner);

#endif
