// SPDX-License-Identifier: Apache-2.0
/*
 * A small system call fuzzer: every number with garbage arguments, in children under a time limit. The
 * guest may lose its own processes; the sentry has to survive, which the parent sees by going on.
 * The seed is fixed, so that a failure can be repeated; argv[2] sets another one.
 */
#include <limits.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "tests/syscalls/harness.h"

#define ROUNDS   12  /* children for each number */
#define CALLS    40  /* calls of each */
#define LAST_NR  470

static unsigned long seed;

static unsigned long rnd(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

static char *page;

static unsigned long argument(void)
{
	static const unsigned long wild[] = {
		0, 1, 2, 3, 4, 7, 8, 16, 64, 4095, 4096, 65535, 1UL << 20,
		~0UL, ~0UL - 1, 1UL << 31, (1UL << 31) - 1, 1UL << 32, 1UL << 47, (1UL << 47) - 4096,
		1UL << 63, (1UL << 63) - 1, 0x7ffff1000000, 0x7ffff1010000, 0xffffffffff600000, 0xdeadbeef,
		(unsigned long)AT_FDCWD, LONG_MAX, INT_MAX,
	};

	switch (rnd() % 6) {
	case 0:
	case 1:
		return wild[rnd() % (sizeof(wild) / sizeof(wild[0]))];
	case 2: /* into good memory with random contents */
	case 3:
		return (unsigned long)page + rnd() % 4096;
	case 4: /* across its end */
		return (unsigned long)page + 8192 - rnd() % 64;
	default:
		return rnd() >> (rnd() % 64);
	}
}

/* Calls that would only end or stop the child, or make the test wait. */
static bool left_out(long nr)
{
	switch (nr) {
	case SYS_exit:
	case SYS_exit_group:
	case SYS_pause:
	case SYS_rt_sigsuspend:
	case SYS_vfork:
	case SYS_reboot:
	case SYS_fork:
	case SYS_clone: /* forks are bombs here: see tests/escape/resources.c */
		return true;
	default:
		return false;
	}
}

static void setup(void)
{
	struct rlimit few = { 64, 64 }, mem = { 1UL << 30, 1UL << 30 };
	struct itimerval quick = { { 0, 0 }, { 0, 300000 } };
	int fds[2];

	page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(page + 8192, 4096);
	for (int i = 0; i < 8192; i++)
		page[i] = (char)rnd();
	strcpy(page + 256, "/tmp/fuzz");
	strcpy(page + 512, "/proc/self/fd/3");
	/* something behind each low descriptor */
	(void)!pipe(fds);
	(void)!socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
	(void)!open("/tmp/fuzzfile", O_RDWR | O_CREAT, 0600);
	(void)!open("/proc/self/status", O_RDONLY);
	(void)!open("/", O_RDONLY);
	setrlimit(RLIMIT_NPROC, &few);
	setrlimit(RLIMIT_AS, &mem);
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 1 << 20, 1 << 20 });
	setitimer(ITIMER_REAL, &quick, NULL);
	signal(SIGALRM, SIG_DFL);
}

static void child(long nr)
{
	int null = open("/dev/null", O_RDWR);

	dup2(null, 0);
	dup2(null, 1);
	dup2(null, 2);
	setsid(); /* a group of its own to be killed by the parent */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setup();
	for (int i = 0; i < CALLS; i++)
		(void)syscall(nr, argument(), argument(), argument(), argument(), argument(),
			      argument());
	_exit(0);
}

/* Ends the child and whatever it made that is still in its session or became ours. */
static void end_of(pid_t pid)
{
	for (int ms = 0; ms < 1000; ms++) {
		if (waitpid(pid, NULL, WNOHANG) == pid)
			break;
		usleep(1000);
	}
	kill(-pid, SIGKILL);
	kill(pid, SIGKILL);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void fuzz(long first, long last)
{
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (long nr = first; nr < last; nr++) {
		if (left_out(nr))
			continue;
		alarm(TEST_TIMEOUT);
		for (int round = 0; round < ROUNDS / 4; round++) {
			pid_t pid;

			seed = 0x9e3779b97f4a7c15UL * (unsigned long)(nr * 1000 + round + 1);
			pid = fork();
			if (pid == 0)
				child(nr);
			CHECK(pid > 0);
			end_of(pid);
		}
	}
}

TEST(numbers_0_to_99)
{
	fuzz(0, 100);
}

TEST(numbers_100_to_199)
{
	fuzz(100, 200);
}

TEST(numbers_200_to_299)
{
	fuzz(200, 300);
}

TEST(numbers_300_to_470)
{
	fuzz(300, LAST_NR);
}

TEST_MAIN
