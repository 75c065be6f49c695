// SPDX-License-Identifier: Apache-2.0
/*
 * A container's control groups as a whole: made before its processes, entered by them, removed by `delete`.
 * cgroup_find.c knows where they go, cgroup_v1.c and cgroup_v2.c what is written into them.
 *
 * Directories above the container's own are made as needed and stay, as with runc: others may use them.
 */
#include "runtime/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "runtime/cgroup_priv.h"
#include "runtime/errno_text.h"
#include "runtime/userns.h"

#define STATE_FILE "cgroup.json"
#define REMOVE_TRIES 12 /* of twice the pause each: 4 s in all for processes on their way out */

const char *cgroup_dir(const struct cgroup *g, const char *controller)
{
	return json_string_value(json_object_get(g->dirs, controller));
}

bool cgroup_is_v2(const struct cgroup *g)
{
	return g->v2;
}

/* ---- making ---- */

/* A group of v1's cpuset takes no process before it has CPUs and memory nodes: the parent's. */
static void inherit_cpuset(const char *dir)
{
	static const char *const files[] = { "cpuset.cpus", "cpuset.mems" };
	AUTO_FREE char *parent = kasprintf("%s/..", dir);

	for (unsigned i = 0; i < ARRAY_SIZE(files); i++) {
		AUTO_FREE char *own = cgroup_read(dir, files[i]);
		AUTO_FREE char *above = cgroup_read(parent, files[i]);

		if (own && above && own[strspn(own, " \n")] == 0)
			(void)cgroup_write(dir, files[i], above); /* entering it tells */
	}
}

/* v2: gives every controller down to the groups below @dir. Those that can't be are missed by cgroup_put(). */
static void delegate(const char *dir)
{
	AUTO_FREE char *names = cgroup_read(dir, "cgroup.controllers");
	char *save = NULL;

	for (char *n = names ? strtok_r(names, " \n", &save) : NULL; n; n = strtok_r(NULL, " \n", &save)) {
		AUTO_FREE char *text = kasprintf("+%s", n);

		(void)cgroup_write(dir, "cgroup.subtree_control", text);
	}
}

/* mkdir -p below /sys/fs/cgroup. 0, 1 when the last one was there already, or -errno. */
static int make_dir(const char *dir, const char *controller, bool v2)
{
	AUTO_FREE char *path = kstrdup(dir);
	int r = 0;

	for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		if (mkdir(path, 0755) == 0 && !strcmp(controller, "cpuset"))
			inherit_cpuset(path);
		if (v2)
			delegate(path);
		*p = '/';
	}
	if (mkdir(path, 0755))
		r = errno == EEXIST ? 1 : -errno;
	if (r >= 0 && !strcmp(controller, "cpuset"))
		inherit_cpuset(path);
	return r;
}

static int save(const struct cgroup *g, struct statedir *s)
{
	json_t *j = json_pack("{s:b, s:O, s:O, s:s*}", "v2", g->v2, "dirs", g->dirs, "own", g->own, "unit",
			      g->unit);
	int r = statedir_save(s, STATE_FILE, j);

	json_decref(j);
	return r;
}

/* Directories of several controllers may be one. */
static bool listed(const json_t *array, const char *text)
{
	json_t *e;
	size_t i;

	json_array_foreach(array, i, e)
		if (!strcmp(json_string_value(e), text))
			return true;
	return false;
}

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

/* Which of the directories will be ours: told before they are made. */
static int plan(struct cgroup *g, struct statedir *s)
{
	const char *key;
	json_t *v;

	json_object_foreach(g->dirs, key, v)
		if (!exists(json_string_value(v)) && !listed(g->own, json_string_value(v)))
			json_array_append(g->own, v);
	return save(g, s);
}

