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

uint64_t generation_get(void);
/* As part of the kernel's record; a load counts one on. */
void generation_fields(struct state *s);

#endif
