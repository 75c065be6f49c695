// SPDX-License-Identifier: Apache-2.0
/*
 * Heap wrappers: see alloc.h. The allocator below is libc's; what is added is the policy for
 * failure, and the hook by which tests make the n-th guest-sized allocation fail.
 */
#include "base/alloc.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

static _Noreturn __cold void oom(size_t size)
{
	panic("out of host memory (%zu bytes)", size);
}

void *kzalloc(size_t size)
{
	void *p = calloc(1, size ? size : 1);

	if (!p)
		oom(size);
	return p;
}

void *kcalloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size ? size : 1);

	if (!p)
		oom(n);
	return p;
}

void *krealloc_array(void *p, size_t n, size_t size)
{
	void *q = reallocarray(p, n ? n : 1, size ? size : 1);

	if (!q)
		oom(n);
	return q;
}

char *kstrdup(const char *s)
{
	char *p = strdup(s);

	if (!p)
		oom(strlen(s));
	return p;
}

char *kstrndup(const char *s, size_t n)
{
	char *p = strndup(s, n);

	if (!p)
		oom(n);
	return p;
}

char *kasprintf(const char *fmt, ...)
{
	char *p = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&p, fmt, ap) < 0 || !p)
		oom(0);
	va_end(ap);
	return p;
}

/* Not zeroed: the caller fills it, or reads only what it filled. */
void *kmalloc_guest(size_t size)
{
	return malloc(size ? size : 1);
}
