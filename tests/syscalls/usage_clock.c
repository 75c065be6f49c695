// SPDX-License-Identifier: Apache-2.0
/* man 2 clock_nanosleep on CPU clocks; the times in SIGCHLD's siginfo; SEM_UNDO's range (man 2 semop) */
#include "harness.h"

#include <pthread.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/times.h>
#include <time.h>

static volatile bool stop_burning;

static void *burn(void *arg)
{
	(void)arg;
	while (!stop_burning)
		;
	return NULL;
}

static long cpu_sleep(clockid_t clock, int flags, const struct timespec *ts, struct timespec *rem)
{
	return syscall(SYS_clock_nanosleep, clock, flags, ts, rem);
}

TEST(cpu_clock_sleep_needs_cpu_time)
{
	struct timespec ts = { 0, 50000000 }, before, after;
	pthread_t th;

	CHECK(pthread_create(&th, NULL, burn, NULL) == 0);
	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before) == 0);
	CHECK(cpu_sleep(CLOCK_PROCESS_CPUTIME_ID, 0, &ts, NULL) == 0);
	CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after) == 0);
	CHECK((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec >=
	      50000000);
	CHECK(cpu_sleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &before, NULL) == 0);
	stop_burning = true;
	CHECK(pthread_join(th, NULL) == 0);
}

static void on_alarm(int sig)
{
	(void)sig;
}

TEST(cpu_clock_sleep_is_interrupted)
{
	struct sigaction sa = { .sa_handler = on_alarm };
	struct timespec ts = { 5, 0 }, rem = { 0, 0 };

	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	ualarm(50000, 0);
	CHECK_ERRNO(cpu_sleep(CLOCK_PROCESS_CPUTIME_ID, 0, &ts, &rem), EINTR);
	CHECK(rem.tv_sec == 4);
	ualarm(50000, 0);
	ts.tv_sec = 100;
	CHECK_ERRNO(cpu_sleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &ts, NULL), EINTR);
	CHECK_ERRNO(cpu_sleep(CLOCK_THREAD_CPUTIME_ID, 0, &ts, NULL), EOPNOTSUPP);
	CHECK_ERRNO(cpu_sleep(CLOCK_MONOTONIC_RAW, 0, &ts, NULL), EOPNOTSUPP);
	ts.tv_nsec = 1000000000;
	CHECK_ERRNO(cpu_sleep(CLOCK_PROCESS_CPUTIME_ID, 0, &ts, NULL), EINVAL);
}

TEST(sigchld_counts_time_once)
{
	struct tms t;
	siginfo_t si;
	sigset_t set;
	clock_t used;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		do
			CHECK(times(&t) != -1);
		while (t.tms_utime + t.tms_stime < 30);
		_exit(0);
	}
	CHECK(sigwaitinfo(&set, &si) == SIGCHLD && si.si_pid == pid);
	CHECK(waitpid(pid, NULL, 0) == pid);
	CHECK(times(&t) != -1);
	used = t.tms_cutime + t.tms_cstime;
	/* nowhere near twice of it; the two are taken at slightly different moments of the exit */
	CHECK(si.si_utime + si.si_stime >= used / 2 && si.si_utime + si.si_stime <= used + used / 2);
}

TEST(sem_undo_range_is_cumulative)
{
	struct sembuf up[2] = { { 0, 20000, SEM_UNDO }, { 0, -20000, 0 } }, two[3];
	int id = semget(IPC_PRIVATE, 1, 0600);

	CHECK(id >= 0);
	two[0] = up[0];
	two[1] = up[1];
	two[2] = up[0];
	CHECK_ERRNO(semop(id, two, 3), ERANGE); /* 40000 to undo */
	CHECK(semctl(id, 0, GETVAL) == 0);
	two[1].sem_flg = SEM_UNDO; /* +20000 -20000 +20000: in range at each step */
	CHECK(semop(id, two, 3) == 0);
	CHECK(semctl(id, 0, GETVAL) == 20000);
	CHECK(semctl(id, 0, IPC_RMID) == 0);
}

TEST_MAIN
