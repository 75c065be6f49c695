// SPDX-License-Identifier: Apache-2.0
/* POSIX message queues (man 7 mq_overview). */
#ifndef SENTRY_FS_MQUEUE_MQUEUE_H
#define SENTRY_FS_MQUEUE_MQUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct file;
struct ipcns;
struct super;
struct task;

#define MQ_PRIO_MAX_G 32768

struct l_mq_attr {
	int64_t mq_flags, mq_maxmsg, mq_msgsize, mq_curmsgs, reserved[4];
};
_Static_assert(sizeof(struct l_mq_attr) == 64, "struct mq_attr is 64 bytes");

struct l_sigevent {
	uint64_t value;
	int32_t signo, notify;
	uint8_t pad[48];
};
_Static_assert(sizeof(struct l_sigevent) == 64, "struct sigevent is 64 bytes");

/* Registers the file system type mqueue. */
void mqueue_init(void);
/* The IPC namespace goes away: its queues, too. Called by ipcns_put() before it frees @ns. */
void mqueue_ipcns_exit(struct ipcns *ns);

/* The file system of @ipc's queues: a reference. */
struct super *mqueue_get_super(struct ipcns *ipc);

/* The calls, on a kernel copy of their arguments. -errno as in the man pages. */
struct file *mqueue_open(struct task *t, const char *name, int oflag, uint32_t mode,
			 const struct l_mq_attr *attr);
long mqueue_unlink(struct task *t, const char *name);
/* @buf is heap, taken over on success. @deadline_ns: CLOCK_MONOTONIC. */
long mqueue_send(struct task *t, struct file *f, void *buf, size_t len, unsigned prio,
		 int64_t deadline_ns);
/* *ret_buf: heap, the caller's. Length or -errno. */
ssize_t mqueue_receive(struct task *t, struct file *f, size_t size, int64_t deadline_ns,
		       void **ret_buf, unsigned *ret_prio);
/* A request that mqueue_notify() serves. */
bool mqueue_notify_ok(const struct l_sigevent *ev);
/* @ev NULL: takes the caller's registration back. */
long mqueue_notify(struct task *t, struct file *f, const struct l_sigevent *ev);
void mqueue_getattr(struct file *f, struct l_mq_attr *ret);
int mqueue_is(const struct file *f);
size_t mqueue_msgsize(struct file *f);

#endif
