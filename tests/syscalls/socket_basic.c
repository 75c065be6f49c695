// SPDX-License-Identifier: Apache-2.0
/* socket(2): families, options, netlink. */
#include "harness.h"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

TEST(socket_arguments)
{
	int fd;

	CHECK_ERRNO(socket(99, SOCK_STREAM, 0), EAFNOSUPPORT);
	CHECK_ERRNO(socket(AF_UNIX, 0x40, 0), EINVAL);
	CHECK_ERRNO(socket(AF_UNIX, SOCK_RDM, 0), ESOCKTNOSUPPORT);
	CHECK_ERRNO(socket(AF_UNIX, SOCK_STREAM, 77), EPROTONOSUPPORT);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_NONBLOCK));
	CHECK_ERRNO(bind(1000, NULL, 0), EBADF);
	fd = open("/dev/null", O_RDWR);
	CHECK_ERRNO(listen(fd, 1), ENOTSOCK);
}

TEST(socket_options)
{
	int s = socket(AF_UNIX, SOCK_DGRAM, 0), v = 5000;
	socklen_t len = sizeof(v);
	struct linger l = { 1, 3 };

	CHECK(setsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, sizeof(v)) == 0);
	CHECK(getsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, &len) == 0 && v == 10000);
	CHECK(getsockopt(s, SOL_SOCKET, SO_TYPE, &v, &len) == 0 && v == SOCK_DGRAM);
	CHECK(getsockopt(s, SOL_SOCKET, SO_DOMAIN, &v, &len) == 0 && v == AF_UNIX);
	CHECK(getsockopt(s, SOL_SOCKET, SO_ERROR, &v, &len) == 0 && v == 0);
	v = 1;
	CHECK(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &v, sizeof(v)) == 0);
	CHECK(getsockopt(s, SOL_SOCKET, SO_REUSEADDR, &v, &len) == 0 && v == 1);
	CHECK(setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof(l)) == 0);
	CHECK_ERRNO(setsockopt(s, SOL_SOCKET, SO_SNDBUF, &v, 2), EINVAL);
	CHECK_ERRNO(setsockopt(s, SOL_SOCKET, 9999, &v, sizeof(v)), ENOPROTOOPT);
	CHECK_ERRNO(setsockopt(s, SOL_SOCKET, SO_TYPE, &v, sizeof(v)), ENOPROTOOPT);
}

TEST(netlink_lists_lo)
{
	struct ifaddrs *all, *i;
	bool found = false;

	CHECK(getifaddrs(&all) == 0);
	for (i = all; i; i = i->ifa_next)
		found |= strcmp(i->ifa_name, "lo") == 0;
	CHECK(found);
	CHECK(if_nametoindex("lo") == 1);
}

TEST(netlink_dump_ends_with_done)
{
	struct {
		struct nlmsghdr h;
		struct rtgenmsg g;
	} req = { { sizeof(req), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 7, 0 }, { AF_UNSPEC } };
	static char buf[16384];
	int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	bool done = false;

	CHECK(s >= 0 && send(s, &req, sizeof(req), 0) == (ssize_t)sizeof(req));
	while (!done) {
		ssize_t n = recv(s, buf, sizeof(buf), 0);

		CHECK(n > 0);
		for (struct nlmsghdr *h = (void *)buf; NLMSG_OK(h, n); h = NLMSG_NEXT(h, n)) {
			CHECK(h->nlmsg_seq == 7);
			done |= h->nlmsg_type == NLMSG_DONE;
		}
	}
}

TEST(mmsg_calls)
{
	struct iovec iov[2] = { { (void *)"a", 1 }, { (void *)"bc", 2 } };
	struct mmsghdr out[2] = { { .msg_hdr = { .msg_iov = &iov[0], .msg_iovlen = 1 } },
				  { .msg_hdr = { .msg_iov = &iov[1], .msg_iovlen = 1 } } };
	char b[2][8];
	struct iovec riov[2] = { { b[0], 8 }, { b[1], 8 } };
	struct mmsghdr in[2] = { { .msg_hdr = { .msg_iov = &riov[0], .msg_iovlen = 1 } },
				 { .msg_hdr = { .msg_iov = &riov[1], .msg_iovlen = 1 } } };
	int s[2];

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
	CHECK(sendmmsg(s[0], out, 2, 0) == 2 && out[1].msg_len == 2);
	CHECK(recvmmsg(s[1], in, 2, 0, NULL) == 2 && in[0].msg_len == 1 && in[1].msg_len == 2);
	CHECK_ERRNO(recvmmsg(s[1], in, 2, MSG_DONTWAIT, NULL), EAGAIN);
}

TEST_MAIN
