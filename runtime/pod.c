// SPDX-License-Identifier: Apache-2.0
/* The launcher's side of pods; see pod.h. */
#include "runtime/pod.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const char *annotation(const struct spec *s, const char *name)
{
	return json_string_value(json_object_get(s->annotations, name));
}

/* Whose annotations these are: what each of them calls the same. */
static const struct {
	const char *type, *sandbox;
} callers[] = {
	{ "io.kubernetes.cri.container-type", "io.kubernetes.cri.sandbox-id" },
	{ "io.kubernetes.cri-o.ContainerType", "io.kubernetes.cri-o.SandboxID" },
};

/* The container's type, "sandbox" or "container"; NULL: not of a pod. */
static const char *find_type(const struct spec *s, const char **ret_sandbox)
{
	for (unsigned i = 0; i < ARRAY_SIZE(callers); i++) {
		const char *type = annotation(s, callers[i].type);

		*ret_sandbox = annotation(s, callers[i].sandbox);
		if (type)
			return type;
	}
	return NULL;
}

const char *pod_sandbox_of(const struct spec *s, const char *id)
{
	const char *sandbox, *type = find_type(s, &sandbox);

	return type && !strcmp(type, "container") && sandbox && strcmp(sandbox, id) != 0 ? sandbox : NULL;
}

bool pod_holds(const struct spec *s, unsigned index)
{
	const char *sandbox, *type = find_type(s, &sandbox);

	return type && !strcmp(type, "sandbox") && !strcmp(s->mounts[index].destination, "/dev/shm");
}

/* @parent's object @key, made when it isn't there. */
static json_t *object_in(json_t *parent, const char *key)
{
	if (!json_is_object(json_object_get(parent, key)))
		json_object_set_new(parent, key, json_object());
	return json_object_get(parent, key);
}

/* Fills in @key of @group from the annotation; its value, or 0 when there is nothing to fill in. */
static uint64_t fill_in(const struct spec *s, const char *group, const char *key, const char *name)
{
	const char *text = annotation(s, name);
	long long v = text ? strtoll(text, NULL, 10) : 0;
	json_t *resources, *g;

	if (v <= 0)
		return 0;
	resources = object_in(object_in(s->json, "linux"), "resources");
	g = object_in(resources, group);
	/* CRI gives each pause container the least of shares there is, for a process that only sleeps. */
	if (json_object_get(g, key) && strcmp(key, "shares") != 0)
		return 0;
	json_object_set_new(g, key, json_integer(v));
	return (uint64_t)v;
}

void pod_size_sandbox(struct spec *s)
{
	const char *sandbox, *type = find_type(s, &sandbox);
	uint64_t v;

	if (!type || strcmp(type, "sandbox") != 0)
		return;
	v = fill_in(s, "memory", "limit", "io.kubernetes.cri.sandbox-memory");
	s->memory_limit = v ? v : s->memory_limit;
	v = fill_in(s, "cpu", "quota", "io.kubernetes.cri.sandbox-cpu-quota");
	s->cpu_quota = v ? v : s->cpu_quota;
	v = fill_in(s, "cpu", "period", "io.kubernetes.cri.sandbox-cpu-period");
	s->cpu_period = v ? v : s->cpu_period;
	(void)fill_in(s, "cpu", "shares", "io.kubernetes.cri.sandbox-cpu-shares"); /* of the host only */
}

struct search {
	const char *sandbox;
	pid_t pid;
	char *found;
};

static void look_at(const char *root, const char *id, void *arg)
{
	AUTO_FREE char *why = NULL;
	AUTO(statedir_close) struct statedir *s = statedir_open(root, id, &why);
	json_t *st = s ? statedir_load(s, "state.json") : NULL;
	const char *of = json_string_value(json_object_get(st, "sandbox"));
	struct search *find = arg;

	if (!find->found && st && json_integer_value(json_object_get(st, "pid")) == find->pid &&
	    !strcmp(of ? of : id, find->sandbox))
		find->found = kstrdup(id);
	json_decref(st);
}

char *pod_find(const struct statedir *sandbox, pid_t pid)
{
	struct search find = { .sandbox = sandbox->id, .pid = pid };

	(void)statedir_each(sandbox->root, look_at, &find); /* nothing found is the answer then, too */
	return find.found;
}
