// SPDX-License-Identifier: Apache-2.0
/* Framing of control messages; see control.h. */
#include "runtime/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"

#define CONTROL_MAGIC 0x31544648u /* "HFT1" */
#define CONTROL_BACKLOG 64

struct header {
	uint32_t magic, len;
};

union fdbuf {
	struct cmsghdr align;
	char buf[CMSG_SPACE(CONTROL_MAX_FDS * sizeof(int))];
};

static int send_all(int sock, const char *p, size_t len)
{
	while (len) {
		ssize_t n = send(sock, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int control_send(int sock, json_t *json, const int *fds, unsigned nfds)
{
	AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
	struct header h = { CONTROL_MAGIC, 0 };
	union fdbuf cb = { 0 };
	struct iovec iov = { &h, sizeof(h) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (!text || strlen(text) > CONTROL_MAX_BYTES || nfds > CONTROL_MAX_FDS)
		return -EMSGSIZE;
	h.len = (uint32_t)strlen(text);
	if (nfds) {
		m.msg_control = cb.buf;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);

		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
	}
	if (sendmsg(sock, &m, MSG_NOSIGNAL) != (ssize_t)sizeof(h))
		return errno ? -errno : -EPIPE;
	return send_all(sock, text, h.len);
}

static void take_fds(struct msghdr *m, int *fds, unsigned *nfds)
{
	unsigned room = *nfds;

	*nfds = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (*nfds < room)
				fds[(*nfds)++] = fd;
			else
				close(fd);
		}
	}
}

static bool recv_all(int sock, char *p, size_t len)
{
	while (len) {
		ssize_t n = recv(sock, p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

json_t *control_recv(int sock, int *fds, unsigned *nfds)
{
	struct header h;
	union fdbuf cb;
	struct iovec iov = { &h, sizeof(h) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = cb.buf,
			    .msg_controllen = sizeof(cb.buf) };
	unsigned none = 0;
	AUTO_FREE char *text = NULL;
	json_t *json = NULL;
	ssize_t n;

	do {
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	} while (n < 0 && errno == EINTR);
	if (n > 0)
		take_fds(&m, fds, nfds ? nfds : &none);
	else if (nfds)
		*nfds = 0;
	if (n == (ssize_t)sizeof(h) && h.magic == CONTROL_MAGIC && h.len <= CONTROL_MAX_BYTES) {
		text = kzalloc((size_t)h.len + 1);
		if (recv_all(sock, text, h.len))
			json = json_loadb(text, h.len, 0, NULL);
	}
	if (!json && nfds) {
		while (*nfds)
			close(fds[--*nfds]);
	}
	return json;
}

/* The path of a socket may be longer than sun_path: go through the directory's descriptor. */
static void control_addr(int dirfd, struct sockaddr_un *a)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/control.sock", dirfd);
}

int control_connect(int dirfd)
{
	struct sockaddr_un a;
	AUTO_CLOSE int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	control_addr(dirfd, &a);
	if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)))
		return -errno;
	return steal_fd(&s);
}

int control_listen(int dirfd)
{
	struct sockaddr_un a;
	AUTO_CLOSE int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	control_addr(dirfd, &a);
	if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) || listen(s, CONTROL_BACKLOG))
		return -errno;
	return steal_fd(&s);
}

json_t *control_call(int sock, json_t *req, const int *fds, unsigned nfds)
{
	if (control_send(sock, req, fds, nfds))
		return NULL;
	return control_recv(sock, NULL, NULL);
}
