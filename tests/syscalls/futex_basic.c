// SPDX-License-Identifier: Apache-2.0
/* man 2 futex */
#include "harness.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

static uint32_t *word;

static long futex(uint32_t *a, int op, uint32_t val, const void *ts, uint32_t *b, uint32_t v3)
{
	return syscall(SYS_futex, a, op, val, ts, b, v3);
}

static void setup(void)
{
	word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(word != MAP_FAILED);
}

TEST(futex_mismatch_and_timeout)
{
	struct timespec ts = { 0, 20000000 }, bad = { 0, 1000000000 };

	setup();
	CHECK_ERRNO(futex(word, FUTEX_WAIT, 1, NULL, NULL, 0), EAGAIN);
	CHECK_ERRNO(futex(word, FUTEX_WAIT, 0, &ts, NULL, 0), ETIMEDOUT);
	CHECK_ERRNO(futex(word, FUTEX_WAIT, 0, &bad, NULL, 0), EINVAL);
	CHECK_ERRNO(futex((uint32_t *)((char *)word + 1), FUTEX_WAIT, 0, NULL, NULL, 0), EINVAL);
	CHECK_ERRNO(futex(word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0), EINVAL);
	CHECK(futex(word, FUTEX_WAKE, 1, NULL, NULL, 0) == 0);
}

TEST(futex_wakes_across_processes)
{
	int st;

	setup();
	pid_t pid = fork();

	if (pid == 0) {
		while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == 0)
			futex(word, FUTEX_WAIT, 0, NULL, NULL, 0);
		_exit(0);
	}
	usleep(50000);
	__atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
	CHECK(futex(word, FUTEX_WAKE, 1, NULL, NULL, 0) == 1);
	CHECK(waitpid(pid, &st, 0) == pid && st == 0);
}

static void *waiter(void *arg)
{
	(void)arg;
	return (void *)futex(word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

TEST(futex_requeue)
{
	pthread_t th[3];

	setup();
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&th[i], NULL, waiter, NULL) == 0);
	usleep(100000);
	CHECK_ERRNO(futex(word, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)10, word + 1, 5), EAGAIN);
	CHECK(futex(word, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)10, word + 1, 0) == 3);
	CHECK(futex(word, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0) == 0);
	CHECK(futex(word + 1, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0) == 2);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(th[i], NULL) == 0);
}

TEST(futex_wake_op)
{
	setup();
	word[1] = 5;
	CHECK(futex(word, FUTEX_WAKE_OP, 1, (void *)1, word + 1,
		    (uint32_t)FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 5)) == 0);
	CHECK(word[1] == 8);
}

TEST(futex_robust_mutex_of_dead_process)
{
	pthread_mutexattr_t a;
	pthread_mutex_t *m;

	setup();
	m = (pthread_mutex_t *)(void *)word;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	CHECK(pthread_mutex_init(m, &a) == 0);
	if (fork() == 0) {
		pthread_mutex_lock(m);
		_exit(0);
	}
	wait(NULL);
	CHECK(pthread_mutex_lock(m) == EOWNERDEAD);
	CHECK(pthread_mutex_consistent(m) == 0 && pthread_mutex_unlock(m) == 0);
}

static pthread_mutex_t pi_mutex;

static void *pi_locker(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&pi_mutex);
	word[0]++;
	pthread_mutex_unlock(&pi_mutex);
	return NULL;
}

TEST(futex_pi_mutex_is_handed_over)
{
	pthread_mutexattr_t a;
	pthread_t th[4];

	setup();
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	CHECK(pthread_mutex_init(&pi_mutex, &a) == 0);
	pthread_mutex_lock(&pi_mutex);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&th[i], NULL, pi_locker, NULL) == 0);
	usleep(50000);
	CHECK(word[0] == 0);
	pthread_mutex_unlock(&pi_mutex);
	for (int i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	CHECK(word[0] == 4);
}

#define MANY 40

TEST(futex_requeue_wakes_as_many_as_asked)
{
	pthread_t th[MANY];

	setup();
	for (int i = 0; i < MANY; i++)
		CHECK(pthread_create(&th[i], NULL, waiter, NULL) == 0);
	usleep(300000);
	CHECK(futex(word, FUTEX_CMP_REQUEUE_PRIVATE, 35, (void *)2, word + 1, 0) == 37);
	CHECK(futex(word, FUTEX_WAKE_PRIVATE, MANY, NULL, NULL, 0) == MANY - 37);
	CHECK(futex(word + 1, FUTEX_WAKE_PRIVATE, MANY, NULL, NULL, 0) == 2);
	for (int i = 0; i < MANY; i++)
		CHECK(pthread_join(th[i], NULL) == 0);
}

TEST_MAIN
