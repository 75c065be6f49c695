// SPDX-License-Identifier: Apache-2.0
/*
 * clone(2), clone3(2), fork(2), vfork(2): new threads and processes.
 *
 * A child is built completely, by the parent's thread, before anybody can see it; then it is attached to
 * the tables under tasks_mu in one step that can still fail (the group is being killed), and its thread
 * is started last. What fails before that is undone by task_discard().
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/ptrace.h>
#include <sched.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/usermem.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"

#define CLONE_NS_FLAGS                                                      \
 (CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET | \
  CLONE_NEWCGROUP)
#ifndef CLONE_CLEAR_SIGHAND
# define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
# define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef CLONE_NEWTIME
# define CLONE_NEWTIME 0x80
#endif

static int check_flags(struct task *t, const struct clone_args *a)
{
	uint64_t f = a->flags;

	if ((f & CLONE_FS) && (f & (CLONE_NEWNS | CLONE_NEWUSER)))
		return -EINVAL;
	if ((f & CLONE_THREAD) && !(f & CLONE_SIGHAND))
		return -EINVAL;
	if ((f & CLONE_SIGHAND) && (!(f & CLONE_VM) || (f & CLONE_CLEAR_SIGHAND)))
		return -EINVAL;
	/* An init's sibling would be a second root of its namespace's tree. */
	if ((f & CLONE_PARENT) && t->tg->leader == task_pidns(t)->init)
		return -EINVAL;
	if ((f & CLONE_THREAD) && ((f & (CLONE_NEWUSER | CLONE_NEWPID)) ||
				   t->ns->pid_for_children != task_pidns(t)))
		return -EINVAL;
	if ((f & CLONE_PIDFD) && (f & CLONE_DETACHED))
		return -EINVAL;
	if ((f & CLONE_PIDFD) && (f & CLONE_PARENT_SETTID) &&
	    gaddr_eq(a->pidfd, a->parent_tid))
		return -EINVAL;
	if (f & CLONE_NEWTIME)
		return -EINVAL;
	if (f & CLONE_INTO_CGROUP)
		return -EBADF; /* no cgroup directory of ours can be opened as a target */
	if ((f & CLONE_SETTLS) && a->tls >= GUEST_TASK_SIZE)
		return -EPERM;
	return 0;
}

static bool is_nproc_exempt(const struct task *t)
{
	return t->cred->uid == 0 || task_capable(t, CAP_SYS_RESOURCE) ||
	       task_capable(t, CAP_SYS_ADMIN);
}

/* RLIMIT_NPROC counts the user's threads in the whole sandbox; root is exempt, so the walk is rare. */
static bool over_nproc(struct task *t)
{
	uint64_t limit = task_rlimit(t, RLIMIT_NPROC), n = 0;
	struct task *i;

	if (limit >= kernel.limits.max_tasks || is_nproc_exempt(t))
		return false;
	AUTO_LOCK(&kernel.tasks_mu);
	list_for_each(i, &kernel.all_tasks, all_node) {
		mutex_lock(&i->mu);
		n += i->cred->uid == t->cred->uid;
		mutex_unlock(&i->mu);
	}
	return n >= limit;
}

/* man 7 sched: with the reset flag, the child starts without the parent's privileges. */
static void copy_scheduling(struct task *t, struct task *c)
{
	bool reset = t->sched_reset_on_fork;
	bool rt = t->sched_policy == SCHED_FIFO || t->sched_policy == SCHED_RR;

	c->nice = reset && (rt || t->nice < 0) ? 0 : t->nice;
	c->sched_policy = reset && rt ? SCHED_OTHER : t->sched_policy;
	c->sched_prio = reset && rt ? 0 : t->sched_prio;
}

