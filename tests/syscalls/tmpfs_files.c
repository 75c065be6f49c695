// SPDX-License-Identifier: Apache-2.0
/* Files and directories on tmpfs (the working directory is a fresh directory in /dev/shm, or /tmp). */
#include <grp.h>
#include <dirent.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

#include "tests/syscalls/tmpdir.h"

#define TMPFS_MAGIC_T 0x01021994

static void enter_fresh_dir(void)
{
	struct statfs st;
	const char *base = statfs("/dev/shm", &st) == 0 && st.f_type == TMPFS_MAGIC_T ? "/dev/shm"
										     : "/tmp";
	char path[64];

	snprintf(path, sizeof(path), "%s/tmpfs-XXXXXX", base);
	CHECK(mkdtemp(path));
	CHECK(chdir(path) == 0);
}

static int make(const char *name, const void *buf, size_t len)
{
	int fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0644);

	CHECK(fd >= 0);
	CHECK(write(fd, buf, len) == (ssize_t)len);
	return fd;
}

TEST(sparse_file_reads_zeroes)
{
	char buf[8192];

	enter_fresh_dir();
	int fd = make("f", "x", 1);
	CHECK(pwrite(fd, "y", 1, 1 << 20) == 1);
	CHECK(pread(fd, buf, sizeof(buf), 1) == sizeof(buf));
	for (size_t i = 0; i < sizeof(buf); i++)
		CHECK(buf[i] == 0);
	CHECK(lseek(fd, 0, SEEK_END) == (1 << 20) + 1);
}

TEST(truncate_then_grow_shows_zeroes)
{
	char buf[10000];

	enter_fresh_dir();
	memset(buf, 'a', sizeof(buf));
	int fd = make("f", buf, sizeof(buf));
	CHECK(ftruncate(fd, 100) == 0);
	CHECK(ftruncate(fd, sizeof(buf)) == 0);
	CHECK(pread(fd, buf, sizeof(buf), 0) == sizeof(buf));
	CHECK(buf[99] == 'a' && buf[100] == 0 && buf[9999] == 0);
}

TEST(mapping_and_read_see_the_same)
{
	char buf[8];

	enter_fresh_dir();
	int fd = make("f", "hello", 5);
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK(memcmp(p, "hello", 5) == 0);
	p[0] = 'J';
	CHECK(pread(fd, buf, 5, 0) == 5 && memcmp(buf, "Jello", 5) == 0);
	CHECK(pwrite(fd, "y", 1, 4) == 1);
	CHECK(p[4] == 'y');
	/* Bytes behind the end, written through the mapping, are gone after growing. */
	CHECK(ftruncate(fd, 2) == 0);
	CHECK(p[1] == 'e' && p[2] == 0);
}

static volatile sig_atomic_t got_bus;

static void on_bus(int sig)
{
	(void)sig;
	got_bus = 1;
	_exit(got_bus == 1 ? 0 : 1);
}

TEST(access_beyond_the_end_is_sigbus)
{
	enter_fresh_dir();
	int fd = make("f", "x", 1);
	volatile char *p = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK(p[0] == 'x');
	signal(SIGBUS, on_bus);
	(void)p[4096];
	FAIL("no SIGBUS");
}

TEST(private_mapping_keeps_its_copy)
{
	char c;

	enter_fresh_dir();
	int fd = make("f", "abc", 3);
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(p != MAP_FAILED);
	p[0] = 'X';
	CHECK(pread(fd, &c, 1, 0) == 1 && c == 'a');
	CHECK(pwrite(fd, "q", 1, 0) == 1);
	CHECK(p[0] == 'X');
}

TEST(punch_hole_and_seek)
{
	static char buf[65536];

	enter_fresh_dir();
	memset(buf, 'b', sizeof(buf));
	int fd = make("f", buf, sizeof(buf));
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 16384) < 0 &&
	    errno == EOPNOTSUPP)
		SKIP("no hole punching here");
	CHECK(pread(fd, buf, 16384, 8192) == 16384);
	for (int i = 0; i < 16384; i++)
		CHECK(buf[i] == 0);
	CHECK(lseek(fd, 0, SEEK_HOLE) == 8192);
	CHECK(lseek(fd, 8192, SEEK_DATA) == 24576);
	CHECK_ERRNO(lseek(fd, 65536, SEEK_DATA), ENXIO);
	CHECK_ERRNO(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 4096), EOPNOTSUPP);
}

TEST(listing_survives_removal)
{
	char name[32];
	unsigned seen = 0;
	struct dirent *de;

	enter_fresh_dir();
	for (int i = 0; i < 5000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		close(make(name, "", 0));
	}
	DIR *d = opendir(".");
	CHECK(d);
	while ((de = readdir(d))) {
		if (de->d_name[0] == '.')
			continue;
		seen++;
		CHECK(unlink(de->d_name) == 0);
	}
	CHECK(seen == 5000);
	closedir(d);
	CHECK(chdir("..") == 0);
}

