// SPDX-License-Identifier: Apache-2.0
/* See console_socket.h. */
#include "runtime/console_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/errno_text.h"

static int connect_to(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int s;

	if (strlen(path) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	memcpy(a.sun_path, path, strlen(path) + 1);
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s >= 0 && connect(s, (struct sockaddr *)&a, sizeof(a))) {
		int r = -errno;

		close(s);
		return r;
	}
	return s < 0 ? -errno : s;
}

/* @fd with @name as data. */
static int send_fd(int sock, int fd, const char *name)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(sizeof(int))];
	} cb = { 0 };
	AUTO_FREE char *data = kstrdup(name);
	struct iovec iov = { data, strlen(name) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = cb.buf,
			    .msg_controllen = sizeof(cb.buf) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	return sendmsg(sock, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int console_socket_send(const char *path, char **ret_why)
{
	AUTO_CLOSE int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	AUTO_CLOSE int slave = -1;
	AUTO_CLOSE int sock = -1;
	struct termios tio;
	char name[64];
	int zero = 0, n, r;

	if (master < 0 || ioctl(master, TIOCSPTLCK, &zero) || ioctl(master, TIOCGPTN, &n)) {
		*ret_why = kasprintf("cannot make a pty: %s", errno_text(errno));
		return -1;
	}
	snprintf(name, sizeof(name), "/dev/pts/%d", n);
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0 || tcgetattr(slave, &tio)) {
		*ret_why = kasprintf("cannot open %s: %s", name, errno_text(errno));
		return -1;
	}
	cfmakeraw(&tio);
	if (tcsetattr(slave, TCSANOW, &tio)) {
		*ret_why = kasprintf("cannot set up %s: %s", name, errno_text(errno));
		return -1;
	}
	sock = connect_to(path);
	r = sock < 0 ? sock : send_fd(sock, master, name);
	if (r) {
		*ret_why = kasprintf("console socket %s: %s", path, errno_text(-r));
		return -1;
	}
	return steal_fd(&slave);
}

int pidfd_socket_send(const char *path, pid_t pid, char **ret_why)
{
	AUTO_CLOSE int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	AUTO_CLOSE int sock = connect_to(path);
	int r = pidfd < 0 ? -errno : sock < 0 ? sock : send_fd(sock, pidfd, "pidfd");

	if (!r)
		return 0;
	*ret_why = kasprintf("pidfd socket %s: %s", path, errno_text(-r));
	return -1;
}
