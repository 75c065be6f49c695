// SPDX-License-Identifier: Apache-2.0
/*
 * Job control (man 7 credentials "sessions", man 3 tcsetpgrp, man 2 ioctl_tty): controlling terminals,
 * foreground groups, and hang-up.
 *
 * tty->session, tty->pgrp and tgroup->tty are guarded by kernel.tasks_mu, as the process tree is walked with
 * them. Terminals whose references are dropped on the way are put after unlocking.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/sysmacros.h>

#include "sentry/fs/devpts/tty_priv.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"

static bool is_session_leader(const struct tgroup *tg)
{
	return tg->session == tg->pid;
}

/* No member's parent is in another group of the same session (POSIX.1: orphaned process group). */
static bool pgrp_orphaned_locked(struct pid *pgrp)
{
	struct tgroup *tg;

	list_for_each(tg, &pgrp->pgrp, pgrp_node) {
		struct tgroup *p = tg->parent;

		if (tg->zombie || !p || p->pid->nr[p->pid->level] == 1)
			continue;
		if (p->pgrp != pgrp && p->session == tg->session)
			return false;
	}
	return true;
}

/*
 * May @t, if it is in the background of its controlling terminal @tty, do what @sig guards? 0, or -EIO, or
 * -ERESTARTSYS after its group got @sig. Context: no lock above RANK_TTY.
 */
int tty_check_change(struct task *t, struct tty *tty, int sig)
{
	struct pid *pgrp;
	bool background, orphaned = false;

	/* Racy look without the lock: only pointers are compared, and a change by another process
	 * that isn't ordered with us may be seen before or after. */
	if (!t || READ_ONCE(t->tg->tty) != tty || READ_ONCE(t->tg->pgrp) == READ_ONCE(tty->pgrp))
		return 0;
	mutex_lock(&kernel.tasks_mu);
	pgrp = pid_get(t->tg->pgrp);
	background = t->tg->tty == tty && tty->pgrp && tty->pgrp != pgrp;
	if (background)
		orphaned = pgrp_orphaned_locked(pgrp);
	mutex_unlock(&kernel.tasks_mu);
	if (!background) {
		pid_put(pgrp);
		return 0;
	}
	if (signal_blocked_or_ignored(t, sig)) {
		pid_put(pgrp);
		return sig == SIGTTIN ? -EIO : 0;
	}
	if (!orphaned)
		signal_send_pgrp(pgrp, sig, NULL);
	pid_put(pgrp);
	return orphaned ? -EIO : -ERESTARTSYS;
}

/* Signal to the foreground group. Context: tty.mu may be held. */
void tty_signal_fg(struct tty *tty, int sig)
{
	struct pid *pgrp = NULL;

	mutex_lock(&kernel.tasks_mu);
	if (tty->pgrp)
		pgrp = pid_get(tty->pgrp);
	mutex_unlock(&kernel.tasks_mu);
	if (!pgrp)
		return;
	signal_send_pgrp(pgrp, sig, NULL);
	pid_put(pgrp);
}

static void set_ctty_locked(struct tty *tty, struct tgroup *tg)
{
	pid_put(tty->session);
	pid_put(tty->pgrp);
	tty->session = pid_get(tg->session);
	tty->pgrp = pid_get(tg->pgrp);
	tg->tty = tty_get(tty);
	pid_put(tg->tty_old_pgrp);
	tg->tty_old_pgrp = NULL;
}

/* Takes @tty away from every process of @session. Returns how many references the caller has to put. */
static unsigned clear_session_locked(struct tty *tty, struct pid *session)
{
	struct tgroup *tg;
	unsigned n = 0;

	list_for_each(tg, &session->session, session_node) {
		if (tg->tty == tty) {
			tg->tty = NULL;
			n++;
		}
	}
	return n;
}

static void put_n(struct tty *tty, unsigned n)
{
	while (n--)
		tty_put(tty);
}

void tty_make_ctty(struct tty *tty, struct tgroup *tg)
{
	struct tty *old;

	mutex_lock(&kernel.tasks_mu);
	old = tg->tty;
	set_ctty_locked(tty, tg);
	mutex_unlock(&kernel.tasks_mu);
	tty_put(old);
}

/* open(2) without O_NOCTTY by a session leader that has no terminal yet. */
void tty_open_ctty(struct task *t, struct tty *tty, const struct file *f)
{
	AUTO_LOCK(&kernel.tasks_mu);

	if (is_session_leader(t->tg) && !t->tg->tty && !tty->session && (f->fmode & FMODE_READ))
		set_ctty_locked(tty, t->tg);
}