/* Once; and not where nobody asked for a group: plain users seldom may make one. */
static void warn_unusable(const char *dir, int err, bool asked)
{
	static bool said;

	if (!said && (asked || geteuid() == 0)) {
		log_warn("cannot make cgroup %s: %s; the sandbox's own limits hold, the host's don't", dir,
			 errno_text(-err));
		/* Not of a plain user in a user namespace, whose callers know (podman). */
		if (log_fd() < 0 && userns_is_host())
			fprintf(stderr, "holdfast: warning: cannot make cgroup %s: %s\n", dir,
				errno_text(-err));
	}
	said = true;
}

/* Makes the directories; those that can't be made are left out, after one warning. */
static void make_dirs(struct cgroup *g, bool asked)
{
	const char *key;
	json_t *v;
	void *next;

	json_object_foreach_safe(g->dirs, next, key, v) {
		int r = make_dir(json_string_value(v), key, g->v2);

		if (r >= 0)
			continue;
		warn_unusable(json_string_value(v), r, asked);
		json_object_del(g->dirs, key);
	}
}

static struct cgroup *alloc_cgroup(void)
{
	struct cgroup *g = kzalloc(sizeof(*g));

	g->dirs = json_object();
	g->own = json_array();
	return g;
}

/* The directories that the spec means, in g->dirs. */
static int find(struct cgroup *g, struct statedir *s, const json_t *linux_, bool systemd, char **why)
{
	const char *path = json_string_value(json_object_get(linux_, "cgroupsPath"));

	if (systemd)
		return cgroup_systemd_start(g, path && path[0] ? path : NULL, s->id,
					    json_object_get(linux_, "resources"), why);
	json_decref(g->dirs);
	g->dirs = cgroup_find(path && path[0] ? path : s->id, g->v2);
	return 0;
}

/* A new group has the default devices, also where the spec says nothing of them; a later change that doesn't
 * leaves them alone. */
static int set_first(const struct cgroup *g, const json_t *resources, char **ret_why)
{
	json_t *r = json_object();
	int ret;

	json_object_set_new(r, "devices", json_array());
	if (resources)
		json_object_update(r, (json_t *)(uintptr_t)resources); /* which it only reads */
	ret = cgroup_set(g, r, ret_why);
	json_decref(r);
	return ret;
}

struct cgroup *cgroup_create(struct statedir *s, const json_t *config, bool systemd, char **ret_why)
{
	const json_t *linux_ = json_object_get(config, "linux");
	AUTO(cgroup_close) struct cgroup *g = alloc_cgroup();
	int r;

	g->v2 = cgroup_host_is_v2();
	if (find(g, s, linux_, systemd, ret_why))
		return NULL;
	r = plan(g, s);
	if (r) {
		*ret_why = kasprintf("cannot write to %s: %s", s->path, errno_text(-r));
		return NULL;
	}
	make_dirs(g, json_object_get(linux_, "cgroupsPath") != NULL);
	r = save(g, s); /* those that couldn't be made are nobody's */
	if (r) {
		*ret_why = kasprintf("cannot write to %s: %s", s->path, errno_text(-r));
		return NULL;
	}
	return set_first(g, json_object_get(linux_, "resources"), ret_why) ? NULL : steal_ptr(&g);
}

struct cgroup *cgroup_open(struct statedir *s)
{
	struct cgroup *g = alloc_cgroup();
	json_t *j = statedir_load(s, STATE_FILE);
	const char *unit = json_string_value(json_object_get(j, "unit"));

	if (json_is_object(json_object_get(j, "dirs")) && json_is_array(json_object_get(j, "own"))) {
		json_object_update(g->dirs, json_object_get(j, "dirs"));
		json_array_extend(g->own, json_object_get(j, "own"));
		g->v2 = json_is_true(json_object_get(j, "v2"));
		g->unit = unit ? kstrdup(unit) : NULL;
	}
	json_decref(j);
	return g;
}

