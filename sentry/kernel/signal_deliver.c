// SPDX-License-Identifier: Apache-2.0
/*
 * Delivery: what happens to pending signals when a task is about to go back to its guest (man 7 signal).
 *
 * One round takes one signal: default action, stop, or a frame for its handler. After a frame the next
 * round starts from the handler's registers, so several pending signals nest as in Linux, the last one
 * delivered running first.
 *
 * An interrupted call is restarted (rip back onto the syscall instruction, rax the number again) if no
 * handler runs, or if its error and SA_RESTART say so; this is decided with the first handler, as later ones
 * see a task that isn't in a call any more.
 *
 * We dump no core: a signal whose default is a core dump kills without WCOREFLAG.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/err.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/kernel/signal_priv.h"

#define NR_RESTART_SYSCALL 219
#define SYSCALL_INSN_LEN 2

/* A copy of what was taken from the queue. */
struct delivery {
	int sig; /* 0: nothing (more) to deliver */
	struct l_siginfo info;
	struct l_sigaction sa;
};

static bool stop_is_orphaned(struct task *t)
{
	AUTO_LOCK(&kernel.tasks_mu);

	return t->tg->pgrp && pgrp_is_orphaned_locked(t->tg->pgrp, NULL);
}

/* Default action stop. Context: no locks. */
static void default_stop(struct task *t, int sig)
{
	struct sighand *sh;

	/* man 7 credentials: a terminal's stop would leave an orphaned group stopped for good */
	if (sig != SIGSTOP && stop_is_orphaned(t))
		return;
	sh = signal_lock(t);
	if (!sh)
		return;
	/* a SIGCONT or SIGKILL that came while the lock was dropped wins */
	if (t->tg->group_exit || (t->tg->pending.set & SIGBIT(SIGCONT))) {
		signal_unlock(sh);
		return;
	}
	if (!t->tg->group_stop || t->stop_parked)
		signal_stop_begin_locked(t, sig);
	signal_unlock(sh);
	signal_stop_park(t);
}

enum verdict { V_AGAIN, V_HANDLER, V_DEAD };

static enum verdict default_action(struct task *t, const struct delivery *d)
{
	sigset_g bit = SIGBIT(d->sig);
	bool unkillable;
	struct sighand *sh;

	if (bit & SIGSET_DEFAULT_IGNORE)
		return V_AGAIN;
	sh = signal_lock(t);
	if (!sh)
		return V_DEAD;
	unkillable = tgroup_unkillable_locked(t->tg);
	signal_unlock(sh);
	if (unkillable && !(bit & SIGSET_KERNEL_ONLY))
		return V_AGAIN; /* blocked when it was sent */
	if (bit & SIGSET_STOP) {
		default_stop(t, d->sig);
		return V_AGAIN;
	}
	task_group_exit(t, d->sig);
	return V_DEAD;
}

/* A signal the tracer let through: may have been changed, and be blocked by now. True: go on with it. */
static bool after_tracer(struct task *t, struct delivery *d)
{
	struct sighand *sh = signal_lock(t);
	bool go = true;

	if (!sh)
		return false;
	if (t->blocked & SIGBIT(d->sig)) {
		(void)signal_send_locked(t->tg, t, d->sig, &d->info, true);
		go = false;
	}
	signal_unlock(sh);
	return go;
}

/* Reads the action and resets a one-shot handler. */
static void take_action(struct task *t, struct delivery *d)
{
	struct sighand *sh = signal_lock(t);
	struct l_sigaction *sa;

	memset(&d->sa, 0, sizeof(d->sa));
	if (!sh)
		return;
	sa = &sh->action[d->sig - 1];
	d->sa = *sa;
	if ((sa->flags & SA_RESETHAND) && sa->handler != SIG_DFL_G && sa->handler != SIG_IGN_G)
		sa->handler = SIG_DFL_G;
	signal_unlock(sh);
}

/* What is to be done before a signal is even looked for. */
enum state { S_DEAD, S_NOTIFY, S_PARK, S_SIGNAL, S_NONE };

static enum state next_state(struct task *t, struct delivery *d, int *ret_exit)
{
	struct sighand *sh = signal_lock(t);
	struct tgroup *tg = t->tg;
	enum state r = S_SIGNAL;

	if (!sh)
		return S_DEAD;
	d->sig = 0;
	if (tg->group_exit) {
		*ret_exit = tg->group_exit_code;
		r = S_DEAD;
	} else if (tg->notify) {
		r = S_NOTIFY;
	} else if (tg->group_stop && !t->stop_parked) {
		r = S_PARK;
	} else if (t->pending.set & SIGBIT(SIGKILL)) {
		*ret_exit = SIGKILL;
		r = S_DEAD;
	} else {
		d->sig = signal_dequeue_locked(t, ~t->blocked, &d->info);
		signal_recalc_locked(t);
		if (!d->sig)
			r = S_NONE;
	}
	signal_unlock(sh);
	return r;
}

/* After the tracer, if there is one, has had its say. */
static enum verdict handle_allowed(struct task *t, struct delivery *d)
{
	take_action(t, d);
	if (d->sa.handler == SIG_IGN_G)
		return V_AGAIN;
	if (d->sa.handler != SIG_DFL_G)
		return V_HANDLER;
	return default_action(t, d);
}

static enum verdict handle_one(struct task *t, struct delivery *d)
{
	if (ptrace_active(t) && d->sig != SIGKILL) {
		d->sig = ptrace_signal_stop(t, d->sig, &d->info);
		if (d->sig == 0 || !after_tracer(t, d))
			return V_AGAIN;
	}
	return handle_allowed(t, d);
}

