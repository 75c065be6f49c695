// SPDX-License-Identifier: Apache-2.0
/*
 * Inside of AF_UNIX. Files: unix.c (life, names' users, options), unix_name.c (binding), unix_stream.c,
 * unix_dgram.c (data), unix_sink.c (read by the kernel), unix_scm.c (ancillary data), unix_gc.c (files in flight).
 *
 * Lock order: unix_bind_mu > unix_gc_mu > socket.mu (a listener's before its queued connections') > waitq.mu.
 * No two connected sockets' locks are held at once otherwise. Files are never put with a lock held.
 */
#ifndef SENTRY_SOCKET_UNIX_UNIX_PRIV_H
#define SENTRY_SOCKET_UNIX_UNIX_PRIV_H

#include <sys/un.h>
#include <uthash.h>

#include "base/list.h"
#include "sentry/kernel/pid.h"
#include "sentry/socket/socket.h"
#include "sentry/vfs/vfs.h"

#define UNIX_DGRAM_QLEN 10      /* net.unix.max_dgram_qlen */
#define UNIX_SCM_MAX_FD 253     /* SCM_MAX_FD */
#define UNIX_MAX_INFLIGHT 65536 /* files in flight in the whole sandbox, privileged or not */
#define UNIX_BUF_MAX 32768u     /* bytes in one stream buffer */
#define UNIX_BUF_MIN 2048u      /* smallest stream buffer: small writes collect in it */

struct unix_cred {
	struct pid *pid; /* thread group; reference; NULL: not given */
	uid_t uid;
	gid_t gid;
};

/* Files and credentials that travel with data. */
struct scm {
	struct list node;  /* while being destroyed */
	struct unix_cred cred;
	bool has_cred;
	unsigned nfiles;
	bool inflight;     /* files are accounted in unix_gc.c */
	struct file *files[];
};

/* A piece of a stream, or one message. */
struct unix_buf {
	struct list node;
	struct scm *scm;         /* owned; may be NULL */
	struct unix_sock *from;  /* messages: sender; reference */
	size_t off, len, cap;    /* data is [off, off + len) */
	size_t heap;             /* charged for it (sentry/kernel/kmem.h) */
	uint8_t data[];
};

/* UNIX_CONNECTING: a connect() is on its way; nobody may make it a listener meanwhile. */
enum unix_state { UNIX_FREE, UNIX_CONNECTING, UNIX_LISTEN, UNIX_CONNECTED };

/* Field key: (m) sk.mu   (b) unix_bind_mu   (g) unix_gc_mu   (a) atomic   (o) set once, then const */
struct unix_sock {
	struct socket sk;
	_Atomic int state;           /* (m) */
	struct unix_sock *_Atomic peer; /* (m); streams: (o). Reference */
	bool dead;                   /* (m) file released (or never made): no receiver */
	bool rcv_shut, snd_shut;     /* (m) */

	struct list rq;              /* (m) of unix_buf */
	size_t rq_bytes;             /* (m) */
	unsigned rq_msgs;            /* (m) */
	_Atomic size_t wmem;         /* (a) messages: our bytes in others' queues */
	struct waitq room_wq;        /* messages: room in rq for senders */
	struct list clients;         /* (m) of client_node: who is connected to us (messages) */
	struct list client_node;     /* (peer's m) */

	void (*sink)(void *arg, const void *msg, size_t len); /* (o) unix_sink.c */
	void *sink_arg;              /* (o) */

	struct list accept_q;        /* (m) listener: of accept_node */
	struct list accept_node;
	unsigned accept_n, backlog;  /* (m) */
	struct unix_sock *listener;  /* (m of listener) queued on; NULL otherwise */

	struct sockaddr_un *_Atomic name; /* (o) set under (b); freed with the socket */
	unsigned name_len;           /* (o) */
	struct path path;            /* (b) of a bound file */
	UT_hash_handle hh;           /* (b) abstract names */
	struct sockaddr_un abs_key;  /* (b) key there: the name with the type in place of the family */
	struct list net_node;        /* (b) netns.unix_socks */

	struct unix_cred peercred;   /* (m) SO_PEERCRED; of a listener: its own */
	struct cred *peergroups;     /* (m) SO_PEERGROUPS; reference */

	unsigned inflight;           /* (g) references from queues */
	unsigned gc_refs;            /* (g) of a collection: those not from candidates' queues */
	struct list gc_node;         /* (g) in the in-flight list while inflight > 0 */
	bool gc_candidate, gc_live;  /* (g) one collection's marks */
};

static inline struct unix_sock *unix_of(struct socket *s)
{
	return container_of(s, struct unix_sock, sk);
}

