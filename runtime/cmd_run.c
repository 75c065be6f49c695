// SPDX-License-Identifier: Apache-2.0
/* run, create, start: containers from OCI bundles. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/cli.h"
#include "runtime/cmd_run.h"
#include "runtime/control.h"
#include "runtime/guest_snapshots.h"
#include "runtime/hooks.h"
#include "runtime/image_store.h"
#include "runtime/isolate.h"
#include "runtime/keeper.h"
#include "runtime/notify.h"
#include "runtime/pod.h"
#include "runtime/console_socket.h"
#include "runtime/errno_text.h"
#include "runtime/seccomp_profile.h"

#define SENTRY_END_MS 5000
#define NO_STATUS 255 /* cli_exit_status() of a sandbox that left none */

static struct {
	const char *bundle, *pid_file, *pidfd_socket, *console_socket, *overlay, *overlay_dir;
	bool detach, no_pivot, no_new_keyring, keep, no_subreaper;
	unsigned preserve_fds, idle_suspend, checkpoint_every, guest_snapshots;
} o;

static const struct opt create_opts[] = {
	{ "bundle", 'b', OPT_STR, &o.bundle, "DIR", "bundle with config.json (default: .)" },
	{ "pid-file", 0, OPT_STR, &o.pid_file, "FILE", "write the container's host pid there" },
	{ "pidfd-socket", 0, OPT_STR, &o.pidfd_socket, "PATH", "unix socket to send a pidfd of it to" },
	{ "console-socket", 0, OPT_STR, &o.console_socket, "PATH",
	  "unix socket to send the terminal's master to" },
	{ "overlay", 0, OPT_STR, &o.overlay, "MODE",
	  "keep writes in the sandbox: memory, disk, disk:SIZE; none: write through" },
	{ "overlay-dir", 0, OPT_STR, &o.overlay_dir, "DIR", "where a layer on disk lies" },
	{ "preserve-fds", 0, OPT_UINT, &o.preserve_fds, "N", "pass N descriptors on, from 3" },
	{ "idle-suspend", 0, OPT_UINT, &o.idle_suspend, "SECONDS", "suspend it when it is idle for so long" },
	{ "checkpoint-every", 0, OPT_UINT, &o.checkpoint_every, "SECONDS",
	  "keep an image that is no older, to `wake` it from after a crash" },
	{ "guest-snapshots", 0, OPT_UINT, &o.guest_snapshots, "N",
	  "let root inside ask for snapshots, of which N are kept" },
	{ "no-pivot", 0, OPT_FLAG, &o.no_pivot, NULL, "accepted for compatibility" },
	{ "no-new-keyring", 0, OPT_FLAG, &o.no_new_keyring, NULL, "accepted for compatibility" },
	{ 0 },
};

static const struct opt run_opts[] = {
	{ "bundle", 'b', OPT_STR, &o.bundle, "DIR", "bundle with config.json (default: .)" },
	{ "detach", 'd', OPT_FLAG, &o.detach, NULL, "return once the container runs" },
	{ "pid-file", 0, OPT_STR, &o.pid_file, "FILE", "write the container's host pid there" },
	{ "pidfd-socket", 0, OPT_STR, &o.pidfd_socket, "PATH", "unix socket to send a pidfd of it to" },
	{ "console-socket", 0, OPT_STR, &o.console_socket, "PATH",
	  "unix socket to send the terminal's master to" },
	{ "overlay", 0, OPT_STR, &o.overlay, "MODE",
	  "keep writes in the sandbox: memory, disk, disk:SIZE; none: write through" },
	{ "overlay-dir", 0, OPT_STR, &o.overlay_dir, "DIR", "where a layer on disk lies" },
	{ "keep", 0, OPT_FLAG, &o.keep, NULL, "don't delete the container after it exited" },
	{ "preserve-fds", 0, OPT_UINT, &o.preserve_fds, "N", "pass N descriptors on, from 3" },
	{ "idle-suspend", 0, OPT_UINT, &o.idle_suspend, "SECONDS", "suspend it when it is idle for so long" },
	{ "checkpoint-every", 0, OPT_UINT, &o.checkpoint_every, "SECONDS",
	  "keep an image that is no older, to `wake` it from after a crash" },
	{ "guest-snapshots", 0, OPT_UINT, &o.guest_snapshots, "N",
	  "let root inside ask for snapshots, of which N are kept" },
	{ "no-pivot", 0, OPT_FLAG, &o.no_pivot, NULL, "accepted for compatibility" },
	{ "no-new-keyring", 0, OPT_FLAG, &o.no_new_keyring, NULL, "accepted for compatibility" },
	{ "no-subreaper", 0, OPT_FLAG, &o.no_subreaper, NULL, "accepted for compatibility" },
	{ 0 },
};

