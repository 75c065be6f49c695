// SPDX-License-Identifier: Apache-2.0
/* man 2 execve, 2 fork, 2 setpgid: scripts, errors, threads, orphaned process groups */
#include "harness.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tmpdir.h"

#define MAX_ARG_STRLEN (32 * 4096) /* <linux/binfmts.h> */

static char *const no_env[] = { NULL };

static void put(const char *name, const void *data, size_t n, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0);
	CHECK(write(fd, data, n) == (ssize_t)n);
	CHECK(fchmod(fd, mode) == 0);
	CHECK(close(fd) == 0);
}

static long exec_errno(const char *name)
{
	char *argv[] = { (char *)(uintptr_t)name, NULL };

	errno = 0;
	CHECK(execve(name, argv, no_env) == -1);
	return errno;
}

TEST(exec_errors)
{
	static const char chain[] = "#!./loop\n", noint[] = "#!\n", gone[] = "#!/nowhere/sh\n";

	enter_tmpdir();
	put("text", "hello\n", 6, 0755);
	put("empty", "", 0, 0755);
	put("noexec", "#!/bin/sh\n", 10, 0644);
	put("loop", chain, sizeof(chain) - 1, 0755);
	put("noint", noint, sizeof(noint) - 1, 0755);
	put("gone", gone, sizeof(gone) - 1, 0755);
	put("elf", "\177ELF\2\1\1", 7, 0755);
	CHECK(exec_errno("text") == ENOEXEC);
	CHECK(exec_errno("empty") == ENOEXEC);
	CHECK(exec_errno("noexec") == EACCES);
	CHECK(exec_errno("loop") == ELOOP);
	CHECK(exec_errno("noint") == ENOEXEC);
	CHECK(exec_errno("gone") == ENOENT);
	CHECK(exec_errno("elf") == ENOEXEC);
	CHECK(exec_errno(".") == EACCES);
	CHECK(exec_errno("") == ENOENT);
	CHECK(exec_errno("text/x") == ENOTDIR);
}

TEST(exec_busy_text)
{
	int fd;

	enter_tmpdir();
	put("text", "hello\n", 6, 0755);
	fd = open("text", O_WRONLY);
	CHECK(fd >= 0);
	CHECK(exec_errno("text") == ETXTBSY);
	CHECK(close(fd) == 0);
	CHECK(exec_errno("text") == ENOEXEC);
	CHECK_ERRNO(open("/proc/self/exe", O_WRONLY), ETXTBSY);
}

TEST(exec_too_big)
{
	char *big = malloc(MAX_ARG_STRLEN + 1), *argv[] = { big, NULL };

	CHECK(big);
	memset(big, 'x', MAX_ARG_STRLEN);
	big[MAX_ARG_STRLEN] = 0;
	CHECK_ERRNO(execve("/proc/self/exe", argv, no_env), E2BIG);
	CHECK_ERRNO(syscall(SYS_execve, "/proc/self/exe", 8L, no_env), EFAULT);
}

static void exec_self(const char *test)
{
	char *argv[] = { "/proc/self/exe", (char *)(uintptr_t)test, NULL };

	execve(argv[0], argv, no_env);
	_exit(99);
}

/* Called by what is exec()ed below. */
TEST(zz_nothing)
{
}

static void *exec_thread(void *arg)
{
	(void)arg;
	exec_self("zz_nothing");
	return NULL;
}

static void *sleeper(void *arg)
{
	pause();
	return arg;
}

TEST(exec_by_a_thread_keeps_the_pid)
{
	int st, out[2];
	char buf[256] = "";
	ssize_t n, all = 0;

	CHECK(pipe(out) == 0);
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		pthread_t th;

		CHECK(dup2(out[1], 1) == 1 && close(out[0]) == 0 && close(out[1]) == 0);
		CHECK(pthread_create(&th, NULL, sleeper, NULL) == 0);
		CHECK(pthread_create(&th, NULL, exec_thread, NULL) == 0);
		pause();
		_exit(98);
	}
	CHECK(close(out[1]) == 0);
	while ((n = read(out[0], buf + all, sizeof(buf) - 1 - (size_t)all)) > 0)
		all += n;
	CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 0);
	CHECK(strstr(buf, "zz_nothing"));
}

