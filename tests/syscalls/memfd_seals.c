// SPDX-License-Identifier: Apache-2.0
/* memfd_create(2) and seals. */
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tests/syscalls/harness.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

TEST(name_shows_in_proc)
{
	char path[64], link[128];
	int fd = memfd_create("some name", MFD_CLOEXEC);
	ssize_t n;

	CHECK(fd >= 0);
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link) - 1);
	CHECK(n > 0);
	link[n] = 0;
	CHECK(strcmp(link, "/memfd:some name (deleted)") == 0);
}

TEST(bad_arguments)
{
	char name[300];

	memset(name, 'n', sizeof(name));
	name[249] = 0;
	CHECK(memfd_create(name, 0) >= 0);
	name[249] = 'n';
	name[250] = 0;
	CHECK_ERRNO(memfd_create(name, 0), EINVAL);
	CHECK_ERRNO(memfd_create("x", 0x100), EINVAL);
	CHECK_ERRNO(memfd_create((char *)1, 0), EFAULT);
}

TEST(is_a_file_without_a_name)
{
	struct stat st;
	char buf[4];
	int fd = memfd_create("x", 0);

	CHECK(fstat(fd, &st) == 0);
	CHECK(S_ISREG(st.st_mode) && st.st_nlink == 0 && st.st_size == 0);
	CHECK(write(fd, "abcd", 4) == 4);
	CHECK(lseek(fd, 0, SEEK_SET) == 0);
	CHECK(read(fd, buf, 4) == 4 && memcmp(buf, "abcd", 4) == 0);
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED && p[3] == 'd');
	p[0] = 'Z';
	CHECK(pread(fd, buf, 1, 0) == 1 && buf[0] == 'Z');
}

TEST(shared_with_a_child)
{
	int fd = memfd_create("x", 0), status;

	CHECK(ftruncate(fd, 4096) == 0);
	volatile int *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	pid_t pid = fork();
	if (pid == 0) {
		*p = 42;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(*p == 42);
}

TEST(unsealable_by_default)
{
	int fd = memfd_create("x", 0);

	CHECK(fcntl(fd, F_GET_SEALS) == F_SEAL_SEAL);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EPERM);
}

TEST(seals_on_size)
{
	int fd = memfd_create("x", MFD_ALLOW_SEALING);

	CHECK(fcntl(fd, F_GET_SEALS) == 0);
	CHECK(ftruncate(fd, 8192) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
	CHECK_ERRNO(ftruncate(fd, 4096), EPERM);
	CHECK(ftruncate(fd, 12288) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW) == 0);
	CHECK_ERRNO(ftruncate(fd, 16384), EPERM);
	CHECK_ERRNO(pwrite(fd, "x", 1, 12288), EPERM);
	CHECK(pwrite(fd, "x", 1, 0) == 1);
	CHECK(fcntl(fd, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW));
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, 0x1000), EINVAL);
}

TEST(seal_write)
{
	int fd = memfd_create("x", MFD_ALLOW_SEALING);

	CHECK(ftruncate(fd, 4096) == 0);
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
	CHECK(munmap(p, 4096) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	CHECK_ERRNO(write(fd, "x", 1), EPERM);
	CHECK_ERRNO(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), EPERM);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(errno == EPERM);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) != MAP_FAILED);
}

TEST(seal_future_write)
{
	int fd = memfd_create("x", MFD_ALLOW_SEALING);

	CHECK(ftruncate(fd, 4096) == 0);
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
	p[0] = 'w'; /* the old mapping still writes */
	CHECK_ERRNO(write(fd, "x", 1), EPERM);
	CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
	CHECK(errno == EPERM);
}

TEST(seal_seal)
{
	int fd = memfd_create("x", MFD_ALLOW_SEALING);

	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) == 0);
	CHECK_ERRNO(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), EPERM);
}

TEST(seals_need_a_writable_descriptor)
{
	char path[64];
	int fd = memfd_create("x", MFD_ALLOW_SEALING);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int ro = open(path, O_RDONLY);
	CHECK(ro >= 0);
	CHECK_ERRNO(fcntl(ro, F_ADD_SEALS, F_SEAL_GROW), EPERM);
	CHECK(fcntl(ro, F_GET_SEALS) == 0);
}

TEST(seals_on_other_files_are_einval)
{
	int p[2];

	CHECK(pipe(p) == 0);
	CHECK_ERRNO(fcntl(p[1], F_ADD_SEALS, F_SEAL_GROW), EINVAL);
	CHECK_ERRNO(fcntl(p[1], F_GET_SEALS), EINVAL);
}

/* Linux before 6.7 refuses the mapping, later ones let it be made, but never be written. */
TEST(seal_write_holds_against_mprotect)
{
	int fd = memfd_create("x", MFD_ALLOW_SEALING);

	CHECK(ftruncate(fd, 4096) == 0);
	CHECK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
	void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		CHECK(errno == EPERM);
		return;
	}
	CHECK_ERRNO(mprotect(p, 4096, PROT_READ | PROT_WRITE), EACCES);
	void *q = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	CHECK(q != MAP_FAILED && mprotect(q, 4096, PROT_READ | PROT_WRITE) == 0);
}

TEST_MAIN
