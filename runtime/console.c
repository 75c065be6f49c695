// SPDX-License-Identifier: Apache-2.0
/*
 * A guest terminal's outer end. The pty is the sentry's own (line discipline, job control and all); a
 * thread carries bytes between its master and the host descriptor at which the user's client sits.
 *
 * When the client goes away the terminal stays: output is read and kept (the last CONSOLE_BACK bytes),
 * so that the guest doesn't block, until the session is over. Another client may take its place (`attach`)
 * and gets what was kept first.
 *
 * The thread sleeps in ppoll() on the host descriptor and on an eventfd that the master's wait queue
 * rings: no polling.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/container.h"
#include "sentry/fs/devpts/devpts.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/kernel/freeze.h"
#include "sentry/state/state.h"

#define CONSOLE_BUF 4096
#define CONSOLE_BACK 65536 /* scrollback */

struct console {
	struct ref ref;
	struct file *master; /* reference */
	struct tty *tty;     /* reference of the slave's tty */
	int hostfd, bell;
	struct waiter waiter;
	_Atomic bool finish;
	_Atomic int next;      /* client that is to take over, or -1 */
	_Atomic bool over;     /* nobody takes `next` any more */
	_Atomic bool attended; /* somebody sits there */
	char *back;            /* ring of output, CONSOLE_BACK bytes; NULL before the first */
	size_t back_at, back_len; /* where the next byte goes; how many are there */
	char *replay;          /* what a new client gets first, or NULL */
	size_t replay_off, replay_len;
	char in[CONSOLE_BUF];  /* host -> guest, not taken yet */
	size_t in_off, in_len;
	char out[CONSOLE_BUF]; /* guest -> host, not taken yet */
	size_t out_off, out_len;
};

/* Relay threads that run, so that the sentry doesn't exit with output in their hands. */
static struct {
	struct mutex mu; /* RANK_CONTROL */
	struct cond none;
	int n; /* (mu) */
} relays;
static pthread_once_t relays_once = PTHREAD_ONCE_INIT;

static void relays_setup(void)
{
	mutex_init(&relays.mu, RANK_CONTROL);
	cond_init(&relays.none);
}

static void relays_add(int n)
{
	pthread_once(&relays_once, relays_setup);
	mutex_lock(&relays.mu);
	relays.n += n;
	if (!relays.n)
		cond_broadcast(&relays.none);
	mutex_unlock(&relays.mu);
}

void console_drain(int64_t deadline_ns)
{
	pthread_once(&relays_once, relays_setup);
	mutex_lock(&relays.mu);
	while (relays.n && cond_wait_until(&relays.none, &relays.mu, deadline_ns))
		;
	mutex_unlock(&relays.mu);
}

void console_put(struct console *c)
{
	if (!ref_put(&c->ref))
		return;
	if (c->hostfd >= 0)
		close(c->hostfd);
	if (c->next >= 0)
		close(c->next);
	close(c->bell);
	tty_put(c->tty);
	free(c->back);
	free(c->replay);
	free(c);
}

static void ring(struct console *c)
{
	uint64_t one = 1;

	(void)!write(c->bell, &one, sizeof(one)); /* host: write. Full means rung already */
}

static void master_changed(struct waiter *w, uint32_t events)
{
	(void)events;
	ring(container_of(w, struct console, waiter));
}

/* Copies of the descriptor (control_attach.c) learn of it, too. What is in the socket can still be read. */
static void client_gone(struct console *c)
{
	if (c->hostfd >= 0) {
		(void)shutdown(c->hostfd, SHUT_RDWR); /* host: shutdown. A pty has none */
		close(c->hostfd);
	}
	c->hostfd = -1;
	c->attended = false;
	c->in_len = c->out_len = 0;
	free(steal_ptr(&c->replay));
}

/* ---- scrollback ---- */

static void remember(struct console *c, const char *buf, size_t n)
{
	if (!c->back)
		c->back = kzalloc(CONSOLE_BACK);
	while (n) {
		size_t k = MIN(n, CONSOLE_BACK - c->back_at);

		memcpy(c->back + c->back_at, buf, k);
		c->back_at = (c->back_at + k) % CONSOLE_BACK;
		c->back_len = MIN(c->back_len + k, (size_t)CONSOLE_BACK);
		buf += k;
		n -= k;
	}
}

