// SPDX-License-Identifier: Apache-2.0
/*
 * timerfd (man 2 timerfd_create): a timer whose expiries are read. A periodic one isn't driven by one timer
 * event per period: the first expiry makes it readable, and the count is computed when it is read, so
 * nothing runs for a timerfd that nobody looks at.
 *
 * But an edge-triggered epoll wants an edge for each expiry; so while somebody waits on the queue, the timer is
 * armed for the next period too.
 *
 * TFD_TIMER_CANCEL_ON_SET: the guest can't set the clock, and steps of the host's aren't reported; but a load from
 * an image cancels, as a resume from suspension does in Linux.
 *
 * Lock order: timerfd.mu (RANK_TIMER) > timer queue; waitq is woken without it.
 */
#include "sentry/fs/timerfd/timerfd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/task.h"
#include "sentry/time/ktimer.h"
#include "sentry/vfs/vfs_state.h"

#define L_TFD_IOC_SET_TICKS 0x40085400u /* _IOW('T', 0, u64) */

struct timerfd {
	struct mutex mu;
	int clockid;            /* (c) */
	int settime_flags;      /* (mu) for fdinfo */
	bool on;                /* (mu) armed */
	uint64_t ticks;         /* (mu) expiries accounted and unread */
	bool cancelled;         /* (mu) the next read says ECANCELED */
	int64_t deadline_ns;    /* (mu) of the next unaccounted expiry */
	int64_t interval_ns;    /* (mu) */
	struct ktimer kt;
	struct waitq wq;
};

static bool is_realtime(int clock)
{
	return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM;
}

static bool is_boottime(int clock)
{
	return clock == CLOCK_BOOTTIME || clock == CLOCK_BOOTTIME_ALARM;
}

static int64_t now_of(const struct timerfd *tf)
{
	return tf->kt.clock == CLOCK_REALTIME ? clock_realtime_ns() : clock_monotonic_ns();
}

/* Moves what has expired into ticks. Context: mu. */
static void account_locked(struct timerfd *tf)
{
	int64_t now, n;

	if (!tf->on)
		return;
	now = now_of(tf);
	if (now < tf->deadline_ns)
		return;
	if (!tf->interval_ns) {
		tf->ticks++;
		tf->on = false;
		return;
	}
	n = (now - tf->deadline_ns) / tf->interval_ns + 1;
	tf->ticks += (uint64_t)n;
	tf->deadline_ns += n * tf->interval_ns;
}

static void fired(struct ktimer *kt)
{
	struct timerfd *tf = container_of(kt, struct timerfd, kt);
	bool wake;

	mutex_lock(&tf->mu);
	account_locked(tf);
	wake = tf->ticks != 0;
	if (tf->on && !kt->queued && (!wake || !waitq_empty(&tf->wq)))
		ktimer_arm(kt, tf->deadline_ns);
	mutex_unlock(&tf->mu);
	if (wake)
		waitq_wake(&tf->wq, EPOLLIN);
}

static void timerfd_release(struct file *f)
{
	struct timerfd *tf = f->priv;

	mutex_lock(&tf->mu);
	tf->on = false;
	mutex_unlock(&tf->mu);
	ktimer_cancel(&tf->kt);
	waitq_fini(&tf->wq);
	mutex_fini(&tf->mu);
	free(tf);
}

/* Takes the count; 0: none. */
static uint64_t take_ticks(struct timerfd *tf)
{
	uint64_t n;
	AUTO_LOCK(&tf->mu);

	account_locked(tf);
	n = tf->ticks;
	tf->ticks = 0;
	if (tf->on && !tf->kt.queued)
		ktimer_arm(&tf->kt, tf->deadline_ns);
	return n;
}

static bool take_cancelled(struct timerfd *tf)
{
	bool was;
	AUTO_LOCK(&tf->mu);

	was = tf->cancelled;
	tf->cancelled = false;
	if (was)
		tf->ticks = 0;
	return was;
}

static ssize_t timerfd_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct timerfd *tf = f->priv;
	uint64_t n;
	long r;

	(void)pos;
	if (it->left < sizeof(n))
		return -EINVAL;
	if (take_cancelled(tf))
		return -ECANCELED;
	n = take_ticks(tf);
	if (!n) {
		if (!t || (atomic_load(&f->flags) & O_NONBLOCK))
			return -EAGAIN;
		r = wait_event(t, &tf->wq, EPOLLIN, DEADLINE_NONE, (n = take_ticks(tf)) != 0);
		if (r < 0)
			return r;
	}
	return iter_copy_to(it, &n, sizeof(n));
}

static uint32_t timerfd_poll(struct file *f)
{
	struct timerfd *tf = f->priv;
	AUTO_LOCK(&tf->mu);

	account_locked(tf);
	/* somebody looks: let the next expiry be an event for them */
	if (tf->on && !tf->kt.queued)
		ktimer_arm(&tf->kt, tf->deadline_ns);
	return tf->ticks || tf->cancelled ? EPOLLIN | EPOLLRDNORM : 0;
}

static struct waitq *timerfd_waitq(struct file *f)
{
	return &((struct timerfd *)f->priv)->wq;
}

static long timerfd_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg)
{
	struct timerfd *tf = f->priv;
	uint64_t ticks;

	if (cmd != L_TFD_IOC_SET_TICKS)
		return -ENOTTY;
	if (copyin_obj(t, &ticks, gaddr(arg)) < 0)
		return -EFAULT;
	if (!ticks)
		return -EINVAL;
	mutex_lock(&tf->mu);
	tf->ticks = ticks;
	mutex_unlock(&tf->mu);
	waitq_wake(&tf->wq, EPOLLIN);
	return 0;
}