void cgroup_close(struct cgroup *g)
{
	if (!g)
		return;
	if (g->holder > 0) {
		(void)kill(g->holder, SIGKILL);
		(void)waitpid(g->holder, NULL, 0);
	}
	json_decref(g->dirs);
	json_decref(g->own);
	free(g->unit);
	free(g);
}

int cgroup_set(const struct cgroup *g, const json_t *resources, char **ret_why)
{
	if (!json_is_object(resources) || !json_object_size(g->dirs))
		return 0;
	return g->v2 ? cgroup_v2_set(g, resources, ret_why) : cgroup_v1_set(g, resources, ret_why);
}

/* ---- entering ----
 *
 * Moving a process waits for a grace period of the host's kernel, 6 to 20 ms, because it might be forking in another
 * thread meanwhile. Two ways don't: a thread that moves itself alone (v1's `tasks`; v2 refuses that between
 * groups with processes), and a process that is born there (v2).
 */

/* Hybrid hosts: the extra v2 hierarchy limits nothing, so it may fail. */
static bool is_needed(const struct cgroup *g, const char *controller)
{
	return g->v2 || controller[0];
}

static int move_process(const struct cgroup *g, pid_t pid, char **ret_why)
{
	AUTO_FREE char *text = kasprintf("%d", pid);
	const char *key;
	json_t *v;

	json_object_foreach(g->dirs, key, v) {
		int r = cgroup_write(json_string_value(v), "cgroup.procs", text);

		if (!r || !is_needed(g, key))
			continue;
		*ret_why = kasprintf("cannot enter cgroup %s: %s", json_string_value(v), errno_text(-r));
		return -1;
	}
	return 0;
}

/* The calling thread enters those of v1; false when it couldn't. */
static bool move_thread(const struct cgroup *g)
{
	const char *key;
	json_t *v;

	json_object_foreach(g->dirs, key, v)
		if (key[0] && !g->v2 && cgroup_write(json_string_value(v), "tasks", "0"))
			return false;
	return true;
}

/* fork(2) into v2 group @dir (or NULL); *ret_in: is the child there? */
static pid_t clone_into(const char *dir, unsigned long flags, bool *ret_in)
{
	AUTO_CLOSE int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	struct clone_args args = { .flags = flags | CLONE_INTO_CGROUP,
				   .exit_signal = SIGCHLD,
				   .cgroup = (unsigned)fd };
	pid_t pid = fd < 0 ? -1 : (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	*ret_in = !dir || pid >= 0;
	if (pid >= 0)
		return pid;
	return (pid_t)syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);
}

pid_t cgroup_fork(const struct cgroup *g, unsigned long flags, char **ret_why)
{
	int p[2];
	bool in;
	char moved = 0;
	pid_t pid;

	if (pipe2(p, O_CLOEXEC)) {
		*ret_why = kasprintf("pipe: %s", errno_text(errno));
		return -1;
	}
	AUTO_CLOSE int from_child = p[0];
	AUTO_CLOSE int to_parent = p[1];
	pid = clone_into(g ? cgroup_dir(g, "") : NULL, flags, &in);
	if (pid < 0)
		*ret_why = kasprintf("cannot make a process: %s", errno_text(errno));
	if (pid == 0) {
		moved = !g || move_thread(g);
		(void)!write(to_parent, &moved, 1); /* unheard, we are moved */
	}
	if (pid <= 0)
		return pid;
	close(steal_fd(&to_parent));
	if (read(from_child, &moved, 1) == 1 && moved && in)
		return pid;
	if (!g || !move_process(g, pid, ret_why))
		return pid;
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return -1;
}

void cgroup_join(struct statedir *s)
{
	AUTO(cgroup_close) struct cgroup *g = cgroup_open(s);
	AUTO_FREE char *why = NULL;

	if ((cgroup_dir(g, "") || !move_thread(g)) && move_process(g, getpid(), &why))
		log_warn("%s", why);
}

/* ---- looking ---- */

