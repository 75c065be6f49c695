// SPDX-License-Identifier: Apache-2.0
/*
 * epoll(7). An interest is keyed by (file, descriptor), and lives until it is removed or the last
 * reference of the file goes, whatever happens to the descriptor: dup'ed descriptors keep it alive, as
 * on Linux.
 *
 * A file's wake-up only puts the item on the ready list and wakes the epoll's own queue; what is really
 * ready is asked when events are collected. An item leaves the list before it is asked, so an event
 * that comes later puts it back (edge-triggered); a level-triggered one that was ready goes back to the
 * end of the list by itself, which makes it fair.
 *
 * Lock order: epoll_tree_mu > epoll.mu (outer before inner) > the files' locks > waitq.mu (the watched
 * file's, then ours, then an outer epoll's: acyclic by the nesting check) > epoll.ready_mu. Guest memory
 * is written with epoll.mu held.
 */
#include "sentry/fs/epoll/epoll.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/fs/epoll/epoll_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_state.h"

#define EP_ALWAYS (EPOLLERR | EPOLLHUP)
/* Not events: how to report them. Kept when a one-shot item is spent. */
#define EP_PRIVATE (EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE)
#define EP_EXCLUSIVE_OK \
	(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE)

struct mutex epoll_tree_mu;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic unsigned watches;


static void epoll_init_once(void)
{
	mutex_init(&epoll_tree_mu, RANK_EPOLL_TREE);
}

struct epoll *epoll_of_file(const struct file *f)
{
	return f->ops == &epoll_fops ? f->priv : NULL;
}

/* ---------------------------------------------------------------- ready list */

/*
 * Wakes who waits for the epoll: all that aren't exclusive and one exclusive waiter. waitq_wake() can't
 * serve, as this runs inside the wake-up of another wait queue (same rank). True: somebody waited.
 */
static bool wake_up(struct epoll *ep)
{
	struct waiter *w, *tmp;
	bool any = false;

	if (waitq_empty(&ep->wq))
		return false;
	mutex_lock_nested(&ep->wq.mu);
	list_for_each_safe (w, tmp, &ep->wq.waiters, node) {
		if (!(w->mask & (EPOLLIN | EPOLLRDNORM)))
			continue;
		w->wake(w, EPOLLIN | EPOLLRDNORM);
		any = true;
		if (w->exclusive)
			break;
	}
	mutex_unlock(&ep->wq.mu);
	return any;
}

bool epitem_enqueue(struct epoll *ep, struct epitem *it)
{
	AUTO_LOCK(&ep->ready_mu);
	if (it->queued)
		return false;
	it->queued = true;
	list_add_tail(&ep->ready, &it->ready_node);
	return true;
}

/* Runs under the watched file's waitq.mu. */
static void item_wake(struct waiter *w, uint32_t events)
{
	struct epitem *it = container_of(w, struct epitem, w);

	(void)events;
	epitem_enqueue(it->ep, it);
	/* EPOLLEXCLUSIVE: the event is this one's only if somebody waits for it here */
	w->took = wake_up(it->ep);
}

static bool has_ready(struct epoll *ep)
{
	AUTO_LOCK(&ep->ready_mu);
	return !list_empty(&ep->ready);
}

static uint32_t item_poll(struct epitem *it)
{
	return file_poll(it->key.file) & it->events & ~EP_PRIVATE;
}

/* ---------------------------------------------------------------- interest list */

static uint32_t wake_mask(uint32_t events)
{
	return events & ~EP_PRIVATE;
}

static struct epitem *item_find_locked(struct epoll *ep, struct file *tf, int fd)
{
	const struct epkey key = { tf, (uint64_t)fd };
	struct epitem *it;

	HASH_FIND(hh, ep->items, &key, sizeof(key), it);
	return it;
}

