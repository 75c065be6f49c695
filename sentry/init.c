// SPDX-License-Identifier: Apache-2.0
/* See init.h. Clocks first (everything stamps times), then the VFS, then what mounts on it. */
#include "sentry/init.h"

#include "sentry/fs/cgroup/cgroupfs.h"
#include "sentry/fs/dev/chrdev.h"
#include "sentry/fs/devpts/devpts.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/fs/hostfd/hostfd.h"
#include "sentry/fs/mqueue/mqueue.h"
#include "sentry/fs/proc/proc.h"
#include "sentry/fs/sys/sysfs.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/kernel/futex.h"
#include "sentry/loader/loader.h"
#include "sentry/socket/socket.h"
#include "sentry/time/clock.h"
#include "sentry/time/ktimer.h"
#include "sentry/vfs/vfs.h"

void sentry_init(void)
{
	clock_init();
	ktimer_init_system();
	futex_init();
	vdso_init();
	vfs_init();
	tmpfs_init();
	tty_init();
	dev_init();
	fs_dev_init();
	devpts_init();
	proc_init();
	sysfs_init();
	cgroupfs_init();
	mqueue_init();
	hostfd_init();
	sockets_init();
}
