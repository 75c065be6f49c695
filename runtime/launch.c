// SPDX-License-Identifier: Apache-2.0
/*
 * The launcher's side of a start; see launch.h.
 *
 * The sentry gets a user namespace in which the only mapped id is an unprivileged one that no
 * other process of the host runs as, so that even its "root" owns nothing. The gofer stays in the
 * launcher's user namespace, because it has to create files for any owner, and drops every
 * capability that this doesn't need (runtime/role_gofer.c).
 */
#include "runtime/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "runtime/control.h"
#include "runtime/errno_text.h"
#include "runtime/hooks.h"
#include "runtime/memlimit.h"
#include "runtime/launch_priv.h"
#include "runtime/mount_options.h"
#include "runtime/pod.h"
#include "runtime/roles.h"
#include "runtime/userns.h"

#define SENTRY_UID_BASE 1879048192u /* 0x70000000: above what distributions and subuid ranges use */
#define SENTRY_UID_RANGE 0x0fffffffu
#define MEMORY_LIMIT_MIN (4u << 20)       /* below it not even a shell runs */
#define MEMORY_LIMIT_UNKNOWN (4ULL << 30) /* of a host that doesn't tell its memory */

void launch_attach_fini(struct attach_set *a)
{
	for (unsigned i = 0; i < a->nfds; i++)
		close(a->fd[i]);
	json_decref(a->json);
	json_decref(a->devices);
}

/* A detached copy of the mount (tree) at @path: nothing above it can be reached through it. Where we may
 * not make one (rootless), the directory itself. */
