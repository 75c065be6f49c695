// SPDX-License-Identifier: Apache-2.0
/* AF_UNIX: data, names, connections (unix(7)). */
#include "harness.h"

#include <poll.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static socklen_t abstract(struct sockaddr_un *un, const char *name)
{
	*un = (struct sockaddr_un){ .sun_family = AF_UNIX };
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(un->sun_path + 1, 100, "hf-%s-%d", name, getpid()));
}

TEST(unix_stream_pair)
{
	char b[16];
	int s[2], n;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	CHECK(write(s[0], "abc", 3) == 3 && write(s[0], "def", 3) == 3);
	CHECK(ioctl(s[1], FIONREAD, &n) == 0 && n == 6);
	CHECK(recv(s[1], b, 16, MSG_PEEK) == 6 && memcmp(b, "abcdef", 6) == 0);
	CHECK(read(s[1], b, 2) == 2 && read(s[1], b, 16) == 4);
	CHECK_ERRNO(recv(s[1], b, 1, MSG_DONTWAIT), EAGAIN);
}

TEST(unix_stream_shutdown_and_close)
{
	char b[4];
	int s[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	CHECK(send(s[0], "x", 1, 0) == 1 && shutdown(s[0], SHUT_WR) == 0);
	CHECK_ERRNO(send(s[0], "y", 1, MSG_NOSIGNAL), EPIPE);
	CHECK(read(s[1], b, 4) == 1 && read(s[1], b, 4) == 0);
	CHECK(send(s[1], "z", 1, 0) == 1); /* the other half still works */
	close(s[0]);                       /* with unread data */
	CHECK_ERRNO(read(s[1], b, 4), ECONNRESET);
	CHECK_ERRNO(send(s[1], "z", 1, MSG_NOSIGNAL), EPIPE);
}

TEST(unix_stream_big_transfer)
{
	static char buf[1 << 20];
	size_t got = 0;
	int s[2], st;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (char)(i * 7 >> 3);
	if (fork() == 0)
		_exit(send(s[0], buf, sizeof(buf), 0) != (ssize_t)sizeof(buf));
	static char in[1 << 20];
	CHECK(recv(s[1], in, sizeof(in), MSG_WAITALL) == (ssize_t)sizeof(in));
	CHECK(memcmp(in, buf, sizeof(in)) == 0);
	CHECK(wait(&st) > 0 && st == 0);
	(void)got;
}

TEST(unix_listen_connect_accept)
{
	struct sockaddr_un un, peer;
	socklen_t len = abstract(&un, "srv"), plen = sizeof(peer);
	int l = socket(AF_UNIX, SOCK_STREAM, 0), c = socket(AF_UNIX, SOCK_STREAM, 0), a, v;
	char b[4];

	CHECK_ERRNO(listen(l, 1), EINVAL);
	CHECK(bind(l, (void *)&un, len) == 0);
	CHECK_ERRNO(connect(c, (void *)&un, len), ECONNREFUSED);
	CHECK(listen(l, 5) == 0);
	CHECK(connect(c, (void *)&un, len) == 0);
	CHECK_ERRNO(connect(c, (void *)&un, len), EISCONN);
	CHECK(send(c, "hi", 2, 0) == 2); /* before accept */
	a = accept4(l, (void *)&peer, &plen, SOCK_CLOEXEC);
	CHECK(a >= 0 && plen == sizeof(sa_family_t) && fcntl(a, F_GETFD) == FD_CLOEXEC);
	CHECK(read(a, b, 4) == 2);
	plen = sizeof(peer);
	CHECK(getpeername(c, (void *)&peer, &plen) == 0 && plen == len);
	plen = sizeof(v);
	CHECK(getsockopt(l, SOL_SOCKET, SO_ACCEPTCONN, &v, &plen) == 0 && v == 1);
	struct ucred uc;
	plen = sizeof(uc);
	CHECK(getsockopt(a, SOL_SOCKET, SO_PEERCRED, &uc, &plen) == 0 && uc.pid == getpid());
	int d = socket(AF_UNIX, SOCK_DGRAM, 0);
	CHECK_ERRNO(connect(d, (void *)&un, len), ECONNREFUSED); /* other type, other name */
	CHECK_ERRNO(accept(d, NULL, NULL), EOPNOTSUPP);
	CHECK_ERRNO(accept(c, NULL, NULL), EINVAL);
	struct pollfd p = { l, POLLIN, 0 };
	CHECK(poll(&p, 1, 0) == 0);
}

TEST(unix_path_names)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX }, got;
	socklen_t len = sizeof(got);
	struct stat st;
	int s = socket(AF_UNIX, SOCK_STREAM, 0), t = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(un.sun_path, sizeof(un.sun_path), "/tmp/hf-sock-%d", getpid());
	CHECK(bind(s, (void *)&un, sizeof(un)) == 0 && listen(s, 1) == 0);
	CHECK(stat(un.sun_path, &st) == 0 && S_ISSOCK(st.st_mode));
	CHECK_ERRNO(bind(t, (void *)&un, sizeof(un)), EADDRINUSE);
	CHECK(getsockname(s, (void *)&got, &len) == 0);
	CHECK(len == offsetof(struct sockaddr_un, sun_path) + strlen(un.sun_path) + 1);
	len = 4; /* truncated, whole length told */
	CHECK(getsockname(s, (void *)&got, &len) == 0 && len > 4);
	CHECK_ERRNO(open(un.sun_path, O_RDONLY), ENXIO);
	CHECK(connect(t, (void *)&un, sizeof(un)) == 0);
	int d = socket(AF_UNIX, SOCK_DGRAM, 0);
	CHECK_ERRNO(connect(d, (void *)&un, sizeof(un)), EPROTOTYPE);
	close(s);
	t = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK_ERRNO(connect(t, (void *)&un, sizeof(un)), ECONNREFUSED);
	CHECK(unlink(un.sun_path) == 0);
	CHECK_ERRNO(connect(t, (void *)&un, sizeof(un)), ENOENT);
}

