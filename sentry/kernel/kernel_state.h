// SPDX-License-Identifier: Apache-2.0
/*
 * What a load of the kernel's objects needs from outside. Order of a load:
 *
 *   kernel_init() and so on, as for a fresh sandbox; kernel_load_begin(c): the world is frozen, and
 *   every loaded process belongs to container @c
 *   the load itself; state_kernel's object must be its first root
 *   kernel_resume_loaded(): threads are made, and stand at their loops' tops; then kernel_thaw()
 */
#ifndef SENTRY_KERNEL_KERNEL_STATE_H
#define SENTRY_KERNEL_KERNEL_STATE_H

#include "sentry/state/state.h"

struct container;
struct task_usage;

void kernel_load_begin(struct container *c);
/* -EAGAIN: no host threads; the sandbox is of no use then. */
int __must_check kernel_resume_loaded(void);

/* ---- for the types of the kernel's own objects ---- */

struct container *kernel_loaded_container(void);
void state_usage(struct state *s, struct task_usage *u);

#endif