/* The next signal that has a handler; false: none. *ret_dead: the task is to exit. */
static bool get_signal(struct task *t, struct delivery *d, bool *ret_dead)
{
	int code = 0;

	*ret_dead = false;
	for (;;) {
		if (atomic_load(&t->exiting)) {
			*ret_dead = true;
			return false;
		}
		switch (next_state(t, d, &code)) {
		case S_DEAD:
			task_group_exit(t, code);
			*ret_dead = true;
			return false;
		case S_NOTIFY:
			signal_tell_parent(t->tg);
			break;
		case S_PARK:
			signal_stop_park(t);
			break;
		case S_NONE:
			return false;
		case S_SIGNAL:
			switch (handle_one(t, d)) {
			case V_AGAIN:
				break;
			case V_HANDLER:
				return true;
			case V_DEAD:
				*ret_dead = true;
				return false;
			}
			break;
		}
	}
}

/* ---- restarting ---- */

static void restart_as(struct regs *r, uint64_t nr)
{
	r->rax = nr;
	r->rip -= SYSCALL_INSN_LEN;
}

static void restart_with_handler(struct regs *r, const struct l_sigaction *sa)
{
	switch (-(int64_t)r->rax) {
	case ERESTART_RESTARTBLOCK:
	case ERESTARTNOHAND:
		r->rax = (uint64_t)-EINTR;
		break;
	case ERESTARTSYS:
		if (!(sa->flags & SA_RESTART)) {
			r->rax = (uint64_t)-EINTR;
			break;
		}
		restart_as(r, r->orig_rax);
		break;
	case ERESTARTNOINTR:
		restart_as(r, r->orig_rax);
		break;
	default:
		break;
	}
}

static void restart_without_handler(struct regs *r)
{
	switch (-(int64_t)r->rax) {
	case ERESTARTSYS:
	case ERESTARTNOHAND:
	case ERESTARTNOINTR:
		restart_as(r, r->orig_rax);
		break;
	case ERESTART_RESTARTBLOCK:
		restart_as(r, NR_RESTART_SYSCALL);
		break;
	default:
		break;
	}
}

/* ---- handlers ---- */

/* The frame is in place: the handler's mask. */
static void handler_entered(struct task *t, const struct delivery *d)
{
	sigset_g set = t->blocked | d->sa.mask;

	t->has_saved_blocked = false; /* it is in the frame */
	if (!(d->sa.flags & SA_NODEFER))
		set |= SIGBIT(d->sig);
	signal_set_blocked(t, set);
}

/* No place for a frame: SIGSEGV, which kills if that was what we wanted to deliver. */
static void frame_failed(struct task *t, int sig)
{
	struct sighand *sh;

	if (sig == SIGSEGV) {
		sh = signal_lock(t);
		if (sh) {
			sh->action[SIGSEGV - 1].handler = SIG_DFL_G;
			signal_unlock(sh);
		}
	}
	signal_force(t, SIGSEGV, NULL);
}

static void deliver_from(struct task *t, bool in_syscall, struct delivery d, bool have)
{
	struct regs *r = &t->regs;
	bool dead = false;

	if ((int64_t)r->orig_rax < 0)
		in_syscall = false;
	for (; have || get_signal(t, &d, &dead); have = false) {
		sigset_g old = t->has_saved_blocked ? t->saved_blocked : t->blocked;

		if (in_syscall) {
			restart_with_handler(r, &d.sa);
			t->freeze.redo = false; /* whatever call comes next isn't this one */
			in_syscall = false;
		}
		if (signal_setup_frame(t, d.sig, &d.sa, &d.info, old) == 0)
			handler_entered(t, &d);
		else
			frame_failed(t, d.sig);
	}
	if (dead)
		return;
	if (in_syscall)
		restart_without_handler(r);
	signal_restore_temp_mask(t);
}

void signal_deliver(struct task *t, bool in_syscall)
{
	deliver_from(t, in_syscall, (struct delivery){ 0 }, false);
}

void signal_deliver_allowed(struct task *t, bool in_syscall, int sig, const struct l_siginfo *info)
{
	struct delivery d = { .sig = sig, .info = *info };
	bool have = sig && after_tracer(t, &d) && handle_allowed(t, &d) == V_HANDLER;

	deliver_from(t, in_syscall, d, have);
}

/* ---- exec ---- */

/* Shared with another process (CLONE_SIGHAND without CLONE_THREAD)? Then ours becomes a copy. Context:
 * @t is the only thread of its group. */
static void unshare_sighand(struct task *t)
{
	struct sighand *old = t->sighand, *new;

	if (ref_count(&old->ref) == 1)
		return;
	new = sighand_dup(old);
	mutex_lock(&kernel.tasks_mu);
	mutex_lock(&old->mu);
	__atomic_store_n(&t->sighand, new, __ATOMIC_RELEASE);
	__atomic_store_n(&t->tg->sighand, new, __ATOMIC_RELEASE);
	mutex_unlock(&old->mu);
	mutex_unlock(&kernel.tasks_mu);
	sighand_put(old);
}

void signal_exec(struct task *t)
{
	struct sighand *sh;

	unshare_sighand(t);
	sh = signal_lock(t);
	if (!sh)
		return;
	for (int i = 0; i < NSIG_GUEST; i++) {
		struct l_sigaction *sa = &sh->action[i];

		if (sa->handler != SIG_IGN_G)
			sa->handler = SIG_DFL_G;
		sa->flags = 0;
		sa->mask = 0;
		sa->restorer = 0;
	}
	signal_unlock(sh);
	memset(&t->altstack, 0, sizeof(t->altstack));
	t->altstack.ss_flags = SS_DISABLE;
}