TEST(unix_dgram)
{
	struct sockaddr_un a, from;
	socklen_t alen = abstract(&a, "dg"), flen = sizeof(from);
	int r = socket(AF_UNIX, SOCK_DGRAM, 0), s = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	char b[8];
	int n = 0;

	CHECK(bind(r, (void *)&a, alen) == 0);
	CHECK_ERRNO(send(s, "x", 1, 0), ENOTCONN);
	CHECK(sendto(s, "hello", 5, 0, (void *)&a, alen) == 5);
	CHECK(recvfrom(r, b, 3, MSG_TRUNC, (void *)&from, &flen) == 5 && flen == 0);
	CHECK(connect(s, (void *)&a, alen) == 0);
	while (n < 1000 && send(s, "y", 1, 0) == 1)
		n++;
	CHECK(errno == EAGAIN && n >= 11);
	struct pollfd p = { s, POLLOUT, 0 };
	CHECK(poll(&p, 1, 0) == 0);
	CHECK(recv(r, b, 8, 0) == 1);
	CHECK(poll(&p, 1, 1000) == 1);
	CHECK(send(s, "", 0, 0) == 0);
	close(r);
	CHECK_ERRNO(send(s, "z", 1, 0), ECONNREFUSED);
	CHECK_ERRNO(send(s, "z", 1, 0), ENOTCONN);
}

TEST(unix_seqpacket)
{
	char b[16];
	int s[2];

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s) == 0);
	CHECK(write(s[0], "one", 3) == 3 && write(s[0], "three", 5) == 5);
	CHECK(read(s[1], b, 2) == 2);
	CHECK(read(s[1], b, 16) == 5);
	close(s[0]);
	CHECK(read(s[1], b, 16) == 0);
}

TEST(unix_autobind)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(un);
	int s = socket(AF_UNIX, SOCK_DGRAM, 0);

	CHECK(bind(s, (void *)&un, sizeof(sa_family_t)) == 0);
	CHECK(getsockname(s, (void *)&un, &len) == 0 && len == 8 && un.sun_path[0] == '\0');
}

TEST(unix_timeouts)
{
	struct timeval tv = { 0, 30000 };
	char c;
	int s[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	CHECK(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)) == 0);
	CHECK_ERRNO(read(s[0], &c, 1), EAGAIN);
}

TEST_MAIN
