// SPDX-License-Identifier: Apache-2.0
/*
 * Starting a sandbox from the launcher: the gofer and the sentry, each in namespaces of its own, tied
 * together by socket pairs. The launcher may exit once sandbox_launch() has returned.
 */
#ifndef RUNTIME_LAUNCH_H
#define RUNTIME_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/spec.h"
#include "runtime/statedir.h"

enum overlay_mode {
	OVERLAY_MEMORY, /* writes to the root file system stay in the sandbox */
	OVERLAY_NONE,   /* written through to the bundle's rootfs */
};

struct launch {
	struct statedir *dir;
	struct spec *spec;
	const char *bundle;   /* relative paths of the spec start here */
	enum overlay_mode overlay;
	const char *platform; /* name, or NULL: the best one */
	bool strace, debug;
	int stdio[3];         /* the guest's 0, 1, 2; unused with a terminal */
	int console;          /* socket or pty slave that carries a terminal's bytes, or -1 */
	unsigned rows, cols;
	/* Called once the sentry is there, before it is told to do anything: from then on whoever
	 * finds the sandbox in the state directory can end it. 0, or -1 with *ret_why. */
	int (*spawned)(const struct launch *l, pid_t pid, char **ret_why);
};

/* 0 with the sentry's pid, or -1 with *ret_why (heap). Nothing is left running on failure. The
 * container is created (its first process waits for `start`). */
int sandbox_launch(const struct launch *l, pid_t *ret_pid, char **ret_why);

/* Where the roles find their descriptors after exec. */
#define ROLE_BOOT_FD 3       /* boot socket (sentry), serve socket (gofer) */
#define ROLE_LOG_FD 4
#define ROLE_FIRST_ATTACH 10 /* gofer: attach points from here on */

#endif