static void copy_attributes(struct task *t, struct task *c, uint64_t f)
{
	task_get_comm(t, c->comm);
	c->start_ns = (uint64_t)clock_boottime_ns();
	c->blocked = t->has_saved_blocked ? t->saved_blocked : t->blocked;
	/* man 2 sigaltstack: a thread of the same memory starts without one. */
	if (!(f & CLONE_VM) || (f & CLONE_VFORK))
		c->altstack = t->altstack;
	copy_scheduling(t, c);
	c->cpumask = t->cpumask;
	c->timer_slack_ns = t->timer_slack_ns;
	c->timer_slack_default_ns = t->timer_slack_ns;
	c->no_new_privs = t->no_new_privs;
	c->personality = t->personality;
	c->ioprio = t->ioprio;
	c->seccomp_mode = t->seccomp_mode;
	c->seccomp = t->seccomp ? seccomp_get(t->seccomp) : NULL;
	if (!(f & CLONE_VM)) {
		c->rseq = t->rseq;
		c->rseq_len = t->rseq_len;
		c->rseq_sig = t->rseq_sig;
	}
}

static void copy_regs(struct task *t, struct task *c, const struct clone_args *a)
{
	c->regs = t->regs;
	c->regs.rax = 0;
	c->regs.orig_rax = (uint64_t)-1;
	if (!gaddr_is_null(a->stack))
		c->regs.rsp = gaddr_u64(a->stack) + a->stack_size;
	if (a->flags & CLONE_SETTLS)
		c->regs.fs_base = a->tls;
	if (a->flags & CLONE_CHILD_SETTID)
		c->set_child_tid = a->child_tid;
	if (a->flags & CLONE_CHILD_CLEARTID)
		c->clear_child_tid = a->child_tid;
	c->start_fp = kzalloc(sizeof(*c->start_fp));
	if (plat->ctx_get_fp(t->ctx, c->start_fp)) {
		free(c->start_fp);
		c->start_fp = NULL;
	}
}

static int copy_cred(struct task *t, struct task *c, uint64_t f)
{
	struct userns *u;

	if (!(f & CLONE_NEWUSER)) {
		c->cred = cred_get(t->cred);
		return 0;
	}
	u = userns_create(t->cred);
	if (is_err(u))
		return (int)ptr_err(u);
	c->cred = cred_dup(t->cred);
	cred_enter_userns(c->cred, u);
	return 0;
}

static int copy_namespaces(struct task *t, struct task *c, uint64_t f)
{
	struct nsproxy *ns;

	if (!(f & CLONE_NS_FLAGS)) {
		c->ns = nsproxy_get(t->ns);
		return 0;
	}
	if (!cred_capable_in(c->cred, c->cred->userns, CAP_SYS_ADMIN))
		return -EPERM;
	/* man 2 clone: NEWIPC with SYSVSEM makes undo lists of unreachable semaphores. */
	if ((f & CLONE_NEWIPC) && (f & CLONE_SYSVSEM))
		return -EINVAL;
	ns = nsproxy_copy(c, t->ns, f & CLONE_NS_FLAGS, c->cred->userns);
	if (is_err(ns))
		return (int)ptr_err(ns);
	c->ns = ns;
	return 0;
}

static void copy_sighand(struct task *t, struct task *c, uint64_t f)
{
	if (f & CLONE_SIGHAND) {
		c->sighand = sighand_get(t->sighand);
		return;
	}
	c->sighand = sighand_dup(t->sighand);
	if (f & CLONE_CLEAR_SIGHAND)
		for (int i = 0; i < NSIG_GUEST; i++)
			if (c->sighand->action[i].handler != 1 /* SIG_IGN */)
				memset(&c->sighand->action[i], 0,
				       sizeof(struct l_sigaction));
}

static int copy_mm(struct task *t, struct task *c, uint64_t f)
{
	struct mm *mm;

	if (f & CLONE_VM) {
		int err = plat->ctx_prepare_clone(t->ctx);

		if (err)
			return err == -ENOMEM ? -ENOMEM : -EAGAIN;
		c->mm = mm_use(t->mm);
		return 0;
	}
	mm = mm_fork(t->mm, t->ctx);
	if (is_err(mm))
		return (int)ptr_err(mm);
	c->mm = mm;
	return 0;
}

/* Everything that clone shares or copies but the pid. */
static int copy_parts(struct task *t, struct task *c, uint64_t f)
{
	struct files *files;
	int err = copy_cred(t, c, f);

	if (err)
		return err;
	if (f & CLONE_FILES) {
		c->files = files_get(t->files);
	} else {
		files = files_dup(t->files, ~0u);
		if (is_err(files))
			return (int)ptr_err(files);
		c->files = files;
	}
	c->fs = f & CLONE_FS ? fsctx_get(t->fs) : fsctx_dup(t->fs);
	copy_sighand(t, c, f);
	err = copy_namespaces(t, c, f);
	return err ? err : copy_mm(t, c, f);
}

