// SPDX-License-Identifier: Apache-2.0
/* AF_UNIX: descriptors and credentials in messages. */
#include "harness.h"

#include <sys/socket.h>

union ctl {
	struct cmsghdr h;
	char buf[CMSG_SPACE(sizeof(int) * 4) + CMSG_SPACE(sizeof(struct ucred))];
};

static ssize_t send_fds(int s, const int *fds, unsigned n)
{
	union ctl c;
	struct iovec iov = { (void *)"F", 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.buf,
			    .msg_controllen = CMSG_SPACE(sizeof(int) * n) };

	memset(&c, 0, sizeof(c));
	c.h.cmsg_level = SOL_SOCKET;
	c.h.cmsg_type = SCM_RIGHTS;
	c.h.cmsg_len = CMSG_LEN(sizeof(int) * n);
	memcpy(CMSG_DATA(&c.h), fds, sizeof(int) * n);
	return sendmsg(s, &m, 0);
}

static ssize_t recv_ctl(int s, union ctl *c, size_t room, struct msghdr *m, int flags)
{
	static char b[64];
	static struct iovec iov;

	iov = (struct iovec){ b, sizeof(b) };
	*m = (struct msghdr){ .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c->buf,
			      .msg_controllen = room };
	return recvmsg(s, m, flags);
}

TEST(scm_rights_passes_a_pipe)
{
	struct msghdr m;
	union ctl c;
	int s[2], p[2], fd;
	char b;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && pipe(p) == 0);
	CHECK(send_fds(s[0], &p[0], 1) == 1);
	close(p[0]);
	CHECK(recv_ctl(s[1], &c, sizeof(c.buf), &m, MSG_CMSG_CLOEXEC) == 1);
	CHECK(m.msg_controllen == CMSG_SPACE(sizeof(int)) && c.h.cmsg_type == SCM_RIGHTS);
	memcpy(&fd, CMSG_DATA(&c.h), sizeof(fd));
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
	CHECK(write(p[1], "k", 1) == 1 && read(fd, &b, 1) == 1 && b == 'k');
}

TEST(scm_rights_keeps_messages_apart)
{
	struct msghdr m;
	union ctl c;
	int s[2], p[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && pipe(p) == 0);
	CHECK(write(s[0], "ab", 2) == 2);
	CHECK(send_fds(s[0], p, 2) == 1);
	CHECK(write(s[0], "cd", 2) == 2);
	CHECK(recv_ctl(s[1], &c, sizeof(c.buf), &m, 0) == 3); /* data before, then the files */
	CHECK(m.msg_controllen >= CMSG_LEN(2 * sizeof(int)));
	CHECK(recv_ctl(s[1], &c, sizeof(c.buf), &m, 0) == 2 && m.msg_controllen == 0);
}

TEST(scm_rights_truncation)
{
	struct msghdr m;
	union ctl c;
	int s[2], p[2], bad = 999;

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0 && pipe(p) == 0);
	CHECK_ERRNO(send_fds(s[0], &bad, 1), EBADF);
	CHECK(send_fds(s[0], p, 2) == 1);
	CHECK(recv_ctl(s[1], &c, CMSG_LEN(sizeof(int)), &m, 0) == 1);
	CHECK(m.msg_flags & MSG_CTRUNC);
	CHECK(c.h.cmsg_len == CMSG_LEN(sizeof(int)));
}

TEST(scm_credentials)
{
	struct msghdr m;
	struct ucred uc;
	union ctl c;
	int s[2], on = 1;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	CHECK(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0);
	CHECK(write(s[0], "x", 1) == 1);
	CHECK(recv_ctl(s[1], &c, sizeof(c.buf), &m, 0) == 1);
	CHECK(c.h.cmsg_type == SCM_CREDENTIALS && c.h.cmsg_len == CMSG_LEN(sizeof(uc)));
	memcpy(&uc, CMSG_DATA(&c.h), sizeof(uc));
	CHECK(uc.pid == getpid() && uc.uid == getuid() && uc.gid == getgid());
}

/* Sockets that only refer to each other through their queues must not pile up. */
TEST(scm_cycles_are_collected)
{
	for (int i = 0; i < 3000; i++) {
		int s[2];

		CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
		CHECK(send_fds(s[0], &s[0], 1) == 1);
		CHECK(send_fds(s[1], &s[1], 1) == 1);
		close(s[0]);
		close(s[1]);
	}
}

TEST_MAIN
