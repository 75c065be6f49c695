// SPDX-License-Identifier: Apache-2.0
/* Clocks and sleeping (man 2 clock_gettime, clock_nanosleep), through the vDSO and by call. */
#include "harness.h"

#include <sys/time.h>
#include <time.h>

static int64_t now_ns(int clock, bool call)
{
	struct timespec ts;

	if (call)
		CHECK(syscall(SYS_clock_gettime, clock, &ts) == 0);
	else
		CHECK(clock_gettime(clock, &ts) == 0);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

TEST(time_vdso_and_call_agree)
{
	static const int clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME };

	for (int k = 0; k < 3; k++) {
		int64_t last = 0;

		for (int i = 0; i < 2000; i++) {
			int64_t n = now_ns(clocks[k], i & 1);

			CHECK(n >= last);
			last = n;
		}
	}
}

TEST(time_sleep_lasts_long_enough)
{
	struct timespec ts = { 0, 30000000 }, abs;
	int64_t t0 = now_ns(CLOCK_MONOTONIC, false);

	CHECK(nanosleep(&ts, NULL) == 0);
	CHECK(now_ns(CLOCK_MONOTONIC, false) - t0 >= 30000000);
	t0 = now_ns(CLOCK_REALTIME, false) + 30000000;
	abs.tv_sec = t0 / 1000000000;
	abs.tv_nsec = t0 % 1000000000;
	CHECK(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &abs, NULL) == 0);
	CHECK(now_ns(CLOCK_REALTIME, false) >= t0);
}

static void nothing(int sig)
{
	(void)sig;
}

TEST(time_interrupted_sleep_tells_the_rest)
{
	struct itimerval it = { .it_value.tv_usec = 20000 };
	struct timespec ts = { 5, 0 }, rem = { 0, 0 };

	signal(SIGALRM, nothing);
	CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
	CHECK_ERRNO(nanosleep(&ts, &rem), EINTR);
	CHECK(rem.tv_sec == 4 && rem.tv_nsec > 0);
}

TEST(time_cpu_clocks_advance)
{
	int64_t p = now_ns(CLOCK_PROCESS_CPUTIME_ID, false), t = now_ns(CLOCK_THREAD_CPUTIME_ID, false);

	for (volatile long i = 0; i < 20000000; i++)
		;
	CHECK(now_ns(CLOCK_PROCESS_CPUTIME_ID, false) > p);
	CHECK(now_ns(CLOCK_THREAD_CPUTIME_ID, false) > t);
}

TEST(time_errors)
{
	struct timespec ts = { 0, 1000000000 };

	CHECK_ERRNO(nanosleep(&ts, NULL), EINVAL);
	CHECK_ERRNO(syscall(SYS_clock_gettime, 99, &ts), EINVAL);
	CHECK_ERRNO(syscall(SYS_clock_getres, 99, &ts), EINVAL);
	CHECK(clock_getres(CLOCK_MONOTONIC, &ts) == 0 && ts.tv_sec == 0 && ts.tv_nsec == 1);
	CHECK_ERRNO(syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &ts, NULL), EOPNOTSUPP);
}

TEST_MAIN
