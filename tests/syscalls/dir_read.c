// SPDX-License-Identifier: Apache-2.0
/* getdents64(2): every entry once, positions, buffers that are too small. */
#include <dirent.h>

#include "tests/syscalls/tmpdir.h"

TEST(lists_each_entry_once)
{
	enum { N = 500 };
	static bool seen[N];
	char name[16];
	int others = 0, files = 0;

	enter_tmpdir();
	for (int i = 0; i < N; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		close(open(name, O_CREAT | O_WRONLY, 0600));
	}
	DIR *d = opendir(".");
	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] != 'f') {
			others++;
			continue;
		}
		int i = atoi(e->d_name + 1);
		CHECK(!seen[i] && e->d_type == DT_REG);
		seen[i] = true;
		files++;
	}
	CHECK(files == N && others == 2);
	rewinddir(d);
	CHECK(readdir(d));
}

TEST(small_buffer_and_wrong_kind)
{
	char buf[64];

	enter_tmpdir();
	int fd = open(".", O_RDONLY);
	CHECK_ERRNO(syscall(SYS_getdents64, fd, buf, 8), EINVAL);
	CHECK(syscall(SYS_getdents64, fd, buf, 24) == 24);
	CHECK_ERRNO(syscall(SYS_getdents64, make_file("f", ""), buf, 64), ENOTDIR);
	CHECK_ERRNO(syscall(SYS_getdents64, 99, buf, 64), EBADF);
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	CHECK(syscall(SYS_getdents, fd, buf, sizeof(buf)) > 0);
}

TEST(removed_directory_has_no_entries)
{
	char buf[256];

	enter_tmpdir();
	CHECK(mkdir("d", 0755) == 0);
	int fd = open("d", O_RDONLY);
	CHECK(rmdir("d") == 0);
	CHECK_ERRNO(syscall(SYS_getdents64, fd, buf, sizeof(buf)), ENOENT);
}

TEST_MAIN
