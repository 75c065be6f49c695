// SPDX-License-Identifier: Apache-2.0
/*
 * Pids and pid namespaces (man 7 pid_namespaces).
 *
 * Each namespace keeps its numbers in an ordered tree, so that /proc can walk them. A struct pid has one
 * entry for each namespace that it is visible in; they live in the same allocation.
 *
 * The trees have a small lock of their own, pidtab_mu, so that dropping the last reference to a pid is
 * possible with tasks_mu held. A pid's *uses* (task, tgroup, groups) are guarded by tasks_mu; each use
 * holds a reference, so a pid that is in use can't go away under tasks_mu.
 *
 * Lock order: kernel.tasks_mu > pidtab_mu.
 */
#include "sentry/kernel/pid.h"

#include <bsd/sys/tree.h>
#include <errno.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"

#define RESERVED_PIDS 300 /* where numbers start again after a wrap */

struct pid_entry {
	RB_ENTRY(pid_entry) node;
	pid_t nr;
	struct pid *pid;
};

static int pid_entry_cmp(const struct pid_entry *a, const struct pid_entry *b)
{
	return a->nr < b->nr ? -1 : a->nr > b->nr;
}

RB_HEAD(pid_tree, pid_entry);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_STATIC(pid_tree, pid_entry, node, pid_entry_cmp)
#pragma GCC diagnostic pop

static struct mutex pidtab_mu;

static struct pid_entry *pid_entries(struct pid *p)
{
	uintptr_t a = (uintptr_t)&p->nr[p->level + 1];

	a = (a + _Alignof(struct pid_entry) - 1) &
	    ~(uintptr_t)(_Alignof(struct pid_entry) - 1);
	return (struct pid_entry *)a;
}

static size_t pid_size(int level)
{
	size_t n = (size_t)level + 1;

	return sizeof(struct pid) + n * sizeof(pid_t) + _Alignof(struct pid_entry) +
	       n * sizeof(struct pid_entry);
}

static struct pid_tree *ns_tree(struct pidns *ns)
{
	return ns->table;
}

static struct pid_entry *tree_find(struct pidns *ns, pid_t nr)
{
	struct pid_entry key = { .nr = nr };

	return RB_FIND(pid_tree, ns_tree(ns), &key);
}

/* A free number, or -EAGAIN; -EEXIST when @want is taken. Context: pidtab_mu. */
static pid_t pick_number(struct pidns *ns, pid_t want)
{
	pid_t nr = ns->last;

	if (want)
		return tree_find(ns, want) ? -EEXIST : want;
	for (unsigned tries = 0; tries < PID_MAX_DEFAULT; tries++) {
		nr = nr + 1 >= PID_MAX_DEFAULT ? RESERVED_PIDS : nr + 1;
		if (!tree_find(ns, nr)) {
			ns->last = nr;
			return nr;
		}
	}
	return -EAGAIN;
}

static void drop_numbers_locked(struct pid *p, int from)
{
	struct pid_entry *e = pid_entries(p);
	struct pidns *ns = p->ns;

	for (int l = p->level; l >= from; l--, ns = ns->parent) {
		RB_REMOVE(pid_tree, ns_tree(ns), &e[l]);
		ns->count--;
	}
}

static int take_numbers_locked(struct pid *p, const pid_t *set, unsigned nset)
{
	struct pid_entry *e = pid_entries(p);
	struct pidns *ns = p->ns;

	for (int l = p->level; l >= 0; l--, ns = ns->parent) {
		unsigned i = (unsigned)(p->level - l);
		pid_t nr = pick_number(ns, i < nset ? set[i] : 0);

		if (nr < 0) {
			if (l < p->level)
				drop_numbers_locked(p, l + 1);
			return nr;
		}
		e[l].nr = p->nr[l] = nr;
		e[l].pid = p;
		RB_INSERT(pid_tree, ns_tree(ns), &e[l]);
		ns->count++;
	}
	return 0;
}

/*
 * A fresh pid of @ns; set[0] is the wanted number in @ns, set[1] in its parent and so on. err_ptr:
 * -EAGAIN, -EEXIST, -ENOMEM when the namespace's init has exited.
 */
struct pid *pid_alloc_set(struct pidns *ns, const pid_t *set, unsigned nset)
{
	struct pid *p = kzalloc(pid_size(ns->level));
	int err;

	ref_init(&p->ref);
	p->level = ns->level;
	p->ns = pidns_get(ns);
	list_init(&p->pgrp);
	list_init(&p->session);
	waitq_init(&p->exit_wq);
	mutex_lock(&pidtab_mu);
	err = ns->dead ? -ENOMEM : take_numbers_locked(p, set, nset);
	mutex_unlock(&pidtab_mu);
	if (err) {
		waitq_fini(&p->exit_wq);
		pidns_put(ns);
		free(p);
		return err_ptr(err);
	}
	return p;
}

struct pid *pid_alloc(struct pidns *ns, pid_t want)
{
	return pid_alloc_set(ns, &want, 1);
}

struct pid *pid_get(struct pid *p)
{
	ref_get(&p->ref);
	return p;
}

/* May be called with tasks_mu held. */
void pid_put(struct pid *p)
{
	if (!p || !ref_put(&p->ref))
		return;
	mutex_lock(&pidtab_mu);
	drop_numbers_locked(p, 0);
	mutex_unlock(&pidtab_mu);
	waitq_fini(&p->exit_wq);
	pidns_put(p->ns);
	free(p);
}

