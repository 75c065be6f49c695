// SPDX-License-Identifier: Apache-2.0
/* Shared by kernel/sysv_*.c only. */
#ifndef SENTRY_KERNEL_SYSV_PRIV_H
#define SENTRY_KERNEL_SYSV_PRIV_H

#include "base/list.h"
#include "base/mutex.h"
#include "base/ref.h"
#include "sentry/kernel/sysv.h"
#include "sentry/kernel/waitq.h"
#include "sentry/mm/mm.h"

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

#define IPC_INDEX_BITS 15
#define IPC_INDEX_MASK ((1 << IPC_INDEX_BITS) - 1)

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

/* ---- the three kinds; their files and kernel/sysv_state.c only ---- */

struct sem {
	uint16_t val;
	pid_t pid; /* last to change it, as it saw itself */
	unsigned ncnt, zcnt;
};

struct sem_set {
	struct ipc_obj o;
	unsigned nsems;
	int64_t otime_s;
	struct waitq wq;
	struct list undos; /* of sem_undo.set_node */
	struct sem *sem;   /* (c) heap, nsems */
};

struct sem_undo {
	struct list node;     /* in sem_undo_list */
	struct list set_node;
	struct sem_set *set;  /* NULL once removed */
	unsigned n;
	int16_t adj[];
};

struct sem_undo_list {
	struct ref ref;
	struct list undos;
};

struct sem_set *sem_set_alloc(void);
void sem_set_put(struct sem_set *s);

struct msg {
	struct list node;
	int64_t type;
	size_t size;
	uint8_t data[];
};

struct msg_queue {
	struct ipc_obj o;
	struct list msgs;
	struct waitq send_wq, recv_wq;
	uint64_t cbytes, qnum, qbytes;
	int64_t stime_s, rtime_s;
	pid_t lspid, lrpid;
};

struct msg *msg_alloc(size_t size); /* NULL: out of memory */
struct msg_queue *msg_queue_alloc(void);
void msg_queue_put(struct msg_queue *q);

#define L_SHM_DEST 01000u

struct shm_segment {
	struct ipc_obj o;
	struct vm_object obj;
	struct vm_object *mem;  /* (c) reference */
	struct ipcns *ns;       /* borrowed; NULL once out of the table */
	uint64_t size;          /* (c) as asked for */
	uint64_t nattch;
	int64_t atime_s, dtime_s;
	int64_t load_atime_s;   /* atime_s of an image: attaching while it is loaded isn't use */
	pid_t cpid, lpid;
	char name[24];          /* (c) for /proc/PID/maps */
};

extern const struct vm_object_ops shm_vm_ops;
/* Context: no sysv_mu; mm.mu maybe. */
void shm_put(struct shm_segment *s);

#endif
