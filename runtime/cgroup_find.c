// SPDX-License-Identifier: Apache-2.0
/*
 * Where control groups are on this host: /proc/self/mountinfo names the hierarchies, /proc/self/cgroup the
 * caller's own place in each. A path of the spec that doesn't begin with / is below that place (man 7
 * cgroups; runc does the same), which is what makes containers in containers work.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/cgroup_priv.h"
#include "runtime/errno_text.h"

#define CGROUP_ROOT "/sys/fs/cgroup"

static const char *const v1_controllers[] = {
	"cpu",	   "cpuacct", "cpuset",	 "memory",     "pids", "blkio", "devices",
	"freezer", "hugetlb", "net_cls", "net_prio", "perf_event", "rdma", "name=systemd",
};

bool cgroup_host_is_v2(void)
{
	struct statfs st;

	return statfs(CGROUP_ROOT, &st) == 0 && st.f_type == CGROUP2_SUPER_MAGIC;
}

/* A line of /proc/self/mountinfo, in place: the mount's root, mount point and super block options. */
static bool parse_mount(char *line, char **root, char **point, char **type, char **options)
{
	char *save = NULL, *sep = strstr(line, " - ");
	char *f[5] = { NULL };

	if (!sep)
		return false;
	*sep = 0;
	for (int i = 0; i < 5; i++)
		f[i] = strtok_r(i ? NULL : line, " ", &save);
	*root = f[3];
	*point = f[4];
	*type = strtok_r(sep + 3, " ", &save);
	(void)strtok_r(NULL, " ", &save); /* the source */
	*options = strtok_r(NULL, " \n", &save);
	return *point && *type && *options;
}

static bool in_list(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = list; p; p = strchr(p, ',')) {
		p += *p == ',';
		if (!strncmp(p, name, n) && (p[n] == ',' || !p[n]))
			return true;
	}
	return false;
}

/* The caller's own group in the hierarchy of @controller ("": v2's). Heap, or NULL. */
static char *own_group(const char *controller)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char *line = NULL, *ret = NULL;
	size_t cap = 0;

	while (f && !ret && getline(&line, &cap, f) > 0) {
		char *list = strchr(line, ':'), *path = list ? strchr(list + 1, ':') : NULL;

		if (!path)
			continue;
		*path++ = 0;
		path[strcspn(path, "\n")] = 0;
		if (controller[0] ? in_list(list + 1, controller) : !list[1])
			ret = kstrdup(path);
	}
	free(line);
	if (f)
		fclose(f);
	return ret;
}

/* The directory of @path in a hierarchy. Heap, or NULL: the caller's own place can't be seen from here. */
static char *group_dir(const char *point, const char *root, const char *controller, const char *path,
		       bool v2)
{
	AUTO_FREE char *own = NULL;
	const char *below;
	size_t n = strcmp(root, "/") ? strlen(root) : 0;

	if (path[0] == '/')
		return kasprintf("%s%s", point, path);
	own = own_group(controller);
	if (!own || strncmp(own, root, n) != 0)
		return NULL;
	below = own + n;
	/* With v2 our own group has members (us), so no controller can be given to groups below it. */
	if (v2 && strrchr(own, '/'))
		*strrchr(own, '/') = 0;
	return kasprintf("%s%s/%s", point, strcmp(below, "/") ? below : "", path);
}

static void add_dir(json_t *dirs, const char *controller, const char *point, const char *root,
		    const char *path, bool v2)
{
	AUTO_FREE char *dir = group_dir(point, root, controller, path, v2);

	if (dir && !json_object_get(dirs, controller))
		json_object_set_new(dirs, controller, json_string(dir));
}

/* ".." of a hostile or careless spec leads nowhere. */
static char *clean(const char *path)
{
	AUTO_FREE char *copy = kstrdup(path);
	char *save = NULL, *out = kstrdup(path[0] == '/' ? "/" : "");

	for (char *p = strtok_r(copy, "/", &save); p; p = strtok_r(NULL, "/", &save)) {
		char *longer;

		if (!strcmp(p, ".") || !strcmp(p, ".."))
			continue;
		longer = kasprintf("%s%s%s", out, out[0] && strcmp(out, "/") ? "/" : "", p);
		free(out);
		out = longer;
	}
	return out;
}

json_t *cgroup_find(const char *path, bool v2)
{
	AUTO_FREE char *wanted = clean(path);
	FILE *f = fopen("/proc/self/mountinfo", "re");
	json_t *dirs = json_object();
	char *line = NULL, *root, *point, *type, *options;
	size_t cap = 0;

	while (f && getline(&line, &cap, f) > 0) {
		if (!parse_mount(line, &root, &point, &type, &options) ||
		    strncmp(point, CGROUP_ROOT, strlen(CGROUP_ROOT)) != 0)
			continue;
		/* in hybrid mode the v2 hierarchy is one more, without the controllers */
		if (!strcmp(type, "cgroup2"))
			add_dir(dirs, "", point, root, wanted, v2);
		for (unsigned i = 0; !v2 && !strcmp(type, "cgroup") && i < ARRAY_SIZE(v1_controllers); i++)
			if (in_list(options, v1_controllers[i]))
				add_dir(dirs, v1_controllers[i], point, root, wanted, false);
	}
	free(line);
	if (f)
		fclose(f);
	return dirs;
}

/* ---- files ---- */

int cgroup_write(const char *dir, const char *file, const char *text)
{
	AUTO_FREE char *path = dir ? kasprintf("%s/%s", dir, file) : NULL;
	AUTO_CLOSE int fd = path ? open(path, O_WRONLY | O_CLOEXEC) : -1;

	if (!path)
		return -ENOENT;
	return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int cgroup_put(const char *dir, const char *file, const char *text, char **ret_why)
{
	int r = cgroup_write(dir, file, text);

	if (!r)
		return 0;
	*ret_why = dir ? kasprintf("failed to write \"%s\": write %s/%s: %s", text, dir, file, errno_text(-r)) :
			 kasprintf("cannot set %s: the host has no such controller", file);
	return -1;
}

char *cgroup_read(const char *dir, const char *file)
{
	AUTO_FREE char *path = dir ? kasprintf("%s/%s", dir, file) : NULL;
	AUTO_CLOSE int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char *buf = NULL;
	size_t len = 0;
	ssize_t n = -1;

	if (fd < 0)
		return NULL;
	do {
		buf = krealloc_array(buf, len + 4097, 1);
		n = read(fd, buf + len, 4096);
		if (n > 0)
			len += (size_t)n;
	} while (n > 0);
	buf[len] = 0;
	return buf;
}

uint64_t cgroup_read_u64(const char *dir, const char *file, uint64_t dflt)
{
	AUTO_FREE char *s = cgroup_read(dir, file);

	if (!s || s[0] < '0' || s[0] > '9')
		return s && !strncmp(s, "max", 3) ? UINT64_MAX : dflt;
	return strtoull(s, NULL, 10);
}

uint64_t cgroup_read_key(const char *dir, const char *file, const char *key)
{
	AUTO_FREE char *s = cgroup_read(dir, file);
	size_t n = strlen(key);
	uint64_t v = 0;

	for (char *p = s; p && *p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (!strncmp(p, key, n) && p[n] == ' ')
			v = strtoull(p + n + 1, NULL, 10);
	}
	return v;
}
