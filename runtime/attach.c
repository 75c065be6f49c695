// SPDX-License-Identifier: Apache-2.0
/*
 * The user's terminal against a session's byte stream. The terminal is put into raw mode, since the
 * guest's terminal does echo, line editing and signals; every way out of the process restores it.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cli.h"
#include "runtime/control.h"

#define ATTACH_BUF 4096

struct attach {
	int stream; /* ours */
	int sigfd;
	bool in_open;
};

static struct termios saved_termios;
static bool termios_saved;

static void restore_terminal(void)
{
	if (termios_saved)
		(void)tcsetattr(0, TCSADRAIN, &saved_termios); /* nobody left to tell */
	termios_saved = false;
}

static void fatal_signal(int sig)
{
	restore_terminal();
	signal(sig, SIG_DFL);
	raise(sig);
}

static void raw_mode(void)
{
	struct termios t = saved_termios;

	atexit(restore_terminal);
	termios_saved = true;
	signal(SIGTERM, fatal_signal);
	signal(SIGHUP, fatal_signal);
	signal(SIGINT, fatal_signal);
	signal(SIGQUIT, fatal_signal);
	cfmakeraw(&t);
	(void)tcsetattr(0, TCSADRAIN, &t); /* then it stays cooked: ugly, not wrong */
}

struct attach *attach_begin(int *ret_fd, unsigned *rows, unsigned *cols)
{
	struct attach *a;
	struct winsize ws;
	sigset_t winch;
	int sv[2];

	if (tcgetattr(0, &saved_termios) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return NULL;
	a = kzalloc(sizeof(*a));
	a->stream = sv[0];
	a->in_open = true;
	*ret_fd = sv[1];
	if (ioctl(0, TIOCGWINSZ, &ws) == 0) {
		*rows = ws.ws_row;
		*cols = ws.ws_col;
	}
	sigemptyset(&winch);
	sigaddset(&winch, SIGWINCH);
	sigprocmask(SIG_BLOCK, &winch, NULL);
	a->sigfd = signalfd(-1, &winch, SFD_CLOEXEC);
	raw_mode();
	return a;
}

static bool write_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t w = write(fd, p, n);

		if (w < 0 && errno == EINTR)
			continue;
		if (w < 0)
			return false;
		p += w;
		n -= (size_t)w;
	}
	return true;
}

/* False at the end of the stream. */
static bool relay(int from, int to)
{
	char buf[ATTACH_BUF];
	ssize_t n = read(from, buf, sizeof(buf));

	if (n < 0 && errno == EINTR)
		return true;
	return n > 0 && write_all(to, buf, (size_t)n);
}

static void tell_size(struct attach *a, void (*resize)(void *, unsigned, unsigned), void *arg)
{
	struct signalfd_siginfo si;
	struct winsize ws;

	if (read(a->sigfd, &si, sizeof(si)) > 0 && ioctl(0, TIOCGWINSZ, &ws) == 0)
		resize(arg, ws.ws_row, ws.ws_col);
}

json_t *attach_run(struct attach *a, int control, void (*resize)(void *arg, unsigned rows, unsigned cols),
		   void *arg)
{
	bool out_open = true;
	json_t *rep = NULL;

	for (;;) {
		struct pollfd p[4] = { { .fd = a->in_open ? 0 : -1, .events = POLLIN },
				       { .fd = out_open ? a->stream : -1, .events = POLLIN },
				       { .fd = control, .events = POLLIN },
				       { .fd = a->sigfd, .events = POLLIN } };

		if (poll(p, 4, -1) < 0 && errno != EINTR)
			break;
		if (p[0].revents && !relay(0, a->stream))
			a->in_open = false;
		if (p[3].revents)
			tell_size(a, resize, arg);
		if (p[1].revents && !relay(a->stream, 1)) {
			out_open = false;
			shutdown(a->stream, SHUT_RDWR);
		}
		/* The status is the last thing: what the guest wrote before comes first. */
		if (p[2].revents && !(p[1].revents & POLLIN)) {
			rep = control_recv(control, NULL, NULL);
			break;
		}
	}
	while (out_open && relay(a->stream, 1))
		;
	return rep;
}

void attach_end(struct attach *a)
{
	if (!a)
		return;
	restore_terminal();
	close(a->stream);
	close(a->sigfd);
	free(a);
}
