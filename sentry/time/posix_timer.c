// SPDX-License-Identifier: Apache-2.0
/*
 * POSIX timers (man 2 timer_create, timer_settime, timer_getoverrun). Each owns one queue entry, made with the
 * timer and charged to RLIMIT_SIGPENDING, so an expiry never fails for lack of memory.
 *
 * As in Linux, a periodic timer isn't armed again until its signal is dequeued; the periods missed until
 * then are its overrun count. A signal that is ignored at expiry isn't queued: the timer just goes on, no
 * faster than IGNORED_PERIOD_NS.
 *
 * Timers on CPU clocks run on cputimer.c, and are set forward when they expire, as the lock order forbids it at
 * dequeue time.
 *
 * Lock: the group's sighand.mu guards the table and all timers (cputimers.mu > sighand.mu > timer queue).
 */
#include "sentry/time/posix_timer.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/signal_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/state/state.h"
#include "sentry/time/cputimer.h"
#include "sentry/time/ktimer.h"
#include "sentry/vfs/vfs.h"

#define IGNORED_PERIOD_NS 10000000LL
#define OVERRUN_MAX INT32_MAX /* DELAYTIMER_MAX */
#define L_SIGEV_SIGNAL 0
#define L_SIGEV_NONE 1
#define L_SIGEV_THREAD 2
#define L_SIGEV_THREAD_ID 4

struct posix_timer {
	struct list node;
	int id, clock, notify, signo;
	uint64_t value;
	struct tgroup *tg;            /* borrowed: the group deletes its timers before it goes */
	struct task *target;          /* SIGEV_THREAD_ID: reference */
	struct task *cpu_thread;      /* thread CPU clock: reference */
	struct sigqueue_entry entry;
	struct ktimer kt;
	struct cputimer ct;
	bool is_cpu, on;              /* on: armed, or periodic and waiting for its dequeue */
	bool rearm;                   /* queued expiry goes on with the interval at dequeue */
	int64_t deadline_ns;          /* on the clock that it runs on */
	int64_t interval_ns;
	int64_t overrun, overrun_last;
	bool armed;                   /* a load's: kt is to be armed, or ct set */
};

struct posix_timers {
	struct list list;
	int next_id;
	unsigned count;
};

static int64_t timer_clock_now(const struct posix_timer *pt)
{
	if (pt->is_cpu)
		return pt->cpu_thread ? task_cpu_ns(pt->cpu_thread)
				      : tgroup_cpu_ns(pt->tg, pt->ct.kind);
	return pt->kt.clock == CLOCK_REALTIME ? clock_realtime_ns() : clock_monotonic_ns();
}

/* Sends an expiry. Context: sighand.mu. True: the signal was queued (again). */
static bool expire_locked(struct posix_timer *pt)
{
	struct l_siginfo *info = &pt->entry.info;

	if (pt->notify == L_SIGEV_NONE)
		return false;
	if (!list_empty(&pt->entry.node)) {
		pt->overrun = MIN(pt->overrun + 1, OVERRUN_MAX);
		return true;
	}
	memset(info, 0, sizeof(*info));
	info->si_signo = pt->signo;
	info->si_code = SI_TIMER;
	info->timer.tid = pt->id;
	info->timer.value = pt->value;
	pt->overrun = 0;
	return signal_queue_timer_locked(pt->tg, pt->target, &pt->entry);
}

static void kt_fired(struct ktimer *kt)
{
	struct posix_timer *pt = container_of(kt, struct posix_timer, kt);
	struct sighand *sh = signal_lock_tgroup(pt->tg);
	int64_t now = timer_clock_now(pt);

	if (!sh)
		return;
	if (pt->on && !kt->queued && now >= pt->deadline_ns) {
		bool queued = expire_locked(pt);

		if (!pt->interval_ns) {
			pt->on = false;
		} else if (queued) {
			pt->rearm = true;
		} else {
			pt->deadline_ns = deadline_after(now, MAX(pt->interval_ns,
								  IGNORED_PERIOD_NS));
			ktimer_arm(kt, pt->deadline_ns);
		}
	}
	signal_unlock(sh);
}

