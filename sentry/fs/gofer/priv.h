// SPDX-License-Identifier: Apache-2.0
/* Between client.c (the channel) and client_ops.c (the messages). */
#ifndef SENTRY_FS_GOFER_PRIV_H
#define SENTRY_FS_GOFER_PRIV_H

#include "base/list.h"
#include "base/mutex.h"
#include "base/ref.h"
#include "sentry/fs/gofer/client.h"

#define FORGET_BATCH 128  /* nodes given up before a message is sent for them */
#define MEM_BATCH 4       /* pairs fetched by one mkmem */
#define MEM_SPARE_MAX GOFER_MEM_MAX
#define CALL_CACHE_MAX 8  /* message buffers kept */

struct attach_info {
	uint64_t node;
	bool readonly;
	struct gofer_attr attr;
};

struct gofer_client {
	struct ref ref;
	int sock;                /* (c) */
	unsigned index;          /* (clients_mu) which of the sandbox's */
	struct list clients_node; /* (clients_mu) */
	unsigned nattach;        /* (c) after hello */
	struct attach_info *attach;
	unsigned *loaded;        /* (c) gofer_client_set_attaches() */
	unsigned nloaded;
	struct mutex mu;         /* RANK_GOFER */
	struct cond cond;        /* (m) a reply was handed out, or the receive role is free */
	struct list pending;     /* (m) of gofer_call.node */
	bool receiving;          /* (m) somebody is in recvmsg */
	bool dead;               /* (m) */
	uint32_t next_id;        /* (m) */
	struct list cache;       /* (m) of gofer_call.node */
	unsigned ncache;         /* (m) */
	uint64_t forget[FORGET_BATCH]; /* (m) */
	unsigned nforget;        /* (m) */
	int mem[MEM_SPARE_MAX][2]; /* (m) spare memory files */
	unsigned nmem;           /* (m) */
};

/* One request and then its reply. */
struct gofer_call {
	struct list node;
	uint32_t id;
	bool done;
	struct writer w;         /* body of the request */
	struct cursor r;         /* body of the reply */
	int fds[GOFER_FDS_MAX];
	unsigned nfds;
	size_t len;
	/* Two buffers, since the reply may be handed out before the sender is back from
	 * send(). */
	uint8_t buf[GOFER_MSG_MAX];
	uint8_t reply[GOFER_MSG_MAX];
};

struct gofer_call *call_begin(struct gofer_client *c, enum gofer_op op);
/* Sends it and waits: 0 with call->r at the reply's body, or -errno (no descriptors
 * then). */
int call_run(struct gofer_client *c, struct gofer_call *call);
/* Frees it and closes the descriptors that weren't taken. */
void call_end(struct gofer_client *c, struct gofer_call *call);
int call_take_fd(struct gofer_call *call, unsigned i);

#endif