struct tty *tty_detach_locked(struct tgroup *tg)
{
	struct tty *tty = tg->tty;

	tg->tty = NULL;
	pid_put(tg->tty_old_pgrp);
	tg->tty_old_pgrp = NULL;
	return tty;
}

dev_t tty_stat_locked(const struct tgroup *tg, struct pid **ret_pgrp)
{
	*ret_pgrp = tg->tty ? tg->tty->pgrp : NULL;
	return tg->tty ? makedev(PTS_MAJOR, (unsigned)tg->tty->index) : 0;
}

/* ---- hang-up ---- */

/* Who is to be signalled; references. */
struct hangup {
	struct tgroup *leader;
	struct pid *pgrp;
	unsigned puts;
};

static void hangup_collect(struct tty *tty, struct hangup *h)
{
	struct tgroup *tg;
	AUTO_LOCK(&kernel.tasks_mu);

	h->pgrp = tty->pgrp;
	tty->pgrp = NULL;
	if (!tty->session)
		return;
	list_for_each(tg, &tty->session->session, session_node) {
		if (!is_session_leader(tg))
			continue;
		if (tg->tty == tty && !tg->zombie)
			h->leader = tgroup_get(tg);
		if (h->pgrp) {
			pid_put(tg->tty_old_pgrp);
			tg->tty_old_pgrp = pid_get(h->pgrp);
		}
	}
	h->puts = clear_session_locked(tty, tty->session);
	pid_put(tty->session);
	tty->session = NULL;
}

/*
 * Hangs @tty up: open slaves become dead, the session leader gets SIGHUP and SIGCONT, nobody keeps it as
 * controlling terminal. The foreground group gets its SIGHUP when the leader dies (tty_session_exit).
 */
void tty_hangup(struct tty *tty)
{
	struct hangup h = { 0 };

	mutex_lock(&tty->mu);
	tty->hangup_gen++;
	if (tty->slave_count) {
		tty->slave_count = 0;
		tty->other_closed = true;
	}
	tty->in.tail = tty->in.canon_head = tty->in.head;
	tty->stopped = tty->tco_stopped = false;
	tty_wake_slave(tty, EPOLLIN | EPOLLOUT | EPOLLHUP | EPOLLERR | EPOLLRDNORM | EPOLLWRNORM);
	tty_wake_master(tty, EPOLLIN | EPOLLHUP);
	mutex_unlock(&tty->mu);
	hangup_collect(tty, &h);
	if (h.leader) {
		signal_send_tgroup(h.leader, SIGHUP, NULL);
		signal_send_tgroup(h.leader, SIGCONT, NULL);
		tgroup_put(h.leader);
	}
	pid_put(h.pgrp);
	put_n(tty, h.puts);
}

static void hup_old_pgrp(struct tgroup *tg)
{
	struct pid *old;

	mutex_lock(&kernel.tasks_mu);
	old = tg->tty_old_pgrp;
	tg->tty_old_pgrp = NULL;
	mutex_unlock(&kernel.tasks_mu);
	if (!old)
		return;
	signal_send_pgrp(old, SIGHUP, NULL);
	signal_send_pgrp(old, SIGCONT, NULL);
	pid_put(old);
}

/* The session of leader @tg gives @tty up: SIGHUP to the foreground group, and SIGCONT if @cont. */
static void session_drop(struct tty *tty, struct tgroup *tg, bool cont)
{
	struct pid *pgrp;
	unsigned puts;

	mutex_lock(&kernel.tasks_mu);
	pgrp = tty->pgrp;
	tty->pgrp = NULL;
	puts = clear_session_locked(tty, tg->session);
	pid_put(tty->session);
	tty->session = NULL;
	mutex_unlock(&kernel.tasks_mu);
	if (pgrp) {
		signal_send_pgrp(pgrp, SIGHUP, NULL);
		if (cont)
			signal_send_pgrp(pgrp, SIGCONT, NULL);
		pid_put(pgrp);
	}
	put_n(tty, puts);
}

