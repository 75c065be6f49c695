// SPDX-License-Identifier: Apache-2.0
/*
 * Pids: one struct pid stands for a number in every pid namespace from its own up to the initial one,
 * and for whatever uses it: a task (thread id), a thread group, a process group, a session. It lives as
 * long as somebody refers to it (a zombie, a group that outlives its leader, a pidfd), so its number
 * isn't given out again before.
 *
 * Lock: kernel.tasks_mu guards the tables and the uses.
 */
#ifndef SENTRY_KERNEL_PID_H
#define SENTRY_KERNEL_PID_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/list.h"
#include "base/ref.h"
#include "sentry/kernel/waitq.h"

struct task;
struct tgroup;
struct cred;
struct userns;

#define PIDNS_MAX_LEVEL 32
#define PID_MAX_DEFAULT 4194304 /* sys/kernel/pid_max */

struct pidns {
	struct ref ref;
	int level;              /* 0: initial */
	struct pidns *parent;   /* reference */
	struct userns *userns;  /* reference */
	struct task *init;      /* child reaper, NULL before the first and after the last */
	void *table;            /* number -> struct pid; private to pid.c */
	pid_t last;             /* last number given out */
	unsigned count;         /* numbers in use */
	unsigned ntasks;        /* (tasks_mu) tasks with a number here that aren't released */
	bool dead;              /* init has exited: no more tasks */
	uint64_t inum;          /* number in /proc/PID/ns */
};

struct pid {
	struct ref ref;
	int level;             /* of the namespace it was made in */
	struct pidns *ns;      /* that namespace; reference */
	struct task *task;     /* thread with this tid, or NULL. Borrowed; cleared when it is released */
	struct tgroup *tgroup; /* thread group whose tgid this is (zombies too), or NULL */
	struct list pgrp;      /* of tgroup.pgrp_node */
	struct list session;   /* of tgroup.session_node */
	struct waitq exit_wq;  /* pidfd poll: EPOLLIN when the group has exited */
	pid_t nr[];            /* nr[0..level] */
};

struct pid *pid_get(struct pid *p);
void pid_put(struct pid *p);
/* A fresh number in @ns and its ancestors. @want: exact number in @ns (clone3 set_tid) or 0. err_ptr:
 * -EAGAIN (no number left), -EEXIST, -ENOMEM (namespace is dead). Takes tasks_mu. */
struct pid *pid_alloc(struct pidns *ns, pid_t want);
/* Number as seen from @ns; 0 when it is not visible there. */
pid_t pid_nr(const struct pid *p, const struct pidns *ns);
/* Lookup by number; reference or NULL. The _locked form borrows. */
struct pid *pid_find(struct pidns *ns, pid_t nr);
struct pid *pid_find_locked(struct pidns *ns, pid_t nr);
/* The first pid whose number in @ns is >= @nr, for /proc; reference or NULL. */
struct pid *pid_next(struct pidns *ns, pid_t nr);
/* The search for a free number goes on after @last. */
void pidns_set_last(struct pidns *ns, pid_t last);

struct pidns *pidns_get(struct pidns *ns);
void pidns_put(struct pidns *ns);
struct pidns *pidns_create(struct pidns *parent, struct userns *userns);

#endif
