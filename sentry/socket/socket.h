// SPDX-License-Identifier: Apache-2.0
/*
 * Sockets (man 7 socket): what all families share. A family fills in a struct sock_family and the
 * proto_ops of its sockets; the system calls go through sock_*() below, which know no family.
 *
 * A struct socket lives by references: its file holds one (dropped after ops->release), and families hold
 * theirs (a unix peer, a queued connection). Families embed it as first member.
 */
#ifndef SENTRY_SOCKET_SOCKET_H
#define SENTRY_SOCKET_SOCKET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/mutex.h"
#include "base/ref.h"
#include "sentry/kernel/waitq.h"
#include "sentry/mm/usermem.h"

struct task;
struct file;
struct file_ops;
struct netns;
struct socket;
struct scm;
struct seqbuf;
struct state;
struct state_type;

#define SOCK_BUF_DEFAULT 212992u /* net.core.rmem_default, wmem_default */
#define SOCK_BUF_MAX 212992u     /* net.core.rmem_max, wmem_max; the option's value is doubled */
#define SOCK_BUF_FORCE_MAX (64u << 20) /* SO_SNDBUFFORCE */
#define SOCK_SNDBUF_MIN 4608u
#define SOCK_RCVBUF_MIN 2304u
#define SOCK_SOMAXCONN 4096
#define SOCK_CONTROL_MAX (20u * 1024) /* net.core.optmem_max: ancillary data of one sendmsg */
#define SOCK_OPT_MAX 4096u       /* option value */

/* An address in kernel memory. */
struct sock_addr {
	struct sockaddr_storage ss;
	unsigned len; /* 0: none */
};

/* Ancillary data on its way to the guest. */
struct cmsg_out {
	uint8_t *buf;   /* NULL: guest gave no room */
	size_t size, used;
	bool truncated; /* MSG_CTRUNC */
};

/* A message on its way in or out. */
struct sock_msg {
	struct iter *it;
	struct sock_addr addr;  /* send: destination; recv: source, filled in */
	bool want_addr;         /* recv: somebody looks at addr */
	const uint8_t *control; /* send: raw ancillary data, checked by the family */
	size_t control_len;
	struct cmsg_out cmsg;   /* recv */
	int flags_out;          /* recv: MSG_TRUNC, MSG_CTRUNC, MSG_EOR ... */
};

/*
 * Operations of a socket. @flags of send and recv: MSG_*, with MSG_DONTWAIT set when the file is
 * non-blocking. Blocking ones return -ERESTARTSYS when interrupted (sock_intr() picks what applies).
 * NULL: EOPNOTSUPP.
 */
struct proto_ops {
	const char *name;
	void (*destroy)(struct socket *s); /* last reference */
	void (*release)(struct socket *s); /* the file is gone */
	int (*bind)(struct task *t, struct socket *s, const struct sock_addr *addr);
	int (*connect)(struct task *t, struct socket *s, const struct sock_addr *addr, bool nonblock);
	int (*socketpair)(struct task *t, struct socket *a, struct socket *b);
	int (*listen)(struct task *t, struct socket *s, int backlog);
	/* A new connection: reference to a socket without file. */
	struct socket *(*accept)(struct task *t, struct socket *s, bool nonblock);
	int (*getname)(struct socket *s, bool peer, struct sock_addr *ret);
	int (*shutdown)(struct socket *s, int how);
	ssize_t (*sendmsg)(struct task *t, struct socket *s, struct sock_msg *m, int flags);
	ssize_t (*recvmsg)(struct task *t, struct socket *s, struct sock_msg *m, int flags);
	uint32_t (*poll)(struct socket *s);
	struct waitq *(*waitq)(struct socket *s); /* NULL: s->wq */
	/* -ENOIOCTLCMD: not mine. */
	long (*ioctl)(struct task *t, struct socket *s, unsigned cmd, uint64_t arg);
	/* Levels and options that sock_setsockopt() doesn't know. -ENOPROTOOPT. */
	int (*setsockopt)(struct task *t, struct socket *s, int level, int name, const void *val,
			  unsigned len);
	/* Up to *len bytes; *len becomes the value's length. */
	int (*getsockopt)(struct task *t, struct socket *s, int level, int name, void *val,
			  unsigned *len);
	const struct state_type *state; /* how it is saved (socket_state.c); NULL: can't be */
};

