// SPDX-License-Identifier: Apache-2.0
/*
 * The launcher's part of the platform: starts the zygote (platform/stub/zygote.c) from the image
 * embedded in this binary, while the calling process, the sentry to be, is still unconfined.
 *
 * Why a user namespace: a stub must not be dumpable (nobody of the same uid on the host may look
 * into it), but then only somebody with CAP_SYS_PTRACE over the namespace that owned its mm at exec may
 * trace it. The sentry has no capability in its own namespace, but it has all of them in a child
 * namespace that its effective uid made: man 7 user_namespaces, "a process whose effective user ID
 * matches the owner". So the child unshares one and then executes. The sentry must therefore keep
 * its user namespace and its effective uid from here on.
 *
 * Where nested namespaces can't be had, stubs stay dumpable, with a warning.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/log.h"
#include "platform/platform.h"
#include "platform/stub/layout.h"

#ifndef MFD_EXEC
# define MFD_EXEC 0x0010U
#endif

/* Descriptors that a stub may have open. Far more than it needs: the host counts descriptors in flight by
 * uid against the sender's limit (ETOOMANYREFS), and hundreds of stubs may have mail unread. */
#define STUB_NOFILE   16384
/* Host threads: each process has one more than its guest (the mapper), and there are spare ones. A guest
 * that has taken its stub over may make them by itself. */
#define STUB_NPROC(tasks) (2 * (rlim_t)(tasks) + 1024)
#define ZYG_CHILD_ERR 120

extern const char stub_image[], stub_image_end[];

/* The image as an executable file that has no name. */
static int image_fd(void)
{
	size_t len = (size_t)(stub_image_end - stub_image);
	AUTO_CLOSE int fd = -1;

	fd = (int)syscall(SYS_memfd_create, "stub",
			  MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 all of them are executable */
		fd = (int)syscall(SYS_memfd_create, "stub",
				  MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (write(fd, stub_image, len) != (ssize_t)len)
		return -EIO;
	if (fcntl(fd, F_ADD_SEALS,
		  F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
		return -errno;
	return steal_fd(&fd);
}

/* Where the sentry and the stubs of the trap platform hand over. Sparse: takes memory when touched. */
static int context_fd(void)
{
	AUTO_CLOSE int fd = (int)syscall(SYS_memfd_create, "contexts",
					 MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)STUB_CTX_AREA * STUB_CTX_AREAS) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW))
		return -errno;
	return steal_fd(&fd);
}

static void set_limit(__rlimit_resource_t what, rlim_t soft)
{
	struct rlimit rl;

	if (getrlimit(what, &rl))
		return;
	rl.rlim_cur = soft < rl.rlim_max ? soft : rl.rlim_max;
	if (what == RLIMIT_CORE || what == RLIMIT_NOFILE || what == RLIMIT_NPROC)
		rl.rlim_max = rl.rlim_cur;
	(void)setrlimit(what, &rl); /* nothing depends on it but hygiene */
}

/* Nothing of the launcher's signal state may reach stubs: a blocked or ignored signal would. */
static void reset_signals(void)
{
	sigset_t none;

	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* A new user namespace starts with a full set. Stubs can't gain anything by it (no_new_privs), but it
 * costs nothing to have none. */
static void drop_bounding(void)
{
	for (int c = 0; c < 64; c++)
		if (prctl(PR_CAPBSET_READ, c, 0, 0, 0) == 1)
			(void)prctl(PR_CAPBSET_DROP, c, 0, 0, 0); /* as far as we may */
}

/* In the child, between fork and exec: async-signal-safe calls, and our log. */
static __noreturn void become_zygote(int sock, int image, const struct plat_boot *boot)
{
	char plain[] = "stub", dumpable[] = "dumpable";
	char *argv[] = { plain, NULL };
	char *envp[] = { NULL };
	int sockcopy, imagecopy;

	reset_signals();
	if (unshare(CLONE_NEWUSER)) {
		log_warn("no user namespace for stubs (%s): they stay dumpable",
			 strerror(errno));
		argv[0] = dumpable;
	}
	/* Not before: the kernel refuses user namespaces to whoever has another root than its mount namespace. */
	if (boot->root && (fchdir(boot->root) || chroot(".")))
		_exit(ZYG_CHILD_ERR);
	drop_bounding();
	set_limit(RLIMIT_CORE, 0);
	set_limit(RLIMIT_NOFILE, STUB_NOFILE);
	if (boot->max_tasks)
		set_limit(RLIMIT_NPROC, STUB_NPROC(boot->max_tasks));
	set_limit(RLIMIT_AS, RLIM_INFINITY);
	set_limit(RLIMIT_DATA, RLIM_INFINITY);
	/* Keeps exec's stack and vDSO off the fixed address of the image; guests get their
	 * randomness from the sentry. */
	if (personality(ADDR_NO_RANDOMIZE) < 0)
		_exit(ZYG_CHILD_ERR);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		_exit(ZYG_CHILD_ERR);
	/* Socket to 0, image to 1, everything else closed. Copies first: they may sit on 0 and 1. */
	sockcopy = fcntl(sock, F_DUPFD, 3);
	imagecopy = fcntl(image, F_DUPFD, 3);
	if (sockcopy < 0 || imagecopy < 0 || dup2(sockcopy, 0) < 0 ||
	    dup3(imagecopy, 1, O_CLOEXEC) < 0)
		_exit(ZYG_CHILD_ERR);
	if (syscall(SYS_close_range, 2U, ~0U, 0U)) {
		for (int fd = 2; fd < 1024; fd++)
			close(fd);
	}
	syscall(SYS_execveat, 1, "", argv, envp, AT_EMPTY_PATH);
	_exit(ZYG_CHILD_ERR);
}

/*
 * Context: the process that becomes the sentry, single-threaded, with its final uid and user
 * namespace. 0 or -errno. On success the descriptors in @boot are the caller's.
 */
int platform_spawn_zygote(struct plat_boot *boot)
{
	AUTO_CLOSE int image = image_fd();
	AUTO_CLOSE int ctx = context_fd();
	AUTO_CLOSE int ours = -1, theirs = -1;
	int pair[2];
	pid_t pid;

	if (image < 0)
		return image;
	if (ctx < 0)
		return ctx;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	ours = pair[0];
	theirs = pair[1];
	/* Not fork(): a sanitizer's run time starts threads in the child, and unshare() wants none. */
	pid = _Fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		become_zygote(theirs, image, boot);
	boot->zygote_pid = pid;
	boot->zygote_fd = steal_fd(&ours);
	boot->ctx_fd = steal_fd(&ctx);
	return 0;
}
