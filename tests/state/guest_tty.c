// SPDX-License-Identifier: Apache-2.0
/* Terminals: modes, what was typed ahead, what nobody has read, packet mode, sessions, hang-ups. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

#include "tests/state/guest.h"

static int open_pair(int *ret_slave, char name[64])
{
	int m = open("/dev/ptmx", O_RDWR | O_NOCTTY), zero = 0, n = -1;

	NEED(m >= 0 && ioctl(m, TIOCSPTLCK, &zero) == 0 && ioctl(m, TIOCGPTN, &n) == 0);
	snprintf(name, 64, "/dev/pts/%d", n);
	*ret_slave = open(name, O_RDWR | O_NOCTTY);
	NEED(*ret_slave >= 0);
	return m;
}

static bool reads(int fd, const char *text)
{
	char buf[256];
	ssize_t n = read(fd, buf, sizeof(buf));

	return n == (ssize_t)strlen(text) && memcmp(buf, text, strlen(text)) == 0;
}

/* ---- raw mode, window size, data in both directions ---- */

static int raw_m, raw_s;
static char raw_name[64];

static void raw_setup(void)
{
	struct winsize ws = { .ws_row = 33, .ws_col = 111 };
	struct termios t;

	raw_m = open_pair(&raw_s, raw_name);
	NEED(tcgetattr(raw_s, &t) == 0);
	cfmakeraw(&t);
	t.c_cc[VTIME] = 3;
	t.c_cc[VMIN] = 0;
	NEED(tcsetattr(raw_s, TCSANOW, &t) == 0 && ioctl(raw_m, TIOCSWINSZ, &ws) == 0);
	NEED(write(raw_m, "typed\003", 6) == 6 && write(raw_s, "printed\n", 8) == 8);
}

static void raw_check(void)
{
	struct winsize ws;
	struct termios t;
	struct stat a, b;

	CHECK(tcgetattr(raw_s, &t) == 0 && !(t.c_lflag & (ICANON | ECHO | ISIG)) &&
	      t.c_cc[VTIME] == 3 && t.c_cc[VMIN] == 0);
	CHECK(ioctl(raw_s, TIOCGWINSZ, &ws) == 0 && ws.ws_row == 33 && ws.ws_col == 111);
	CHECK(reads(raw_s, "typed\003") && reads(raw_m, "printed\n"));
	CHECK(write(raw_m, "x", 1) == 1 && reads(raw_s, "x"));
	CHECK(stat(raw_name, &a) == 0 && fstat(raw_s, &b) == 0 && a.st_ino == b.st_ino &&
	      a.st_rdev == b.st_rdev);
	int again = open(raw_name, O_RDWR | O_NOCTTY);
	CHECK(again >= 0 && write(again, "y", 1) == 1 && reads(raw_m, "y"));
	close(again);
	int m2 = open("/dev/ptmx", O_RDWR | O_NOCTTY), n = -1;
	char name[64];
	CHECK(m2 >= 0 && ioctl(m2, TIOCGPTN, &n) == 0);
	snprintf(name, sizeof(name), "/dev/pts/%d", n);
	CHECK(strcmp(name, raw_name) != 0);
	close(m2);
}

/* ---- canonical: a whole line, half a line, echo; packet mode ---- */

static int line_m, line_s, packet_m, packet_s;

static void lines_setup(void)
{
	char name[64], buf[64];
	int on = 1;

	line_m = open_pair(&line_s, name);
	NEED(write(line_m, "whole\nhal", 9) == 9);
	NEED(read(line_m, buf, 3) == 3 && memcmp(buf, "who", 3) == 0);
	packet_m = open_pair(&packet_s, name);
	NEED(ioctl(packet_m, TIOCPKT, &on) == 0 && write(packet_s, "pkt", 3) == 3);
	NEED(tcflow(packet_s, TCOOFF) == 0);
}

static void lines_check(void)
{
	char buf[64] = "";
	int on = 0;

	CHECK(reads(line_m, "le\r\nhal"));
	CHECK(reads(line_s, "whole\n"));
	CHECK(write(line_m, "f\n", 2) == 2 && reads(line_s, "half\n"));
	CHECK(ioctl(packet_m, TIOCGPKT, &on) == 0 && on == 1);
	CHECK(read(packet_m, buf, 64) >= 1);
	if (buf[0]) /* the flow control is told first */
		CHECK(read(packet_m, buf, 64) == 4);
	CHECK(buf[0] == 0 && memcmp(buf + 1, "pkt", 3) == 0);
	CHECK(tcflow(packet_s, TCOON) == 0);
}

/* ---- a session on a terminal: controlling terminal, foreground group, hang-up ---- */

static int sess_m, sess_s;
static pid_t leader;
static volatile sig_atomic_t got_int, got_hup;

static void on_int(int sig)
{
	got_int |= sig == SIGINT;
	got_hup |= sig == SIGHUP;
}

static int session_main(const char *name)
{
	int fd;

	setsid();
	signal(SIGINT, on_int);
	signal(SIGHUP, on_int);
	fd = open(name, O_RDWR);
	if (fd < 0 || tcgetpgrp(fd) != getpid())
		return 10;
	if (write(fd, "up", 2) != 2)
		return 11;
	while (!got_int)
		usleep(10000);
	if (open("/dev/tty", O_RDWR) < 0)
		return 12;
	if (tcgetpgrp(fd) != getpid() || tcgetsid(fd) != getpid())
		return 13;
	if (write(fd, "int", 3) != 3)
		return 14;
	while (!got_hup)
		usleep(10000);
	return 0;
}

static void session_setup(void)
{
	char name[64];

	sess_m = open_pair(&sess_s, name);
	leader = fork();
	if (leader == 0) {
		close(sess_m);
		close(sess_s);
		_exit(session_main(name));
	}
	NEED(reads(sess_m, "up"));
}

static void session_check(void)
{
	struct pollfd p = { .fd = sess_m, .events = POLLIN };
	char buf[64] = "";
	int status = -1;

	CHECK(write(sess_m, "\003", 1) == 1);
	for (size_t n = 0; n < 5 && poll(&p, 1, 5000) == 1;) {
		ssize_t r = read(sess_m, buf + n, sizeof(buf) - n - 1);

		if (r <= 0)
			break;
		n += (size_t)r;
	}
	CHECK(strcmp(buf, "^Cint") == 0);
	close(sess_s);
	close(sess_m);
	CHECK(waitpid(leader, &status, 0) == leader && status == 0);
}

/* ---- one that was hung up stays so ---- */

static int dead_s;

static void hungup_setup(void)
{
	char name[64];
	int m = open_pair(&dead_s, name);

	close(m);
}

static void hungup_check(void)
{
	char c;

	CHECK(read(dead_s, &c, 1) == 0);
	CHECK(write(dead_s, "x", 1) < 0 && errno == EIO);
}

int main(int argc, char **argv)
{
	static const struct item items[] = {
		ITEM(session), /* first: its child must not hold the others' terminals */
		ITEM(raw), ITEM(lines), ITEM(hungup),
	};

	signal(SIGHUP, SIG_IGN);
	return guest_main(argc, argv, items, sizeof(items) / sizeof(items[0]));
}
