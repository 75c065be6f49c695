// SPDX-License-Identifier: Apache-2.0
/*
 * The linux object of config.json. What matters and can't be had is refused by name; texts that
 * callers show are runc's.
 */
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "runtime/spec.h"
#include "runtime/spec_reader.h"

static void parse_resources(struct spec_reader *r, const json_t *l, struct spec *s)
{
	const json_t *res = spec_get(r, l, "resources", "linux.resources", JSON_OBJECT);
	const json_t *mem = spec_get(r, res, "memory", "linux.resources.memory", JSON_OBJECT);
	const json_t *cpu = spec_get(r, res, "cpu", "linux.resources.cpu", JSON_OBJECT);
	const json_t *pids = spec_get(r, res, "pids", "linux.resources.pids", JSON_OBJECT);
	int64_t v;

	(void)spec_get_str(r, l, "cgroupsPath", "linux.cgroupsPath"); /* its type is checked */
	v = spec_get_int(r, mem, "limit", "linux.resources.memory.limit", -1, INT64_MAX, 0);
	s->memory_limit = v > 0 ? (uint64_t)v : 0;
	v = spec_get_int(r, cpu, "quota", "linux.resources.cpu.quota", -1, INT64_MAX, 0);
	s->cpu_quota = v > 0 ? (uint64_t)v : 0;
	v = spec_get_int(r, cpu, "period", "linux.resources.cpu.period", 0, INT64_MAX, 100000);
	s->cpu_period = v > 0 ? (uint64_t)v : 100000;
	v = spec_get_int(r, pids, "limit", "linux.resources.pids.limit", INT64_MIN, INT64_MAX, 0);
	s->pids_limit = v > 0 ? (uint64_t)v : 0;
}

static const struct {
	const char *type;
	uint32_t mode;
} device_types[] = { { "c", S_IFCHR }, { "u", S_IFCHR }, { "b", S_IFBLK }, { "p", S_IFIFO } };

static void parse_device(struct spec_reader *r, const json_t *o, struct spec_device *d)
{
	const char *type = spec_get_str(r, o, "type", "linux.devices[].type");

	d->path = spec_get_str(r, o, "path", "linux.devices[].path");
	d->mode = 0;
	for (unsigned i = 0; type && i < ARRAY_SIZE(device_types); i++)
		if (!strcmp(type, device_types[i].type))
			d->mode = device_types[i].mode;
	if (!d->mode)
		spec_complain(r, "linux.devices[].type", "is none of c, u, b, p");
	d->mode |= (uint32_t)spec_get_int(r, o, "fileMode", "linux.devices[].fileMode", 0, UINT32_MAX,
					  0666) & 07777;
	d->major = (unsigned)spec_get_int(r, o, "major", "linux.devices[].major", 0, UINT32_MAX, 0);
	d->minor = (unsigned)spec_get_int(r, o, "minor", "linux.devices[].minor", 0, UINT32_MAX, 0);
	d->uid = (uid_t)spec_get_int(r, o, "uid", "linux.devices[].uid", 0, UINT32_MAX - 1, 0);
	d->gid = (gid_t)spec_get_int(r, o, "gid", "linux.devices[].gid", 0, UINT32_MAX - 1, 0);
	if (!d->path || d->path[0] != '/')
		spec_complain(r, "linux.devices[].path", "is not an absolute path");
}

static void parse_devices(struct spec_reader *r, const json_t *l, struct spec *s)
{
	const json_t *a = spec_get(r, l, "devices", "linux.devices", JSON_ARRAY), *o;
	size_t i;

	if (json_array_size(a) > SPEC_MAX_ITEMS) {
		spec_complain(r, "linux.devices", "has too many elements");
		return;
	}
	s->devices = kcalloc(json_array_size(a) + 1, sizeof(s->devices[0]));
	json_array_foreach(a, i, o)
		parse_device(r, o, &s->devices[s->ndevices++]);
}

/* runc's rule: what belongs to a namespace that the container has for itself. */
static bool sysctl_allowed(const struct spec *s, const char *name)
{
	static const char *const ipc[] = {
		"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem", "kernel.shmall",
		"kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
	};
	AUTO_FREE char *n = kstrdup(name);

	for (char *c = n; *c; c++)
		if (*c == '/')
			*c = '.';
	if (!strncmp(n, "fs.mqueue.", 10))
		return s->namespaces[NAMESPACE_IPC].listed;
	for (unsigned i = 0; i < ARRAY_SIZE(ipc); i++)
		if (!strcmp(n, ipc[i]))
			return s->namespaces[NAMESPACE_IPC].listed;
	if (!strncmp(n, "net.", 4))
		return s->namespaces[NAMESPACE_NET].listed;
	return !strcmp(n, "kernel.domainname") && s->namespaces[NAMESPACE_UTS].listed;
}