int write_pid_file(const char *path, pid_t pid)
{
	AUTO_FREE char *tmp = kasprintf("%s.tmp", path);
	FILE *f = fopen(tmp, "we");
	bool ok = f && fprintf(f, "%d", pid) > 0;

	if (f && fclose(f))
		ok = false;
	if (!ok || rename(tmp, path))
		return cli_fail("cannot write %s: %s", path, errno_text(errno));
	return 0;
}

/* Our user's name (heap). Not getpwuid(3): a static program must not load NSS modules. */
static char *owner_name(void)
{
	FILE *f = fopen("/etc/passwd", "re");
	char *name = NULL;
	struct passwd *p;

	while (f && !name && (p = fgetpwent(f)))
		if (p->pw_uid == geteuid())
			name = kstrdup(p->pw_name);
	if (f)
		fclose(f);
	return name ? name : kasprintf("%u", geteuid());
}

/* With @creating until the sentry answers requests. */
static int save_state_as(const struct launch *l, pid_t pid, bool creating, char **ret_why)
{
	AUTO_FREE char *rootfs = l->spec->root_path[0] == '/' ?
					 kstrdup(l->spec->root_path) :
					 kasprintf("%s/%s", l->bundle, l->spec->root_path);
	AUTO_FREE char *owner = owner_name();

	json_t *old = statedir_load(l->dir, "state.json");
	const char *first = json_string_value(json_object_get(old, "created")); /* of one that is woken */
	struct timespec now;
	char created[32];
	struct tm tm;
	json_t *j;
	int r;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", &tm);
	j = json_pack("{s:s, s:s, s:i, s:i, s:I, s:s, s:s, s:s, s:O*, s:s, s:O*, s:b, s:s*}", "ociVersion",
		      l->spec->oci_version, "id", l->dir->id, "pid", pid, "sentry_pid", pid,
		      "sentry_start", (json_int_t)cli_start_time(pid), "bundle", l->bundle, "rootfs",
		      rootfs, "created", first ?: created, "annotations", l->spec->annotations, "owner",
		      owner, "hooks", json_object_get(l->spec->json, "hooks"), "creating", creating, "sandbox",
		      l->sandbox ? l->sandbox->id : NULL);
	r = statedir_save(l->dir, "state.json", j);
	json_decref(j);
	json_decref(old);
	if (r)
		*ret_why = kasprintf("cannot write %s/state.json: %s", l->dir->path, errno_text(-r));
	return r ? -1 : 0;
}

static int save_state(const struct launch *l, pid_t pid, char **ret_why)
{
	return save_state_as(l, pid, true, ret_why);
}

/* On the connection on which we wait for its end. */
static void send_resize(void *arg, unsigned rows, unsigned cols)
{
	json_t *req = json_pack("{s:i, s:i}", "rows", (int)rows, "cols", (int)cols);

	(void)control_send(*(int *)arg, req, NULL, 0); /* a size that got lost is no failure */
	json_decref(req);
}

/* Leaves a process behind that carries bytes between the terminal of --console-socket and the guest's. */
static void leave_relay(struct statedir *s, struct boot_request *b)
{
	json_t *req;
	int sock;

	fflush(NULL);
	if (fork() != 0)
		return; /* when there is no process for it, the caller finds a dead terminal */
	close(b->console_fd);
	cgroup_join(s);
	attach_adopt(b->relay);
	sock = control_connect(s->fd);
	req = json_pack("{s:s, s:b}", "op", "wait", "listens", 1);
	if (sock >= 0 && !control_send(sock, req, NULL, 0) && !waiter_confine())
		json_decref(attach_run(b->relay, sock, send_resize, &sock));
	_exit(0);
}

/* The container whose pid namespace it joins; false with *ret_why when the path is of none of the pod's. */
static bool find_pidns(struct launch *l, char **ret_id, char **ret_why)
{
	const char *path = l->spec->namespaces[NAMESPACE_PID].path;
	int pid = 0;

	if (!path)
		return true;
	if (sscanf(path, "/proc/%d/ns/pid", &pid) == 1)
		*ret_id = pod_find(l->sandbox, pid);
	if (!*ret_id)
		*ret_why = kasprintf("namespace path: %s is of no container of sandbox %s", path,
				     l->sandbox->id);
	l->pidns_of = *ret_id;
	return *ret_id != NULL;
}

