// SPDX-License-Identifier: Apache-2.0
/* Shared by kernel/sysv_*.c only. */
#ifndef SENTRY_KERNEL_SYSV_PRIV_H
#define SENTRY_KERNEL_SYSV_PRIV_H

#include "base/mutex.h"
#include "base/ref.h"
#include "sentry/kernel/sysv.h"

struct userns;
struct cred;

/* What the three kinds have in common. First member of each. All under sysv_mu. */
struct ipc_obj {
	struct ref ref;     /* the table, and whoever sleeps on it or maps it */
	int id;
	int32_t key;
	uid_t uid, cuid;    /* kernel ids */
	gid_t gid, cgid;
	uint32_t mode;
	uint16_t seq;
	bool removed;
	int64_t ctime_s;
};

enum ipc_kind { IPC_SEM, IPC_MSG, IPC_SHM, IPC_KIND_COUNT };

struct ipc_ids {
	struct ipc_obj **slot;
	unsigned nslots, in_use;
	uint16_t seq;
};

struct ipcns {
	struct ref ref;
	struct userns *userns;
	uint64_t inum;
	struct ipc_ids ids[IPC_KIND_COUNT];
	uint64_t total_sems, total_shm_pages;
};

/* One lock for all of SysV IPC: RANK_NS, so neither guest memory nor allocation of mfile ranges under it. */
extern struct mutex sysv_mu;

struct ipcns *task_ipcns(struct task *t); /* borrowed: the caller's own */
/* _locked: sysv_mu. Object of @id, or NULL. */
struct ipc_obj *ipc_find_locked(struct ipcns *ns, enum ipc_kind kind, int id);
/* What a STAT command shows: @id is an id with @by_id (IPC_STAT), else an index of the table; @any
 * (*_STAT_ANY) needs no permission. 0, -EINVAL or -EACCES. */
int ipc_find_stat_locked(struct task *t, enum ipc_kind kind, int id, bool by_id, bool any,
			 struct ipc_obj **ret);
struct ipc_obj *ipc_find_key_locked(struct ipcns *ns, enum ipc_kind kind, int32_t key);
/* Enters @o (initialised here, reference of the caller becomes the table's). Id or -ENOSPC. */
int ipc_insert_locked(struct task *t, struct ipcns *ns, enum ipc_kind kind, struct ipc_obj *o,
		      int32_t key, int flags, unsigned max);
void ipc_unlink_locked(struct ipcns *ns, enum ipc_kind kind, struct ipc_obj *o);
/* ipcget's decision when a key is given: -ENOENT: create; else an object's id or error. */
int ipc_get_existing_locked(struct task *t, struct ipcns *ns, enum ipc_kind kind, int32_t key,
			    int flags, struct ipc_obj **ret);
/* @mask: S_IRUGO/S_IWUGO style bits (0444, 0222). 0 or -EACCES. */
int ipc_access(struct task *t, const struct ipc_obj *o, uint32_t mask);
/* Owner, creator or CAP_SYS_ADMIN: 0 or -EPERM. */
int ipc_owner(struct task *t, const struct ipc_obj *o);
void ipc_show_perm(struct task *t, const struct ipc_obj *o, struct l_ipc_perm *ret);
/* IPC_SET. -EINVAL: ids that aren't mapped. */
int ipc_set_perm(struct task *t, struct ipc_obj *o, const struct l_ipc_perm *p);
int64_t ipc_now_s(void);
/* Destructors of what is left when a namespace goes. Context: no locks. */
void sem_destroy_all(struct ipcns *ns);
void msg_destroy_all(struct ipcns *ns);
void shm_destroy_all(struct ipcns *ns);
/* Highest index in use, for IPC_INFO; 0 if none. */
int ipc_max_index_locked(const struct ipc_ids *ids);

#endif
