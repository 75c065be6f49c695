// SPDX-License-Identifier: Apache-2.0
/* System V IPC (man 7 sysvipc): semaphores, message queues, shared memory, and their namespace. */
#ifndef SENTRY_KERNEL_SYSV_H
#define SENTRY_KERNEL_SYSV_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/gaddr.h"

struct task;
struct ipcns;
struct seqbuf;

/* /proc/sys/kernel/{sem,msg*,shm*} as shown to the guest */
#define SEMMSL_G 32000   /* semaphores in a set */
#define SEMOPM_G 500     /* operations of a semop */
#define SEMMNI_G 32000   /* sets */
#define SEMMNS_G 1024000 /* semaphores in a namespace */
#define SEMVMX_G 32767
#define MSGMAX_G 8192    /* bytes of a message */
#define MSGMNB_G 16384   /* bytes of a queue */
#define MSGMNI_G 32000
#define SHMMNI_G 4096
#define SHMMAX_G (1ULL << 40)        /* bytes of a segment */
#define SHMALL_G ((1ULL << 42) >> 12) /* pages in a namespace */

/* Those that root may set. The sandbox's, not a namespace's. */
struct sysv_limits {
	_Atomic int64_t msgmax, msgmnb, msgmni, shmmni, shmmax, shmall;
};
extern struct sysv_limits sysv_limits;

struct l_ipc_perm {
	int32_t key;
	uint32_t uid, gid, cuid, cgid, mode;
	uint16_t seq, pad1;
	uint32_t pad2;
	uint64_t unused[2];
};
struct l_semid_ds {
	struct l_ipc_perm perm;
	int64_t otime;
	uint64_t unused1;
	int64_t ctime;
	uint64_t unused2, nsems, unused3, unused4;
};
struct l_shmid_ds {
	struct l_ipc_perm perm;
	uint64_t segsz;
	int64_t atime, dtime, ctime;
	int32_t cpid, lpid;
	uint64_t nattch, unused4, unused5;
};
struct l_msqid_ds {
	struct l_ipc_perm perm;
	int64_t stime, rtime, ctime;
	uint64_t cbytes, qnum, qbytes;
	int32_t lspid, lrpid;
	uint64_t unused4, unused5;
};
_Static_assert(sizeof(struct l_ipc_perm) == 48, "ipc64_perm");
_Static_assert(sizeof(struct l_semid_ds) == 104, "semid64_ds");
_Static_assert(sizeof(struct l_shmid_ds) == 112, "shmid64_ds");
_Static_assert(sizeof(struct l_msqid_ds) == 120, "msqid64_ds");

struct l_sembuf {
	uint16_t num;
	int16_t op, flg;
};

void sysv_init(void);

long sysv_semget(struct task *t, int32_t key, int nsems, int flags);
/* @ops: a kernel copy of @n, 1..SEMOPM_G. */
long sysv_semop(struct task *t, int id, const struct l_sembuf *ops, unsigned n, int64_t deadline_ns);
long sysv_semctl(struct task *t, int id, int num, int cmd, uint64_t arg);

long sysv_msgget(struct task *t, int32_t key, int flags);
long sysv_msgsnd(struct task *t, int id, gaddr_t msgp, size_t size, int flags);
long sysv_msgrcv(struct task *t, int id, gaddr_t msgp, size_t size, int64_t type, int flags);
long sysv_msgctl(struct task *t, int id, int cmd, gaddr_t buf);

long sysv_shmget(struct task *t, int32_t key, uint64_t size, int flags);
long sysv_shmat(struct task *t, int id, gaddr_t addr, int flags);
long sysv_shmdt(struct task *t, gaddr_t addr);
long sysv_shmctl(struct task *t, int id, int cmd, gaddr_t buf);

/* /proc/sysvipc/ */
void sysv_show_shm(struct ipcns *ns, struct seqbuf *out);
void sysv_show_sem(struct ipcns *ns, struct seqbuf *out);
void sysv_show_msg(struct ipcns *ns, struct seqbuf *out);

#endif
