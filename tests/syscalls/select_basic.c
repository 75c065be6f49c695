// SPDX-License-Identifier: Apache-2.0
/* select(2), pselect(2). */
#include "harness.h"

#include <sys/select.h>
#include <sys/socket.h>

TEST(select_read_and_write_sets)
{
	fd_set r, w;
	int p[2];

	CHECK(pipe(p) == 0);
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(p[0], &r);
	FD_SET(p[1], &w);
	CHECK(select(p[1] + 1, &r, &w, NULL, NULL) == 1);
	CHECK(!FD_ISSET(p[0], &r) && FD_ISSET(p[1], &w));
	CHECK(write(p[1], "x", 1) == 1);
	FD_SET(p[0], &r);
	CHECK(select(p[1] + 1, &r, &w, NULL, NULL) == 2);
}

TEST(select_timeout_is_written_back)
{
	struct timeval tv = { 0, 20000 };
	fd_set r;
	int p[2];

	CHECK(pipe(p) == 0);
	FD_ZERO(&r);
	FD_SET(p[0], &r);
	CHECK(select(p[0] + 1, &r, NULL, NULL, &tv) == 0);
	CHECK(tv.tv_sec == 0 && tv.tv_usec == 0 && !FD_ISSET(p[0], &r));
}

TEST(select_errors)
{
	struct timeval tv = { -1, 0 };
	fd_set r;

	FD_ZERO(&r);
	FD_SET(60, &r);
	CHECK_ERRNO(select(61, &r, NULL, NULL, NULL), EBADF);
	CHECK_ERRNO(select(-1, NULL, NULL, NULL, NULL), EINVAL);
	CHECK_ERRNO(select(0, NULL, NULL, NULL, &tv), EINVAL);
}

TEST(select_sees_end_of_stream)
{
	fd_set r;
	int s[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	close(s[1]);
	FD_ZERO(&r);
	FD_SET(s[0], &r);
	CHECK(select(s[0] + 1, &r, NULL, NULL, NULL) == 1 && FD_ISSET(s[0], &r));
}

TEST_MAIN
