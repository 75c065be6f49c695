// SPDX-License-Identifier: Apache-2.0
/* Booting and following a container, for `run`, `create` and `do`. */
#ifndef RUNTIME_CMD_RUN_H
#define RUNTIME_CMD_RUN_H

#include "runtime/cli.h"
#include "runtime/extra_fds.h"
#include "runtime/launch.h"

struct boot_request {
	const char *id;
	char *bundle;       /* absolute; heap */
	struct spec *spec;
	enum overlay_mode overlay;
	struct extra_fds extra;
	int console_fd;     /* -1: none */
	struct attach *relay; /* of --console-socket; or NULL */
	unsigned rows, cols;
	const struct restore_source *restore; /* or NULL */
	const int *stdio;   /* the guest's 0, 1, 2; NULL: ours */
	struct statedir *woken; /* the state directory of a sandbox without processes, borrowed; NULL: a new one */
	bool notify;        /* it gets a socket for sd_notify */
	bool cgroup;        /* it gets control groups of its own */
	pid_t pid;          /* out */
};

/* State directory and processes. 0 with *ret_dir, or 1 after a message, with nothing left behind. */
int container_boot(struct boot_request *b, struct statedir **ret_dir);
/* Its first instruction, with the hooks around it. 0, or 1 after a message. */
int container_begin(struct statedir *s);
/* Starts it and waits for its end: the exit status. @tied: it dies with us. */
int container_follow(struct statedir *s, struct attach *a, bool tied);
/* Boot, terminal (if the spec asks for one), follow, delete. */
int container_run(struct boot_request *b, bool keep, bool tied);
/* 0, or 1 after a message. */
int write_pid_file(const char *path, pid_t pid);

#endif
