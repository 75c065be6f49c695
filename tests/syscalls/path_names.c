// SPDX-License-Identifier: Apache-2.0
/* mkdir, rmdir, unlink, link, symlink, rename, chmod, chown, utimes, getcwd: names and their rules. */
#include <linux/fs.h>
#include <sys/time.h>

#include "tests/syscalls/tmpdir.h"

static long renameat2_raw(const char *a, const char *b, unsigned flags)
{
	return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, flags);
}

TEST(mkdir_and_rmdir_errors)
{
	struct stat st;

	enter_tmpdir();
	CHECK(mkdir("d", 0777) == 0 && mkdir("d/e/", 0777) == 0);
	CHECK(stat("d", &st) == 0 && (st.st_mode & 07777) == 0755);
	CHECK_ERRNO(mkdir("d", 0777), EEXIST);
	CHECK_ERRNO(mkdir(".", 0777), EEXIST);
	CHECK_ERRNO(mkdir("/", 0777), EEXIST);
	CHECK_ERRNO(mkdir("x/y", 0777), ENOENT);
	CHECK_ERRNO(rmdir("d"), ENOTEMPTY);
	CHECK_ERRNO(rmdir("d/."), EINVAL);
	CHECK_ERRNO(rmdir("d/e/.."), ENOTEMPTY);
	CHECK_ERRNO(rmdir("nope"), ENOENT);
	CHECK_ERRNO(unlink("d"), EISDIR);
	make_file("f", "");
	CHECK_ERRNO(rmdir("f"), ENOTDIR);
	CHECK_ERRNO(unlink("f/"), ENOTDIR);
	CHECK_ERRNO(unlinkat(AT_FDCWD, "f", 0x8000), EINVAL);
}

TEST(removed_directory_takes_nothing)
{
	char buf[256];

	enter_tmpdir();
	CHECK(mkdir("d", 0755) == 0 && chdir("d") == 0 && rmdir("../d") == 0);
	CHECK_ERRNO(open("f", O_CREAT | O_RDWR, 0600), ENOENT);
	CHECK_ERRNO(mkdir("e", 0700), ENOENT);
	CHECK_ERRNO(syscall(SYS_getcwd, buf, sizeof(buf)), ENOENT);
	CHECK(access(".", F_OK) == 0);
}

