// SPDX-License-Identifier: Apache-2.0
/* epoll(7). */
#ifndef SENTRY_FS_EPOLL_EPOLL_H
#define SENTRY_FS_EPOLL_EPOLL_H

#include <stdint.h>

#include "base/gaddr.h"

struct task;
struct file;

struct l_epoll_event {
	uint32_t events;
	uint64_t data;
} __attribute__((packed));
_Static_assert(sizeof(struct l_epoll_event) == 12, "struct epoll_event is packed on x86-64");

#define EPOLL_MAX_WATCHES (1u << 20) /* fs.epoll.max_user_watches, over the whole sandbox */
#define EPOLL_MAX_NESTS 4            /* epolls watching epolls */
#define EPOLL_MAX_EVENTS (INT32_MAX / (int)sizeof(struct l_epoll_event))

/* A new instance; err_ptr(-ENFILE). */
struct file *epoll_create_file(void);
/* epoll_ctl(2); @ev is ignored for EPOLL_CTL_DEL. @tf: the file behind @fd. */
long epoll_ctl_file(struct file *epf, int op, struct file *tf, int fd, struct l_epoll_event *ev);
/* epoll_wait(2). @deadline_ns: guest CLOCK_MONOTONIC, 0: don't wait, DEADLINE_NONE. Number of events,
 * -EINTR (never restarted, man 7 signal), -EFAULT, -EINVAL (not an epoll). */
long epoll_wait_file(struct task *t, struct file *epf, gaddr_t events, int maxevents,
		     int64_t deadline_ns);

/* epoll_file_released() is declared in vfs.h, whose file release calls it. */

#endif
