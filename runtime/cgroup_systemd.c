// SPDX-License-Identifier: Apache-2.0
/*
 * --systemd-cgroup: the container's group is a scope of systemd's, which is asked for it over the service
 * manager's private socket (root's at /run/systemd/private, a user's below XDG_RUNTIME_DIR): no bus daemon
 * is needed. linux.cgroupsPath is "SLICE:PREFIX:NAME" then, and the scope is PREFIX-NAME.scope in SLICE.
 *
 * A scope begins with a process, which is a child of ours that waits until the sandbox is in it. The scope is
 * delegated, so its limits are written into its files as with the other driver; memory, CPU and tasks are
 * told to systemd as well, since it writes what it knows when it is reloaded.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cgroup_priv.h"
#include "runtime/dbus.h"
#include "runtime/errno_text.h"

#define MANAGER_PATH "/org/freedesktop/systemd1"
#define MANAGER "org.freedesktop.systemd1.Manager"
#define ARGS_MAX 8192
#define USEC_PER_SEC 1000000

/* What is asked for: "slice:prefix:name" taken apart. */
struct scope {
	char *slice, *unit;
};

static bool systemd_runs(void)
{
	struct stat st;

	return lstat("/run/systemd/system", &st) == 0 && S_ISDIR(st.st_mode);
}

static struct dbus *connect_manager(void)
{
	const char *run = getenv("XDG_RUNTIME_DIR");
	AUTO_FREE char *path = geteuid() == 0 ? kstrdup("/run/systemd/private") :
						kasprintf("%s/systemd/private", run ? run : "");

	return dbus_connect(path);
}

/* 0, or -1 with *ret_why; the strings are heap. */
static int parse_path(const char *path, const char *id, struct scope *s, char **ret_why)
{
	AUTO_FREE char *copy = path ? kstrdup(path) : kasprintf(":holdfast:%s", id);
	char *prefix = strchr(copy, ':'), *name = prefix ? strchr(prefix + 1, ':') : NULL;

	if (!name || strchr(name + 1, ':')) {
		*ret_why = kasprintf("expected cgroupsPath to be of format \"slice:prefix:name\" for systemd "
				     "cgroups, got \"%s\" instead",
				     path);
		return -1;
	}
	*prefix++ = 0;
	*name++ = 0;
	s->slice = kstrdup(copy[0] ? copy : geteuid() ? "user.slice" : "system.slice");
	s->unit = kasprintf("%s-%s.scope", prefix, name);
	return 0;
}

/* "a-b.slice" is in "a.slice": "/a.slice/a-b.slice" (man 5 systemd.slice). Heap, or NULL: no slice's name. */
static char *slice_dir(const char *slice)
{
	size_t n = strlen(slice);
	char *out = kstrdup("");

	if (!strcmp(slice, "-.slice"))
		return out;
	for (size_t i = 1; n > 6 && !strcmp(slice + n - 6, ".slice") && !strchr(slice, '/') && i <= n - 6; i++) {
		char *longer;

		if (slice[i] != '-' && i != n - 6)
			continue;
		longer = kasprintf("%s/%.*s.slice", out, (int)i, slice);
		free(out);
		out = longer;
	}
	if (out[0])
		return out;
	free(out);
	return NULL;
}

/* ---- properties: an array of (name, variant) ---- */

static void begin_property(struct writer *w, const char *name, const char *sig)
{
	dbus_push_align(w, 8);
	dbus_push_string(w, name);
	dbus_push_signature(w, sig);
}

static void push_string(struct writer *w, const char *name, const char *value)
{
	begin_property(w, name, "s");
	dbus_push_string(w, value);
}

static void push_bool(struct writer *w, const char *name, bool value)
{
	begin_property(w, name, "b");
	dbus_push_u32(w, value);
}

static void push_number(struct writer *w, const char *name, uint64_t value)
{
	begin_property(w, name, "t");
	dbus_push_u64(w, value);
}

