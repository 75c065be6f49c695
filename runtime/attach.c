// SPDX-License-Identifier: Apache-2.0
/*
 * The client's side of a running process: its end, the signals that the client gets meanwhile, and
 * the user's terminal against the session's byte stream.
 *
 * The terminal is put into raw mode, since the guest's terminal does echo, line editing and
 * signals; every way out of the process that can be caught restores it. Both directions have a
 * buffer and are never waited for alone: a guest that doesn't read must not keep its output from us.
 *
 * Left out: a client that is stopped (kill -STOP) leaves the terminal raw, as ssh(1) does.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cli.h"
#include "runtime/control.h"

#define ATTACH_BUF 4096

struct flow {
	char buf[ATTACH_BUF];
	size_t off, len;
	bool eof; /* of the source, or the sink is gone */
};

struct attach {
	int tty_in, tty_out; /* the terminal */
	int stream;          /* ours */
	int sigfd;
	struct flow in, out;
	int escape; /* key that leaves, or 0 */
	bool left;
};

static struct termios saved_termios;
static bool termios_saved;
static int saved_tty;

static void restore_terminal(void)
{
	if (!termios_saved)
		return;
	/* From the background, too, where changing a terminal would stop us. */
	signal(SIGTTOU, SIG_IGN);
	(void)tcsetattr(saved_tty, TCSADRAIN, &saved_termios); /* nobody left to tell */
	termios_saved = false;
}

static void fatal_signal(int sig)
{
	restore_terminal();
	signal(sig, SIG_DFL);
	raise(sig);
}

static void raw_mode(int tty)
{
	static const int fatal[] = { SIGTERM, SIGHUP,  SIGINT, SIGQUIT, SIGABRT,
				     SIGSEGV, SIGBUS, SIGALRM, SIGUSR1, SIGUSR2 };
	struct termios t = saved_termios;

	atexit(restore_terminal);
	saved_tty = tty;
	termios_saved = true;
	for (unsigned i = 0; i < ARRAY_SIZE(fatal); i++)
		signal(fatal[i], fatal_signal);
	signal(SIGPIPE, SIG_IGN);
	cfmakeraw(&t);
	(void)tcsetattr(tty, TCSADRAIN, &t); /* then it stays cooked: ugly, not wrong */
}

struct attach *attach_begin(int tty_in, int tty_out, int *ret_fd, unsigned *rows, unsigned *cols)
{
	struct attach *a;
	struct winsize ws;
	sigset_t winch;
	int sv[2];

	if (tcgetattr(tty_in, &saved_termios) || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return NULL;
	a = kzalloc(sizeof(*a));
	a->tty_in = tty_in;
	a->tty_out = tty_out;
	a->stream = sv[0];
	*ret_fd = sv[1];
	/* Blocked before the size is read: a change in between is told later. */
	sigemptyset(&winch);
	sigaddset(&winch, SIGWINCH);
	sigprocmask(SIG_BLOCK, &winch, NULL);
	a->sigfd = signalfd(-1, &winch, SFD_CLOEXEC | SFD_NONBLOCK);
	if (ioctl(tty_in, TIOCGWINSZ, &ws) == 0 && ws.ws_row && ws.ws_col) {
		*rows = ws.ws_row;
		*cols = ws.ws_col;
	}
	return a;
}

void attach_adopt(struct attach *a)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	(void)ioctl(a->tty_in, TIOCSCTTY, 0); /* without it changes of size are not told */
	raise(SIGWINCH); /* pending: whatever happened until now is looked at first */
	for (int i = 0; i < 3; i++)
		(void)dup2(null, i); /* callers wait for these to be closed */
	(void)!chdir("/");            /* holds no directory of theirs */
	if (null > 2)
		close(null);
}

static bool temporary(void)
{
	return errno == EAGAIN || errno == EINTR;
}

/* Takes what there is; for the stream, which must not be waited for, with MSG_DONTWAIT. */
static void flow_fill(struct flow *f, int fd, bool sock)
{
	ssize_t n = sock ? recv(fd, f->buf, sizeof(f->buf), MSG_DONTWAIT) :
			   read(fd, f->buf, sizeof(f->buf));

	if (n > 0) {
		f->off = 0;
		f->len = (size_t)n;
	} else if (n == 0 || !temporary()) {
		f->eof = true;
	}
}