pid_t pid_nr(const struct pid *p, const struct pidns *ns)
{
	if (!p || ns->level > p->level)
		return 0;
	if (ns == p->ns)
		return p->nr[p->level];
	for (const struct pidns *n = p->ns; n; n = n->parent)
		if (n == ns)
			return p->nr[ns->level];
	return 0;
}

struct pid *pid_find(struct pidns *ns, pid_t nr)
{
	struct pid_entry *e;
	struct pid *p = NULL;

	if (nr <= 0)
		return NULL;
	mutex_lock(&pidtab_mu);
	e = tree_find(ns, nr);
	if (e && ref_get_unless_zero(&e->pid->ref))
		p = e->pid;
	mutex_unlock(&pidtab_mu);
	return p;
}

static bool pid_in_use(const struct pid *p)
{
	return p->task || p->tgroup || !list_empty(&p->pgrp) || !list_empty(&p->session);
}

/* Borrowed; only pids in use, which tasks_mu keeps alive. */
struct pid *pid_find_locked(struct pidns *ns, pid_t nr)
{
	struct pid_entry *e;
	struct pid *p;

	mutex_assert_held(&kernel.tasks_mu);
	if (nr <= 0)
		return NULL;
	mutex_lock(&pidtab_mu);
	e = tree_find(ns, nr);
	p = e && pid_in_use(e->pid) ? e->pid : NULL;
	mutex_unlock(&pidtab_mu);
	return p;
}

void pidns_set_last(struct pidns *ns, pid_t last)
{
	AUTO_LOCK(&pidtab_mu);

	ns->last = last;
}

struct pid *pid_next(struct pidns *ns, pid_t nr)
{
	struct pid_entry key = { .nr = nr }, *e;
	struct pid *p = NULL;

	mutex_lock(&pidtab_mu);
	for (e = RB_NFIND(pid_tree, ns_tree(ns), &key); e; e = RB_NEXT(pid_tree, NULL, e))
		if (ref_get_unless_zero(&e->pid->ref)) {
			p = e->pid;
			break;
		}
	mutex_unlock(&pidtab_mu);
	return p;
}

/* A namespace's init is gone: no pid is given out any more. Context: tasks_mu. */
void pidns_kill_locked(struct pidns *ns)
{
	mutex_lock(&pidtab_mu);
	ns->dead = true;
	mutex_unlock(&pidtab_mu);
}

/* For each namespace that @p is visible in. Context: tasks_mu. */
void pid_count_task_locked(struct pid *p, int delta)
{
	mutex_assert_held(&kernel.tasks_mu);
	for (struct pidns *ns = p->ns; ns; ns = ns->parent)
		ns->ntasks = (unsigned)((int)ns->ntasks + delta);
}

struct pidns *pidns_get(struct pidns *ns)
{
	ref_get(&ns->ref);
	return ns;
}

void pidns_put(struct pidns *ns)
{
	while (ns && ref_put(&ns->ref)) {
		struct pidns *parent = ns->parent;

		userns_put(ns->userns);
		free(ns->table);
		free(ns);
		ns = parent;
	}
}

/* ---- loading: kernel/ns_state.c ---- */

struct pid *pid_create_empty(int max_level)
{
	struct pid *p = kzalloc(pid_size(max_level));

	ref_init(&p->ref);
	list_init(&p->pgrp);
	list_init(&p->session);
	waitq_init(&p->exit_wq);
	return p;
}

/* Enters a pid whose fields were loaded into its namespaces' tables. -EINVAL: it doesn't fit there. */
int pid_insert_loaded(struct pid *p)
{
	struct pid_entry *e = pid_entries(p);
	struct pidns *ns = p->ns;
	AUTO_LOCK(&pidtab_mu);

	for (int l = p->level; l >= 0; l--, ns = ns->parent) {
		if (!ns || ns->level != l || tree_find(ns, p->nr[l]))
			return -EINVAL;
		e[l].nr = p->nr[l];
		e[l].pid = p;
		RB_INSERT(pid_tree, ns_tree(ns), &e[l]);
		ns->count++;
	}
	return 0;
}

struct pidns *pidns_create_empty(void)
{
	struct pidns *ns = kzalloc(sizeof(*ns));

	ref_init(&ns->ref);
	ns->table = kzalloc(sizeof(struct pid_tree));
	return ns;
}

/* err_ptr(-ENOSPC) when nested too deeply. The first one (no parent) also sets up this file. */
struct pidns *pidns_create(struct pidns *parent, struct userns *userns)
{
	struct pidns *ns;

	if (!parent)
		mutex_init(&pidtab_mu, RANK_NS);
	else if (parent->level + 1 > PIDNS_MAX_LEVEL)
		return err_ptr(-ENOSPC);
	ns = kzalloc(sizeof(*ns));
	ref_init(&ns->ref);
	ns->level = parent ? parent->level + 1 : 0;
	ns->parent = parent ? pidns_get(parent) : NULL;
	ns->userns = userns_get(userns);
	ns->table = kzalloc(sizeof(struct pid_tree));
	ns->inum = ns_next_inum();
	return ns;
}
