// SPDX-License-Identifier: Apache-2.0
/*
 * Saving unix sockets: connections, what waits to be accepted, queues with everything that travels in them
 * (data, files, credentials), names. Sockets in flight in each other's queues are objects like any other, so
 * circles come back as circles; what is in flight is counted again.
 *
 * Names of the file system are tied to their inodes in phase 4, when all names are there.
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/socket/unix/unix_priv.h"
#include "sentry/vfs/vfs_state.h"

#define MESSAGES_MAX (1u << 20)       /* in one queue */
#define MESSAGE_MAX (2u * SOCK_BUF_FORCE_MAX)

/* ---- what travels ---- */

static void cred_fields(struct state *s, struct unix_cred *c)
{
	state_ref(s, &state_pid, &c->pid);
	state_u32(s, &c->uid);
	state_u32(s, &c->gid);
}

static struct scm *scm_fields(struct state *s, struct scm *scm)
{
	uint32_t n = state_count(s, scm ? scm->nfiles : 0, UNIX_SCM_MAX_FD);

	if (state_loading(s)) {
		scm = kzalloc(sizeof(*scm) + n * sizeof(scm->files[0]));
		list_init(&scm->node);
		scm->nfiles = n;
	}
	state_bool(s, &scm->has_cred);
	cred_fields(s, &scm->cred);
	for (uint32_t i = 0; i < n && state_ok(s); i++) {
		state_ref(s, &state_file, &scm->files[i]);
		if (!scm->files[i])
			state_fail(s, "no file in flight");
	}
	return scm;
}

/* Messages have a sender, to whom they are charged; pieces of a stream have room to grow. */
static struct unix_buf *buf_make(struct state *s, struct unix_sock *from, size_t len, size_t cap)
{
	struct unix_buf *b;

	if (cap < len || cap > MESSAGE_MAX) {
		state_fail(s, "message of %zu bytes", cap);
		return NULL;
	}
	b = unix_buf_alloc(from ? len : cap);
	if (!b) {
		state_fail(s, "no memory for what is in flight");
		return NULL;
	}
	list_init(&b->node);
	b->from = from;
	b->len = len;
	b->cap = cap;
	return b;
}

static void buf_fields(struct state *s, struct unix_sock *u, struct unix_buf *b)
{
	struct unix_sock *from = b ? b->from : NULL;
	uint64_t len = b ? b->len : 0, cap = b ? b->cap : 0;
	bool has_scm = b && b->scm;

	state_ref(s, &state_sock_unix, &from);
	state_u64(s, &len);
	state_u64(s, &cap);
	state_bool(s, &has_scm);
	if (state_loading(s))
		b = state_ok(s) ? buf_make(s, from, len, cap) : NULL;
	if (!b)
		return;
	if (has_scm)
		b->scm = scm_fields(s, b->scm);
	state_bytes(s, b->data + b->off, len);
	if (!state_loading(s))
		return;
	if (from)
		atomic_fetch_add(&from->wmem, cap);
	list_add_tail(&u->rq, &b->node);
	u->rq_bytes += len;
	u->rq_msgs++;
}

static void queue_fields(struct state *s, struct unix_sock *u)
{
	struct unix_buf *b;
	uint32_t n = 0;

	list_for_each (b, &u->rq, node)
		n++;
	n = state_count(s, n, MESSAGES_MAX);
	for (; state_loading(s) && n && state_ok(s); n--)
		buf_fields(s, u, NULL);
	if (state_loading(s))
		return;
	list_for_each (b, &u->rq, node)
		buf_fields(s, u, b);
}

/* ---- connections ---- */

static void accept_fields(struct state *s, struct unix_sock *u)
{
	struct unix_sock *e;
	uint32_t n = state_count(s, u->accept_n, SOCK_SOMAXCONN + 1);

	state_u32(s, &u->backlog);
	for (; state_loading(s) && n && state_ok(s); n--) {
		e = NULL;
		state_ref(s, &state_sock_unix, &e);
		if (!e || !list_empty(&e->accept_node)) {
			state_fail(s, "connection in two queues");
			return;
		}
		list_add_tail(&u->accept_q, &e->accept_node);
		u->accept_n++;
	}
	if (state_loading(s))
		return;
	list_for_each (e, &u->accept_q, accept_node)
		state_ref(s, &state_sock_unix, &e);
}

