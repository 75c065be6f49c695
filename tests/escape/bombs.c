// SPDX-License-Identifier: Apache-2.0
/*
 * Bombs of names, pages and events (SECURITY-CASES 23-29): everything that can be made many of. Bounded by an errno
 * or by the test itself; afterwards all of it can be taken away again, and ordinary work goes on.
 */
#include <dirent.h>
#include <ftw.h>
#include <pthread.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/syscalls/harness.h"

static char *scratch(void)
{
	static char dir[] = "/tmp/bombXXXXXX";

	CHECK(mkdtemp(dir) && chdir(dir) == 0);
	return dir;
}

TEST(deep_directories)
{
	int depth = 0, up = 0;

	scratch();
	while (depth < 3000 && mkdir("d", 0700) == 0 && chdir("d") == 0)
		depth++;
	CHECK(depth == 3000);
	/* getcwd of more than PATH_MAX */
	char buf[4096];
	CHECK(syscall(SYS_getcwd, buf, sizeof(buf)) == -1 && (errno == ERANGE || errno == ENAMETOOLONG));
	while (up < depth && chdir("..") == 0 && rmdir("d") == 0)
		up++;
	CHECK(up == depth);
}

TEST(wide_directories)
{
	char name[64];
	struct dirent *e;
	int n = 0;
	DIR *d;

	scratch();
	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		CHECK(mknod(name, S_IFREG | 0600, 0) == 0);
	}
	d = opendir(".");
	CHECK(d);
	while ((e = readdir(d)))
		n++;
	closedir(d);
	CHECK(n == 20002);
	for (int i = 0; i < 20000; i++) {
		snprintf(name, sizeof(name), "f%d", i);
		CHECK(unlink(name) == 0);
	}
}

/* More names than the cache of names may hold, none of which exists. */
TEST(names_that_do_not_exist)
{
	char name[300];
	struct stat st;

	scratch();
	for (int i = 0; i < 200000; i++) {
		snprintf(name, sizeof(name), "%0200d", i);
		CHECK_ERRNO(stat(name, &st), ENOENT);
	}
}

TEST(sparse_files)
{
	struct stat st;
	int fd;

	scratch();
	fd = open("f", O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0);
	/* One byte in each of many distant places. */
	for (long i = 0; i < 1000; i++)
		CHECK(pwrite(fd, "x", 1, i << 30) == 1);
	CHECK(fstat(fd, &st) == 0 && st.st_size == (999L << 30) + 1);
	CHECK(st.st_blocks < 65536); /* 32 MiB */
	CHECK(ftruncate(fd, 1) == 0 && ftruncate(fd, 1L << 43) == 0);
	CHECK(fstat(fd, &st) == 0 && st.st_blocks <= 64);
	/* mapped, and touched here and there */
	char *p = mmap(NULL, 1UL << 40, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	for (long i = 0; i < 200; i++)
		p[i << 32] = 1;
	CHECK(fstat(fd, &st) == 0 && st.st_blocks < 65536);
	CHECK(munmap(p, 1UL << 40) == 0 && unlink("f") == 0);
}

/* Every other page: as many extents as pages. */
TEST(holes_everywhere)
{
	int fd;

	scratch();
	fd = open("f", O_RDWR | O_CREAT, 0600);
	for (long i = 0; i < 4000; i++)
		CHECK(pwrite(fd, "x", 1, i * 8192) == 1);
	for (long i = 0; i < 4000; i++)
		CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, i * 8192 + 4096, 4096) == 0);
	CHECK(ftruncate(fd, 4000 * 8192) == 0);
	char *p = mmap(NULL, 4000 * 8192, PROT_READ, MAP_SHARED, fd, 0);
	long sum = 0;
	CHECK(p != MAP_FAILED);
	for (long i = 0; i < 8000; i++)
		sum += p[i * 4096];
	CHECK(sum == 4000 * 'x');
	CHECK(ftruncate(fd, 0) == 0);
}

TEST(event_bomb)
{
	struct rlimit l = { 20000, 20000 };
	int n = 0, ep = epoll_create1(0), in = inotify_init1(IN_NONBLOCK), fd;
	struct epoll_event ev = { .events = EPOLLIN | EPOLLET };
	char name[32];

	scratch();
	if (setrlimit(RLIMIT_NOFILE, &l))
		SKIP("may not raise RLIMIT_NOFILE");
	CHECK(ep >= 0 && in >= 0);
	while ((fd = eventfd(1, EFD_NONBLOCK)) >= 0 && n < 15000) {
		CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0 || errno == ENOSPC);
		n++;
	}
	CHECK(n > 1000);
	struct epoll_event out[64];
	CHECK(epoll_wait(ep, out, 64, 0) == 64);
	CHECK(close_range(10, ~0U, 0) == 0);
	CHECK(epoll_wait(ep, out, 64, 0) >= 0);
	/* A queue of events that nobody reads overflows and stays bounded. */
	CHECK(inotify_add_watch(in, ".", IN_ALL_EVENTS) > 0);
	for (int i = 0; i < 12000; i++) {
		snprintf(name, sizeof(name), "%d", i);
		CHECK(mknod(name, S_IFREG | 0600, 0) == 0 && unlink(name) == 0);
	}
	static char buf[1 << 20];
	long r, total = 0;
	bool overflow = false;
	while ((r = read(in, buf, sizeof(buf))) > 0) {
		for (long i = 0; i < r;) {
			const struct inotify_event *e = (const void *)(buf + i);

			overflow |= (e->mask & IN_Q_OVERFLOW) != 0;
			total++;
			i += (long)(sizeof(*e) + e->len);
		}
	}
	CHECK(overflow && total <= 16385);
}