static void item_remove_locked(struct epoll *ep, struct epitem *it)
{
	struct file *tf = it->key.file;

	mutex_assert_held(&ep->mu);
	if (it->wq)
		waitq_remove(it->wq, &it->w);
	mutex_lock(&ep->ready_mu);
	list_del(&it->ready_node);
	mutex_unlock(&ep->ready_mu);
	mutex_lock(&tf->ep_mu);
	list_del(&it->file_node);
	mutex_unlock(&tf->ep_mu);
	HASH_DEL(ep->items, it);
	free(it);
	atomic_fetch_sub_explicit(&watches, 1, memory_order_relaxed);
}

/* The item may be ready already. */
static void item_check_locked(struct epoll *ep, struct epitem *it)
{
	if (item_poll(it) && epitem_enqueue(ep, it))
		wake_up(ep);
}

struct epitem *epitem_add_locked(struct epoll *ep, struct file *tf, uint64_t fd, uint32_t events,
				 uint64_t data)
{
	struct epitem *it;

	if (atomic_fetch_add_explicit(&watches, 1, memory_order_relaxed) >= EPOLL_MAX_WATCHES) {
		atomic_fetch_sub_explicit(&watches, 1, memory_order_relaxed);
		return NULL;
	}
	it = kzalloc(sizeof(*it));
	it->key = (struct epkey){ tf, fd };
	it->ep = ep;
	it->events = events;
	it->data = data;
	it->wq = file_waitq(tf);
	it->w = (struct waiter){ .mask = wake_mask(it->events),
				 .once = events & EPOLLEXCLUSIVE,
				 .wake = item_wake };
	list_init(&it->w.node);
	list_init(&it->ready_node);
	HASH_ADD(hh, ep->items, key, sizeof(it->key), it);
	mutex_lock(&tf->ep_mu);
	list_add_tail(&tf->ep_items, &it->file_node);
	mutex_unlock(&tf->ep_mu);
	if (it->wq)
		waitq_add(it->wq, &it->w);
	return it;
}

static long item_add_locked(struct epoll *ep, struct file *tf, int fd, const struct l_epoll_event *ev)
{
	struct epitem *it =
		epitem_add_locked(ep, tf, (uint64_t)fd, ev->events | EP_ALWAYS, ev->data);

	if (!it)
		return -ENOSPC;
	item_check_locked(ep, it);
	return 0;
}

static long item_modify_locked(struct epoll *ep, struct epitem *it, const struct l_epoll_event *ev)
{
	if (it->events & EPOLLEXCLUSIVE)
		return -EINVAL;
	it->events = ev->events | EP_ALWAYS;
	it->data = ev->data;
	if (it->wq) {
		mutex_lock(&it->wq->mu);
		it->w.mask = wake_mask(it->events);
		mutex_unlock(&it->wq->mu);
	}
	item_check_locked(ep, it);
	return 0;
}

static long ctl_locked(struct epoll *ep, int op, struct file *tf, int fd,
		       const struct l_epoll_event *ev)
{
	struct epitem *it = item_find_locked(ep, tf, fd);

	switch (op) {
	case EPOLL_CTL_ADD:
		return it ? -EEXIST : item_add_locked(ep, tf, fd, ev);
	case EPOLL_CTL_MOD:
		return it ? item_modify_locked(ep, it, ev) : -ENOENT;
	case EPOLL_CTL_DEL:
		if (!it)
			return -ENOENT;
		item_remove_locked(ep, it);
		return 0;
	}
	return -EINVAL;
}

long epoll_ctl_file(struct file *epf, int op, struct file *tf, int fd, struct l_epoll_event *ev)
{
	struct epoll *ep = epoll_of_file(epf), *inner = epoll_of_file(tf);
	bool tree = inner && op == EPOLL_CTL_ADD;
	long r = 0;

	if (!tf->ops->poll)
		return -EPERM;
	if (!ep || epf == tf)
		return -EINVAL;
	if (op != EPOLL_CTL_DEL && (ev->events & EPOLLEXCLUSIVE)) {
		if (op == EPOLL_CTL_MOD || inner || (ev->events & ~EP_EXCLUSIVE_OK))
			return -EINVAL;
	}
	if (tree) {
		mutex_lock(&epoll_tree_mu);
		r = epoll_nest_check_locked(ep, inner);
	}
	if (r == 0) {
		mutex_lock(&ep->mu);
		r = ctl_locked(ep, op, tf, fd, ev);
		mutex_unlock(&ep->mu);
	}
	if (tree)
		mutex_unlock(&epoll_tree_mu);
	return r;
}

