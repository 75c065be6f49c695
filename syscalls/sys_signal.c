// SPDX-License-Identifier: Apache-2.0
/* Signal calls: man 2 sigaction, sigprocmask, sigpending, sigsuspend, sigtimedwait, sigaltstack, kill, tgkill,
 * rt_sigqueueinfo, pause, restart_syscall. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "sentry/kernel/freeze.h"
#include "sentry/kernel/futex.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/signal_kill.h"
#include "sentry/kernel/signal_priv.h"
#include "sentry/time/clock.h"
#include "sentry/time/nanosleep.h"
#include "syscalls/sys.h"
#include "syscalls/sys_poll.h"

/* SA_* that Linux knows; others, SA_UNSUPPORTED (0x400) among them, are cleared so that probing works. */
#define SA_KNOWN                                                                         \
	(SA_NOCLDSTOP | SA_NOCLDWAIT | SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_NODEFER |   \
	 SA_RESETHAND | 0x04000000ULL /* SA_RESTORER */ | 0x800ULL /* SA_EXPOSE_TAGBITS */)

static bool valid_signal(int sig)
{
	return sig >= 0 && sig <= NSIG_GUEST;
}

long sys_rt_sigaction(struct task *t, const struct sysargs *a)
{
	int sig = arg_int(a, 0);
	gaddr_t act = arg_gaddr(a, 1), oldact = arg_gaddr(a, 2);
	struct l_sigaction new, old;
	int r;

	if (arg_size(a, 3) != sizeof(sigset_g))
		return -EINVAL;
	if (!gaddr_is_null(act)) {
		r = copyin_obj(t, &new, act);
		if (r < 0)
			return r;
		new.flags &= SA_KNOWN;
	}
	if (sig < 1 || !valid_signal(sig))
		return -EINVAL;
	if (!gaddr_is_null(act) && (SIGSET_UNBLOCKABLE & SIGBIT(sig)))
		return -EINVAL;
	signal_set_action(t, sig, gaddr_is_null(act) ? NULL : &new, &old);
	return gaddr_is_null(oldact) ? 0 : copyout_obj(t, oldact, &old);
}

long sys_rt_sigprocmask(struct task *t, const struct sysargs *a)
{
	sigset_g set, old = t->blocked, new = 0;
	int r;

	if (arg_size(a, 3) != sizeof(sigset_g))
		return -EINVAL;
	if (a->v[1]) {
		r = copyin_obj(t, &set, arg_gaddr(a, 1));
		if (r < 0)
			return r;
		switch (arg_int(a, 0)) {
		case SIG_BLOCK:
			new = old | set;
			break;
		case SIG_UNBLOCK:
			new = old & ~set;
			break;
		case SIG_SETMASK:
			new = set;
			break;
		default:
			return -EINVAL;
		}
		signal_set_blocked(t, new);
	}
	return a->v[2] ? copyout_obj(t, arg_gaddr(a, 2), &old) : 0;
}

long sys_rt_sigpending(struct task *t, const struct sysargs *a)
{
	sigset_g set;

	if (arg_size(a, 1) > sizeof(set))
		return -EINVAL;
	set = (READ_ONCE(t->pending.set) | READ_ONCE(t->tg->pending.set)) & t->blocked;
	return copyout(t, arg_gaddr(a, 0), &set, arg_size(a, 1));
}

long sys_rt_sigreturn(struct task *t, const struct sysargs *a)
{
	(void)a;
	return signal_return(t);
}

/* Sleeps until a signal has to be handled. */
static long wait_for_signal(struct task *t)
{
	for (;;) {
		task_sleep_prepare(t);
		if (task_sleep(t, DEADLINE_NONE) == -ERESTARTSYS)
			return -ERESTARTNOHAND;
	}
}

long sys_rt_sigsuspend(struct task *t, const struct sysargs *a)
{
	sigset_g set;
	int r;

	if (arg_size(a, 1) != sizeof(set))
		return -EINVAL;
	r = copyin_obj(t, &set, arg_gaddr(a, 0));
	if (r < 0)
		return r;
	signal_set_temp_mask(t, set);
	return wait_for_signal(t);
}

