// SPDX-License-Identifier: Apache-2.0
/* epoll(7). */
#include "harness.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static int add(int ep, int fd, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.fd = fd };

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
}

TEST(epoll_level_triggered_repeats)
{
	struct epoll_event ev[4];
	int ep = epoll_create1(EPOLL_CLOEXEC), p[2];
	char c;

	CHECK(ep >= 0 && pipe(p) == 0 && add(ep, p[0], EPOLLIN) == 0);
	CHECK(epoll_wait(ep, ev, 4, 0) == 0);
	CHECK(write(p[1], "x", 1) == 1);
	for (int i = 0; i < 3; i++)
		CHECK(epoll_wait(ep, ev, 4, 0) == 1 && ev[0].data.fd == p[0] &&
		      ev[0].events == EPOLLIN);
	CHECK(read(p[0], &c, 1) == 1);
	CHECK(epoll_wait(ep, ev, 4, 0) == 0);
	close(p[1]);
	CHECK(epoll_wait(ep, ev, 4, -1) == 1 && ev[0].events == EPOLLHUP);
}

TEST(epoll_edge_and_oneshot)
{
	struct epoll_event ev[4];
	int ep = epoll_create1(0), p[2];

	CHECK(pipe(p) == 0 && add(ep, p[0], EPOLLIN | EPOLLET) == 0);
	CHECK(write(p[1], "x", 1) == 1);
	CHECK(epoll_wait(ep, ev, 4, 0) == 1);
	CHECK(epoll_wait(ep, ev, 4, 0) == 0);
	CHECK(write(p[1], "y", 1) == 1); /* each write is an edge */
	CHECK(epoll_wait(ep, ev, 4, 0) == 1);
	struct epoll_event one = { .events = EPOLLIN | EPOLLONESHOT, .data.fd = 7 };
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &one) == 0);
	CHECK(epoll_wait(ep, ev, 4, 0) == 1 && ev[0].data.fd == 7);
	CHECK(epoll_wait(ep, ev, 4, 0) == 0);
	CHECK(write(p[1], "z", 1) == 1);
	CHECK(epoll_wait(ep, ev, 4, 0) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &one) == 0);
	CHECK(epoll_wait(ep, ev, 4, 0) == 1);
}

TEST(epoll_errors)
{
	int ep = epoll_create1(0), p[2];
	struct epoll_event ev = { .events = EPOLLIN };
	char name[] = "/tmp/epXXXXXX";
	int file = mkstemp(name);

	CHECK(pipe(p) == 0);
	CHECK_ERRNO(add(ep, file, EPOLLIN), EPERM);
	CHECK_ERRNO(add(ep, ep, EPOLLIN), EINVAL);
	CHECK_ERRNO(add(p[0], p[1], EPOLLIN), EINVAL);
	CHECK_ERRNO(add(ep, 999, EPOLLIN), EBADF);
	CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_DEL, p[0], NULL), ENOENT);
	CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &ev), ENOENT);
	CHECK(add(ep, p[0], EPOLLIN) == 0);
	CHECK_ERRNO(add(ep, p[0], EPOLLIN), EEXIST);
	CHECK_ERRNO(epoll_wait(ep, &ev, 0, 0), EINVAL);
	CHECK_ERRNO(epoll_create(0), EINVAL);
	CHECK_ERRNO(epoll_create1(1), EINVAL);
	CHECK_ERRNO(add(ep, p[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT), EINVAL);
	unlink(name);
}

TEST(epoll_dup_keeps_item_alive)
{
	struct epoll_event ev[4];
	int ep = epoll_create1(0), p[2], d;

	CHECK(pipe(p) == 0 && add(ep, p[0], EPOLLIN) == 0);
	d = dup(p[0]);
	close(p[0]);
	CHECK(write(p[1], "x", 1) == 1);
	CHECK(epoll_wait(ep, ev, 4, 0) == 1);
	close(d); /* last reference */
	CHECK(epoll_wait(ep, ev, 4, 0) == 0);
}

