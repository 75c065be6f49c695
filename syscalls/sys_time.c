// SPDX-License-Identifier: Apache-2.0
/*
 * Clocks: man 2 clock_gettime, gettimeofday, time, nanosleep, clock_nanosleep, adjtimex.
 *
 * Setting the time is refused with EPERM even with CAP_SYS_TIME: real time is the host's. A container
 * without that capability sees the same.
 */
#include <errno.h>
#include <string.h>
#include <sys/timex.h>
#include <time.h>

#include "sentry/time/clock.h"
#include "sentry/time/nanosleep.h"
#include "syscalls/sys.h"

#define COARSE_RES_NS 4000000 /* a tick at CONFIG_HZ=250 */

struct l_timezone {
	int32_t minuteswest, dsttime;
};

/* struct timex of the 64-bit ABI has the same layout as libc's. */
_Static_assert(sizeof(struct timex) == 208, "struct timex is 208 bytes");

long sys_clock_gettime(struct task *t, const struct sysargs *a)
{
	struct l_timespec ts;
	int64_t ns;
	int r = clock_read(t, arg_int(a, 0), &ns);

	if (r < 0)
		return r;
	ts = ns_to_timespec(ns);
	return copyout_obj(t, arg_gaddr(a, 1), &ts);
}

long sys_clock_getres(struct task *t, const struct sysargs *a)
{
	struct l_timespec ts = { 0, 1 };
	int clock = arg_int(a, 0), r;
	int64_t ns;

	r = clock_read(t, clock, &ns);
	if (r < 0)
		return r;
	if (clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC_COARSE)
		ts.tv_nsec = COARSE_RES_NS;
	return a->v[1] ? copyout_obj(t, arg_gaddr(a, 1), &ts) : 0;
}

long sys_clock_settime(struct task *t, const struct sysargs *a)
{
	struct l_timespec ts;
	int r;

	if (arg_int(a, 0) != CLOCK_REALTIME)
		return -EINVAL;
	r = copyin_obj(t, &ts, arg_gaddr(a, 1));
	if (r < 0)
		return r;
	return timespec_valid(&ts) ? -EPERM : -EINVAL;
}

long sys_gettimeofday(struct task *t, const struct sysargs *a)
{
	struct l_timezone tz = { 0, 0 };
	struct l_timeval tv;
	int r = 0;

	if (a->v[0]) {
		tv = ns_to_timeval(clock_realtime_ns());
		r = copyout_obj(t, arg_gaddr(a, 0), &tv);
	}
	if (r == 0 && a->v[1])
		r = copyout_obj(t, arg_gaddr(a, 1), &tz);
	return r;
}

long sys_settimeofday(struct task *t, const struct sysargs *a)
{
	struct l_timezone tz;
	struct l_timeval tv;
	int r;

	if (a->v[0]) {
		r = copyin_obj(t, &tv, arg_gaddr(a, 0));
		if (r < 0)
			return r;
		if (tv.tv_usec < 0 || tv.tv_usec > 1000000 || tv.tv_sec < 0)
			return -EINVAL;
	}
	if (a->v[1]) {
		r = copyin_obj(t, &tz, arg_gaddr(a, 1));
		if (r < 0)
			return r;
	}
	return -EPERM;
}

long sys_time(struct task *t, const struct sysargs *a)
{
	int64_t s = clock_realtime_ns() / NSEC_PER_SEC;
	int r = a->v[0] ? copyout_obj(t, arg_gaddr(a, 0), &s) : 0;

	return r < 0 ? r : s;
}

/* Queries work, as programs like chrony's client and top use them; nothing can be changed. */
static long do_adjtimex(struct task *t, gaddr_t uaddr)
{
	struct l_timeval tv;
	struct timex tx;
	unsigned modes;
	int r = copyin_obj(t, &tx, uaddr);

	if (r < 0)
		return r;
	modes = tx.modes;
	if (modes && modes != ADJ_OFFSET_SS_READ)
		return -EPERM;
	memset(&tx, 0, sizeof(tx));
	tx.modes = modes;
	tx.status = STA_UNSYNC | STA_NANO;
	tx.maxerror = 16000000;
	tx.esterror = 16000000;
	tx.constant = 2;
	tx.precision = 1;
	tx.tolerance = 32768000;
	tx.tick = 10000;
	tv = ns_to_timeval(clock_realtime_ns());
	tx.time.tv_sec = tv.tv_sec;
	tx.time.tv_usec = tv.tv_usec * 1000; /* STA_NANO */
	r = copyout_obj(t, uaddr, &tx);
	return r < 0 ? r : TIME_ERROR; /* "clock not synchronised": we don't know */
}

long sys_adjtimex(struct task *t, const struct sysargs *a)
{
	return do_adjtimex(t, arg_gaddr(a, 0));
}

long sys_clock_adjtime(struct task *t, const struct sysargs *a)
{
	int64_t ns;

	if (arg_int(a, 0) != CLOCK_REALTIME)
		return clock_read(t, arg_int(a, 0), &ns) < 0 ? -EINVAL : -EOPNOTSUPP;
	return do_adjtimex(t, arg_gaddr(a, 1));
}

static long do_nanosleep(struct task *t, int clock, bool abstime, gaddr_t req, gaddr_t rem)
{
	struct l_timespec ts;
	int r = copyin_obj(t, &ts, req);

	if (r < 0)
		return r;
	if (!timespec_valid(&ts))
		return -EINVAL;
	return clock_nanosleep_ns(t, clock, abstime, timespec_to_ns(&ts), rem);
}

long sys_nanosleep(struct task *t, const struct sysargs *a)
{
	return do_nanosleep(t, CLOCK_MONOTONIC, false, arg_gaddr(a, 0), arg_gaddr(a, 1));
}

long sys_clock_nanosleep(struct task *t, const struct sysargs *a)
{
	int clock = arg_int(a, 0);
	int64_t ns;

	if (clock_read(t, clock, &ns) < 0)
		return -EINVAL;
	if (clock == CLOCK_THREAD_CPUTIME_ID || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE ||
	    clock == CLOCK_REALTIME_COARSE)
		return -EOPNOTSUPP;
	return do_nanosleep(t, clock, arg_int(a, 1) & TIMER_ABSTIME, arg_gaddr(a, 2),
			    arg_gaddr(a, 3));
}