/* Boolean options. */
#define SOCKF_REUSEADDR 0x001u
#define SOCKF_REUSEPORT 0x002u
#define SOCKF_KEEPALIVE 0x004u
#define SOCKF_BROADCAST 0x008u
#define SOCKF_PASSCRED 0x010u
#define SOCKF_PASSSEC 0x020u
#define SOCKF_OOBINLINE 0x040u
#define SOCKF_TIMESTAMP 0x080u
#define SOCKF_TIMESTAMPNS 0x100u
#define SOCKF_DONTROUTE 0x200u
#define SOCKF_DEBUG 0x400u
#define SOCKF_RXQ_OVFL 0x800u
#define SOCKF_PASSPIDFD 0x1000u
#define SOCKF_NOFCS 0x2000u
#define SOCKF_ZEROCOPY 0x4000u
#define SOCKF_FASYNC 0x8000u /* the file has O_ASYNC; no option */

struct socket {
	struct ref ref;
	const struct proto_ops *ops;  /* (c) */
	int family, type, protocol;   /* (c) */
	struct netns *net;            /* (c) reference */
	struct file *file;            /* (mu) borrowed; NULL before accept and after release */
	struct mutex mu;              /* RANK_SOCK: the family's state */
	struct waitq wq;
	_Atomic int err;              /* SO_ERROR, taken by the next call */
	_Atomic unsigned flags;       /* SOCKF_* */
	_Atomic uint32_t sndbuf, rcvbuf;
	_Atomic int64_t sndtimeo_ns, rcvtimeo_ns; /* DEADLINE_NONE: wait for ever */
	_Atomic int rcvlowat, peek_off, mark, priority, linger_on, linger_s, busy_poll, incoming_cpu;
	uint64_t ino;                 /* of the file, for /proc/net/unix */
};

/* A protocol family. */
struct sock_family {
	int family;
	/* Fills *ret. -EPROTONOSUPPORT, -ESOCKTNOSUPPORT, -EPERM. @type has no SOCK_* flags. */
	int (*create)(struct task *t, struct netns *net, int type, int protocol, struct socket **ret);
};
/* Once per family, at start. */
void sock_register(const struct sock_family *fam);
/* Registers the built-in families. Before the first guest task. */
void sockets_init(void);

/* Common part; ref 1. @net: a reference is taken; NULL only while loading. */
void socket_init(struct socket *s, const struct proto_ops *ops, struct netns *net, int family,
		 int type, int protocol);
void socket_fini(struct socket *s);
struct socket *socket_get(struct socket *s);
void socket_put(struct socket *s);

/* A file over @s, whose reference it takes over (also on failure). @flags: O_NONBLOCK. */
struct file *sock_create_file(struct task *t, struct socket *s, unsigned flags);
/* The socket behind a file, borrowed; NULL: ENOTSOCK. */
struct socket *sock_of_file(const struct file *f);

/* socket(2) and socketpair(2) without descriptors. @type has no flags. */
int sock_create(struct task *t, int family, int type, int protocol, struct socket **ret);

/* Options. @val is kernel memory. */
int sock_setsockopt(struct task *t, struct socket *s, int level, int name, const void *val,
		    unsigned len);
int sock_getsockopt(struct task *t, struct socket *s, int level, int name, void *val, unsigned *len);

/* Takes the pending error: 0 or -errno. */
int sock_take_err(struct socket *s);
/* When a blocking call of @s has to give up. */
int64_t sock_deadline(const _Atomic int64_t *timeo_ns);
/* An interrupted wait: -ERESTARTSYS, or -EINTR when a timeout is set (man 7 signal). */
long sock_intr(const _Atomic int64_t *timeo_ns);
/* Events on @s: wakes waiters, and its owner when it asked for signals. No lock above RANK_SOCK held. */
void sock_wake(struct socket *s, uint32_t events);

/* ---- for the families' state types ---- */

/* What struct socket holds but ops, family and type, which the family checks. */
void socket_state_fields(struct state *s, struct socket *sk);
void *socket_state_get(void *sk);
void socket_state_put(void *sk);
extern const struct file_ops socket_fops;

/* Adds one ancillary message, cut to the room there is. False when it didn't fit whole. */
bool cmsg_put(struct cmsg_out *c, int level, int type, const void *data, size_t len);

/* ioctl(2) for network devices (SIOCGIF*): socket/netdev.c. */
long netdev_ioctl(struct task *t, struct socket *s, unsigned cmd, uint64_t arg);

#endif
