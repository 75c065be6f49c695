// SPDX-License-Identifier: Apache-2.0
/* What the launcher's files (launch*.c) share. */
#ifndef RUNTIME_LAUNCH_PRIV_H
#define RUNTIME_LAUNCH_PRIV_H

#include <jansson.h>

#include "runtime/launch.h"

#define MAX_ATTACH 512

/*
 * The gofer's attach points: a letter and its descriptors for each. A directory (r read-only, w
 * writable) is one descriptor; a file (R, W) has others behind it, opened for reading and, with W,
 * for writing, since the gofer can't open an O_PATH descriptor again.
 */
struct attach_set {
	int fd[3 * MAX_ATTACH];
	unsigned nfds;
	char rights[MAX_ATTACH + 1];
	unsigned n;
	json_t *json; /* array of {mount, readonly, file} for the sentry */
	json_t *devices; /* array of {mount, device: [mode, major, minor]}: bound devices of the host */
};

/* launch.c */

void launch_attach_fini(struct attach_set *a);
/* Where the sandbox's processes log: a new descriptor, or -1 with errno. */
int launch_open_log(const struct launch *l);
/* Hooks, for which @pid is the container's process, then what the gofer serves, then the gofer at @sock. Its pid,
 * or -1 with *ret_why. */
pid_t launch_prepare_gofer(const struct launch *l, pid_t pid, int sock, int log, struct attach_set *a,
			   char **ret_why);
/* Hands everything over to the sentry at @sock and waits for its verdict. 0, or -1 with *ret_why. */
int launch_boot(const struct launch *l, int sock, const struct attach_set *a, int gofer, int listener,
		char **ret_why);

/* launch_mounts.c */

/*
 * Makes the mount points that are missing in a rootfs which is written through and read-only for the guest,
 * as runc does: neither the gofer nor the sentry may write there. Nothing else needs it. What fails here fails
 * in the sentry with a message.
 */
void launch_make_mountpoints(const struct launch *l, const char *rootfs);
/* Whether @path is a device; then it is added to @devices for the sentry, as mount @index. */
bool launch_add_device(json_t *devices, const char *path, unsigned index);

/* launch_netns.c */

/* The namespaces among CLONE_NEW* that the sentry gets anew, by the spec. */
unsigned long launch_namespaces(const struct spec *spec);
/*
 * Checks the spec's namespace paths and enters the network namespace among them, which the sentry then
 * inherits; launch_leave_netns() goes back. *ret_back: for that, or -1. 0, or -1 with *ret_why.
 */
int launch_enter_netns(const struct spec *spec, int *ret_back, char **ret_why);
void launch_leave_netns(int back);

#endif
