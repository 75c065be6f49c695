// SPDX-License-Identifier: Apache-2.0
/*
 * The gofer's start: from a copy of the launcher in fresh namespaces to a process that can reach the
 * attach points it was given, and nothing else. gofer/ has what it then does.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/mount.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "gofer/gofer.h"
#include "runtime/isolate.h"
#include "runtime/launch.h"
#include "runtime/roles.h"

/* Files are created for, and read as, any user of the container. */
#define GOFER_CAPS                                                                       \
	(1ULL << CAP_CHOWN | 1ULL << CAP_DAC_OVERRIDE | 1ULL << CAP_DAC_READ_SEARCH |        \
	 1ULL << CAP_FOWNER | 1ULL << CAP_FSETID)

/* The directory where memory files are born: a tmpfs of our own, attached nowhere. */
static int make_memdir(const char *size)
{
	int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
	int fd = -1;

	if (fs < 0)
		return -errno;
	/* Not noexec: guests map code from these files. The size is the sandbox's memory limit: the
	 * sentry's OOM killer acts when it is reached (sentry/kernel/oom.c). */
	if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "size", size, 0) == 0 &&
	    syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "nr_inodes", "0", 0) == 0 &&
	    syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "mode", "0700", 0) == 0 &&
	    syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
		fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
				  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (fd < 0)
		fd = -errno;
	close(fs);
	if (fd < 0 || fd == ROLE_MEM_FD)
		return fd;
	if (dup3(fd, ROLE_MEM_FD, O_CLOEXEC) < 0)
		return -errno;
	close(fd);
	return ROLE_MEM_FD;
}

/* The descriptors behind launch.c's letters. */
static struct gofer_attach *attach_table(const char *letters, unsigned n)
{
	struct gofer_attach *a = kcalloc(n, sizeof(*a));
	int fd = ROLE_FIRST_ATTACH;

	for (unsigned i = 0; i < n; i++) {
		bool writable = letters[i] == 'w' || letters[i] == 'W';

		a[i] = (struct gofer_attach){ .dirfd = fd++,
					      .readonly = !writable,
					      .xdev = true,
					      .file_ro = -1,
					      .file_rw = -1 };
		if (letters[i] == 'R' || letters[i] == 'W')
			a[i].file_ro = fd++;
		if (letters[i] == 'W')
			a[i].file_rw = fd++;
	}
	return a;
}

int role_gofer(const char *letters, bool debug, const char *memory)
{
	struct gofer_conf conf = { .sock = ROLE_BOOT_FD, .diskdirfd = -1 };
	int r;

	if (letters[0] == 'd') {
		conf.diskdirfd = ROLE_DISK_FD;
		letters++;
	}
	conf.nattach = (unsigned)strlen(letters);
	log_init(ROLE_LOG_FD, LOG_JSON, debug ? LOG_DEBUG : LOG_WARN, "gofer");
	(void)prctl(PR_SET_NAME, "holdfast-gofer"); /* for who looks at the host's processes */
	isolate_raise_nofile();
	umask(0);
	conf.attach = attach_table(letters, conf.nattach);
	conf.memdirfd = make_memdir(memory);
	if (conf.memdirfd < 0) {
		log_error("gofer: cannot make a tmpfs: %s", strerror(-conf.memdirfd));
		return 1;
	}
	r = isolate_empty_root();
	if (!r)
		r = isolate_drop(GOFER_CAPS);
	if (!r)
		r = gofer_confine();
	if (r) {
		log_error("gofer: cannot confine itself: %s", strerror(-r));
		return 1;
	}
	return gofer_serve(&conf) ? 1 : 0;
}
