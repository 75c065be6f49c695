// SPDX-License-Identifier: Apache-2.0
/*
 * Saving message queues: the namespaces' instances (which live without a mount), queues with their messages,
 * who is to be notified.
 */
#include <signal.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/mqueue/mqueue_priv.h"
#include "sentry/kernel/kmem.h"
#include "sentry/vfs/vfs_state.h"

#define NAMESPACES_MAX (1u << 20)
#define QUEUES_MAX (1u << 20)

/* ---- queues ---- */

static void *queue_alloc(struct state *s)
{
	struct mq *q = kzalloc(sizeof(*q));

	(void)s;
	inode_init(&q->inode, NULL, &mq_iops, &mq_fops, 0, S_IFREG, 0, 0);
	mutex_init(&q->mu, RANK_SOCK);
	list_init(&q->msgs);
	list_init(&q->node);
	waitq_init(&q->wq);
	return &q->inode;
}

static void msg_fields(struct state *s, struct mq *q, struct mq_msg *m)
{
	int64_t prio = m->prio;

	state_range_i64(s, &prio, 0, MQ_PRIO_MAX_G - 1);
	state_blob(s, &m->data, &m->len, (size_t)q->msgsize);
	if (!state_loading(s))
		return;
	m->prio = (unsigned)prio;
	kmem_add(mq_msg_heap(m->len));
	list_add_tail(&q->msgs, &m->node);
	q->curmsgs++;
	q->qsize += m->len;
}

static void notify_fields(struct state *s, struct mq *q)
{
	state_ref(s, &state_pid, &q->notify_pid);
	state_bytes(s, &q->notify, sizeof(q->notify));
	if (q->notify_pid && !mqueue_notify_ok(&q->notify))
		state_fail(s, "impossible notification");
}

static void queue_fields(struct state *s, void *obj)
{
	struct mq *q = mq_of(obj);
	struct mq_msg *m;
	uint32_t n;

	inode_state_fields(s, &q->inode);
	state_ref(s, &state_super_mqueue, &q->inode.sb);
	state_heap_str(s, &q->name, NAME_MAX_G);
	state_range_i64(s, &q->maxmsg, 1, MQ_MSG_HARD_MAX);
	state_range_i64(s, &q->msgsize, 1, MQ_MSGSIZE_HARD_MAX);
	state_u64(s, &q->charge);
	n = state_count(s, (uint32_t)q->curmsgs, (uint32_t)q->maxmsg);
	for (; state_loading(s) && n && state_ok(s); n--)
		msg_fields(s, q, kzalloc(sizeof(*m)));
	if (!state_loading(s))
		list_for_each(m, &q->msgs, node)
			msg_fields(s, q, m);
	notify_fields(s, q);
	if (!q->inode.sb || !q->name || !S_ISREG(q->inode.mode))
		state_fail(s, "impossible queue");
}

const struct state_type state_inode_mqueue = {
	.id = STATE_INODE_MQUEUE,
	.version = 1,
	.name = "message queue",
	.alloc = queue_alloc,
	.fields = queue_fields,
	.get = inode_state_get,
	.put = inode_state_put,
	.phase = 2,
};

/* ---- the root directory ---- */

static void *root_alloc(struct state *s)
{
	struct inode *inode = kzalloc(sizeof(*inode));

	(void)s;
	inode_init(inode, NULL, &mq_root_iops, &mq_root_fops, 0, S_IFDIR, 0, 0);
	return inode;
}

static void root_fields(struct state *s, void *obj)
{
	struct inode *inode = obj;

	inode_state_fields(s, inode);
	state_ref(s, &state_super_mqueue, &inode->sb);
	if (!inode->sb || !S_ISDIR(inode->mode))
		state_fail(s, "impossible directory of queues");
}

const struct state_type state_inode_mqroot = {
	.id = STATE_INODE_MQROOT,
	.version = 1,
	.name = "directory of message queues",
	.alloc = root_alloc,
	.fields = root_fields,
	.get = inode_state_get,
	.put = inode_state_put,
	.phase = 2,
};

/* ---- instances ---- */

static void *super_alloc(struct state *s)
{
	struct mqns *ns = kzalloc(sizeof(*ns));

	(void)s;
	list_init(&ns->node);
	mutex_init(&ns->mu, RANK_FS);
	list_init(&ns->queues);
	super_init(&ns->sb, &mqueue_sops, NULL, 0, 0);
	return &ns->sb;
}

static void load_queue(struct state *s, struct mqns *ns)
{
	struct inode *inode = NULL;

	state_ref(s, &state_inode_mqueue, &inode);
	if (!inode || !list_empty(&mq_of(inode)->node)) {
		state_fail(s, "queue in two places");
		return;
	}
	list_add_tail(&ns->queues, &mq_of(inode)->node);
	ns->count++;
}

static void super_fields(struct state *s, void *obj)
{
	struct mqns *ns = mqns_of(obj);
	struct mq *q;
	uint32_t n;

	super_state_fields(s, &ns->sb);
	state_weak(s, &state_ipcns, &ns->ipc);
	n = state_count(s, ns->count, QUEUES_MAX);
	for (; state_loading(s) && n && state_ok(s); n--)
		load_queue(s, ns);
	if (state_loading(s))
		return;
	list_for_each(q, &ns->queues, node) {
		struct inode *inode = &q->inode;

		state_ref(s, &state_inode_mqueue, &inode);
	}
}

/* A queue is in its own instance's list. */
static void super_finish(struct state *s, void *obj)
{
	struct mqns *ns = mqns_of(obj);
	struct mq *q;

	list_for_each(q, &ns->queues, node)
		if (q->inode.sb != &ns->sb)
			state_fail(s, "queue of another namespace");
}

const struct state_type state_super_mqueue = {
	.id = STATE_SUPER_MQUEUE,
	.version = 1,
	.name = "mqueue",
	.alloc = super_alloc,
	.fields = super_fields,
	.finish = super_finish,
	.get = super_state_get,
	.put = super_state_put,
	.phase = 1,
};

/* Instances that their namespace keeps. The first one made at start, if any, has nothing in it yet. */
void mqueue_state_globals(struct state *s)
{
	struct mqns *ns;
	uint32_t n = 0;

	list_for_each(ns, &mq_namespaces, node)
		n++;
	n = state_count(s, state_loading(s) ? 0 : n, NAMESPACES_MAX);
	if (!state_loading(s)) {
		list_for_each(ns, &mq_namespaces, node) {
			struct super *sb = &ns->sb;

			state_ref(s, &state_super_mqueue, &sb);
		}
		return;
	}
	list_init(&mq_namespaces);
	for (; n && state_ok(s); n--) {
		struct super *sb = NULL;

		state_ref(s, &state_super_mqueue, &sb);
		if (!sb || !list_empty(&mqns_of(sb)->node)) {
			state_fail(s, "impossible instance of mqueue");
			return;
		}
		list_add_tail(&mq_namespaces, &mqns_of(sb)->node);
	}
}

/* ---- open files ---- */

static void file_finish(struct state *s, struct file *f)
{
	(void)file_state_on(s, f, &state_inode_mqueue);
}

const struct file_state file_state_mqueue = {
	.id = FILE_MQUEUE,
	.ops = &mq_fops,
	.finish = file_finish,
};

static void root_file_finish(struct state *s, struct file *f)
{
	(void)file_state_on(s, f, &state_inode_mqroot);
}

const struct file_state file_state_mqueue_root = {
	.id = FILE_MQUEUE_ROOT,
	.ops = &mq_root_fops,
	.finish = root_file_finish,
};