void epoll_file_released(struct file *f)
{
	pthread_once(&once, epoll_init_once);
	/* The tree mutex keeps the epolls alive: their destruction needs it, too. */
	AUTO_LOCK(&epoll_tree_mu);
	for (;;) {
		struct epitem *it = NULL;
		struct epoll *ep;

		mutex_lock(&f->ep_mu);
		if (!list_empty(&f->ep_items))
			it = list_first(&f->ep_items, struct epitem, file_node);
		mutex_unlock(&f->ep_mu);
		/* Nobody else removes it: EPOLL_CTL_DEL needs a reference of the file. */
		if (!it)
			return;
		ep = it->ep;
		mutex_lock(&ep->mu);
		item_remove_locked(ep, it);
		mutex_unlock(&ep->mu);
	}
}

/* ---------------------------------------------------------------- collecting events */

static struct epitem *pop(struct epoll *ep, struct list *tx)
{
	struct epitem *it;

	AUTO_LOCK(&ep->ready_mu);
	if (list_empty(tx))
		return NULL;
	it = list_first(tx, struct epitem, ready_node);
	list_del(&it->ready_node);
	it->queued = false;
	return it;
}

/* Puts what wasn't looked at back in front. True if something is ready (for the next waiter). */
static bool finish_scan(struct epoll *ep, struct list *tx)
{
	AUTO_LOCK(&ep->ready_mu);
	list_splice_tail(tx, &ep->ready);
	list_splice_tail(&ep->ready, tx);
	return !list_empty(&ep->ready);
}

/* Hands out up to @max events. Their number, -EFAULT. */
static long collect(struct task *t, struct epoll *ep, gaddr_t uevents, int max)
{
	struct list tx;
	struct epitem *it;
	long n = 0, err = 0;

	list_init(&tx);
	mutex_lock(&ep->mu);
	mutex_lock(&ep->ready_mu);
	list_splice_tail(&tx, &ep->ready);
	mutex_unlock(&ep->ready_mu);
	while (n < max && (it = pop(ep, &tx))) {
		struct l_epoll_event ev = { item_poll(it), it->data };

		if (!ev.events)
			continue;
		if (copyout_obj(t, gaddr_off(uevents, (uint64_t)n * sizeof(ev)), &ev)) {
			epitem_enqueue(ep, it);
			err = n ? 0 : -EFAULT;
			break;
		}
		n++;
		if (it->events & EPOLLONESHOT)
			it->events &= EP_PRIVATE;
		else if (!(it->events & EPOLLET))
			epitem_enqueue(ep, it);
	}
	if (finish_scan(ep, &tx))
		wake_up(ep);
	mutex_unlock(&ep->mu);
	return err ? err : n;
}

/* Sleeps until the ready list has something. 0, -ETIMEDOUT, -ERESTARTSYS. */
static long wait_ready(struct task *t, struct epoll *ep, int64_t deadline_ns)
{
	struct waiter w;
	long r = 0;

	waiter_init_task(&w, t, EPOLLIN | EPOLLRDNORM);
	w.exclusive = true;
	waitq_add(&ep->wq, &w);
	for (;;) {
		task_sleep_prepare(t);
		if (has_ready(ep)) {
			r = r == -ERESTARTSYS ? r : 0;
			break;
		}
		if (r < 0)
			break;
		r = task_sleep(t, deadline_ns);
	}
	waitq_remove(&ep->wq, &w);
	/* We may have eaten the one wake-up that an exclusive waiter gets. */
	if (r < 0 && has_ready(ep))
		wake_up(ep);
	return r;
}

