// SPDX-License-Identifier: Apache-2.0
/* man 2 execve, 2 exit_group: a process that ends, or becomes another, while its threads begin, sleep and end. What
 * one of them meets on the way is nothing that its parent hears of. */
#include "harness.h"

#include <pthread.h>

#define ROUNDS   150
#define SLEEPERS 5

/* The program that the threads exec: this one, which then ends at once. */
__attribute__((constructor)) static void end_at_once(void)
{
	if (getenv("THREAD_ENDS"))
		_exit(0);
}

static void *sleep_on(void *arg)
{
	for (;;)
		usleep(50);
	return arg;
}

static void *sleep_a_little(void *arg)
{
	usleep((unsigned)rand() % 300);
	return arg;
}

static void *exec_self(void *arg)
{
	static char *const argv[] = { "x", NULL }, *const env[] = { "THREAD_ENDS=1", NULL };

	usleep((unsigned)rand() % 300);
	execve("/proc/self/exe", argv, env);
	_exit(1);
	return arg;
}

static void begin(void *(*fn)(void *))
{
	pthread_t t;

	CHECK(pthread_create(&t, NULL, fn, NULL) == 0);
}

static void exec_among_sleepers(void)
{
	for (int i = 0; i < SLEEPERS; i++)
		begin(sleep_on);
	begin(exec_self);
	pause();
}

static void exit_among_beginners(void)
{
	for (int i = 0; i < SLEEPERS; i++) {
		begin(sleep_on);
		begin(sleep_a_little);
	}
	usleep((unsigned)rand() % 500);
	_exit(0);
}

static void *exit_later(void *arg)
{
	usleep(2000);
	_exit(0);
	return arg;
}

/* The others go on (man 3 pthread_exit). */
static void first_thread_ends(void)
{
	begin(sleep_on);
	begin(exit_later);
	syscall(SYS_exit, 1);
}

/* Two at a time, so that they get into each other's way. */
static void repeat(void (*fn)(void))
{
	pid_t pid[2];
	int st;

	for (int n = 0; n < ROUNDS; n++) {
		for (int i = 0; i < 2; i++) {
			pid[i] = fork();
			CHECK(pid[i] >= 0);
			if (pid[i] == 0) {
				srand((unsigned)(2 * n + i));
				fn();
				_exit(1);
			}
		}
		for (int i = 0; i < 2; i++) {
			CHECK(waitpid(pid[i], &st, 0) == pid[i]);
			if (st)
				FAIL("round %d: status 0x%x", n, (unsigned)st);
		}
	}
}

TEST(exec_while_threads_begin)
{
	repeat(exec_among_sleepers);
}

TEST(exit_while_threads_begin)
{
	repeat(exit_among_beginners);
}

TEST(others_go_on_when_the_first_thread_ends)
{
	repeat(first_thread_ends);
}

TEST_MAIN
