// SPDX-License-Identifier: Apache-2.0
/*
 * Saving epolls. No event may be lost, and none made up for edge-triggered interests: so the ready list is
 * saved with its order. Level-triggered interests all join it when loading, behind; those that aren't
 * ready leave it when events are collected.
 *
 * Interests are tied to their files' wait queues last (phase 5), when every file is whole.
 */
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/fs/epoll/epoll_priv.h"
#include "sentry/vfs/vfs_state.h"

/* An interest that was read, until phase 5. */
struct loaded_item {
	struct file *file;
	uint64_t fd, data;
	uint32_t events;
	bool queued;
};

/* An epoll as an object of its own: it has to be finished after all files. */
struct epoll_box {
	struct loaded_item *items;
	uint32_t n;
};

static void item_fields(struct state *s, struct loaded_item *li)
{
	state_weak(s, &state_file, &li->file);
	state_u64(s, &li->fd);
	state_u32(s, &li->events);
	state_u64(s, &li->data);
	state_bool(s, &li->queued);
}

static void save_item(struct state *s, const struct epitem *it)
{
	struct loaded_item li = { it->key.file, it->key.fd, it->data, it->events, it->queued };

	item_fields(s, &li);
}

/* The ready ones first, in their order. */
static void save_items(struct state *s, struct epoll *ep)
{
	struct epitem *it, *tmp;

	state_count(s, HASH_COUNT(ep->items), EPOLL_MAX_WATCHES);
	list_for_each (it, &ep->ready, ready_node)
		save_item(s, it);
	HASH_ITER (hh, ep->items, it, tmp)
		if (!it->queued)
			save_item(s, it);
}

static void *epoll_state_alloc(struct state *s)
{
	struct epoll *ep = epoll_alloc();

	(void)s;
	ep->loading = kzalloc(sizeof(*ep->loading));
	return ep;
}

static void epoll_fields(struct state *s, void *obj)
{
	struct epoll *ep = obj;
	struct epoll_box *box = ep->loading;

	state_weak(s, &state_file, &ep->file);
	if (!state_loading(s)) {
		save_items(s, ep);
		return;
	}
	box->n = state_count(s, 0, EPOLL_MAX_WATCHES);
	for (uint32_t i = 0; i < box->n && state_ok(s); i++) {
		/* One by one: the count is only a claim until the bytes are there. */
		if ((i & (i - 1)) == 0)
			box->items = krealloc_array(box->items, i ? 2 * (size_t)i : 1,
						    sizeof(*box->items));
		memset(&box->items[i], 0, sizeof(*box->items));
		item_fields(s, &box->items[i]);
	}
}

static long add_loaded(struct epoll *ep, const struct loaded_item *li)
{
	struct epoll *inner = epoll_of_file(li->file);
	struct epitem *it;
	long err = 0;

	if (!li->file->ops->poll || li->file == ep->file)
		return -EINVAL;
	mutex_lock(&epoll_tree_mu);
	if (inner)
		err = epoll_nest_check_locked(ep, inner);
	mutex_lock(&ep->mu);
	it = err ? NULL : epitem_add_locked(ep, li->file, li->fd, li->events, li->data);
	if (it && (li->queued || !(li->events & EPOLLET)))
		(void)epitem_enqueue(ep, it);
	mutex_unlock(&ep->mu);
	mutex_unlock(&epoll_tree_mu);
	return it ? 0 : -EINVAL;
}

static void epoll_finish(struct state *s, void *obj)
{
	struct epoll *ep = obj;
	struct epoll_box *box = steal_ptr(&ep->loading);

	if (!ep->file)
		state_fail(s, "epoll without a file");
	for (uint32_t i = 0; i < box->n && state_ok(s); i++) {
		const struct loaded_item *li = &box->items[i];

		if (li->file && add_loaded(ep, li))
			state_fail(s, "impossible epoll interest");
	}
	free(box->items);
	free(box);
}

/* Not counted: it belongs to its one file. */
const struct state_type state_epoll = {
	.id = STATE_EPOLL,
	.version = 1,
	.name = "epoll",
	.alloc = epoll_state_alloc,
	.fields = epoll_fields,
	.finish = epoll_finish,
	.phase = 5,
};

static void epoll_file_fields(struct state *s, struct file *f)
{
	struct epoll *ep = state_loading(s) ? NULL : f->priv;

	state_ref(s, &state_epoll, &ep);
	f->priv = ep;
}

static void epoll_file_finish(struct state *s, struct file *f)
{
	struct epoll *ep = f->priv;

	if (!ep || ep->file != f)
		state_fail(s, "epoll of another file");
}

const struct file_state file_state_epoll = {
	.id = FILE_EPOLL,
	.ops = &epoll_fops,
	.fields = epoll_file_fields,
	.finish = epoll_file_finish,
};
