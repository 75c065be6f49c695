// SPDX-License-Identifier: Apache-2.0
/*
 * Sending signals (man 7 signal, 2 kill): what is dropped at once, which queue, which thread, and signals
 * that kill a whole process on the spot.
 *
 * A signal that kills by default isn't just queued: group_exit is set and every thread gets SIGKILL, so
 * that no thread runs on while the chosen one is slow to wake up. Without a thread that wants a shared
 * signal it stays queued; who unblocks it finds it.
 *
 * pid 1 of a pid namespace is immune to signals that it has no handler for, when they come from its own
 * namespace; from an ancestor's, or from the runtime, only SIGKILL and SIGSTOP are forced.
 *
 * Lock order: kernel.tasks_mu > sighand.mu > tg.sig_wq.mu. The lists of threads are walked under sighand.mu.
 */
#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/epoll.h>

#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/signal_priv.h"

/* ---- state ---- */

bool tgroup_unkillable_locked(const struct tgroup *tg)
{
	return tg->pid->nr[tg->pid->level] == 1 && !tg->init_killable;
}

bool signal_pending(struct task *t)
{
	return atomic_load_explicit(&t->sigpending, memory_order_relaxed);
}

bool signal_fatal_pending(struct task *t)
{
	return atomic_load(&t->exiting) || READ_ONCE(t->tg->group_exit) ||
	       (READ_ONCE(t->pending.set) & SIGBIT(SIGKILL));
}

void signal_recalc_locked(struct task *t)
{
	struct tgroup *tg = t->tg;
	bool pending = ((t->pending.set | tg->pending.set) & ~t->blocked) || tg->group_exit ||
		       tg->notify || (tg->group_stop && !t->stop_parked);

	if (atomic_load_explicit(&t->sigpending, memory_order_relaxed) != pending)
		atomic_store(&t->sigpending, pending);
}

/* Makes @t look at its signals. */
void signal_wake_locked(struct task *t)
{
	atomic_store(&t->sigpending, true);
	task_interrupt(t);
}

/* ---- is it dropped? ---- */

static bool handler_ignores(uint64_t handler, int sig)
{
	return handler == SIG_IGN_G ||
	       (handler == SIG_DFL_G && (SIGSET_DEFAULT_IGNORE & SIGBIT(sig)));
}

static bool ignored_locked(struct sighand *sh, struct tgroup *tg, struct task *t, int sig,
			   bool force)
{
	uint64_t handler = sh->action[sig - 1].handler;
	sigset_g blocked = t->blocked | (t->has_saved_blocked ? t->saved_blocked : 0);

	/* A blocked one stays pending: the handler may be changed before it is unblocked. */
	if (blocked & SIGBIT(sig))
		return false;
	if (ptrace_traced(t) && sig != SIGKILL)
		return false;
	if (tgroup_unkillable_locked(tg) && handler == SIG_DFL_G &&
	    !(force && (SIGSET_KERNEL_ONLY & SIGBIT(sig))))
		return true;
	return handler_ignores(handler, sig);
}

bool signal_blocked_or_ignored(struct task *t, int sig)
{
	struct sighand *sh = signal_lock(t);
	bool r;

	if (!sh)
		return true;
	r = (t->blocked & SIGBIT(sig)) || sh->action[sig - 1].handler == SIG_IGN_G;
	signal_unlock(sh);
	return r;
}

/* Stop signals and SIGCONT cancel each other, even when blocked or ignored. False: drop the signal. */
static bool prepare_locked(struct tgroup *tg, struct task *t, int sig, bool force)
{
	struct task *i;

	if (tg->group_exit || tg->zombie)
		return sig == SIGKILL && !tg->group_exit;
	if (SIGSET_STOP & SIGBIT(sig)) {
		sigpending_remove(&tg->pending, SIGBIT(SIGCONT));
		list_for_each(i, &tg->threads, tg_node)
			sigpending_remove(&i->pending, SIGBIT(SIGCONT));
	} else if (sig == SIGCONT) {
		sigpending_remove(&tg->pending, SIGSET_STOP);
		list_for_each(i, &tg->threads, tg_node)
			sigpending_remove(&i->pending, SIGSET_STOP);
		signal_continue_locked(tg);
	}
	return !ignored_locked(t->sighand, tg, t, sig, force);
}