static struct tgroup *new_group(struct task *t, struct task *c)
{
	struct tgroup *tg = tgroup_alloc(), *old = t->tg;

	tg->pid = pid_get(c->pid);
	tg->container = old->container;
	tg->oom_score_adj = old->oom_score_adj;
	mutex_lock(&old->rlim_mu);
	memcpy(tg->rlim, old->rlim, sizeof(tg->rlim));
	mutex_unlock(&old->rlim_mu);
	return tg;
}

/* -ERESTARTNOINTR when the caller's group is on its way out: the call never finishes anyway. */
static int attach(struct task *t, struct task *c, struct tgroup *tg, uint64_t f,
		  int pt_event)
{
	struct pidns *ns = c->pid->ns;
	AUTO_LOCK(&kernel.tasks_mu);

	if (atomic_load(&t->exiting) || t->tg->exec_task)
		return -ERESTARTNOINTR;
	if (ns->dead)
		return -ENOMEM;
	if (f & CLONE_THREAD) {
		task_attach_locked(c, t->tg, false);
	} else {
		task_attach_locked(c, tg, true);
		if (f & CLONE_PARENT)
			tgroup_attach_locked(tg, t->tg->parent, t->tg->parent_task,
					     t->tg->pgrp, t->tg->session);
		else
			tgroup_attach_locked(tg, t->tg, t, t->tg->pgrp, t->tg->session);
		tg->tty = t->tg->tty ? tty_get(t->tg->tty) : NULL;
		if (c->pid->nr[c->pid->level] == 1)
			ns->init = c;
	}
	if (t->ptrace && !(f & CLONE_UNTRACED) && (pt_event || (f & CLONE_PTRACE)))
		ptrace_clone_locked(t, c, pt_event);
	/* The group may be stopped, or a signal waiting for any thread: the child looks first. */
	atomic_store(&c->interrupted, true);
	if (f & CLONE_VFORK) {
		c->vfork_waiter = task_get(t);
		atomic_store(&t->vfork_done, false);
	}
	return 0;
}

static bool vfork_is_done(struct task *t)
{
	return atomic_load(&t->vfork_done);
}

/* Nobody waits any more: the child must not find us. */
static void forget_vfork(struct task *t)
{
	struct task *c, *w = NULL;

	mutex_lock(&kernel.tasks_mu);
	list_for_each(c, &kernel.all_tasks, all_node) {
		if (c->vfork_waiter == t) {
			w = c->vfork_waiter;
			c->vfork_waiter = NULL;
			break;
		}
	}
	mutex_unlock(&kernel.tasks_mu);
	task_put(w);
}

/* Here a task may be saved, and go on after a load: so all that it needs is in t->vfork_nr. */
void task_wait_vfork(struct task *t)
{
	pid_t nr = t->vfork_nr;

	if (task_wait_killable(t, vfork_is_done) != 0)
		forget_vfork(t);
	t->vfork_nr = 0;
	if (ptrace_active(t))
		ptrace_event(t, PTRACE_EVENT_VFORK_DONE, (uint64_t)nr);
	t->regs.rax = (uint64_t)nr;
}

static int clone_event(struct task *t, const struct clone_args *a)
{
	int ev;

	if (!ptrace_active(t) || (a->flags & CLONE_UNTRACED))
		return 0;
	if (a->flags & CLONE_VFORK)
		ev = PTRACE_EVENT_VFORK;
	else
		ev = a->exit_signal != SIGCHLD ? PTRACE_EVENT_CLONE : PTRACE_EVENT_FORK;
	return ptrace_event_enabled(t, ev) ? ev : 0;
}

static int install_pidfd(struct task *t, struct task *c, const struct clone_args *a)
{
	struct file *f = pidfd_create(c->pid, 0);
	int fd, err;

	if (is_err(f))
		return (int)ptr_err(f);
	fd = fd_install(t, f, O_CLOEXEC);
	if (fd < 0)
		return fd;
	err = copyout_obj(t, a->pidfd, &fd);
	if (err) {
		(void)fd_close(t, fd);
		return err;
	}
	return fd;
}

