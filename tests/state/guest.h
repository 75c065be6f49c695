// SPDX-License-Identifier: Apache-2.0
/*
 * A guest that is saved and restored: items, each of which sets something up before and looks at it after. The
 * program says READY when everything is set up, waits for the file /tmp/state/go, which the test makes after the
 * restore, and then checks. Without a sandbox ("--native") it checks at once, which must pass as well.
 */
#ifndef TESTS_STATE_GUEST_H
#define TESTS_STATE_GUEST_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct item {
	const char *name;
	void (*setup)(void);
	void (*check)(void);
};

#define DIR_STATE "/tmp/state"

static const char *item_name;
static int item_failures, failures;

#define CHECK(cond)                                                                      \
	do {                                                                             \
		if (!(cond)) {                                                           \
			printf("FAIL %s: line %d: %s (errno %d)\n", item_name, __LINE__, \
			       #cond, errno);                                            \
			item_failures++;                                                 \
		}                                                                        \
	} while (0)

/* Without it there is nothing to test. */
#define NEED(cond)                                                                       \
	do {                                                                             \
		if (!(cond)) {                                                           \
			printf("FAIL %s: line %d: setup: %s (errno %d)\n", item_name,    \
			       __LINE__, #cond, errno);                                  \
			exit(2);                                                         \
		}                                                                        \
	} while (0)

static inline void wait_go(void)
{
	struct stat st;

	while (stat(DIR_STATE "/go", &st) < 0)
		nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
}

/* For who can't see what we print: the number of failures in a file that appears at once. */
static inline void tell_result(void)
{
	FILE *f = fopen(DIR_STATE "/done.new", "w");

	if (f && fprintf(f, "%d\n", failures) > 0 && fclose(f) == 0)
		(void)!rename(DIR_STATE "/done.new", DIR_STATE "/done");
	pause(); /* until it was read */
}

static inline int guest_main(int argc, char **argv, const struct item *items, size_t n)
{
	bool native = argc > 1 && strcmp(argv[1], "--native") == 0;

	if (argc > 1 && strcmp(argv[1], "--go") == 0) { /* by `exec` in the restored sandbox */
		fclose(fopen(DIR_STATE "/go", "w"));
		return 0;
	}

	setvbuf(stdout, NULL, _IOLBF, 0);
	mkdir(DIR_STATE, 0755);
	for (size_t i = 0; i < n; i++) {
		item_name = items[i].name;
		items[i].setup();
	}
	printf("READY\n");
	if (native)
		(void)!creat(DIR_STATE "/go", 0644);
	wait_go();
	for (size_t i = 0; i < n; i++) {
		item_name = items[i].name;
		item_failures = 0;
		errno = 0;
		items[i].check();
		failures += item_failures;
		if (!item_failures)
			printf("ok %s\n", item_name);
	}
	printf("DONE %d\n", failures);
	if (!native)
		tell_result();
	return failures ? 1 : 0;
}

#define ITEM(n) { #n, n##_setup, n##_check }

#endif