static void flow_drain(struct flow *f, int fd, bool sock)
{
	ssize_t n = sock ? send(fd, f->buf + f->off, f->len, MSG_DONTWAIT | MSG_NOSIGNAL) :
			   write(fd, f->buf + f->off, f->len);

	if (n >= 0) {
		f->off += (size_t)n;
		f->len -= (size_t)n;
	} else if (!temporary()) {
		f->len = 0;
		f->eof = true;
	}
}

static void tell_size(struct attach *a, void (*resize)(void *, unsigned, unsigned), void *arg)
{
	struct signalfd_siginfo si;
	struct winsize ws;

	if (read(a->sigfd, &si, sizeof(si)) > 0 && ioctl(a->tty_in, TIOCGWINSZ, &ws) == 0 &&
	    ws.ws_row && ws.ws_col)
		resize(arg, ws.ws_row, ws.ws_col);
}

/* What the guest wrote before its end still has to come out. */
static void flush_output(struct attach *a)
{
	while (!a->out.eof) {
		struct pollfd p = { .fd = a->out.len ? a->tty_out : a->stream,
				    .events = a->out.len ? POLLOUT : POLLIN };

		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return;
		if (a->out.len)
			flow_drain(&a->out, a->tty_out, false);
		else
			flow_fill(&a->out, a->stream, true);
	}
}

json_t *attach_run(struct attach *a, int control, void (*resize)(void *arg, unsigned rows, unsigned cols),
		   void *arg)
{
	raw_mode(a->tty_in);
	for (;;) {
		bool in_full = a->in.len != 0, out_full = a->out.len != 0;
		struct pollfd p[5] = {
			{ .fd = in_full || a->in.eof ? -1 : a->tty_in, .events = POLLIN },
			{ .fd = out_full ? a->tty_out : -1, .events = POLLOUT },
			{ .fd = a->stream,
			  .events = (short)((in_full ? POLLOUT : 0) | (out_full ? 0 : POLLIN)) },
			{ .fd = control, .events = POLLIN },
			{ .fd = a->sigfd, .events = POLLIN },
		};

		if (a->out.eof)
			p[2].fd = -1; /* the session's end is near: the status comes next */
		if (poll(p, 5, -1) < 0 && errno != EINTR)
			return NULL;
		if (p[4].revents)
			tell_size(a, resize, arg);
		if (p[0].revents)
			flow_fill(&a->in, a->tty_in, false);
		if (a->escape && memchr(a->in.buf + a->in.off, a->escape, a->in.len)) {
			a->left = true;
			return NULL;
		}
		if (p[1].revents)
			flow_drain(&a->out, a->tty_out, false);
		if (!out_full && (p[2].revents & (POLLIN | POLLHUP | POLLERR)))
			flow_fill(&a->out, a->stream, true);
		if (a->in.len && (p[2].revents & POLLOUT))
			flow_drain(&a->in, a->stream, true);
		if (p[3].revents) {
			json_t *rep = control_recv(control, NULL, NULL);

			flush_output(a);
			return rep;
		}
	}
}

void attach_escape(struct attach *a, int key)
{
	a->escape = key;
}

bool attach_left(const struct attach *a)
{
	return a->left;
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

/* ---- without a terminal ---- */

static void forwarded_set(sigset_t *set)
{
	static const int sigs[] = { SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2 };

	sigemptyset(set);
	for (unsigned i = 0; i < ARRAY_SIZE(sigs); i++)
		sigaddset(set, sigs[i]);
}

void client_block_signals(void)
{
	sigset_t set;

	forwarded_set(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

json_t *client_wait(int control, void (*forward)(void *arg, int sig), void *arg)
{
	sigset_t set;
	AUTO_CLOSE int sigfd = (forwarded_set(&set), signalfd(-1, &set, SFD_CLOEXEC));

	for (;;) {
		struct pollfd p[2] = { { .fd = control, .events = POLLIN },
				       { .fd = sigfd, .events = POLLIN } };
		struct signalfd_siginfo si;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return NULL;
		if (p[0].revents)
			return control_recv(control, NULL, NULL);
		if (p[1].revents && read(sigfd, &si, sizeof(si)) == (ssize_t)sizeof(si))
			forward(arg, (int)si.ssi_signo);
	}
}
