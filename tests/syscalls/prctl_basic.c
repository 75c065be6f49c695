// SPDX-License-Identifier: Apache-2.0
/* prctl, arch_prctl, personality, limits, scheduling attributes. */
#include "harness.h"

#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>

TEST(name)
{
	char buf[16];

	CHECK(prctl(PR_SET_NAME, "a-name-that-is-too-long") == 0);
	CHECK(prctl(PR_GET_NAME, buf) == 0);
	CHECK(strcmp(buf, "a-name-that-is-") == 0);
}

TEST(pdeathsig)
{
	int sig = -1;

	CHECK_ERRNO(prctl(PR_SET_PDEATHSIG, 65), EINVAL);
	CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0);
	CHECK(prctl(PR_GET_PDEATHSIG, &sig) == 0 && sig == SIGUSR1);
}

TEST(no_new_privs_is_sticky)
{
	CHECK_ERRNO(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0), EINVAL);
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
}

TEST(dumpable)
{
	CHECK(prctl(PR_GET_DUMPABLE) == 1);
	CHECK_ERRNO(prctl(PR_SET_DUMPABLE, 2), EINVAL);
	CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
	CHECK(prctl(PR_GET_DUMPABLE) == 0);
}

TEST(unknown_option)
{
	CHECK_ERRNO(prctl(123456), EINVAL);
}

TEST(arch_prctl_range)
{
	CHECK_ERRNO(syscall(SYS_arch_prctl, 0x1001, 1ULL << 63), EPERM);
	CHECK_ERRNO(syscall(SYS_arch_prctl, 0x9999, 0), EINVAL);
}

TEST(rlimits)
{
	struct rlimit r = { 10, 5 };

	CHECK_ERRNO(setrlimit(RLIMIT_CORE, &r), EINVAL);
	CHECK_ERRNO(syscall(SYS_getrlimit, 99, &r), EINVAL);
	r = (struct rlimit){ 0, 0 };
	CHECK(setrlimit(RLIMIT_CORE, &r) == 0);
	CHECK(getrlimit(RLIMIT_CORE, &r) == 0 && r.rlim_cur == 0 && r.rlim_max == 0);
}

TEST(priority)
{
	CHECK(setpriority(PRIO_PROCESS, 0, 100) == 0);
	CHECK(getpriority(PRIO_PROCESS, 0) == 19);
	CHECK_ERRNO(setpriority(9, 0, 0), EINVAL);
	CHECK_ERRNO(getpriority(PRIO_PROCESS, 4000000), ESRCH);
}

TEST(affinity)
{
	cpu_set_t set;

	CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
	CHECK(CPU_COUNT(&set) >= 1);
	CHECK_ERRNO(syscall(SYS_sched_getaffinity, 0, 3, &set), EINVAL);
	CPU_ZERO(&set);
	CHECK_ERRNO(sched_setaffinity(0, sizeof(set), &set), EINVAL);
}

TEST(scheduler)
{
	struct sched_param p = { .sched_priority = 5 };

	CHECK(sched_getscheduler(0) == SCHED_OTHER);
	CHECK_ERRNO(sched_setscheduler(0, SCHED_OTHER, &p), EINVAL);
	CHECK(sched_get_priority_max(SCHED_FIFO) == 99);
	CHECK_ERRNO(sched_get_priority_max(77), EINVAL);
	p.sched_priority = 0;
	CHECK(sched_setparam(0, &p) == 0); /* keeps the policy */
	p.sched_priority = 1;
	CHECK_ERRNO(sched_setparam(0, &p), EINVAL);
}

TEST(scheduler_reset_on_fork)
{
	struct sched_param p = { 0 };
	int status;

	CHECK(sched_setscheduler(0, SCHED_BATCH | SCHED_RESET_ON_FORK, &p) == 0);
	CHECK(sched_getscheduler(0) == (SCHED_BATCH | SCHED_RESET_ON_FORK));
	CHECK(sched_setparam(0, &p) == 0);
	CHECK(sched_getscheduler(0) == (SCHED_BATCH | SCHED_RESET_ON_FORK));
	pid_t pid = fork();
	if (pid == 0)
		_exit(sched_getscheduler(0)); /* the flag isn't inherited */
	CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == SCHED_BATCH);
}

TEST(uname_is_linux)
{
	struct utsname u;

	CHECK(uname(&u) == 0);
	CHECK(strcmp(u.sysname, "Linux") == 0 && strcmp(u.machine, "x86_64") == 0);
	CHECK_ERRNO(syscall(SYS_uname, NULL), EFAULT);
}

/* man 2 personality: builds ask uname what they are to build for. */
TEST(personality_of_32_bits_says_so)
{
	struct utsname u;

	CHECK(personality(0xffffffff) == 0);
	CHECK(personality(PER_LINUX32) == 0 && uname(&u) == 0 && !strcmp(u.machine, "i686"));
	CHECK(personality(PER_LINUX32 | ADDR_NO_RANDOMIZE) == PER_LINUX32);
	CHECK(uname(&u) == 0 && !strcmp(u.machine, "i686"));
	CHECK(personality(PER_LINUX) >= 0 && uname(&u) == 0 && !strcmp(u.machine, "x86_64"));
}

TEST_MAIN