static void push_pids(struct writer *w, pid_t pid)
{
	begin_property(w, "PIDs", "au");
	dbus_push_u32(w, 4); /* bytes */
	dbus_push_u32(w, (uint32_t)pid);
}

static void push_limits(struct writer *w, bool v2, const json_t *res)
{
	const json_t *cpu = json_object_get(res, "cpu");
	int64_t v, quota, period = 100000;

	if (cgroup_num(json_object_get(res, "memory"), "limit", &v) && v > 0)
		push_number(w, v2 ? "MemoryMax" : "MemoryLimit", (uint64_t)cgroup_host_memory(v));
	if (cgroup_num(json_object_get(res, "pids"), "limit", &v) && v > 0)
		push_number(w, "TasksMax", (uint64_t)cgroup_host_pids(v));
	if (cgroup_num(cpu, "shares", &v) && v > 1)
		push_number(w, v2 ? "CPUWeight" : "CPUShares",
			    (uint64_t)(v2 ? 1 + (MIN(v, 262144) - 2) * 9999 / 262142 : v));
	(void)cgroup_num(cpu, "period", &period); /* the default stays */
	if (cgroup_num(cpu, "quota", &quota) && quota > 0 && quota < INT64_MAX / USEC_PER_SEC && period > 0)
		push_number(w, "CPUQuotaPerSecUSec", (uint64_t)(quota * USEC_PER_SEC / period));
}

static void push_properties(struct writer *w, const struct cgroup *g, const struct scope *s,
			    const json_t *resources)
{
	struct writer len = *w;
	size_t start;

	dbus_push_u32(w, 0); /* bytes of the array: below */
	len.used = w->used - 4;
	dbus_push_align(w, 8);
	start = w->used;
	push_string(w, "Description", "holdfast container");
	push_string(w, "Slice", s->slice);
	push_bool(w, "Delegate", true);
	push_bool(w, "DefaultDependencies", false);
	push_bool(w, "MemoryAccounting", true);
	push_bool(w, "CPUAccounting", true);
	push_bool(w, g->v2 ? "IOAccounting" : "BlockIOAccounting", true);
	push_bool(w, "TasksAccounting", true);
	push_pids(w, g->holder);
	push_limits(w, g->v2, resources);
	push_u32(&len, (uint32_t)(w->used - start));
}

/* ---- calls ---- */

/* Waits for the end of the job that a call has answered with: 0, or -1 with *ret_why. */
static int wait_job(struct dbus *d, struct dbus_message *m, char **ret_why)
{
	char job[256], done[256], unit[512], result[64];
	int r;

	if (!dbus_pull_string(m, job, sizeof(job))) {
		*ret_why = kstrdup("systemd answered without a job");
		return -1;
	}
	for (;;) {
		r = dbus_read(d, m);
		if (r) {
			*ret_why = kasprintf("no word from systemd of job %s: %s", job, errno_text(-r));
			return -1;
		}
		if (m->type != DBUS_SIGNAL || strcmp(m->member, "JobRemoved") != 0)
			continue;
		(void)dbus_pull_u32(m);
		if (!dbus_pull_string(m, done, sizeof(done)) || strcmp(done, job) != 0 ||
		    !dbus_pull_string(m, unit, sizeof(unit)) || !dbus_pull_string(m, result, sizeof(result)))
			continue;
		if (!strcmp(result, "done"))
			return 0;
		*ret_why = kasprintf("error creating systemd unit `%s`: got `%s`", unit, result);
		return -1;
	}
}

static int failed(struct dbus_message *m, const char *what, int err, char **ret_why)
{
	char text[256] = "";

	if (err == -EREMOTEIO)
		(void)dbus_pull_string(m, text, sizeof(text)); /* the name alone then */
	*ret_why = err == -EREMOTEIO ? kasprintf("systemd: %s: %s: %s", what, m->error, text) :
				       kasprintf("systemd: %s: %s", what, errno_text(-err));
	return -1;
}

