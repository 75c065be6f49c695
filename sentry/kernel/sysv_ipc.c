// SPDX-License-Identifier: Apache-2.0
/*
 * What System V semaphores, queues and segments share: the namespace, id tables, keys, permissions (man 7
 * sysvipc, 7 ipc_namespaces).
 *
 * An id is sequence * 32768 + index, as in Linux, so that a stale id doesn't name its successor. One
 * mutex guards everything: these calls are rare, and none holds it while it sleeps or touches guest memory.
 */
#include <errno.h>
#include <linux/capability.h>
#include <sys/ipc.h>

#include "base/alloc.h"
#include "sentry/fs/mqueue/mqueue.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/sysv_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/time/clock.h"

#define SEQ_MAX (INT32_MAX >> IPC_INDEX_BITS)

struct mutex sysv_mu;

struct sysv_limits sysv_limits = {
	.msgmax = MSGMAX_G, .msgmnb = MSGMNB_G, .msgmni = MSGMNI_G,
	.shmmni = SHMMNI_G, .shmmax = SHMMAX_G, .shmall = SHMALL_G,
};

static void init_lock(void)
{
	mutex_init(&sysv_mu, RANK_NS);
}

/* Done by the first namespace, too: calling it at start is optional. */
void sysv_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	(void)pthread_once(&once, init_lock);
}

struct ipcns *ipcns_create(struct userns *userns)
{
	struct ipcns *ns = kzalloc(sizeof(*ns));

	sysv_init();
	ref_init(&ns->ref);
	ns->userns = userns_get(userns);
	ns->inum = ns_next_inum();
	return ns;
}

struct ipcns *ipcns_get(struct ipcns *ns)
{
	ref_get(&ns->ref);
	return ns;
}

void ipcns_put(struct ipcns *ns)
{
	if (!ns || !ref_put(&ns->ref))
		return;
	mqueue_ipcns_exit(ns);
	sem_destroy_all(ns);
	msg_destroy_all(ns);
	shm_destroy_all(ns);
	for (int k = 0; k < IPC_KIND_COUNT; k++)
		free(ns->ids[k].slot);
	userns_put(ns->userns);
	free(ns);
}

uint64_t ipcns_inum(const struct ipcns *ns)
{
	return ns->inum;
}

struct userns *ipcns_userns(const struct ipcns *ns)
{
	return ns->userns;
}

struct ipcns *task_ipcns(struct task *t)
{
	return t->ns->ipc;
}

int64_t ipc_now_s(void)
{
	return clock_realtime_ns() / NSEC_PER_SEC;
}

/* ---- ids ---- */

static struct ipc_obj *find_index_locked(struct ipcns *ns, enum ipc_kind kind, int index)
{
	struct ipc_ids *ids = &ns->ids[kind];

	return index >= 0 && (unsigned)index < ids->nslots ? ids->slot[index] : NULL;
}

struct ipc_obj *ipc_find_locked(struct ipcns *ns, enum ipc_kind kind, int id)
{
	struct ipc_obj *o;

	if (id < 0)
		return NULL;
	o = find_index_locked(ns, kind, id & IPC_INDEX_MASK);
	return o && o->id == id ? o : NULL;
}

int ipc_find_stat_locked(struct task *t, enum ipc_kind kind, int id, bool by_id, bool any,
			 struct ipc_obj **ret)
{
	struct ipcns *ns = task_ipcns(t);
	struct ipc_obj *o = by_id ? ipc_find_locked(ns, kind, id) : find_index_locked(ns, kind, id);
	int r;

	if (!o)
		return -EINVAL;
	r = any ? 0 : ipc_access(t, o, 0444);
	if (r == 0)
		*ret = o;
	return r;
}

struct ipc_obj *ipc_find_key_locked(struct ipcns *ns, enum ipc_kind kind, int32_t key)
{
	struct ipc_ids *ids = &ns->ids[kind];

	for (unsigned i = 0; i < ids->nslots; i++)
		if (ids->slot[i] && ids->slot[i]->key == key)
			return ids->slot[i];
	return NULL;
}

int ipc_max_index_locked(const struct ipc_ids *ids)
{
	for (unsigned i = ids->nslots; i > 0; i--)
		if (ids->slot[i - 1])
			return (int)i - 1;
	return 0;
}

