// SPDX-License-Identifier: Apache-2.0
/* Shared by sys_socket.c and sys_sockmsg.c. */
#ifndef SYSCALLS_SYS_SOCKET_H
#define SYSCALLS_SYS_SOCKET_H

#include "base/gaddr.h"
#include "sentry/socket/socket.h"

/* The signal that goes with -EPIPE. */
void task_sigpipe(struct task *t);
/* The socket of a descriptor; *ret_f: reference that keeps it. err_ptr(-EBADF, -ENOTSOCK). */
struct socket *sockfd_get(struct task *t, int fd, struct file **ret_f);
/* An address from the guest. 0, -EINVAL (length), -EFAULT. */
int sockaddr_in(struct task *t, gaddr_t uaddr, uint64_t len, struct sock_addr *ret);
/* An address to the guest, cut to what *ulen allows; *ulen becomes its whole length. */
int sockaddr_out(struct task *t, gaddr_t uaddr, gaddr_t ulen, const struct sock_addr *addr);

#endif
