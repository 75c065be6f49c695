// SPDX-License-Identifier: Apache-2.0
/* open(2), openat2(2), close_range(2), O_TMPFILE, O_PATH; reading, writing, positions. */
#include <linux/openat2.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include "tests/syscalls/tmpdir.h"

static long openat2_raw(int dirfd, const char *name, struct open_how *how, size_t size)
{
	return syscall(SYS_openat2, dirfd, name, how, size);
}

TEST(open_creates_once_with_excl)
{
	enter_tmpdir();
	int fd = open("f", O_CREAT | O_EXCL | O_RDWR, 0666);
	struct stat st;

	CHECK(fd >= 0);
	CHECK(fstat(fd, &st) == 0 && (st.st_mode & 07777) == 0644);
	CHECK_ERRNO(open("f", O_CREAT | O_EXCL | O_RDWR, 0666), EEXIST);
	CHECK(symlink("nowhere", "l") == 0);
	CHECK_ERRNO(open("l", O_CREAT | O_EXCL | O_RDWR, 0666), EEXIST);
	CHECK_ERRNO(open("l", O_RDONLY), ENOENT);
	CHECK(open("l", O_CREAT | O_RDWR, 0600) >= 0);
	CHECK(access("nowhere", F_OK) == 0);
}

TEST(open_errors_in_order)
{
	enter_tmpdir();
	make_file("f", "x");
	CHECK(mkdir("d", 0755) == 0);
	CHECK(symlink("loop", "loop") == 0);
	CHECK_ERRNO(open("", O_RDONLY), ENOENT);
	CHECK_ERRNO(open("f/", O_RDONLY), ENOTDIR);
	CHECK_ERRNO(open("f/x", O_RDONLY), ENOTDIR);
	CHECK_ERRNO(open("d", O_WRONLY), EISDIR);
	CHECK_ERRNO(open("d", O_CREAT | O_RDWR, 0600), EISDIR);
	CHECK_ERRNO(open("new/", O_CREAT | O_RDWR, 0600), EISDIR);
	CHECK_ERRNO(open("f", O_DIRECTORY), ENOTDIR);
	CHECK_ERRNO(open("loop", O_RDONLY), ELOOP);
	CHECK_ERRNO(open("loop", O_RDONLY | O_NOFOLLOW), ELOOP);
	char name[300];
	memset(name, 'a', 256);
	name[256] = 0;
	CHECK_ERRNO(open(name, O_RDONLY), ENAMETOOLONG);
	CHECK_ERRNO(openat(99, "f", O_RDONLY), EBADF);
	CHECK_ERRNO(openat(open("f", O_RDONLY), "f", O_RDONLY), ENOTDIR);
	CHECK_ERRNO(open((char *)1, O_RDONLY), EFAULT);
}

TEST(open_path_descriptor_does_no_io)
{
	char c;

	enter_tmpdir();
	make_file("f", "x");
	int fd = open("f", O_PATH);
	struct stat st;

	CHECK(fd >= 0);
	CHECK_ERRNO(read(fd, &c, 1), EBADF);
	CHECK_ERRNO(fchmod(fd, 0600), EBADF);
	CHECK_ERRNO(ioctl(fd, 0x5421 /* FIONBIO */, &c), EBADF);
	CHECK(fstat(fd, &st) == 0 && st.st_size == 1);
	CHECK((fcntl(fd, F_GETFL) & O_PATH) == O_PATH);
	CHECK(symlink("f", "l") == 0);
	fd = open("l", O_PATH | O_NOFOLLOW);
	CHECK(fd >= 0);
	CHECK(fstat(fd, &st) == 0 && S_ISLNK(st.st_mode));
	CHECK(readlinkat(fd, "", &c, 1) == 1 && c == 'f');
}