/* ---- who gets it ---- */

static bool wants(struct task *t, int sig)
{
	if (task_is_exiting(t))
		return false;
	if (sig == SIGKILL)
		return true;
	if (t->blocked & SIGBIT(sig))
		return false;
	if (atomic_load(&t->state) == TASK_STOPPED || atomic_load(&t->state) == TASK_TRACED)
		return false;
	/* a thread with nothing to do yet is better than one that has a signal already */
	return !signal_pending(t);
}

static struct task *choose_locked(struct tgroup *tg, struct task *t, int sig, bool shared)
{
	struct task *i, *second = NULL;

	if (wants(t, sig))
		return t;
	if (!shared)
		return t->blocked & SIGBIT(sig) ? NULL : t;
	list_for_each(i, &tg->threads, tg_node) {
		if (wants(i, sig))
			return i;
		if (!second && !task_is_exiting(i) && !(i->blocked & SIGBIT(sig)))
			second = i;
	}
	return second; /* has something pending: will get to it */
}

static bool kills_locked(struct tgroup *tg, struct task *t, int sig)
{
	sigset_g real_blocked = t->has_saved_blocked ? t->saved_blocked : 0;

	if (tg->group_exit || t->sighand->action[sig - 1].handler != SIG_DFL_G)
		return sig == SIGKILL && !tg->group_exit;
	if ((SIGSET_DEFAULT_IGNORE | SIGSET_STOP) & SIGBIT(sig))
		return false;
	if (real_blocked & SIGBIT(sig)) /* sigtimedwait may want it */
		return false;
	return sig == SIGKILL || !ptrace_traced(t);
}

static void kill_all_locked(struct tgroup *tg, int sig)
{
	struct task *i;

	tg->group_exit = true;
	tg->group_exit_code = sig;
	tg->group_stop = false;
	list_for_each(i, &tg->threads, tg_node) {
		i->pending.set |= SIGBIT(SIGKILL);
		signal_wake_locked(i);
		task_doom(i);
	}
}

static void complete_locked(struct tgroup *tg, struct task *t, int sig, bool shared)
{
	struct task *to = choose_locked(tg, t, sig, shared);

	if (!to)
		return;
	if (kills_locked(tg, to, sig) &&
	    !(tgroup_unkillable_locked(tg) && !(SIGSET_KERNEL_ONLY & SIGBIT(sig))))
		kill_all_locked(tg, sig);
	else
		signal_wake_locked(to);
}

/* ---- sending ---- */

static void default_info(struct l_siginfo *info, int sig)
{
	memset(info, 0, sizeof(*info));
	info->si_signo = sig;
	info->si_code = SI_KERNEL;
}

/* The sender's pid means something else in another pid namespace; 0 where it can't be seen. */
static void translate_info(struct tgroup *tg, const struct l_siginfo *info, struct l_siginfo *ret)
{
	struct task *sender;

	*ret = *info;
	if (info->si_code != SI_USER && info->si_code != SI_TKILL)
		return;
	sender = current_task();
	if (sender && sender->tg->pid->ns != tg->pid->ns)
		ret->kill.pid = pid_nr(sender->tg->pid, tg->pid->ns);
}

