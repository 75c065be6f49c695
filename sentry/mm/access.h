// SPDX-License-Identifier: Apache-2.0
/* Between usermem.c, which finds guest memory, and iter.c, which walks I/O vectors over it. */
#ifndef SENTRY_MM_ACCESS_H
#define SENTRY_MM_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "base/gaddr.h"

struct mm;
struct task;

/* Moves bytes; returns how many. @write: to the guest; @buf NULL then writes zeroes. */
size_t mm_access(struct mm *mm, struct task *t, gaddr_t a, void *buf, size_t len, bool write);
/*
 * Pinning: begin (takes mm.mu for reading), try for each piece, end. mm_pin_try(): 1 and the host address,
 * 0 when the page must be resolved first (after end, with mm_pin_resolve()), or -EFAULT. A pin taken at
 * the end holds for all pieces until mm_unpin().
 */
void mm_pin_begin(struct mm *mm);
int mm_pin_try(struct mm *mm, gaddr_t a, size_t len, bool write, struct iovec *ret);
void mm_pin_end(struct mm *mm, bool pin);
int mm_pin_resolve(struct mm *mm, struct task *t, gaddr_t a, bool write);
void mm_unpin(struct mm *mm);

#endif
