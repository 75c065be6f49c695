// SPDX-License-Identifier: Apache-2.0
/* A guest that takes all it can get: it runs into an errno, gives everything back, and goes on. */
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>

#include "tests/syscalls/harness.h"

/* As root, whom RLIMIT_NPROC doesn't hold. */
TEST(fork_bomb_ends_in_eagain)
{
	int ready[2], n = 0, st;
	pid_t pid;
	char c;

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	CHECK(pipe(ready) == 0);
	alarm(60);
	while ((pid = fork()) > 0 && n < 20000)
		n++;
	if (pid == 0) {
		close(ready[1]);
		(void)!read(ready[0], &c, 1); /* until the parent closes */
		_exit(0);
	}
	CHECK(pid < 0 && (errno == EAGAIN || errno == ENOMEM));
	CHECK(n >= 100);
	close(ready[1]);
	while (n-- > 0)
		CHECK(wait(&st) > 0);
	/* and it is all free again */
	for (int i = 0; i < 3; i++) {
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0)
			_exit(7);
		CHECK(waitpid(pid, &st, 0) == pid && WEXITSTATUS(st) == 7);
	}
}

static void *sleeper(void *arg)
{
	(void)!read(*(int *)arg, &(char){ 0 }, 1);
	return NULL;
}

/* Fewer than the limit: with thousands the ptrace platform takes most of a minute to end them. */
TEST(many_threads_come_and_go)
{
	static pthread_t th[1500];
	pthread_attr_t attr;
	int p[2], n = 0;

	alarm(60);
	CHECK(pipe(p) == 0);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 16384);
	while (n < 1500 && pthread_create(&th[n], &attr, sleeper, &p[0]) == 0)
		n++;
	CHECK(n >= 100);
	close(p[1]);
	while (n > 0)
		pthread_join(th[--n], NULL);
}

static int open_kind(int kind)
{
	int fd[2];

	switch (kind) {
	case 0:
		return eventfd(0, 0);
	case 1:
		return epoll_create1(0);
	case 2:
		return timerfd_create(CLOCK_MONOTONIC, 0);
	case 3:
		return inotify_init();
	case 4:
		return socket(AF_UNIX, SOCK_STREAM, 0);
	case 5:
		return memfd_create("m", 0);
	case 6:
		return open("/proc/self/exe", O_RDONLY);
	default:
		return pipe(fd) ? -1 : fd[0];
	}
}

TEST(descriptor_bombs_end_in_emfile)
{
	for (int kind = 0; kind < 8; kind++) {
		int n = 0, fd, last = -1;

		while ((fd = open_kind(kind)) >= 0 && n++ < 100000)
			last = fd;
		CHECK(fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM));
		CHECK(n > 50 && last > 0);
		for (int i = 3; i <= last + 1; i++)
			close(i);
	}
}

TEST(mapping_bomb_ends_in_enomem)
{
	int n = 0;
	char *p = NULL;

	while (n < 200000) {
		p = mmap(NULL, 4096, n & 1 ? PROT_READ : PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED)
			break;
		n++;
	}
	CHECK(p == MAP_FAILED && errno == ENOMEM);
	CHECK(n > 1000);
}

TEST(huge_sizes_are_refused)
{
	int fd = open("/tmp/huge", O_RDWR | O_CREAT, 0600);
	char b = 1;

	CHECK(fd >= 0);
	CHECK(mmap(NULL, 1UL << 47, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	CHECK(ftruncate(fd, -1) == -1);
	if (ftruncate(fd, 1L << 62) == 0) /* sparse: fine, as long as it stays so */
		CHECK(pread(fd, &b, 1, 1L << 61) == 1 && b == 0);
	CHECK(fallocate(fd, 0, 0, 1L << 62) == -1);
	CHECK(unlink("/tmp/huge") == 0);
}

TEST_MAIN
