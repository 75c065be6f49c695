// SPDX-License-Identifier: Apache-2.0
/*
 * A container inside the sentry: its namespaces, mounts and processes as the OCI spec asks for, and
 * how it ended. runtime/container_*.c build it; runtime/control_server.c drives it.
 */
#ifndef RUNTIME_CONTAINER_H
#define RUNTIME_CONTAINER_H

#include <jansson.h>
#include <stdbool.h>

#include "base/mutex.h"
#include "runtime/spec.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs.h"

struct gofer_client;
struct console;

/* What the launcher handed over (runtime/launch.c). */
struct boot {
	json_t *json;
	struct spec *spec;
	const char *id;
	int gofer, listener, exitfd;
	int stdio[3];
	int console; /* -1: no terminal */
	unsigned rows, cols;
};

/* One process started from outside: the init process, or one of `exec`. */
struct session {
	struct container *container;
	struct task *leader;     /* reference */
	struct console *console; /* NULL: no terminal */
};

struct container {
	const struct boot *boot;
	struct gofer_client *gofer;
	struct nsproxy *ns;      /* reference */
	struct path root;        /* references */
	struct super *devpts;    /* reference, or NULL */
	struct session *init;

	struct mutex mu;         /* RANK_CONTROL */
	struct cond changed;
	bool started, stopped;
	int exit_status;         /* wait form, once stopped */
	int killed_by;           /* signal that a tied client died of; 0: none */
};

/* Builds namespaces and mounts and loads the first program. 0, or -1 with *ret_why (heap). */
int container_create(const struct boot *b, struct gofer_client *gofer, struct container **ret,
		     char **ret_why);
/* Lets the first process run. False when it runs already. */
bool container_start(struct container *c);
/* What a shell shows as $? for a status in wait form. */
int container_exit_code(int status);

/* container_mounts.c: all mounts of the spec, in order. */
int container_mount_all(struct container *c, struct mntns *mnt, char **ret_why);

/* container_process.c: a process with the spec's identity, limits and directory. Not started.
 * @stdio: host descriptors (taken over); with p->terminal: @console_fd carries the terminal's bytes. */
struct session *container_spawn(struct container *c, const struct spec_process *p, bool init,
				const int stdio[3], int console_fd, unsigned rows, unsigned cols,
				char **ret_why);
/* container_user.c: "NAME[:GROUP]" or numbers, by the container's own files, into @p. 0, or -1 with *ret_why. */
int container_find_user(struct container *c, const char *who, struct spec_process *p, char **ret_why);
void session_free(struct session *s);

/* console.c: relays between a pty's master and a host descriptor (taken over). */
struct console *console_start(struct super *devpts, int hostfd, unsigned rows, unsigned cols,
			      struct file **ret_slave, struct tty **ret_tty);
void console_resize(struct console *c, unsigned rows, unsigned cols);
/* The session is over: lets the last output out and closes. */
void console_finish(struct console *c);
/* Waits until the finished ones have let it out, or for CLOCK_MONOTONIC's @deadline_ns: a client that
 * doesn't read must not keep the sandbox. */
void console_drain(int64_t deadline_ns);

/* control_server.c: serves the control socket; returns when the container has stopped and its waiters
 * know. */
void control_serve(struct container *c);

#endif
