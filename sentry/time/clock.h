// SPDX-License-Identifier: Apache-2.0
/*
 * Guest clocks. Times are signed 64-bit nanoseconds. The monotonic clock starts near zero at the
 * sandbox's creation, goes on across restore, and is computed from the TSC with the same parameters
 * that the vDSO reads, so a guest never sees the two disagree.
 */
#ifndef SENTRY_TIME_CLOCK_H
#define SENTRY_TIME_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define NSEC_PER_SEC 1000000000LL

struct task;
struct mfile;

/* Begins to measure the TSC: what passes until clock_init() needn't be waited for. Optional. */
void clock_begin(void);
void clock_init(void);
int64_t clock_monotonic_ns(void);
int64_t clock_realtime_ns(void);
int64_t clock_boottime_ns(void);
/* CLOCK_BOOTTIME minus CLOCK_MONOTONIC: the time that the sandbox has spent in images. */
int64_t clock_boot_offset_ns(void);
/* Of that, what the last load has added: 0 in a sandbox that wasn't loaded. */
int64_t clock_time_away_ns(void);
/* Saving and loading, as part of the kernel's record. Monotonic time goes on where it was. */
struct state;
void clock_fields(struct state *s);
/* Guest monotonic time to the host's CLOCK_MONOTONIC, for sleeping on it. */
int64_t clock_to_host_ns(int64_t guest_monotonic_ns);
/* Any clock id of clock_gettime(2), CPU clocks of processes and threads (negative ids) included.
 * 0 or -EINVAL. */
int clock_read(struct task *t, int clockid, int64_t *ret_ns);

/* The page of parameters that the vDSO reads: mapped read-only into every address space. */
struct mfile *clock_vvar_mfile(uint64_t *ret_off);

struct l_timespec {
	int64_t tv_sec, tv_nsec;
};
struct l_timeval {
	int64_t tv_sec, tv_usec;
};
struct l_itimerspec {
	struct l_timespec it_interval, it_value;
};

static inline bool timespec_valid(const struct l_timespec *ts)
{
	return ts->tv_sec >= 0 && ts->tv_nsec >= 0 && ts->tv_nsec < NSEC_PER_SEC;
}
/* Saturates at INT64_MAX. @ts valid. */
int64_t timespec_to_ns(const struct l_timespec *ts);
struct l_timespec ns_to_timespec(int64_t ns);
struct l_timeval ns_to_timeval(int64_t ns);
/* now + rel without wrapping. */
int64_t deadline_after(int64_t now_ns, int64_t rel_ns);

#endif
