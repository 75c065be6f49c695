// SPDX-License-Identifier: Apache-2.0
/*
 * Files in flight: accounting and garbage collection. A unix socket sent through a unix socket can end
 * up being referred to by nothing but queues, its own among them: references alone would never free
 * it.
 *
 * Mark and sweep, under unix_gc_mu, over the sockets in flight:
 *   1. candidates: sockets whose file has no reference but those from queues
 *   2. a candidate that is in flight in the queue of a socket that is no candidate can be received: it is
 *      live, and so is everything in its queues
 *   3. the messages in the queues of the others are taken out and freed
 *
 * Why this is safe: references move in and out of flight only under unix_gc_mu. A candidate has no
 * descriptor and no running call, so it can only come to life by being received from a live socket's
 * queue; a message that was taken from a queue and isn't counted out yet is found in no candidate's
 * queue, which leaves its files live.
 *
 * Lock order: unix_gc_mu > socket.mu (listener > queued connection). Files are put with no lock.
 */
#include <linux/capability.h>

#include "base/alloc.h"
#include "sentry/kernel/task.h"
#include "sentry/socket/unix/unix_priv.h"

struct mutex unix_gc_mu;
static struct list inflight_socks = LIST_INIT(inflight_socks);
static unsigned inflight_files;          /* (unix_gc_mu) */
static _Atomic unsigned inflight_nsocks; /* written under unix_gc_mu */

void unix_gc_init(void)
{
	mutex_init(&unix_gc_mu, RANK_SOCK_GC);
}

static struct unix_sock *unix_of_file(struct file *f)
{
	struct socket *s = sock_of_file(f);

	return s && s->family == AF_UNIX ? unix_of(s) : NULL;
}

static void count_in_locked(struct scm *scm)
{
	for (unsigned i = 0; i < scm->nfiles; i++) {
		struct unix_sock *u = unix_of_file(scm->files[i]);

		if (u && u->inflight++ == 0) {
			list_add_tail(&inflight_socks, &u->gc_node);
			inflight_nsocks++;
		}
	}
	inflight_files += scm->nfiles;
	scm->inflight = true;
}

void unix_inflight_restore(struct scm *scm)
{
	AUTO_LOCK(&unix_gc_mu);
	count_in_locked(scm);
}

int unix_inflight(struct task *t, struct scm *scm)
{
	bool priv = task_capable(t, CAP_SYS_RESOURCE) || task_capable(t, CAP_SYS_ADMIN);
	uint64_t limit = priv ? UNIX_MAX_INFLIGHT : task_rlimit(t, RLIMIT_NOFILE);

	AUTO_LOCK(&unix_gc_mu);
	if (inflight_files > limit || inflight_files + scm->nfiles > UNIX_MAX_INFLIGHT)
		return -ETOOMANYREFS;
	count_in_locked(scm);
	return 0;
}

void unix_notinflight(struct scm *scm)
{
	AUTO_LOCK(&unix_gc_mu);
	for (unsigned i = 0; i < scm->nfiles; i++) {
		struct unix_sock *u = unix_of_file(scm->files[i]);

		if (u && --u->inflight == 0) {
			list_del(&u->gc_node);
			inflight_nsocks--;
		}
	}
	inflight_files -= scm->nfiles;
	scm->inflight = false;
}

/* ---------------------------------------------------------------- collection */

typedef void (*visit_fn)(struct unix_sock *found, void *arg);

static void visit_queue_locked(struct unix_sock *u, visit_fn fn, void *arg)
{
	struct unix_buf *b;

	list_for_each (b, &u->rq, node) {
		for (unsigned i = 0; b->scm && i < b->scm->nfiles; i++) {
			struct unix_sock *found = unix_of_file(b->scm->files[i]);

			if (found)
				fn(found, arg);
		}
	}
}

/* Every socket in flight in the queues of @u: its own, and of connections that wait to be accepted. */
static void visit(struct unix_sock *u, visit_fn fn, void *arg)
{
	struct unix_sock *c;

	AUTO_LOCK(&u->sk.mu);
	visit_queue_locked(u, fn, arg);
	list_for_each (c, &u->accept_q, accept_node) {
		mutex_lock_nested(&c->sk.mu);
		visit_queue_locked(c, fn, arg);
		mutex_unlock(&c->sk.mu);
	}
}

/* Step 2a: subtract references that come from candidates' queues. */
static void count_inner(struct unix_sock *found, void *arg)
{
	(void)arg;
	if (found->gc_candidate && found->gc_refs)
		found->gc_refs--;
}

/* Step 2b: a live socket's children are live; newly found ones go on the work list. */
static void mark_live(struct unix_sock *found, void *arg)
{
	struct list *work = arg;

	if (!found->gc_candidate || found->gc_live)
		return;
	found->gc_live = true;
	list_del(&found->gc_node);
	list_add_tail(work, &found->gc_node);
}

static void mark(void)
{
	struct list work, done;
	struct unix_sock *u, *tmp;

	list_init(&work);
	list_init(&done);
	list_for_each (u, &inflight_socks, gc_node)
		if (u->gc_candidate)
			visit(u, count_inner, NULL);
	list_for_each (u, &inflight_socks, gc_node)
		u->gc_live = u->gc_candidate && u->gc_refs > 0;
	list_for_each_safe (u, tmp, &inflight_socks, gc_node) {
		if (u->gc_live) {
			list_del(&u->gc_node);
			list_add_tail(&work, &u->gc_node);
		}
	}
	while (!list_empty(&work)) {
		u = list_first(&work, struct unix_sock, gc_node);
		list_del(&u->gc_node);
		list_add_tail(&done, &u->gc_node);
		visit(u, mark_live, &work);
	}
	list_splice_tail(&inflight_socks, &done);
}

/* Moves the messages with files out of @u's queues. */
static void purge_queue_locked(struct unix_sock *u, struct list *out)
{
	struct unix_buf *b, *tmp;

	list_for_each_safe (b, tmp, &u->rq, node) {
		if (!b->scm || !b->scm->nfiles)
			continue;
		list_del(&b->node);
		u->rq_bytes -= b->len;
		u->rq_msgs--;
		list_add_tail(out, &b->node);
	}
}

static void purge(struct unix_sock *u, struct list *out)
{
	struct unix_sock *c;

	AUTO_LOCK(&u->sk.mu);
	purge_queue_locked(u, out);
	list_for_each (c, &u->accept_q, accept_node) {
		mutex_lock_nested(&c->sk.mu);
		purge_queue_locked(c, out);
		mutex_unlock(&c->sk.mu);
	}
}

void unix_gc(void)
{
	struct unix_sock *u;
	struct list garbage;
	bool any = false;

	if (inflight_nsocks == 0)
		return;
	list_init(&garbage);
	mutex_lock(&unix_gc_mu);
	list_for_each (u, &inflight_socks, gc_node) {
		struct file *f = u->sk.file;

		u->gc_candidate = f && (unsigned)ref_count(&f->ref) == u->inflight;
		u->gc_live = false;
		u->gc_refs = u->inflight;
		any |= u->gc_candidate;
	}
	if (any) {
		mark();
		list_for_each (u, &inflight_socks, gc_node)
			if (u->gc_candidate && !u->gc_live)
				purge(u, &garbage);
	}
	mutex_unlock(&unix_gc_mu);
	while (!list_empty(&garbage)) {
		struct unix_buf *b = list_first(&garbage, struct unix_buf, node);

		list_del(&b->node);
		unix_buf_free(b);
	}
}
