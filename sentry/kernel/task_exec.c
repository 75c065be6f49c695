// SPDX-License-Identifier: Apache-2.0
/*
 * execve(2): a new program in an old process.
 *
 * The new address space is built completely, beside the old one, while the call can still fail. Then the
 * other threads are killed (the point of no return), the calling thread takes over the leader's place and
 * number if it wasn't the leader, the old address space is left, and everything that doesn't survive an
 * exec is reset (man 2 execve lists it).
 */
#include <errno.h>
#include <linux/ptrace.h>
#include <signal.h>
#include <string.h>
#include <sys/personality.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "sentry/kernel/futex.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/loader/loader.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/usermem.h"
#include "sentry/time/posix_timer.h"
#include "sentry/vfs/vfs.h"

#define PER_CLEAR_ON_SETID \
 (READ_IMPLIES_EXEC | ADDR_NO_RANDOMIZE | ADDR_COMPAT_LAYOUT | MMAP_PAGE_ZERO)

/* The dead leader hands its number, its place and its start time to @t and vanishes. Context: @t is the
 * only live thread. */
static void take_leadership(struct task *t)
{
	struct tgroup *tg = t->tg;
	struct task *old;
	struct pid *p;
	AUTO_LOCK(&kernel.tasks_mu);

	old = tg->leader;
	if (old == t)
		return;
	p = t->pid;
	mutex_lock(&t->mu);
	t->pid = old->pid;
	mutex_unlock(&t->mu);
	old->pid = p;
	t->pid->task = t;
	old->pid->task = old;
	t->exit_signal = old->exit_signal;
	old->exit_signal = -1;
	t->start_ns = old->start_ns;
	for (struct pidns *ns = t->pid->ns; ns; ns = ns->parent)
		if (ns->init == old)
			ns->init = t;
	tg->leader = task_get(t);
	task_release_locked(old);
	task_put(old); /* tg->leader's */
}

/* Leaves the old address space: what threads of it, a vfork parent or a futex waiter expect of us first. */
static void leave_mm(struct task *t, struct mm *new)
{
	struct plat_ctx *ctx;
	struct mm *old = t->mm;
	uint32_t zero = 0;

	if (old) {
		futex_exit_task(t);
		if (!gaddr_is_null(t->clear_child_tid) &&
		    copyout_obj(t, t->clear_child_tid, &zero) == 0)
			futex_wake_addr(t, t->clear_child_tid, 1);
	}
	t->clear_child_tid = GADDR_NULL;
	t->robust_list = GADDR_NULL;
	task_usage_leave_ctx(t);
	mutex_lock(&t->mu);
	ctx = t->ctx;
	t->ctx = NULL;
	task_undoom_locked(t);
	t->mm = new;
	mutex_unlock(&t->mu);
	if (ctx)
		plat->ctx_destroy(ctx);
	if (old)
		mm_unuse(old);
	task_vfork_release(t);
}

static int enter_mm(struct task *t)
{
	struct plat_ctx *ctx = plat->ctx_create(mm_plat_as(t->mm));

	if (is_err(ctx))
		return (int)ptr_err(ctx);
	mutex_lock(&t->mu);
	t->ctx = ctx;
	mutex_unlock(&t->mu);
	t->answers = ANSWERS_STALE;
	return plat->ctx_init_fp(ctx);
}

static void reset_attributes(struct task *t, const struct loaded *l)
{
	task_set_comm(t, l->comm);
	memset(&t->restart, 0, sizeof(t->restart));
	t->rseq = GADDR_NULL;
	t->rseq_len = 0;
	t->rseq_sig = 0;
	if (l->secure) {
		t->personality &= ~(uint32_t)PER_CLEAR_ON_SETID;
		t->pdeath_signal = 0;
	}
}

/* A program whose file its user can't read mustn't leak its memory by ptrace or core (man 5 proc). */
static void set_dumpable(struct task *t, const struct loaded *l, const struct cred *old)
{
	bool same = l->cred->euid == old->uid && l->cred->egid == old->gid && !l->secure;
	bool readable = inode_permission(l->exe->inode, l->cred, MAY_READ) == 0;

	mm_set_dumpable(t->mm, same && readable ? 1 : 0);
}

/* The caller has the new mm in l->mm and can't go back. */
static void commit(struct task *t, struct loaded *l, uint64_t old_tid)
{
	struct cred *old = cred_get(t->cred);
	int err;

	take_leadership(t);
	leave_mm(t, steal_ptr(&l->mm));
	posix_timers_exit(t->tg);
	signal_exec(t);
	files_exec(t);
	reset_attributes(t, l);
	cred_install(t, cred_get(l->cred));
	set_dumpable(t, l, old);
	cred_put(old);
	t->regs = l->regs;
	t->regs.rax = 0;
	t->regs.orig_rax = (uint64_t)-1;
	mutex_lock(&kernel.tasks_mu);
	t->tg->exec_task = NULL;
	t->tg->did_exec = true;
	cond_broadcast(&kernel.tasks_cond);
	mutex_unlock(&kernel.tasks_mu);
	err = enter_mm(t);
	if (err) {
		log_error("exec: no context: %s", strerror(-err));
		task_group_exit(t, SIGKILL);
		return;
	}
	if (ptrace_active(t))
		ptrace_exec_done(t, old_tid);
}

long task_exec(struct task *t, const struct exec_args *a)
{
	struct loaded l = { 0 };
	uint64_t old_tid = (uint64_t)task_tid(t);
	int err = loader_load(t, a, &l);

	if (err)
		return err;
	err = task_kill_others(t);
	if (err) {
		/* Somebody else's exec or exit has won; we are about to die. */
		loaded_fini(&l);
		return err;
	}
	commit(t, &l, old_tid);
	loaded_fini(&l);
	return 0;
}
