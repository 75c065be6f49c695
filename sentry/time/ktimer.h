// SPDX-License-Identifier: Apache-2.0
/*
 * Kernel timers: callbacks at a time of the guest's monotonic or real-time clock, run by one timer
 * thread that sleeps until the earliest one (no ticks: an idle sandbox uses no CPU). Under everything
 * that fires by itself: itimers, POSIX timers, timerfd, alarm.
 */
#ifndef SENTRY_TIME_KTIMER_H
#define SENTRY_TIME_KTIMER_H

#include <stdbool.h>
#include <stdint.h>

struct ktimer {
	int64_t deadline_ns;
	int clock;        /* CLOCK_MONOTONIC, CLOCK_REALTIME (follows clock steps) or CLOCK_BOOTTIME */
	_Atomic bool queued; /* others only ask whether it may need arming */
	uint64_t key[6];  /* queue linkage, private to ktimer.c */
	/* Runs on the timer thread, no locks held; may take any lock, must not sleep for long.
	 * May re-arm @kt. */
	void (*fn)(struct ktimer *kt);
};

void ktimer_init_system(void);
void ktimer_init(struct ktimer *kt, int clock, void (*fn)(struct ktimer *kt));
/* Arms or re-arms. A deadline in the past fires at once. */
void ktimer_arm(struct ktimer *kt, int64_t deadline_ns);
/* Disarms without waiting for a running callback: for owners who hold the lock that the callback takes
 * and let it find out by itself. */
void ktimer_disarm(struct ktimer *kt);
/* Disarms. On return the callback is not running, unless called from the callback itself. */
void ktimer_cancel(struct ktimer *kt);

#endif
