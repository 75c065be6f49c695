// SPDX-License-Identifier: Apache-2.0
/* man 2 set_robust_list; man 7 epoll for a descriptor that a dup keeps; 40,000 names in a directory */
#include "harness.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "tests/syscalls/tmpdir.h"

#define MANY 40000

TEST(robust_mutex_tells_of_a_dead_owner)
{
	pthread_mutex_t *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t a;
	int st;

	CHECK(m != MAP_FAILED);
	for (int pi = 0; pi < 2; pi++, m++) {
		CHECK(pthread_mutexattr_init(&a) == 0);
		CHECK(pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED) == 0);
		CHECK(pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST) == 0);
		CHECK(pthread_mutexattr_setprotocol(&a, pi ? PTHREAD_PRIO_INHERIT
							    : PTHREAD_PRIO_NONE) == 0);
		CHECK(pthread_mutex_init(m, &a) == 0);
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0) {
			CHECK(pthread_mutex_lock(m) == 0);
			usleep(100000);
			CHECK(kill(getpid(), SIGKILL) == 0);
		}
		usleep(50000); /* waits while the owner dies, most likely */
		CHECK(pthread_mutex_lock(m) == EOWNERDEAD);
		CHECK(pthread_mutex_consistent(m) == 0);
		CHECK(pthread_mutex_unlock(m) == 0);
		CHECK(waitpid(pid, &st, 0) == pid && WIFSIGNALED(st));
		CHECK(pthread_mutex_lock(m) == 0 && pthread_mutex_unlock(m) == 0);
	}
}

TEST(epoll_follows_the_open_file)
{
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET, .data.u32 = 7 }, got[2];
	int ep = epoll_create1(0), p[2], other;

	CHECK(ep >= 0 && pipe(p) == 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev) == 0);
	CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &ev), EEXIST);
	CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, ep, &ev), EINVAL);
	CHECK(write(p[1], "a", 1) == 1);
	CHECK(epoll_wait(ep, got, 2, 0) == 1 && got[0].data.u32 == 7);
	CHECK(epoll_wait(ep, got, 2, 0) == 0);
	CHECK(write(p[1], "b", 1) == 1);
	CHECK(epoll_wait(ep, got, 2, 0) == 1);
	other = dup(p[0]);
	CHECK(other >= 0 && close(p[0]) == 0);
	CHECK(write(p[1], "c", 1) == 1);
	CHECK(epoll_wait(ep, got, 2, 0) == 1 && got[0].data.u32 == 7);
	CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_DEL, other, NULL), ENOENT);
	CHECK(close(other) == 0);
	CHECK(epoll_wait(ep, got, 2, 0) == 0);
}

TEST(many_names_are_listed_once)
{
	static unsigned char seen[MANY];
	struct dirent *e;
	unsigned n = 0, i;
	char name[16];
	DIR *d;

	enter_tmpdir();
	for (i = 0; i < MANY; i++) {
		snprintf(name, sizeof(name), "%u", i);
		CHECK(mknod(name, S_IFREG | 0600, 0) == 0);
	}
	d = opendir(".");
	CHECK(d);
	while ((e = readdir(d)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		i = (unsigned)atoi(e->d_name);
		CHECK(i < MANY && !seen[i]);
		seen[i] = 1;
		n++;
		CHECK(unlink(e->d_name) == 0); /* while listing: none may be missed */
	}
	CHECK(n == MANY && closedir(d) == 0);
}

TEST_MAIN