static int start_unit(struct dbus *d, const struct cgroup *g, const struct scope *s, const json_t *resources,
		      char **ret_why)
{
	struct dbus_message m = { 0 };
	AUTO_FREE uint8_t *buf = kzalloc(ARGS_MAX);
	struct writer w;
	int r;

	writer_init(&w, buf, ARGS_MAX);
	dbus_push_string(&w, s->unit);
	dbus_push_string(&w, "replace");
	push_properties(&w, g, s, resources);
	dbus_push_u32(&w, 0); /* no auxiliary units */
	dbus_push_align(&w, 8);
	r = dbus_call(d, MANAGER_PATH, MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", &w, &m);
	return r ? failed(&m, s->unit, r, ret_why) : wait_job(d, &m, ret_why);
}

/* Where the manager's own groups begin: "" for the system's. Heap. */
static char *manager_group(struct dbus *d)
{
	struct dbus_message m = { 0 };
	uint8_t buf[256];
	char group[1024] = "";
	struct writer w;

	writer_init(&w, buf, sizeof(buf));
	dbus_push_string(&w, MANAGER);
	dbus_push_string(&w, "ControlGroup");
	if (dbus_call(d, MANAGER_PATH, "org.freedesktop.DBus.Properties", "Get", "ss", &w, &m) == 0) {
		(void)pull_bytes(&m.body, 3); /* the variant's signature: "s" */
		if (!dbus_pull_string(&m, group, sizeof(group)) || !strcmp(group, "/"))
			group[0] = 0;
	}
	return kstrdup(group);
}

/* A child that only is there, as long as we are. */
static pid_t start_holder(void)
{
	pid_t us = getpid(), pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* can't fail with these arguments */
		while (getppid() == us)
			pause();
		_exit(0);
	}
	return pid;
}

static int start_scope(struct cgroup *g, struct scope *s, const json_t *resources, char **ret_why)
{
	AUTO_FREE char *dir = slice_dir(s->slice), *above = NULL, *path = NULL;
	struct dbus *d = dir ? connect_manager() : NULL;
	int r;

	if (!d) {
		*ret_why = dir ? kasprintf("cannot reach systemd: %s", errno_text(errno)) :
				 kasprintf("invalid slice name: %s", s->slice);
		return -1;
	}
	g->holder = start_holder();
	r = g->holder < 0 ? -1 : start_unit(d, g, s, resources, ret_why);
	if (g->holder < 0)
		*ret_why = kasprintf("cannot fork: %s", errno_text(errno));
	if (!r) {
		above = manager_group(d);
		path = kasprintf("%s%s/%s", above, dir, s->unit);
		json_decref(g->dirs);
		g->dirs = cgroup_find(path, g->v2);
		g->unit = steal_ptr(&s->unit);
	}
	dbus_close(d);
	return r;
}

int cgroup_systemd_start(struct cgroup *g, const char *path, const char *id, const json_t *resources,
			 char **ret_why)
{
	struct scope s = { 0 };
	int r;

	if (!systemd_runs()) {
		*ret_why = kstrdup("systemd not running on this host, cannot use systemd cgroups manager");
		return -1;
	}
	r = parse_path(path, id, &s, ret_why);
	if (!r)
		r = start_scope(g, &s, resources, ret_why);
	free(s.slice);
	free(s.unit);
	return r;
}

void cgroup_systemd_stop(const char *unit)
{
	struct dbus *d = connect_manager();
	struct dbus_message m = { 0 };
	uint8_t buf[1024];
	struct writer w;

	if (!d)
		return;
	writer_init(&w, buf, sizeof(buf));
	dbus_push_string(&w, unit);
	dbus_push_string(&w, "replace");
	/* A scope without processes goes by itself, so there may be none any more. Not waited for: a job of one
	 * that is just going is seldom told of, and our caller looks after the groups. */
	(void)dbus_call(d, MANAGER_PATH, MANAGER, "StopUnit", "ss", &w, &m);
	writer_init(&w, buf, sizeof(buf));
	dbus_push_string(&w, unit);
	(void)dbus_call(d, MANAGER_PATH, MANAGER, "ResetFailedUnit", "s", &w, &m); /* it seldom failed */
	dbus_close(d);
}
