// SPDX-License-Identifier: Apache-2.0
/* Interval timers of a process (man 2 setitimer, 2 alarm). */
#ifndef SENTRY_TIME_ITIMER_H
#define SENTRY_TIME_ITIMER_H

#include <stdint.h>

struct tgroup;

struct itimer_value {
	int64_t value_ns, interval_ns; /* value 0: disarmed */
};

/* @which: ITIMER_*, valid. */
void itimer_set(struct tgroup *tg, int which, const struct itimer_value *new,
		struct itimer_value *ret_old);
void itimer_get(struct tgroup *tg, int which, struct itimer_value *ret);
/* Saving and loading, as part of the group's record; afterwards itimers_resume() arms. */
struct state;
void itimers_fields(struct state *s, struct tgroup *tg);
void itimers_resume(struct tgroup *tg);
/* The last thread has exited: disarms and frees. Context: no locks held. */
void itimers_exit(struct tgroup *tg);

#endif