TEST(epoll_nested_and_loops)
{
	struct epoll_event ev[4];
	int a = epoll_create1(0), b = epoll_create1(0), p[2], chain[8];

	CHECK(pipe(p) == 0);
	CHECK(add(a, b, EPOLLIN) == 0 && add(b, p[0], EPOLLIN) == 0);
	CHECK_ERRNO(add(b, a, EPOLLIN), ELOOP);
	CHECK(epoll_wait(a, ev, 4, 0) == 0);
	CHECK(write(p[1], "x", 1) == 1);
	CHECK(epoll_wait(a, ev, 4, -1) == 1 && ev[0].data.fd == b);
	CHECK(epoll_wait(b, ev, 4, 0) == 1);
	chain[0] = epoll_create1(0);
	int depth = 1;
	for (; depth < 8; depth++) {
		chain[depth] = epoll_create1(0);
		if (add(chain[depth], chain[depth - 1], EPOLLIN) < 0)
			break;
	}
	CHECK(depth == 5 && errno == ELOOP);
}

TEST(epoll_wakes_sleeper_and_times_out)
{
	struct epoll_event ev[4];
	int ep = epoll_create1(0), e = eventfd(0, 0);

	CHECK(add(ep, e, EPOLLIN) == 0);
	CHECK(epoll_wait(ep, ev, 4, 20) == 0);
	if (fork() == 0) {
		usleep(50000);
		_exit(eventfd_write(e, 1) != 0);
	}
	CHECK(epoll_wait(ep, ev, 4, 5000) == 1);
	CHECK(wait(NULL) > 0);
}

TEST(epoll_rdhup)
{
	struct epoll_event ev[4];
	int ep = epoll_create1(0), s[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	CHECK(add(ep, s[0], EPOLLIN | EPOLLRDHUP) == 0);
	CHECK(shutdown(s[1], SHUT_WR) == 0);
	CHECK(epoll_wait(ep, ev, 4, 0) == 1 && ev[0].events == (EPOLLIN | EPOLLRDHUP));
	close(s[1]);
	CHECK(epoll_wait(ep, ev, 4, 0) == 1 &&
	      ev[0].events == (EPOLLIN | EPOLLRDHUP | EPOLLHUP));
}

static void nop(int sig)
{
	(void)sig;
}

TEST(epoll_wait_is_interrupted)
{
	struct sigaction sa = { .sa_handler = nop, .sa_flags = SA_RESTART };
	struct epoll_event ev;
	int ep = epoll_create1(0);

	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	ualarm(30000, 0);
	CHECK_ERRNO(epoll_wait(ep, &ev, 1, -1), EINTR); /* in spite of SA_RESTART */
}

/* Waits for @fd in an epoll of its own; exits with the number of events. */
static pid_t exclusive_waiter(int fd, int timeout_ms)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct epoll_event ev;
		int ep = epoll_create1(0);

		CHECK(add(ep, fd, EPOLLIN | EPOLLET | EPOLLEXCLUSIVE) == 0);
		_exit(epoll_wait(ep, &ev, 1, timeout_ms));
	}
	return pid;
}

TEST(epoll_exclusive_wakes_one)
{
	pid_t pid[3];
	int p[2], st, woken = 0;

	CHECK(pipe(p) == 0);
	for (int i = 0; i < 3; i++)
		pid[i] = exclusive_waiter(p[0], 1500);
	usleep(500000);
	CHECK(write(p[1], "x", 1) == 1);
	for (int i = 0; i < 3; i++) {
		CHECK(waitpid(pid[i], &st, 0) == pid[i] && WIFEXITED(st));
		woken += WEXITSTATUS(st);
	}
	CHECK(woken == 1);
}

TEST(epoll_exclusive_hears_of_the_end)
{
	pid_t pid[2];
	int p[2], st;

	CHECK(pipe(p) == 0);
	for (int i = 0; i < 2; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			struct epoll_event ev;
			int ep = epoll_create1(0);

			close(p[1]);
			CHECK(add(ep, p[0], EPOLLIN | EPOLLET | EPOLLEXCLUSIVE) == 0);
			_exit(epoll_wait(ep, &ev, 1, 5000) == 1 ? 0 : 1);
		}
	}
	usleep(300000);
	close(p[1]);
	for (int i = 0; i < 2; i++)
		CHECK(waitpid(pid[i], &st, 0) == pid[i] && st == 0);
}

TEST_MAIN