TEST(openat2_refuses_what_it_does_not_know)
{
	struct open_how how = { .flags = O_RDONLY };
	struct {
		struct open_how how;
		uint64_t extra;
	} big = { { .flags = O_RDONLY }, 0 };

	enter_tmpdir();
	make_file("f", "x");
	CHECK(mkdir("d", 0755) == 0 && symlink("../f", "d/up") == 0 && symlink("/etc", "abs") == 0);
	CHECK(openat2_raw(AT_FDCWD, "f", &how, sizeof(how)) >= 0);
	CHECK(openat2_raw(AT_FDCWD, "f", &big.how, sizeof(big)) >= 0);
	big.extra = 1;
	CHECK_ERRNO(openat2_raw(AT_FDCWD, "f", &big.how, sizeof(big)), E2BIG);
	CHECK_ERRNO(openat2_raw(AT_FDCWD, "f", &how, 8), EINVAL);
	how.flags = 1ULL << 40;
	CHECK_ERRNO(openat2_raw(AT_FDCWD, "f", &how, sizeof(how)), EINVAL);
	how = (struct open_how){ .flags = O_RDONLY, .mode = 0600 };
	CHECK_ERRNO(openat2_raw(AT_FDCWD, "f", &how, sizeof(how)), EINVAL);
	how = (struct open_how){ .resolve = RESOLVE_BENEATH };
	int d = open("d", O_PATH);
	CHECK_ERRNO(openat2_raw(d, "../f", &how, sizeof(how)), EXDEV);
	CHECK_ERRNO(openat2_raw(d, "up", &how, sizeof(how)), EXDEV);
	CHECK_ERRNO(openat2_raw(AT_FDCWD, "/etc", &how, sizeof(how)), EXDEV);
	CHECK(openat2_raw(AT_FDCWD, "d/up", &how, sizeof(how)) >= 0);
	how.resolve = RESOLVE_NO_SYMLINKS;
	CHECK_ERRNO(openat2_raw(AT_FDCWD, "d/up", &how, sizeof(how)), ELOOP);
	how.resolve = RESOLVE_IN_ROOT;
	CHECK_ERRNO(openat2_raw(AT_FDCWD, "abs", &how, sizeof(how)), ENOENT);
	CHECK(openat2_raw(AT_FDCWD, "/../../f", &how, sizeof(how)) >= 0);
	how.resolve = RESOLVE_NO_MAGICLINKS;
	CHECK_ERRNO(openat2_raw(AT_FDCWD, "/proc/self/exe", &how, sizeof(how)), ELOOP);
}

TEST(tmpfile_gets_a_name_by_linkat)
{
	char path[64];

	enter_tmpdir();
	int fd = open(".", O_TMPFILE | O_RDWR, 0600);
	if (fd < 0 && errno == EOPNOTSUPP)
		SKIP("no O_TMPFILE here");
	struct stat st;
	CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0);
	CHECK(write(fd, "hi", 2) == 2);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	CHECK(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW) == 0);
	CHECK(stat("named", &st) == 0 && st.st_size == 2 && st.st_nlink == 1);
	CHECK_ERRNO(open(".", O_TMPFILE | O_RDONLY, 0600), EINVAL);
}

TEST(append_and_positions)
{
	char buf[16] = "";

	enter_tmpdir();
	int fd = make_file("f", "0123456789");
	int ap = open("f", O_WRONLY | O_APPEND);

	CHECK(lseek(ap, 2, SEEK_SET) == 2);
	CHECK(write(ap, "ab", 2) == 2);
	CHECK(pread(fd, buf, 16, 8) == 4 && memcmp(buf, "89ab", 4) == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == 0);
	CHECK_ERRNO(lseek(fd, -1, SEEK_SET), EINVAL);
	CHECK_ERRNO(lseek(fd, 0, 99), EINVAL);
	CHECK(lseek(fd, 5, SEEK_END) == 17);
	CHECK_ERRNO(lseek(fd, 100, SEEK_DATA), ENXIO);
	CHECK_ERRNO(pread(fd, buf, 1, -1), EINVAL);
	CHECK_ERRNO(write(open("f", O_RDONLY), "x", 1), EBADF);
	CHECK_ERRNO(read(open(".", O_RDONLY), buf, 1), EISDIR);
	int p[2];
	CHECK(pipe(p) == 0);
	CHECK_ERRNO(lseek(p[0], 0, SEEK_CUR), ESPIPE);
	CHECK_ERRNO(pread(p[0], buf, 1, 0), ESPIPE);
}

