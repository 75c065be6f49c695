// SPDX-License-Identifier: Apache-2.0
/*
 * The control request "attach": the client's stream becomes the outer end of a session's terminal.
 *
 *   {op: attach, session, rows, cols}  with a stream socket
 *
 * The answer {ok, session} comes at once; then {rows, cols} may follow from the client, and at last one of
 * {ok, status} when the session is over and {ok, replaced} when another client has attached. The connection's
 * end takes the client from the terminal.
 *
 * The thread here has no part in the bytes. It holds a copy of the stream and learns from its hang-up that
 * the console has let go of it (console.c shuts it down).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"

struct seat {
	struct container *c;
	unsigned number;
	struct console *console; /* reference */
	struct task *leader;     /* reference */
};

static void reply(int sock, json_t *json)
{
	(void)control_send(sock, json, NULL, 0); /* a client that has gone needs no answer */
	json_decref(json);
}

/* Those that have a terminal, as "0, 2". Heap. Context: c->mu. */
static char *terminals(struct container *c)
{
	char *all = kstrdup(c->init->console ? "0" : "");
	struct session *s;

	list_for_each(s, &c->sessions, node) {
		char *more = all;

		if (!s->console)
			continue;
		all = kasprintf("%s%s%u", more, *more ? ", " : "", s->number);
		free(more);
	}
	return all;
}

/* Session @number, or where that is negative the first process's, else the newest with a terminal. */
static struct session *find(struct container *c, json_int_t number)
{
	struct session *s;

	if (number <= 0 && (number == 0 || c->init->console))
		return c->init;
	list_for_each(s, &c->sessions, node)
		if (number < 0 ? s->console != NULL : s->number == number)
			return s;
	return NULL;
}

static bool take_seat(struct seat *seat, json_int_t number, char **ret_why)
{
	struct container *c = seat->c;
	struct session *s;
	bool ok;

	world_enter();
	mutex_lock(&c->mu);
	s = c->stopped ? NULL : find(c, number);
	ok = s && s->console && s->leader;
	if (ok) {
		seat->console = console_get(s->console);
		seat->leader = task_get(s->leader);
		seat->number = s->number;
	} else if (c->stopped) {
		*ret_why = kstrdup("container not running");
	} else {
		AUTO_FREE char *have = terminals(c);

		*ret_why = *have ? kasprintf("no such session with a terminal (there are: %s)", have) :
				   kstrdup("it has no session with a terminal");
	}
	mutex_unlock(&c->mu);
	world_leave();
	return ok;
}

static void resize(struct seat *seat, json_t *req)
{
	unsigned rows = (unsigned)json_integer_value(json_object_get(req, "rows"));
	unsigned cols = (unsigned)json_integer_value(json_object_get(req, "cols"));

	if (!rows || !cols)
		return;
	world_enter();
	console_resize(seat->console, rows, cols);
	world_leave();
}

/* Until the client goes, or the console lets go of the stream: true. */
static bool sit(struct seat *seat, int sock, int stream)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = sock, .events = POLLIN }, { .fd = stream } };
		json_t *req;

		if (poll(p, 2, -1) < 0 && errno != EINTR) /* host: poll */
			return false;
		if (p[1].revents)
			return true;
		if (!p[0].revents)
			continue;
		req = control_recv(sock, NULL, NULL);
		if (!req)
			return false;
		resize(seat, req);
		json_decref(req);
	}
}

/* Has the session ended (its console is let go of after that)? Its status for a shell, or -1. */
static int status_of(struct seat *seat)
{
	bool over;

	mutex_lock(&kernel.tasks_mu);
	over = seat->leader->tg->zombie;
	mutex_unlock(&kernel.tasks_mu);
	return over ? container_exit_code(tgroup_wait_exit(seat->leader->tg)) : -1;
}

static void serve(struct seat *seat, int sock, int stream, json_t *req)
{
	AUTO_CLOSE int copy = fcntl(stream, F_DUPFD_CLOEXEC, 3); /* host: fcntl */
	int status;

	reply(sock, json_pack("{s:b, s:i}", "ok", 1, "session", (int)seat->number));
	resize(seat, req);
	console_attach(seat->console, stream);
	seat->c->attended += seat->number != 0; /* the first one's console is counted itself */
	if (!sit(seat, sock, copy)) {
		(void)shutdown(copy, SHUT_RDWR); /* host: shutdown */
	} else {
		status = status_of(seat);
		reply(sock, status >= 0 ? json_pack("{s:b, s:i}", "ok", 1, "status", status) :
					  json_pack("{s:b, s:b}", "ok", 1, "replaced", 1));
	}
	seat->c->attended -= seat->number != 0;
}

void control_attach(struct control_request *r)
{
	json_t *number = json_object_get(r->json, "session");
	struct seat seat = { .c = r->c };
	AUTO_FREE char *why = NULL;

	if (r->nfds != 1)
		why = kstrdup("malformed request");
	if (why || !take_seat(&seat, json_is_integer(number) ? json_integer_value(number) : -1, &why)) {
		reply(r->sock, json_pack("{s:s}", "error", why));
		return;
	}
	r->nfds = 0;
	serve(&seat, r->sock, r->fds[0], r->json);
	world_enter();
	console_put(seat.console);
	task_put(seat.leader);
	world_leave();
}
