// SPDX-License-Identifier: Apache-2.0
/* fork, exit, wait4, waitid, reparenting, process groups, pidfds. */
#include "harness.h"

#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static pid_t spawn_exit(int code)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(code);
	CHECK(pid > 0);
	return pid;
}

TEST(wait_status_of_exit)
{
	int status;
	pid_t pid = spawn_exit(42);

	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
	CHECK_ERRNO(waitpid(pid, &status, 0), ECHILD);
}

TEST(wait_status_of_signal)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		pause();
		_exit(0);
	}
	CHECK(kill(pid, SIGTERM) == 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

TEST(waitid_nowait_leaves_the_zombie)
{
	siginfo_t si = { 0 };
	pid_t pid = spawn_exit(3);

	CHECK(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT) == 0);
	CHECK(si.si_pid == pid && si.si_code == CLD_EXITED && si.si_status == 3);
	memset(&si, 0, sizeof(si));
	CHECK(waitid(P_PID, (id_t)pid, &si, WEXITED) == 0);
	CHECK(si.si_pid == pid);
	CHECK_ERRNO(waitid(P_PID, (id_t)pid, &si, WEXITED), ECHILD);
}

TEST(waitid_refuses_bad_options)
{
	siginfo_t si;

	CHECK_ERRNO(waitid(P_ALL, 0, &si, 0), EINVAL);
	CHECK_ERRNO(waitid((idtype_t)77, 0, &si, WEXITED), EINVAL);
	CHECK_ERRNO(waitid(P_PID, 0, &si, WEXITED), EINVAL);
	CHECK_ERRNO(syscall(SYS_wait4, -1, NULL, 0x40, NULL), EINVAL);
	CHECK_ERRNO(syscall(SYS_wait4, INT32_MIN, NULL, 0, NULL), ESRCH);
}

TEST(wait_reports_stop_and_continue)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		for (;;)
			pause();
	}
	CHECK(kill(pid, SIGSTOP) == 0);
	CHECK(waitpid(pid, &status, WUNTRACED) == pid);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	CHECK(waitpid(pid, &status, WUNTRACED | WNOHANG) == 0);
	CHECK(kill(pid, SIGCONT) == 0);
	CHECK(waitpid(pid, &status, WCONTINUED) == pid);
	CHECK(WIFCONTINUED(status));
	CHECK(kill(pid, SIGKILL) == 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(ignored_sigchld_reaps)
{
	signal(SIGCHLD, SIG_IGN);
	spawn_exit(1);
	CHECK_ERRNO(wait(NULL), ECHILD);
}

TEST(orphan_goes_to_the_subreaper)
{
	int fds[2], status;
	pid_t pid, orphan;

	CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	CHECK(pipe(fds) == 0);
	pid = fork();
	if (pid == 0) {
		orphan = fork();
		if (orphan == 0) {
			while (getppid() == pid)
				usleep(1000);
			usleep(20000);
			_exit(7);
		}
		CHECK(write(fds[1], &orphan, sizeof(orphan)) == sizeof(orphan));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(read(fds[0], &orphan, sizeof(orphan)) == sizeof(orphan));
	CHECK(waitpid(orphan, &status, 0) == orphan);
	CHECK(WEXITSTATUS(status) == 7);
}

TEST(setpgid_rules)
{
	int status;
	pid_t pid;

	CHECK_ERRNO(setpgid(0, -1), EINVAL);
	CHECK_ERRNO(setpgid(1, 1), ESRCH);
	pid = fork();
	if (pid == 0) {
		CHECK(setsid() == getpid());
		CHECK_ERRNO(setsid(), EPERM);
		CHECK_ERRNO(setpgid(0, 0), EPERM);
		CHECK(getsid(0) == getpid() && getpgrp() == getpid());
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(status == 0);
}

TEST(vfork_shares_memory_and_blocks_the_parent)
{
	volatile int seen = 0;
	int status;
	pid_t pid = vfork();

	if (pid == 0) {
		seen = 1;
		_exit(5);
	}
	CHECK(seen == 1);
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 5);
}

TEST(pidfd_polls_and_signals)
{
	siginfo_t si = { 0 };
	struct pollfd p;
	pid_t pid = fork();
	int fd;

	if (pid == 0) {
		pause();
		_exit(0);
	}
	fd = (int)syscall(SYS_pidfd_open, pid, 0);
	CHECK(fd >= 0);
	p = (struct pollfd){ .fd = fd, .events = POLLIN };
	CHECK(poll(&p, 1, 0) == 0);
	CHECK(syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0) == 0);
	CHECK(poll(&p, 1, -1) == 1 && (p.revents & POLLIN));
	CHECK(waitid((idtype_t)3 /* P_PIDFD */, (id_t)fd, &si, WEXITED) == 0);
	CHECK(si.si_pid == pid && si.si_code == CLD_KILLED);
	CHECK_ERRNO(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), ESRCH);
}

/* Of all that takes a pidfd, only this call takes an open /proc/PID as well. */
TEST(pidfd_send_signal_takes_proc_dirs)
{
	siginfo_t si = { 0 };
	int fd = open("/proc/self", O_RDONLY | O_DIRECTORY);

	CHECK(fd >= 0);
	CHECK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0);
	CHECK_ERRNO(syscall(SYS_pidfd_getfd, fd, 0, 0), EBADF);
	CHECK_ERRNO(waitid((idtype_t)3 /* P_PIDFD */, (id_t)fd, &si, WEXITED), EBADF);
	fd = open("/proc", O_RDONLY | O_DIRECTORY);
	CHECK_ERRNO(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0), EBADF);
}

TEST(clone_flag_rules)
{
	CHECK_ERRNO(syscall(SYS_clone, CLONE_THREAD | SIGCHLD, 0, 0, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_clone, CLONE_SIGHAND | SIGCHLD, 0, 0, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_clone, CLONE_FS | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0), EINVAL);
	CHECK_ERRNO(syscall(SYS_clone3, NULL, 8), EINVAL);
	CHECK_ERRNO(syscall(SYS_clone3, NULL, 8192), E2BIG);
}

TEST(execve_errors)
{
	char *argv[] = { NULL }, *big;

	CHECK_ERRNO(execve("/nonexistent", argv, argv), ENOENT);
	CHECK_ERRNO(execve("/", argv, argv), EACCES);
	big = malloc(200000);
	memset(big, 'x', 199999);
	big[199999] = 0;
	char *bigv[] = { big, NULL };
	CHECK_ERRNO(execve("/proc/self/exe", bigv, argv), E2BIG);
}

TEST(many_forks)
{
	for (int i = 0; i < 200; i++) {
		int status;
		pid_t pid = spawn_exit(i & 0xff);

		CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == (i & 0xff));
	}
}

TEST_MAIN
