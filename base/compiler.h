// SPDX-License-Identifier: Apache-2.0
/* Attribute names, used everywhere in place of the raw __attribute__ spelling. */
#ifndef BASE_COMPILER_H
#define BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>

#define __must_check __attribute__((warn_unused_result))
#define __printf(f, a) __attribute__((format(printf, f, a)))
#define __cold __attribute__((cold))
#define __noreturn __attribute__((noreturn))
#define __packed __attribute__((packed))
#define __aligned(n) __attribute__((aligned(n)))
#define __unused __attribute__((unused))
#define __uninitialized __attribute__((uninitialized)) /* only with a comment saying why */
#define __weak __attribute__((weak))
#define fallthrough __attribute__((fallthrough))

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member)                                                  \
	__extension__({                                                                  \
		const __typeof__(((type *)0)->member) *co_mptr = (ptr);                  \
		(type *)((uintptr_t)co_mptr - offsetof(type, member));                   \
	})

/* One read (or write) of memory that another thread or process may change under us. */
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile __typeof__(x) *)&(x) = (v))

#define MIN(a, b)                                                                        \
	__extension__({                                                                  \
		__typeof__(a) mn_a = (a);                                                \
		__typeof__(b) mn_b = (b);                                                \
		mn_a < mn_b ? mn_a : mn_b;                                               \
	})
#define MAX(a, b)                                                                        \
	__extension__({                                                                  \
		__typeof__(a) mx_a = (a);                                                \
		__typeof__(b) mx_b = (b);                                                \
		mx_a > mx_b ? mx_a : mx_b;                                               \
	})

#endif
