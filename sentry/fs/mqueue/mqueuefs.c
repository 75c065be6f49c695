// SPDX-License-Identifier: Apache-2.0
/*
 * Queues by name: one flat directory for each IPC namespace, which is also what mounting "mqueue" shows.
 * The super belongs to the namespace, not to its mounts: it lives until the namespace goes.
 *
 * Lock order: namespaces_mu > inode.mu of the root > mqns.mu (RANK_FS).
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/mqueue/mqueue_priv.h"
#include "sentry/kernel/kmem.h"
#include "sentry/kernel/ns.h"
#include "sentry/vfs/vfs_state.h"

#define MQUEUE_MAGIC 0x19800202

struct list mq_namespaces = LIST_INIT(mq_namespaces);
static struct mutex namespaces_mu; /* RANK_EPOLL: held while a super is made */

/* ---- queue inodes ---- */

static void mq_destroy(struct inode *inode)
{
	struct mq *q = mq_of(inode);
	struct mq_msg *m, *tmp;

	list_for_each_safe(m, tmp, &q->msgs, node) {
		list_del(&m->node);
		kmem_uncharge(mq_msg_heap(m->len));
		free(m->data);
		free(m);
	}
	pid_put(q->notify_pid);
	waitq_fini(&q->wq);
	mutex_fini(&q->mu);
	inode_fini(inode);
	free(q->name);
	free(q);
}

const struct inode_ops mq_iops = {
	.destroy = mq_destroy,
	.state = &state_inode_mqueue,
};

struct mq *mq_create(struct mqns *ns, const char *name, const struct l_mq_attr *attr, uint32_t mode,
		     uid_t uid, gid_t gid)
{
	struct mq *q = kzalloc(sizeof(*q));

	inode_init(&q->inode, &ns->sb, &mq_iops, &mq_fops, inode_next_ino(),
		   S_IFREG | (mode & 07777), uid, gid);
	q->inode.size = 80; /* as Linux: FILENT_SIZE */
	q->name = kstrdup(name);
	q->maxmsg = attr->mq_maxmsg;
	q->msgsize = attr->mq_msgsize;
	q->charge = (uint64_t)q->maxmsg * ((uint64_t)q->msgsize + 56);
	mutex_init(&q->mu, RANK_SOCK);
	list_init(&q->msgs);
	list_init(&q->node);
	waitq_init(&q->wq);
	return q;
}

static struct mq *find_locked(struct mqns *ns, const char *name)
{
	struct mq *q;

	list_for_each(q, &ns->queues, node)
		if (strcmp(q->name, name) == 0)
			return q;
	return NULL;
}

static int check_attr(const struct cred *c, const struct l_mq_attr *a)
{
	bool big = cred_capable(c, CAP_SYS_RESOURCE);

	if (a->mq_maxmsg <= 0 || a->mq_msgsize <= 0)
		return -EINVAL;
	if (a->mq_maxmsg > (big ? MQ_MSG_HARD_MAX : MQ_MSG_MAX) ||
	    a->mq_msgsize > (big ? MQ_MSGSIZE_HARD_MAX : MQ_MSGSIZE_MAX))
		return -EINVAL;
	return 0;
}

/* A new queue named @name: reference, its name in the table. -EMFILE: RLIMIT_MSGQUEUE; -ENOSPC. */
static struct mq *new_queue(struct mqns *ns, const char *name, const struct l_mq_attr *attr,
			    uint32_t mode, uid_t uid, gid_t gid)
{
	static const struct l_mq_attr def = { .mq_maxmsg = MQ_MSG_DEFAULT,
					      .mq_msgsize = MQ_MSGSIZE_DEFAULT };
	struct task *t = current_task();
	uint64_t sum = 0, limit = t ? task_rlimit(t, RLIMIT_MSGQUEUE) : RLIM_INFINITY_G;
	struct mq *q, *other;
	int err = 0;

	if (attr && t)
		err = check_attr(task_cred(t), attr);
	if (err)
		return err_ptr(err);
	q = mq_create(ns, name, attr ? attr : &def, mode, uid, gid);
	mutex_lock(&ns->mu);
	list_for_each(other, &ns->queues, node)
		if (other->inode.uid == uid)
			sum += other->charge;
	if (find_locked(ns, name))
		err = -EEXIST;
	else if (ns->count >= MQ_QUEUES_MAX && t && !task_capable(t, CAP_SYS_RESOURCE))
		err = -ENOSPC;
	else if (sum + q->charge > limit)
		err = -EMFILE;
	if (!err) {
		list_add_tail(&ns->queues, &q->node);
		inode_get(&q->inode); /* the table's */
		ns->count++;
	}
	mutex_unlock(&ns->mu);
	if (err) {
		inode_put(&q->inode);
		return err_ptr(err);
	}
	return q;
}