/* In a sandbox of its own, or in that of its pod; with its state saved. */
static int launch(struct launch *l, struct boot_request *b, char **ret_why)
{
	const char *id = pod_sandbox_of(b->spec, b->id);
	AUTO_FREE char *why = NULL;
	AUTO_FREE char *pidns = NULL;
	AUTO(statedir_close) struct statedir *sandbox = id ? statedir_open(globals.root, id, &why) : NULL;
	int r = -1;

	l->sandbox = sandbox;
	if (!id)
		r = sandbox_launch(l, &b->pid, ret_why);
	else if (!sandbox)
		*ret_why = kasprintf("the sandbox of the pod: %s", why);
	else if (find_pidns(l, &pidns, ret_why))
		r = sandbox_join(l, &b->pid, ret_why);
	return r ? r : save_state_as(l, b->pid, false, ret_why);
}

int container_boot(struct boot_request *b, struct statedir **ret_dir)
{
	AUTO_FREE char *why = NULL;
	json_t *seccomp = seccomp_profile_compile(
		json_object_get(json_object_get(b->spec->json, "linux"), "seccomp"), &why);
	struct statedir *s = !seccomp ? NULL : b->woken ?: statedir_create(globals.root, b->id, &why);
	AUTO(cgroup_close) struct cgroup *cgroup =
		s && b->cgroup ? cgroup_create(s, b->spec->json, globals.systemd_cgroup, &why) : NULL;
	struct launch l = { .dir = s,
			    .cgroup = cgroup,
			    .spec = b->spec,
			    .bundle = b->bundle,
			    .overlay = b->overlay,
			    .layer = -1,
			    .notify = b->notify,
			    .platform = globals.platform,
			    .seccomp = seccomp,
			    .strace = globals.strace,
			    .debug = globals.debug,
			    .stdio = { b->stdio ? b->stdio[0] : 0, b->stdio ? b->stdio[1] : 1,
				       b->stdio ? b->stdio[2] : 2 },
			    .extra_fds = b->extra.fd,
			    .nextra_fds = b->extra.n,
			    .console = b->console_fd,
			    .rows = b->rows,
			    .cols = b->cols,
			    .restore = b->restore,
			    .spawned = save_state };
	bool launched;

	if (!s)
		return cli_fail("%s", why);
	if (b->overlay == OVERLAY_DISK)
		l.layer = overlay_open_dir(b->spec, s, &l.layer_size, &why);
	launched = !why && (cgroup || !b->cgroup) && !launch(&l, b, &why);
	if (l.layer >= 0)
		close(l.layer);
	extra_fds_close(&b->extra);
	if (launched) {
		keeper_start(s, b->spec);
		if (b->relay)
			leave_relay(s, b);
		*ret_dir = s;
		return 0;
	}
	(void)cli_fail("%s", why);
	if (b->woken) {
		(void)cli_end_processes(s); /* it is as it was; the first failure is what is reported */
		return 1;
	}
	(void)cli_destroy(s, true); /* leaves nothing behind; it has said why if it couldn't */
	statedir_close(s);
	return 1;
}

/*
 * Where writes to the rootfs go: as the option says, else the spec's annotation, else by who asks. Callers of
 * `create` read and write the rootfs themselves (docker cp, podman build); `run` is for people.
 */
static int choose_overlay(struct boot_request *b, enum overlay_mode dflt)
{
	AUTO_FREE char *why = NULL;

	/* Kept, for when it goes on from an image. */
	if (o.overlay)
		spec_annotate(b->spec, OVERLAY_ANNOTATION, o.overlay);
	if (o.overlay_dir)
		spec_annotate(b->spec, OVERLAY_DIR_ANNOTATION, o.overlay_dir);
	return overlay_of(b->spec, dflt, &b->overlay, &why) ? cli_fail("%s", why) : 0;
}

/* What is accepted and has no effect in a guest. */
static void warn_of(const struct spec *s)
{
	if (s->process.apparmor_profile && s->process.apparmor_profile[0])
		log_warn("process.apparmorProfile \"%s\" has no effect: the guest's kernel has no AppArmor",
			 s->process.apparmor_profile);
}

