// SPDX-License-Identifier: Apache-2.0
/*
 * Saving sockets: what all families share, the list of families, and the open file. A family's own state is
 * beside it.
 */
#include "sentry/socket/socket.h"
#include "sentry/vfs/vfs_state.h"

static const struct state_type *type_of(const void *obj)
{
	return ((const struct socket *)obj)->ops->state;
}

static const struct state_type *const types[] = {
	&state_sock_unix,
	&state_sock_netlink,
	NULL,
};

const struct state_class state_socket_class = {
	.name = "socket",
	.type_of = type_of,
	.types = types,
};

void *socket_state_get(void *sk)
{
	return socket_get(sk);
}

void socket_state_put(void *sk)
{
	socket_put(sk);
}

static void word(struct state *s, _Atomic int *v)
{
	int32_t w = *v;

	state_i32(s, &w);
	*v = w;
}

static void size(struct state *s, _Atomic uint32_t *v)
{
	uint32_t w = *v;

	state_u32(s, &w);
	*v = w;
	if (w > 2 * SOCK_BUF_FORCE_MAX)
		state_fail(s, "socket buffer of %u bytes", w);
}

static void timeout(struct state *s, _Atomic int64_t *v)
{
	int64_t t = *v;

	state_range_i64(s, &t, 0, DEADLINE_NONE);
	*v = t;
}

void socket_state_fields(struct state *s, struct socket *sk)
{
	uint32_t flags = sk->flags;

	state_ref(s, &state_netns, &sk->net);
	state_i32(s, &sk->protocol);
	word(s, &sk->err);
	state_u32(s, &flags);
	sk->flags = flags;
	size(s, &sk->sndbuf);
	size(s, &sk->rcvbuf);
	timeout(s, &sk->sndtimeo_ns);
	timeout(s, &sk->rcvtimeo_ns);
	word(s, &sk->rcvlowat);
	word(s, &sk->peek_off);
	word(s, &sk->mark);
	word(s, &sk->priority);
	word(s, &sk->linger_on);
	word(s, &sk->linger_s);
	word(s, &sk->busy_poll);
	word(s, &sk->incoming_cpu);
	state_u64(s, &sk->ino);
	if (!sk->net)
		state_fail(s, "socket in no network namespace");
}

static void file_fields(struct state *s, struct file *f)
{
	struct socket *sk = state_loading(s) ? NULL : f->priv;

	state_ref_in(s, &state_socket_class, &sk);
	f->priv = sk;
}

static void file_finish(struct state *s, struct file *f)
{
	struct socket *sk = f->priv;

	if (!sk || sk->file) {
		state_fail(s, "file of no socket");
		return;
	}
	sk->file = f;
	(void)file_state_on(s, f, &state_inode_pseudo);
}

const struct file_state file_state_socket = {
	.id = FILE_SOCKET,
	.ops = &socket_fops,
	.fields = file_fields,
	.finish = file_finish,
};
