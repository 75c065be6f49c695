// SPDX-License-Identifier: Apache-2.0
/*
 * Lengths, counts, offsets and addresses chosen to overflow (SECURITY-CASES 12, 14, 25). Whatever a call answers,
 * it is an errno or a short count, it doesn't touch what isn't ours, and the kernel lives on.
 */
#include <limits.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "tests/syscalls/harness.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

static const size_t lengths[] = { SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 4095, (size_t)SSIZE_MAX,
				  (size_t)SSIZE_MAX + 1, 1UL << 47, (1UL << 47) - 1, 1UL << 32,
				  UINT32_MAX, (size_t)INT_MAX + 1 };
static const off_t offsets[] = { -1, LONG_MIN, LONG_MAX, LONG_MAX - 1, LONG_MAX - 4095, 1L << 47 };

/* Sentry range, the first address beyond ours, non-canonical ones, the last page, zero page. */
static const uintptr_t wild[] = { 0, 1, 4095, 0x7ffffffff000, 0x7fffffffffff, 0x800000000000,
				  0xffff7fffffffffff, 0xffff800000000000, 0xffffffffff600000,
				  UINTPTR_MAX, UINTPTR_MAX - 7, UINTPTR_MAX - 4095 };

static void *at(uintptr_t a)
{
	return (void *)a;
}

/* -1 with one of the errors that tell of a bad argument, or a count of what there was. */
static void check_refused(long r)
{
	CHECK(r == -1);
	CHECK(errno == EFAULT || errno == EINVAL || errno == ENOMEM || errno == EFBIG ||
	      errno == EMSGSIZE || errno == EOVERFLOW || errno == ENOBUFS || errno == EAGAIN);
}

static int temporary(void)
{
	int fd = open(".", O_TMPFILE | O_RDWR, 0600);

	if (fd < 0)
		fd = memfd_create("t", 0);
	CHECK(fd >= 0);
	return fd;
}

TEST(huge_lengths)
{
	int p[2], fd = temporary(), z = open("/dev/zero", O_RDONLY);
	char buf[16];

	CHECK(pipe2(p, O_NONBLOCK) == 0 && z >= 0);
	CHECK(write(fd, "0123456789", 10) == 10);
	for (size_t i = 0; i < N(lengths); i++) {
		CHECK(syscall(SYS_lseek, fd, 0L, SEEK_SET) == 0);
		/* Ten bytes are there, whatever is asked for; negative sizes may be refused. */
		long r = syscall(SYS_read, fd, buf, lengths[i]);

		CHECK(r == 10 || (r == -1 && (errno == EFAULT || errno == EINVAL)));
		r = syscall(SYS_pread64, fd, buf, lengths[i], 0L);
		CHECK(r == 10 || (r == -1 && (errno == EFAULT || errno == EINVAL)));
		check_refused(syscall(SYS_write, p[1], at(0x7ffffffff000), lengths[i]));
		check_refused(syscall(SYS_read, z, at(0x7ffffffff000), lengths[i]));
		r = syscall(SYS_getrandom, at(0x7ffffffff000), lengths[i], 0);
		check_refused(r);
	}
}

