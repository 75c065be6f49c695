// SPDX-License-Identifier: Apache-2.0
/*
 * The gofer's loop: one request, one reply, in order. One thread: what it does are short
 * calls on local file systems, and reads and writes don't come here at all (the sentry
 * does them on donated descriptors). A request that can't even be answered ends the
 * connection, since then one side is broken or hostile.
 */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "gofer/priv.h"

typedef int (*op_fn)(struct req *r);

static const op_fn ops[GOFER_OP_COUNT] = {
	[GOFER_HELLO] = op_hello,       [GOFER_WALK] = op_walk,
	[GOFER_READDIR] = op_readdir,   [GOFER_OPEN] = op_open,
	[GOFER_CREATE] = op_create,     [GOFER_TMPFILE] = op_tmpfile,
	[GOFER_MKDIR] = op_mkdir,       [GOFER_MKNOD] = op_mknod,
	[GOFER_SYMLINK] = op_symlink,   [GOFER_READLINK] = op_readlink,
	[GOFER_LINK] = op_link,         [GOFER_UNLINK] = op_unlink,
	[GOFER_RENAME] = op_rename,     [GOFER_GETATTR] = op_getattr,
	[GOFER_SETATTR] = op_setattr,   [GOFER_GETXATTR] = op_getxattr,
	[GOFER_SETXATTR] = op_setxattr, [GOFER_LISTXATTR] = op_listxattr,
	[GOFER_REMOVEXATTR] = op_removexattr, [GOFER_STATFS] = op_statfs,
	[GOFER_FSYNC] = op_fsync,       [GOFER_FORGET] = op_forget,
	[GOFER_MKMEM] = op_mkmem,       [GOFER_CONNECT] = op_connect,
};

/* The node whose id comes next in the request; NULL with *err set. */
struct node *pull_node(struct req *r, int *err)
{
	uint64_t id = pull_u64(r->in);
	struct node *n = cursor_ok(r->in) ? node_find(r->g, id) : NULL;

	*err = n ? 0 : -ESTALE;
	return n;
}

/* A directory and a name in it. */
int pull_dir_name(struct req *r, struct node **ret_dir, char name[GOFER_NAME_MAX + 1])
{
	int err;
	struct node *dir = pull_node(r, &err);

	if (!dir)
		return err;
	pull_str(r->in, name, GOFER_NAME_MAX + 1);
	if (!cursor_ok(r->in) || !gofer_name_ok(name))
		return -EINVAL;
	if (!S_ISDIR(dir->type))
		return -ENOTDIR;
	*ret_dir = dir;
	return 0;
}

/* Sends @fd along with the reply. */
void reply_fd(struct req *r, int fd)
{
	if (r->nfds >= GOFER_FDS_MAX)
		panic("gofer: too many descriptors in a reply");
	r->fds[r->nfds++] = fd;
}

static void close_fds(int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close(fds[i]);
}

size_t gofer_handle_message(struct gofer *g, const void *req, size_t len, void *reply, int *fds,
			    unsigned *ret_nfds)
{
	struct cursor in;
	struct writer out;

	cursor_init(&in, req, len);
	uint32_t id = pull_u32(&in);
	uint16_t op = pull_u16(&in);
	uint16_t zero = pull_u16(&in);
	if (!cursor_ok(&in) || zero != 0)
		return 0;

	writer_init(&out, reply, GOFER_MSG_MAX);
	push_u32(&out, id);
	push_u32(&out, 0);
	struct req r = { .g = g, .in = &in, .out = &out, .fds = fds };
	int err;
	if (op >= GOFER_OP_COUNT || !ops[op])
		err = -ENOSYS;
	else if (!g->greeted && op != GOFER_HELLO)
		err = -EPROTO;
	else
		err = ops[op](&r);
	if (!err && !writer_ok(&out))
		err = -EMSGSIZE;
	if (err) {
		close_fds(fds, r.nfds);
		r.nfds = 0;
		writer_init(&out, reply, GOFER_MSG_MAX);
		push_u32(&out, id);
		push_u32(&out, (uint32_t)err);
	}
	node_trim(g);
	*ret_nfds = r.nfds;
	return out.used;
}

/* err_ptr on failure. */
struct gofer *gofer_server_create(const struct gofer_conf *conf)
{
	struct rlimit rl;
	struct gofer *g = kzalloc(sizeof(*g));

	list_init(&g->lru);
	g->memdirfd = conf->memdirfd;
	g->diskdirfd = conf->diskdirfd;
	g->nattach = conf->nattach;
	g->attach = kcalloc(conf->nattach ? conf->nattach : 1, sizeof(*g->attach));
	g->max_fds = GOFER_MAX_NODE_FDS;
	if (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_cur / 4 < g->max_fds) /* host: prlimit64 */
		g->max_fds = (unsigned)(rl.rlim_cur / 4);
	for (unsigned i = 0; i < conf->nattach; i++) {
		int err = conf->nattach > GOFER_ATTACH_MAX
				  ? -E2BIG
				  : node_root_create(g, i, &conf->attach[i]);

		if (err) {
			log_error("gofer: attach point %u: %s", i, strerror(-err));
			gofer_server_destroy(g);
			return err_ptr(err);
		}
	}
	return g;
}

void gofer_server_destroy(struct gofer *g)
{
	node_destroy_all(g);
	free(g->attach);
	free(g);
}

/* Closes whatever descriptors came with a request: none is ever wanted. */
static void drop_fds(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			close(fd);
		}
	}
}

/* Bytes, 0 at the end, -errno. */
static ssize_t receive(int sock, void *buf)
{
	union {
		char raw[CMSG_SPACE(sizeof(int) * 253)]; /* SCM_MAX_FD */
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = buf, .iov_len = GOFER_MSG_MAX };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.raw,
			      .msg_controllen = sizeof(control.raw) };
	ssize_t n;

	do {
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC); /* host: recvmsg */
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? 0 : -errno;
	drop_fds(&msg);
	if (msg.msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	return n;
}

static int transmit(int sock, void *buf, size_t len, const int *fds, unsigned nfds)
{
	union {
		char raw[CMSG_SPACE(sizeof(int) * GOFER_FDS_MAX)];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = buf, .iov_len = len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nfds) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.raw;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
	}
	ssize_t n;
	do {
		n = sendmsg(sock, &msg, MSG_NOSIGNAL); /* host: sendmsg */
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static int serve_loop(struct gofer *g, int sock)
{
	AUTO_FREE char *in = kzalloc(GOFER_MSG_MAX);
	AUTO_FREE char *out = kzalloc(GOFER_MSG_MAX);

	for (;;) {
		int fds[GOFER_FDS_MAX];
		unsigned nfds = 0;
		ssize_t n = receive(sock, in);

		if (n <= 0)
			return (int)n;
		size_t len = gofer_handle_message(g, in, (size_t)n, out, fds, &nfds);
		if (len == 0) {
			log_error("gofer: malformed request, closing");
			return -EPROTO;
		}
		int err = transmit(sock, out, len, fds, nfds);
		close_fds(fds, nfds);
		if (err)
			return err == -EPIPE || err == -ECONNRESET ? 0 : err;
	}
}

int gofer_serve(const struct gofer_conf *conf)
{
	umask(0); /* host: umask - modes are the sentry's to choose */
	struct gofer *g = gofer_server_create(conf);

	if (is_err(g))
		return (int)ptr_err(g);
	int err = serve_loop(g, conf->sock);
	gofer_server_destroy(g);
	return err;
}