int ipc_insert_locked(struct task *t, struct ipcns *ns, enum ipc_kind kind, struct ipc_obj *o,
		      int32_t key, int flags, unsigned max)
{
	struct ipc_ids *ids = &ns->ids[kind];
	const struct cred *c = task_cred(t);
	unsigned i;

	if (ids->in_use >= max)
		return -ENOSPC;
	for (i = 0; i < ids->nslots && ids->slot[i]; i++)
		;
	if (i == ids->nslots) {
		unsigned n = ids->nslots ? ids->nslots * 2 : 16;

		ids->slot = krealloc_array(ids->slot, n, sizeof(struct ipc_obj *));
		for (unsigned j = ids->nslots; j < n; j++)
			ids->slot[j] = NULL;
		ids->nslots = n;
	}
	o->seq = ids->seq;
	ids->seq = (uint16_t)((ids->seq + 1) % SEQ_MAX);
	o->id = (int)((uint32_t)o->seq << IPC_INDEX_BITS | i);
	o->key = key;
	o->uid = o->cuid = c->euid;
	o->gid = o->cgid = c->egid;
	o->mode = (uint32_t)flags & 0777;
	o->ctime_s = ipc_now_s();
	ids->slot[i] = o;
	ids->in_use++;
	return o->id;
}

void ipc_unlink_locked(struct ipcns *ns, enum ipc_kind kind, struct ipc_obj *o)
{
	ns->ids[kind].slot[o->id & IPC_INDEX_MASK] = NULL;
	ns->ids[kind].in_use--;
	o->removed = true;
}

int ipc_get_existing_locked(struct task *t, struct ipcns *ns, enum ipc_kind kind, int32_t key,
			    int flags, struct ipc_obj **ret)
{
	struct ipc_obj *o = key == IPC_PRIVATE ? NULL : ipc_find_key_locked(ns, kind, key);
	int r;

	*ret = NULL;
	if (!o)
		return key == IPC_PRIVATE || (flags & IPC_CREAT) ? 0 : -ENOENT;
	if ((flags & IPC_CREAT) && (flags & IPC_EXCL))
		return -EEXIST;
	r = ipc_access(t, o, (uint32_t)flags & 0777);
	if (r < 0)
		return r;
	*ret = o;
	return o->id;
}

/* ---- permissions ---- */

int ipc_access(struct task *t, const struct ipc_obj *o, uint32_t mask)
{
	const struct cred *c = task_cred(t);
	uint32_t want = (mask >> 6 | mask >> 3 | mask) & 7, granted = o->mode;

	if (c->euid == o->cuid || c->euid == o->uid)
		granted >>= 6;
	else if (cred_in_group(c, o->cgid) || cred_in_group(c, o->gid))
		granted >>= 3;
	if (!(want & ~granted & 7))
		return 0;
	return cred_capable_in(c, task_ipcns(t)->userns, CAP_IPC_OWNER) ? 0 : -EACCES;
}

int ipc_owner(struct task *t, const struct ipc_obj *o)
{
	const struct cred *c = task_cred(t);

	if (c->euid == o->cuid || c->euid == o->uid ||
	    cred_capable_in(c, task_ipcns(t)->userns, CAP_SYS_ADMIN))
		return 0;
	return -EPERM;
}

void ipc_show_perm(struct task *t, const struct ipc_obj *o, struct l_ipc_perm *ret)
{
	const struct userns *u = task_cred(t)->userns;

	*ret = (struct l_ipc_perm){
		.key = o->key,
		.uid = userns_show_uid(u, o->uid),
		.gid = userns_show_gid(u, o->gid),
		.cuid = userns_show_uid(u, o->cuid),
		.cgid = userns_show_gid(u, o->cgid),
		.mode = o->mode,
		.seq = o->seq,
	};
}

int ipc_set_perm(struct task *t, struct ipc_obj *o, const struct l_ipc_perm *p)
{
	const struct userns *u = task_cred(t)->userns;
	uid_t uid = userns_map_uid(u, p->uid);
	gid_t gid = userns_map_gid(u, p->gid);

	if (uid == (uid_t)-1 || gid == (gid_t)-1)
		return -EINVAL;
	o->uid = uid;
	o->gid = gid;
	o->mode = (o->mode & ~0777u) | (p->mode & 0777);
	o->ctime_s = ipc_now_s();
	return 0;
}
