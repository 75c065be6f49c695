// SPDX-License-Identifier: Apache-2.0
/*
 * The page of clock parameters that sentry/time/clock.c writes and that the vDSO and the sentry itself read.
 * Freestanding: included by guest-side code.
 *
 *	monotonic = mono_base + ((tsc - tsc_base) * mult >> shift)
 *	realtime  = monotonic + wall_offset
 *
 * A reader takes seq (even), the fields, seq again (unchanged), as with a seqcount. It must make the system
 * call instead when mode isn't VVAR_TSC or more than max_delta ticks have passed since tsc_base: the
 * parameters are stale then, and the call refreshes them. No timer does, so an idle sandbox stays idle.
 */
#ifndef SENTRY_TIME_VVAR_H
#define SENTRY_TIME_VVAR_H

#include <stdint.h>

#define VVAR_CALL 0 /* the TSC isn't usable */
#define VVAR_TSC 1

struct vvar {
	uint32_t seq, mode;
	uint64_t tsc_base, max_delta;
	uint32_t mult, shift;
	int64_t mono_base_ns, wall_offset_ns;
	int64_t boot_offset_ns; /* CLOCK_BOOTTIME ahead of CLOCK_MONOTONIC; written before any guest runs */
};

struct vvar_time {
	int64_t mono_ns, wall_offset_ns;
};

static inline uint64_t vvar_rdtsc(void)
{
	uint32_t lo, hi;

	/* lfence: not read before what came earlier in program order */
	__asm__ __volatile__("lfence; rdtsc" : "=a"(lo), "=d"(hi) : : "memory");
	return (uint64_t)hi << 32 | lo;
}

/* Nanoseconds of @delta ticks. max_delta keeps the product within 64 bits. */
static inline uint64_t vvar_scale(uint64_t delta, uint32_t mult, uint32_t shift)
{
	return delta * mult >> shift;
}

/* 1 and *ret filled; 0: make the system call (refresh first, in the sentry). */
static inline int vvar_read(const struct vvar *v, struct vvar_time *ret)
{
	uint32_t seq, mode, mult, shift;
	uint64_t base, max, now;
	int64_t mono, wall;

	do {
		seq = __atomic_load_n(&v->seq, __ATOMIC_ACQUIRE);
		if (seq & 1) { /* the writer is another thread: a few loads away from done */
			__asm__ __volatile__("pause");
			continue;
		}
		mode = __atomic_load_n(&v->mode, __ATOMIC_RELAXED);
		base = __atomic_load_n(&v->tsc_base, __ATOMIC_RELAXED);
		max = __atomic_load_n(&v->max_delta, __ATOMIC_RELAXED);
		mult = __atomic_load_n(&v->mult, __ATOMIC_RELAXED);
		shift = __atomic_load_n(&v->shift, __ATOMIC_RELAXED);
		mono = __atomic_load_n(&v->mono_base_ns, __ATOMIC_RELAXED);
		wall = __atomic_load_n(&v->wall_offset_ns, __ATOMIC_RELAXED);
		if (mode != VVAR_TSC)
			return 0;
		now = vvar_rdtsc();
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (__atomic_load_n(&v->seq, __ATOMIC_RELAXED) == seq)
			break;
	} while (1);
	/* a TSC slightly behind on this core: counts as no time passed */
	if ((int64_t)(now - base) < 0)
		now = base;
	if (now - base > max)
		return 0;
	ret->mono_ns = mono + (int64_t)vvar_scale(now - base, mult, shift);
	ret->wall_offset_ns = wall;
	return 1;
}

#endif
