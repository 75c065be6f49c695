// SPDX-License-Identifier: Apache-2.0
/*
 * Heap. Small objects of fixed size: kzalloc() never returns NULL (the sentry panics when the host
 * has no page left: it can't go on, and every count that a guest can grow has a limit anyway).
 * Buffers whose size a guest chooses: kmalloc_guest(), which returns NULL on failure, to be turned
 * into ENOMEM.
 */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stdlib.h>

#include "base/compiler.h"

void *kzalloc(size_t size) __attribute__((malloc, returns_nonnull, alloc_size(1)));
void *kcalloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull, alloc_size(1, 2)));
/* realloc of an array; panics on failure or overflow. */
void *krealloc_array(void *p, size_t n, size_t size) __attribute__((returns_nonnull));
char *kstrdup(const char *s) __attribute__((malloc, returns_nonnull));
char *kstrndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));
char *kasprintf(const char *fmt, ...) __printf(1, 2) __attribute__((returns_nonnull));
void *kmalloc_guest(size_t size) __must_check __attribute__((malloc));

#endif
