// SPDX-License-Identifier: Apache-2.0
/* eventfd(2). */
#include "harness.h"

#include <poll.h>
#include <sys/eventfd.h>

TEST(eventfd_counts)
{
	uint64_t v = 5;
	int e = eventfd(3, EFD_NONBLOCK);

	CHECK(write(e, &v, 8) == 8);
	CHECK(read(e, &v, 8) == 8 && v == 8);
	CHECK_ERRNO(read(e, &v, 8), EAGAIN);
	CHECK_ERRNO(read(e, &v, 7), EINVAL);
	CHECK_ERRNO(write(e, &v, 4), EINVAL);
	v = UINT64_MAX;
	CHECK_ERRNO(write(e, &v, 8), EINVAL);
	v = UINT64_MAX - 1;
	CHECK(write(e, &v, 8) == 8);
	struct pollfd p = { e, POLLIN | POLLOUT, 0 };
	CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLIN);
	v = 1;
	CHECK_ERRNO(write(e, &v, 8), EAGAIN);
	CHECK_ERRNO(eventfd(0, 2), EINVAL);
}

TEST(eventfd_semaphore)
{
	uint64_t v;
	int e = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);

	CHECK(read(e, &v, 8) == 8 && v == 1);
	CHECK(read(e, &v, 8) == 8 && v == 1);
	CHECK_ERRNO(read(e, &v, 8), EAGAIN);
}

TEST(eventfd_blocks_and_wakes)
{
	uint64_t v = 9;
	int e = eventfd(0, 0);

	if (fork() == 0) {
		usleep(30000);
		_exit(write(e, &v, 8) != 8);
	}
	v = 0;
	CHECK(read(e, &v, 8) == 8 && v == 9);
}

TEST_MAIN