static void get_locked(struct timerfd *tf, struct l_itimerspec *ret)
{
	memset(ret, 0, sizeof(*ret));
	account_locked(tf);
	ret->it_interval = ns_to_timespec(tf->interval_ns);
	if (tf->on)
		ret->it_value = ns_to_timespec(MAX(tf->deadline_ns - now_of(tf), 1));
}

static void timerfd_show(struct file *f, struct seqbuf *out)
{
	struct timerfd *tf = f->priv;
	struct l_itimerspec its;
	uint64_t ticks;
	int flags;

	mutex_lock(&tf->mu);
	get_locked(tf, &its);
	ticks = tf->ticks;
	flags = tf->settime_flags;
	mutex_unlock(&tf->mu);
	seq_printf(out, "clockid: %d\nticks: %llu\nsettime flags: 0%o\n", tf->clockid,
		   (unsigned long long)ticks, (unsigned)flags);
	seq_printf(out, "it_value: (%lld, %lld)\nit_interval: (%lld, %lld)\n",
		   (long long)its.it_value.tv_sec, (long long)its.it_value.tv_nsec,
		   (long long)its.it_interval.tv_sec, (long long)its.it_interval.tv_nsec);
}

static const struct file_ops timerfd_ops = {
	.name = "timerfd",
	.release = timerfd_release,
	.read = timerfd_read,
	.poll = timerfd_poll,
	.waitq = timerfd_waitq,
	.ioctl = timerfd_ioctl,
	.show_fdinfo = timerfd_show,
	.state = &file_state_timerfd,
};

static struct timerfd *timerfd_alloc(int clockid)
{
	struct timerfd *tf = kzalloc(sizeof(*tf));

	mutex_init(&tf->mu, RANK_TIMER);
	waitq_init(&tf->wq);
	tf->clockid = clockid;
	ktimer_init(&tf->kt, CLOCK_MONOTONIC, fired);
	return tf;
}

struct file *timerfd_create_file(int clockid, unsigned flags)
{
	struct timerfd *tf = timerfd_alloc(clockid);
	struct file *f;

	f = file_create_anon(&timerfd_ops, tf, O_RDWR | (flags & O_NONBLOCK), "timerfd");
	if (is_err(f))
		free(tf);
	return f;
}

bool file_is_timerfd(const struct file *f)
{
	return f->ops == &timerfd_ops;
}

long timerfd_set(struct file *f, int flags, const struct l_itimerspec *new,
		 struct l_itimerspec *ret_old)
{
	struct timerfd *tf = f->priv;
	bool abs = flags & TFD_TIMER_ABSTIME;
	int64_t value;
	AUTO_LOCK(&tf->mu);

	if (!timespec_valid(&new->it_value) || !timespec_valid(&new->it_interval))
		return -EINVAL;
	value = timespec_to_ns(&new->it_value);
	get_locked(tf, ret_old);
	ktimer_disarm(&tf->kt);
	tf->kt.clock = abs && is_realtime(tf->clockid) ? CLOCK_REALTIME : CLOCK_MONOTONIC;
	tf->settime_flags = flags;
	tf->interval_ns = timespec_to_ns(&new->it_interval);
	tf->ticks = 0;
	tf->cancelled = false;
	tf->on = value != 0;
	if (abs && is_boottime(tf->clockid))
		value -= clock_boot_offset_ns();
	if (tf->on) {
		tf->deadline_ns = abs ? value : deadline_after(now_of(tf), value);
		ktimer_arm(&tf->kt, tf->deadline_ns);
	}
	return 0;
}

void timerfd_get(struct file *f, struct l_itimerspec *ret)
{
	struct timerfd *tf = f->priv;
	AUTO_LOCK(&tf->mu);

	get_locked(tf, ret);
}

/* ---- saving: CLOCK_MONOTONIC goes on where it was; an absolute CLOCK_REALTIME deadline is what it says ---- */

static void timerfd_fields(struct state *s, struct file *f)
{
	struct timerfd *tf = state_loading(s) ? timerfd_alloc(0) : f->priv;
	bool realtime = tf->kt.clock == CLOCK_REALTIME;
	int64_t clockid = tf->clockid;

	f->priv = tf;
	state_range_i64(s, &clockid, CLOCK_REALTIME, CLOCK_BOOTTIME_ALARM);
	state_bool(s, &realtime);
	state_i32(s, &tf->settime_flags);
	state_bool(s, &tf->on);
	state_u64(s, &tf->ticks);
	state_bool(s, &tf->cancelled);
	if (realtime)
		state_i64(s, &tf->deadline_ns);
	else
		state_mono(s, &tf->deadline_ns);
	state_i64(s, &tf->interval_ns);
	if (!state_loading(s))
		return;
	tf->clockid = (int)clockid;
	tf->kt.clock = realtime ? CLOCK_REALTIME : CLOCK_MONOTONIC;
	if (tf->deadline_ns < 0 || tf->interval_ns < 0)
		state_fail(s, "timer before the beginning");
}

static void timerfd_finish(struct state *s, struct file *f)
{
	struct timerfd *tf = f->priv;

	(void)s;
	if (tf->on && (tf->settime_flags & TFD_TIMER_CANCEL_ON_SET) && tf->kt.clock == CLOCK_REALTIME)
		tf->cancelled = true;
	if (is_boottime(tf->clockid)) /* which went on meanwhile */
		tf->deadline_ns -= clock_time_away_ns();
	if (tf->on)
		ktimer_arm(&tf->kt, tf->deadline_ns);
}

const struct file_state file_state_timerfd = {
	.id = FILE_TIMERFD,
	.ops = &timerfd_ops,
	.fields = timerfd_fields,
	.finish = timerfd_finish,
};