bool cgroup_frozen(const struct cgroup *g)
{
	AUTO_FREE char *state = g->v2 ? cgroup_read(cgroup_dir(g, ""), "cgroup.events") :
					cgroup_read(cgroup_dir(g, "freezer"), "freezer.state");

	/* on its way there counts, too: nobody answers any more */
	if (g->v2 && cgroup_read_u64(cgroup_dir(g, ""), "cgroup.freeze", 0) == 1)
		return true;
	return state && (g->v2 ? strstr(state, "frozen 1") != NULL : strncmp(state, "THAWED", 6) != 0);
}

/* Calls @fn for @dir and all below it, those below first. */
static void each_dir(const char *dir, void (*fn)(const char *dir, void *arg), void *arg)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d)))
		if (e->d_type == DT_DIR && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
			AUTO_FREE char *sub = kasprintf("%s/%s", dir, e->d_name);

			each_dir(sub, fn, arg);
		}
	closedir(d);
	fn(dir, arg);
}

static void add_pids(const char *dir, void *arg)
{
	AUTO_FREE char *list = cgroup_read(dir, "cgroup.procs");
	char *save_ptr = NULL;

	for (char *p = list ? strtok_r(list, "\n", &save_ptr) : NULL; p; p = strtok_r(NULL, "\n", &save_ptr))
		json_array_append_new(arg, json_integer(strtoll(p, NULL, 10)));
}

json_t *cgroup_pids(const struct cgroup *g)
{
	static const char *const order[] = { "", "devices", "pids", "memory", "freezer", "name=systemd" };
	json_t *pids = json_array();

	for (unsigned i = 0; i < ARRAY_SIZE(order); i++)
		if (cgroup_dir(g, order[i])) {
			each_dir(cgroup_dir(g, order[i]), add_pids, pids);
			break;
		}
	return pids;
}

/* ---- removing ---- */

static void thaw(const char *dir)
{
	(void)cgroup_write(dir, "freezer.state", "THAWED"); /* who is frozen can't die */
	(void)cgroup_write(dir, "cgroup.freeze", "0");
}

void cgroup_thaw(const struct cgroup *g)
{
	if (cgroup_frozen(g))
		thaw(cgroup_dir(g, g->v2 ? "" : "freezer"));
}

static void kill_members(const char *dir, void *arg)
{
	json_t *pids = json_array(), *p;
	size_t i;

	(void)arg;
	thaw(dir);
	add_pids(dir, pids);
	json_array_foreach(pids, i, p)
		if (json_integer_value(p) > 0 && json_integer_value(p) != getpid())
			(void)kill((pid_t)json_integer_value(p), SIGKILL); /* gone is as good */
	json_decref(pids);
}

static void remove_dir(const char *dir, void *arg)
{
	(void)arg;
	(void)rmdir(dir); /* the caller looks whether it is gone */
}

/* Removes @dir and what is below it; what still lives in it is on its way out, or is ended. */
static int remove_tree(const char *dir)
{
	struct timespec pause = { .tv_nsec = 1000000 };

	for (int i = 0; i < REMOVE_TRIES && exists(dir); i++) {
		each_dir(dir, remove_dir, NULL);
		if (!exists(dir))
			return 0;
		if (i)
			each_dir(dir, kill_members, NULL);
		(void)nanosleep(&pause, NULL); /* interrupted: one try less */
		pause.tv_nsec *= 2;
		if (pause.tv_nsec >= 1000000000)
			pause = (struct timespec){ .tv_sec = 1 };
	}
	return exists(dir) ? -EBUSY : 0;
}

int cgroup_remove(struct statedir *s)
{
	AUTO(cgroup_close) struct cgroup *g = cgroup_open(s);
	int ret = 0;
	json_t *v;
	size_t i;

	if (g->unit)
		cgroup_systemd_stop(g->unit);
	json_array_foreach(g->own, i, v) {
		int r = remove_tree(json_string_value(v));

		if (r)
			ret = r;
	}
	return ret;
}
