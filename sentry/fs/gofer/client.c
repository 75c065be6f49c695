// SPDX-License-Identifier: Apache-2.0
/*
 * The channel to a gofer. Requests carry an id, so many may be under way. There is no
 * reader thread, which would cost two thread switches for each call: of the threads that
 * wait for a reply, one holds the receive role, and hands replies of others to them; when
 * its own has come, the role is free and one of the others takes it.
 *
 * The gofer is trusted no more than the files that it serves: its replies go through a
 * cursor, and a nonsensical one makes the channel dead (-EIO from then on).
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "sentry/fs/gofer/priv.h"

struct gofer_call *call_begin(struct gofer_client *c, enum gofer_op op)
{
	struct gofer_call *call = NULL;

	mutex_lock(&c->mu);
	if (!list_empty(&c->cache)) {
		call = list_first(&c->cache, struct gofer_call, node);
		list_del(&call->node);
		c->ncache--;
	}
	mutex_unlock(&c->mu);
	if (!call) {
		call = kzalloc(sizeof(*call));
		list_init(&call->node);
	}
	call->done = false;
	call->nfds = 0;
	writer_init(&call->w, call->buf, sizeof(call->buf));
	push_u32(&call->w, 0); /* id: set when it is sent */
	push_u16(&call->w, (uint16_t)op);
	push_u16(&call->w, 0);
	return call;
}

void call_end(struct gofer_client *c, struct gofer_call *call)
{
	for (unsigned i = 0; i < call->nfds; i++)
		if (call->fds[i] >= 0)
			close(call->fds[i]); /* host: close */
	mutex_lock(&c->mu);
	if (c->ncache < CALL_CACHE_MAX) {
		list_add(&c->cache, &call->node);
		c->ncache++;
		call = NULL;
	}
	mutex_unlock(&c->mu);
	free(call);
}

int call_take_fd(struct gofer_call *call, unsigned i)
{
	if (i >= call->nfds)
		return -ENFILE; /* see receive() */
	int fd = call->fds[i];
	call->fds[i] = -1;
	return fd;
}

static void die_locked(struct gofer_client *c, const char *why)
{
	mutex_assert_held(&c->mu);
	if (!c->dead)
		log_error("gofer: connection lost: %s", why);
	c->dead = true;
	cond_broadcast(&c->cond);
}

/* One message into @in (whose id and done are left alone). Bytes, or -errno. */
static ssize_t receive(int sock, struct gofer_call *in)
{
	union {
		char raw[CMSG_SPACE(sizeof(int) * GOFER_FDS_MAX)];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = in->reply, .iov_len = sizeof(in->reply) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.raw,
			      .msg_controllen = sizeof(control.raw) };
	ssize_t n;

	in->nfds = 0;
	do {
		n = HOST(RECV, recvmsg(sock, &msg, MSG_CMSG_CLOEXEC));
	} while (n < 0 && errno == EINTR);
	if (n <= 0)
		return n < 0 ? -errno : -EPIPE;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		in->nfds = (unsigned)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(in->fds, CMSG_DATA(h), in->nfds * sizeof(int));
	}
	/* MSG_CTRUNC: we have no room for more descriptors. That is the guest's doing, and the failure
	 * of this one call. */
	if ((msg.msg_flags & MSG_TRUNC) || n < GOFER_HDR_SIZE)
		return -EPROTO;
	return n;
}

/* Gives the message in @in to the call that waits for it. */
static void dispatch_locked(struct gofer_client *c, struct gofer_call *in, size_t len)
{
	struct gofer_call *call;
	struct cursor cur;

	cursor_init(&cur, in->reply, len);
	uint32_t id = pull_u32(&cur);
	list_for_each(call, &c->pending, node) {
		if (call->id != id)
			continue;
		list_del(&call->node);
		if (call != in) {
			memcpy(call->reply, in->reply, len);
			memcpy(call->fds, in->fds, in->nfds * sizeof(int));
			call->nfds = in->nfds;
			in->nfds = 0;
		}
		call->len = len;
		call->done = true;
		return;
	}
	die_locked(c, "reply to nothing");
}

/*
 * Receives until @call is done. The receiver uses its own call's buffer for whatever
 * comes: it is free until its own reply is there, which ends the loop.
 */
static void wait_reply_locked(struct gofer_client *c, struct gofer_call *call)
{
	while (!call->done && !c->dead) {
		if (c->receiving) {
			cond_wait(&c->cond, &c->mu);
			continue;
		}
		c->receiving = true;
		mutex_unlock(&c->mu);
		ssize_t n = receive(c->sock, call);
		mutex_lock(&c->mu);
		c->receiving = false;
		if (n < 0)
			die_locked(c, strerror((int)-n));
		else
			dispatch_locked(c, call, (size_t)n);
		/* Wakes those whose reply came, and one more to take the role: they can't
		 * be told apart, and are few. */
		if (!list_empty(&c->pending) || call->done == false)
			cond_broadcast(&c->cond);
		else
			cond_signal(&c->cond);
	}
}

