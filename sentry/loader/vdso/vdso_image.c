// SPDX-License-Identifier: Apache-2.0
/*
 * The guest's vDSO: clock functions that need no system call. Compiled freestanding into a shared object of
 * its own (sentry/loader/vdso.mk), mapped by the loader with the page of parameters right below it, where
 * vdso.lds puts the symbol vvar. It is code that runs in the guest: it trusts nothing and can harm nobody.
 *
 * The CPU number isn't ours to read without a call (RDPID shows the host's), so getcpu is a plain call.
 */
#include <stddef.h>
#include <stdint.h>

#include "sentry/time/vvar.h"

#define NR_GETTIMEOFDAY 96
#define NR_TIME 201
#define NR_CLOCK_GETTIME 228
#define NR_CLOCK_GETRES 229
#define NR_GETCPU 309

#define L_CLOCK_REALTIME 0
#define L_CLOCK_MONOTONIC 1
#define L_CLOCK_MONOTONIC_RAW 4
#define L_CLOCK_REALTIME_COARSE 5
#define L_CLOCK_MONOTONIC_COARSE 6
#define L_CLOCK_BOOTTIME 7
#define L_CLOCK_TAI 11

#define NSEC_PER_SEC 1000000000ULL
#define EXPORT __attribute__((visibility("default")))

struct vdso_timespec {
	int64_t tv_sec, tv_nsec;
};
struct vdso_timeval {
	int64_t tv_sec, tv_usec;
};

extern const struct vvar vvar __attribute__((visibility("hidden")));

static long call2(long nr, long a, long b)
{
	long ret;

	__asm__ __volatile__("syscall"
			     : "=a"(ret)
			     : "0"(nr), "D"(a), "S"(b)
			     : "rcx", "r11", "memory");
	return ret;
}

static long call3(long nr, long a, long b, long c)
{
	long ret;

	__asm__ __volatile__("syscall"
			     : "=a"(ret)
			     : "0"(nr), "D"(a), "S"(b), "d"(c)
			     : "rcx", "r11", "memory");
	return ret;
}

EXPORT int __vdso_clock_gettime(int clock, struct vdso_timespec *ts);
EXPORT int __vdso_gettimeofday(struct vdso_timeval *tv, void *tz);
EXPORT long __vdso_time(int64_t *t);
EXPORT int __vdso_clock_getres(int clock, struct vdso_timespec *ts);
EXPORT long __vdso_getcpu(unsigned *cpu, unsigned *node, void *unused);

int __vdso_clock_gettime(int clock, struct vdso_timespec *ts)
{
	struct vvar_time vt;
	uint64_t ns;

	switch (clock) {
	case L_CLOCK_REALTIME:
	case L_CLOCK_REALTIME_COARSE:
	case L_CLOCK_TAI:
		if (!vvar_read(&vvar, &vt))
			goto fallback;
		ns = (uint64_t)(vt.mono_ns + vt.wall_offset_ns);
		break;
	case L_CLOCK_MONOTONIC:
	case L_CLOCK_MONOTONIC_RAW:
	case L_CLOCK_MONOTONIC_COARSE:
		if (!vvar_read(&vvar, &vt))
			goto fallback;
		ns = (uint64_t)vt.mono_ns;
		break;
	case L_CLOCK_BOOTTIME:
		if (!vvar_read(&vvar, &vt))
			goto fallback;
		ns = (uint64_t)(vt.mono_ns + vvar.boot_offset_ns);
		break;
	default:
		goto fallback;
	}
	ts->tv_sec = (int64_t)(ns / NSEC_PER_SEC);
	ts->tv_nsec = (int64_t)(ns % NSEC_PER_SEC);
	return 0;
fallback:
	return (int)call2(NR_CLOCK_GETTIME, clock, (long)ts);
}

int __vdso_gettimeofday(struct vdso_timeval *tv, void *tz)
{
	struct vvar_time vt;
	uint64_t ns;

	if (tz || !tv || !vvar_read(&vvar, &vt))
		return (int)call2(NR_GETTIMEOFDAY, (long)tv, (long)tz);
	ns = (uint64_t)(vt.mono_ns + vt.wall_offset_ns);
	tv->tv_sec = (int64_t)(ns / NSEC_PER_SEC);
	tv->tv_usec = (int64_t)(ns % NSEC_PER_SEC / 1000);
	return 0;
}

long __vdso_time(int64_t *t)
{
	struct vvar_time vt;
	int64_t s;

	if (!vvar_read(&vvar, &vt))
		return call2(NR_TIME, (long)t, 0);
	s = (int64_t)((uint64_t)(vt.mono_ns + vt.wall_offset_ns) / NSEC_PER_SEC);
	if (t)
		*t = s;
	return s;
}

int __vdso_clock_getres(int clock, struct vdso_timespec *ts)
{
	return (int)call2(NR_CLOCK_GETRES, clock, (long)ts);
}

long __vdso_getcpu(unsigned *cpu, unsigned *node, void *unused)
{
	return call3(NR_GETCPU, (long)cpu, (long)node, (long)unused);
}

#define ALIAS(name, target)                                                              \
	EXPORT __typeof__(target) name __attribute__((weak, alias(#target)))
ALIAS(clock_gettime, __vdso_clock_gettime);
ALIAS(gettimeofday, __vdso_gettimeofday);
ALIAS(time, __vdso_time);
ALIAS(clock_getres, __vdso_clock_getres);
ALIAS(getcpu, __vdso_getcpu);