long epoll_wait_file(struct task *t, struct file *epf, gaddr_t events, int maxevents,
		     int64_t deadline_ns)
{
	struct epoll *ep = epoll_of_file(epf);

	if (!ep)
		return -EINVAL;
	for (;;) {
		long n = has_ready(ep) ? collect(t, ep, events, maxevents) : 0;

		if (n || deadline_ns == 0)
			return n;
		n = wait_ready(t, ep, deadline_ns);
		if (n == -ETIMEDOUT)
			return 0;
		if (n < 0)
			return -EINTR;
	}
}

/* ---------------------------------------------------------------- the epoll as a file */

/* Readable when an item really is; those that aren't any more leave the list. */
static uint32_t epoll_poll(struct file *f)
{
	struct epoll *ep = f->priv;
	struct list tx;
	struct epitem *it;
	uint32_t ev = 0;

	if (!has_ready(ep))
		return 0;
	list_init(&tx);
	mutex_lock_nested(&ep->mu);
	mutex_lock(&ep->ready_mu);
	list_splice_tail(&tx, &ep->ready);
	mutex_unlock(&ep->ready_mu);
	while (!ev && (it = pop(ep, &tx))) {
		if (item_poll(it)) {
			epitem_enqueue(ep, it);
			ev = EPOLLIN | EPOLLRDNORM;
		}
	}
	finish_scan(ep, &tx);
	mutex_unlock(&ep->mu);
	return ev;
}

static struct waitq *epoll_waitq(struct file *f)
{
	struct epoll *ep = f->priv;

	return &ep->wq;
}

static void epoll_release(struct file *f)
{
	struct epoll *ep = f->priv;
	struct epitem *it, *tmp;

	mutex_lock(&epoll_tree_mu);
	mutex_lock(&ep->mu);
	HASH_ITER (hh, ep->items, it, tmp)
		item_remove_locked(ep, it);
	mutex_unlock(&ep->mu);
	mutex_unlock(&epoll_tree_mu);
	waitq_fini(&ep->wq);
	mutex_fini(&ep->ready_mu);
	mutex_fini(&ep->mu);
	free(ep);
}

static void epoll_show(struct file *f, struct seqbuf *out)
{
	struct epoll *ep = f->priv;
	struct epitem *it, *tmp;

	AUTO_LOCK(&ep->mu);
	HASH_ITER (hh, ep->items, it, tmp) {
		struct inode *inode = it->key.file->inode;

		seq_printf(out, "tfd: %8d events: %8x data: %16lx  pos:%ld ino:%lx sdev:%x\n",
			   (int)it->key.fd, it->events, (unsigned long)it->data,
			   (long)it->key.file->pos, (unsigned long)inode->ino,
			   inode->sb ? (unsigned)inode->sb->dev : 0);
	}
}

const struct file_ops epoll_fops = {
	.name = "eventpoll",
	.release = epoll_release,
	.poll = epoll_poll,
	.waitq = epoll_waitq,
	.show_fdinfo = epoll_show,
	.state = &file_state_epoll,
};

struct epoll *epoll_alloc(void)
{
	struct epoll *ep = kzalloc(sizeof(*ep));

	pthread_once(&once, epoll_init_once);
	mutex_init(&ep->mu, RANK_EPOLL);
	mutex_init(&ep->ready_mu, RANK_EPOLL_READY);
	list_init(&ep->ready);
	waitq_init(&ep->wq);
	return ep;
}

struct file *epoll_create_file(void)
{
	struct epoll *ep = epoll_alloc();
	struct file *f;

	f = file_create_anon(&epoll_fops, ep, O_RDWR, "eventpoll");
	if (is_err(f)) {
		free(ep);
		return f;
	}
	ep->file = f;
	return f;
}
