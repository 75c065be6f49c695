// SPDX-License-Identifier: Apache-2.0
/* Address spaces under several threads: mappings change while others run, and forks race with writes. */
#include "tests/syscalls/harness.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define PG 4096UL
#define THREADS 4

static void *map_and_touch(void *arg)
{
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 300; i++) {
		size_t n = 1 + (size_t)rand_r(&seed) % 40;
		char *p = mmap(NULL, n * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		CHECK(p != MAP_FAILED);
		for (size_t j = 0; j < n; j++) {
			CHECK(p[j * PG] == 0);
			p[j * PG] = (char)(seed + j);
		}
		CHECK(mprotect(p, PG, PROT_READ) == 0);
		CHECK(p[0] == (char)seed);
		CHECK(munmap(p, n * PG) == 0);
	}
	return NULL;
}

TEST(threads_map_and_unmap)
{
	pthread_t th[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&th[i], NULL, map_and_touch, (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(th[i], NULL) == 0);
}

static _Atomic int stop;
static volatile unsigned long *counters;

static void *count(void *arg)
{
	volatile unsigned long *c = counters + (uintptr_t)arg * (PG / sizeof(long));
	unsigned long n = 0;

	while (!stop) {
		c[n % 8] = n;
		if (c[n % 8] != n)
			FAIL("a write was lost");
		n++;
	}
	return NULL;
}

/* A write by one thread while another forks must be in the parent's memory afterwards, always. */
TEST(forks_lose_no_write_of_other_threads)
{
	pthread_t th[2];
	int status;

	counters = mmap(NULL, 64 * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (uintptr_t i = 0; i < 2; i++)
		CHECK(pthread_create(&th[i], NULL, count, (void *)i) == 0);
	for (int i = 0; i < 60; i++) {
		pid_t pid = fork();

		if (pid == 0) {
			unsigned long a = counters[0], b;

			for (int j = 0; j < 1000; j++) {
				b = counters[0];
				if (a != b)
					_exit(1); /* the parent's writes shine through */
			}
			counters[0] = 1;
			_exit(counters[0] == 1 ? 0 : 2);
		}
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	}
	stop = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(th[i], NULL) == 0);
}

static void *reader(void *arg)
{
	int fd = *(int *)arg;
	char *buf = malloc(64 * PG);

	for (int i = 0; i < 200; i++) {
		memset(buf, 0, 64 * PG);
		CHECK(pread(fd, buf, 64 * PG, 0) == (ssize_t)(64 * PG));
		for (size_t j = 0; j < 64 * PG; j += 512)
			CHECK(buf[j] == 'z');
	}
	free(buf);
	return NULL;
}

/* read(2) into memory that a fork makes copy-on-write in the middle. */
TEST(reads_arrive_though_others_fork)
{
	char name[] = "/tmp/mm_threads.XXXXXX", data[PG];
	int fd = mkstemp(name), status;
	pthread_t th;

	unlink(name);
	memset(data, 'z', sizeof(data));
	for (int i = 0; i < 64; i++)
		CHECK(write(fd, data, sizeof(data)) == (ssize_t)sizeof(data));
	CHECK(pthread_create(&th, NULL, reader, &fd) == 0);
	for (int i = 0; i < 40; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	}
	CHECK(pthread_join(th, NULL) == 0);
}

TEST(a_read_only_page_stops_other_threads_at_once)
{
	char *p = mmap(NULL, PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		pthread_t th;

		counters = (volatile unsigned long *)p;
		if (pthread_create(&th, NULL, count, NULL))
			_exit(3);
		usleep(20000);
		mprotect(p, PG, PROT_NONE);
		sleep(10);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

TEST_MAIN
