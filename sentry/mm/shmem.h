// SPDX-License-Identifier: Apache-2.0
/*
 * Shared anonymous memory: the object behind MAP_SHARED|MAP_ANONYMOUS, mappings of /dev/zero and SysV
 * segments. One sparse range of an mfile of its own; it goes away with the last reference.
 */
#ifndef SENTRY_MM_SHMEM_H
#define SENTRY_MM_SHMEM_H

#include <stdbool.h>
#include <stdint.h>

struct vm_object;

/* An object of @size bytes (rounded up to pages), zero-filled, with one reference for the caller (its
 * ops->put drops it). err_ptr(-ENOMEM). */
struct vm_object *shmem_object_create(uint64_t size);
bool vm_object_is_shmem(const struct vm_object *o);
uint64_t shmem_object_size(const struct vm_object *o);
/* Frees the pages of a range (MADV_REMOVE); they read as zeroes afterwards. */
void shmem_object_punch(struct vm_object *o, uint64_t off, uint64_t len);
/* Number for /proc/PID/maps. */
uint64_t shmem_object_ino(const struct vm_object *o);

#endif
