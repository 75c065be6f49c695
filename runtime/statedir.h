// SPDX-License-Identifier: Apache-2.0
/*
 * The state directory of a container: ROOT/ID, mode 0700, holding
 *
 *   state.json     what `state` and `list` show of a container whatever happened to its processes;
 *                  replaced atomically
 *   control.sock   the sentry's control socket; refusing connections means that it is gone
 *   images/, lineage.json   see image_store.h
 *   exit.json      written by the sentry through a descriptor it was given: exit status and time
 *
 * A directory without state.json is a creation that never finished; delete removes it.
 */
#ifndef RUNTIME_STATEDIR_H
#define RUNTIME_STATEDIR_H

#include <jansson.h>
#include <stdbool.h>

#include "base/cleanup.h"

struct statedir {
	char *root, *id, *path;
	int fd; /* of the directory */
};

/* Default for --root: /run/holdfast for root, else $XDG_RUNTIME_DIR/holdfast. */
const char *statedir_default_root(void);

/* NULL when @id is acceptable, else what is wrong with it (static text). */
const char *statedir_check_id(const char *id);

/* A new directory; NULL with *ret_why (heap) set, in runc's words where callers parse them. */
struct statedir *statedir_create(const char *root, const char *id, char **ret_why);
/* An existing one. */
struct statedir *statedir_open(const char *root, const char *id, char **ret_why);
void statedir_close(struct statedir *s);
DEFINE_AUTO(struct statedir, statedir_close)

/* Removes the directory and everything holdfast puts there. 0 or -errno. */
int statedir_remove(struct statedir *s);

int statedir_save(struct statedir *s, const char *file, json_t *json); /* 0 or -errno; atomic */
json_t *statedir_load(struct statedir *s, const char *file); /* new reference or NULL */

/* Calls @fn for each container's id below @root, in order of name. A missing root is an empty one. */
int statedir_each(const char *root, void (*fn)(const char *root, const char *id, void *arg),
		  void *arg);

#endif
