// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of the process half (task*.c, pid.c, wait.c, session.c, ptrace*.c, ...) share among
 * themselves. Everybody else uses task.h, pid.h, cred.h and ns.h.
 */
#ifndef SENTRY_KERNEL_PROCESS_H
#define SENTRY_KERNEL_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"

struct inode;

/* ---- pid.c ---- */
struct pid *pid_alloc_set(struct pidns *ns, const pid_t *set, unsigned nset);
void pidns_kill_locked(struct pidns *ns);
void pid_count_task_locked(struct pid *p, int delta);
struct pid *pid_create_empty(int max_level);
int pid_insert_loaded(struct pid *p);
struct pidns *pidns_create_empty(void);

/* ---- task.c: construction and tables. _locked: tasks_mu ---- */
/* A task without pid, group and shared parts. */
struct task *task_alloc(void);
struct tgroup *tgroup_alloc(void);
/* Makes @t, whose pid is set, visible as a thread of @tg. A new group: @leader. */
void task_attach_locked(struct task *t, struct tgroup *tg, bool leader);
/* Puts a new group into @pgrp and @session and under @parent (all optional). */
void tgroup_attach_locked(struct tgroup *tg, struct tgroup *parent,
			  struct task *parent_task, struct pid *pgrp,
			  struct pid *session);
void tgroup_set_pgrp_locked(struct tgroup *tg, struct pid *pgrp);
void tgroup_set_session_locked(struct tgroup *tg, struct pid *session);
/* Moves @child below another parent (NULL: none). */
void tgroup_set_parent_locked(struct tgroup *child, struct tgroup *parent,
			      struct task *thread);
/* Undo of a task that was never started: drops what clone has given it. */
void task_discard(struct task *t);
/* Drops mm, files, fs, ns: from the exit path and task_discard(). */
void task_drop_shared(struct task *t);

/* ---- task_run.c ---- */
/* Starts the sentry thread. 0 or -EAGAIN. */
int task_start_thread(struct task *t);
/* Sleep of a task that only SIGKILL and group exit end: until @done(t). Returns 0 or -EINTR. */
long task_wait_killable(struct task *t, bool (*done)(struct task *t));
void task_wait_done(struct task *t, bool (*done)(struct task *t));
/* task_clone.c: the parent sleeps until the child t->vfork_nr has left its memory; a kill ends it early. */
void task_wait_vfork(struct task *t);

/* ---- task_exit.c ---- */
/* The whole exit of the calling task; afterwards only its struct is left. */
void task_do_exit(struct task *t);
/* The vfork parent may go on. */
void task_vfork_release(struct task *t);
/* Out of every table; the table's reference is dropped. */
void task_release_locked(struct task *t);
/* Tells the parent that the group is a zombie; true when nobody will wait for it: release it. */
bool exit_notify_parent_locked(struct tgroup *tg);
/* Wait status of a dead group. */
int tgroup_exit_status(struct tgroup *tg);
/* SIGKILL for all of a group without permission questions. */
void tgroup_kill_locked(struct tgroup *tg, int status);
/* A thread was released or died: is the whole group a zombie now? Tells the parent, or releases it. */
void tgroup_check_zombie_locked(struct tgroup *tg);
/* The group (not a zombie) of @pgrp's members has lost its last link to the session: SIGHUP, SIGCONT. */
void pgrp_check_orphaned_locked(struct tgroup *tg, struct tgroup *parent);
/* Kills the other threads of the caller's group (exec). 0 or -EAGAIN. */
int task_kill_others(struct task *t);

/* ---- usage.c ---- */
void task_usage_freeze(struct task *t); /* last call of the task's own thread */
void task_usage_leave_ctx(struct task *t);

/* ---- wait.c ---- */
#define WAIT_ANY_PID 0
struct wait_opts {
	int type;          /* P_ALL, P_PID, P_PGID */
	struct pid *pid;   /* NULL for P_ALL */
	int options;       /* as waitid's, wait4's translated */
	bool nohang_pidfd; /* pidfd opened with O_NONBLOCK */
};
struct wait_result {
	pid_t pid;
	uid_t uid;
	int status;     /* wait4 form */
	int code;       /* CLD_* */
	int cld_status; /* si_status of waitid */
	struct task_usage usage;
};
/* > 0: the child's pid (also in *r), 0: WNOHANG and nothing there, -ECHILD, -ERESTARTSYS, -EAGAIN. */
long task_wait(struct task *t, const struct wait_opts *o, struct wait_result *r);

/* ---- session.c ---- */
long session_setpgid(struct task *t, pid_t pid, pid_t pgid);
long session_getpgid(struct task *t, pid_t pid);
long session_getsid(struct task *t, pid_t pid);
long session_setsid(struct task *t);
/* Would @pgrp be orphaned if @ignored's group weren't in it? */
bool pgrp_is_orphaned_locked(struct pid *pgrp, const struct tgroup *ignored);
bool pgrp_has_stopped_locked(struct pid *pgrp);

/* ---- cred.c ---- */
void cred_fix_caps_after_uid(struct cred *new, const struct cred *old);

/* ---- nsproxy.c ---- */
void task_set_nsproxy(struct task *t, struct nsproxy *ns); /* takes over */
long ns_unshare(struct task *t, uint64_t flags);
long ns_setns(struct task *t, int fd, int flags);
void cred_enter_userns(struct cred *c,
		       struct userns *ns); /* takes over @ns; full capabilities in it */

/* ---- pidfd.c ---- */
struct file *pidfd_create(struct pid *p, unsigned flags);
/* The pid behind a pidfd: borrowed from @f; NULL if it isn't one. */
struct pid *pidfd_pid(struct file *f);

/* ---- seccomp.c ---- */
struct seccomp_filter *seccomp_get(struct seccomp_filter *f);
void seccomp_put(struct seccomp_filter *f);
/* Runs the filters for the call in t->regs. True: go on. False: skip it, rax is the result. */
bool seccomp_check(struct task *t);
long seccomp_set_strict(struct task *t);
/* @flags: SECCOMP_FILTER_FLAG_*; @prog: struct sock_fprog of the guest. */
long seccomp_set_filter(struct task *t, uint64_t flags, gaddr_t prog);

/* ---- hooks of other parts, called on exit and exec when they are linked in ---- */
void sem_undo_exit(struct task *t) __weak;
/* @share: CLONE_SYSVSEM, the child uses the parent's undo list. */
void sem_undo_clone(struct task *t, struct task *child, bool share) __weak;

#endif
