// SPDX-License-Identifier: Apache-2.0
/* Descriptors that a container's process gets beyond the standard ones: --preserve-fds and LISTEN_FDS. */
#ifndef RUNTIME_EXTRA_FDS_H
#define RUNTIME_EXTRA_FDS_H

#include <jansson.h>
#include <stdbool.h>

#define EXTRA_FDS_MAX 48

struct extra_fds {
	int fd[EXTRA_FDS_MAX]; /* ours; they become 3, 4 ... */
	unsigned n;
};

/*
 * With @listen the descriptors that somebody handed us for sockets of the container (man 3
 * sd_listen_fds), of which @process's environment is told; then @preserve more. 0, or -1 with
 * *ret_why (heap).
 */
int extra_fds_collect(json_t *process, bool listen, unsigned preserve, struct extra_fds *ret,
		      char **ret_why);

/* How many of our descriptors, from 3 on, are for the container, with @preserve asked for. */
unsigned extra_fds_given(unsigned preserve);
/* They are the sentry's: closes ours. */
void extra_fds_close(struct extra_fds *e);

#endif