/* All of it in order; heap. */
static char *recall(const struct console *c)
{
	size_t from = (c->back_at + CONSOLE_BACK - c->back_len) % CONSOLE_BACK;
	char *all = kzalloc(CONSOLE_BACK);
	size_t k = MIN(c->back_len, CONSOLE_BACK - from);

	if (c->back_len) {
		memcpy(all, c->back + from, k);
		memcpy(all + k, c->back, c->back_len - k);
	}
	return all;
}

/* A new client takes over, if there is one. What it is sent first includes what the old one didn't take. */
static void change_client(struct console *c)
{
	int fd = atomic_exchange(&c->next, -1);

	if (fd < 0)
		return;
	client_gone(c);
	c->hostfd = fd;
	c->attended = true;
	c->replay = recall(c);
	c->replay_off = 0;
	c->replay_len = c->back_len;
}

/* Takes what the host has, gives it to the terminal as far as it has room. */
static void pump_in(struct console *c, bool readable)
{
	struct iter it;
	ssize_t n;

	if (!c->in_len && readable) {
		n = read(c->hostfd, c->in, sizeof(c->in)); /* host: read */
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
			client_gone(c);
			return;
		}
		c->in_off = 0;
		c->in_len = n > 0 ? (size_t)n : 0;
	}
	while (c->in_len) {
		iter_init_kernel(&it, c->in + c->in_off, c->in_len);
		n = c->master->ops->write(NULL, c->master, &it, NULL);
		if (n <= 0)
			break;
		c->in_off += (size_t)n;
		c->in_len -= (size_t)n;
	}
}

/* host: sendto (a socket) or write (a pty's slave). What can't be taken now is left; true: later. */
static bool send_some(struct console *c, const char *buf, size_t *off, size_t *len)
{
	while (*len && c->hostfd >= 0) {
		ssize_t n = send(c->hostfd, buf + *off, *len, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == ENOTSOCK)
			n = write(c->hostfd, buf + *off, *len);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return true;
		if (n < 0) {
			client_gone(c);
			break;
		}
		*off += (size_t)n;
		*len -= (size_t)n;
	}
	*len = 0;
	return false;
}

/* False when the terminal is dead: every slave is closed and nothing is left to read. */
static bool pump_out(struct console *c)
{
	struct iter it;
	ssize_t n;

	if (c->replay) {
		if (send_some(c, c->replay, &c->replay_off, &c->replay_len))
			return true;
		free(steal_ptr(&c->replay)); /* NULL already if the client went away meanwhile */
	}
	for (;;) {
		if (!c->out_len) {
			iter_init_kernel(&it, c->out, sizeof(c->out));
			n = c->master->ops->read(NULL, c->master, &it, NULL);
			if (n <= 0)
				return n == -EAGAIN;
			c->out_off = 0;
			c->out_len = (size_t)n;
			remember(c, c->out, c->out_len);
		}
		if (send_some(c, c->out, &c->out_off, &c->out_len))
			return true;
	}
}

/* Shuts out who came too late. Called by both sides, whichever sees it. */
static void refuse_next(struct console *c)
{
	int fd = atomic_exchange(&c->next, -1);

	if (fd < 0)
		return;
	(void)shutdown(fd, SHUT_RDWR); /* host: shutdown */
	close(fd);
}

static void *console_main(void *arg)
{
	struct console *c = arg;
	struct waitq *q = file_waitq(c->master);
	bool alive = true, failed;

	world_enter();
	waitq_add(q, &c->waiter);
	for (;;) {
		struct pollfd p[2] = { { .fd = c->bell, .events = POLLIN },
				       { .fd = c->hostfd } };
		uint64_t rung;

		change_client(c);
		p[1].fd = c->hostfd;
		/* A dead terminal may come back to life: a session can reopen its slave. */
		alive = pump_out(c);
		if (c->finish && (!alive || (!c->out_len && !c->replay && !(file_poll(c->master) & EPOLLIN))))
			break;
		p[1].fd = c->hostfd;
		if (!c->in_len)
			p[1].events |= POLLIN;
		if (c->out_len || c->replay)
			p[1].events |= POLLOUT;
		world_leave();
		failed = poll(p, 2, -1) < 0 && errno != EINTR; /* host: ppoll */
		world_enter();
		if (failed)
			break;
		if (p[0].revents)
			(void)!read(c->bell, &rung, sizeof(rung)); /* host: read */
		if (c->hostfd >= 0 || c->in_len)
			pump_in(c, c->hostfd >= 0 &&
					   (p[1].revents & (POLLIN | POLLHUP | POLLERR)) != 0);
	}
	waitq_remove(q, &c->waiter);
	file_put(c->master);
	client_gone(c);
	c->over = true;
	refuse_next(c);
	console_put(c);
	world_leave();
	relays_add(-1);
	return NULL;
}

