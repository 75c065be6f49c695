// SPDX-License-Identifier: Apache-2.0
/* /dev/null, zero, full, random and nodes made by mknod. */
#include "harness.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

TEST(null)
{
	int fd = open("/dev/null", O_RDWR);
	char b;

	CHECK(fd >= 0);
	CHECK(read(fd, &b, 1) == 0);
	CHECK(write(fd, "abc", 3) == 3);
	CHECK(lseek(fd, 100, SEEK_SET) == 0);
	CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == ENODEV);
}

TEST(zero_reads_zeroes)
{
	char b[100];
	int fd = open("/dev/zero", O_RDWR);

	memset(b, 1, sizeof(b));
	CHECK(fd >= 0 && read(fd, b, sizeof(b)) == sizeof(b));
	for (unsigned i = 0; i < sizeof(b); i++)
		CHECK(b[i] == 0);
	CHECK(write(fd, b, sizeof(b)) == sizeof(b));
}

TEST(zero_private_mapping)
{
	int fd = open("/dev/zero", O_RDWR);
	char *p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);

	CHECK(p != MAP_FAILED);
	close(fd);
	CHECK(p[0] == 0 && p[8191] == 0);
	p[4096] = 7;
	CHECK(p[4096] == 7);
}

TEST(zero_shared_mapping_is_shared_with_children)
{
	int fd = open("/dev/zero", O_RDWR), status;
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pid_t pid;

	CHECK(p != MAP_FAILED);
	pid = fork();
	if (pid == 0) {
		p[5] = 42;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(p[5] == 42);
}

TEST(full)
{
	int fd = open("/dev/full", O_RDWR);
	char b = 1;

	CHECK(fd >= 0);
	CHECK_ERRNO(write(fd, "x", 1), ENOSPC);
	CHECK(read(fd, &b, 1) == 1 && b == 0);
}

TEST(random_differs)
{
	unsigned char a[32], b[32];
	int r = open("/dev/random", O_RDONLY), u = open("/dev/urandom", O_RDWR);

	CHECK(r >= 0 && u >= 0);
	CHECK(read(r, a, sizeof(a)) == sizeof(a) && read(u, b, sizeof(b)) == sizeof(b));
	CHECK(memcmp(a, b, sizeof(a)) != 0);
	CHECK(write(u, "seed", 4) == 4);
}

TEST(mknod_opens_by_number)
{
	char dir[] = "/tmp/devXXXXXX", path[64];
	int fd;

	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/n", dir);
	if (mknod(path, S_IFCHR | 0600, makedev(1, 3)))
		SKIP("no CAP_MKNOD");
	fd = open(path, O_RDWR);
	if (fd < 0 && errno == EACCES) {
		unlink(path);
		rmdir(dir);
		SKIP("/tmp is mounted nodev");
	}
	CHECK(fd >= 0 && write(fd, "x", 1) == 1);
	unlink(path);
	CHECK(mknod(path, S_IFCHR | 0600, makedev(250, 77)) == 0);
	CHECK_ERRNO(open(path, O_RDWR), ENXIO);
	unlink(path);
	rmdir(dir);
}

TEST(stat_of_nodes)
{
	struct stat st;

	CHECK(stat("/dev/null", &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
	CHECK(stat("/dev/tty", &st) == 0 && st.st_rdev == makedev(5, 0));
	CHECK(access("/dev/fd/0", F_OK) == 0 || errno == ENOENT);
}

TEST_MAIN