static int open_attach(const char *path, bool recursive)
{
	int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path,
			      (unsigned)OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC |
				      (recursive ? AT_RECURSIVE : 0u));

	if (fd < 0 && (errno == EPERM || errno == ENOSYS || errno == EINVAL))
		fd = open(path, O_PATH | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

bool launch_has_option(const struct spec_mount *m, const char *opt)
{
	for (unsigned i = 0; i < m->noptions; i++)
		if (!strcmp(m->options[i], opt))
			return true;
	return false;
}

/* Opens what an attach point needs; -errno. */
static int open_attach_fds(struct attach_set *a, const char *path, bool readonly, bool recursive,
			   bool *ret_file)
{
	struct stat st;
	int fd = open_attach(path, recursive);

	if (fd < 0)
		return fd;
	a->fd[a->nfds++] = fd;
	if (fstat(fd, &st))
		return -errno;
	*ret_file = !S_ISDIR(st.st_mode);
	if (!*ret_file)
		return 0;
	/* A device, FIFO or socket is never opened: opening one can have effects. */
	if (!S_ISREG(st.st_mode))
		return -ENOTSUP;
	for (int i = 0; i < (readonly ? 1 : 2); i++) {
		fd = open(path, (i ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		if (fd < 0)
			return -errno;
		a->fd[a->nfds++] = fd;
	}
	return 0;
}

/* What several containers may write into, and so have to agree on. */
static bool is_volume(const char *path, bool readonly, int mount_index)
{
	struct stat st;

	return !readonly && mount_index >= 0 && !stat(path, &st) && S_ISDIR(st.st_mode);
}

static int add_attach(struct attach_set *all, const char *what, const char *path, bool readonly,
		      bool recursive, int mount_index, char **ret_why)
{
	struct attach_set *a = all->v && is_volume(path, readonly, mount_index) ? all->v : all;
	bool file = false;
	int r;

	if (a->n == MAX_ATTACH) {
		*ret_why = kasprintf("more than %d bind mounts", MAX_ATTACH);
		return -1;
	}
	r = open_attach_fds(a, path, readonly, recursive, &file);
	if (!r && file && mount_index < 0)
		r = -ENOTDIR;
	if (r) {
		*ret_why = kasprintf("%s %s: %s", what, path, errno_text(-r));
		return -1;
	}
	a->rights[a->n++] = readonly ? (file ? 'R' : 'r') : (file ? 'W' : 'w');
	json_array_append_new(all->json, json_pack("{s:i, s:b, s:b, s:b, s:i}", "mount", mount_index,
						   "readonly", readonly, "file", file, "volume", a != all,
						   "index", (int)a->n - 1));
	return 0;
}

char *launch_bundle_path(const struct launch *l, const char *path)
{
	return path[0] == '/' ? kstrdup(path) : kasprintf("%s/%s", l->bundle, path);
}

/* Attach point 0 is the root file system, the others the bind mounts in the spec's order. */
static int collect_attaches(const struct launch *l, struct attach_set *a, char **ret_why)
{
	AUTO_FREE char *root = launch_bundle_path(l, l->spec->root_path);

	a->json = json_array();
	a->devices = json_array();
	launch_make_mountpoints(l, root);
	if (add_attach(a, "rootfs", root, l->overlay != OVERLAY_NONE || l->spec->root_readonly, true, -1,
		       ret_why))
		return -1;
	for (unsigned i = 0; i < l->spec->nmounts; i++) {
		const struct spec_mount *m = &l->spec->mounts[i];
		AUTO_FREE char *src = m->source ? launch_bundle_path(l, m->source) : NULL;

		if (!mount_is_bind(m))
			continue;
		if (!src) {
			*ret_why = kasprintf("bind mount on %s has no source", m->destination);
			return -1;
		}
		if (launch_add_device(a->devices, src, i))
			continue;
		if (add_attach(a, "bind mount source", src,
			       (launch_has_option(m, "ro") || launch_has_option(m, "rro")) && !pod_holds(l->spec, i),
			       launch_has_option(m, "rbind"), (int)i, ret_why))
			return -1;
	}
	return 0;
}

/* ---- processes ---- */

static int move_fd(int fd, int to)
{
	if (fd == to)
		return fcntl(fd, F_SETFD, 0);
	return dup2(fd, to);
}

/* Descriptors of a role: 3, 4 and 6 as given, attach points from 10 on, 0-2 /dev/null, nothing else. */
static int role_fds(int boot, int log, int layer, const struct attach_set *a)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int high[3 * MAX_ATTACH + 3];
	unsigned n = a ? a->nfds : 0;

	/* Out of the way first, so that no target number is still a source. */
	for (unsigned i = 0; i < n; i++)
		high[i] = fcntl(a->fd[i], F_DUPFD_CLOEXEC, ROLE_FIRST_ATTACH + 3 * MAX_ATTACH);
	high[n] = fcntl(boot, F_DUPFD_CLOEXEC, ROLE_FIRST_ATTACH + 3 * MAX_ATTACH);
	high[n + 1] = fcntl(log, F_DUPFD_CLOEXEC, ROLE_FIRST_ATTACH + 3 * MAX_ATTACH);
	high[n + 2] = layer < 0 ? -1 : fcntl(layer, F_DUPFD_CLOEXEC, ROLE_FIRST_ATTACH + 3 * MAX_ATTACH);
	for (int i = 0; i < 3; i++)
		if (move_fd(null, i) < 0)
			return -errno;
	for (unsigned i = 0; i < n; i++)
		if (move_fd(high[i], ROLE_FIRST_ATTACH + (int)i) < 0)
			return -errno;
	if (move_fd(high[n], ROLE_BOOT_FD) < 0 || move_fd(high[n + 1], ROLE_LOG_FD) < 0)
		return -errno;
	(void)close_range(5, ROLE_FIRST_ATTACH - 1, 0); /* nothing of ours is there */
	if (layer >= 0 && move_fd(high[n + 2], ROLE_DISK_FD) < 0)
		return -errno;
	(void)close_range(ROLE_FIRST_ATTACH + n, ~0U, 0);
	return 0;
}

/*
 * What the sandbox's memory files may hold: the spec's limit; without one half of the host's memory, as a
 * tmpfs has it. The gofer makes it the size of the tmpfs that they are born on, so the host itself holds
 * guests to it.
 */
uint64_t launch_memory_limit(uint64_t limit)
{
	struct sysinfo si;

	if (limit)
		return MAX(limit, (uint64_t)MEMORY_LIMIT_MIN);
	if (sysinfo(&si))
		return MEMORY_LIMIT_UNKNOWN;
	return (uint64_t)si.totalram * si.mem_unit / 2;
}

static void __noreturn exec_role(const char *role, const struct launch *l, const char *rights)
{
	char debug[2] = { l->debug ? '1' : '0', 0 };
	char name[] = "holdfast";
	AUTO_FREE char *role_copy = kstrdup(role);
	AUTO_FREE char *rights_copy = kstrdup(rights);
	AUTO_FREE char *memory = kasprintf("%llu", (unsigned long long)launch_memory_limit(l->spec->memory_limit));
	char *argv[] = { name, role_copy, rights_copy, debug, memory, NULL };
	char *envp[] = { NULL };
	sigset_t none;

	setsid();
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve("/proc/self/exe", argv, envp);
	_exit(127);
}

static int write_proc(pid_t pid, const char *file, const char *text)
{
	AUTO_FREE char *path = kasprintf("/proc/%d/%s", pid, file);
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		return -errno;
	return 0;
}

/* A host uid for this sandbox alone (as far as a hash can make it so). */
static uid_t sentry_uid(const struct launch *l)
{
	uint32_t h = 2166136261u;

	if (geteuid() != 0)
		return geteuid();
	for (const char *p = l->dir->path; *p; p++)
		h = (h ^ (uint8_t)*p) * 16777619u;
	return userns_spare_id("uid_map", SENTRY_UID_BASE + (h & SENTRY_UID_RANGE));
}

static int map_ids(pid_t pid, uid_t uid, gid_t gid)
{
	AUTO_FREE char *u = kasprintf("0 %u 1\n", uid);
	AUTO_FREE char *g = kasprintf("0 %u 1\n", gid);
	int r = write_proc(pid, "uid_map", u);

	if (!r && geteuid() != 0)
		r = write_proc(pid, "setgroups", "deny");
	return r ? r : write_proc(pid, "gid_map", g);
}

struct spawn {
	const char *role, *rights;
	unsigned long ns;
	int sock, log;
	int layer; /* -1: none */
	const struct attach_set *attaches; /* or NULL */
	uid_t uid; /* what root is outside, in a user namespace of its own */
	gid_t gid;
};

static void __noreturn become_role(const struct launch *l, const struct spawn *s, int go)
{
	char c;

	/* We are in our control groups, and the ids are there, once we are told. */
	if (read(go, &c, 1) != 1 ||
	    ((s->ns & CLONE_NEWUSER) && (setresgid(0, 0, 0) || setresuid(0, 0, 0))))
		_exit(127);
	if (role_fds(s->sock, s->log, s->layer, s->attaches))
		_exit(127);
	exec_role(s->role, l, s->rights);
}

/*
 * Whom the host's OOM killer takes first: the sandbox as a whole is what the spec's number is for. One that is
 * lower than ours takes a right that even root may lack; the guest sees its own number in any case.
 */
static void set_oom_score(const struct launch *l, pid_t pid)
{
	AUTO_FREE char *text = kasprintf("%d", l->spec->process.oom_score_adj);

	if (json_object_get(json_object_get(l->spec->json, "process"), "oomScoreAdj"))
		(void)write_proc(pid, "oom_score_adj", text); /* as above */
}

/* A process of the sandbox in namespaces of its own. Its pid, or -1 with *ret_why. */
static pid_t spawn_role(const struct launch *l, const struct spawn *s, char **ret_why)
{
	int go[2], r;
	pid_t pid;

	if (pipe2(go, O_CLOEXEC)) {
		*ret_why = kasprintf("pipe: %s", errno_text(errno));
		return -1;
	}
	AUTO_CLOSE int theirs = go[0];
	AUTO_CLOSE int ours = go[1];
	pid = cgroup_fork(l->cgroup, s->ns, ret_why);
	if (pid == 0) {
		close(steal_fd(&ours));
		become_role(l, s, theirs);
	}
	if (pid < 0) {
		AUTO_FREE char *why = *ret_why;

		*ret_why = kasprintf("cannot create namespaces for the sandbox: %s%s", why,
				     geteuid() ? " (may users make user namespaces here?)" : "");
		return -1;
	}
	set_oom_score(l, pid);
	r = s->ns & CLONE_NEWUSER ? map_ids(pid, s->uid, s->gid) : 0;
	if (r)
		*ret_why = kasprintf("cannot map ids of the sandbox: %s", errno_text(-r));
	else if (write(ours, "g", 1) != 1)
		*ret_why = kstrdup("the sandbox died at its start");
	if (*ret_why) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return -1;
	}
	return pid;
}

static pid_t spawn_sentry(const struct launch *l, int boot, int log, char **ret_why)
{
	uid_t uid = sentry_uid(l);
	struct spawn s = { .role = ROLE_SENTRY,
			   .rights = "-",
			   .ns = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC |
				 CLONE_NEWUTS | CLONE_NEWCGROUP | launch_namespaces(l->spec),
			   .sock = boot,
			   .log = log,
			   .layer = -1,
			   .uid = uid,
			   .gid = geteuid() == 0 ? userns_spare_id("gid_map", uid) : getegid() };

	int back;
	pid_t pid = -1;

	if (!launch_enter_netns(l->spec, &back, ret_why))
		pid = spawn_role(l, &s, ret_why);
	launch_leave_netns(back);
	return pid;
}

/* Stays in the launcher's user namespace if that is root's; else it is root of one that has only us. */
pid_t launch_spawn_gofer(const struct launch *l, int sock, int log, const struct attach_set *a, char **ret_why)
{
	AUTO_FREE char *rights = kasprintf("%s%s", l->layer >= 0 ? "d" : "", a->rights);
	struct spawn s = { .role = ROLE_GOFER,
			   .rights = rights,
			   .layer = l->layer,
			   .ns = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
				 CLONE_NEWUTS | CLONE_NEWCGROUP |
				 (geteuid() == 0 ? 0UL : (unsigned long)CLONE_NEWUSER),
			   .sock = sock,
			   .log = log,
			   .attaches = a,
			   .uid = geteuid(),
			   .gid = getegid() };

	return spawn_role(l, &s, ret_why);
}

/* ---- boot message ---- */

/* Then the host lets processes wait for memory instead of killing one. */
static bool keeps_oom_killer_off(const struct launch *l)
{
	const json_t *o = json_object_get(json_object_get(l->spec->json, "linux"), "resources");

	return json_is_true(json_object_get(json_object_get(o, "memory"), "disableOOMKiller"));
}

static json_t *boot_message(const struct launch *l, const struct attach_set *a)
{
	struct utsname host;

	uname(&host);
	return json_pack("{s:s, s:O, s:O, s:s*, s:b, s:b, s:s, s:b, s:i, s:i, s:I, s:O?, s:O, s:b, s:s*}", "id", l->dir->id,
			 "config", l->spec->json, "attach", a->json, "platform", l->platform,
			 "strace", l->strace, "debug", l->debug, "overlay",
			 overlay_name(l->overlay), "console",
			 l->console >= 0, "rows", (int)l->rows, "cols", (int)l->cols,
			 "memory", (json_int_t)launch_memory_limit(l->spec->memory_limit), "seccomp", l->seccomp, "devices",
			 a->devices, "idmap", geteuid() == 0, "nodename",
			 l->spec->namespaces[NAMESPACE_UTS].listed ? NULL : host.nodename);
}

/* The files of what it goes on from, behind the boot message: `state`, then memory, a few at a time. */
static int send_restore(const struct restore_source *r, int sock)
{
	for (unsigned at = 0; at < r->nfds + 1;) {
		unsigned n = MIN(r->nfds + 1 - at, (unsigned)CONTROL_MAX_FDS);
		json_t *msg = json_object();
		int fds[CONTROL_MAX_FDS], err;

		for (unsigned i = 0; i < n; i++)
			fds[i] = at + i ? r->fds[at + i - 1] : r->state;
		err = control_send(sock, msg, fds, n);
		json_decref(msg);
		if (err)
			return err;
		at += n;
	}
	return 0;
}

int launch_boot(const struct launch *l, int sock, const struct attach_set *a, const struct boot_fds *theirs,
		char **ret_why)
{
	AUTO_CLOSE int exitfd =
		openat(l->dir->fd, "exit.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	json_t *msg = boot_message(l, a), *reply;
	int fds[CONTROL_MAX_FDS] = { theirs->gofer, theirs->listener, exitfd };
	unsigned n = 3;
	int r;

	if (exitfd < 0) {
		*ret_why = kasprintf("cannot write to %s: %s", l->dir->path, errno_text(errno));
		json_decref(msg);
		return -1;
	}
	if (l->cgroup && cgroup_dir(l->cgroup, "memory") && l->spec->memory_limit && !keeps_oom_killer_off(l))
		json_object_set_new(msg, "oom_event", json_true());
	if (l->sandbox) {
		json_object_set_new(msg, "op", json_string("create"));
		if (l->pidns_of)
			json_object_set_new(msg, "pidns", json_string(l->pidns_of));
	}
	if (l->layer >= 0)
		json_object_set_new(msg, "layer_size", json_integer((json_int_t)l->layer_size));
	if (l->notify)
		json_object_set_new(msg, "notify", json_true());
	if (theirs->volumes >= 0) {
		json_object_set_new(msg, "volumes", json_true());
		fds[n++] = theirs->volumes;
	}
	if (l->restore)
		json_object_set_new(msg, "restore",
				    json_pack("{s:b, s:i}", "fork", l->restore->fork, "files",
					      (int)l->restore->nfds));
	if (l->console >= 0) {
		fds[n++] = l->console;
	} else {
		for (int i = 0; i < 3; i++)
			fds[n++] = l->stdio[i];
	}
	for (unsigned i = 0; i < l->nextra_fds && n < CONTROL_MAX_FDS; i++)
		fds[n++] = l->extra_fds[i];
	json_object_set_new(msg, "extra_fds", json_integer(l->nextra_fds));
	r = control_send(sock, msg, fds, n);
	if (!r && l->restore)
		r = send_restore(l->restore, sock);
	json_decref(msg);
	reply = r ? NULL : control_recv(sock, NULL, NULL);
	if (reply && json_is_true(json_object_get(reply, "ok"))) {
		json_decref(reply);
		return 0;
	}
	*ret_why = kasprintf("%s", json_string_value(json_object_get(reply, "error")) ?:
					   "the sandbox died while it started (see its log)");
	json_decref(reply);
	return -1;
}

int launch_open_log(const struct launch *l)
{
	int fd = log_fd();

	if (fd >= 0)
		return fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return openat(l->dir->fd, "log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* In this order: hooks may make and mount what the gofer is to see. */
pid_t launch_prepare_gofer(const struct launch *l, pid_t pid, int sock, int log, struct attach_set *a,
			   char **ret_why)
{
	struct launch_hooks hooks;
	pid_t gofer = -1;

	if (!launch_hooks_begin(l, pid, &hooks, ret_why) && !collect_attaches(l, a, ret_why))
		gofer = launch_spawn_gofer(l, sock, log, a, ret_why);
	if (gofer > 0)
		memlimit_remember(l->dir, gofer);
	launch_hooks_end(&hooks);
	return gofer;
}

static int launch_with(const struct launch *l, struct attach_set *a, pid_t *ret_pid, char **ret_why)
{
	int b[2], g[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, b) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, g)) {
		*ret_why = kasprintf("socketpair: %s", errno_text(errno));
		return -1;
	}
	AUTO_CLOSE int boot_ours = b[0];
	AUTO_CLOSE int boot_theirs = b[1];
	AUTO_CLOSE int gofer_client = g[0];
	AUTO_CLOSE int gofer_server = g[1];
	AUTO_CLOSE int log = launch_open_log(l);
	AUTO_CLOSE int listener = control_listen(l->dir->fd);
	if (listener < 0 || log < 0) {
		*ret_why = kasprintf("cannot write to %s: %s", l->dir->path,
				     errno_text(listener < 0 ? -listener : errno));
		return -1;
	}
	pid_t sentry = spawn_sentry(l, boot_theirs, log, ret_why);
	if (sentry < 0)
		return -1;
	close(steal_fd(&boot_theirs));
	pid_t gofer = -1;
	if (!l->spawned(l, sentry, ret_why))
		gofer = launch_prepare_gofer(l, sentry, gofer_server, log, a, ret_why);
	close(steal_fd(&gofer_server));
	struct boot_fds theirs = { gofer_client, listener, -1 };
	if (gofer > 0 && !launch_boot(l, boot_ours, a, &theirs, ret_why)) {
		launch_show_view(l, sentry);
		*ret_pid = sentry;
		return 0;
	}
	kill(sentry, SIGKILL);
	waitpid(sentry, NULL, 0);
	if (gofer > 0) {
		kill(gofer, SIGKILL);
		waitpid(gofer, NULL, 0);
	}
	return -1;
}

int sandbox_launch(const struct launch *l, pid_t *ret_pid, char **ret_why)
{
	struct attach_set *a = kzalloc(sizeof(*a));
	int r = launch_with(l, a, ret_pid, ret_why);

	launch_attach_fini(a);
	free(a);
	return r;
}