static void parse_sysctl(struct spec_reader *r, const json_t *l, struct spec *s)
{
	const json_t *o = spec_get(r, l, "sysctl", "linux.sysctl", JSON_OBJECT), *v;
	const char *name;

	json_object_foreach((json_t *)(uintptr_t)o, name, v) {
		AUTO_FREE char *what = kasprintf(
			"sysctl \"%s\" is not %s", name,
			!json_is_string(v) ? "a string" : "in a separate kernel namespace");

		if (!json_is_string(v) || !sysctl_allowed(s, name))
			spec_complain(r, "linux.sysctl:", what);
	}
	s->sysctl = o;
}

static void parse_propagation(struct spec_reader *r, const json_t *l, struct spec *s)
{
	static const struct {
		const char *name;
		unsigned long flags;
	} names[] = {
		{ "private", MS_PRIVATE },	     { "rprivate", MS_PRIVATE | MS_REC },
		{ "slave", MS_SLAVE },		     { "rslave", MS_SLAVE | MS_REC },
		{ "shared", MS_SHARED },	     { "rshared", MS_SHARED | MS_REC },
		{ "unbindable", MS_UNBINDABLE }, { "runbindable", MS_UNBINDABLE | MS_REC },
	};
	const char *p = spec_get_str(r, l, "rootfsPropagation", "linux.rootfsPropagation");

	if (!p || !p[0])
		return;
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(p, names[i].name))
			s->rootfs_propagation = names[i].flags;
	if (!s->rootfs_propagation) {
		AUTO_FREE char *what = kasprintf("rootfsPropagation=%s is not supported", p);

		spec_complain(r, "linux.rootfsPropagation:", what);
	}
}

static void parse_personality(struct spec_reader *r, const json_t *l, struct spec *s)
{
	const json_t *o = spec_get(r, l, "personality", "linux.personality", JSON_OBJECT);
	const char *domain = spec_get_str(r, o, "domain", "linux.personality.domain");

	if (!o)
		return;
	if (json_array_size(json_object_get(o, "flags")))
		spec_complain(r, "linux.personality.flags:", "unsupported personality flag");
	else if (domain && !strcmp(domain, "LINUX32"))
		s->personality = 0x0008; /* PER_LINUX32 */
	else if (!domain || strcmp(domain, "LINUX") != 0)
		spec_complain(r, "linux.personality.domain:", "invalid personality domain");
}

/* Present and not empty. */
static bool asked_for(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_object_size(v) || json_array_size(v) ||
	       (json_is_string(v) && json_string_length(v));
}

static void refuse_unsupported(struct spec_reader *r, const json_t *l, const struct spec *s)
{
	static const struct {
		const char *key, *field, *why;
	} fields[] = {
		{ "intelRdt", "linux.intelRdt:",
		  "intelRdt is specified in config, but Intel RDT is not supported or enabled" },
		{ "netDevices", "linux.netDevices",
		  "is not supported: host devices can't be moved into a guest" },
		{ "memoryPolicy", "linux.memoryPolicy", "is not supported: a guest has one memory node" },
		{ "timeOffsets", "linux.timeOffsets",
		  "is not supported: the guest's kernel has no time namespaces" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(fields); i++)
		if (asked_for(l, fields[i].key))
			spec_complain(r, fields[i].field, fields[i].why);
	if (s->namespaces[NAMESPACE_TIME].path)
		spec_complain(r, "linux.namespaces:", "a time namespace by path is not supported");
}

void spec_parse_linux(struct spec_reader *r, struct spec *s)
{
	const json_t *l = spec_get(r, s->json, "linux", "linux", JSON_OBJECT);

	s->masked_paths =
		spec_get_strv(r, l, "maskedPaths", "linux.maskedPaths", &s->nmasked);
	s->readonly_paths =
		spec_get_strv(r, l, "readonlyPaths", "linux.readonlyPaths", &s->nreadonly);
	parse_resources(r, l, s);
	spec_parse_namespaces(r, l, s);
	spec_parse_mappings(r, l, s);
	parse_devices(r, l, s);
	parse_sysctl(r, l, s);
	parse_propagation(r, l, s);
	parse_personality(r, l, s);
	(void)spec_get_str(r, l, "mountLabel", "linux.mountLabel"); /* of SELinux, which guests haven't */
	refuse_unsupported(r, l, s);
}

void spec_free_linux(struct spec *s)
{
	free(s->masked_paths);
	free(s->readonly_paths);
	free(s->devices);
	free(s->uid_map);
	free(s->gid_map);
}