long sys_pause(struct task *t, const struct sysargs *a)
{
	(void)a;
	return wait_for_signal(t);
}

long sys_rt_sigtimedwait(struct task *t, const struct sysargs *a)
{
	int64_t deadline = DEADLINE_NONE;
	struct l_siginfo info;
	struct l_timespec ts;
	sigset_g set;
	long sig;
	int r;

	if (arg_size(a, 3) != sizeof(set))
		return -EINVAL;
	r = copyin_obj(t, &set, arg_gaddr(a, 0));
	if (r < 0)
		return r;
	if (a->v[2]) {
		r = copyin_obj(t, &ts, arg_gaddr(a, 2));
		if (r < 0)
			return r;
		if (!timespec_valid(&ts))
			return -EINVAL;
		deadline = task_call_deadline(
			t, deadline_after(clock_monotonic_ns(), timespec_to_ns(&ts)));
	}
	sig = signal_wait_for(t, set & ~SIGSET_UNBLOCKABLE, deadline, &info);
	if (sig > 0 && a->v[1]) {
		r = copyout_obj(t, arg_gaddr(a, 1), &info);
		if (r < 0)
			return r;
	}
	return sig;
}

long sys_sigaltstack(struct task *t, const struct sysargs *a)
{
	uint64_t sp = t->regs.rsp;
	struct l_stack new, old;
	int r = 0;

	if (a->v[0]) {
		r = copyin_obj(t, &new, arg_gaddr(a, 0));
		if (r < 0)
			return r;
	}
	signal_get_altstack(t, sp, &old);
	if (a->v[0])
		r = signal_set_altstack(t, &new, sp);
	if (r == 0 && a->v[1])
		r = copyout_obj(t, arg_gaddr(a, 1), &old);
	return r;
}

long sys_kill(struct task *t, const struct sysargs *a)
{
	return signal_kill(t, arg_int(a, 0), arg_int(a, 1));
}

long sys_tkill(struct task *t, const struct sysargs *a)
{
	if (arg_int(a, 0) <= 0)
		return -EINVAL;
	return signal_tgkill(t, 0, arg_int(a, 0), arg_int(a, 1), NULL);
}

long sys_tgkill(struct task *t, const struct sysargs *a)
{
	if (arg_int(a, 0) <= 0 || arg_int(a, 1) <= 0)
		return -EINVAL;
	return signal_tgkill(t, arg_int(a, 0), arg_int(a, 1), arg_int(a, 2), NULL);
}

long sys_rt_sigqueueinfo(struct task *t, const struct sysargs *a)
{
	struct l_siginfo info;
	int r = copyin_obj(t, &info, arg_gaddr(a, 2));

	if (r < 0)
		return r;
	return signal_queueinfo(t, arg_int(a, 0), arg_int(a, 1), &info);
}

long sys_rt_tgsigqueueinfo(struct task *t, const struct sysargs *a)
{
	struct l_siginfo info;
	int r = copyin_obj(t, &info, arg_gaddr(a, 3));

	if (r < 0)
		return r;
	if (arg_int(a, 0) <= 0 || arg_int(a, 1) <= 0)
		return -EINVAL;
	return signal_tgkill(t, arg_int(a, 0), arg_int(a, 1), arg_int(a, 2), &info);
}

long sys_restart_syscall(struct task *t, const struct sysargs *a)
{
	enum restart_kind kind = t->restart.kind;

	(void)a;
	t->restart.kind = RESTART_NONE;
	switch (kind) {
	case RESTART_NANOSLEEP:
		return nanosleep_restart(t);
	case RESTART_FUTEX:
		return futex_restart(t);
	case RESTART_POLL:
		return poll_restart(t);
	case RESTART_NONE:
	case RESTART_KIND_COUNT:
		break;
	}
	return -EINTR;
}
