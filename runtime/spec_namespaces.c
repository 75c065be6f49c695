// SPDX-License-Identifier: Apache-2.0
/* linux.namespaces and linux.uidMappings, gidMappings. Texts that callers show are runc's. */
#include <limits.h>
#include <sched.h>
#include <string.h>

#include "base/alloc.h"
#include "runtime/spec.h"
#include "runtime/spec_reader.h"

#define MAX_MAPPINGS 340 /* man 7 user_namespaces */

static const struct {
	const char *type, *name;
	int flag;
} kinds[NAMESPACE_COUNT] = {
	[NAMESPACE_PID] = { "pid", "pid", CLONE_NEWPID },
	[NAMESPACE_NET] = { "network", "net", CLONE_NEWNET },
	[NAMESPACE_MNT] = { "mount", "mnt", CLONE_NEWNS },
	[NAMESPACE_IPC] = { "ipc", "ipc", CLONE_NEWIPC },
	[NAMESPACE_UTS] = { "uts", "uts", CLONE_NEWUTS },
	[NAMESPACE_USER] = { "user", "user", CLONE_NEWUSER },
	[NAMESPACE_CGROUP] = { "cgroup", "cgroup", CLONE_NEWCGROUP },
	[NAMESPACE_TIME] = { "time", "time", CLONE_NEWTIME },
};

int spec_namespace_flag(enum spec_namespace_kind kind)
{
	return kinds[kind].flag;
}

const char *spec_namespace_type(enum spec_namespace_kind kind)
{
	return kinds[kind].type;
}

static int find_kind(const char *type)
{
	for (int k = 0; type && k < NAMESPACE_COUNT; k++)
		if (!strcmp(type, kinds[k].type))
			return k;
	return -1;
}

void spec_parse_namespaces(struct spec_reader *r, const json_t *l, struct spec *s)
{
	const json_t *a = spec_get(r, l, "namespaces", "linux.namespaces", JSON_ARRAY), *o;
	size_t i;

	json_array_foreach(a, i, o) {
		const char *type = spec_get_str(r, o, "type", "linux.namespaces[].type");
		const char *path = spec_get_str(r, o, "path", "linux.namespaces[].path");
		int k = find_kind(type);

		if (k < 0) {
			AUTO_FREE char *what = kasprintf("namespace \"%s\" does not exist", type ?: "");

			spec_complain(r, "linux.namespaces[].type:", what);
			return;
		}
		if (s->namespaces[k].listed) {
			AUTO_FREE char *what = kasprintf("malformed spec file: duplicated ns \"%s\"", type);

			spec_complain(r, "linux.namespaces:", what);
			return;
		}
		s->namespaces[k].listed = true;
		s->namespaces[k].path = path && path[0] ? path : NULL;
		if (path && path[0] && path[0] != '/')
			spec_complain(r, "linux.namespaces[].path", "is not an absolute path");
	}
}

static void parse_map(struct spec_reader *r, const json_t *l, const char *key, const char *field,
		      struct spec_id_map **ret, unsigned *ret_n)
{
	const json_t *a = spec_get(r, l, key, field, JSON_ARRAY), *o;
	size_t i;

	if (json_array_size(a) > MAX_MAPPINGS) {
		spec_complain(r, field, "has too many elements");
		return;
	}
	*ret = kcalloc(json_array_size(a) + 1, sizeof(**ret));
	json_array_foreach(a, i, o) {
		struct spec_id_map *m = &(*ret)[*ret_n];

		m->container = (uint32_t)spec_get_int(r, o, "containerID", field, 0, UINT32_MAX - 1, 0);
		m->host = (uint32_t)spec_get_int(r, o, "hostID", field, 0, UINT32_MAX - 1, 0);
		m->size = (uint32_t)spec_get_int(r, o, "size", field, 1, UINT32_MAX, 0);
		if (!m->size || m->container + m->size < m->container || m->host + m->size < m->host)
			spec_complain(r, field, "has a mapping with no size or beyond the ids there are");
		(*ret_n)++;
	}
}

/* The kernel refuses ranges that overlap; so does the guest's. */
static bool overlaps(const struct spec_id_map *m, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < i; k++)
			if ((m[i].container < m[k].container + m[k].size &&
			     m[k].container < m[i].container + m[i].size) ||
			    (m[i].host < m[k].host + m[k].size && m[k].host < m[i].host + m[i].size))
				return true;
	return false;
}

void spec_parse_mappings(struct spec_reader *r, const json_t *l, struct spec *s)
{
	bool user = s->namespaces[NAMESPACE_USER].listed;

	parse_map(r, l, "uidMappings", "linux.uidMappings", &s->uid_map, &s->nuid_map);
	parse_map(r, l, "gidMappings", "linux.gidMappings", &s->gid_map, &s->ngid_map);
	if (r->why)
		return;
	if ((s->nuid_map || s->ngid_map) && !user)
		spec_complain(r, "linux.uidMappings:",
			      "user namespace mappings specified, but user namespace isn't enabled in the config");
	else if (user && !s->namespaces[NAMESPACE_USER].path && (!s->nuid_map || !s->ngid_map))
		spec_complain(r, "linux.uidMappings:", "user namespaces enabled, but no mappings found");
	else if (overlaps(s->uid_map, s->nuid_map))
		spec_complain(r, "linux.uidMappings", "has ranges that overlap");
	else if (overlaps(s->gid_map, s->ngid_map))
		spec_complain(r, "linux.gidMappings", "has ranges that overlap");
}