TEST(epoll_nests_no_deeper)
{
	struct epoll_event ev = { .events = EPOLLIN };
	int last = epoll_create1(0), n = 0;

	for (; n < 20; n++) {
		int ep = epoll_create1(0);

		if (epoll_ctl(ep, EPOLL_CTL_ADD, last, &ev))
			break;
		last = ep;
	}
	CHECK(n >= 3 && n < 10 && (errno == ELOOP || errno == EINVAL));
	/* a circle */
	int a = epoll_create1(0), b = epoll_create1(0);
	CHECK(epoll_ctl(a, EPOLL_CTL_ADD, b, &ev) == 0);
	CHECK_ERRNO(epoll_ctl(b, EPOLL_CTL_ADD, a, &ev), ELOOP);
	CHECK_ERRNO(epoll_ctl(a, EPOLL_CTL_ADD, a, &ev), EINVAL);
}

TEST(timer_bomb)
{
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	struct itimerspec its = { { 0, 1 }, { 0, 1 } }; /* every nanosecond */
	timer_t t[64];
	int n = 0;

	signal(SIGRTMIN, SIG_IGN);
	while (n < 64 && timer_create(CLOCK_MONOTONIC, &ev, &t[n]) == 0)
		n++;
	CHECK(n == 64);
	for (int i = 0; i < n; i++)
		CHECK(timer_settime(t[i], 0, &its, NULL) == 0);
	struct timespec ts = { 0, 300000000 };
	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
	for (int i = 0; i < n; i++)
		CHECK(timer_delete(t[i]) == 0);
	/* and as many as there may be */
	timer_t one;
	n = 0;
	while (n < 100000 && timer_create(CLOCK_MONOTONIC, &ev, &one) == 0)
		n++;
	CHECK(n == 100000 || errno == EAGAIN);
}

TEST(signal_queue_bomb)
{
	union sigval v = { 0 };
	sigset_t s;
	long n = 0;

	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &s, NULL);
	while (n < 1000000 && sigqueue(getpid(), SIGRTMIN, v) == 0)
		n++;
	CHECK(n < 1000000 && errno == EAGAIN);
}

TEST(descriptors_under_way)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { "x", 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
			    .msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int n = 0, sv[2];

	*c = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
	/* Each pair carries itself and is closed: only a collector can free it. */
	while (n < 3000 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sv) == 0) {
		memcpy(CMSG_DATA(c), &sv[0], sizeof(int));
		if (sendmsg(sv[0], &m, 0) != 1)
			break;
		memcpy(CMSG_DATA(c), &sv[1], sizeof(int));
		(void)sendmsg(sv[1], &m, 0);
		close(sv[0]);
		close(sv[1]);
		n++;
	}
	CHECK(n == 3000 || errno == ETOOMANYREFS || errno == EAGAIN || errno == ENOBUFS);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
}

static int seen;

static int visit(const char *path, const struct stat *st, int type, struct FTW *f)
{
	char buf[4096];
	int fd;

	(void)f;
	seen++;
	if (type != FTW_F || !S_ISREG(st->st_mode) || !(st->st_mode & 0444))
		return 0;
	fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return 0;
	for (int i = 0; i < 16 && read(fd, buf, sizeof(buf)) > 0; i++)
		;
	close(fd);
	return 0;
}

static void *churn(void *arg)
{
	(void)arg;
	return NULL;
}

/* find /proc, reading everything, while processes come and go. */
TEST(all_of_proc_is_read)
{
	pid_t kid = fork();

	CHECK(kid >= 0);
	if (kid == 0) {
		for (;;) {
			pthread_t th;
			pid_t p = fork();

			if (p == 0) {
				if (pthread_create(&th, NULL, churn, NULL) == 0)
					pthread_join(th, NULL);
				_exit(0);
			}
			if (p > 0)
				waitpid(p, NULL, 0);
		}
	}
	for (int i = 0; i < 2; i++) {
		CHECK(nftw("/proc/self", visit, 20, FTW_PHYS) == 0);
		/* nftw gives up at a directory that is gone when it comes there. */
		CHECK(nftw("/proc", visit, 20, FTW_PHYS) == 0 || errno == ENOENT || errno == ESRCH);
	}
	CHECK(seen > 100);
	CHECK(kill(kid, SIGKILL) == 0 && waitpid(kid, NULL, 0) == kid);
}

TEST_MAIN
