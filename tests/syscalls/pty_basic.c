// SPDX-License-Identifier: Apache-2.0
/* Pseudo terminals: line discipline, modes, end of either side, packet mode, window size, flow control. */
#include "harness.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

struct pair {
	int m, s;
};

static struct pair open_pair(void)
{
	struct pair p;
	char name[64];

	p.m = posix_openpt(O_RDWR | O_NOCTTY);
	CHECK(p.m >= 0);
	CHECK(grantpt(p.m) == 0 && unlockpt(p.m) == 0);
	CHECK(ptsname_r(p.m, name, sizeof(name)) == 0);
	p.s = open(name, O_RDWR | O_NOCTTY);
	CHECK(p.s >= 0);
	return p;
}

static void set_raw(int fd, int min, int time)
{
	struct termios t;

	CHECK(tcgetattr(fd, &t) == 0);
	cfmakeraw(&t);
	t.c_cc[VMIN] = (cc_t)min;
	t.c_cc[VTIME] = (cc_t)time;
	CHECK(tcsetattr(fd, TCSANOW, &t) == 0);
}

static void put(int fd, const char *s)
{
	CHECK(write(fd, s, strlen(s)) == (ssize_t)strlen(s));
}

static void expect(int fd, const char *want)
{
	char buf[256];
	size_t got = 0, len = strlen(want);

	while (got < len) {
		struct pollfd p = { fd, POLLIN, 0 };

		CHECK(poll(&p, 1, 5000) == 1);
		ssize_t n = read(fd, buf + got, sizeof(buf) - got);
		CHECK(n > 0);
		got += (size_t)n;
	}
	if (got != len || memcmp(buf, want, len))
		FAIL("got %zu bytes '%.*s', wanted '%s'", got, (int)got, buf, want);
}

static bool readable(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };

	return poll(&p, 1, 100) == 1 && (p.revents & POLLIN);
}

TEST(locked_slave_cant_be_opened)
{
	int m = posix_openpt(O_RDWR | O_NOCTTY);
	char name[64];

	CHECK(m >= 0 && ptsname_r(m, name, sizeof(name)) == 0);
	CHECK_ERRNO(open(name, O_RDWR | O_NOCTTY), EIO);
	CHECK(unlockpt(m) == 0);
	CHECK(open(name, O_RDWR | O_NOCTTY) >= 0);
}

TEST(node_goes_away_with_master)
{
	struct pair p = open_pair();
	char name[64];

	CHECK(ptsname_r(p.m, name, sizeof(name)) == 0);
	CHECK(access(name, F_OK) == 0);
	close(p.m);
	CHECK_ERRNO(access(name, F_OK), ENOENT);
}

TEST(getptpeer)
{
	int m = posix_openpt(O_RDWR | O_NOCTTY);

	CHECK(m >= 0 && unlockpt(m) == 0);
	int s = ioctl(m, TIOCGPTPEER, O_RDWR | O_NOCTTY);
	CHECK(s >= 0 && isatty(s));
	put(s, "x");
	expect(m, "x");
}

TEST(canonical_line_and_echo)
{
	struct pair p = open_pair();

	put(p.m, "abc");
	CHECK(!readable(p.s));
	put(p.m, "\r");
	expect(p.s, "abc\n");
	expect(p.m, "abc\r\n");
}

TEST(erase_word_and_kill)
{
	struct pair p = open_pair();

	put(p.m, "one two\027x\177y\n");
	expect(p.s, "one y\n");
	put(p.m, "gone\025kept\n");
	expect(p.s, "kept\n");
}

TEST(erase_echo)
{
	struct pair p = open_pair();

	put(p.m, "ab\177\n");
	expect(p.m, "ab\b \b\r\n");
}

TEST(control_characters_are_echoed_with_caret)
{
	struct pair p = open_pair();

	put(p.m, "\001\n");
	expect(p.m, "^A\r\n");
}

