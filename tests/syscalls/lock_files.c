// SPDX-License-Identifier: Apache-2.0
/* flock, POSIX locks, OFD locks, leases. */
#include <sys/file.h>

#include "tests/syscalls/tmpdir.h"

static int lock(int fd, int cmd, short type, off_t start, off_t len)
{
	struct flock fl = { .l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len };

	return fcntl(fd, cmd, &fl);
}

static int child(void (*fn)(int), int arg)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		fn(arg);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void sees_lock(int fd)
{
	struct flock fl = { .l_type = F_WRLCK, .l_start = 15 };

	CHECK(fcntl(fd, F_GETLK, &fl) == 0);
	CHECK(fl.l_type == F_WRLCK && fl.l_start == 10 && fl.l_len == 10 && fl.l_pid == getppid());
	CHECK_ERRNO(lock(fd, F_SETLK, F_RDLCK, 0, 0), EAGAIN);
	CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 10) == 0);
	CHECK(lock(fd, F_SETLK, F_WRLCK, 20, 0) == 0);
}

TEST(posix_locks_are_seen_by_others)
{
	enter_tmpdir();
	int fd = make_file("f", "");
	CHECK(lock(fd, F_SETLK, F_WRLCK, 10, 10) == 0);
	CHECK(child(sees_lock, fd) == 0);
	CHECK_ERRNO(lock(fd, F_SETLK, 9, 0, 0), EINVAL);
	CHECK_ERRNO(lock(fd, F_SETLK, F_WRLCK, -1, 0), EINVAL);
	CHECK_ERRNO(lock(open("f", O_RDONLY), F_SETLK, F_WRLCK, 0, 0), EBADF);
}

static void is_free(int fd)
{
	CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
}

TEST(closing_any_descriptor_drops_posix_locks)
{
	enter_tmpdir();
	int fd = make_file("f", "");
	CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
	close(open("f", O_RDONLY));
	CHECK(child(is_free, fd) == 0);
}

TEST(ofd_locks_belong_to_the_description)
{
	enter_tmpdir();
	int a = make_file("f", ""), b = open("f", O_RDWR);
	struct flock fl = { .l_type = F_WRLCK };

	CHECK(lock(a, F_OFD_SETLK, F_WRLCK, 0, 10) == 0);
	CHECK_ERRNO(lock(b, F_OFD_SETLK, F_WRLCK, 5, 10), EAGAIN);
	CHECK(fcntl(b, F_OFD_GETLK, &fl) == 0 && fl.l_pid == -1 && fl.l_len == 10);
	fl = (struct flock){ .l_type = F_WRLCK, .l_pid = 1 };
	CHECK_ERRNO(fcntl(b, F_OFD_SETLK, &fl), EINVAL);
	int c = dup(a);
	close(a);
	CHECK_ERRNO(lock(b, F_OFD_SETLK, F_WRLCK, 5, 10), EAGAIN);
	close(c);
	CHECK(lock(b, F_OFD_SETLK, F_WRLCK, 5, 10) == 0);
}

TEST(flock_upgrades)
{
	enter_tmpdir();
	int a = make_file("f", ""), b = open("f", O_RDONLY);

	CHECK(flock(a, LOCK_SH) == 0 && flock(b, LOCK_SH) == 0);
	CHECK_ERRNO(flock(a, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	CHECK(flock(b, LOCK_UN) == 0 && flock(a, LOCK_EX | LOCK_NB) == 0);
	CHECK_ERRNO(flock(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
	close(a);
	CHECK(flock(b, LOCK_EX | LOCK_NB) == 0);
	CHECK_ERRNO(flock(b, 77), EINVAL);
}

TEST(blocked_lock_is_granted_at_unlock)
{
	int p[2];
	char c;

	enter_tmpdir();
	int fd = make_file("f", "");
	CHECK(pipe(p) == 0 && lock(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(lock(fd, F_SETLKW, F_WRLCK, 0, 0) == 0);
		CHECK(write(p[1], "x", 1) == 1);
		_exit(0);
	}
	usleep(50000);
	CHECK(fcntl(p[0], F_SETFL, O_NONBLOCK) == 0);
	CHECK_ERRNO(read(p[0], &c, 1), EAGAIN);
	CHECK(fcntl(p[0], F_SETFL, 0) == 0 && lock(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
	CHECK(read(p[0], &c, 1) == 1);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

TEST(deadlock_is_refused)
{
	int p[2];
	char c;

	enter_tmpdir();
	int fd = make_file("f", "");
	CHECK(pipe(p) == 0 && lock(fd, F_SETLK, F_WRLCK, 0, 1) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(lock(fd, F_SETLK, F_WRLCK, 1, 1) == 0);
		CHECK(write(p[1], "x", 1) == 1);
		CHECK(lock(fd, F_SETLKW, F_WRLCK, 0, 1) == 0);
		_exit(0);
	}
	CHECK(read(p[0], &c, 1) == 1);
	usleep(100000);
	CHECK_ERRNO(lock(fd, F_SETLKW, F_WRLCK, 1, 1), EDEADLK);
	CHECK(lock(fd, F_SETLK, F_UNLCK, 0, 0) == 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void on_alarm(int sig)
{
	(void)sig;
}

static void blocked_and_interrupted(int fd)
{
	struct sigaction sa = { .sa_handler = on_alarm };

	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	ualarm(50000, 0);
	CHECK_ERRNO(lock(fd, F_SETLKW, F_WRLCK, 0, 0), EINTR);
}

TEST(blocked_lock_is_interruptible)
{
	enter_tmpdir();
	int fd = make_file("f", "");
	CHECK(lock(fd, F_SETLK, F_WRLCK, 0, 0) == 0);
	CHECK(child(blocked_and_interrupted, fd) == 0);
}

static void sees_the_first(int fd)
{
	struct flock fl = { .l_type = F_WRLCK };

	CHECK(fcntl(fd, F_GETLK, &fl) == 0);
	CHECK(fl.l_type == F_RDLCK && fl.l_start == 1 && fl.l_len == 5);
}

/* Whatever the order in which they were taken. */
TEST(getlk_tells_the_lowest_lock_in_the_way)
{
	enter_tmpdir();
	int fd = make_file("f", "");
	CHECK(lock(fd, F_SETLK, F_WRLCK, 10, 5) == 0);
	CHECK(lock(fd, F_SETLK, F_RDLCK, 1, 5) == 0);
	CHECK(child(sees_the_first, fd) == 0);
}

TEST_MAIN
