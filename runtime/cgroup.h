// SPDX-License-Identifier: Apache-2.0
/*
 * The host's control groups of a container. Every process of a sandbox (sentry, stubs, gofer, waiters) is a
 * member; what linux.resources asks for is set on them, with room for the sandbox's own threads and heap
 * beside what the guest may have (docs/oci.md tells the numbers), since the sentry enforces the guest's
 * own limits itself.
 *
 * Both versions and the hybrid of them are served; where something can't be made (plain users, read-only
 * mounts) it is left out after one warning, because the sentry's limits hold without it.
 *
 * cgroup.json in the state directory names the directories before the first one is made, so that `delete`
 * removes them however far a creation came.
 */
#ifndef RUNTIME_CGROUP_H
#define RUNTIME_CGROUP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/statedir.h"

struct cgroup;

/* Makes the groups that @config (config.json; linux.cgroupsPath, linux.resources) asks for and sets the limits;
 * @systemd: below a scope of systemd's, which is asked for it. NULL with *ret_why (heap); what was made is
 * in cgroup.json then, for cgroup_remove(). */
struct cgroup *cgroup_create(struct statedir *s, const json_t *config, bool systemd, char **ret_why);
/* Those of an existing container; never NULL, perhaps without any group. */
struct cgroup *cgroup_open(struct statedir *s);
void cgroup_close(struct cgroup *g);
DEFINE_AUTO(struct cgroup, cgroup_close)

/*
 * fork(2), with @flags as clone(2) has them; the child is there from its first instruction. @g: or NULL. The
 * caller has no other thread. Returns as fork(2), or -1 with *ret_why.
 */
pid_t cgroup_fork(const struct cgroup *g, unsigned long flags, char **ret_why);
/* The caller, which has no other thread, joins container @s's groups; where it can't it stays outside. */
void cgroup_join(struct statedir *s);
/* Sets what @resources (linux.resources) says and leaves the rest. 0 or -1 with *ret_why. */
int cgroup_set(const struct cgroup *g, const json_t *resources, char **ret_why);
/* Ends what is left in the container's own groups, and removes them. 0 or -errno. */
int cgroup_remove(struct statedir *s);

/* Is it frozen from outside? */
bool cgroup_frozen(const struct cgroup *g);
/* Ends that. */
void cgroup_thaw(const struct cgroup *g);
/* The members, of all groups below, too: an array of integers. */
json_t *cgroup_pids(const struct cgroup *g);
/* "data" of runc's `events --stats`, as far as the host counts it. */
json_t *cgroup_stats(const struct cgroup *g);

/* The directory of a v1 controller or, with v2, of all; NULL if there is none. */
const char *cgroup_dir(const struct cgroup *g, const char *controller);
bool cgroup_is_v2(const struct cgroup *g);

#endif