TEST(eof_ends_a_read_and_gives_zero)
{
	struct pair p = open_pair();
	char b[16];

	put(p.m, "ab\004");
	CHECK(read(p.s, b, sizeof(b)) == 2);
	put(p.m, "\004");
	CHECK(read(p.s, b, sizeof(b)) == 0);
}

TEST(lnext_quotes)
{
	struct pair p = open_pair();

	put(p.m, "\026\003\n");
	expect(p.s, "\003\n");
}

TEST(short_reads_of_a_line)
{
	struct pair p = open_pair();
	char b[4];

	put(p.m, "abcdef\n");
	CHECK(read(p.s, b, 3) == 3 && !memcmp(b, "abc", 3));
	CHECK(read(p.s, b, 4) == 4 && !memcmp(b, "def\n", 4));
}

TEST(line_limit_is_4095)
{
	struct pair p = open_pair();
	static char line[5000], got[5000];
	struct termios t;

	CHECK(tcgetattr(p.s, &t) == 0);
	t.c_lflag &= (tcflag_t)~ECHO;
	CHECK(tcsetattr(p.s, TCSANOW, &t) == 0);
	memset(line, 'a', sizeof(line));
	for (size_t i = 0; i < sizeof(line); i += 500)
		CHECK(write(p.m, line + i, 500) == 500);
	put(p.m, "\n");
	CHECK(read(p.s, got, sizeof(got)) == 4096);
	CHECK(got[4095] == '\n' && got[4094] == 'a');
}

TEST(output_processing)
{
	struct pair p = open_pair();

	put(p.s, "a\nb");
	expect(p.m, "a\r\nb");
}

TEST(raw_mode_passes_bytes)
{
	struct pair p = open_pair();

	set_raw(p.s, 1, 0);
	put(p.m, "\003\r\n\004");
	expect(p.s, "\003\r\n\004");
	put(p.s, "x\n");
	expect(p.m, "x\n");
}

TEST(raw_min_waits_for_all)
{
	struct pair p = open_pair();
	char b[8];

	set_raw(p.s, 4, 0);
	put(p.m, "ab");
	CHECK(!readable(p.s));
	if (fork() == 0) {
		usleep(50000);
		put(p.m, "cd");
		_exit(0);
	}
	CHECK(read(p.s, b, sizeof(b)) == 4);
}

TEST(raw_time_only_times_out)
{
	struct pair p = open_pair();
	char b;

	set_raw(p.s, 0, 2);
	CHECK(read(p.s, &b, 1) == 0);
	set_raw(p.s, 0, 0);
	CHECK(read(p.s, &b, 1) == 0);
}

TEST(master_read_eio_after_last_slave_closes)
{
	struct pair p = open_pair();
	char b[8];

	put(p.s, "bye");
	close(p.s);
	CHECK(read(p.m, b, sizeof(b)) == 3);
	CHECK_ERRNO(read(p.m, b, 1), EIO);
	struct pollfd pf = { p.m, POLLIN, 0 };
	CHECK(poll(&pf, 1, 0) == 1 && (pf.revents & POLLHUP));
}

TEST(slave_after_master_close)
{
	struct pair p = open_pair();
	char b;

	close(p.m);
	CHECK(read(p.s, &b, 1) == 0);
	CHECK_ERRNO(write(p.s, "x", 1), EIO);
	struct pollfd pf = { p.s, POLLIN | POLLOUT, 0 };
	CHECK(poll(&pf, 1, 0) == 1 && (pf.revents & POLLHUP) && (pf.revents & POLLERR));
	struct termios t;
	CHECK_ERRNO(tcgetattr(p.s, &t), EIO);
}

TEST(window_size)
{
	struct pair p = open_pair();
	struct winsize ws = { .ws_row = 24, .ws_col = 80 }, got;

	CHECK(ioctl(p.m, TIOCSWINSZ, &ws) == 0);
	CHECK(ioctl(p.s, TIOCGWINSZ, &got) == 0);
	CHECK(got.ws_row == 24 && got.ws_col == 80);
}

