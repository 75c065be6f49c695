// SPDX-License-Identifier: Apache-2.0
/* Scope-bound cleanup. Ownership leaves a scope through steal_fd()/steal_ptr(). */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

#include "base/compiler.h"

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

#define AUTO_CLOSE __attribute__((cleanup(cleanup_close)))
#define AUTO_FREE __attribute__((cleanup(cleanup_free)))

/* Defines cleanup_<fn>() for AUTO(<fn>) on variables of type `type *`; fn must accept NULL and is
 * not called on error pointers. */
#define DEFINE_AUTO(type, fn)                                                            \
	static inline void cleanup_##fn(type **p)                                        \
	{                                                                                \
		if (*p && (uintptr_t)*p < (uintptr_t)-4095)                              \
			fn(*p);                                                          \
	}
#define AUTO(fn) __attribute__((cleanup(cleanup_##fn)))

static inline int steal_fd(int *fd)
{
	int f = *fd;

	*fd = -1;
	return f;
}

#define steal_ptr(p)                                                                     \
	__extension__({                                                                  \
		__typeof__(*(p)) sp_v = *(p);                                            \
		*(p) = NULL;                                                             \
		sp_v;                                                                    \
	})

#endif
