// SPDX-License-Identifier: Apache-2.0
/* A fresh working directory for a test of files. Each test runs in a child, so it needs no way back. */
#ifndef TESTS_SYSCALLS_TMPDIR_H
#define TESTS_SYSCALLS_TMPDIR_H

#include <sys/stat.h>

#include "tests/syscalls/harness.h"

static inline void enter_tmpdir(void)
{
	char name[] = "/tmp/hf-test-XXXXXX";

	CHECK(mkdtemp(name));
	CHECK(chdir(name) == 0);
	umask(022);
}

static inline int make_file(const char *name, const char *text)
{
	int fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0644);

	CHECK(fd >= 0);
	CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

#endif