/* Common to run and create: bundle, spec, terminal. */
static int prepare(const char *id, struct boot_request *b, enum overlay_mode overlay)
{
	AUTO_FREE char *why = NULL;

	b->id = id;
	b->cgroup = true;
	b->console_fd = -1;
	b->bundle = realpath(o.bundle ? o.bundle : ".", NULL);
	if (!b->bundle)
		return cli_fail("bundle %s: %s", o.bundle ? o.bundle : ".", errno_text(errno));
	b->spec = spec_load(b->bundle, &why);
	if (!b->spec)
		return cli_fail("%s", why);
	warn_of(b->spec);
	b->notify = notify_wanted();
	if (b->notify)
		notify_prepare(b->spec);
	keeper_option(b->spec, IDLE_ANNOTATION, o.idle_suspend);
	keeper_option(b->spec, EVERY_ANNOTATION, o.checkpoint_every);
	keeper_option(b->spec, GUEST_SNAPSHOTS_ANNOTATION, o.guest_snapshots);
	if (keeper_check(b->spec))
		return cli_fail("annotation %s", keeper_check(b->spec));
	pod_size_sandbox(b->spec);
	if (extra_fds_collect(json_object_get(b->spec->json, "process"), true, o.preserve_fds, &b->extra,
			      &why))
		return cli_fail("%s", why);
	if (choose_overlay(b, overlay))
		return 1;
	if (b->spec->process.terminal && o.console_socket) {
		int tty = console_socket_send(o.console_socket, &why);

		if (tty < 0)
			return cli_fail("%s", why);
		b->relay = attach_begin(tty, tty, &b->console_fd, &b->rows, &b->cols);
		if (!b->relay)
			return cli_fail("cannot use the terminal: %s", errno_text(errno));
	}
	return 0;
}

/* Its first instruction, between startContainer and poststart hooks; a failing one ends the container. */
int container_begin(struct statedir *s)
{
	AUTO_FREE char *why = NULL;
	json_t *saved;
	int r;

	if (hooks_start(s, &why))
		return cli_fail("cannot start container %s: %s", s->id, why);
	saved = statedir_load(s, "state.json");
	r = hooks_run_saved(saved, HOOK_POSTSTART, "running", &why);
	json_decref(saved);
	if (r) {
		json_t *req = json_pack("{s:s, s:i, s:b}", "op", "kill", "signal", SIGKILL, "all", 1);
		AUTO_FREE char *gone = NULL;

		json_decref(cli_request(s, req, &gone)); /* it may have ended by itself */
		json_decref(req);
		return cli_fail("cannot start container %s: %s", s->id, why);
	}
	return 0;
}

struct follow {
	struct statedir *s;
	bool tied;
};

/* A signal that we got instead of the guest. */
static void forward_signal(struct follow *f, int sig)
{
	AUTO_FREE char *why = NULL;
	json_t *req = json_pack("{s:s, s:i, s:b}", "op", "kill", "signal", sig, "fatal", f->tied);

	json_decref(cli_request(f->s, req, &why)); /* too late if it has stopped */
	json_decref(req);
}

static void forward(void *arg, int sig)
{
	forward_signal(arg, sig);
}

int container_follow(struct statedir *s, struct attach *a, bool tied)
{
	struct follow f = { s, tied };
	AUTO_CLOSE int sock = control_connect(s->fd);
	json_t *req = json_pack("{s:s, s:b, s:b}", "op", "wait", "tied", tied, "listens", a != NULL), *rep = NULL;
	int status;

	if (sock >= 0 && !control_send(sock, req, NULL, 0)) {
		if (container_begin(s)) {
			json_decref(req);
			return 1;
		}
		rep = a ? attach_run(a, sock, send_resize, (int[]){ sock }) : client_wait(sock, forward, &f);
	}
	json_decref(req);
	status = json_is_integer(json_object_get(rep, "status")) ?
			 (int)json_integer_value(json_object_get(rep, "status")) :
			 cli_exit_status(s);
	json_decref(rep);
	return status;
}

/* A sentry that was killed (by the host's OOM killer, say) left no status, but it is our child. */
static int sentry_status(pid_t pid)
{
	AUTO_CLOSE int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	int st;

	/* its connections are closed a moment before it is gone */
	if (poll(&p, 1, SENTRY_END_MS) != 1 || waitpid(pid, &st, WNOHANG) != pid || !WIFSIGNALED(st))
		return NO_STATUS;
	return 128 + WTERMSIG(st);
}

/* --pid-file and --pidfd-socket. 0, or 1 after a message. */
static int tell_pid(pid_t pid)
{
	AUTO_FREE char *why = NULL;

	if (o.pid_file && write_pid_file(o.pid_file, pid))
		return 1;
	if (o.pidfd_socket && pidfd_socket_send(o.pidfd_socket, pid, &why))
		return cli_fail("%s", why);
	return 0;
}