/* The child is in the tables: give it a thread. On failure it disappears again, unseen by wait. */
static int launch(struct task *c)
{
	int err = task_start_thread(c);

	if (!err)
		return 0;
	if (sem_undo_exit)
		sem_undo_exit(c);
	if (c->tg->leader == c)
		tty_session_exit(
			c->tg); /* drops the reference only: it leads no session */
	mutex_lock(&kernel.tasks_mu);
	if (c->vfork_waiter) {
		task_put(c->vfork_waiter);
		c->vfork_waiter = NULL;
	}
	c->tg->nthreads--;
	c->tg->nlive_threads--;
	task_release_locked(c);
	mutex_unlock(&kernel.tasks_mu);
	return err;
}

static int give_pid(struct task *t, struct task *c, const struct clone_args *a)
{
	struct pidns *ns =
		a->flags & CLONE_THREAD ? task_pidns(t) : c->ns->pid_for_children;
	struct pid *p = pid_alloc_set(ns, a->set_tid, a->set_tid_size);

	if (is_err(p))
		return (int)ptr_err(p);
	c->pid = p;
	return 0;
}

/* Builds the child up to attaching it. err_ptr. */
static struct task *build_child(struct task *t, const struct clone_args *a)
{
	struct task *c = task_alloc();
	int err;

	copy_attributes(t, c, a->flags);
	copy_regs(t, c, a);
	err = copy_parts(t, c, a->flags);
	if (!err)
		err = give_pid(t, c, a);
	if (err) {
		task_discard(c);
		return err_ptr(err);
	}
	if (a->flags & CLONE_THREAD)
		c->exit_signal = -1;
	else if (a->flags & CLONE_PARENT)
		c->exit_signal = t->tg->leader->exit_signal;
	else
		c->exit_signal = a->exit_signal;
	return c;
}

static int finish_clone(struct task *t, struct task *c, const struct clone_args *a,
			int ev)
{
	struct tgroup *tg = a->flags & CLONE_THREAD ? NULL : new_group(t, c);
	int fd = -1, err;

	if (a->flags & CLONE_PIDFD) {
		fd = install_pidfd(t, c, a);
		if (fd < 0) {
			tgroup_put(tg);
			return fd;
		}
	}
	err = attach(t, c, tg, a->flags, ev);
	tgroup_put(tg); /* the task and the tables have theirs now */
	if (err && fd >= 0)
		(void)fd_close(t, fd);
	return err;
}

/*
 * Makes a thread or process. The child's tid as the caller sees it, or -errno: EAGAIN (limits), EINVAL
 * (flags, see man 2 clone), EPERM (namespaces, set_tid), EEXIST (set_tid), ENOMEM, ENOSPC.
 */
long task_clone(struct task *t, const struct clone_args *a)
{
	struct task *c;
	int err = check_flags(t, a), ev;
	pid_t nr;

	if (err)
		return err;
	if (atomic_load(&kernel.ntasks) >= kernel.limits.max_tasks || over_nproc(t))
		return -EAGAIN;
	c = build_child(t, a);
	if (is_err(c))
		return ptr_err(c);
	ev = clone_event(t, a);
	err = finish_clone(t, c, a, ev);
	if (err) {
		task_discard(c);
		return err;
	}
	atomic_fetch_add(&kernel.nforks, 1);
	if (sem_undo_clone)
		sem_undo_clone(t, c, a->flags & CLONE_SYSVSEM);
	nr = task_tid_for(c, t);
	/* Too late to fail: as in Linux the child runs, the number is lost. */
	if ((a->flags & CLONE_PARENT_SETTID) && copyout_obj(t, a->parent_tid, &nr))
		log_debug("clone: bad parent_tid");
	err = launch(c);
	if (err) {
		task_discard(c);
		return err;
	}
	if (ev)
		ptrace_event(t, ev, (uint64_t)nr);
	if (a->flags & CLONE_VFORK) {
		t->vfork_nr = nr;
		task_wait_vfork(t);
	}
	task_put(c);
	return nr;
}
