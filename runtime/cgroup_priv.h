// SPDX-License-Identifier: Apache-2.0
/* Between the parts of runtime/cgroup*.c. */
#ifndef RUNTIME_CGROUP_PRIV_H
#define RUNTIME_CGROUP_PRIV_H

#include "runtime/cgroup.h"

struct cgroup {
	bool v2;
	json_t *dirs; /* controller ("" for the v2 hierarchy) to directory */
	json_t *own;  /* directories that this container made: array */
	char *unit;   /* systemd's name for it, or NULL */
	pid_t holder; /* keeps systemd's scope until the sandbox is there; 0: none */
};

/* cgroup_find.c: is /sys/fs/cgroup itself a cgroup2 mount? */
bool cgroup_host_is_v2(void);
/* The directories for a path of the spec, relative to the caller's own groups unless it is absolute. New
 * reference. */
json_t *cgroup_find(const char *path, bool v2);

/* Files of a group. 0 or -errno; -ENOENT, too, when the controller isn't there. */
int cgroup_write(const char *dir, const char *file, const char *text);
/* The same, telling failures as runc does. 0 or -1 with *ret_why. */
int cgroup_put(const char *dir, const char *file, const char *text, char **ret_why);
/* A whole (small) file, NUL-terminated heap, or NULL. */
char *cgroup_read(const char *dir, const char *file);
/* A number; UINT64_MAX for "max", @dflt when there is none. */
uint64_t cgroup_read_u64(const char *dir, const char *file, uint64_t dflt);
/* The value of "KEY VALUE" in a flat-keyed file; 0 when there is none. */
uint64_t cgroup_read_key(const char *dir, const char *file, const char *key);

/* cgroup_v1.c, cgroup_v2.c: linux.resources into files. 0 or -1 with *ret_why. */
int cgroup_v1_set(const struct cgroup *g, const json_t *resources, char **ret_why);
int cgroup_v2_set(const struct cgroup *g, const json_t *resources, char **ret_why);

/* A number of the spec; false when there is none. 2^64-1, which is a real for the parser, is -1: no limit. */
bool cgroup_num(const json_t *o, const char *key, int64_t *ret);
/* cgroup_limits.c: what the host allows where the guest may have @limit (-1: no limit). */
int64_t cgroup_host_memory(int64_t limit);
int64_t cgroup_host_pids(int64_t limit);

/* cgroup_systemd.c: asks systemd for a scope, in g->unit, g->holder and g->dirs. @path: "slice:prefix:name" or
 * NULL. 0 or -1 with *ret_why. */
int cgroup_systemd_start(struct cgroup *g, const char *path, const char *id, const json_t *resources,
			 char **ret_why);
void cgroup_systemd_stop(const char *unit);

#endif
