// SPDX-License-Identifier: Apache-2.0
/*
 * Epolls that watch epolls: no cycles, and chains of at most EPOLL_MAX_NESTS + 1 (man 2 epoll_ctl,
 * ELOOP). Each walk visits an instance once (marks), so a dense graph costs no more than its size.
 *
 * Lock order: epoll_tree_mu > epoll.mu (outer before inner); epoll_tree_mu > file.ep_mu (watched
 * before watching). Recursion is bounded by the nesting limit that holds for what exists already.
 */
#include <sys/epoll.h>

#include "sentry/fs/epoll/epoll_priv.h"

static uint64_t walk; /* (tree mutex) */

/* Epolls below @ep in the longest chain, itself included; @target on the way is a cycle: a huge depth. */
static int depth_down(struct epoll *ep, const struct epoll *target)
{
	struct epitem *it, *tmp;
	int max = 0;

	if (ep == target)
		return EPOLL_MAX_NESTS * 4;
	if (ep->mark_down == walk)
		return ep->depth_down;
	mutex_lock_nested(&ep->mu);
	HASH_ITER (hh, ep->items, it, tmp) {
		struct epoll *inner = epoll_of_file(it->key.file);

		if (inner)
			max = MAX(max, depth_down(inner, target));
	}
	mutex_unlock(&ep->mu);
	ep->mark_down = walk;
	ep->depth_down = max + 1;
	return max + 1;
}

/* Epolls above @ep in the longest chain, itself included. */
static int depth_up(struct epoll *ep)
{
	struct epitem *it;
	int max = 0;

	if (ep->mark_up == walk)
		return ep->depth_up;
	mutex_lock_nested(&ep->file->ep_mu);
	list_for_each (it, &ep->file->ep_items, file_node)
		max = MAX(max, depth_up(it->ep));
	mutex_unlock(&ep->file->ep_mu);
	ep->mark_up = walk;
	ep->depth_up = max + 1;
	return max + 1;
}

int epoll_nest_check_locked(struct epoll *ep, struct epoll *inner)
{
	mutex_assert_held(&epoll_tree_mu);
	walk++;
	if (depth_up(ep) + depth_down(inner, ep) > EPOLL_MAX_NESTS + 1)
		return -ELOOP;
	return 0;
}