int signal_send_locked(struct tgroup *tg, struct task *t, int sig, const struct l_siginfo *info,
		       bool force)
{
	struct task *target = t ? t : tg->leader;
	struct sigpending *p = t ? &t->pending : &tg->pending;
	struct sigqueue_entry *e;
	bool override;

	if (!prepare_locked(tg, target, sig, force))
		return 0;
	if (sig < __SIGRTMIN_G && (p->set & SIGBIT(sig)))
		return 0; /* coalesced */
	if (sig != SIGKILL) {
		override = sig < __SIGRTMIN_G && (!info || info->si_code >= 0);
		e = sigqueue_alloc(target, sig, override);
		if (e) {
			if (info)
				translate_info(tg, info, &e->info);
			else
				default_info(&e->info, sig);
			e->info.si_signo = sig;
			list_add_tail(&p->queue, &e->node);
		} else if (sig >= __SIGRTMIN_G && info && info->si_code != SI_USER) {
			return -EAGAIN;
		}
	}
	p->set |= SIGBIT(sig);
	complete_locked(tg, target, sig, !t);
	waitq_wake(&tg->sig_wq, EPOLLIN);
	return 0;
}

/* From outside the receiver's pid namespace, or from the kernel. */
static bool is_forced(struct tgroup *tg, const struct l_siginfo *info)
{
	struct task *sender = current_task();

	if (!info || !sender || info->si_code == SI_KERNEL)
		return true;
	return pid_nr(sender->tg->pid, tg->pid->ns) == 0;
}

int signal_send_tgroup(struct tgroup *tg, int sig, const struct l_siginfo *info)
{
	bool force = is_forced(tg, info);
	struct sighand *sh = signal_lock_tgroup(tg);
	int r;

	if (!sh || !tg->leader) {
		if (sh)
			signal_unlock(sh);
		return tg->zombie ? 0 : -ESRCH;
	}
	r = signal_send_locked(tg, NULL, sig, info, force);
	signal_unlock(sh);
	return r;
}

int signal_send_task(struct task *t, int sig, const struct l_siginfo *info)
{
	bool force = is_forced(t->tg, info);
	struct sighand *sh;
	int r;

	if (atomic_load(&t->state) == TASK_DEAD)
		return -ESRCH;
	sh = signal_lock(t);
	if (!sh)
		return -ESRCH;
	r = signal_send_locked(t->tg, t, sig, info, force);
	signal_unlock(sh);
	return r;
}

int signal_send_pgrp(struct pid *pgrp, int sig, const struct l_siginfo *info)
{
	struct tgroup *tg;
	int r = -ESRCH, one;
	AUTO_LOCK(&kernel.tasks_mu);

	list_for_each(tg, &pgrp->pgrp, pgrp_node) {
		one = signal_send_tgroup(tg, sig, info);
		if (r != 0)
			r = one;
	}
	return r;
}

void signal_kill_tgroup(struct tgroup *tg)
{
	struct sighand *sh = signal_lock_tgroup(tg);

	if (!sh)
		return;
	if (!tg->group_exit && !tg->zombie)
		kill_all_locked(tg, SIGKILL);
	signal_unlock(sh);
}

bool signal_queue_timer_locked(struct tgroup *tg, struct task *t, struct sigqueue_entry *e)
{
	struct task *target = t ? t : tg->leader;
	struct sigpending *p = t ? &t->pending : &tg->pending;
	int sig = e->info.si_signo;

	if (!target || task_is_exiting(target) || !prepare_locked(tg, target, sig, false))
		return false;
	list_add_tail(&p->queue, &e->node);
	p->set |= SIGBIT(sig);
	complete_locked(tg, target, sig, !t);
	waitq_wake(&tg->sig_wq, EPOLLIN);
	return true;
}

void signal_force(struct task *t, int sig, const struct l_siginfo *info)
{
	struct sighand *sh = signal_lock(t);
	struct l_sigaction *sa;

	if (!sh)
		return;
	sa = &sh->action[sig - 1];
	if (sa->handler == SIG_IGN_G || (t->blocked & SIGBIT(sig))) {
		sa->handler = SIG_DFL_G;
		t->blocked &= ~SIGBIT(sig);
	}
	if (sa->handler == SIG_DFL_G && !ptrace_traced(t))
		t->tg->init_killable = true;
	(void)signal_send_locked(t->tg, t, sig, info, true); /* can't fail: a standard signal */
	signal_recalc_locked(t);
	signal_unlock(sh);
}

