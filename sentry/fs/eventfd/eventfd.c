// SPDX-License-Identifier: Apache-2.0
/*
 * eventfd(2): a 64-bit counter behind a descriptor. A mutex and not an atomic, as a read must test,
 * reset and wake as one step.
 *
 * Left out: EPOLLERR on overflow of the counter; only the kernel's own signalling (aio) could overflow it.
 *
 * Lock order: eventfd.mu (RANK_PIPE) > waitq.mu. Guest memory is copied without it.
 */
#include "sentry/fs/eventfd/eventfd.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/kernel/waitq.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_state.h"

struct eventfd {
	struct mutex mu;
	uint64_t count;  /* (m) never UINT64_MAX */
	bool semaphore;  /* (c) */
	int id;          /* (c) fdinfo */
	struct waitq wq;
};

static _Atomic int next_id;

static bool has_count(struct eventfd *e)
{
	AUTO_LOCK(&e->mu);
	return e->count > 0;
}

static bool has_room(struct eventfd *e, uint64_t v)
{
	AUTO_LOCK(&e->mu);
	return UINT64_MAX - e->count > v;
}

static bool take(struct eventfd *e, uint64_t *ret)
{
	AUTO_LOCK(&e->mu);
	if (e->count == 0)
		return false;
	*ret = e->semaphore ? 1 : e->count;
	e->count -= *ret;
	return true;
}

static ssize_t eventfd_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct eventfd *e = f->priv;
	uint64_t v;

	(void)pos;
	if (it->left < sizeof(v))
		return -EINVAL;
	while (!take(e, &v)) {
		if (!t || (f->flags & O_NONBLOCK))
			return -EAGAIN;
		if (wait_event(t, &e->wq, EPOLLIN, DEADLINE_NONE, has_count(e)) < 0)
			return -ERESTARTSYS;
	}
	waitq_poke(&e->wq, EPOLLOUT | EPOLLWRNORM);
	if (iter_copy_to(it, &v, sizeof(v)) != (ssize_t)sizeof(v))
		return -EFAULT;
	return sizeof(v);
}

static bool add(struct eventfd *e, uint64_t v)
{
	AUTO_LOCK(&e->mu);
	if (UINT64_MAX - e->count <= v)
		return false;
	e->count += v;
	return true;
}

static ssize_t eventfd_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct eventfd *e = f->priv;
	uint64_t v;

	(void)pos;
	if (it->left < sizeof(v))
		return -EINVAL;
	if (iter_copy_from(it, &v, sizeof(v)) != (ssize_t)sizeof(v))
		return -EFAULT;
	if (v == UINT64_MAX)
		return -EINVAL;
	while (!add(e, v)) {
		if (!t || (f->flags & O_NONBLOCK))
			return -EAGAIN;
		if (wait_event(t, &e->wq, EPOLLOUT, DEADLINE_NONE, has_room(e, v)) < 0)
			return -ERESTARTSYS;
	}
	waitq_poke(&e->wq, EPOLLIN | EPOLLRDNORM);
	return sizeof(v);
}

static uint32_t eventfd_poll(struct file *f)
{
	struct eventfd *e = f->priv;
	uint32_t ev = 0;

	AUTO_LOCK(&e->mu);
	if (e->count > 0)
		ev |= EPOLLIN;
	if (UINT64_MAX - 1 > e->count)
		ev |= EPOLLOUT;
	return ev;
}

static struct waitq *eventfd_waitq(struct file *f)
{
	struct eventfd *e = f->priv;

	return &e->wq;
}

static void eventfd_release(struct file *f)
{
	struct eventfd *e = f->priv;

	waitq_fini(&e->wq);
	mutex_fini(&e->mu);
	free(e);
}

static void eventfd_show(struct file *f, struct seqbuf *out)
{
	struct eventfd *e = f->priv;

	AUTO_LOCK(&e->mu);
	seq_printf(out, "eventfd-count: %16lx\neventfd-id: %d\neventfd-semaphore: %d\n",
		   (unsigned long)e->count, e->id, e->semaphore);
}

static const struct file_ops eventfd_fops = {
	.name = "eventfd",
	.release = eventfd_release,
	.read = eventfd_read,
	.write = eventfd_write,
	.poll = eventfd_poll,
	.waitq = eventfd_waitq,
	.show_fdinfo = eventfd_show,
	.state = &file_state_eventfd,
};

static struct eventfd *eventfd_alloc(void)
{
	struct eventfd *e = kzalloc(sizeof(*e));

	mutex_init(&e->mu, RANK_PIPE);
	waitq_init(&e->wq);
	return e;
}

struct file *eventfd_create(uint32_t count, bool semaphore, unsigned flags)
{
	struct eventfd *e = eventfd_alloc();
	struct file *f;

	e->count = count;
	e->semaphore = semaphore;
	e->id = next_id++;
	f = file_create_anon(&eventfd_fops, e, O_RDWR | flags, "eventfd");
	if (is_err(f)) {
		free(e);
		return f;
	}
	f->fmode |= FMODE_STREAM;
	return f;
}

/* ---- saving ---- */

void eventfd_state_globals(struct state *s)
{
	int32_t id = next_id;

	state_i32(s, &id);
	next_id = id;
}

static void eventfd_fields(struct state *s, struct file *f)
{
	struct eventfd *e = state_loading(s) ? eventfd_alloc() : f->priv;

	f->priv = e;
	state_u64(s, &e->count);
	state_bool(s, &e->semaphore);
	state_i32(s, &e->id);
	if (e->count == UINT64_MAX)
		state_fail(s, "eventfd counter out of range");
}

const struct file_state file_state_eventfd = {
	.id = FILE_EVENTFD,
	.ops = &eventfd_fops,
	.fields = eventfd_fields,
};
