// SPDX-License-Identifier: Apache-2.0
/* A message queue and its namespace's table. */
#ifndef SENTRY_FS_MQUEUE_MQUEUE_PRIV_H
#define SENTRY_FS_MQUEUE_MQUEUE_PRIV_H

#include "sentry/fs/mqueue/mqueue.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs.h"

#define MQ_MSG_DEFAULT 10
#define MQ_MSGSIZE_DEFAULT 8192
#define MQ_MSG_MAX 10            /* without CAP_SYS_RESOURCE; sys/fs/mqueue/msg_max */
#define MQ_MSGSIZE_MAX 8192
#define MQ_MSG_HARD_MAX 65536
#define MQ_MSGSIZE_HARD_MAX (16 << 20)
#define MQ_QUEUES_MAX 256

struct mq_msg {
	struct list node;
	unsigned prio;
	size_t len;
	void *data; /* heap */
};

/* What a message is charged for (sentry/kernel/kmem.h). */
static inline size_t mq_msg_heap(size_t len)
{
	return sizeof(struct mq_msg) + len;
}

struct mq {
	struct inode inode;
	struct list node;     /* (mqns.mu) in mqns.queues; empty when unlinked */
	char *name;           /* (c) */
	int64_t maxmsg, msgsize; /* (c) */
	uint64_t charge;      /* (c) bytes against RLIMIT_MSGQUEUE of the owner */
	struct mutex mu;      /* RANK_SOCK */
	struct list msgs;     /* (mu) by priority, then age */
	int64_t curmsgs;      /* (mu) */
	uint64_t qsize;       /* (mu) bytes */
	unsigned receivers;   /* (mu) blocked in receive: no notification then */
	struct waitq wq;
	struct pid *notify_pid; /* (mu) registered process; reference or NULL */
	struct l_sigevent notify; /* (mu) */
};

struct mqns {
	struct list node;
	struct ipcns *ipc;  /* key; borrowed */
	struct mutex mu;    /* RANK_FS */
	struct list queues; /* (mu) each holds a reference on its inode */
	unsigned count;     /* (mu) */
	struct super sb;
};

static inline struct mq *mq_of(struct inode *inode)
{
	return container_of(inode, struct mq, inode);
}

static inline struct mqns *mqns_of(struct super *sb)
{
	return container_of(sb, struct mqns, sb);
}

extern struct list mq_namespaces; /* of mqns.node; private to mqueuefs.c and mqueue_state.c */
extern const struct inode_ops mq_iops, mq_root_iops;
extern const struct super_ops mqueue_sops;
extern const struct file_ops mq_root_fops;
extern const struct file_ops mq_fops;
struct mq *mq_create(struct mqns *ns, const char *name, const struct l_mq_attr *attr, uint32_t mode,
		     uid_t uid, gid_t gid);

#endif
