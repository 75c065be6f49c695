// SPDX-License-Identifier: Apache-2.0
/* What the program in the kept image has in place of a libc, and how it says what failed. See kept_guest.c. */
#ifndef TESTS_STATE_KEPT_H
#define TESTS_STATE_KEPT_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

static inline long call6(long n, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	long ret;

	__asm__ volatile("syscall" : "=a"(ret)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return ret;
}

#define ARG(x) (long)(x)
#define sys0(n) call6(n, 0, 0, 0, 0, 0, 0)
#define sys1(n, a) call6(n, ARG(a), 0, 0, 0, 0, 0)
#define sys2(n, a, b) call6(n, ARG(a), ARG(b), 0, 0, 0, 0)
#define sys3(n, a, b, c) call6(n, ARG(a), ARG(b), ARG(c), 0, 0, 0)
#define sys4(n, a, b, c, d) call6(n, ARG(a), ARG(b), ARG(c), ARG(d), 0, 0)
#define sys5(n, a, b, c, d, e) call6(n, ARG(a), ARG(b), ARG(c), ARG(d), ARG(e), 0)
#define sys6(n, a, b, c, d, e, f) call6(n, ARG(a), ARG(b), ARG(c), ARG(d), ARG(e), ARG(f))

static inline size_t length(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

static inline bool same(const void *a, const void *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (((const char *)a)[i] != ((const char *)b)[i])
			return false;
	return true;
}

static inline void nap(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	sys2(SYS_nanosleep, &ts, 0);
}

/* For the report. */
void say(const char *s);
void failed(const char *what, const char *cond);

#define CHECK(cond)                                                                      \
	do {                                                                             \
		if (!(cond))                                                             \
			failed(__func__, #cond);                                         \
	} while (0)

/* A file with this text at its end; its descriptor. */
int make(const char *path, const char *text);
/* Has it just this text? */
bool holds(int fd, const char *text);
bool file_holds(const char *path, const char *text);

/* Pages that all processes share: [0] the registers' child goes on, [1] a futex, others: a child is ready. */
extern volatile int *shared;

/* kept_files.c */
void files_setup(void);
void files_check(void);
void ipc_setup(void);
void ipc_check(void);
void terminal_setup(void);
void terminal_check(void);
void bind_setup(void);
void bind_check(void);
void listing_setup(void);
void listing_check(void);

/* kept_kernel.c */
void stopped_setup(void);
void stopped_check(void);
void thread_setup(void);
void thread_check(void);
void nested_setup(void);
void nested_check(void);
void proc_setup(void);
void proc_check(void);
void netlink_setup(void);
void netlink_check(void);

#endif
