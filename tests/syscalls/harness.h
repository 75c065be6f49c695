// SPDX-License-Identifier: Apache-2.0
/*
 * Harness of the syscall tests. A test program is a static binary that passes natively first and then
 * has to pass in the sandbox with the same output. Each TEST() runs in a child process with a
 * time limit; the result is TAP.
 *
 *	TEST(pipe_read_blocks_until_write) { ... CHECK(read(fd, b, 1) == 1); ... }
 *	int main(void) { return run_tests(); }      // provided: TEST_MAIN
 *
 * CHECK aborts the test with file, line and errno. SKIP("why") names a gap; every skip is counted.
 */
#ifndef TESTS_SYSCALLS_HARNESS_H
#define TESTS_SYSCALLS_HARNESS_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEST_TIMEOUT 60 /* seconds for each test */
#define TEST_SKIPPED 77

struct test {
	const char *name;
	void (*fn)(void);
	struct test *next;
};

static struct test *test_first, **test_tail = &test_first;

#define TEST(n)                                                                          \
	static void test_##n(void);                                                      \
	__attribute__((constructor)) static void register_##n(void)                      \
	{                                                                                \
		static struct test t = { #n, test_##n, NULL };                           \
		*test_tail = &t;                                                         \
		test_tail = &t.next;                                                     \
	}                                                                                \
	static void test_##n(void)

#define FAIL(...)                                                                        \
	do {                                                                             \
		int fail_errno = errno;                                                  \
		printf("# %s:%d: ", __FILE__, __LINE__);                                 \
		printf(__VA_ARGS__);                                                     \
		printf(" (errno %d %s)\n", fail_errno, strerror(fail_errno));            \
		fflush(stdout);                                                          \
		_exit(1);                                                                \
	} while (0)

#define CHECK(cond)                                                                      \
	do {                                                                             \
		if (!(cond))                                                             \
			FAIL("CHECK(%s)", #cond);                                        \
	} while (0)

/* The call fails with exactly this errno. */
#define CHECK_ERRNO(call, err)                                                           \
	do {                                                                             \
		errno = 0;                                                               \
		long ce_r = (long)(call);                                                \
		if (ce_r != -1 || errno != (err))                                        \
			FAIL("%s returned %ld, wanted %s", #call, ce_r, #err);           \
	} while (0)

#define SKIP(why)                                                                        \
	do {                                                                             \
		printf("# SKIP %s\n", why);                                              \
		fflush(stdout);                                                          \
		_exit(TEST_SKIPPED);                                                     \
	} while (0)

static int run_one(const struct test *t, int n)
{
	int status;

	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(TEST_TIMEOUT);
		t->fn();
		fflush(stdout);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		printf("not ok %d - %s # fork or wait failed\n", n, t->name);
		return 1;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
		printf("ok %d - %s\n", n, t->name);
		return 0;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIPPED) {
		printf("ok %d - %s # SKIP\n", n, t->name);
		return 0;
	}
	if (WIFSIGNALED(status))
		printf("# killed by signal %d\n", WTERMSIG(status));
	printf("not ok %d - %s\n", n, t->name);
	return 1;
}

/* argv[1], if given, runs only the tests whose name contains it. */
static int run_tests(int argc, char **argv)
{
	int n = 0, failed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (struct test *t = test_first; t; t = t->next)
		if (argc < 2 || strstr(t->name, argv[1]))
			failed += run_one(t, ++n);
	printf("1..%d\n", n);
	return failed != 0;
}

#define TEST_MAIN                                                                        \
	int main(int argc, char **argv)                                                  \
	{                                                                                \
		return run_tests(argc, argv);                                            \
	}

#endif