static int send_request(int sock, struct gofer_call *call)
{
	ssize_t n;

	do {
		n = HOST(SEND, send(sock, call->buf, call->w.used, MSG_NOSIGNAL));
		stat_inc(STAT_GOFER_RPC);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

int call_run(struct gofer_client *c, struct gofer_call *call)
{
	struct writer id;

	if (!writer_ok(&call->w))
		return -E2BIG; /* names and values of the guest's that don't fit */
	mutex_lock(&c->mu);
	if (c->dead) {
		mutex_unlock(&c->mu);
		return -EIO;
	}
	call->id = c->next_id++;
	writer_init(&id, call->buf, sizeof(call->id));
	push_u32(&id, call->id);
	list_add_tail(&c->pending, &call->node);
	/* Sent without the lock: a full socket must not stop the others from receiving. */
	mutex_unlock(&c->mu);
	int err = send_request(c->sock, call);
	mutex_lock(&c->mu);
	if (err)
		die_locked(c, strerror(-err));
	wait_reply_locked(c, call);
	list_del(&call->node);
	bool done = call->done;
	mutex_unlock(&c->mu);
	if (!done)
		return -EIO;

	cursor_init(&call->r, call->reply, call->len);
	pull_u32(&call->r);
	err = (int)pull_u32(&call->r);
	if (err > 0 || err < -MAX_ERRNO)
		return -EIO;
	return err;
}

static int hello(struct gofer_client *c)
{
	struct gofer_call *call = call_begin(c, GOFER_HELLO);

	push_u32(&call->w, GOFER_VERSION);
	int err = call_run(c, call);
	if (!err) {
		uint32_t version = pull_u32(&call->r), n = pull_u32(&call->r);

		if (version != GOFER_VERSION || n > GOFER_ATTACH_MAX)
			err = -EPROTO;
		else
			c->attach = kcalloc(n ? n : 1, sizeof(*c->attach));
		for (unsigned i = 0; i < n && !err; i++) {
			c->attach[i].node = pull_u64(&call->r);
			c->attach[i].readonly = pull_u8(&call->r) != 0;
			gofer_pull_attr(&call->r, &c->attach[i].attr);
		}
		c->nattach = n;
		if (!err && !cursor_done(&call->r))
			err = -EPROTO;
	}
	call_end(c, call);
	return err;
}

static pthread_mutex_t clients_mu = PTHREAD_MUTEX_INITIALIZER; /* a leaf */
static struct list clients = LIST_INIT(clients);               /* (clients_mu) */
static unsigned next_index;                                    /* (clients_mu) */

static void clients_add(struct gofer_client *c)
{
	pthread_mutex_lock(&clients_mu);
	c->index = next_index++;
	list_add_tail(&clients, &c->clients_node);
	pthread_mutex_unlock(&clients_mu);
}

static void clients_del(struct gofer_client *c)
{
	pthread_mutex_lock(&clients_mu);
	list_del(&c->clients_node);
	pthread_mutex_unlock(&clients_mu);
}

void gofer_client_set_index(struct gofer_client *c, unsigned index)
{
	pthread_mutex_lock(&clients_mu);
	c->index = index;
	next_index = MAX(next_index, index + 1);
	pthread_mutex_unlock(&clients_mu);
}

void gofer_client_set_attaches(struct gofer_client *c, unsigned *v, unsigned n)
{
	free(c->loaded);
	c->loaded = v;
	c->nloaded = n;
}

unsigned gofer_loaded_attach(const struct gofer_client *c, unsigned saved)
{
	unsigned here = saved < c->nloaded ? c->loaded[saved] : UINT_MAX;

	return here < gofer_nattach(c) ? here : UINT_MAX;
}

struct gofer_client *gofer_client_find(unsigned index)
{
	struct gofer_client *c, *found = NULL;

	pthread_mutex_lock(&clients_mu);
	list_for_each(c, &clients, clients_node)
		if (!found && c->index == index && ref_get_unless_zero(&c->ref))
			found = c;
	pthread_mutex_unlock(&clients_mu);
	return found;
}

struct gofer_client *gofer_client_create(int sock)
{
	struct gofer_client *c = kzalloc(sizeof(*c));

	ref_init(&c->ref);
	c->sock = sock;
	clients_add(c);
	mutex_init(&c->mu, RANK_GOFER);
	cond_init(&c->cond);
	list_init(&c->pending);
	list_init(&c->cache);
	int err = hello(c);
	if (err) {
		gofer_client_put(c);
		return err_ptr(err);
	}
	return c;
}

struct gofer_client *gofer_client_get(struct gofer_client *c)
{
	ref_get(&c->ref);
	return c;
}

void gofer_client_put(struct gofer_client *c)
{
	if (!c || !ref_put(&c->ref))
		return;
	clients_del(c);
	while (!list_empty(&c->cache)) {
		struct gofer_call *call = list_first(&c->cache, struct gofer_call, node);

		list_del(&call->node);
		free(call);
	}
	for (unsigned i = 0; i < c->nmem; i++) {
		close(c->mem[i][0]);
		close(c->mem[i][1]);
	}
	close(c->sock);
	cond_fini(&c->cond);
	mutex_fini(&c->mu);
	free(c->attach);
	free(c->loaded);
	free(c);
}

unsigned gofer_nattach(const struct gofer_client *c)
{
	return c->nattach;
}

bool gofer_attach_readonly(const struct gofer_client *c, unsigned attach)
{
	return attach >= c->nattach || c->attach[attach].readonly;
}

uint64_t gofer_root(const struct gofer_client *c, unsigned attach, struct gofer_attr *ret)
{
	if (attach >= c->nattach)
		panic("gofer: no attach point %u", attach);
	*ret = c->attach[attach].attr;
	return c->attach[attach].node;
}