TEST(links_count)
{
	struct stat st;

	enter_tmpdir();
	int fd = make_file("a", "x");
	CHECK(link("a", "b") == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 2);
	CHECK_ERRNO(link("a", "b"), EEXIST);
	CHECK_ERRNO(link(".", "dl"), EPERM);
	CHECK(symlink("a", "s") == 0);
	CHECK(link("s", "hs") == 0 && lstat("hs", &st) == 0 && S_ISLNK(st.st_mode));
	CHECK(linkat(AT_FDCWD, "s", AT_FDCWD, "c", AT_SYMLINK_FOLLOW) == 0);
	CHECK(unlink("a") == 0 && unlink("b") == 0 && unlink("c") == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
	char want[64], got[128];
	snprintf(want, sizeof(want), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(want, got, sizeof(got) - 1);
	CHECK(n > 10 && memcmp(got + n - 10, " (deleted)", 10) == 0);
	CHECK_ERRNO(symlink("", "e"), ENOENT);
	CHECK_ERRNO(readlink(".", got, 10), EINVAL);
	CHECK_ERRNO(readlink("s", got, 0), EINVAL);
	CHECK(readlink("s", got, 1) == 1);
}

TEST(rename_rules)
{
	enter_tmpdir();
	make_file("f", "f");
	make_file("g", "g");
	CHECK(mkdir("d", 0755) == 0 && mkdir("d/sub", 0755) == 0 && mkdir("e", 0755) == 0);
	CHECK_ERRNO(rename("d", "d/sub/x"), EINVAL);
	CHECK_ERRNO(rename("d/sub", "d"), ENOTEMPTY);
	CHECK_ERRNO(rename("f", "d"), EISDIR);
	CHECK_ERRNO(rename("d", "f"), ENOTDIR);
	CHECK_ERRNO(rename("f", "new/"), ENOTDIR);
	CHECK_ERRNO(rename("nope", "x"), ENOENT);
	CHECK_ERRNO(rename("d/.", "x"), EBUSY);
	CHECK_ERRNO(rename("d/..", "x"), EBUSY);
	CHECK(rename("d/sub", "e") == 0);
	CHECK(rename("f", "f") == 0);
	CHECK_ERRNO(renameat2_raw("f", "g", RENAME_NOREPLACE), EEXIST);
	CHECK_ERRNO(renameat2_raw("f", "g", RENAME_NOREPLACE | RENAME_EXCHANGE), EINVAL);
	CHECK_ERRNO(renameat2_raw("f", "g", 0x100), EINVAL);
	CHECK_ERRNO(renameat2_raw("f", "nope", RENAME_EXCHANGE), ENOENT);
	CHECK(renameat2_raw("f", "d", RENAME_EXCHANGE) == 0);
	struct stat st;
	CHECK(stat("f", &st) == 0 && S_ISDIR(st.st_mode));
	CHECK(stat("d", &st) == 0 && S_ISREG(st.st_mode));
	CHECK(link("g", "h") == 0 && rename("g", "h") == 0);
	CHECK(access("g", F_OK) == 0 && access("h", F_OK) == 0);
}

TEST(sticky_directory_protects)
{
	enter_tmpdir();
	CHECK(chmod(".", 0755) == 0 && mkdir("s", 0755) == 0 && chmod("s", 01777) == 0);
	make_file("s/f", "x");
	CHECK(setgid(1000) == 0 && setuid(1000) == 0);
	CHECK_ERRNO(unlink("s/f"), EPERM);
	CHECK_ERRNO(rename("s/f", "s/g"), EPERM);
	CHECK(open("s/mine", O_CREAT | O_RDWR, 0600) >= 0 && unlink("s/mine") == 0);
	CHECK_ERRNO(chmod("s/f", 0777), EPERM);
	CHECK_ERRNO(chown("s/f", 1000, -1), EPERM);
}

TEST(setgid_directory_is_inherited)
{
	struct stat st;

	enter_tmpdir();
	CHECK(mkdir("d", 0755) == 0 && chown("d", 0, 55) == 0 && chmod("d", 02775) == 0);
	CHECK(mkdir("d/sub", 0755) == 0 && stat("d/sub", &st) == 0);
	CHECK(st.st_gid == 55 && (st.st_mode & 02000));
	make_file("d/f", "");
	CHECK(stat("d/f", &st) == 0 && st.st_gid == 55 && !(st.st_mode & 02000));
}

TEST(search_permission_on_each_component)
{
	enter_tmpdir();
	CHECK(chmod(".", 0755) == 0 && mkdir("d", 0755) == 0);
	make_file("d/f", "x");
	CHECK(chmod("d", 0600) == 0);
	CHECK(access("d/f", F_OK) == 0);
	CHECK(setgid(1000) == 0 && setuid(1000) == 0);
	CHECK_ERRNO(access("d/f", F_OK), EACCES);
	CHECK_ERRNO(open("d/f", O_RDONLY), EACCES);
	CHECK_ERRNO(open("new", O_CREAT | O_RDWR, 0600), EACCES);
	CHECK_ERRNO(mkdir("d", 0700), EEXIST);
}

TEST(utimensat_forms)
{
	struct timespec ts[2] = { { 100, 5 }, { 200, 6 } };
	struct stat st;

	enter_tmpdir();
	int fd = make_file("f", "x");
	CHECK(utimensat(AT_FDCWD, "f", ts, 0) == 0 && stat("f", &st) == 0);
	CHECK(st.st_atim.tv_sec == 100 && st.st_atim.tv_nsec == 5 && st.st_mtim.tv_sec == 200);
	ts[0].tv_nsec = UTIME_OMIT;
	ts[1].tv_nsec = UTIME_NOW;
	CHECK(futimens(fd, ts) == 0 && fstat(fd, &st) == 0);
	CHECK(st.st_atim.tv_sec == 100 && st.st_mtim.tv_sec > 1000000);
	ts[1].tv_nsec = 1000000000;
	CHECK_ERRNO(utimensat(AT_FDCWD, "f", ts, 0), EINVAL);
	ts[1].tv_nsec = UTIME_OMIT;
	CHECK(syscall(SYS_utimensat, AT_FDCWD, "nope", ts, 0) == 0);
	struct timeval tv[2] = { { 1, 2 }, { 3, 4 } };
	CHECK(utimes("f", tv) == 0 && stat("f", &st) == 0 && st.st_mtim.tv_nsec == 4000);
	tv[0].tv_usec = 1000000;
	CHECK_ERRNO(utimes("f", tv), EINVAL);
	CHECK(chmod(".", 0755) == 0 && chmod("f", 0666) == 0);
	CHECK(setgid(1000) == 0 && setuid(1000) == 0);
	CHECK(utimensat(AT_FDCWD, "f", NULL, 0) == 0);
	ts[0] = ts[1] = (struct timespec){ 1, 1 };
	CHECK_ERRNO(utimensat(AT_FDCWD, "f", ts, 0), EPERM);
}

TEST(statx_and_access)
{
	struct statx sx;
	struct stat st;

	enter_tmpdir();
	int fd = make_file("f", "hello");
	CHECK(statx(AT_FDCWD, "f", 0, STATX_BASIC_STATS, &sx) == 0 && sx.stx_size == 5);
	CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &sx) == 0 && sx.stx_size == 5);
	CHECK_ERRNO(statx(AT_FDCWD, "f", 0x6000, STATX_ALL, &sx), EINVAL);
	CHECK_ERRNO(statx(AT_FDCWD, "f", 0, 0x80000000u, &sx), EINVAL);
	CHECK(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0 && st.st_size == 5);
	CHECK_ERRNO(fstatat(fd, "", &st, 0), ENOENT);
	CHECK_ERRNO(fstatat(AT_FDCWD, "f", &st, 0x8), EINVAL);
	CHECK_ERRNO(access("f", 8), EINVAL);
	CHECK_ERRNO(access("f", X_OK), EACCES);
	CHECK(chmod("f", 0100) == 0 && access("f", R_OK | X_OK) == 0);
	CHECK(setreuid(1000, 0) == 0);
	CHECK_ERRNO(access("f", R_OK), EACCES);
	CHECK(faccessat(AT_FDCWD, "f", R_OK, AT_EACCESS) == 0);
}

TEST(getcwd_and_chroot)
{
	char buf[256], small[2];

	enter_tmpdir();
	CHECK(syscall(SYS_getcwd, buf, sizeof(buf)) == (long)strlen(buf) + 1);
	CHECK_ERRNO(syscall(SYS_getcwd, small, 2), ERANGE);
	CHECK(mkdir("r", 0755) == 0 && mkdir("r/in", 0755) == 0);
	CHECK_ERRNO(chdir("nope"), ENOENT);
	make_file("f", "");
	CHECK_ERRNO(chdir("f"), ENOTDIR);
	CHECK(chroot("r") == 0);
	CHECK(syscall(SYS_getcwd, buf, sizeof(buf)) > 0 && !strncmp(buf, "(unreachable)/", 14));
	CHECK(chdir("/in") == 0 && access("/../../in", F_OK) == 0);
	CHECK(syscall(SYS_getcwd, buf, sizeof(buf)) == 4 && !strcmp(buf, "/in"));
}

TEST_MAIN