/* Accepted sockets share their listener's name without being found by it. */
static void name_fields(struct state *s, struct unix_sock *u)
{
	void *name = u->name;
	size_t len = name ? u->name_len : 0;
	bool found_by_it = u->hh.tbl;

	state_blob(s, &name, &len, sizeof(struct sockaddr_un));
	state_bool(s, &found_by_it);
	state_path(s, &u->path);
	if (!state_loading(s) || !name)
		return;
	u->name = kzalloc(sizeof(struct sockaddr_un));
	memcpy(u->name, name, len);
	u->name_len = (unsigned)len;
	free(name);
	if (len <= offsetof(struct sockaddr_un, sun_path) || u->name->sun_family != AF_UNIX)
		state_fail(s, "impossible name of a socket");
	else if (found_by_it && (!unix_is_abstract(u->name, u->name_len) || !u->sk.net ||
				 !unix_restore_abstract(u)))
		state_fail(s, "two sockets of one name");
}

static void *unix_state_alloc(struct state *s)
{
	(void)s;
	return &unix_alloc_bare()->sk;
}

static void type_fields(struct state *s, struct unix_sock *u)
{
	int64_t type = u->sk.type, state = u->state;

	state_range_i64(s, &type, SOCK_STREAM, SOCK_SEQPACKET);
	state_range_i64(s, &state, UNIX_FREE, UNIX_CONNECTED);
	if (!state_loading(s))
		return;
	if (type != SOCK_STREAM && type != SOCK_DGRAM && type != SOCK_SEQPACKET)
		state_fail(s, "impossible type of socket");
	/* A connect() that was under way begins again. */
	u->state = state == UNIX_CONNECTING ? UNIX_FREE : (int)state;
	unix_set_type(u, (int)type);
}

static void unix_fields(struct state *s, void *obj)
{
	struct unix_sock *u = unix_of(obj), *peer = u->peer;

	socket_state_fields(s, &u->sk);
	type_fields(s, u);
	state_ref(s, &state_sock_unix, &peer);
	u->peer = peer;
	state_bool(s, &u->dead);
	state_bool(s, &u->rcv_shut);
	state_bool(s, &u->snd_shut);
	queue_fields(s, u);
	accept_fields(s, u);
	name_fields(s, u);
	cred_fields(s, &u->peercred);
	state_ref(s, &state_cred, &u->peergroups);
}

static bool sane(const struct unix_sock *u)
{
	const struct unix_sock *e;

	if (u->peer && u->peer->sk.type != u->sk.type)
		return false;
	if (u->sk.type != SOCK_DGRAM && u->state == UNIX_CONNECTED && !u->peer && !u->dead)
		return false;
	if (!list_empty(&u->accept_q) && u->state != UNIX_LISTEN)
		return false;
	list_for_each (e, &u->accept_q, accept_node)
		if (e->sk.type != u->sk.type || e->state == UNIX_LISTEN)
			return false;
	return u->state != UNIX_LISTEN || u->name;
}

static void finish_path(struct state *s, struct unix_sock *u)
{
	struct inode *inode = u->path.dentry ? dentry_inode(u->path.dentry) : NULL;

	if (!inode)
		return;
	if (!S_ISSOCK(inode->mode) || inode->sock)
		state_fail(s, "two sockets of one name");
	inode->sock = u;
}

static void unix_finish(struct state *s, void *obj)
{
	struct unix_sock *u = unix_of(obj);
	struct unix_buf *b;

	if (!sane(u)) {
		state_fail(s, "impossible socket");
		return;
	}
	unix_enter_net(u);
	if (u->sk.type == SOCK_DGRAM && u->peer)
		list_add_tail(&u->peer->clients, &u->client_node);
	finish_path(s, u);
	list_for_each (b, &u->rq, node)
		if (b->scm && b->scm->nfiles)
			unix_inflight_restore(b->scm);
}

const struct state_type state_sock_unix = {
	.id = STATE_SOCK_UNIX,
	.version = 1,
	.name = "unix socket",
	.alloc = unix_state_alloc,
	.fields = unix_fields,
	.finish = unix_finish,
	.get = socket_state_get,
	.put = socket_state_put,
	.phase = 4,
};
