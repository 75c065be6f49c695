// SPDX-License-Identifier: Apache-2.0
/* man 2 getitimer, setitimer, alarm, timer_create, timer_settime, timer_getoverrun, timer_delete */
#include <errno.h>
#include <sys/time.h>
#include <time.h>

#include "sentry/time/clock.h"
#include "sentry/time/itimer.h"
#include "sentry/time/posix_timer.h"
#include "syscalls/sys.h"

struct l_itimerval {
	struct l_timeval it_interval, it_value;
};

static bool timeval_valid(const struct l_timeval *tv)
{
	return tv->tv_sec >= 0 && tv->tv_usec >= 0 && tv->tv_usec < 1000000;
}

static int64_t timeval_to_ns(const struct l_timeval *tv)
{
	struct l_timespec ts = { tv->tv_sec, tv->tv_usec * 1000 };

	return timespec_to_ns(&ts);
}

static int put_itimer(struct task *t, gaddr_t dst, const struct itimer_value *v)
{
	/* rounded up: an armed timer must not read as zero */
	struct l_itimerval out = { ns_to_timeval(v->interval_ns),
				   ns_to_timeval(v->value_ns ? deadline_after(v->value_ns, 999) : 0) };

	return copyout_obj(t, dst, &out);
}

static bool which_valid(int which)
{
	return which == ITIMER_REAL || which == ITIMER_VIRTUAL || which == ITIMER_PROF;
}

long sys_getitimer(struct task *t, const struct sysargs *a)
{
	struct itimer_value v;

	if (!which_valid(arg_int(a, 0)))
		return -EINVAL;
	itimer_get(t->tg, arg_int(a, 0), &v);
	return put_itimer(t, arg_gaddr(a, 1), &v);
}

long sys_setitimer(struct task *t, const struct sysargs *a)
{
	struct itimer_value new = { 0, 0 }, old;
	struct l_itimerval in;
	int r;

	if (a->v[1]) { /* NULL disarms (man 2 setitimer, BUGS) */
		r = copyin_obj(t, &in, arg_gaddr(a, 1));
		if (r < 0)
			return r;
		if (!timeval_valid(&in.it_value) || !timeval_valid(&in.it_interval))
			return -EINVAL;
		new.value_ns = timeval_to_ns(&in.it_value);
		new.interval_ns = timeval_to_ns(&in.it_interval);
	}
	if (!which_valid(arg_int(a, 0)))
		return -EINVAL;
	itimer_set(t->tg, arg_int(a, 0), &new, &old);
	return a->v[2] ? put_itimer(t, arg_gaddr(a, 2), &old) : 0;
}

long sys_alarm(struct task *t, const struct sysargs *a)
{
	struct itimer_value new = { (int64_t)arg_u32(a, 0) * NSEC_PER_SEC, 0 }, old;
	int64_t s;

	itimer_set(t->tg, ITIMER_REAL, &new, &old);
	s = old.value_ns / NSEC_PER_SEC;
	/* to the nearest second, but not to 0 if one was pending */
	if (old.value_ns % NSEC_PER_SEC >= NSEC_PER_SEC / 2 || (s == 0 && old.value_ns))
		s++;
	return s;
}

long sys_timer_create(struct task *t, const struct sysargs *a)
{
	struct l_sigevent ev;
	int32_t id32;
	long id;
	int r;

	if (a->v[1]) {
		r = copyin_obj(t, &ev, arg_gaddr(a, 1));
		if (r < 0)
			return r;
	}
	id = posix_timer_create(t, arg_int(a, 0), a->v[1] ? &ev : NULL);
	if (id < 0)
		return id;
	id32 = (int32_t)id;
	r = copyout_obj(t, arg_gaddr(a, 2), &id32);
	if (r < 0)
		(void)posix_timer_delete(t, (int)id); /* we have just made it */
	return r;
}

long sys_timer_settime(struct task *t, const struct sysargs *a)
{
	struct l_itimerspec new, old;
	long r;

	if (!a->v[2])
		return -EINVAL;
	r = copyin_obj(t, &new, arg_gaddr(a, 2));
	if (r < 0)
		return r;
	r = posix_timer_settime(t, arg_int(a, 0), arg_int(a, 1), &new, &old);
	if (r == 0 && a->v[3])
		r = copyout_obj(t, arg_gaddr(a, 3), &old);
	return r;
}

long sys_timer_gettime(struct task *t, const struct sysargs *a)
{
	struct l_itimerspec its;
	long r = posix_timer_gettime(t, arg_int(a, 0), &its);

	return r < 0 ? r : copyout_obj(t, arg_gaddr(a, 1), &its);
}

long sys_timer_getoverrun(struct task *t, const struct sysargs *a)
{
	return posix_timer_getoverrun(t, arg_int(a, 0));
}

long sys_timer_delete(struct task *t, const struct sysargs *a)
{
	return posix_timer_delete(t, arg_int(a, 0));
}
