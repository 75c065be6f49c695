// SPDX-License-Identifier: Apache-2.0
/*
 * The generation of a sandbox: a number that changes whenever it was loaded from an image (restored, woken,
 * branched), for programs that must notice: /proc/holdfast/generation. See docs/snapshots-in-guests.md.
 */
#ifndef SENTRY_KERNEL_GENERATION_H
#define SENTRY_KERNEL_GENERATION_H

#include <stdint.h>

struct state;
struct waitq;

/* Once, by kernel_init(). */
void generation_init(void);
uint64_t generation_get(void);
/* Of who polls the number. Woken by generation_announce(), when a loaded sandbox is about to run. */
struct waitq *generation_waitq(void);
void generation_announce(void);
/* As part of the kernel's record; a load counts one on. */
void generation_fields(struct state *s);

#endif