/* Page-fault error code bits of the CPU that the frame shows. */
#define PF_PROT 1u
#define PF_USER 4u

void signal_force_fault(struct task *t, int sig, int code, uint64_t addr)
{
	struct l_siginfo info = { .si_signo = sig, .si_code = code };

	info.fault.addr = addr;
	t->trap.cr2 = 0;
	t->trap.err = 0;
	switch (sig) {
	case SIGSEGV:
	case SIGBUS:
		t->trap.trapno = code == SI_KERNEL ? 13 : sig == SIGBUS && code == BUS_ADRALN ? 17 : 14;
		if (t->trap.trapno == 14) {
			t->trap.cr2 = addr;
			t->trap.err = PF_USER | (code == SEGV_ACCERR ? PF_PROT : 0);
		}
		break;
	case SIGFPE:
		t->trap.trapno = code == FPE_INTDIV ? 0 : 19;
		break;
	case SIGILL:
		t->trap.trapno = 6;
		break;
	case SIGTRAP:
		t->trap.trapno = code == TRAP_TRACE ? 1 : 3;
		break;
	default:
		break;
	}
	signal_force(t, sig, &info);
}

/* ---- masks ---- */

void signal_retarget_locked(struct task *t, sigset_g set)
{
	struct tgroup *tg = t->tg;
	struct task *i;

	set &= tg->pending.set;
	if (!set)
		return;
	list_for_each(i, &tg->threads, tg_node) {
		if (i == t || task_is_exiting(i) || !(set & ~i->blocked))
			continue;
		set &= i->blocked;
		if (!signal_pending(i))
			signal_wake_locked(i);
		if (!set)
			break;
	}
}

void signal_set_blocked(struct task *t, sigset_g set)
{
	struct sighand *sh;

	set &= ~SIGSET_UNBLOCKABLE;
	if (set == t->blocked)
		return;
	sh = signal_lock(t);
	if (!sh)
		return;
	if (atomic_load_explicit(&t->sigpending, memory_order_relaxed))
		signal_retarget_locked(t, set & ~t->blocked);
	t->blocked = set;
	signal_recalc_locked(t);
	signal_unlock(sh);
}

void signal_set_temp_mask(struct task *t, sigset_g set)
{
	t->saved_blocked = t->blocked;
	t->has_saved_blocked = true;
	signal_set_blocked(t, set);
}

void signal_restore_temp_mask(struct task *t)
{
	if (!t->has_saved_blocked)
		return;
	t->has_saved_blocked = false;
	signal_set_blocked(t, t->saved_blocked);
}

/* ---- permission, siginfo ---- */

int signal_may_send(struct task *t, struct task *target, int sig)
{
	const struct cred *c = task_cred(t);
	struct cred *tc;
	bool ok;

	if (t->tg == target->tg)
		return 0;
	tc = task_cred_get(target);
	ok = c->euid == tc->suid || c->euid == tc->uid || c->uid == tc->suid ||
	     c->uid == tc->uid || cred_capable_in(c, tc->userns, CAP_KILL);
	cred_put(tc);
	if (ok)
		return 0;
	/* compared only: no reference needed */
	if (sig == SIGCONT && READ_ONCE(t->tg->session) == READ_ONCE(target->tg->session))
		return 0;
	return -EPERM;
}

/* Ids as the sender's own namespaces show them; most receivers share them. */
void siginfo_user(struct l_siginfo *info, struct task *t, int sig, int code)
{
	const struct cred *c = task_cred(t);

	memset(info, 0, sizeof(*info));
	info->si_signo = sig;
	info->si_code = code;
	info->kill.pid = task_tgid(t);
	info->kill.uid = userns_show_uid(c->userns, c->uid);
}
