// SPDX-License-Identifier: Apache-2.0
/* fcntl(2) F_NOTIFY (dnotify), and the siginfo that F_SETSIG promises. */
#include <sys/stat.h>
#include <poll.h>
#include <sys/socket.h>

#include "tests/syscalls/tmpdir.h"

static sigset_t rtmin;

static void block_rtmin(void)
{
	sigemptyset(&rtmin);
	sigaddset(&rtmin, SIGRTMIN);
	CHECK(sigprocmask(SIG_BLOCK, &rtmin, NULL) == 0);
}

/* The descriptor that the next signal names, -1 if there is none. */
static int next(long *band, int *code)
{
	struct timespec now = { 0 };
	siginfo_t info;

	if (sigtimedwait(&rtmin, &info, &now) != SIGRTMIN)
		return -1;
	*band = info.si_band;
	*code = info.si_code;
	return info.si_fd;
}

static int watch(unsigned mask)
{
	int fd = open(".", O_RDONLY | O_DIRECTORY);

	CHECK(fd >= 0);
	CHECK(fcntl(fd, F_SETSIG, SIGRTMIN) == 0);
	CHECK(fcntl(fd, F_NOTIFY, mask) == 0);
	return fd;
}

static void make(const char *name)
{
	int fd = open(name, O_CREAT | O_WRONLY, 0600);

	CHECK(fd >= 0 && close(fd) == 0);
}

TEST(one_shot_and_multishot)
{
	long band;
	int code;

	enter_tmpdir();
	block_rtmin();
	int once = watch(DN_CREATE);
	CHECK(fcntl(once, F_GETOWN) == getpid());
	make("a");
	CHECK(next(&band, &code) == once);
	CHECK(code == POLL_MSG && band == (POLLIN | POLLRDNORM | 0x400 /* POLLMSG */));
	make("b");
	CHECK(next(&band, &code) == -1);
	close(once);

	int many = watch(DN_CREATE | DN_DELETE | DN_MULTISHOT);
	make("c");
	CHECK(unlink("c") == 0);
	CHECK(next(&band, &code) == many);
	CHECK(next(&band, &code) == many);
	CHECK(next(&band, &code) == -1);
	CHECK(fcntl(many, F_NOTIFY, 0) == 0);
	make("d");
	CHECK(next(&band, &code) == -1);
}

TEST(closing_any_duplicate_ends_it)
{
	long band;
	int code;

	enter_tmpdir();
	block_rtmin();
	int fd = watch(DN_CREATE | DN_MULTISHOT), copy = dup(fd);
	make("a");
	CHECK(next(&band, &code) == fd);
	close(copy);
	make("b");
	CHECK(next(&band, &code) == -1);
	close(fd);
}

TEST(only_directories)
{
	enter_tmpdir();
	make("f");
	int fd = open("f", O_RDONLY);
	CHECK(fcntl(fd, F_NOTIFY, DN_ACCESS) == -1 && errno == ENOTDIR);
	CHECK(fcntl(fd, F_NOTIFY, DN_MULTISHOT) == 0);
}

TEST(sigio_names_the_descriptor)
{
	long band;
	int code, sv[2];

	block_rtmin();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sv) == 0);
	CHECK(fcntl(sv[0], F_SETOWN, getpid()) == 0 && fcntl(sv[0], F_SETSIG, SIGRTMIN) == 0);
	CHECK(fcntl(sv[0], F_SETFL, O_ASYNC) == 0);
	CHECK(write(sv[1], "x", 1) == 1);
	CHECK(next(&band, &code) == sv[0]);
	CHECK(code == POLL_IN && band == (POLLIN | POLLRDNORM));
}

/* Out of or into a directory is a deletion or a creation there, no renaming (Linux 5.17). */
TEST(rename_is_within_the_directory)
{
	long band;
	int code;

	enter_tmpdir();
	block_rtmin();
	make("a");
	CHECK(mkdir("d", 0700) == 0);
	int fd = watch(DN_RENAME | DN_MULTISHOT);
	CHECK(rename("a", "d/a") == 0);
	CHECK(next(&band, &code) == -1);
	CHECK(rename("d", "e") == 0);
	CHECK(next(&band, &code) == fd);
}

TEST_MAIN
