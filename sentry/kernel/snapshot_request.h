// SPDX-License-Identifier: Apache-2.0
/*
 * A guest's request for a snapshot of its own sandbox (/proc/holdfast/snapshot): one at a time, served by
 * somebody outside, since a sentry can't make files. See docs/snapshots-in-guests.md.
 */
#ifndef SENTRY_KERNEL_SNAPSHOT_REQUEST_H
#define SENTRY_KERNEL_SNAPSHOT_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#define SNAPSHOT_NAME_MAX 64

struct waitq;

/* Once, by kernel_init(). */
void snapshot_request_init(void);
/* Guests may ask from now on; @notify tells whoever serves, from the asking thread, with no lock held. Once. */
void snapshot_request_allow(void (*notify)(void));
bool snapshot_request_allowed(void);

/* ---- for who asks ---- */

/* Posts a request for a snapshot called @name (NUL-terminated, up to SNAPSHOT_NAME_MAX bytes): its number,
 * which is positive, -EPERM: not allowed, -EBUSY: another is being served, -EAGAIN: too soon after the last,
 * -EIO: nobody serves any more. */
int64_t snapshot_request_post(const char *name);
/* -EINPROGRESS, or its end: 0 or -errno; -EIDRM when a later one has been asked for. */
int snapshot_request_result(int64_t nr);
/* Is @nr the one that the image is for that is being taken right now? */
bool snapshot_request_is_taken(int64_t nr);
/* Woken when a request ends. */
struct waitq *snapshot_request_waitq(void);

/* ---- for who serves ---- */

/* The pending request: its number, the name in @name; 0 when there is none. */
int64_t snapshot_request_get(char name[SNAPSHOT_NAME_MAX + 1]);
/* From now until it ends, images are the answer to @nr. */
void snapshot_request_take(int64_t nr);
/* It is done: @err 0 or -errno. An unknown number is ignored. */
void snapshot_request_end(int64_t nr, int err);
/* Nobody serves any more: the pending one fails, as do later ones. */
void snapshot_request_close(void);

#endif
