// SPDX-License-Identifier: Apache-2.0
/*
 * ptrace(2): the stops of seized tracees around group-stops, as strace relies on them.
 */
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define GROUP_STOP(sig) ((sig) << 8 | 0x7f | PTRACE_EVENT_STOP << 16)

static pid_t stopping_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)raise(SIGSTOP);
		_exit(23);
	}
	return pid;
}

/* The stop that a wait finds, 0 if it isn't @pid's */
static int next_stop(pid_t pid)
{
	int status = 0;

	return waitpid(pid, &status, __WALL) == pid ? status : 0;
}

static void check_exit(pid_t pid, int code)
{
	int status = next_stop(pid);

	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
}

/* From a SIGCONT's notification on: the signal itself, then the end. */
static void let_it_end(pid_t pid)
{
	CHECK(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
	CHECK(next_stop(pid) == (SIGCONT << 8 | 0x7f));
	CHECK(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
	check_exit(pid, 23);
}

TEST(seized_in_a_group_stop_listens_for_sigcont)
{
	pid_t pid = stopping_child();
	int status;

	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	CHECK(ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0);
	CHECK(next_stop(pid) == GROUP_STOP(SIGSTOP));
	CHECK(ptrace(PTRACE_LISTEN, pid, NULL, NULL) == 0);
	CHECK(waitpid(pid, &status, __WALL | WNOHANG) == 0);
	CHECK(kill(pid, SIGCONT) == 0);
	CHECK(next_stop(pid) == GROUP_STOP(SIGTRAP));
	let_it_end(pid);
}

TEST(sigcont_before_listen_is_not_lost)
{
	pid_t pid = stopping_child();
	int status;

	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	CHECK(ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0);
	CHECK(next_stop(pid) == GROUP_STOP(SIGSTOP));
	CHECK(kill(pid, SIGCONT) == 0);
	CHECK(ptrace(PTRACE_LISTEN, pid, NULL, NULL) == 0);
	CHECK(next_stop(pid) == GROUP_STOP(SIGTRAP));
	let_it_end(pid);
}

TEST(sigcont_before_cont_is_not_lost)
{
	pid_t pid = stopping_child();
	int status;

	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	CHECK(ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0);
	CHECK(next_stop(pid) == GROUP_STOP(SIGSTOP));
	CHECK(kill(pid, SIGCONT) == 0);
	CHECK(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
	CHECK(next_stop(pid) == GROUP_STOP(SIGTRAP));
	let_it_end(pid);
}

TEST(interrupt_ends_listening)
{
	pid_t pid = stopping_child();
	int status;

	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
	CHECK(ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0);
	CHECK(next_stop(pid) == GROUP_STOP(SIGSTOP));
	CHECK(ptrace(PTRACE_LISTEN, pid, NULL, NULL) == 0);
	CHECK(ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0);
	CHECK(next_stop(pid) == GROUP_STOP(SIGSTOP));
	CHECK(kill(pid, SIGKILL) == 0);
	status = next_stop(pid);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(listen_is_for_group_stops)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		(void)raise(SIGSTOP);
		_exit(0);
	}
	CHECK(next_stop(pid) == (SIGSTOP << 8 | 0x7f));
	CHECK_ERRNO(ptrace(PTRACE_LISTEN, pid, NULL, NULL), EIO);
	CHECK(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
	check_exit(pid, 0);
}

TEST_MAIN