static void remove_queue(struct mqns *ns, struct mq *q)
{
	bool was;

	mutex_lock(&ns->mu);
	was = !list_empty(&q->node);
	if (was) {
		list_del(&q->node);
		ns->count--;
	}
	mutex_unlock(&ns->mu);
	if (was) {
		q->inode.nlink = 0;
		inode_put(&q->inode);
	}
}

/* ---- the directory ---- */

static struct inode *root_lookup(struct inode *dir, const char *name)
{
	struct mqns *ns = mqns_of(dir->sb);
	struct mq *q;
	AUTO_LOCK(&ns->mu);

	q = find_locked(ns, name);
	return q ? inode_get(&q->inode) : NULL;
}

static struct inode *root_create(struct inode *dir, const char *name, uint32_t mode, uid_t uid,
				 gid_t gid)
{
	struct mq *q = new_queue(mqns_of(dir->sb), name, NULL, mode, uid, gid);

	return is_err(q) ? err_ptr(ptr_err(q)) : &q->inode;
}

static int root_unlink(struct inode *dir, const char *name, struct inode *inode)
{
	(void)name;
	remove_queue(mqns_of(dir->sb), mq_of(inode));
	return 0;
}

/* mq_open and mq_unlink go past the dcache. */
static int root_revalidate(struct inode *dir, const char *name, struct inode *inode)
{
	struct mqns *ns = mqns_of(dir->sb);
	AUTO_LOCK(&ns->mu);

	(void)name;
	return inode && !list_empty(&mq_of(inode)->node);
}

static void root_destroy(struct inode *inode)
{
	inode_fini(inode);
	free(inode);
}

static int root_iterate(struct file *f, struct dir_ctx *ctx, int64_t *pos)
{
	struct mqns *ns = mqns_of(f->inode->sb);
	struct mq *q;
	int64_t i = 2;

	if (*pos < 0)
		return -EINVAL;
	while (*pos < 2) {
		if (!ctx->emit(ctx, "..", (size_t)*pos + 1, f->inode->ino, DT_DIR, *pos + 1))
			return 0;
		(*pos)++;
	}
	AUTO_LOCK(&ns->mu);
	list_for_each(q, &ns->queues, node) {
		if (i++ < *pos)
			continue;
		if (!ctx->emit(ctx, q->name, strlen(q->name), q->inode.ino, DT_REG, i))
			break;
		*pos = i;
	}
	return 0;
}

const struct inode_ops mq_root_iops = {
	.destroy = root_destroy,
	.lookup = root_lookup,
	.create = root_create,
	.unlink = root_unlink,
	.revalidate = root_revalidate,
	.state = &state_inode_mqroot,
};

const struct file_ops mq_root_fops = {
	.name = "mqueue",
	.llseek = generic_llseek,
	.iterate = root_iterate,
	.state = &file_state_mqueue_root,
};

/* ---- namespaces ---- */

static void mqns_destroy(struct super *sb)
{
	struct mqns *ns = mqns_of(sb);

	super_fini(sb);
	mutex_fini(&ns->mu);
	free(ns);
}

static int mqueue_statfs(struct super *sb, struct statfs_g *ret)
{
	ret->f_type = (int64_t)sb->magic;
	ret->f_bsize = ret->f_frsize = 4096;
	ret->f_namelen = NAME_MAX_G;
	return 0;
}

const struct super_ops mqueue_sops = {
	.destroy = mqns_destroy,
	.statfs = mqueue_statfs,
	.state = &state_super_mqueue,
};

static struct super *mqueue_mount(struct task *t, const char *source, unsigned long flags,
				  const char *data);

static struct fs_type mqueue_type = {
	.name = "mqueue",
	.nodev = true,
	.userns_ok = true,
	.mount = mqueue_mount,
};

static struct mqns *mqns_create(struct ipcns *ipc)
{
	struct mqns *ns = kzalloc(sizeof(*ns));
	struct inode *root = kzalloc(sizeof(*root));

	ns->ipc = ipc;
	mutex_init(&ns->mu, RANK_FS);
	list_init(&ns->queues);
	super_init(&ns->sb, &mqueue_sops, &mqueue_type, MQUEUE_MAGIC, 0);
	ns->sb.keep = true; /* unmounting doesn't take the queues away */
	ns->sb.source = kstrdup("mqueue");
	inode_init(root, &ns->sb, &mq_root_iops, &mq_root_fops, 1, S_IFDIR | S_ISVTX | 0777, 0, 0);
	root->nlink = 2;
	ns->sb.root = dentry_create_root(root);
	return ns;
}

