// SPDX-License-Identifier: Apache-2.0
/*
 * Namespaces of the host that the spec names. Only the network one has a meaning for a sandbox: it is where
 * the sentry is, what prestart hooks find at /proc/PID/ns/net, and where the guest's link device comes from. Those
 * of other types by path are checked and otherwise the guest's own: its processes are none of the host's.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "runtime/errno_text.h"
#include "runtime/launch_priv.h"

unsigned long launch_namespaces(const struct spec *spec)
{
	const struct spec_namespace *net = &spec->namespaces[NAMESPACE_NET];

	/* A plain user's sandbox has its own in any case: it owns no other. */
	return geteuid() != 0 || (net->listed && !net->path) ? CLONE_NEWNET : 0;
}

/* Opens the namespace of kind @k. Descriptor, or -1 with *ret_why. */
static int open_namespace(const char *path, enum spec_namespace_kind k, char **ret_why)
{
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		*ret_why = kasprintf("namespace path: lstat %s: %s", path, errno_text(errno));
	else if (ioctl(fd, NS_GET_NSTYPE) != spec_namespace_flag(k))
		*ret_why = kasprintf("namespace path: %s is no %s namespace", path,
				     spec_namespace_type(k));
	return *ret_why ? -1 : steal_fd(&fd);
}

int launch_enter_netns(const struct spec *spec, int *ret_back, char **ret_why)
{
	*ret_back = -1;
	for (unsigned k = 0; k < NAMESPACE_COUNT; k++) {
		const char *path = spec->namespaces[k].path;
		AUTO_CLOSE int fd = path ? open_namespace(path, k, ret_why) : -1;

		if (*ret_why)
			return -1;
		if (fd < 0 || k != NAMESPACE_NET || geteuid() != 0)
			continue;
		*ret_back = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
		if (*ret_back < 0 || setns(fd, CLONE_NEWNET)) {
			*ret_why = kasprintf("cannot join network namespace %s: %s", path,
					     errno_text(errno));
			return -1;
		}
	}
	return 0;
}

void launch_leave_netns(int back)
{
	if (back < 0)
		return;
	if (setns(back, CLONE_NEWNET))
		log_warn("cannot go back to the network namespace: %s", errno_text(errno));
	close(back);
}
