// SPDX-License-Identifier: Apache-2.0
/*
 * The guest's clocks (man 2 clock_gettime, 7 time).
 *
 * Monotonic time starts at 0 when the sandbox is made and is computed from the TSC with the parameters of
 * vvar.h, by the guest in the vDSO and by the sentry here, so both always agree. The TSC's rate is measured
 * against the host's CLOCK_MONOTONIC for 2 ms at start. That is good to some 30 ppm only, so the parameters
 * expire early at first (100 ms, doubling up to 4 s); whoever finds them expired compares with the host
 * again. A refresh never moves the clock back: it goes on from what the old parameters say now, at the rate
 * measured over the longest span known, tilted so that the error is gone by the next expiry. Only a clock that
 * lags by more than STEP_NS (the machine was suspended) jumps, forward.
 *
 * Real time is monotonic time plus an offset, which follows the host's CLOCK_REALTIME at each refresh; small
 * differences below WALL_DEADBAND_NS are left alone, so it doesn't flutter. Guests can't set the clock:
 * it is the host's.
 *
 * Without an invariant TSC, or when the TSC and the host disagree at start, mode is VVAR_CALL and each
 * reading is a host clock_gettime().
 *
 * Lock: refresh_mu (RANK_LOG level: leaf, taken with anything held). Readers take none.
 */
#include "sentry/time/clock.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cpuid.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/size.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/mfile.h"
#include "sentry/state/state.h"
#include "sentry/time/cputimer.h"
#include "sentry/time/vvar.h"

#define CALIBRATE_NS 2000000LL
#define EXPIRE_FIRST_NS 100000000LL
#define EXPIRE_MAX_NS 4000000000LL
#define STEP_NS 100000000LL
#define WALL_DEADBAND_NS 20000LL
#define MIN_HZ 100000000ULL /* a "TSC" outside of these isn't one */
#define MAX_HZ 20000000000ULL

struct sample {
	uint64_t tsc;
	int64_t host_ns, real_ns;
};

static struct {
	struct mutex refresh_mu;
	struct vvar *page;      /* the shared page; fallback_page before clock_init() */
	struct mfile *mf;
	uint64_t off;
	int64_t away_ns;        /* see clock_time_away_ns() */
	int64_t host_base_ns;   /* host's CLOCK_MONOTONIC at guest time 0 */
	struct sample first;    /* (refresh_mu) start of the span over which the rate is measured */
	int64_t expire_ns;      /* (refresh_mu) */
} clk;

static int64_t host_clock(clockid_t id)
{
	struct timespec ts;

	if (clock_gettime(id, &ts) < 0) /* host: clock_gettime */
		panic("clock_gettime(%d): %s", (int)id, strerror(errno));
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* The TSC and the host's clocks at one moment: the tightest of a few tries. */
static struct sample take_sample(void)
{
	struct sample best = { 0 };
	uint64_t best_width = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		uint64_t before = vvar_rdtsc();
		int64_t host = host_clock(CLOCK_MONOTONIC);
		uint64_t after = vvar_rdtsc();

		if (after - before < best_width) {
			best_width = after - before;
			best.tsc = before + (after - before) / 2;
			best.host_ns = host;
		}
	}
	best.real_ns = best.host_ns + (host_clock(CLOCK_REALTIME) - host_clock(CLOCK_MONOTONIC));
	return best;
}

static bool tsc_is_invariant(void)
{
	return cpuid_bit(0x80000007, 0, EDX, 8);
}

/* mult and shift for @hz * (1 + tilt_num/tilt_den), such that max_delta * mult fits. */
static void set_rate(struct vvar *v, double hz, double tilt, int64_t expire_ns)
{
	double ns_per_tick = 1e9 / hz * (1.0 + tilt);
	uint64_t max_delta = (uint64_t)((double)expire_ns / 1e9 * hz);
	uint32_t shift = 31;

	/* ns_per_tick < 16, so mult < 2^31 at shift 27 at the latest */
	while (shift > 0 && (ns_per_tick * (double)(1u << shift) >= 4294967295.0 ||
			     (double)max_delta * ns_per_tick * (double)(1u << shift) >= 9e18))
		shift--;
	__atomic_store_n(&v->mult, (uint32_t)(ns_per_tick * (double)(1u << shift)),
			 __ATOMIC_RELAXED);
	__atomic_store_n(&v->shift, shift, __ATOMIC_RELAXED);
	__atomic_store_n(&v->max_delta, max_delta, __ATOMIC_RELAXED);
}

