// SPDX-License-Identifier: Apache-2.0
/* attach: one's own terminal against one that a container has. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/cli.h"
#include "runtime/control.h"
#include "runtime/errno_text.h"
#include "runtime/park.h"

#define LEAVE_KEY 0x1d /* Ctrl-], as in telnet(1) */
#define NO_STATUS 255

static const struct opt no_opts[] = { { 0 } };

static void send_resize(void *arg, unsigned rows, unsigned cols)
{
	json_t *req = json_pack("{s:i, s:i}", "rows", (int)rows, "cols", (int)cols);

	(void)control_send(*(int *)arg, req, NULL, 0); /* a size that got lost is no failure */
	json_decref(req);
}

/* The session's number or -1: not said; -2: malformed. */
static long parse_session(const char *s)
{
	char *end = NULL;
	unsigned long n = s ? strtoul(s, &end, 10) : 0;

	if (!s)
		return -1;
	return *s < '0' || *s > '9' || *end || n > INT32_MAX ? -2 : (long)n;
}

/* Asks for the seat; false with *ret_why. */
static bool ask(int sock, long session, int stream, unsigned rows, unsigned cols, char **ret_why)
{
	json_t *req = json_pack("{s:s, s:i, s:i}", "op", "attach", "rows", (int)rows, "cols", (int)cols);
	const char *error;
	json_t *rep;

	if (session >= 0)
		json_object_set_new(req, "session", json_integer(session));
	rep = control_call(sock, req, &stream, 1);
	error = json_string_value(json_object_get(rep, "error"));
	if (!rep || error)
		*ret_why = kstrdup(error ?: "container not running");
	json_decref(req);
	json_decref(rep);
	return !*ret_why;
}

static int follow(struct attach *a, int sock)
{
	json_t *rep;
	int status = NO_STATUS;

	attach_escape(a, LEAVE_KEY);
	rep = attach_run(a, sock, send_resize, &sock);
	if (attach_left(a))
		status = 0;
	else if (json_is_integer(json_object_get(rep, "status")))
		status = (int)json_integer_value(json_object_get(rep, "status"));
	attach_end(a);
	if (json_is_true(json_object_get(rep, "replaced")))
		fprintf(stderr, "\nholdfast: somebody else has attached\n");
	json_decref(rep);
	return status;
}

static int attach(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	long session = parse_session(argc > 1 ? argv[1] : NULL);
	AUTO_CLOSE int sock = s && session >= -1 ? park_connect(s) : -1;
	unsigned rows = 0, cols = 0;
	AUTO_FREE char *why = NULL;
	struct attach *a;
	bool ok;
	int fd;

	if (!s)
		return NO_STATUS;
	if (session < -1)
		return cli_fail("attach: a session is a number"), NO_STATUS;
	if (sock < 0)
		return cli_fail("cannot attach to container %s: container not running", s->id), NO_STATUS;
	a = attach_begin(0, 1, &fd, &rows, &cols);
	if (!a)
		return cli_fail("attach needs a terminal on standard input"), NO_STATUS;
	ok = ask(sock, session, fd, rows, cols, &why);
	close(fd);
	if (ok)
		return follow(a, sock);
	attach_end(a);
	return cli_fail("cannot attach to container %s: %s", s->id, why), NO_STATUS;
}

const struct command cmd_attach = {
	.name = "attach",
	.synopsis = "ID [SESSION]",
	.summary = "connect your terminal to one that a container has",
	.details =
		"  To that of the container's first process (session 0), or of a process that `exec -t` has\n"
		"  started (1, 2 ... in order; without SESSION the first process's, else the newest). The last\n"
		"  64 KiB of its output come first. Who was connected before is shut out.\n"
		"  Ctrl-] leaves, and the process goes on. A suspended container is woken.",
	.status = "  The process's, when it ended meanwhile; 0 when you left; else 255.",
	.opts = no_opts,
	.min_args = 1,
	.max_args = 2,
	.run = attach,
};
