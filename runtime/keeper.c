// SPDX-License-Identifier: Apache-2.0
/*
 * The keeper: `holdfast keep ID`, a process in the sandbox's control groups, left behind by whoever launches it
 * (keeper_start()). It sleeps on the sentry's pidfd for one interval at a time, asks the sentry once for
 * its activity (control_activity.c), and ends when the sentry does.
 *
 * Idle is: two answers an interval apart are the same and nobody sits at a terminal or follows a process. So
 * a sandbox is suspended after one to two intervals without a task having run. An image is made at most once
 * in --checkpoint-every, and only if a task has run since the last one.
 *
 * It serves what guests ask for in /proc/holdfast/snapshot as well, if they may (guest_snapshots.c).
 *
 * Its own process, and not a thread of the sentry: a confined sentry can't make files, end itself cleanly and
 * remove what is left of it. Started with exec, so that it keeps nothing of its parent but the log.
 *
 * Left out: it isn't started again when somebody kills it; the next wake has a new one.
 */
#include "runtime/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "runtime/cgroup.h"
#include "runtime/cli.h"
#include "runtime/guest_snapshots.h"
#include "runtime/image_store.h"
#include "runtime/park.h"

#define SECONDS_MAX 1000000u

/* 0: not asked for; -1: no such number. */
static long number_of(const json_t *annotations, const char *name, unsigned long max)
{
	const char *v = json_string_value(json_object_get(annotations, name));
	char *end = NULL;
	unsigned long n = v ? strtoul(v, &end, 10) : 0;

	if (!v)
		return 0;
	return *v < '0' || *v > '9' || *end || n > max ? -1 : (long)n;
}

static long seconds_of(const json_t *annotations, const char *name)
{
	return number_of(annotations, name, SECONDS_MAX);
}

void keeper_option(struct spec *spec, const char *annotation, unsigned number)
{
	AUTO_FREE char *text = kasprintf("%u", number);

	if (number)
		spec_annotate(spec, annotation, text);
}

const char *keeper_check(const struct spec *spec)
{
	if (seconds_of(spec->annotations, IDLE_ANNOTATION) < 0)
		return IDLE_ANNOTATION " is no number of seconds";
	if (seconds_of(spec->annotations, EVERY_ANNOTATION) < 0)
		return EVERY_ANNOTATION " is no number of seconds";
	if (number_of(spec->annotations, GUEST_SNAPSHOTS_ANNOTATION, GUEST_SNAPSHOTS_MAX) < 0)
		return GUEST_SNAPSHOTS_ANNOTATION " is no number, or too large";
	return NULL;
}

static void __noreturn become_keeper(struct statedir *s)
{
	char *argv[] = { (char[]){ "holdfast" }, (char[]){ "--root" }, s->root, (char[]){ "keep" }, s->id, NULL };
	char *envp[] = { NULL };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	setsid();
	for (int i = 0; i < 3; i++)
		(void)dup2(null, i); /* callers wait for these to be closed */
	(void)!chdir("/");           /* holds no directory of theirs */
	(void)close_range(3, ~0U, 0);
	execve("/proc/self/exe", argv, envp);
	_exit(127);
}

void keeper_start(struct statedir *s, const struct spec *spec)
{
	pid_t pid;

	if (seconds_of(spec->annotations, IDLE_ANNOTATION) <= 0 &&
	    seconds_of(spec->annotations, EVERY_ANNOTATION) <= 0 &&
	    number_of(spec->annotations, GUEST_SNAPSHOTS_ANNOTATION, GUEST_SNAPSHOTS_MAX) <= 0)
		return;
	pid = fork();
	if (pid < 0)
		log_warn("no keeper for %s: %s", s->id, strerror(errno));
	if (pid != 0)
		return;
	cgroup_join(s);
	become_keeper(s);
}

/* ---- the process ---- */

struct keeper {
	struct statedir *s;
	int pidfd;          /* the sentry's */
	int guests;         /* connection on which guests' requests come; -1: none */
	long max_guest;     /* how many snapshots they may have */
	long idle, every;   /* seconds; 0: no */
	int64_t idle_at, every_at; /* when to look next */
	json_t *seen, *saved; /* answers: at the last look, at the last image; or NULL */
};

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* New reference; NULL: it doesn't run, or its answer can't be had. */
static json_t *ask(struct keeper *k)
{
	json_t *req = json_pack("{s:s}", "op", "activity");
	AUTO_FREE char *why = NULL;
	json_t *rep = cli_request(k->s, req, &why);

	json_decref(req);
	if (rep && json_is_true(json_object_get(rep, "running")))
		return rep;
	json_decref(rep);
	return NULL;
}