static void *fork_thread(void *arg)
{
	for (int i = 0; i < 20; i++) {
		int st;
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid == 0)
			_exit(i);
		CHECK(waitpid(pid, &st, 0) == pid && WIFEXITED(st) && WEXITSTATUS(st) == i);
	}
	return arg;
}

TEST(fork_by_many_threads)
{
	pthread_t th[4];

	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&th[i], NULL, fork_thread, NULL) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(th[i], NULL) == 0);
}

/* Copy on write: each of several writers sees its own pages only, shared ones are seen by all. */
TEST(fork_copies_on_write)
{
	enum { PAGES = 64, KIDS = 6 };
	size_t len = PAGES * 4096;
	unsigned char *priv = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(priv != MAP_FAILED && shared != MAP_FAILED);
	memset(priv, 0xff, len);
	for (int k = 0; k < KIDS; k++) {
		pid_t pid = fork();

		CHECK(pid >= 0);
		if (pid)
			continue;
		for (int round = 0; round < 4; round++)
			for (size_t i = 0; i < len; i += 4096) {
				CHECK(priv[i] == (round ? k * 4 + round - 1 : 0xff));
				priv[i] = (unsigned char)(k * 4 + round);
			}
		__atomic_fetch_add(shared, 1, __ATOMIC_SEQ_CST);
		_exit(0);
	}
	for (size_t i = 0; i < len; i += 4096) {
		CHECK(priv[i] == 0xff);
		priv[i] = 0xee;
	}
	for (int k = 0; k < KIDS; k++) {
		int st;

		CHECK(wait(&st) > 0 && st == 0);
	}
	for (size_t i = 0; i < len; i += 4096)
		CHECK(priv[i] == 0xee);
	CHECK(*shared == KIDS);
}

/* A stopped process whose group becomes orphaned gets SIGHUP and SIGCONT (setpgid(2), POSIX). */
TEST(orphaned_stopped_group_gets_hup)
{
	int p[2];
	char c = 0;

	CHECK(pipe(p) == 0);
	pid_t mid = fork();

	CHECK(mid >= 0);
	if (mid == 0) {
		/* who adopts the child must not be of its session */
		pid_t kid = setsid() < 0 ? -1 : fork();
		int st;

		if (kid == 0) {
			sigset_t set;
			int sig;

			setpgid(0, 0);
			sigemptyset(&set);
			sigaddset(&set, SIGHUP);
			sigprocmask(SIG_BLOCK, &set, NULL);
			raise(SIGSTOP);
			if (sigwait(&set, &sig) == 0 && sig == SIGHUP)
				(void)!write(p[1], "h", 1);
			_exit(0);
		}
		CHECK(waitpid(kid, &st, WUNTRACED) == kid && WIFSTOPPED(st));
		_exit(0);
	}
	CHECK(close(p[1]) == 0);
	CHECK(waitpid(mid, NULL, 0) == mid);
	CHECK(read(p[0], &c, 1) == 1 && c == 'h');
}

TEST(setpgid_errors)
{
	int p[2];
	char c;

	CHECK(pipe(p) == 0);
	CHECK_ERRNO(setpgid(0, -1), EINVAL);
	CHECK_ERRNO(setpgid(1 << 22, 0), ESRCH);
	CHECK_ERRNO(setpgid(0, 1 << 22), EPERM);
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid == 0) {
		CHECK(setsid() == getpid());
		CHECK_ERRNO(setsid(), EPERM);
		CHECK_ERRNO(setpgid(0, 0), EPERM);
		CHECK(write(p[1], "x", 1) == 1);
		pause();
		_exit(0);
	}
	CHECK(read(p[0], &c, 1) == 1);
	CHECK_ERRNO(setpgid(pid, 0), EPERM);
	CHECK(getsid(pid) == pid && getpgid(pid) == pid);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

TEST_MAIN
