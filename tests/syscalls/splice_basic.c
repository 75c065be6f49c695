// SPDX-License-Identifier: Apache-2.0
/* splice(2), tee(2), vmsplice(2), sendfile(2), copy_file_range(2). */
#include "harness.h"

#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

static int temp_file(const char *content)
{
	char name[] = "/tmp/spXXXXXX";
	int fd = mkstemp(name);

	unlink(name);
	CHECK(write(fd, content, strlen(content)) == (ssize_t)strlen(content));
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

TEST(splice_file_to_pipe_to_file)
{
	int in = temp_file("0123456789"), out = temp_file(""), p[2];
	off_t off = 2;
	char b[16];

	CHECK(pipe(p) == 0);
	CHECK(splice(in, &off, p[1], NULL, 5, 0) == 5 && off == 7);
	CHECK(splice(p[0], NULL, out, NULL, 100, SPLICE_F_NONBLOCK) == 5);
	CHECK(pread(out, b, 16, 0) == 5 && memcmp(b, "23456", 5) == 0);
	CHECK_ERRNO(splice(p[0], NULL, out, NULL, 100, SPLICE_F_NONBLOCK), EAGAIN);
	CHECK_ERRNO(splice(in, NULL, out, NULL, 4, 0), EINVAL);
	CHECK_ERRNO(splice(p[0], &off, out, NULL, 4, 0), ESPIPE);
	CHECK_ERRNO(splice(p[0], NULL, p[1], NULL, 4, 0), EINVAL);
	CHECK(splice(p[0], NULL, out, NULL, 0, 0) == 0);
	close(p[1]);
	CHECK(splice(p[0], NULL, out, NULL, 4, 0) == 0);
}

TEST(tee_copies_and_splice_moves)
{
	int a[2], b[2];
	char buf[16];

	CHECK(pipe(a) == 0 && pipe(b) == 0 && write(a[1], "hello", 5) == 5);
	CHECK(tee(a[0], b[1], 100, 0) == 5);
	CHECK(read(b[0], buf, 16) == 5 && memcmp(buf, "hello", 5) == 0);
	CHECK(splice(a[0], NULL, b[1], NULL, 2, 0) == 2);
	CHECK(read(b[0], buf, 16) == 2 && memcmp(buf, "he", 2) == 0);
	CHECK(read(a[0], buf, 16) == 3 && memcmp(buf, "llo", 3) == 0);
	CHECK_ERRNO(tee(a[0], a[1], 1, 0), EINVAL);
}

TEST(vmsplice_both_ways)
{
	char w[] = "payload", r[16] = { 0 };
	struct iovec iov = { w, 7 }, rio = { r, 16 };
	int p[2];

	CHECK(pipe(p) == 0);
	CHECK(vmsplice(p[1], &iov, 1, 0) == 7);
	CHECK(vmsplice(p[0], &rio, 1, 0) == 7 && memcmp(r, "payload", 7) == 0);
}

TEST(sendfile_to_socket_and_file)
{
	int in = temp_file("abcdef"), out = temp_file(""), s[2];
	off_t off = 1;
	char b[16];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
	CHECK(sendfile(s[0], in, &off, 3) == 3 && off == 4 && lseek(in, 0, SEEK_CUR) == 0);
	CHECK(read(s[1], b, 16) == 3 && memcmp(b, "bcd", 3) == 0);
	CHECK(sendfile(out, in, NULL, 100) == 6 && lseek(in, 0, SEEK_CUR) == 6);
	CHECK(sendfile(out, in, NULL, 100) == 0);
	off = -1;
	CHECK_ERRNO(sendfile(out, in, &off, 1), EINVAL);
}

TEST(copy_file_range_rules)
{
	int in = temp_file("0123456789"), out = temp_file(""), p[2];
	off_t a = 4, b = 2;
	char buf[16];

	CHECK(copy_file_range(in, &a, out, &b, 3, 0) == 3 && a == 7 && b == 5);
	CHECK(pread(out, buf, 16, 0) == 5 && memcmp(buf, "\0\000456", 5) == 0);
	CHECK(copy_file_range(in, NULL, out, NULL, 100, 0) == 10);
	a = 0, b = 2;
	CHECK_ERRNO(copy_file_range(in, &a, in, &b, 5, 0), EINVAL);
	CHECK_ERRNO(copy_file_range(in, NULL, out, NULL, 5, 1), EINVAL);
	CHECK(pipe(p) == 0);
	CHECK_ERRNO(copy_file_range(in, NULL, p[1], NULL, 5, 0), EINVAL);
	int dir = open("/tmp", O_RDONLY);
	CHECK_ERRNO(copy_file_range(dir, NULL, out, NULL, 5, 0), EISDIR);
}

TEST(sendfile_needs_a_writable_offset)
{
	int in = temp_file("abc"), out = temp_file("");
	off_t *off = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(off != MAP_FAILED);
	CHECK_ERRNO(sendfile(out, in, off, 1), EFAULT);
	CHECK(lseek(in, 3, SEEK_SET) == 3);
	CHECK_ERRNO(sendfile(out, in, off, 0), EFAULT);
}

TEST_MAIN
