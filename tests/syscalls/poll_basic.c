// SPDX-License-Identifier: Apache-2.0
/* poll(2), ppoll(2). */
#include "harness.h"

#include <poll.h>
#include <sys/resource.h>
#include <time.h>

TEST(poll_nval_and_negative)
{
	struct pollfd f[3] = { { 900, POLLIN, 0 }, { -1, POLLIN, 99 }, { 0, 0, 0 } };

	CHECK(poll(f, 2, -1) == 1);
	CHECK(f[0].revents == POLLNVAL && f[1].revents == 0);
	CHECK(f[0].events == POLLIN);
}

TEST(poll_timeout_and_regular_files)
{
	struct timespec a, b;
	char name[] = "/tmp/pollXXXXXX";
	struct pollfd f = { mkstemp(name), POLLIN | POLLOUT, 0 };

	CHECK(poll(&f, 1, -1) == 1 && f.revents == (POLLIN | POLLOUT));
	clock_gettime(CLOCK_MONOTONIC, &a);
	CHECK(poll(NULL, 0, 30) == 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	CHECK((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >= 29);
	unlink(name);
}

TEST(poll_many_descriptors)
{
	static struct pollfd f[800];
	int p[2];

	CHECK(pipe(p) == 0);
	for (int i = 0; i < 800; i++)
		f[i] = (struct pollfd){ p[0], POLLIN, 0 };
	CHECK(poll(f, 800, 0) == 0);
	if (fork() == 0) {
		usleep(30000);
		_exit(write(p[1], "x", 1) != 1);
	}
	CHECK(poll(f, 800, -1) == 800);
}

TEST(poll_more_than_the_limit)
{
	struct rlimit r = { 10, 10 };
	struct pollfd f[11];

	for (int i = 0; i < 11; i++)
		f[i] = (struct pollfd){ -1, 0, 0 };
	CHECK(setrlimit(RLIMIT_NOFILE, &r) == 0);
	CHECK_ERRNO(poll(f, 11, 0), EINVAL);
	CHECK(poll(f, 10, 0) == 0);
}

static volatile sig_atomic_t got;
static void handler(int sig)
{
	(void)sig;
	got++;
}

TEST(ppoll_mask_lets_signal_in)
{
	struct sigaction sa = { .sa_handler = handler };
	struct timespec ts = { 5, 0 };
	sigset_t block, none;

	sigemptyset(&none);
	sigemptyset(&block);
	sigaddset(&block, SIGUSR1);
	CHECK(sigaction(SIGUSR1, &sa, NULL) == 0 && sigprocmask(SIG_BLOCK, &block, NULL) == 0);
	raise(SIGUSR1);
	CHECK(got == 0);
	CHECK_ERRNO(ppoll(NULL, 0, &ts, &none), EINTR);
	CHECK(got == 1);
	sigprocmask(SIG_BLOCK, NULL, &none);
	CHECK(sigismember(&none, SIGUSR1));
	CHECK_ERRNO(ppoll(NULL, 0, &(struct timespec){ 0, 1000000000 }, NULL), EINVAL);
}

TEST(poll_interrupted_by_handler)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART };

	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	ualarm(20000, 0);
	CHECK_ERRNO(poll(NULL, 0, -1), EINTR);
}

TEST_MAIN
