// SPDX-License-Identifier: Apache-2.0
/* Futexes (man 2 futex, 2 futex_waitv, 2 set_robust_list). Wait queues are hashed by mm_futex_key(). */
#ifndef SENTRY_KERNEL_FUTEX_H
#define SENTRY_KERNEL_FUTEX_H

#include <stdint.h>

#include "base/gaddr.h"

struct task;

void futex_init(void);
/* futex(2), all operations; @timeout is what the fourth argument points to or carries. */
long futex_op(struct task *t, gaddr_t uaddr, int op, uint32_t val, gaddr_t timeout, gaddr_t uaddr2,
	      uint32_t val3);
/* Goes on with the interrupted wait in t->restart. */
long futex_restart(struct task *t);
/* FUTEX_WAKE from the kernel's side (clear_child_tid). Never fails visibly. */
void futex_wake_addr(struct task *t, gaddr_t uaddr, int n);
/* Robust list and PI state of an exiting task (exec too). */
void futex_exit_task(struct task *t);

#endif