static inline struct unix_sock *unix_get(struct unix_sock *u)
{
	socket_get(&u->sk);
	return u;
}

static inline void unix_put(struct unix_sock *u)
{
	if (u)
		socket_put(&u->sk);
}

extern struct mutex unix_bind_mu; /* RANK_SOCK_BIND: names */

/* unix.c */
struct unix_sock *unix_alloc(struct netns *net, int type);
/* In no namespace yet, for loading; then its type, and into the tables of its namespace. */
struct unix_sock *unix_alloc_bare(void);
void unix_set_type(struct unix_sock *u, int type);
void unix_enter_net(struct unix_sock *u);
void unix_cred_fill(struct task *t, struct unix_cred *c);
void unix_cred_put(struct unix_cred *c);
/* Remembers @t as what the other side sees by SO_PEERCRED. Context: u->sk.mu, or @u not public. */
void unix_set_peercred(struct unix_sock *u, struct task *t);
void unix_copy_peercred(struct unix_sock *to, const struct unix_sock *from);
struct unix_buf *unix_buf_alloc(size_t cap);
void unix_buf_free(struct unix_buf *b);
int unix_shutdown(struct socket *s, int how);
void unix_release(struct socket *s);
/* Name of @u for getsockname and recvfrom. */
void unix_addr_of(struct unix_sock *u, struct sock_addr *ret);

/* unix_name.c */
int unix_bind(struct task *t, struct socket *s, const struct sock_addr *addr);
int unix_autobind(struct task *t, struct unix_sock *u);
void unix_unbind(struct unix_sock *u); /* at release: no locks held */
bool unix_is_abstract(const struct sockaddr_un *un, unsigned len);
/* Loading: enters the abstract name that @u has. False: it is taken. */
bool unix_restore_abstract(struct unix_sock *u);
/* The socket bound to @addr: reference; err_ptr(-ECONNREFUSED, -EPROTOTYPE, lookup errors). */
struct unix_sock *unix_find(struct task *t, struct netns *net, const struct sock_addr *addr, int type);

/* unix_stream.c: SOCK_STREAM */
extern const struct proto_ops unix_stream_ops;
/* unix_conn.c: connections of SOCK_STREAM and SOCK_SEQPACKET */
int unix_connect(struct task *t, struct socket *s, const struct sock_addr *addr, bool nonblock);
int unix_listen(struct task *t, struct socket *s, int backlog);
struct socket *unix_accept(struct task *t, struct socket *s, bool nonblock);
int unix_socketpair(struct task *t, struct socket *a, struct socket *b);
uint32_t unix_poll(struct socket *s);
long unix_ioctl(struct task *t, struct socket *s, unsigned cmd, uint64_t arg);
int unix_getname(struct socket *s, bool peer, struct sock_addr *ret);
int unix_getsockopt(struct task *t, struct socket *s, int level, int name, void *val, unsigned *len);
void unix_destroy(struct socket *s);
/* Half of the buffer free: time to wake writers. */
static inline bool unix_writable(size_t queued, uint32_t sndbuf)
{
	return queued * 2 <= sndbuf;
}

/* unix_dgram.c: SOCK_DGRAM, and the data of SOCK_SEQPACKET */
extern const struct proto_ops unix_dgram_ops, unix_seqpacket_ops;
/* Forgets the connection of a SOCK_DGRAM. */
void unix_dgram_disconnect(struct unix_sock *u);

/* unix_scm.c */
/* Parses the control data of a send; *ret is NULL when there is nothing to carry. @u decides about
 * credentials (SO_PASSCRED of either side). -EINVAL, -EBADF, -EPERM, -ETOOMANYREFS. */
int scm_send(struct task *t, struct unix_sock *u, const struct sock_msg *m, struct scm **ret);
/* Hands @scm to the receiver. @peek: the original stays. Takes nothing over. */
void scm_recv(struct task *t, struct socket *s, struct sock_msg *m, struct scm *scm, int flags,
	      bool peek);
void scm_free(struct scm *scm);
bool scm_same_cred(const struct scm *a, const struct scm *b);

/* unix_gc.c */
extern struct mutex unix_gc_mu; /* RANK_SOCK_GC */
/* Accounts the files of @scm as in flight. 0 or -ETOOMANYREFS. */
int unix_inflight(struct task *t, struct scm *scm);
void unix_notinflight(struct scm *scm);
/* Loading: the same, whatever the limits say. */
void unix_inflight_restore(struct scm *scm);
/* A unix socket was closed: frees sockets that only refer to each other through queues. */
void unix_gc(void);
void unix_gc_init(void);

#endif
