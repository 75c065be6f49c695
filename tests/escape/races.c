// SPDX-License-Identifier: Apache-2.0
/*
 * Double fetches: a second thread changes arguments in memory while calls read them. Whatever
 * comes of a call, it must be one of the values, and the sentry must live.
 */
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>

#include "tests/syscalls/harness.h"

#define SECONDS 1

static volatile bool stop;
static struct iovec iov[8];
static struct msghdr msg;
static char path[4096], control[256];
static struct sockaddr_un addr;
static char *victim; /* a page that comes and goes */

static time_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static void *flip_iov(void *arg)
{
	static char buf[65536];

	(void)arg;
	for (unsigned n = 0; !stop; n++) {
		iov[n % 8].iov_base = n & 16 ? (void *)0x7ffff1000000 : n & 32 ? (void *)~0xfffUL : buf;
		iov[n % 8].iov_len = n & 64 ? ~0UL : n & 128 ? 1UL << 62 : n % 60000;
		msg.msg_iovlen = n & 256 ? 1024 : n % 8;
		msg.msg_controllen = n & 512 ? ~0UL >> 1 : n % 200;
		memcpy(control, &(size_t){ n & 1024 ? ~0UL : n % 256 }, sizeof(size_t));
	}
	return NULL;
}

TEST(vectors_change_during_calls)
{
	pthread_t th;
	int p[2], s[2];
	time_t end = now() + SECONDS;

	CHECK(pipe2(p, O_NONBLOCK) == 0 && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, s) == 0);
	signal(SIGPIPE, SIG_IGN);
	msg.msg_iov = iov;
	msg.msg_control = control;
	CHECK(pthread_create(&th, NULL, flip_iov, NULL) == 0);
	while (now() < end) {
		ssize_t r = writev(p[1], iov, 8);

		CHECK(r <= 65536);
		r = readv(p[0], iov, 8);
		CHECK(r <= 65536);
		(void)sendmsg(s[0], &msg, 0);
		(void)recvmsg(s[1], &msg, 0);
	}
	stop = true;
	pthread_join(th, NULL);
}

static void *flip_path(void *arg)
{
	(void)arg;
	for (unsigned n = 0; !stop; n++) {
		memset(path + 1, n & 1 ? '/' : 'a', 300);
		memcpy(path, n & 2 ? "/tmp/../tmp" : "/proc/self/", 11);
		path[300 + n % 64] = n & 4 ? 0 : '.';
		addr.sun_path[n % 100] = (char)n;
		addr.sun_family = n & 8 ? AF_UNIX : AF_INET;
	}
	return NULL;
}

TEST(paths_and_addresses_change_during_calls)
{
	pthread_t th;
	time_t end = now() + SECONDS;

	CHECK(chdir("/tmp") == 0);
	CHECK(pthread_create(&th, NULL, flip_path, NULL) == 0);
	while (now() < end) {
		int fd = open(path, O_RDWR | O_CREAT, 0600);

		if (fd >= 0)
			close(fd);
		(void)mkdir(path, 0700);
		(void)rename(path, path + 1);
		(void)readlink(path, path + 2048, 1024);
		fd = socket(AF_UNIX, SOCK_DGRAM, 0);
		(void)bind(fd, (struct sockaddr *)&addr, sizeof(addr));
		(void)connect(fd, (struct sockaddr *)&addr, sizeof(addr));
		close(fd);
	}
	stop = true;
	pthread_join(th, NULL);
}

static void *flip_page(void *arg)
{
	(void)arg;
	for (unsigned n = 0; !stop; n++) {
		if (n & 1)
			munmap(victim, 8192);
		else
			mmap(victim, 8192, n & 2 ? PROT_NONE : PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	}
	return NULL;
}

TEST(memory_goes_away_during_calls)
{
	pthread_t th;
	int p[2];
	time_t end = now() + SECONDS;

	victim = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pipe2(p, O_NONBLOCK) == 0);
	CHECK(pthread_create(&th, NULL, flip_page, NULL) == 0);
	while (now() < end) {
		(void)!write(p[1], victim + 100, 8000);
		(void)!read(p[0], victim, 8192);
		(void)poll((struct pollfd *)victim, 100, 0);
		(void)syscall(SYS_futex, victim, 0, 0, &(struct timespec){ 0, 1 });
		(void)syscall(SYS_rt_sigprocmask, 0, victim, victim + 8, 8);
		(void)syscall(SYS_getcwd, victim + 4000, 4096);
	}
	stop = true;
	pthread_join(th, NULL);
}

TEST_MAIN
