// SPDX-License-Identifier: Apache-2.0
/*
 * A bound datagram socket that the kernel itself reads: what is sent to it is handed to a function at once, so it has
 * no queue and is never full. Not saved: who sends to it in a loaded sandbox finds nobody.
 */
#include <errno.h>
#include <sys/stat.h>

#include "sentry/socket/unix/unix.h"
#include "sentry/socket/unix/unix_priv.h"

int unix_bind_sink(struct netns *net, const struct path *file, unix_sink_fn fn, void *arg)
{
	struct inode *inode = dentry_inode(file->dentry);
	struct unix_sock *u;

	if (!inode || !S_ISSOCK(inode->mode))
		return -ENOTSOCK;
	u = unix_alloc(net, SOCK_DGRAM);
	u->sink = fn;
	u->sink_arg = arg;
	AUTO_LOCK(&unix_bind_mu);
	inode->sock = u; /* for good, as is the reference that keeps the file */
	u->path = *file;
	path_get(&u->path);
	return 0;
}
