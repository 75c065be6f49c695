// SPDX-License-Identifier: Apache-2.0
/*
 * The control request "snapshots": the keeper serves what guests ask for in /proc/holdfast/snapshot.
 *
 *   {op: snapshots}                   the connection stays; on it, in turn:
 *   -> {nr, name}                     a guest asks
 *   <- {nr, take: true}               images taken from now on are the answer
 *   <- {nr, errno}                    it is made (0), or why not
 *
 * One server at a time. When it goes, guests' requests fail.
 */
#include "base/mutex.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/snapshot_request.h"

#include <sys/socket.h>

static struct {
	struct mutex mu; /* RANK_CONTROL */
	int sock;        /* (mu) the server's; -1: none yet, or no more */
} server = { .sock = -1 };

/* With what it is about to be told in the connection's buffer at most once, nobody waits here. */
static void notify(void)
{
	char name[SNAPSHOT_NAME_MAX + 1];
	int64_t nr = snapshot_request_get(name);
	json_t *msg;

	AUTO_LOCK(&server.mu);
	if (server.sock < 0 || !nr)
		return; /* it is told when it comes */
	msg = json_pack("{s:I, s:s}", "nr", (json_int_t)nr, "name", name);
	(void)control_send(server.sock, msg, NULL, 0); /* one that has gone is noticed by who serves it */
	json_decref(msg);
}

void control_snapshots_allow(void)
{
	mutex_init(&server.mu, RANK_CONTROL);
	snapshot_request_allow(notify);
}

static bool begin(int sock)
{
	AUTO_LOCK(&server.mu);
	if (server.sock >= 0)
		return false;
	server.sock = sock;
	return true;
}

void control_snapshots_end(void)
{
	if (!snapshot_request_allowed())
		return;
	AUTO_LOCK(&server.mu);
	if (server.sock >= 0)
		shutdown(server.sock, SHUT_RDWR); /* host: shutdown. Ends control_snapshots() */
}

static void answer(const json_t *msg)
{
	int64_t nr = json_integer_value(json_object_get(msg, "nr"));
	json_int_t err = json_integer_value(json_object_get(msg, "errno"));

	world_enter();
	if (json_is_true(json_object_get(msg, "take")))
		snapshot_request_take(nr);
	else
		snapshot_request_end(nr, err > 0 && err < 4096 ? -(int)err : 0);
	world_leave();
}

void control_snapshots(struct control_request *r)
{
	json_t *msg = NULL;

	if (!snapshot_request_allowed() || !begin(r->sock)) {
		msg = json_pack("{s:s}", "error", "guests may not ask for snapshots, or somebody serves them already");
		(void)control_send(r->sock, msg, NULL, 0); /* a client that has gone needs no answer */
		json_decref(msg);
		return;
	}
	notify();
	while ((msg = control_recv(r->sock, NULL, NULL))) {
		answer(msg);
		json_decref(msg);
	}
	mutex_lock(&server.mu);
	server.sock = -1;
	mutex_unlock(&server.mu);
	world_enter();
	snapshot_request_close();
	world_leave();
}
