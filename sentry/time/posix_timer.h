// SPDX-License-Identifier: Apache-2.0
/* POSIX timers (man 2 timer_create) of a process. */
#ifndef SENTRY_TIME_POSIX_TIMER_H
#define SENTRY_TIME_POSIX_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "sentry/kernel/signal.h"
#include "sentry/time/clock.h"

struct task;
struct tgroup;
struct posix_timer;
struct seqbuf;
struct state;

struct l_sigevent { /* 64 bytes; the union's tid is all that the kernel reads */
	uint64_t value;
	int32_t signo, notify, tid;
	int32_t pad[11];
};
_Static_assert(sizeof(struct l_sigevent) == 64, "struct sigevent is 64 bytes");

#define POSIX_TIMERS_MAX 32768 /* for each process, beside RLIMIT_SIGPENDING */

/* Id, or -EINVAL, -EAGAIN, -EPERM, -EOPNOTSUPP. @ev NULL: SIGALRM to the process with the id. */
long posix_timer_create(struct task *t, int clockid, const struct l_sigevent *ev);
long posix_timer_settime(struct task *t, int id, int flags, const struct l_itimerspec *new,
			 struct l_itimerspec *ret_old);
long posix_timer_gettime(struct task *t, int id, struct l_itimerspec *ret);
long posix_timer_getoverrun(struct task *t, int id);
long posix_timer_delete(struct task *t, int id);
/* exec and exit of the last thread: deletes all. Context: no locks held. */
void posix_timers_exit(struct tgroup *tg);
/* /proc/PID/timers */
void posix_timers_show(struct task *viewer, struct tgroup *tg, struct seqbuf *out);

/* Saving and loading, as part of the group's record; afterwards posix_timers_loaded() checks and
 * posix_timers_resume() arms. */
void posix_timers_fields(struct state *s, struct tgroup *tg);
void posix_timers_loaded(struct state *s, struct tgroup *tg);
void posix_timers_resume(struct tgroup *tg);
/* The id of an entry's timer, and back (NULL: there is none with that id). */
int posix_timer_id(const struct posix_timer *pt);
struct sigqueue_entry *posix_timer_entry(struct tgroup *tg, int id);

/* A queued expiry is being delivered: fills in the overrun count and goes on with the interval. False: the
 * timer was deleted or set anew meanwhile. Context: sighand.mu held. */
bool posix_timer_dequeued(struct posix_timer *pt, struct l_siginfo *info);

#endif