/* The host's kernel hands bytes to the other side on a worker of its own: give it time. */
#define EVENTUALLY(cond)                                                                 \
	do {                                                                             \
		bool ev_ok = false;                                                      \
		for (int ev_i = 0; ev_i < 2000 && !ev_ok; ev_i++) {                      \
			ev_ok = (cond);                                                  \
			if (!ev_ok)                                                      \
				usleep(1000);                                            \
		}                                                                        \
		if (!ev_ok)                                                              \
			FAIL("not in time: %s", #cond);                                  \
	} while (0)

static int waiting(int fd)
{
	int n = -1;

	return ioctl(fd, FIONREAD, &n) ? -1 : n;
}

static bool stopped(int fd)
{
	errno = 0;
	return write(fd, "x", 1) == -1 && errno == EAGAIN;
}

TEST(fionread_counts_lines_only)
{
	struct pair p = open_pair();

	put(p.m, "abc");
	CHECK(waiting(p.s) == 0);
	put(p.m, "d\n");
	EVENTUALLY(waiting(p.s) == 5);
}

TEST(flush_input_of_slave)
{
	struct pair p = open_pair();

	put(p.m, "lost\n");
	CHECK(readable(p.s));
	CHECK(tcflush(p.s, TCIFLUSH) == 0);
	CHECK(!readable(p.s));
	CHECK_ERRNO(ioctl(p.s, TCFLSH, 77), EINVAL);
}

TEST(stop_and_start_characters)
{
	struct pair p = open_pair();

	CHECK(fcntl(p.s, F_SETFL, O_NONBLOCK) == 0);
	put(p.m, "\023");
	EVENTUALLY(stopped(p.s));
	CHECK(tcflush(p.m, TCIFLUSH) == 0 && tcflush(p.s, TCOFLUSH) == 0); /* what got out before */
	put(p.m, "\021");
	EVENTUALLY(write(p.s, "x", 1) == 1);
	expect(p.m, "x");
}

TEST(packet_mode)
{
	struct pair p = open_pair();
	int on = 1;
	char b[16];

	CHECK(ioctl(p.m, TIOCPKT, &on) == 0);
	put(p.s, "hi");
	CHECK(read(p.m, b, sizeof(b)) == 3 && b[0] == TIOCPKT_DATA && !memcmp(b + 1, "hi", 2));
	CHECK(tcflush(p.s, TCIFLUSH) == 0);
	struct pollfd pf = { p.m, POLLIN | POLLPRI, 0 };
	CHECK(poll(&pf, 1, 1000) == 1 && (pf.revents & POLLPRI));
	CHECK(read(p.m, b, sizeof(b)) == 1 && (b[0] & TIOCPKT_FLUSHREAD));
}

TEST(exclusive_mode_query)
{
	struct pair p = open_pair();
	int v = -1;

	CHECK(ioctl(p.s, TIOCGEXCL, &v) == 0 && v == 0);
	CHECK(ioctl(p.s, TIOCEXCL) == 0);
	CHECK(ioctl(p.s, TIOCGEXCL, &v) == 0 && v != 0);
	CHECK(ioctl(p.s, TIOCNXCL) == 0);
}

TEST(nonblocking_read_eagain)
{
	struct pair p = open_pair();
	char b;

	CHECK(fcntl(p.s, F_SETFL, O_NONBLOCK) == 0 && fcntl(p.m, F_SETFL, O_NONBLOCK) == 0);
	CHECK_ERRNO(read(p.s, &b, 1), EAGAIN);
	CHECK_ERRNO(read(p.m, &b, 1), EAGAIN);
}

TEST(lseek_and_unknown_ioctl)
{
	struct pair p = open_pair();

	CHECK_ERRNO(lseek(p.s, 0, SEEK_SET), ESPIPE);
	CHECK_ERRNO(ioctl(p.s, 0x5499, 0), ENOTTY);
}

TEST_MAIN
