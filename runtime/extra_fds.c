// SPDX-License-Identifier: Apache-2.0
/* See extra_fds.h. As runc: passed sockets first, then --preserve-fds. */
#include "runtime/extra_fds.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/size.h"
#include "runtime/errno_text.h"

#define FIRST_FD 3

/* How many sockets we were started with, for us. */
static unsigned listen_fds(void)
{
	const char *n = getenv("LISTEN_FDS"), *pid = getenv("LISTEN_PID");
	unsigned long v = n ? strtoul(n, NULL, 10) : 0;

	if (!n || !pid || strtoul(pid, NULL, 10) != (unsigned long)getpid())
		return 0;
	return v > EXTRA_FDS_MAX ? EXTRA_FDS_MAX + 1 : (unsigned)v;
}

static void tell(json_t *process, unsigned n)
{
	json_t *env = json_object_get(process, "env");
	AUTO_FREE char *fds = kasprintf("LISTEN_FDS=%u", n);

	if (!json_is_array(env)) {
		env = json_array();
		json_object_set_new(process, "env", env);
	}
	json_array_append_new(env, json_string(fds));
	json_array_append_new(env, json_string("LISTEN_PID=1"));
}

unsigned extra_fds_given(unsigned preserve)
{
	return MIN(preserve, (unsigned)EXTRA_FDS_MAX) + listen_fds();
}

void extra_fds_close(struct extra_fds *e)
{
	while (e->n)
		close(e->fd[--e->n]);
}

int extra_fds_collect(json_t *process, bool listen, unsigned preserve, struct extra_fds *ret,
		      char **ret_why)
{
	unsigned sockets = listen ? listen_fds() : 0;

	ret->n = 0;
	if (sockets + preserve > EXTRA_FDS_MAX || preserve > EXTRA_FDS_MAX) {
		*ret_why = kasprintf("more than %d descriptors to pass on", EXTRA_FDS_MAX);
		return -1;
	}
	for (unsigned i = 0; i < sockets + preserve; i++) {
		int fd = FIRST_FD + (int)i;

		if (fcntl(fd, F_GETFD) < 0) {
			*ret_why = kasprintf("unable to stat preserved-fd %d (of %u): %s",
					     fd - FIRST_FD - (int)sockets, preserve, errno_text(errno));
			return -1;
		}
		ret->fd[ret->n++] = fd;
	}
	if (sockets)
		tell(process, sockets);
	return 0;
}
