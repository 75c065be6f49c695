// SPDX-License-Identifier: Apache-2.0
/* Namespaces: unshare, clone with CLONE_NEW*, setns. Needs root. */
#include "harness.h"

#include <sched.h>
#include <sys/stat.h>
#include <sys/utsname.h>

TEST(uts_namespace_is_private)
{
	struct utsname u;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		CHECK(unshare(CLONE_NEWUTS) == 0);
		CHECK(sethostname("inside", 6) == 0);
		CHECK(uname(&u) == 0 && strcmp(u.nodename, "inside") == 0);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(uname(&u) == 0 && strcmp(u.nodename, "inside") != 0);
}

TEST(pid_namespace_starts_at_one)
{
	int status;
	pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(syscall(SYS_getpid) == 1 && syscall(SYS_getppid) == 0 ? 0 : 1);
	CHECK(pid > 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

TEST(death_of_init_kills_the_namespace)
{
	int fds[2], status;
	char c;
	pid_t pid;

	CHECK(pipe(fds) == 0);
	pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		if (fork() == 0)
			for (;;)
				pause();
		_exit(9);
	}
	close(fds[1]);
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 9);
	CHECK(read(fds[0], &c, 1) == 0); /* nobody holds the other end any more */
}

TEST(user_namespace_gives_capabilities_inside)
{
	CHECK(setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0);
	CHECK(unshare(CLONE_NEWUSER) == 0);
	CHECK(getuid() == 65534);
	CHECK(unshare(CLONE_NEWUTS) == 0);
	CHECK(sethostname("x", 1) == 0);
}

TEST(unshare_refuses_unknown_flags)
{
	CHECK_ERRNO(unshare(0x1), EINVAL);
	CHECK_ERRNO(setns(-1, 0), EBADF);
	CHECK_ERRNO(setns(open("/", O_RDONLY), 0), EINVAL);
}

TEST(setns_by_pidfd)
{
	int fds[2], status, fd;
	struct utsname u;
	char c;
	pid_t pid;

	CHECK(pipe(fds) == 0);
	pid = fork();
	if (pid == 0) {
		CHECK(unshare(CLONE_NEWUTS) == 0 && sethostname("other", 5) == 0);
		CHECK(write(fds[1], "x", 1) == 1);
		pause();
		_exit(0);
	}
	CHECK(read(fds[0], &c, 1) == 1);
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	CHECK(fd >= 0);
	CHECK_ERRNO(setns(fd, 0), EINVAL);
	CHECK(setns(fd, CLONE_NEWUTS) == 0);
	CHECK(uname(&u) == 0 && strcmp(u.nodename, "other") == 0);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
}

TEST_MAIN