/* Open slaves of a pty outlive the session (only a real line would be hung up here). */
void tty_session_exit(struct tgroup *tg)
{
	struct tty *tty = NULL, *drop = NULL;

	mutex_lock(&kernel.tasks_mu);
	if (tg->tty && is_session_leader(tg) && tg->tty->session == tg->session)
		tty = tty_get(tg->tty);
	else
		drop = steal_ptr(&tg->tty);
	mutex_unlock(&kernel.tasks_mu);
	tty_put(drop);
	if (tty) {
		session_drop(tty, tg, false);
		tty_put(tty);
	} else if (is_session_leader(tg)) {
		hup_old_pgrp(tg);
	}
}

/* ---- ioctls ---- */

static long tiocsctty(struct task *t, struct tty *tty, struct file *f, uint64_t arg)
{
	bool admin = task_capable(t, CAP_SYS_ADMIN);
	struct tgroup *tg = t->tg;
	unsigned puts = 0;
	long r = 0;

	mutex_lock(&kernel.tasks_mu);
	if (is_session_leader(tg) && tty->session == tg->session) {
		r = 0;
	} else if (!is_session_leader(tg) || tg->tty) {
		r = -EPERM;
	} else if (tty->session && (arg != 1 || !admin)) {
		r = -EPERM;
	} else if (!(f->fmode & FMODE_READ) && !admin) {
		r = -EPERM;
	} else {
		if (tty->session) /* stolen: the old session has no terminal any more */
			puts = clear_session_locked(tty, tty->session);
		set_ctty_locked(tty, tg);
	}
	mutex_unlock(&kernel.tasks_mu);
	put_n(tty, puts);
	return r;
}

static long tiocnotty(struct task *t, struct tty *tty)
{
	struct tgroup *tg = t->tg;
	bool leader;

	mutex_lock(&kernel.tasks_mu);
	if (tg->tty != tty) {
		mutex_unlock(&kernel.tasks_mu);
		return -ENOTTY;
	}
	leader = is_session_leader(tg);
	if (!leader)
		tg->tty = NULL;
	mutex_unlock(&kernel.tasks_mu);
	if (leader)
		session_drop(tty, tg, true);
	else
		tty_put(tty);
	return 0;
}

static long tiocgpgrp(struct task *t, struct tty *tty, bool master, bool session, gaddr_t arg)
{
	struct pid *p;
	pid_t nr = 0;

	mutex_lock(&kernel.tasks_mu);
	if (!master && t->tg->tty != tty) {
		mutex_unlock(&kernel.tasks_mu);
		return -ENOTTY;
	}
	p = session ? tty->session : tty->pgrp;
	if (p)
		nr = pid_nr(p, task_pidns(t));
	mutex_unlock(&kernel.tasks_mu);
	if (session && !p)
		return -ENOTTY;
	return copyout_obj(t, arg, &nr);
}

static long set_pgrp_locked(struct task *t, struct tty *tty, pid_t nr)
{
	struct pid *p;
	struct tgroup *first;

	if (t->tg->tty != tty || tty->session != t->tg->session)
		return -ENOTTY;
	p = pid_find_locked(task_pidns(t), nr);
	if (!p || list_empty(&p->pgrp))
		return -ESRCH;
	first = list_first(&p->pgrp, struct tgroup, pgrp_node);
	if (first->session != t->tg->session)
		return -EPERM;
	pid_get(p);
	pid_put(tty->pgrp);
	tty->pgrp = p;
	return 0;
}

static long tiocspgrp(struct task *t, struct tty *tty, gaddr_t arg)
{
	pid_t nr;
	long r = tty_check_change(t, tty, SIGTTOU);

	if (r == -EIO)
		return -ENOTTY;
	if (r)
		return r;
	if (copyin_obj(t, &nr, arg))
		return -EFAULT;
	if (nr < 0)
		return -EINVAL;
	mutex_lock(&kernel.tasks_mu);
	r = set_pgrp_locked(t, tty, nr);
	mutex_unlock(&kernel.tasks_mu);
	return r;
}

long tty_jobctrl_ioctl(struct task *t, struct tty *tty, struct file *f, unsigned cmd, uint64_t arg)
{
	bool master = pty_is_master(f);

	switch (cmd) {
	case TIOCSCTTY:
		return master ? -EPERM : tiocsctty(t, tty, f, arg);
	case TIOCNOTTY:
		return tiocnotty(t, tty);
	case TIOCGPGRP:
		return tiocgpgrp(t, tty, master, false, gaddr(arg));
	case TIOCGSID:
		return tiocgpgrp(t, tty, master, true, gaddr(arg));
	case TIOCSPGRP:
		return tiocspgrp(t, tty, gaddr(arg));
	default:
		return -ENOIOCTLCMD;
	}
}
