// SPDX-License-Identifier: Apache-2.0
/*
 * Starting a sandbox from the launcher: the gofer and the sentry, each in namespaces of its own, tied
 * together by socket pairs. The launcher may exit once sandbox_launch() has returned.
 */
#ifndef RUNTIME_LAUNCH_H
#define RUNTIME_LAUNCH_H

#include <stdbool.h>
#include <sys/types.h>

#include "runtime/cgroup.h"
#include "runtime/overlay.h"
#include "runtime/spec.h"
#include "runtime/statedir.h"

/* What a sandbox goes on from, instead of starting its program: an image, or a branch of a live one. */
struct restore_source {
	bool fork;
	int state;    /* the file `state` */
	int *fds;     /* page files of images (its own, then its parents'); of a branch memory files; heap */
	unsigned nfds;
};

struct launch {
	struct statedir *dir;
	struct spec *spec;
	const char *bundle;   /* relative paths of the spec start here */
	enum overlay_mode overlay;
	int layer;            /* directory of a layer on disk; -1: there is none */
	uint64_t layer_size;  /* bytes that it may have */
	const char *platform; /* name, or NULL: the best one */
	struct cgroup *cgroup; /* where its processes go, or NULL; borrowed */
	json_t *seccomp;      /* the guest's filter (seccomp_profile.h), or JSON null; borrowed */
	bool strace, debug;
	bool notify;          /* its process gets a socket for sd_notify (notify.h) */
	int stdio[3];         /* the guest's 0, 1, 2; unused with a terminal */
	const int *extra_fds; /* the guest's 3, 4 ... */
	unsigned nextra_fds;
	int console;          /* socket or pty slave that carries a terminal's bytes, or -1 */
	unsigned rows, cols;
	const struct restore_source *restore; /* or NULL; borrowed */
	struct statedir *sandbox; /* whose sentry it joins (launch_join.c), or NULL; borrowed */
	const char *pidns_of;     /* then: the container whose pid namespace it shares, or NULL */
	/* Called once the sentry is there, before it is told to do anything: from then on whoever
	 * finds the sandbox in the state directory can end it. 0, or -1 with *ret_why. */
	int (*spawned)(const struct launch *l, pid_t pid, char **ret_why);
};

/* What the spec allows the sandbox's memory files to hold, or what they may where it says nothing. */
uint64_t launch_memory_limit(uint64_t limit);

/* 0 with the sentry's pid, or -1 with *ret_why (heap). Nothing is left running on failure. The
 * container is created (its first process waits for `start`). */
int sandbox_launch(const struct launch *l, pid_t *ret_pid, char **ret_why);

/*
 * The same for a container that joins l->sandbox: with a gofer of its own, and a process (*ret_pid) that stands
 * for its first one on the host. launch_join.c.
 */
int sandbox_join(const struct launch *l, pid_t *ret_pid, char **ret_why);

/* Where the roles find their descriptors after exec. */
#define ROLE_BOOT_FD 3       /* boot socket (sentry), serve socket (gofer) */
#define ROLE_LOG_FD 4
#define ROLE_MEM_FD 5        /* gofer: the tmpfs of memory files (runtime/memlimit.c takes it) */
#define ROLE_DISK_FD 6       /* gofer: the directory of files on disk, if there are any */
#define ROLE_FIRST_ATTACH 10 /* gofer: attach points from here on */

#endif