static int ct_fired(struct cputimer *ct, struct tgroup *tg, int64_t now_ns)
{
	struct posix_timer *pt = container_of(ct, struct posix_timer, ct);
	struct sighand *sh = signal_lock_tgroup(tg);

	if (!sh) {
		ct->expires_ns = INT64_MAX;
		return 0;
	}
	(void)expire_locked(pt); /* ignored: goes on anyway */
	if (pt->interval_ns) {
		int64_t missed = (now_ns - pt->deadline_ns) / pt->interval_ns;

		pt->overrun = MIN(pt->overrun + missed, OVERRUN_MAX);
		pt->deadline_ns += (missed + 1) * pt->interval_ns;
		ct->expires_ns = pt->deadline_ns;
	} else {
		pt->on = false;
		ct->expires_ns = INT64_MAX;
	}
	signal_unlock(sh);
	return 0;
}

bool posix_timer_dequeued(struct posix_timer *pt, struct l_siginfo *info)
{
	int64_t now, missed;

	if (pt->rearm) {
		pt->rearm = false;
		now = timer_clock_now(pt);
		missed = now > pt->deadline_ns ? (now - pt->deadline_ns) / pt->interval_ns : 0;
		pt->overrun = MIN(pt->overrun + missed, OVERRUN_MAX);
		pt->deadline_ns += (missed + 1) * pt->interval_ns;
		ktimer_arm(&pt->kt, pt->deadline_ns);
	}
	pt->overrun_last = pt->overrun;
	pt->overrun = 0;
	info->timer.overrun = (int32_t)pt->overrun_last;
	return true;
}

/* ---- table ---- */

/* Context: sighand.mu. */
static struct posix_timer *find_locked(struct tgroup *tg, int id)
{
	struct posix_timer *pt;

	if (!tg->timers)
		return NULL;
	list_for_each(pt, &tg->timers->list, node)
		if (pt->id == id)
			return pt;
	return NULL;
}

static int insert(struct tgroup *tg, struct posix_timer *pt)
{
	struct posix_timers *fresh = kzalloc(sizeof(*fresh));
	struct sighand *sh = signal_lock_tgroup(tg);
	int r = -EAGAIN;

	if (!sh) {
		free(fresh);
		return r;
	}
	if (!tg->timers) {
		list_init(&fresh->list);
		tg->timers = fresh;
		fresh = NULL;
	}
	if (tg->timers->count < POSIX_TIMERS_MAX) {
		while (find_locked(tg, tg->timers->next_id))
			tg->timers->next_id = (tg->timers->next_id + 1) & INT32_MAX;
		pt->id = tg->timers->next_id;
		tg->timers->next_id = (pt->id + 1) & INT32_MAX;
		list_add_tail(&tg->timers->list, &pt->node);
		tg->timers->count++;
		r = pt->id;
	}
	signal_unlock(sh);
	free(fresh);
	return r;
}

/* Out of the table already; the expiry that may be queued goes with it. Context: no locks. */
static void destroy(struct posix_timer *pt)
{
	struct sighand *sh;

	ktimer_cancel(&pt->kt);
	if (pt->is_cpu)
		cputimer_remove(pt->tg, &pt->ct);
	sh = signal_lock_tgroup(pt->tg);
	if (!list_empty(&pt->entry.node))
		sigpending_detach(pt->target ? &pt->target->pending : &pt->tg->pending, &pt->entry);
	if (sh)
		signal_unlock(sh);
	sigqueue_uncharge(&pt->entry);
	task_put(pt->target);
	task_put(pt->cpu_thread);
	free(pt);
}

/* ---- create ---- */

/* The clock: sets kt or ct up. 0, -EINVAL, -EPERM, -EOPNOTSUPP. */
static int setup_clock(struct task *t, struct posix_timer *pt)
{
	struct task *thread = NULL;
	pid_t pid;

	switch (pt->clock) {
	case CLOCK_REALTIME_ALARM:
	case CLOCK_BOOTTIME_ALARM:
		if (!task_capable(t, CAP_WAKE_ALARM))
			return -EPERM;
		return 0;
	case CLOCK_REALTIME:
	case CLOCK_TAI:
	case CLOCK_MONOTONIC:
	case CLOCK_BOOTTIME:
		return 0;
	case CLOCK_MONOTONIC_RAW:
	case CLOCK_REALTIME_COARSE:
	case CLOCK_MONOTONIC_COARSE:
		return -EOPNOTSUPP;
	case CLOCK_PROCESS_CPUTIME_ID:
		cputimer_init(&pt->ct, CPUTIMER_PROF, NULL, ct_fired);
		pt->is_cpu = true;
		return 0;
	case CLOCK_THREAD_CPUTIME_ID:
		thread = task_get(t);
		break;
	default:
		if (pt->clock >= 0 || (pt->clock & 3) == 3)
			return -EINVAL;
		pid = ~(pt->clock >> 3);
		if (!(pt->clock & 4)) {
			if (pid != 0 && pid != task_tgid(t)) /* another process's: not served */
				return -EINVAL;
			cputimer_init(&pt->ct, (pt->clock & 3) == 1 ? CPUTIMER_VIRT : CPUTIMER_PROF,
				      NULL, ct_fired);
			pt->is_cpu = true;
			return 0;
		}
		thread = pid ? task_find(t, pid) : task_get(t);
		if (!thread || thread->tg != t->tg) {
			task_put(thread);
			return -EINVAL;
		}
		break;
	}
	pt->cpu_thread = thread;
	pt->is_cpu = true;
	cputimer_init(&pt->ct, CPUTIMER_PROF, thread, ct_fired);
	return 0;
}

