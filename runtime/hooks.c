// SPDX-License-Identifier: Apache-2.0
/*
 * Hooks as processes of the host; see hooks.h. Error texts are runc's, callers show them.
 *
 * Standard input, output and error are unnamed files rather than pipes: nobody has to relay while the hook
 * runs, and a daemon that a hook leaves behind holds nobody up.
 */
#include "runtime/hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/control.h"
#include "runtime/errno_text.h"
#include "runtime/launch.h"

#define MAX_SHOWN 8192 /* of a failed hook's output, in the message */

int hooks_text_file(const char *text)
{
	size_t n = strlen(text);
	AUTO_CLOSE int fd = memfd_create("hook", MFD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (write(fd, text, n) != (ssize_t)n || lseek(fd, 0, SEEK_SET) != 0)
		return -EIO;
	return steal_fd(&fd);
}

char *hooks_read_file(int fd)
{
	char *buf = kzalloc(MAX_SHOWN + 1);

	if (pread(fd, buf, MAX_SHOWN, 0) < 0)
		buf[0] = 0;
	return buf;
}

json_t *hooks_state(json_t *saved, const char *status)
{
	return json_pack("{s:O?, s:O?, s:s, s:O*, s:O?, s:O*}", "ociVersion",
			 json_object_get(saved, "ociVersion"), "id", json_object_get(saved, "id"),
			 "status", status, "pid",
			 strcmp(status, "stopped") ? json_object_get(saved, "pid") : NULL, "bundle",
			 json_object_get(saved, "bundle"), "annotations",
			 json_object_get(saved, "annotations"));
}

/* The namespaces of the container that a process of the host can be in. */
static void join_namespaces(pid_t pid)
{
	static const struct {
		const char *name;
		int type;
	} ns[] = { { "net", CLONE_NEWNET }, { "uts", CLONE_NEWUTS }, { "ipc", CLONE_NEWIPC } };

	for (unsigned i = 0; i < ARRAY_SIZE(ns); i++) {
		AUTO_FREE char *path = kasprintf("/proc/%d/ns/%s", pid, ns[i].name);
		AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

		/* A plain user's runtime may not: the hook is in its own, then. */
		if (fd >= 0)
			(void)setns(fd, ns[i].type);
	}
}

static void __noreturn become_hook(const struct spec_hook *h, const int fds[3], const char *cwd,
				   pid_t join)
{
	char *self[] = { (char *)(uintptr_t)h->path, NULL };
	sigset_t none;

	if (join)
		join_namespaces(join);
	if (cwd && chdir(cwd))
		_exit(127);
	for (int i = 0; i < 3; i++)
		if (dup2(fds[i], i) < 0)
			_exit(127);
	(void)close_range(3, ~0U, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Without an env a hook gets the runtime's, as with runc. */
	execve(h->path, h->nargs ? (char **)(uintptr_t)h->args : self,
	       h->has_env ? (char **)(uintptr_t)h->env : environ);
	dprintf(2, "%s: %s", h->path, errno_text(errno));
	_exit(127);
}

/* Waits for hook @pid, kills it when its time is up. What is wrong with its end (heap), or NULL. */
static char *wait_hook(pid_t pid, int timeout)
{
	AUTO_CLOSE int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	bool late = timeout && poll(&p, 1, timeout * 1000) == 0;
	int status;

	if (late)
		(void)kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (late)
		return kasprintf("hook ran past specified timeout of %d.0s", timeout);
	if (WIFSIGNALED(status))
		return kasprintf("signal: %s", strsignal(WTERMSIG(status)));
	return WEXITSTATUS(status) ? kasprintf("exit status %d", WEXITSTATUS(status)) : NULL;
}

/* What is wrong (heap), or NULL. */
static char *run_one(const struct spec_hook *h, const char *state, const char *cwd, pid_t join)
{
	AUTO_CLOSE int in = hooks_text_file(state);
	AUTO_CLOSE int out = memfd_create("hook", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	AUTO_CLOSE int err = memfd_create("hook", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	AUTO_FREE char *end = NULL, *o = NULL, *e = NULL;
	pid_t pid;

	if (in < 0 || out < 0 || err < 0)
		return kasprintf("cannot make a file: %s", errno_text(errno));
	if (access(h->path, X_OK))
		return kasprintf("fork/exec %s: %s", h->path,
				 errno == ENOENT ? "no such file or directory" :
				 errno == EACCES ? "permission denied" :
						   errno_text(errno));
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		int fds[3] = { in, out, err };

		become_hook(h, fds, cwd, join);
	}
	if (pid < 0)
		return kasprintf("fork/exec %s: %s", h->path, errno_text(errno));
	end = wait_hook(pid, h->timeout);
	if (!end)
		return NULL;
	o = hooks_read_file(out);
	e = hooks_read_file(err);
	return kasprintf("%s, stdout: %s, stderr: %s", end, o, e);
}

int hooks_run(const struct spec_hooks *hooks, enum spec_hook_kind kind, json_t *state, pid_t join,
	      char **ret_why)
{
	const struct spec_hook_list *l = &hooks->list[kind];
	AUTO_FREE char *text = l->n ? json_dumps(state, JSON_COMPACT) : NULL;
	const char *cwd = json_string_value(json_object_get(state, "bundle"));

	for (unsigned i = 0; i < l->n; i++) {
		AUTO_FREE char *why = run_one(&l->v[i], text ? text : "", cwd, join);

		if (why && kind == HOOK_POSTSTOP) {
			log_warn("error running hook #%u: %s", i, why);
		} else if (why) {
			*ret_why = kasprintf("error running hook #%u: error running hook: %s", i, why);
			return -1;
		}
	}
	return 0;
}

int hooks_run_saved(json_t *saved, enum spec_hook_kind kind, const char *status, char **ret_why)
{
	struct spec_hooks hooks = { 0 };
	int r = 0;

	if (json_object_get(saved, "hooks") &&
	    !spec_load_hooks(json_object_get(saved, "hooks"), &hooks)) {
		json_t *state = hooks_state(saved, status);

		r = hooks_run(&hooks, kind, state, 0, ret_why);
		json_decref(state);
	}
	spec_hooks_fini(&hooks);
	return r;
}

/*
 * The sentry runs startContainer hooks, being the one that has the container's namespaces; we give it what
 * they read and write.
 */
int hooks_start(struct statedir *s, char **ret_why)
{
	AUTO_CLOSE int sock = control_connect(s->fd);
	json_t *saved = statedir_load(s, "state.json"), *rep;
	json_t *req = json_pack("{s:s}", "op", "start"), *state = NULL;
	AUTO_FREE char *text = NULL;
	AUTO_CLOSE int in = -1;
	AUTO_CLOSE int out = -1;
	AUTO_CLOSE int err = -1;
	unsigned nfds = 0;
	const char *why;
	int r;

	if (json_array_size(json_object_get(json_object_get(saved, "hooks"), "startContainer"))) {
		state = hooks_state(saved, "created");
		json_object_set_new(state, "pid", json_integer(1)); /* as seen from there */
		text = json_dumps(state, JSON_COMPACT);
		in = hooks_text_file(text ? text : "");
		out = memfd_create("hook", MFD_CLOEXEC);
		err = memfd_create("hook", MFD_CLOEXEC);
		nfds = 3;
	}
	rep = sock < 0 ? NULL : control_call(sock, req, (int[]){ in, out, err }, nfds);
	why = rep ? json_string_value(json_object_get(rep, "error")) : "container not running";
	if (why && json_is_true(json_object_get(rep, "hook"))) {
		AUTO_FREE char *o = hooks_read_file(out);
		AUTO_FREE char *e = hooks_read_file(err);

		*ret_why = kasprintf("%s, stdout: %s, stderr: %s", why, o, e);
	} else if (why) {
		*ret_why = kstrdup(why);
	}
	r = why ? -1 : 0;
	json_decref(rep);
	json_decref(req);
	json_decref(state);
	json_decref(saved);
	return r;
}

/* ---- while a container is made ---- */

static int enter_mntns(struct launch_hooks *h, char **ret_why)
{
	h->cwd = open(".", O_PATH | O_CLOEXEC | O_DIRECTORY);
	h->mntns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (h->mntns >= 0 && !unshare(CLONE_NEWNS) &&
	    !mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL))
		return 0;
	if (errno == EPERM) { /* a plain user: mounts would fail anyway */
		launch_hooks_end(h);
		return 0;
	}
	*ret_why = kasprintf("mount namespace for hooks: %s", errno_text(errno));
	return -1;
}

int launch_hooks_begin(const struct launch *l, pid_t pid, struct launch_hooks *h, char **ret_why)
{
	const struct spec_hooks *hooks = &l->spec->hooks;
	json_t *state = json_pack("{s:s, s:s, s:s, s:i, s:s, s:O*}", "ociVersion",
				  l->spec->oci_version, "id", l->dir->id, "status", "creating",
				  "pid", (int)pid, "bundle", l->bundle, "annotations",
				  l->spec->annotations);
	int r;

	h->mntns = h->cwd = -1;
	/* As the spec numbers its steps, prestart hooks come when the container is created; runc and the
	 * hooks that came later say that it is being created. */
	json_object_set_new(state, "status", json_string("created"));
	r = hooks_run(hooks, HOOK_PRESTART, state, 0, ret_why);
	json_object_set_new(state, "status", json_string("creating"));
	r = r ||
	    hooks_run(hooks, HOOK_CREATE_RUNTIME, state, 0, ret_why);
	if (!r && hooks->list[HOOK_CREATE_CONTAINER].n)
		r = enter_mntns(h, ret_why) ||
		    hooks_run(hooks, HOOK_CREATE_CONTAINER, state, pid, ret_why);
	json_decref(state);
	return r ? -1 : 0;
}

void launch_hooks_end(struct launch_hooks *h)
{
	if (h->mntns >= 0) {
		/* setns(2) moves the working directory to the namespace's root. */
		if (setns(h->mntns, CLONE_NEWNS) || (h->cwd >= 0 && fchdir(h->cwd)))
			log_warn("cannot go back to the mount namespace: %s", errno_text(errno));
		close(h->mntns);
	}
	if (h->cwd >= 0)
		close(h->cwd);
	h->mntns = h->cwd = -1;
}
