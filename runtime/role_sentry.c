// SPDX-License-Identifier: Apache-2.0
/*
 * The sentry's start: from a copy of the launcher in fresh namespaces to the confined kernel of a
 * guest. The order matters: what needs a capability or a path comes before isolate_drop() and
 * sentry_confine(), every thread comes after.
 */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "platform/platform.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/control_ops.h"
#include "runtime/guest_snapshots.h"
#include "runtime/isolate.h"
#include "runtime/launch.h"
#include "runtime/oom_event.h"
#include "runtime/limits.h"
#include "runtime/roles.h"
#include "sentry/init.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/kernel/fp_state.h"
#include "sentry/kernel/kernel.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/safecopy.h"
#include "sentry/time/clock.h"
#include "syscalls/sys.h"

#define MALLOC_ARENAS 4

static struct gofer_client *gofer;

static int provide_mfile(int fds[2])
{
	return gofer_mkmem(gofer, fds);
}

static int provide_disk(int fds[2])
{
	return gofer_mkdisk(gofer, fds);
}

#define RESTORE_FILES_MAX 65536

/* What the launcher sends behind the boot message of a sandbox that isn't fresh (launch.c). */
static bool receive_restore(struct boot *b, json_t *msg)
{
	json_int_t n = json_integer_value(json_object_get(msg, "files"));
	struct restore_input *in = kzalloc(sizeof(*in));
	unsigned got = 0;

	if (n < 0 || n > RESTORE_FILES_MAX)
		return false;
	in->fork = json_is_true(json_object_get(msg, "fork"));
	in->nfds = (unsigned)n;
	in->fds = kcalloc(in->nfds + 1, sizeof(int));
	while (got < in->nfds + 1) {
		int fds[CONTROL_MAX_FDS];
		unsigned k = CONTROL_MAX_FDS;
		json_t *more = control_recv(ROLE_BOOT_FD, fds, &k);

		json_decref(more);
		if (!more || k == 0 || k > in->nfds + 1 - got)
			return false;
		for (unsigned i = 0; i < k; i++, got++) {
			if (got == 0)
				in->state = fds[i];
			else
				in->fds[got - 1] = fds[i];
		}
	}
	b->restore = in;
	return true;
}

static bool receive_boot(struct boot *b, char **why)
{
	json_t *json, *restore;
	int fds[CONTROL_MAX_FDS];
	unsigned n = CONTROL_MAX_FDS;
	int sigfd = b->sigfd;

	json = control_recv(ROLE_BOOT_FD, fds, &n);
	if (!json)
		*why = kstrdup("malformed boot message");
	if (!json || !boot_read(b, json, fds, n, why))
		return false;
	b->sigfd = sigfd;
	restore = json_object_get(b->json, "restore");
	if (restore && !receive_restore(b, restore))
		*why = kstrdup("malformed boot message");
	return !*why;
}

/* Everything that needs what the sentry then gives up. */
static int confine(struct plat_boot *pb)
{
	int r = isolate_empty_root();

	if (!r)
		r = isolate_copy_root();
	if (r < 0)
		return r;
	pb->root = r;
	r = platform_spawn_zygote(pb);
	if (!r && pb->root)
		r = isolate_enter(pb->root);
	if (!r)
		r = isolate_drop(0);
	if (!r)
		r = sentry_confine();
	return r;
}

static const char *choose_platform(const struct boot *b)
{
	const char *name = json_string_value(json_object_get(b->json, "platform"));

	return name ? name : "auto";
}

static int start(struct boot *b, struct container **ret, char **why)
{
	struct kernel_limits limits = { 0 };
	struct plat_boot pb = { 0 };
	int r;

	isolate_raise_nofile();
	limits_init(&limits, b);
	pb.max_tasks = limits.possible_tasks;
	if (!platform_known(choose_platform(b))) {
		*why = kasprintf("unknown platform '%s'", choose_platform(b));
		return -1;
	}
	r = confine(&pb);
	if (r) {
		*why = kasprintf("the sentry cannot confine itself: %s", strerror(-r));
		return -1;
	}
	safecopy_init();
	gofer = gofer_client_create(b->gofer);
	if (is_err(gofer)) {
		*why = kasprintf("no gofer: %s", strerror((int)-ptr_err(gofer)));
		return -1;
	}
	mfile_set_provider(provide_mfile);
	if (json_object_get(b->json, "layer_size"))
		mfile_set_disk_provider(provide_disk);
	kernel_init(&limits);
	if (json_object_get(b->spec->annotations, GUEST_SNAPSHOTS_ANNOTATION))
		control_snapshots_allow();
	kernel.strace = json_is_true(json_object_get(b->json, "strace"));
	sentry_init();
	syscalls_init();
	r = platform_start(choose_platform(b), &pb);
	if (r) {
		*why = kasprintf("platform %s: %s", choose_platform(b), strerror(-r));
		return -1;
	}
	if (b->restore)
		return container_restore(b, gofer, ret, why);
	return container_create(b, gofer, ret, why);
}

/*
 * Said once, or malloc asks /sys for the number of CPUs when the first threads contend, which a
 * confined process must not.
 */
static void limit_arenas(void)
{
	(void)mallopt(M_ARENA_MAX, MALLOC_ARENAS); /* fails for absurd numbers only */
}

/* What somebody sends to our pid is meant for the container: see control_host_signal(). Kicks of the platform and
 * children's ends are ours. */
static void block_signals(struct boot *b)
{
	sigset_t all;

	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGILL);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGABRT);
	sigdelset(&all, SIGSYS);
	sigprocmask(SIG_BLOCK, &all, NULL);
	sigdelset(&all, SIGURG);
	sigdelset(&all, SIGCHLD);
	b->sigfd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK); /* without one they are lost */
}

int role_sentry(bool debug)
{
	struct boot *b = kzalloc(sizeof(*b));
	struct container *c = NULL;
	AUTO_FREE char *why = NULL;
	json_t *reply;

	log_init(ROLE_LOG_FD, LOG_JSON, debug ? LOG_DEBUG : LOG_WARN, "sentry");
	(void)prctl(PR_SET_NAME, "holdfast-sentry"); /* for who looks at the host's processes */
	/* While the launcher makes the gofer: */
	clock_begin();
	fp_state_prepare();
	block_signals(b);
	limit_arenas();
	if (receive_boot(b, &why) && !debug && json_is_true(json_object_get(b->json, "strace")))
		log_init(ROLE_LOG_FD, LOG_JSON, LOG_INFO, "sentry");
	if (why || start(b, &c, &why)) {
		log_error("%s", why);
		reply = json_pack("{s:s}", "error", why);
		(void)control_send(ROLE_BOOT_FD, reply, NULL, 0); /* the exit status tells, too */
		return 1;
	}
	reply = json_pack("{s:b}", "ok", 1);
	/* A launcher that died before it knew of us leaves nobody who would start the container. */
	if (control_send(ROLE_BOOT_FD, reply, NULL, 0))
		return 1;
	json_decref(reply);
	close(ROLE_BOOT_FD);
	control_serve(c);
	oom_event_raise(c);
	/* Callers of an OCI runtime wait for this process and take its status for the container's.
	 * _exit: threads of the guest's last tasks may still be about. */
	_exit(container_exit_code(c->exit_status));
}
