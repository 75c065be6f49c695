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
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "platform/platform.h"
#include "runtime/container.h"
#include "runtime/control.h"
#include "runtime/isolate.h"
#include "runtime/launch.h"
#include "runtime/roles.h"
#include "sentry/init.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/kernel/kernel.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/safecopy.h"
#include "syscalls/sys.h"

#define MAX_TASKS_DEFAULT 8192
#define FDS_PER_PROCESS 3 /* of ours: a stub's socket, its memory file twice */
#define FDS_RESERVED 2048 /* for files, sockets, control connections */
#define MAX_FILES_DEFAULT 400000 /* of a sandbox with plenty of memory */
#define MAX_FILES_MIN 32768
#define FILE_SHARE 16384 /* bytes of the memory limit for each open file: they cost us 1 KiB */
#define MALLOC_ARENAS 4

static struct gofer_client *gofer;

static int provide_mfile(int fds[2])
{
	return gofer_mkmem(gofer, fds);
}

static bool receive_boot(struct boot *b, char **why)
{
	int fds[CONTROL_MAX_FDS];
	unsigned n = CONTROL_MAX_FDS;
	AUTO_FREE char *text = NULL;
	bool console;

	b->json = control_recv(ROLE_BOOT_FD, fds, &n);
	console = json_is_true(json_object_get(b->json, "console"));
	if (!b->json || n != (console ? 4u : 6u)) {
		*why = kstrdup("malformed boot message");
		return false;
	}
	b->id = json_string_value(json_object_get(b->json, "id"));
	text = json_dumps(json_object_get(b->json, "config"), JSON_COMPACT);
	b->spec = text ? spec_parse(text, strlen(text), "config.json", why) : NULL;
	b->gofer = fds[0];
	b->listener = fds[1];
	b->exitfd = fds[2];
	b->console = console ? fds[3] : -1;
	for (int i = 0; i < 3; i++)
		b->stdio[i] = console ? -1 : fds[3 + i];
	b->rows = (unsigned)json_integer_value(json_object_get(b->json, "rows"));
	b->cols = (unsigned)json_integer_value(json_object_get(b->json, "cols"));
	if (!b->id && !*why)
		*why = kstrdup("malformed boot message");
	return !*why;
}

/* Processes cost us descriptors: fork has to fail before we run out of them. */
static unsigned max_tasks(void)
{
	struct rlimit l = { 0 };
	rlim_t n;

	if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur == RLIM_INFINITY)
		return MAX_TASKS_DEFAULT;
	n = (l.rlim_cur - MIN(l.rlim_cur / 4, (rlim_t)FDS_RESERVED)) / FDS_PER_PROCESS;
	return (unsigned)MIN(n, (rlim_t)MAX_TASKS_DEFAULT);
}

static void set_limits(const struct boot *b, struct kernel_limits *l)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct sysinfo si;

	l->ncpus = cpus > 0 ? (unsigned)cpus : 1;
	if (b->spec->cpu_quota) {
		uint64_t n = (b->spec->cpu_quota + b->spec->cpu_period - 1) / b->spec->cpu_period;

		l->ncpus = (unsigned)MIN((uint64_t)l->ncpus, MAX(n, (uint64_t)1));
	}
	l->max_tasks = max_tasks();
	if (b->spec->pids_limit && b->spec->pids_limit < l->max_tasks)
		l->max_tasks = (unsigned)b->spec->pids_limit;
	l->max_memory = (uint64_t)json_integer_value(json_object_get(b->json, "memory"));
	if (sysinfo(&si) == 0)
		l->host_memory = (uint64_t)si.totalram * si.mem_unit;
	l->max_files = (unsigned)MIN(MAX(l->max_memory / FILE_SHARE, (uint64_t)MAX_FILES_MIN),
				     (uint64_t)MAX_FILES_DEFAULT);
}

/* Everything that needs what the sentry then gives up. */
static int confine(struct plat_boot *pb)
{
	int r = isolate_empty_root();

	if (!r)
		r = platform_spawn_zygote(pb);
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
	set_limits(b, &limits);
	plat = platform_find(choose_platform(b));
	if (!plat) {
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
	kernel_init(&limits);
	kernel.strace = json_is_true(json_object_get(b->json, "strace"));
	sentry_init();
	syscalls_init();
	r = plat->init(&pb);
	if (r) {
		*why = kasprintf("platform %s: %s", plat->name, strerror(-r));
		return -1;
	}
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

static void block_signals(void)
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
}

int role_sentry(bool debug)
{
	struct boot *b = kzalloc(sizeof(*b));
	struct container *c = NULL;
	AUTO_FREE char *why = NULL;
	json_t *reply;

	log_init(ROLE_LOG_FD, LOG_JSON, debug ? LOG_DEBUG : LOG_WARN, "sentry");
	block_signals();
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
	/* Callers of an OCI runtime wait for this process and take its status for the container's.
	 * _exit: threads of the guest's last tasks may still be about. */
	_exit(container_exit_code(c->exit_status));
}