static bool attended(const json_t *answer)
{
	return json_integer_value(json_object_get(answer, "attended")) != 0;
}

/* Unless somebody has begun something since. True: it is suspended. */
static bool suspend(struct keeper *k)
{
	json_t *again;
	bool done = false;

	if (store_lock(k->s))
		return false;
	again = ask(k);
	if (again && json_equal(again, k->seen) && !strcmp(cli_status(k->s), "running"))
		done = park_suspend(k->s, false) == 0; /* it has logged why not */
	json_decref(again);
	store_unlock(k->s);
	return done;
}

static bool look_if_idle(struct keeper *k)
{
	json_t *answer = ask(k);
	bool idle = answer && json_equal(answer, k->seen) && !attended(answer);

	json_decref(k->seen);
	k->seen = answer;
	return idle && suspend(k);
}

static void keep_image(struct keeper *k)
{
	json_t *answer = ask(k);
	AUTO_FREE char *why = NULL;
	AUTO_FREE char *number = NULL;
	unsigned long long bytes;

	if (!answer || json_equal(answer, k->saved) || store_lock(k->s)) {
		json_decref(answer);
		return;
	}
	if (!strcmp(cli_status(k->s), "running"))
		number = store_save(k->s, false, NULL, &why);
	if (number)
		(void)store_prune(k->s, &bytes);
	else if (why)
		log_warn("no image of %s: %s", k->s->id, why);
	store_unlock(k->s);
	json_decref(k->saved);
	k->saved = answer;
}

/* The time in ms until @at, for poll(2). */
static int until(int64_t at)
{
	int64_t left = at - now_ms();

	return left < 0 ? 0 : (int)MIN(left, (int64_t)INT_MAX);
}

static void watch(struct keeper *k)
{
	for (;;) {
		struct pollfd p[2] = { { .fd = k->pidfd, .events = POLLIN },
				       { .fd = k->guests, .events = POLLIN } };
		int64_t next = MIN(k->idle_at, k->every_at);

		(void)poll(p, 2, next == INT64_MAX ? -1 : until(next)); /* interrupted: looks again */
		if (p[0].revents)
			return;
		if (p[1].revents && guest_snapshots_serve(k->s, k->guests, k->max_guest)) {
			close(k->guests);
			k->guests = -1;
		}
		if (now_ms() >= k->every_at) {
			keep_image(k);
			k->every_at = now_ms() + k->every * 1000;
		}
		if (now_ms() >= k->idle_at) {
			if (look_if_idle(k))
				return;
			k->idle_at = now_ms() + k->idle * 1000;
		}
	}
}

static int keep(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	struct keeper k = { .s = s };
	json_t *saved, *annotations;

	(void)argc;
	if (!s)
		return 1;
	saved = statedir_load(s, "state.json");
	annotations = json_object_get(saved, "annotations");
	k.idle = seconds_of(annotations, IDLE_ANNOTATION);
	k.every = seconds_of(annotations, EVERY_ANNOTATION);
	k.max_guest = number_of(annotations, GUEST_SNAPSHOTS_ANNOTATION, GUEST_SNAPSHOTS_MAX);
	json_decref(saved);
	k.pidfd = cli_open_sentry(s);
	if (k.pidfd < 0)
		return cli_fail("container not running");
	if (k.idle <= 0 && k.every <= 0 && k.max_guest <= 0)
		return cli_fail("container %s asks for no keeper", s->id);
	k.idle_at = k.idle > 0 ? now_ms() + k.idle * 1000 : INT64_MAX;
	k.every_at = k.every > 0 ? now_ms() + k.every * 1000 : INT64_MAX;
	k.guests = k.max_guest > 0 ? guest_snapshots_connect(s) : -1;
	watch(&k);
	json_decref(k.seen);
	json_decref(k.saved);
	close(k.pidfd);
	return 0;
}

static const struct opt no_opts[] = { { 0 } };

const struct command cmd_keep = {
	.name = "keep",
	.synopsis = "ID",
	.summary = "what --idle-suspend, --checkpoint-every, --guest-snapshots leave running beside a container",
	.details =
		"  Suspends container ID when it is idle and keeps a recent image of it, as the annotations\n"
		"  " IDLE_ANNOTATION " and " EVERY_ANNOTATION " say, and makes the\n"
		"  snapshots that its guests ask for, as " GUEST_SNAPSHOTS_ANNOTATION " allows.\n"
		"  `run`, `create` and `wake` start it by themselves; it ends with the container's processes.",
	.opts = no_opts,
	.min_args = 1,
	.max_args = 1,
	.run = keep,
};
