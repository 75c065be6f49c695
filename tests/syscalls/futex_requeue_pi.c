// SPDX-License-Identifier: Apache-2.0
/* man 2 futex: FUTEX_WAIT_REQUEUE_PI, FUTEX_CMP_REQUEUE_PI */
#include "harness.h"

#include <linux/futex.h>
#include <pthread.h>
#include <time.h>

#define NWAITERS 3

static uint32_t cond, lock;
static int in_critical, most_in_critical, done;

static long futex(uint32_t *a, int op, uint32_t val, long val2, uint32_t *b, uint32_t v3)
{
	return syscall(SYS_futex, a, op | FUTEX_PRIVATE_FLAG, val, val2, b, v3);
}

static uint32_t tid(void)
{
	return (uint32_t)syscall(SYS_gettid);
}

static void unlock_pi(void)
{
	uint32_t mine = tid();

	if (!__atomic_compare_exchange_n(&lock, &mine, 0, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		CHECK(futex(&lock, FUTEX_UNLOCK_PI, 0, 0, NULL, 0) == 0);
}

static void *waiter(void *arg)
{
	(void)arg;
	CHECK(futex(&cond, FUTEX_WAIT_REQUEUE_PI, 0, 0, &lock, 0) == 0);
	CHECK((__atomic_load_n(&lock, __ATOMIC_SEQ_CST) & FUTEX_TID_MASK) == tid());
	if (++in_critical > most_in_critical)
		most_in_critical = in_critical;
	usleep(1000);
	in_critical--;
	done++;
	unlock_pi();
	return NULL;
}

TEST(requeue_pi_hands_the_lock_on)
{
	pthread_t th[NWAITERS];

	for (int i = 0; i < NWAITERS; i++)
		CHECK(pthread_create(&th[i], NULL, waiter, NULL) == 0);
	usleep(200000);
	CHECK(futex(&cond, FUTEX_CMP_REQUEUE_PI, 1, NWAITERS, &lock, 0) == NWAITERS);
	for (int i = 0; i < NWAITERS; i++)
		CHECK(pthread_join(th[i], NULL) == 0);
	CHECK(done == NWAITERS && most_in_critical == 1 && lock == 0);
}

TEST(requeue_pi_to_a_held_lock)
{
	pthread_t th;

	lock = tid();
	CHECK(pthread_create(&th, NULL, waiter, NULL) == 0);
	usleep(100000);
	CHECK(futex(&cond, FUTEX_CMP_REQUEUE_PI, 1, 0, &lock, 0) == 1);
	CHECK(lock == (tid() | FUTEX_WAITERS));
	usleep(50000);
	CHECK(__atomic_load_n(&done, __ATOMIC_SEQ_CST) == 0);
	unlock_pi();
	CHECK(pthread_join(th, NULL) == 0);
	CHECK(done == 1);
}

TEST(requeue_pi_refuses)
{
	struct timespec past = { 1, 0 };
	uint32_t other = 0;
	pthread_t th;

	CHECK_ERRNO(futex(&cond, FUTEX_WAIT_REQUEUE_PI, 1, 0, &lock, 0), EAGAIN);
	CHECK_ERRNO(futex(&cond, FUTEX_WAIT_REQUEUE_PI, 0, 0, &cond, 0), EINVAL);
	CHECK_ERRNO(futex(&cond, FUTEX_WAIT_REQUEUE_PI, 0, (long)&past, &lock, 0), ETIMEDOUT);
	CHECK_ERRNO(futex(&cond, FUTEX_CMP_REQUEUE_PI, 1, 1, &cond, 0), EINVAL);
	CHECK_ERRNO(futex(&cond, FUTEX_CMP_REQUEUE_PI, 2, 1, &lock, 0), EINVAL);
	CHECK_ERRNO(futex(&cond, FUTEX_CMP_REQUEUE_PI, 1, 1, &lock, 7), EAGAIN);
	CHECK(futex(&cond, FUTEX_CMP_REQUEUE_PI, 1, 1, &lock, 0) == 0);
	CHECK(pthread_create(&th, NULL, waiter, NULL) == 0);
	usleep(100000);
	CHECK_ERRNO(futex(&cond, FUTEX_WAKE, 1, 0, NULL, 0), EINVAL);
	CHECK_ERRNO(futex(&cond, FUTEX_REQUEUE, 1, 1, &other, 0), EINVAL);
	CHECK_ERRNO(futex(&cond, FUTEX_CMP_REQUEUE_PI, 1, 1, &other, 0), EINVAL);
	CHECK(futex(&cond, FUTEX_CMP_REQUEUE_PI, 1, 1, &lock, 0) == 1);
	CHECK(pthread_join(th, NULL) == 0);
}

TEST_MAIN