static int setup_event(struct task *t, struct posix_timer *pt, const struct l_sigevent *ev)
{
	if (!ev)
		return 0;
	pt->notify = ev->notify;
	pt->signo = ev->signo;
	pt->value = ev->value;
	switch (ev->notify) {
	case L_SIGEV_NONE:
		return 0;
	case L_SIGEV_SIGNAL | L_SIGEV_THREAD_ID:
		pt->target = task_find(t, ev->tid);
		if (!pt->target || pt->target->tg != t->tg)
			return -EINVAL;
		fallthrough;
	case L_SIGEV_SIGNAL:
	case L_SIGEV_THREAD:
		return ev->signo <= 0 || ev->signo > NSIG_GUEST ? -EINVAL : 0;
	default:
		return -EINVAL;
	}
}

long posix_timer_create(struct task *t, int clockid, const struct l_sigevent *ev)
{
	struct posix_timer *pt = kzalloc(sizeof(*pt));
	int r;

	pt->clock = clockid;
	pt->tg = t->tg;
	pt->notify = L_SIGEV_SIGNAL;
	pt->signo = SIGALRM;
	list_init(&pt->entry.node);
	pt->entry.timer = pt;
	ktimer_init(&pt->kt, CLOCK_MONOTONIC, kt_fired);
	r = setup_clock(t, pt);
	if (r == 0)
		r = sigqueue_charge(t, &pt->entry);
	if (r == 0)
		r = setup_event(t, pt, ev);
	if (r == 0)
		r = insert(t->tg, pt);
	if (r < 0) {
		destroy(pt);
		return r;
	}
	if (!ev)
		pt->value = (uint64_t)r; /* default sival is the id */
	return r;
}

/* ---- set and get ---- */

/* Context: sighand.mu for others than CPU timers. */
static void get_setting(const struct posix_timer *pt, struct l_itimerspec *ret)
{
	int64_t now, left;

	memset(ret, 0, sizeof(*ret));
	ret->it_interval = ns_to_timespec(pt->interval_ns);
	if (!pt->on)
		return;
	now = timer_clock_now(pt);
	left = pt->deadline_ns - now;
	if (left <= 0 && pt->interval_ns && (pt->rearm || pt->notify == L_SIGEV_NONE))
		left = pt->interval_ns - (-left) % pt->interval_ns;
	if (left <= 0) /* due, but not fired yet; one-shot SIGEV_NONE timers just read as expired */
		left = pt->notify == L_SIGEV_NONE ? 0 : 1;
	ret->it_value = ns_to_timespec(left);
}

static bool is_realtime(int clock)
{
	return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_ALARM || clock == CLOCK_TAI;
}

static bool is_boottime(int clock)
{
	return clock == CLOCK_BOOTTIME || clock == CLOCK_BOOTTIME_ALARM;
}

/* Arms @pt. CPU timers are handed to cputimer_set() by the caller. Context: sighand.mu. */
static void start_locked(struct posix_timer *pt, int flags, int64_t value)
{
	bool abs = flags & TIMER_ABSTIME;

	ktimer_disarm(&pt->kt);
	pt->rearm = false;
	pt->overrun = 0;
	pt->overrun_last = 0;
	pt->on = value != 0;
	if (!pt->is_cpu) /* a relative timer doesn't follow steps of the real-time clock */
		pt->kt.clock = abs && is_realtime(pt->clock) ? CLOCK_REALTIME : CLOCK_MONOTONIC;
	if (!pt->on)
		return;
	if (abs && is_boottime(pt->clock))
		value -= clock_boot_offset_ns();
	pt->deadline_ns = abs ? value : deadline_after(timer_clock_now(pt), value);
	if (!pt->is_cpu && pt->notify != L_SIGEV_NONE)
		ktimer_arm(&pt->kt, pt->deadline_ns);
}

