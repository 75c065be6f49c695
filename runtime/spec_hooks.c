// SPDX-License-Identifier: Apache-2.0
/* The hooks object of config.json. */
#include <limits.h>

#include "base/alloc.h"
#include "runtime/spec.h"
#include "runtime/spec_reader.h"

static const struct {
	const char *key, *field;
} kinds[HOOK_COUNT] = {
	[HOOK_PRESTART] = { "prestart", "hooks.prestart[]" },
	[HOOK_CREATE_RUNTIME] = { "createRuntime", "hooks.createRuntime[]" },
	[HOOK_CREATE_CONTAINER] = { "createContainer", "hooks.createContainer[]" },
	[HOOK_START_CONTAINER] = { "startContainer", "hooks.startContainer[]" },
	[HOOK_POSTSTART] = { "poststart", "hooks.poststart[]" },
	[HOOK_POSTSTOP] = { "poststop", "hooks.poststop[]" },
};

const char *spec_hook_name(enum spec_hook_kind kind)
{
	return kinds[kind].key;
}

static void parse_hook(struct spec_reader *r, const json_t *o, const char *field, struct spec_hook *h)
{
	AUTO_FREE char *path = kasprintf("%s.path", field);
	AUTO_FREE char *args = kasprintf("%s.args", field);
	AUTO_FREE char *env = kasprintf("%s.env", field);
	AUTO_FREE char *timeout = kasprintf("%s.timeout", field);

	if (!json_is_object(o)) {
		spec_complain(r, field, "has an element that is not an object");
		return;
	}
	h->path = spec_get_str(r, o, "path", path);
	h->args = spec_get_strv(r, o, "args", args, &h->nargs);
	h->has_env = json_is_array(json_object_get(o, "env"));
	h->env = spec_get_strv(r, o, "env", env, &h->nenv);
	h->timeout = (int)spec_get_int(r, o, "timeout", timeout, 1, INT_MAX / 1000, 0);
	if (!h->path)
		spec_complain(r, path, "is missing");
	else if (h->path[0] != '/')
		spec_complain(r, path, "is not an absolute path");
}

void spec_parse_hooks(struct spec_reader *r, const json_t *hooks, struct spec_hooks *ret)
{
	for (unsigned k = 0; k < HOOK_COUNT; k++) {
		const json_t *a = spec_get(r, hooks, kinds[k].key, kinds[k].field, JSON_ARRAY);
		size_t n = json_array_size(a);

		if (n > SPEC_MAX_ITEMS) {
			spec_complain(r, kinds[k].field, "has too many elements");
			return;
		}
		ret->list[k].v = kcalloc(n + 1, sizeof(struct spec_hook));
		for (size_t i = 0; i < n; i++)
			parse_hook(r, json_array_get(a, i), kinds[k].field,
				   &ret->list[k].v[ret->list[k].n++]);
	}
}

int spec_load_hooks(const json_t *hooks, struct spec_hooks *ret)
{
	struct spec_reader r = { .file = "hooks" };

	spec_parse_hooks(&r, hooks, ret);
	if (!r.why)
		return 0;
	free(r.why);
	return -1;
}

void spec_hooks_fini(struct spec_hooks *h)
{
	for (unsigned k = 0; k < HOOK_COUNT; k++) {
		for (unsigned i = 0; i < h->list[k].n; i++) {
			free(h->list[k].v[i].args);
			free(h->list[k].v[i].env);
		}
		free(h->list[k].v);
		h->list[k].v = NULL;
		h->list[k].n = 0;
	}
}