TEST(vectors_that_overflow)
{
	int p[2], fd = temporary();
	char b[8] = "abcdefg";

	CHECK(pipe2(p, O_NONBLOCK) == 0);
	for (size_t i = 0; i < N(lengths); i++) {
		/* The sum wraps to a small number. */
		struct iovec v[3] = { { b, 4 }, { b, lengths[i] }, { b, (size_t)0 - lengths[i] } };
		long r = writev(fd, v, 3);

		CHECK(r == -1 || (r >= 4 && r <= 0x7ffff000));
		r = readv(p[0], v, 3);
		CHECK(r == -1);
		r = vmsplice(p[1], v, 3, SPLICE_F_NONBLOCK);
		CHECK(r >= -1 && r <= 65536);
		while (read(p[0], b, sizeof(b)) > 0)
			;
		CHECK(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
	}
	static const long counts[] = { -1, 1025, INT_MAX, LONG_MAX, LONG_MIN, 1L << 32, 1L << 60 };
	struct iovec one = { b, 1 };

	for (size_t i = 0; i < N(counts); i++) {
		/* Linux cuts the number to 32 bits, and none is no error. */
		long r = syscall(SYS_readv, p[0], &one, counts[i]);

		CHECK(r == 0 || (r == -1 && errno == EINVAL));
		r = syscall(SYS_writev, p[1], &one, counts[i]);
		CHECK(r == 0 || (r == -1 && errno == EINVAL));
		r = syscall(SYS_process_vm_readv, getpid(), &one, counts[i], &one, 1L, 0L);
		CHECK(r == 0 || (r == -1 && errno == EINVAL));
		r = syscall(SYS_process_vm_readv, getpid(), &one, 1L, &one, counts[i], 0L);
		CHECK(r == 0 || (r == -1 && errno == EINVAL));
	}
}

TEST(offsets_that_overflow)
{
	int fd = temporary();
	char b[4096] = { 0 };

	for (size_t i = 0; i < N(offsets); i++) {
		long r = pwrite(fd, b, sizeof(b), offsets[i]);

		CHECK(r == -1 || offsets[i] == 1L << 47);
		r = pread(fd, b, sizeof(b), offsets[i]);
		CHECK(r == 0 || r == -1 || offsets[i] == 1L << 47);
		CHECK(lseek(fd, offsets[i], SEEK_SET) >= -1);
		(void)!read(fd, b, sizeof(b));
		r = write(fd, b, sizeof(b));
		CHECK(r == -1 || r <= (long)sizeof(b));
		(void)!ftruncate(fd, offsets[i]);
		(void)!ftruncate(fd, 0);
		(void)fallocate(fd, 0, offsets[i], LONG_MAX);
		(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offsets[i], LONG_MAX);
		(void)!syscall(SYS_copy_file_range, fd, &(off_t){ offsets[i] }, fd, &(off_t){ 0 },
			       SIZE_MAX, 0);
		(void)!syscall(SYS_sendfile, fd, fd, &(off_t){ offsets[i] }, SIZE_MAX);
		(void)!syscall(SYS_readahead, fd, offsets[i], SIZE_MAX);
		(void)!syscall(SYS_sync_file_range, fd, offsets[i], LONG_MAX, 0);
		(void)!syscall(SYS_fadvise64, fd, offsets[i], LONG_MAX, 0);
		CHECK(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
	}
	CHECK(write(fd, "x", 1) == 1);
}

TEST(mappings_that_overflow)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = temporary();

	CHECK(page != MAP_FAILED);
	for (size_t i = 0; i < N(lengths); i++) {
		if (lengths[i] >= (1UL << 47) - 1) {
			CHECK(mmap(NULL, lengths[i], PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
			      MAP_FAILED);
			CHECK(mremap(page, 4096, lengths[i], MREMAP_MAYMOVE) == MAP_FAILED);
			CHECK(munmap(at(0x10000), lengths[i]) == -1);
			CHECK(mprotect(page, lengths[i], PROT_READ | PROT_WRITE) == -1);
		}
		CHECK(mmap(at(0x7fffffffe000), lengths[i], PROT_READ,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED);
		CHECK(munmap(at(0x7ffffffff000), lengths[i]) == -1);
		(void)madvise(page, lengths[i], MADV_WILLNEED);
		(void)mlock(page, lengths[i]);
		(void)msync(page, lengths[i], MS_ASYNC);
		(void)mincore(page, lengths[i], at(1));
	}
	/* An offset at which the end of the mapping wraps. */
	CHECK(syscall(SYS_mmap, 0L, 8192L, (long)PROT_READ, (long)MAP_SHARED, (long)fd,
		      LONG_MAX & ~4095L) == -1);
	CHECK(syscall(SYS_mmap, 0L, 8192L, (long)PROT_READ, (long)MAP_SHARED, (long)fd, -4096L) == -1);
	page[0] = 1;
}

TEST(wild_pointers)
{
	struct sockaddr_un sa;
	int p[2], sv[2], ep = epoll_create1(0);

	CHECK(pipe2(p, O_NONBLOCK) == 0 && ep >= 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv) == 0);
	for (size_t i = 0; i < N(wild); i++) {
		void *w = at(wild[i]);

		CHECK_ERRNO(syscall(SYS_write, p[1], w, 16L), EFAULT);
		CHECK_ERRNO(syscall(SYS_open, w, 0), EFAULT);
		CHECK_ERRNO(syscall(SYS_stat, "/", w), EFAULT);
		CHECK_ERRNO(syscall(SYS_pipe, w), EFAULT);
		CHECK_ERRNO(syscall(SYS_uname, w), EFAULT);
		CHECK_ERRNO(syscall(SYS_writev, p[1], w, 2L), EFAULT);
		CHECK_ERRNO(syscall(SYS_sendmsg, sv[0], w, 0L), EFAULT);
		CHECK_ERRNO(syscall(SYS_getcwd, w, 4096L), EFAULT);
		check_refused(syscall(SYS_bind, sv[0], w, sizeof(sa)));
		CHECK_ERRNO(syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, p[0], w), EFAULT);
		check_refused(syscall(SYS_futex, w, 1L, 1L));
		check_refused(syscall(SYS_poll, w, 2L, 0L));
		if (wild[i]) {
			CHECK_ERRNO(syscall(SYS_nanosleep, w, NULL), EFAULT);
			CHECK_ERRNO(syscall(SYS_rt_sigaction, SIGUSR1, w, NULL, 8L), EFAULT);
			CHECK_ERRNO(syscall(SYS_execve, "/proc/self/exe", w, NULL), EFAULT);
			CHECK_ERRNO(syscall(SYS_prlimit64, 0L, 4L /* RLIMIT_CORE */, w, NULL), EFAULT);
		}
	}
}

TEST(vectors_into_wild_places)
{
	char b[4] = "abc";
	int p[2];

	CHECK(pipe2(p, O_NONBLOCK) == 0);
	for (size_t i = 0; i < N(wild); i++) {
		struct iovec v[2] = { { b, 4 }, { at(wild[i]), 4096 } };
		long r = writev(p[1], v, 2);

		CHECK(r == 4 || (r == -1 && errno == EFAULT)); /* what was there, or nothing */
		CHECK(r != 4 || read(p[0], b, 4) == 4);
		struct iovec local = { b, 4 }, remote = { at(wild[i]), 4 };
		CHECK(process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == -1);
		CHECK(process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == -1);
	}
}

TEST(huge_counts)
{
	struct epoll_event ev;
	struct msghdr m = { 0 };
	int sv[2], ep = epoll_create1(0);
	char c[64] = { 0 };

	CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, sv) == 0);
	CHECK_ERRNO(syscall(SYS_epoll_wait, ep, &ev, INT_MAX, 0L), EINVAL);
	CHECK_ERRNO(syscall(SYS_epoll_wait, ep, &ev, -1L, 0L), EINVAL);
	check_refused(syscall(SYS_poll, c, UINT32_MAX, 0L));
	CHECK_ERRNO(syscall(SYS_setgroups, INT_MAX, c), EINVAL);
	m.msg_control = c;
	m.msg_controllen = SIZE_MAX;
	check_refused(sendmsg(sv[0], &m, 0));
	m.msg_controllen = 0;
	m.msg_iov = (struct iovec *)c;
	m.msg_iovlen = SIZE_MAX;
	check_refused(sendmsg(sv[0], &m, 0));
	/* A control message longer than the buffer it is in, and one whose length wraps. */
	struct cmsghdr *cm = (struct cmsghdr *)c;
	m = (struct msghdr){ .msg_control = c, .msg_controllen = sizeof(c) };
	*cm = (struct cmsghdr){ SIZE_MAX, SOL_SOCKET, SCM_RIGHTS };
	check_refused(sendmsg(sv[0], &m, 0));
	*cm = (struct cmsghdr){ SIZE_MAX - 7, SOL_SOCKET, SCM_RIGHTS };
	check_refused(sendmsg(sv[0], &m, 0));
	*cm = (struct cmsghdr){ 1, SOL_SOCKET, SCM_RIGHTS };
	check_refused(sendmsg(sv[0], &m, 0));
	CHECK(syscall(SYS_getdents64, open("/", O_RDONLY | O_DIRECTORY), at(0x7ffffffff000),
		      UINT32_MAX) == -1);
	CHECK(syscall(SYS_fcntl, sv[0], F_SETPIPE_SZ, UINT32_MAX) == -1);
}

TEST_MAIN