static bool start_thread(struct console *c)
{
	pthread_t th;

	ref_get(&c->ref); /* the thread's */
	relays_add(1);
	if (pthread_create(&th, NULL, console_main, c)) {
		relays_add(-1);
		return false;
	}
	pthread_detach(th);
	return true;
}

static void begin(struct console *c)
{
	c->waiter = (struct waiter){ .mask = ~0u, .wake = master_changed };
	c->next = -1;
	c->attended = c->hostfd >= 0;
	ref_init(&c->ref);
}

/* Keeps what was output before in an image, oldest first. */
static void back_fields(struct state *s, struct console *c)
{
	uint32_t n = state_count(s, (uint32_t)c->back_len, CONSOLE_BACK);
	AUTO_FREE char *all = state_loading(s) ? kzalloc(CONSOLE_BACK) : recall(c);

	state_bytes(s, all, n);
	if (state_loading(s) && n)
		remember(c, all, n);
}

struct console *console_start(struct super *devpts, int hostfd, unsigned rows, unsigned cols,
			      struct file **ret_slave, struct tty **ret_tty)
{
	struct console *c = kzalloc(sizeof(*c));

	c->hostfd = hostfd;
	c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); /* host: eventfd2 */
	if (c->bell < 0 || !devpts || console_create(devpts, &c->master, ret_slave, ret_tty)) {
		if (c->bell >= 0)
			close(c->bell);
		close(hostfd);
		free(c);
		return NULL;
	}
	c->tty = *ret_tty;
	if (rows && cols)
		tty_set_winsize(c->tty, rows, cols);
	begin(c);
	if (!start_thread(c)) {
		file_put(c->master);
		file_put(*ret_slave);
		tty_put(c->tty);
		close(c->bell);
		close(hostfd);
		free(c);
		return NULL;
	}
	return c;
}

/* Bytes on their way are part of it; who sits at the outer end is not. */
static void buffer_fields(struct state *s, char *buf, size_t *off, size_t *len)
{
	uint32_t n = state_count(s, (uint32_t)*len, CONSOLE_BUF);

	if (state_loading(s)) {
		*off = 0;
		*len = n;
	}
	state_bytes(s, buf + *off, n);
}

void console_fields(struct state *s, struct console **pc)
{
	struct console *c = *pc;
	bool there = c;

	state_bool(s, &there);
	if (!there)
		return;
	if (state_loading(s)) {
		*pc = c = kzalloc(sizeof(*c));
		c->hostfd = c->bell = -1;
		begin(c);
	}
	state_ref(s, &state_file, &c->master);
	state_ref(s, &state_tty, &c->tty);
	buffer_fields(s, c->in, &c->in_off, &c->in_len);
	buffer_fields(s, c->out, &c->out_off, &c->out_len);
	if (!state_loading(s) || state_version(s) >= 2)
		back_fields(s, c);
	if (!c->master || !c->tty)
		state_fail(s, "a console without a terminal");
}

bool console_revive(struct console *c, int hostfd)
{
	c->hostfd = hostfd;
	c->attended = hostfd >= 0;
	c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); /* host: eventfd2 */
	return c->bell >= 0 && start_thread(c);
}

struct console *console_get(struct console *c)
{
	ref_get(&c->ref);
	return c;
}

void console_attach(struct console *c, int hostfd)
{
	int old = atomic_exchange(&c->next, hostfd);

	if (old >= 0) {
		(void)shutdown(old, SHUT_RDWR); /* host: shutdown */
		close(old);
	}
	if (c->over)
		refuse_next(c);
	ring(c);
}

bool console_attended(const struct console *c)
{
	return c->attended;
}

struct tty *console_tty(const struct console *c)
{
	return c->tty;
}

void console_resize(struct console *c, unsigned rows, unsigned cols)
{
	tty_set_winsize(c->tty, rows, cols);
}

void console_finish(struct console *c)
{
	c->finish = true;
	ring(c);
	console_put(c);
}