/* CPU timers: their clock is read under tasks_mu, so not under sighand.mu. Only the process's own threads set
 * them, and a race of two is as good as either order. */
static void set_cpu(struct task *t, struct posix_timer *pt, int flags, const struct l_itimerspec *new,
		    struct l_itimerspec *ret_old)
{
	int64_t value = timespec_to_ns(&new->it_value);

	get_setting(pt, ret_old);
	cputimer_set(t->tg, &pt->ct, INT64_MAX);
	pt->interval_ns = timespec_to_ns(&new->it_interval);
	start_locked(pt, flags, value);
	if (pt->on && pt->notify != L_SIGEV_NONE)
		cputimer_set(t->tg, &pt->ct, pt->deadline_ns);
}

long posix_timer_settime(struct task *t, int id, int flags, const struct l_itimerspec *new,
			 struct l_itimerspec *ret_old)
{
	struct sighand *sh;
	struct posix_timer *pt;

	if (!timespec_valid(&new->it_value) || !timespec_valid(&new->it_interval))
		return -EINVAL;
	sh = signal_lock_tgroup(t->tg);
	if (!sh)
		return -EINVAL;
	pt = find_locked(t->tg, id);
	if (!pt) {
		signal_unlock(sh);
		return -EINVAL;
	}
	if (pt->is_cpu) {
		signal_unlock(sh);
		set_cpu(t, pt, flags, new, ret_old);
		return 0;
	}
	get_setting(pt, ret_old);
	pt->interval_ns = timespec_to_ns(&new->it_interval);
	start_locked(pt, flags, timespec_to_ns(&new->it_value));
	signal_unlock(sh);
	return 0;
}

long posix_timer_gettime(struct task *t, int id, struct l_itimerspec *ret)
{
	struct sighand *sh = signal_lock_tgroup(t->tg);
	struct posix_timer *pt;
	bool cpu;

	if (!sh)
		return -EINVAL;
	pt = find_locked(t->tg, id);
	cpu = pt && pt->is_cpu;
	if (pt && !cpu)
		get_setting(pt, ret);
	signal_unlock(sh);
	if (cpu)
		get_setting(pt, ret);
	return pt ? 0 : -EINVAL;
}

long posix_timer_getoverrun(struct task *t, int id)
{
	struct sighand *sh = signal_lock_tgroup(t->tg);
	struct posix_timer *pt;
	long r = -EINVAL;

	if (!sh)
		return r;
	pt = find_locked(t->tg, id);
	if (pt)
		r = (long)pt->overrun_last;
	signal_unlock(sh);
	return r;
}

long posix_timer_delete(struct task *t, int id)
{
	struct sighand *sh = signal_lock_tgroup(t->tg);
	struct posix_timer *pt;

	if (!sh)
		return -EINVAL;
	pt = find_locked(t->tg, id);
	if (pt) {
		list_del(&pt->node);
		t->tg->timers->count--;
		pt->on = false;
	}
	signal_unlock(sh);
	if (!pt)
		return -EINVAL;
	destroy(pt);
	return 0;
}

void posix_timers_exit(struct tgroup *tg)
{
	struct posix_timers *ts;
	struct posix_timer *pt, *tmp;
	struct sighand *sh = signal_lock_tgroup(tg);

	ts = tg->timers;
	tg->timers = NULL;
	if (sh)
		signal_unlock(sh);
	if (!ts)
		return;
	list_for_each_safe(pt, tmp, &ts->list, node) {
		list_del(&pt->node);
		pt->on = false;
		destroy(pt);
	}
	free(ts);
}

void posix_timers_show(struct task *viewer, struct tgroup *tg, struct seqbuf *out)
{
	static const char *const kind[] = { "signal", "none", "thread", "", "signal" };
	struct sighand *sh = signal_lock_tgroup(tg);
	struct posix_timer *pt;

	if (!sh)
		return;
	if (tg->timers) {
		list_for_each(pt, &tg->timers->list, node) {
			seq_printf(out, "ID: %d\nsignal: %d/%016llx\n", pt->id, pt->signo,
				   (unsigned long long)pt->value);
			seq_printf(out, "notify: %s/%s.%d\nClockID: %d\n", kind[pt->notify & 7],
				   pt->target ? "tid" : "pid",
				   pt->target ? task_tid_for(pt->target, viewer)
					      : tgroup_pid_for(tg, viewer),
				   pt->clock);
		}
	}
	signal_unlock(sh);
}

/* ---- saving and loading ---- */

