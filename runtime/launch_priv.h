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
	json_t *json; /* array of {mount, readonly, file, volume, index} for the sentry; of all its gofers */
	struct attach_set *v; /* where volumes go that the pod's containers share, or NULL: here */
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
/* A gofer for @a alone. As above. */
pid_t launch_spawn_gofer(const struct launch *l, int sock, int log, const struct attach_set *a, char **ret_why);
/* The descriptors by which the sentry reaches the world. */
struct boot_fds {
	int gofer, listener;
	int volumes; /* the gofer of a->volumes, or -1 */
};
/* Hands everything over to the sentry at @sock and waits for its verdict. 0, or -1 with *ret_why. */
int launch_boot(const struct launch *l, int sock, const struct attach_set *a, const struct boot_fds *theirs,
		char **ret_why);

/* @path of the spec, which starts at the bundle unless it is absolute (heap). */
char *launch_bundle_path(const struct launch *l, const char *path);
bool launch_has_option(const struct spec_mount *m, const char *opt);

/* launch_view.c */

/* Puts what the container's files look like from the host into the mount namespace of @sentry, which has emptied
 * its root. Without one everything but entering that works. */
void launch_show_view(const struct launch *l, pid_t sentry);

/* launch_mounts.c */

/* Attaches the detached mount @tree at @dest within @root, a mount point that is missing is made. 0 or -errno. */
int launch_attach_below(int root, const char *dest, int tree);

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