TEST(vectors)
{
	char a[4] = "", b[4] = "";
	struct iovec iov[2] = { { a, 3 }, { b, 3 } };

	enter_tmpdir();
	int fd = make_file("f", "abcdef");
	CHECK(readv(fd, iov, 2) == 6 && !strcmp(a, "abc") && !strcmp(b, "def"));
	CHECK(preadv2(fd, iov, 2, 1, 0) == 5);
	CHECK_ERRNO(preadv2(fd, iov, 2, 1, 0x4000000), EOPNOTSUPP);
	CHECK_ERRNO(syscall(SYS_readv, fd, iov, -1), EINVAL);
	CHECK_ERRNO(syscall(SYS_readv, fd, iov, 1025), EINVAL);
	iov[0].iov_len = (size_t)-1;
	CHECK_ERRNO(readv(fd, iov, 2), EINVAL);
	iov[0].iov_len = 3;
	CHECK(pwritev2(fd, iov, 1, 0, RWF_APPEND) == 3);
	CHECK(lseek(fd, 0, SEEK_END) == 9);
}

TEST(fsize_limit_sends_sigxfsz)
{
	struct rlimit rl = { 4, 4 };

	enter_tmpdir();
	int fd = make_file("f", "");
	signal(SIGXFSZ, SIG_IGN);
	CHECK(setrlimit(RLIMIT_FSIZE, &rl) == 0);
	CHECK(write(fd, "abcdef", 6) == 4);
	CHECK_ERRNO(write(fd, "g", 1), EFBIG);
	CHECK_ERRNO(ftruncate(fd, 5), EFBIG);
}

TEST(close_range_and_dup)
{
	int fd = open("/", O_RDONLY);

	CHECK(dup2(fd, 100) == 100);
	CHECK(dup2(fd, fd) == fd);
	CHECK_ERRNO(dup3(fd, fd, 0), EINVAL);
	CHECK_ERRNO(dup3(fd, 101, O_APPEND), EINVAL);
	CHECK_ERRNO(dup2(fd, 1 << 30), EBADF);
	CHECK_ERRNO(dup2(99, 100), EBADF);
	CHECK(fcntl(fd, F_DUPFD_CLOEXEC, 150) == 150);
	CHECK(fcntl(150, F_GETFD) == FD_CLOEXEC);
	CHECK(syscall(SYS_close_range, 100, 140, 4 /* CLOEXEC */) == 0);
	CHECK(fcntl(100, F_GETFD) == FD_CLOEXEC);
	CHECK(syscall(SYS_close_range, 100, ~0u, 0) == 0);
	CHECK_ERRNO(fcntl(100, F_GETFD), EBADF);
	CHECK_ERRNO(syscall(SYS_close_range, 5, 4, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_close_range, 5, 6, 8), EINVAL);
	struct rlimit rl = { 10, 10 };
	CHECK(setrlimit(RLIMIT_NOFILE, &rl) == 0);
	while (dup(fd) >= 0)
		;
	CHECK(errno == EMFILE);
	CHECK_ERRNO(open("/no/such", O_RDONLY), EMFILE);
	CHECK_ERRNO(fcntl(fd, F_DUPFD, 10), EINVAL);
}

TEST(write_drops_setuid_for_others)
{
	struct stat st;

	enter_tmpdir();
	int fd = make_file("f", "x");
	CHECK(fchmod(fd, 06755) == 0);
	CHECK(chown("f", 1, 1) == 0);
	CHECK(stat("f", &st) == 0 && (st.st_mode & 07777) == 0755);
	CHECK(chmod("f", 04777) == 0 && chmod(".", 0777) == 0);
	CHECK(setgid(1000) == 0 && setuid(1000) == 0);
	fd = open("f", O_WRONLY);
	CHECK(fd >= 0 && write(fd, "y", 1) == 1);
	CHECK(stat("f", &st) == 0 && (st.st_mode & 07777) == 0777);
	CHECK_ERRNO(open("f", O_RDONLY | O_NOATIME), EPERM);
}

#ifndef F_CREATED_QUERY
#define F_CREATED_QUERY (1024 + 4)
#endif

TEST(created_query)
{
	enter_tmpdir();
	int made = open("f", O_CREAT | O_RDWR, 0600), found = open("f", O_CREAT | O_RDWR, 0600);
	int r = fcntl(made, F_CREATED_QUERY);

	if (r < 0 && errno == EINVAL)
		SKIP("before Linux 6.12");
	CHECK(r == 1);
	CHECK(fcntl(found, F_CREATED_QUERY) == 0);
}

TEST_MAIN
