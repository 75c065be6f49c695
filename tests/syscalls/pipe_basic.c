// SPDX-License-Identifier: Apache-2.0
/* pipe(2), pipe(7), fifo(7). */
#include "harness.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

TEST(pipe_moves_bytes_in_order)
{
	char b[16] = { 0 };
	int p[2];

	CHECK(pipe(p) == 0);
	CHECK(write(p[1], "abc", 3) == 3);
	CHECK(write(p[1], "def", 3) == 3);
	CHECK(read(p[0], b, 4) == 4 && memcmp(b, "abcd", 4) == 0);
	CHECK(read(p[0], b, 16) == 2 && memcmp(b, "ef", 2) == 0);
	close(p[1]);
	CHECK(read(p[0], b, 1) == 0);
}

TEST(pipe_blocks_reader_until_write)
{
	char c;
	int p[2];

	CHECK(pipe(p) == 0);
	if (fork() == 0) {
		usleep(50000);
		_exit(write(p[1], "x", 1) != 1);
	}
	CHECK(read(p[0], &c, 1) == 1 && c == 'x');
	CHECK(wait(NULL) > 0);
}

TEST(pipe_blocks_writer_until_read)
{
	static char big[200000];
	size_t got = 0;
	int p[2], st;

	CHECK(pipe(p) == 0);
	if (fork() == 0) {
		close(p[0]);
		_exit(write(p[1], big, sizeof(big)) != (ssize_t)sizeof(big));
	}
	close(p[1]);
	for (;;) {
		static char b[7777];
		ssize_t n = read(p[0], b, sizeof(b));

		CHECK(n >= 0);
		if (n == 0)
			break;
		got += (size_t)n;
	}
	CHECK(got == sizeof(big));
	CHECK(wait(&st) > 0 && st == 0);
}

TEST(pipe_nonblocking_limits)
{
	static char buf[70000];
	int p[2], n;

	CHECK(pipe2(p, O_NONBLOCK) == 0);
	CHECK_ERRNO(read(p[0], buf, 1), EAGAIN);
	CHECK(write(p[1], buf, sizeof(buf)) == 65536);
	CHECK_ERRNO(write(p[1], buf, 1), EAGAIN);
	CHECK(ioctl(p[0], FIONREAD, &n) == 0 && n == 65536);
	/* room appears by pages: an atomic write needs one */
	CHECK(read(p[0], buf, 100) == 100);
	CHECK_ERRNO(write(p[1], buf, 100), EAGAIN);
	CHECK(read(p[0], buf, 3996) == 3996);
	CHECK(write(p[1], buf, 4096) == 4096);
}

TEST(pipe_epipe_and_sigpipe)
{
	int p[2];

	CHECK(pipe(p) == 0);
	close(p[0]);
	signal(SIGPIPE, SIG_IGN);
	CHECK_ERRNO(write(p[1], "x", 1), EPIPE);
	signal(SIGPIPE, SIG_DFL);
	pid_t pid = fork();
	if (pid == 0) {
		(void)!write(p[1], "x", 1);
		_exit(0);
	}
	int st;
	CHECK(waitpid(pid, &st, 0) == pid && WIFSIGNALED(st) && WTERMSIG(st) == SIGPIPE);
}

TEST(pipe_packet_mode)
{
	char b[16];
	int p[2];

	CHECK(pipe2(p, O_DIRECT) == 0);
	CHECK(write(p[1], "hello", 5) == 5);
	CHECK(write(p[1], "world", 5) == 5);
	CHECK(read(p[0], b, 3) == 3); /* the rest of the packet is lost */
	CHECK(read(p[0], b, 16) == 5 && memcmp(b, "world", 5) == 0);
}

TEST(pipe_size_can_change)
{
	static char buf[40000];
	int p[2];

	CHECK(pipe2(p, O_NONBLOCK) == 0);
	CHECK(fcntl(p[0], F_GETPIPE_SZ) == 65536);
	CHECK(fcntl(p[0], F_SETPIPE_SZ, 5000) == 8192);
	CHECK(fcntl(p[1], F_SETPIPE_SZ, 1 << 20) == 1 << 20);
	CHECK(write(p[1], buf, sizeof(buf)) == (ssize_t)sizeof(buf));
	CHECK_ERRNO(fcntl(p[0], F_SETPIPE_SZ, 4096), EBUSY);
	CHECK_ERRNO(fcntl(STDERR_FILENO + 100, F_GETPIPE_SZ), EBADF);
}

TEST(pipe_poll_states)
{
	int p[2];

	CHECK(pipe2(p, O_NONBLOCK) == 0);
	struct pollfd r = { p[0], POLLIN, 0 }, w = { p[1], POLLOUT, 0 };
	CHECK(poll(&r, 1, 0) == 0);
	CHECK(poll(&w, 1, 0) == 1 && w.revents == POLLOUT);
	CHECK(write(p[1], "x", 1) == 1);
	CHECK(poll(&r, 1, 0) == 1 && r.revents == POLLIN);
	close(p[1]);
	CHECK(poll(&r, 1, 0) == 1 && r.revents == (POLLIN | POLLHUP));
}

TEST(pipe_bad_arguments)
{
	int p[2];

	CHECK_ERRNO(pipe2(p, 0x4), EINVAL);
	CHECK_ERRNO(syscall(SYS_pipe, 8), EFAULT);
	CHECK(pipe(p) == 0);
	CHECK_ERRNO(lseek(p[0], 0, SEEK_SET), ESPIPE);
	CHECK_ERRNO(write(p[0], "x", 1), EBADF);
	CHECK_ERRNO(read(p[1], p, 1), EBADF);
}

TEST(fifo_open_rules)
{
	char name[] = "/tmp/fifoXXXXXX", c;
	int fd, w;

	CHECK(mktemp(name) && mkfifo(name, 0600) == 0);
	CHECK_ERRNO(open(name, O_WRONLY | O_NONBLOCK), ENXIO);
	fd = open(name, O_RDWR);
	CHECK(fd >= 0 && write(fd, "a", 1) == 1 && read(fd, &c, 1) == 1);
	close(fd);
	fd = open(name, O_RDONLY | O_NONBLOCK);
	CHECK(fd >= 0);
	struct pollfd r = { fd, POLLIN, 0 };
	CHECK(poll(&r, 1, 0) == 0); /* no writer yet: no POLLHUP */
	CHECK(read(fd, &c, 1) == 0);
	w = open(name, O_WRONLY);
	CHECK(w >= 0);
	CHECK_ERRNO(read(fd, &c, 1), EAGAIN);
	close(w);
	CHECK(poll(&r, 1, 0) == 1 && r.revents == POLLHUP);
	close(fd);
	if (fork() == 0) {
		fd = open(name, O_WRONLY); /* waits for the reader */
		_exit(fd < 0 || write(fd, "z", 1) != 1);
	}
	fd = open(name, O_RDONLY);
	CHECK(fd >= 0 && read(fd, &c, 1) == 1 && c == 'z');
	CHECK(unlink(name) == 0);
}

TEST_MAIN