int container_run(struct boot_request *b, bool keep, bool tied)
{
	AUTO(statedir_close) struct statedir *s = NULL;
	struct attach *a = NULL;
	int status;

	if (b->spec->process.terminal && b->console_fd < 0) {
		a = attach_begin(0, 1, &b->console_fd, &b->rows, &b->cols);
		if (!a)
			return cli_fail("a terminal is asked for, but standard input is none (use "
					"--console-socket)");
	} else {
		client_block_signals();
	}
	if (container_boot(b, &s)) {
		attach_end(a);
		return 1;
	}
	if (tell_pid(b->pid)) {
		attach_end(a);
		(void)cli_destroy(s, true); /* the pid file is what is reported */
		return 1;
	}
	if (b->console_fd >= 0)
		close(b->console_fd);
	if (b->notify)
		notify_wait_aside(s);
	status = container_follow(s, a, tied);
	attach_end(a);
	if (status == NO_STATUS && store_suspended(s)) {
		keep = true;
		fprintf(stderr, "holdfast: container %s has been suspended\n", s->id);
	} else if (status == NO_STATUS) {
		status = sentry_status(b->pid);
	}
	if (!keep)
		(void)cli_destroy(s, true); /* has said why if it couldn't */
	return status;
}

static int run(int argc, char **argv)
{
	struct boot_request b = { 0 };
	struct statedir *s;

	(void)argc;
	if (prepare(argv[0], &b, OVERLAY_MEMORY))
		return 1;
	if (!o.detach)
		return container_run(&b, o.keep, false);
	if (b.spec->process.terminal && b.console_fd < 0)
		return cli_fail("a detached terminal needs --console-socket");
	if (container_boot(&b, &s))
		return 1;
	if (tell_pid(b.pid) || container_begin(s)) {
		(void)cli_destroy(s, true); /* the first failure is what is reported */
		return 1;
	}
	notify_wait(s);
	return 0;
}

static int create(int argc, char **argv)
{
	struct boot_request b = { 0 };
	struct statedir *s;

	(void)argc;
	if (prepare(argv[0], &b, OVERLAY_NONE))
		return 1;
	if (b.spec->process.terminal && b.console_fd < 0)
		return cli_fail("a terminal needs --console-socket");
	if (container_boot(&b, &s))
		return 1;
	if (tell_pid(b.pid)) {
		(void)cli_destroy(s, true); /* the pid file is what is reported */
		return 1;
	}
	return 0;
}

static int start(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);

	(void)argc;
	if (!s || container_begin(s))
		return 1;
	notify_wait(s);
	return 0;
}

const struct command cmd_run = {
	.name = "run",
	.preserve_fds = &o.preserve_fds,
	.synopsis = "[options] ID",
	.summary = "create and start a container, wait for its end",
	.details =
		"  Creates container ID from an OCI bundle and runs it. Unless --keep or --detach is given\n"
		"  the container is deleted afterwards.\n"
		"  This command passes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 on to the\n"
		"  container. If it is killed, the container goes on.\n"
		"  With \"terminal\": true in config.json and a terminal on standard input the guest gets a\n"
		"  terminal of its own, connected to yours; signals to this command then end it alone.\n"
		"  With --console-socket the other end of the terminal is sent to that socket instead.\n"
		"  Writes to the root file system stay in the sandbox (--overlay memory) and are gone with\n"
		"  it, unless --overlay none writes them through. Bind mounts are always shared.",
	.status = "  That of the container's first process; 128+n when signal n ended it; 1 when it could not\n"
		  "  be started.",
	.examples = "  mkdir b && cd b && holdfast spec && ln -s /path/to/debian rootfs && holdfast run shell\n"
		    "  holdfast run --detach --bundle /srv/web --pid-file /run/web.pid web",
	.opts = run_opts,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};

const struct command cmd_create = {
	.name = "create",
	.preserve_fds = &o.preserve_fds,
	.synopsis = "[options] ID",
	.summary = "create a container; `start` runs it",
	.details = "  Writes to the root file system go to the bundle's rootfs, which others may change meanwhile;\n"
		   "  with --overlay memory or disk, or the annotation " OVERLAY_ANNOTATION ", they stay in\n"
		   "  the sandbox.\n"
		   "  Everything up to the first instruction of the container's process: its program is\n"
		   "  loaded, its standard descriptors are those of this command, which it keeps open. The pid\n"
		   "  in --pid-file lives as long as the container and ends with its status.",
	.examples = "  holdfast create --bundle /srv/web web && holdfast start web",
	.opts = create_opts,
	.min_args = 1,
	.max_args = 1,
	.run = create,
};

static const struct opt no_opts[] = { { 0 } };

const struct command cmd_start = {
	.name = "start",
	.synopsis = "ID",
	.summary = "run a created container",
	.details = "  Lets the first instruction of its process run, and returns. Fails for a container that\n"
		   "  was started before.",
	.opts = no_opts,
	.min_args = 1,
	.max_args = 1,
	.run = start,
};
