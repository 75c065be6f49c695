// SPDX-License-Identifier: Apache-2.0
/* The guest's struct rusage: wait4, waitid, getrusage. */
#ifndef SYSCALLS_RUSAGE_H
#define SYSCALLS_RUSAGE_H

#include "sentry/time/clock.h"

struct l_rusage {
	struct l_timeval utime, stime;
	int64_t maxrss, ixrss, idrss, isrss, minflt, majflt, nswap, inblock, oublock;
	int64_t msgsnd, msgrcv, nsignals, nvcsw, nivcsw;
};
_Static_assert(sizeof(struct l_rusage) == 144, "struct rusage is 144 bytes");

struct task_usage;
void usage_to_rusage(const struct task_usage *u, struct l_rusage *ret); /* sys_rlimit.c */

#endif
