// SPDX-License-Identifier: Apache-2.0
/* Controlling terminals and job control: sessions, foreground groups, signals from the terminal, hang-up. */
#include "harness.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

static volatile sig_atomic_t got_sig;

static void on_signal(int sig)
{
	got_sig = sig;
}

static void catch(int sig)
{
	struct sigaction sa = { .sa_handler = on_signal };

	CHECK(sigaction(sig, &sa, NULL) == 0);
}

static void open_pair(int *m, char name[64])
{
	*m = posix_openpt(O_RDWR | O_NOCTTY);
	CHECK(*m >= 0 && unlockpt(*m) == 0 && ptsname_r(*m, name, 64) == 0);
}

/* Runs @fn in a child that leads a session with the slave as its terminal. Its exit status. */
static int in_session(int m, const char *name, void (*fn)(int s, int m))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		CHECK(setsid() > 0);
		int s = open(name, O_RDWR);
		CHECK(s >= 0);
		fn(s, m);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return status;
}

static void body_ctty(int s, int m)
{
	(void)m;
	CHECK(tcgetsid(s) == getpid());
	CHECK(tcgetpgrp(s) == getpgrp());
	int t = open("/dev/tty", O_RDWR);
	CHECK(t >= 0 && isatty(t));
	signal(SIGHUP, SIG_IGN);
	CHECK(ioctl(t, TIOCNOTTY) == 0);
	CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
}

TEST(open_makes_controlling_terminal)
{
	char name[64];
	int m;

	open_pair(&m, name);
	CHECK(in_session(m, name, body_ctty) == 0);
}

/* A session's leader that says O_NOCTTY gets no terminal, by path or by TIOCGPTPEER. */
TEST(noctty_makes_none)
{
	char name[64];
	int m, status;

	open_pair(&m, name);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(setsid() > 0);
		int s = open(name, O_RDWR | O_NOCTTY);
		CHECK(s >= 0 && !(fcntl(s, F_GETFL) & O_NOCTTY));
		CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
		s = ioctl(m, TIOCGPTPEER, O_RDWR | O_NOCTTY);
		CHECK(s >= 0);
		CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
		CHECK(ioctl(s, TIOCSCTTY, 0) == 0);
		CHECK(tcgetsid(s) == getpid());
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void body_intr(int s, int m)
{
	(void)s;
	catch(SIGINT);
	CHECK(write(m, "\003", 1) == 1);
	for (int i = 0; i < 100 && !got_sig; i++)
		usleep(10000);
	CHECK(got_sig == SIGINT);
}

TEST(intr_character_signals_foreground)
{
	char name[64];
	int m;

	open_pair(&m, name);
	CHECK(in_session(m, name, body_intr) == 0);
}

static void body_winch(int s, int m)
{
	struct winsize ws = { .ws_row = 5, .ws_col = 6 };

	(void)s;
	catch(SIGWINCH);
	CHECK(ioctl(m, TIOCSWINSZ, &ws) == 0);
	for (int i = 0; i < 100 && !got_sig; i++)
		usleep(10000);
	CHECK(got_sig == SIGWINCH);
}

TEST(resize_signals_foreground)
{
	char name[64];
	int m;

	open_pair(&m, name);
	CHECK(in_session(m, name, body_winch) == 0);
}

static void body_ttin(int s, int m)
{
	int status;
	char b;
	pid_t pid = fork();

	if (pid == 0) {
		setpgid(0, 0);
		if (read(s, &b, 1) < 0)
			_exit(2);
		_exit(b == 'x' ? 0 : 3);
	}
	setpgid(pid, pid);
	CHECK(waitpid(pid, &status, WUNTRACED) == pid);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTIN);
	CHECK(tcsetpgrp(s, pid) == 0);
	CHECK(write(m, "x\n", 2) == 2);
	CHECK(kill(pid, SIGCONT) == 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

TEST(background_read_stops)
{
	char name[64];
	int m;

	open_pair(&m, name);
	CHECK(in_session(m, name, body_ttin) == 0);
}

static void body_ttin_ignored(int s, int m)
{
	int status;
	char b;
	pid_t pid = fork();

	(void)m;
	if (pid == 0) {
		setpgid(0, 0);
		signal(SIGTTIN, SIG_IGN);
		_exit(read(s, &b, 1) == -1 && errno == EIO ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

TEST(background_read_with_sigttin_ignored_is_eio)
{
	char name[64];
	int m;

	open_pair(&m, name);
	CHECK(in_session(m, name, body_ttin_ignored) == 0);
}

static void body_tostop(int s, int m)
{
	struct termios t;
	int status;
	pid_t pid;

	(void)m;
	CHECK(tcgetattr(s, &t) == 0);
	t.c_lflag |= TOSTOP;
	CHECK(tcsetattr(s, TCSANOW, &t) == 0);
	pid = fork();
	if (pid == 0) {
		setpgid(0, 0);
		_exit(write(s, "x", 1) == 1 ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, WUNTRACED) == pid);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTTOU);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
}

TEST(background_write_with_tostop_stops)
{
	char name[64];
	int m;

	open_pair(&m, name);
	CHECK(in_session(m, name, body_tostop) == 0);
}

static void body_hup(int s, int m)
{
	(void)s;
	catch(SIGHUP);
	close(m);
	/* the test's own copy of the master is closed by the caller */
	for (int i = 0; i < 300 && !got_sig; i++)
		usleep(10000);
	CHECK(got_sig == SIGHUP);
	char b;
	CHECK(read(s, &b, 1) == 0);
	CHECK_ERRNO(open("/dev/tty", O_RDWR), ENXIO);
}

TEST(master_close_hangs_up)
{
	char name[64];
	int m, status;
	pid_t pid;

	open_pair(&m, name);
	pid = fork();
	if (pid == 0) {
		CHECK(setsid() > 0);
		int s = open(name, O_RDWR);
		CHECK(s >= 0);
		body_hup(s, m);
		_exit(0);
	}
	usleep(100000);
	close(m);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* SIGHUP, and no controlling terminal any more; open descriptors of a pty stay usable. */
TEST(leader_exit_signals_the_group)
{
	char name[64];
	int m, p[2], status;
	pid_t pid;
	char b = 0;

	open_pair(&m, name);
	CHECK(pipe(p) == 0);
	pid = fork();
	if (pid == 0) {
		CHECK(setsid() > 0);
		int s = open(name, O_RDWR);
		CHECK(s >= 0);
		if (fork() == 0) {
			catch(SIGHUP);
			CHECK(write(p[1], "r", 1) == 1);
			for (int i = 0; i < 300 && !got_sig; i++)
				usleep(10000);
			b = got_sig == SIGHUP && write(s, "x", 1) == 1 &&
					    open("/dev/tty", O_RDWR) == -1 && errno == ENXIO ?
				    'y' :
				    'n';
			CHECK(write(p[1], &b, 1) == 1);
			_exit(0);
		}
		CHECK(read(p[0], &b, 1) == 1);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	close(p[1]);
	CHECK(read(p[0], &b, 1) == 1 && b == 'y');
}

TEST(tcsetpgrp_errors)
{
	char name[64];
	int m, s;

	open_pair(&m, name);
	s = open(name, O_RDWR | O_NOCTTY);
	CHECK(s >= 0);
	CHECK_ERRNO(tcsetpgrp(s, getpgrp()), ENOTTY);
	CHECK_ERRNO(tcgetpgrp(s), ENOTTY);
}

TEST_MAIN
