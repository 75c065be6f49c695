// SPDX-License-Identifier: Apache-2.0
/*
 * signalfd (man 2 signalfd): reads take pending signals of the calling task and its process.
 *
 * The file has no queue of its own: read and poll look at the pending signals of whoever calls. The wait
 * queue is that of the process that made the file (as in Linux, where epoll stays with the process that added it):
 * after fork, an inherited signalfd in a child blocks in read on the child's own queue, but poll and epoll in
 * the child are woken by the parent's signals only. The group is kept alive by a reference.
 */
#include "sentry/fs/signalfd/signalfd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_state.h"

struct signalfd {
	struct tgroup *tg; /* (c) reference */
	sigset_g mask;     /* (sighand.mu for writing) signals that are read */
};

static void signalfd_release(struct file *f)
{
	struct signalfd *s = f->priv;

	tgroup_put(s->tg);
	free(s);
}

static void fill_poll_or_timer(struct signalfd_siginfo *o, const struct l_siginfo *i)
{
	switch (i->si_code) {
	case SI_TIMER:
		o->ssi_tid = (uint32_t)i->timer.tid;
		o->ssi_overrun = (uint32_t)i->timer.overrun;
		o->ssi_ptr = i->timer.value;
		o->ssi_int = (int32_t)i->timer.value;
		return;
	case SI_QUEUE:
	case SI_MESGQ:
		o->ssi_ptr = i->kill.value;
		o->ssi_int = (int32_t)i->kill.value;
		break;
	default:
		break;
	}
	o->ssi_pid = (uint32_t)i->kill.pid;
	o->ssi_uid = i->kill.uid;
}

static void fill(struct signalfd_siginfo *o, const struct l_siginfo *i)
{
	memset(o, 0, sizeof(*o));
	o->ssi_signo = (uint32_t)i->si_signo;
	o->ssi_errno = i->si_errno;
	o->ssi_code = i->si_code;
	if (i->si_code <= 0 || i->si_code == SI_KERNEL) {
		fill_poll_or_timer(o, i);
		return;
	}
	switch (i->si_signo) {
	case SIGCHLD:
		o->ssi_pid = (uint32_t)i->chld.pid;
		o->ssi_uid = i->chld.uid;
		o->ssi_status = i->chld.status;
		o->ssi_utime = (uint64_t)i->chld.utime;
		o->ssi_stime = (uint64_t)i->chld.stime;
		break;
	case SIGSEGV:
	case SIGBUS:
	case SIGILL:
	case SIGFPE:
	case SIGTRAP:
		o->ssi_addr = i->fault.addr;
		break;
	case SIGPOLL:
		o->ssi_band = (uint32_t)i->poll.band;
		o->ssi_fd = i->poll.fd;
		break;
	default:
		fill_poll_or_timer(o, i);
		break;
	}
}

static ssize_t signalfd_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct signalfd *s = f->priv;
	struct signalfd_siginfo out;
	struct l_siginfo info;
	ssize_t done = 0, n;
	long r;

	(void)pos;
	if (it->left < sizeof(out))
		return -EINVAL;
	if (!t)
		return -EAGAIN;
	while (it->left >= sizeof(out)) {
		int sig = signal_dequeue(t, s->mask, &info);

		if (!sig) {
			if (done)
				break;
			if (atomic_load(&f->flags) & O_NONBLOCK)
				return -EAGAIN;
			r = wait_event(t, &t->tg->sig_wq, EPOLLIN, DEADLINE_NONE,
				       (sig = signal_dequeue(t, s->mask, &info)) != 0);
			if (r < 0)
				return r;
		}
		fill(&out, &info);
		n = iter_copy_to(it, &out, sizeof(out));
		if (n < (ssize_t)sizeof(out))
			return done ? done : -EFAULT;
		done += n;
	}
	return done;
}

static uint32_t signalfd_poll(struct file *f)
{
	struct signalfd *s = f->priv;
	struct task *t = current_task();
	sigset_g set;

	if (t)
		set = READ_ONCE(t->pending.set) | READ_ONCE(t->tg->pending.set);
	else
		set = READ_ONCE(s->tg->pending.set);
	return set & s->mask ? EPOLLIN | EPOLLRDNORM : 0;
}

static struct waitq *signalfd_waitq(struct file *f)
{
	/* always the same one: who adds a waiter and who removes it may be different processes */
	return &((struct signalfd *)f->priv)->tg->sig_wq;
}

static void signalfd_show(struct file *f, struct seqbuf *out)
{
	struct signalfd *s = f->priv;

	seq_printf(out, "sigmask:\t%016llx\n", (unsigned long long)s->mask);
}

static const struct file_ops signalfd_ops = {
	.name = "signalfd",
	.release = signalfd_release,
	.read = signalfd_read,
	.poll = signalfd_poll,
	.waitq = signalfd_waitq,
	.show_fdinfo = signalfd_show,
	.state = &file_state_signalfd,
};

struct file *signalfd_create_file(struct task *t, sigset_g mask, unsigned flags)
{
	struct signalfd *s = kzalloc(sizeof(*s));
	struct file *f;

	s->tg = tgroup_get(t->tg);
	s->mask = mask & ~SIGSET_UNBLOCKABLE;
	f = file_create_anon(&signalfd_ops, s, O_RDWR | (flags & O_NONBLOCK), "signalfd");
	if (is_err(f)) {
		tgroup_put(s->tg);
		free(s);
	}
	return f;
}

bool file_is_signalfd(const struct file *f)
{
	return f->ops == &signalfd_ops;
}

void signalfd_set_mask(struct file *f, sigset_g mask)
{
	struct signalfd *s = f->priv;

	WRITE_ONCE(s->mask, mask & ~SIGSET_UNBLOCKABLE);
	waitq_wake(&s->tg->sig_wq, EPOLLIN);
}

/* ---- saving ---- */

static void signalfd_fields(struct state *s, struct file *f)
{
	struct signalfd *sf = state_loading(s) ? kzalloc(sizeof(*sf)) : f->priv;

	f->priv = sf;
	state_ref(s, &state_tgroup, &sf->tg);
	state_u64(s, &sf->mask);
	if (state_loading(s)) {
		sf->mask &= ~SIGSET_UNBLOCKABLE;
		if (!sf->tg)
			state_fail(s, "signalfd of no process");
	}
}

const struct file_state file_state_signalfd = {
	.id = FILE_SIGNALFD,
	.ops = &signalfd_ops,
	.fields = signalfd_fields,
};
