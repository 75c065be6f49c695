// SPDX-License-Identifier: Apache-2.0
/*
 * Running the spec's hooks (runtime-spec config.md, "POSIX-platform Hooks"): in order, with the container's
 * state on standard input. prestart, createRuntime, createContainer, poststart and poststop are
 * processes of the host; startContainer hooks run inside the guest (container_hooks.c).
 */
#ifndef RUNTIME_HOOKS_H
#define RUNTIME_HOOKS_H

#include <jansson.h>
#include <sys/types.h>

#include "runtime/spec.h"
#include "runtime/statedir.h"

struct launch;

/* What `create` does for hooks while a container is made. */
struct launch_hooks {
	int mntns, cwd; /* to go back to, or -1 */
};

/*
 * prestart, createRuntime and createContainer hooks, once the sentry (@pid) has its namespaces. With
 * createContainer hooks the caller is in a mount namespace of its own until launch_hooks_end(), so that
 * what they mount below the rootfs is seen by the attach points and by nobody else. 0, or -1 with
 * *ret_why; launch_hooks_end() either way.
 */
int launch_hooks_begin(const struct launch *l, pid_t pid, struct launch_hooks *h, char **ret_why);
void launch_hooks_end(struct launch_hooks *h);

/* Hooks of @kind that a state.json (or NULL) has. 0, or -1 with *ret_why; of poststop hooks all run, and
 * failures are logged only. */
int hooks_run_saved(json_t *saved, enum spec_hook_kind kind, const char *status, char **ret_why);
/* The container's first instruction, after its startContainer hooks. */
int hooks_start(struct statedir *s, char **ret_why);
/* As hooks_run_saved() for hooks and state.json that are at hand. */
int hooks_run(const struct spec_hooks *hooks, enum spec_hook_kind kind, json_t *state, pid_t join,
	      char **ret_why);
/* The state that hooks get on standard input. New reference. */
json_t *hooks_state(json_t *saved, const char *status);
/* An unnamed file with @text, at its start. -errno. */
int hooks_text_file(const char *text);
/* What a hook wrote into such a file (heap). */
char *hooks_read_file(int fd);

#endif