static void write_begin(struct vvar *v)
{
	__atomic_store_n(&v->seq, v->seq + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void write_end(struct vvar *v)
{
	__atomic_store_n(&v->seq, v->seq + 1, __ATOMIC_RELEASE);
}

/* What the current parameters say for @tsc, expired or not, without overflow. */
static int64_t predict(const struct vvar *v, uint64_t tsc)
{
	uint64_t delta = (int64_t)(tsc - v->tsc_base) < 0 ? 0 : tsc - v->tsc_base;

	return v->mono_base_ns + (int64_t)((unsigned __int128)delta * v->mult >> v->shift);
}

/* Context: refresh_mu held. */
static void refresh_locked(struct vvar *v)
{
	struct sample s = take_sample();
	int64_t span = s.host_ns - clk.first.host_ns;
	int64_t truth = s.host_ns - clk.host_base_ns, mono = predict(v, s.tsc);
	double hz = (double)(s.tsc - clk.first.tsc) / (double)span * 1e9, tilt;
	int64_t err = truth - mono, wall;

	if (hz < (double)MIN_HZ || hz > (double)MAX_HZ) {
		log_warn("the TSC can't be trusted any more: clocks use host calls");
		write_begin(v);
		__atomic_store_n(&v->mode, VVAR_CALL, __ATOMIC_RELAXED);
		write_end(v);
		return;
	}
	if (err > STEP_NS) {
		mono = truth;
		err = 0;
	}
	clk.expire_ns = MIN(clk.expire_ns * 2, EXPIRE_MAX_NS);
	tilt = (double)err / (double)clk.expire_ns;
	if (tilt < -0.5)
		tilt = -0.5;
	wall = s.real_ns - mono;
	if (wall - v->wall_offset_ns < WALL_DEADBAND_NS &&
	    wall - v->wall_offset_ns > -WALL_DEADBAND_NS)
		wall = v->wall_offset_ns;

	write_begin(v);
	__atomic_store_n(&v->tsc_base, s.tsc, __ATOMIC_RELAXED);
	__atomic_store_n(&v->mono_base_ns, mono, __ATOMIC_RELAXED);
	__atomic_store_n(&v->wall_offset_ns, wall, __ATOMIC_RELAXED);
	set_rate(v, hz, tilt, clk.expire_ns);
	write_end(v);
}

static void refresh(void)
{
	struct vvar_time vt;

	mutex_lock(&clk.refresh_mu);
	/* somebody else may have done it while we waited */
	if (clk.page->mode == VVAR_TSC && !vvar_read(clk.page, &vt))
		refresh_locked(clk.page);
	mutex_unlock(&clk.refresh_mu);
}

static void read_host(struct vvar_time *ret)
{
	ret->mono_ns = host_clock(CLOCK_MONOTONIC) - clk.host_base_ns;
	ret->wall_offset_ns = host_clock(CLOCK_REALTIME) - ret->mono_ns;
}

static void read_clock(struct vvar_time *ret)
{
	for (int i = 0; i < 3; i++) {
		if (likely(vvar_read(clk.page, ret)))
			return;
		if (clk.page->mode != VVAR_TSC)
			break;
		refresh();
	}
	read_host(ret);
}

void clock_begin(void)
{
	if (tsc_is_invariant())
		clk.first = take_sample();
}

/* Measures the TSC's rate; false when it is no clock. */
static bool calibrate(struct vvar *v)
{
	struct sample a, b;
	int64_t left;
	double hz;

	if (!tsc_is_invariant())
		return false;
	if (!clk.first.tsc)
		clock_begin();
	a = clk.first;
	left = a.host_ns + CALIBRATE_NS - host_clock(CLOCK_MONOTONIC);
	if (left > 0) {
		struct timespec nap = { .tv_nsec = left };

		nanosleep(&nap, NULL); /* host: clock_nanosleep */
	}
	b = take_sample();
	if (b.host_ns <= a.host_ns || b.tsc <= a.tsc)
		return false;
	hz = (double)(b.tsc - a.tsc) / (double)(b.host_ns - a.host_ns) * 1e9;
	if (hz < (double)MIN_HZ || hz > (double)MAX_HZ)
		return false;
	clk.expire_ns = EXPIRE_FIRST_NS;
	v->tsc_base = b.tsc;
	v->mono_base_ns = b.host_ns - clk.host_base_ns;
	v->wall_offset_ns = b.real_ns - v->mono_base_ns;
	set_rate(v, hz, 0.0, clk.expire_ns);
	return true;
}

/* Context: once, at start, after mfile_set_provider(); before any other use of clocks. */
void clock_init(void)
{
	uint64_t len = PAGE_SIZE;
	int r;

	mutex_init(&clk.refresh_mu, RANK_PLATFORM);
	clk.mf = mfile_create("vvar");
	if (is_err(clk.mf))
		panic("clock: no memory file: %s", strerror((int)-ptr_err(clk.mf)));
	r = mfile_alloc(clk.mf, PAGE_SIZE, &clk.off);
	if (r < 0)
		panic("clock: no page: %s", strerror(-r));
	clk.page = mfile_ptr(clk.mf, clk.off, &len);
	if (!clk.page || len < PAGE_SIZE)
		panic("clock: page can't be mapped");
	clk.host_base_ns = host_clock(CLOCK_MONOTONIC);
	clk.page->mode = calibrate(clk.page) ? VVAR_TSC : VVAR_CALL;
	kernel.boot_realtime_ns = clock_realtime_ns() - clock_boottime_ns();
}

struct mfile *clock_vvar_mfile(uint64_t *ret_off)
{
	*ret_off = clk.off;
	return clk.mf;
}

int64_t clock_monotonic_ns(void)
{
	struct vvar_time vt;

	read_clock(&vt);
	return vt.mono_ns;
}

int64_t clock_realtime_ns(void)
{
	struct vvar_time vt;

	read_clock(&vt);
	return vt.mono_ns + vt.wall_offset_ns;
}

/* The guest is never told of the host's suspends, but of the time it was an image itself. */
int64_t clock_boottime_ns(void)
{
	return clock_monotonic_ns() + clk.page->boot_offset_ns;
}

int64_t clock_boot_offset_ns(void)
{
	return clk.page->boot_offset_ns;
}

int64_t clock_time_away_ns(void)
{
	return clk.away_ns;
}

/* Context: loading, so no guest looks at the page. */
static void continue_at(int64_t mono_ns, int64_t boot_offset_ns, int64_t away_ns)
{
	struct vvar *v = clk.page;
	int64_t shift;
	AUTO_LOCK(&clk.refresh_mu);

	shift = mono_ns - clock_monotonic_ns();
	clk.host_base_ns -= shift;
	clk.away_ns = away_ns;
	write_begin(v);
	__atomic_store_n(&v->mono_base_ns, v->mono_base_ns + shift, __ATOMIC_RELAXED);
	__atomic_store_n(&v->wall_offset_ns, v->wall_offset_ns - shift, __ATOMIC_RELAXED);
	v->boot_offset_ns = boot_offset_ns + away_ns;
	write_end(v);
	kernel.boot_realtime_ns = clock_realtime_ns() - clock_boottime_ns();
}

#define TIME_MAX (INT64_MAX / 4) /* 73 years: sums of a few don't overflow */

void clock_fields(struct state *s)
{
	int64_t mono = clock_monotonic_ns(), real = clock_realtime_ns(), now = real;
	int64_t boot = clk.page->boot_offset_ns;

	state_range_i64(s, &mono, 0, TIME_MAX);
	state_range_i64(s, &boot, 0, TIME_MAX);
	state_range_i64(s, &real, 0, INT64_MAX);
	if (state_loading(s) && state_ok(s)) /* a host clock that was set back: no time has passed */
		continue_at(mono, boot, MIN(MAX(now - real, (int64_t)0), TIME_MAX));
}

int64_t clock_to_host_ns(int64_t guest_monotonic_ns)
{
	int64_t r;

	if (__builtin_add_overflow(guest_monotonic_ns, clk.host_base_ns, &r))
		return INT64_MAX;
	return r;
}

/* ---- conversions ---- */

int64_t timespec_to_ns(const struct l_timespec *ts)
{
	int64_t ns;

	if (__builtin_mul_overflow(ts->tv_sec, NSEC_PER_SEC, &ns) ||
	    __builtin_add_overflow(ns, ts->tv_nsec, &ns))
		return INT64_MAX;
	return ns;
}

struct l_timespec ns_to_timespec(int64_t ns)
{
	struct l_timespec ts = { ns / NSEC_PER_SEC, ns % NSEC_PER_SEC };

	if (ts.tv_nsec < 0) {
		ts.tv_sec--;
		ts.tv_nsec += NSEC_PER_SEC;
	}
	return ts;
}

struct l_timeval ns_to_timeval(int64_t ns)
{
	struct l_timespec ts = ns_to_timespec(ns);

	return (struct l_timeval){ ts.tv_sec, ts.tv_nsec / 1000 };
}

int64_t deadline_after(int64_t now_ns, int64_t rel_ns)
{
	int64_t r;

	if (__builtin_add_overflow(now_ns, rel_ns, &r))
		return INT64_MAX;
	return r;
}

/* ---- any clock id ---- */

/* Negative ids: ~pid << 3 | per-thread 4 | which (0 PROF, 1 VIRT, 2 SCHED); pid 0 is the caller. */
static int read_cpu_clock(struct task *t, int clockid, int64_t *ret_ns)
{
	pid_t pid = ~(clockid >> 3);
	int which = clockid & 3;
	struct task *target;

	if (which == 3) /* CLOCKFD: dynamic clocks, we have none */
		return -EINVAL;
	if (clockid & 4) {
		if (pid == 0) {
			*ret_ns = task_cpu_ns(t);
			return 0;
		}
		target = task_find(t, pid);
		if (!target)
			return -EINVAL;
		if (target->tg != t->tg) {
			task_put(target);
			return -EINVAL;
		}
		*ret_ns = task_cpu_ns(target);
		task_put(target);
		return 0;
	}
	struct tgroup *tg = pid == 0 ? tgroup_get(t->tg) : tgroup_find(t, pid);

	if (!tg)
		return -EINVAL;
	if (tg == t->tg)
		(void)task_cpu_ns(t); /* makes our own share exact */
	*ret_ns = tgroup_cpu_ns(tg, which == 1 ? CPUTIMER_VIRT : CPUTIMER_PROF);
	tgroup_put(tg);
	return 0;
}

int clock_read(struct task *t, int clockid, int64_t *ret_ns)
{
	switch (clockid) {
	case CLOCK_REALTIME:
	case CLOCK_REALTIME_COARSE:
	case CLOCK_REALTIME_ALARM:
		*ret_ns = clock_realtime_ns();
		return 0;
	case CLOCK_TAI: /* no leap second table: offset 0, as on a Linux that wasn't told */
		*ret_ns = clock_realtime_ns();
		return 0;
	case CLOCK_MONOTONIC:
	case CLOCK_MONOTONIC_RAW:
	case CLOCK_MONOTONIC_COARSE:
		*ret_ns = clock_monotonic_ns();
		return 0;
	case CLOCK_BOOTTIME:
	case CLOCK_BOOTTIME_ALARM:
		*ret_ns = clock_boottime_ns();
		return 0;
	case CLOCK_PROCESS_CPUTIME_ID:
		(void)task_cpu_ns(t);
		*ret_ns = tgroup_cpu_ns(t->tg, CPUTIMER_PROF);
		return 0;
	case CLOCK_THREAD_CPUTIME_ID:
		*ret_ns = task_cpu_ns(t);
		return 0;
	default:
		return clockid < 0 ? read_cpu_clock(t, clockid, ret_ns) : -EINVAL;
	}
}
