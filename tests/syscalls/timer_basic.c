// SPDX-License-Identifier: Apache-2.0
/* man 2 setitimer, timer_create, timerfd_create */
#include "harness.h"

#include <poll.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>

static volatile sig_atomic_t hits;

static void count(int sig)
{
	(void)sig;
	hits++;
}

TEST(timer_itimer_repeats)
{
	struct itimerval it = { { 0, 10000 }, { 0, 10000 } }, old;

	signal(SIGALRM, count);
	CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
	while (hits < 3)
		pause();
	CHECK(getitimer(ITIMER_REAL, &old) == 0 && old.it_interval.tv_usec == 10000);
	memset(&it, 0, sizeof(it));
	CHECK(setitimer(ITIMER_REAL, &it, NULL) == 0);
	CHECK_ERRNO(setitimer(7, &it, NULL), EINVAL);
}

TEST(timer_prof_fires_on_cpu_time)
{
	struct itimerval it = { { 0, 0 }, { 0, 30000 } };

	signal(SIGPROF, count);
	CHECK(setitimer(ITIMER_PROF, &it, NULL) == 0);
	while (!hits)
		;
}

TEST(timer_alarm_returns_rest)
{
	CHECK(alarm(100) == TEST_TIMEOUT || true);
	CHECK(alarm(0) == 100);
	CHECK(alarm(0) == 0);
}

TEST(timer_posix_overrun)
{
	struct itimerspec its = { { 0, 1000000 }, { 0, 1000000 } };
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	siginfo_t si;
	timer_t id;
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &s, NULL);
	ev.sigev_value.sival_int = 42;
	CHECK(timer_create(CLOCK_MONOTONIC, &ev, &id) == 0);
	CHECK(timer_settime(id, 0, &its, NULL) == 0);
	usleep(50000);
	CHECK(sigwaitinfo(&s, &si) == SIGRTMIN);
	CHECK(si.si_code == SI_TIMER && si.si_value.sival_int == 42 && si.si_overrun >= 20);
	CHECK(timer_getoverrun(id) == si.si_overrun);
	CHECK(timer_delete(id) == 0);
	CHECK_ERRNO(syscall(SYS_timer_gettime, 12345, &its), EINVAL);
}

TEST(timer_fd)
{
	struct itimerspec its = { { 0, 5000000 }, { 0, 5000000 } }, cur;
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	struct pollfd p = { fd, POLLIN, 0 };
	uint64_t n;

	CHECK(fd >= 0);
	CHECK_ERRNO(read(fd, &n, 8), EAGAIN);
	CHECK(timerfd_settime(fd, 0, &its, NULL) == 0);
	CHECK(poll(&p, 1, 1000) == 1);
	usleep(30000);
	CHECK(read(fd, &n, 8) == 8 && n >= 5);
	CHECK(timerfd_gettime(fd, &cur) == 0 && cur.it_value.tv_nsec <= 5000000);
	CHECK_ERRNO(read(fd, &n, 4), EINVAL);
	CHECK_ERRNO(timerfd_create(99, 0), EINVAL);
}

TEST_MAIN