static void one_fields(struct state *s, struct posix_timer *pt)
{
	int64_t kind = pt->ct.kind;

	state_i32(s, &pt->id);
	state_i32(s, &pt->clock);
	state_i32(s, &pt->notify);
	state_i32(s, &pt->signo);
	state_u64(s, &pt->value);
	state_ref(s, &state_task, &pt->target);
	state_ref(s, &state_task, &pt->cpu_thread);
	state_ref(s, &state_cred, &pt->entry.charged);
	state_bool(s, &pt->is_cpu);
	state_bool(s, &pt->on);
	state_bool(s, &pt->rearm);
	state_bool(s, &pt->armed);
	state_i32(s, &pt->kt.clock);
	state_range_i64(s, &kind, 0, CPUTIMER_KIND_COUNT - 1);
	pt->ct.kind = (enum cputimer_kind)kind;
	state_i64(s, &pt->deadline_ns);
	state_range_i64(s, &pt->interval_ns, 0, INT64_MAX);
	state_range_i64(s, &pt->overrun, 0, OVERRUN_MAX);
	state_range_i64(s, &pt->overrun_last, 0, OVERRUN_MAX);
}

static void load_one(struct state *s, struct tgroup *tg)
{
	struct posix_timer *pt = kzalloc(sizeof(*pt));

	pt->tg = tg;
	list_init(&pt->entry.node);
	pt->entry.timer = pt;
	ktimer_init(&pt->kt, CLOCK_MONOTONIC, kt_fired);
	cputimer_init(&pt->ct, CPUTIMER_PROF, NULL, ct_fired);
	one_fields(s, pt);
	if (pt->id < 0 || find_locked(tg, pt->id))
		state_fail(s, "timer id %d", pt->id);
	list_add_tail(&tg->timers->list, &pt->node);
	tg->timers->count++;
}

void posix_timers_fields(struct state *s, struct tgroup *tg)
{
	struct posix_timer *pt;
	uint32_t n = state_count(s, tg->timers ? tg->timers->count : 0, POSIX_TIMERS_MAX);

	if (!state_loading(s)) {
		if (!tg->timers)
			return;
		list_for_each(pt, &tg->timers->list, node) {
			pt->armed = pt->kt.queued || !list_empty(&pt->ct.node);
			one_fields(s, pt);
		}
		return;
	}
	if (!n)
		return;
	tg->timers = kzalloc(sizeof(*tg->timers));
	list_init(&tg->timers->list);
	while (n-- && state_ok(s)) {
		load_one(s, tg);
		tg->timers->next_id = (list_last(&tg->timers->list, struct posix_timer, node)->id + 1) &
				      INT32_MAX;
	}
}

static bool one_ok(const struct posix_timer *pt)
{
	if (pt->notify != L_SIGEV_NONE && (pt->signo <= 0 || pt->signo > NSIG_GUEST))
		return false;
	if ((pt->target && pt->target->tg != pt->tg) ||
	    (pt->cpu_thread && pt->cpu_thread->tg != pt->tg))
		return false;
	if (pt->kt.clock != CLOCK_MONOTONIC && pt->kt.clock != CLOCK_REALTIME)
		return false;
	return pt->entry.charged && (!pt->rearm || pt->interval_ns);
}

void posix_timers_loaded(struct state *s, struct tgroup *tg)
{
	struct posix_timer *pt;

	if (!tg->timers)
		return;
	list_for_each(pt, &tg->timers->list, node) {
		if (!one_ok(pt)) {
			state_fail(s, "timer %d can't be", pt->id);
			return;
		}
		pt->ct.thread = pt->cpu_thread;
		sigqueue_charge_loaded(&pt->entry);
		if (is_boottime(pt->clock)) /* which went on meanwhile */
			pt->deadline_ns -= clock_time_away_ns();
	}
}

void posix_timers_resume(struct tgroup *tg)
{
	struct posix_timer *pt;

	if (!tg->timers)
		return;
	list_for_each(pt, &tg->timers->list, node) {
		if (!pt->armed)
			continue;
		pt->armed = false;
		if (pt->is_cpu)
			cputimer_set(tg, &pt->ct, pt->deadline_ns);
		else
			ktimer_arm(&pt->kt, pt->deadline_ns);
	}
}

int posix_timer_id(const struct posix_timer *pt)
{
	return pt->id;
}

struct sigqueue_entry *posix_timer_entry(struct tgroup *tg, int id)
{
	struct posix_timer *pt = find_locked(tg, id);

	return pt ? &pt->entry : NULL;
}