TEST(rename_flags)
{
	struct stat a, b;

	enter_fresh_dir();
	close(make("a", "a", 1));
	CHECK(mkdir("d", 0755) == 0);
	CHECK_ERRNO(renameat2(AT_FDCWD, "a", AT_FDCWD, "d", RENAME_NOREPLACE), EEXIST);
	CHECK(stat("a", &a) == 0);
	CHECK(renameat2(AT_FDCWD, "a", AT_FDCWD, "d", RENAME_EXCHANGE) == 0);
	CHECK(stat("d", &b) == 0 && S_ISREG(b.st_mode) && b.st_ino == a.st_ino);
	CHECK(stat("a", &b) == 0 && S_ISDIR(b.st_mode));
	CHECK_ERRNO(rename("d", "a"), EISDIR);
	CHECK_ERRNO(rename("a", "d"), ENOTDIR);
	CHECK_ERRNO(rename("a", "a/x"), EINVAL);
}

TEST(link_counts)
{
	struct stat st;

	enter_fresh_dir();
	CHECK(mkdir("d", 0755) == 0);
	CHECK(mkdir("d/e", 0755) == 0);
	CHECK(stat("d", &st) == 0 && st.st_nlink == 3);
	int fd = make("f", "x", 1);
	CHECK(link("f", "g") == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 2);
	CHECK(unlink("f") == 0 && unlink("g") == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
	CHECK_ERRNO(rmdir("d"), ENOTEMPTY);
	CHECK(rmdir("d/e") == 0);
	CHECK(stat("d", &st) == 0 && st.st_nlink == 2);
}

TEST(tmpfile_and_linkat)
{
	char path[64];
	struct stat st;

	enter_fresh_dir();
	int fd = open(".", O_TMPFILE | O_RDWR, 0600);
	if (fd < 0 && errno == EOPNOTSUPP)
		SKIP("no O_TMPFILE here");
	CHECK(fd >= 0);
	CHECK(write(fd, "t", 1) == 1);
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
	CHECK(stat("named", &st) == 0 && st.st_size == 1 && st.st_nlink == 1);
	fd = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
	CHECK(fd >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK_ERRNO(linkat(AT_FDCWD, path, AT_FDCWD, "never", AT_SYMLINK_FOLLOW), ENOENT);
}

TEST(trusted_xattr)
{
	char buf[16];

	enter_fresh_dir();
	close(make("f", "x", 1));
	if (setxattr("f", "trusted.a", "123", 3, 0) < 0) {
		CHECK(errno == EPERM || errno == EOPNOTSUPP);
		SKIP("no right to trusted xattrs");
	}
	CHECK(getxattr("f", "trusted.a", buf, 0) == 3);
	CHECK_ERRNO(getxattr("f", "trusted.a", buf, 1), ERANGE);
	CHECK(getxattr("f", "trusted.a", buf, sizeof(buf)) == 3);
	CHECK_ERRNO(setxattr("f", "trusted.a", "1", 1, XATTR_CREATE), EEXIST);
	CHECK_ERRNO(setxattr("f", "trusted.b", "1", 1, XATTR_REPLACE), ENODATA);
	CHECK(removexattr("f", "trusted.a") == 0);
	CHECK_ERRNO(removexattr("f", "trusted.a"), ENODATA);
}

TEST(deleted_directory_takes_no_entries)
{
	enter_fresh_dir();
	CHECK(mkdir("d", 0755) == 0);
	int d = open("d", O_RDONLY | O_DIRECTORY);
	CHECK(d >= 0);
	CHECK(rmdir("d") == 0);
	CHECK_ERRNO(openat(d, "x", O_CREAT | O_RDWR, 0644), ENOENT);
	CHECK_ERRNO(mkdirat(d, "x", 0755), ENOENT);
}

/* CVE-2021-4037: a umask without the group's x mustn't hide that the mode asks for setgid and x. */
TEST(setgid_is_dropped_before_the_umask)
{
	struct stat st;

	enter_tmpdir();
	CHECK(chmod(".", 0777) == 0);
	CHECK(mkdir("d", 0777) == 0);
	CHECK(chown("d", -1, 54321) == 0);
	CHECK(chmod("d", 02777) == 0);
	CHECK(setgroups(0, NULL) == 0);
	CHECK(setresgid(12345, 12345, 12345) == 0 && setresuid(12345, 12345, 12345) == 0);
	umask(S_IXGRP);
	CHECK(close(open("d/f", O_CREAT | O_EXCL | O_RDWR, 02777)) == 0);
	CHECK(stat("d/f", &st) == 0 && st.st_gid == 54321);
	CHECK((st.st_mode & 07777) == 0767);
	CHECK(mknod("d/n", S_IFREG | 02777, 0) == 0);
	CHECK(stat("d/n", &st) == 0 && (st.st_mode & 07777) == 0767);
}

TEST(link_checks_the_new_name_first)
{
	enter_tmpdir();
	CHECK(mkdir("d", 0700) == 0 && close(make_file("f", "")) == 0);
	CHECK_ERRNO(link("d", "f"), EEXIST);
	CHECK_ERRNO(link("d", "g"), EPERM);
}

TEST(read_at_the_end_counts_as_access)
{
	struct timespec old[2] = { { 1000, 0 }, { 2000, 0 } };
	struct stat st;
	char c;

	enter_tmpdir();
	int fd = make_file("f", "x");
	CHECK(futimens(fd, old) == 0);
	CHECK(lseek(fd, 1, SEEK_SET) == 1 && read(fd, &c, 1) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_atim.tv_sec > 2000);
}

TEST_MAIN