/* Borrowed: lives as long as @ipc, which the caller's task holds. NULL @ipc: the first one's. */
static struct mqns *mqns_get(struct ipcns *ipc)
{
	struct mqns *ns;
	AUTO_LOCK(&namespaces_mu);

	list_for_each(ns, &mq_namespaces, node)
		if (ns->ipc == ipc)
			return ns;
	ns = mqns_create(ipc);
	list_add(&mq_namespaces, &ns->node);
	return ns;
}

void mqueue_ipcns_exit(struct ipcns *ipc)
{
	struct mqns *pos, *ns = NULL;
	struct dentry *root;

	mutex_lock(&namespaces_mu);
	list_for_each(pos, &mq_namespaces, node) {
		if (pos->ipc == ipc) {
			ns = pos;
			list_del(&ns->node);
			break;
		}
	}
	mutex_unlock(&namespaces_mu);
	if (!ns)
		return;
	while (!list_empty(&ns->queues))
		remove_queue(ns, list_first(&ns->queues, struct mq, node));
	/* Root dentry and super refer to each other: cut it, then the last mount frees the rest. */
	dentry_invalidate(ns->sb.root, NULL);
	ns->sb.keep = false;
	if (!ns->sb.active) {
		root = steal_ptr(&ns->sb.root);
		dentry_put(root);
	}
	super_put(&ns->sb);
}

struct super *mqueue_get_super(struct ipcns *ipc)
{
	return super_get(&mqns_get(ipc)->sb);
}

static struct super *mqueue_mount(struct task *t, const char *source, unsigned long flags,
				  const char *data)
{
	(void)source, (void)flags, (void)data;
	return super_get(&mqns_get(t && t->ns ? t->ns->ipc : NULL)->sb);
}

/* ---- mq_open, mq_unlink ---- */

static int check_name(const char *name)
{
	if (!*name)
		return -ENOENT;
	if (strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EACCES;
	return strlen(name) > NAME_MAX_G ? -ENAMETOOLONG : 0;
}

static struct mq *find(struct mqns *ns, const char *name)
{
	struct mq *q;
	AUTO_LOCK(&ns->mu);

	q = find_locked(ns, name);
	if (q)
		inode_get(&q->inode);
	return q;
}

static struct mq *open_existing(struct task *t, struct mq *q, int oflag)
{
	static const int masks[] = { MAY_READ, MAY_WRITE, MAY_READ | MAY_WRITE };
	int err;

	if ((oflag & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL))
		err = -EEXIST;
	else if ((oflag & O_ACCMODE) == O_ACCMODE)
		err = -EINVAL;
	else
		err = inode_permission(&q->inode, task_cred(t), masks[oflag & O_ACCMODE]);
	if (!err)
		return q;
	inode_put(&q->inode);
	return err_ptr(err);
}

struct file *mqueue_open(struct task *t, const char *name, int oflag, uint32_t mode,
			 const struct l_mq_attr *attr)
{
	struct mqns *ns = mqns_get(t->ns->ipc);
	const struct cred *c = task_cred(t);
	AUTO_FREE char *shown = NULL;
	int err = check_name(name);
	struct mq *q;

	if (err)
		return err_ptr(err);
	q = find(ns, name);
	if (!q) {
		if (!(oflag & O_CREAT))
			return err_ptr(-ENOENT);
		q = new_queue(ns, name, attr, mode & ~fsctx_umask(t->fs), c->fsuid, c->fsgid);
		if (ptr_err(q) == -EEXIST && !(oflag & O_EXCL)) /* lost a race */
			q = find(ns, name);
		if (!q)
			return err_ptr(-ENOENT);
	} else {
		q = open_existing(t, q, oflag);
	}
	if (is_err(q))
		return err_ptr(ptr_err(q));
	shown = kasprintf("/%s", name);
	return file_create_pseudo(&q->inode, &mq_fops, NULL,
				  (unsigned)oflag & (O_ACCMODE | O_NONBLOCK), shown);
}

long mqueue_unlink(struct task *t, const char *name)
{
	struct mqns *ns = mqns_get(t->ns->ipc);
	int err = check_name(name);
	struct mq *q;

	if (err)
		return err;
	q = find(ns, name);
	if (!q)
		return -ENOENT;
	if (inode_owner_or_capable(&q->inode, task_cred(t)))
		remove_queue(ns, q);
	else
		err = -EPERM; /* the directory is sticky */
	inode_put(&q->inode);
	return err;
}

void mqueue_init(void)
{
	mutex_init(&namespaces_mu, RANK_EPOLL);
	fs_register(&mqueue_type);
}
