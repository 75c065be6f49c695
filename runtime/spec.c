// SPDX-License-Identifier: Apache-2.0
/* config.json as a whole; its larger parts have files of their own (spec_process.c, spec_linux.c). */
#include "runtime/spec.h"

#include <string.h>

#include "base/alloc.h"
#include "runtime/mount_options.h"
#include "runtime/spec_reader.h"

/* ---- the rest of the document ---- */

static void parse_mounts(struct spec_reader *r, const json_t *root, struct spec *s)
{
	const json_t *a = spec_get(r, root, "mounts", "mounts", JSON_ARRAY);
	size_t n = json_array_size(a);

	if (n > SPEC_MAX_ITEMS) {
		spec_complain(r, "mounts", "has too many elements");
		return;
	}
	s->mounts = kcalloc(n + 1, sizeof(s->mounts[0]));
	for (size_t i = 0; i < n; i++) {
		const json_t *o = json_array_get(a, i);
		struct spec_mount *m = &s->mounts[i];

		m->destination =
			spec_get_str(r, o, "destination", "mounts[].destination");
		m->type = spec_get_str(r, o, "type", "mounts[].type");
		m->source = spec_get_str(r, o, "source", "mounts[].source");
		m->options =
			spec_get_strv(r, o, "options", "mounts[].options", &m->noptions);
		if (!m->destination || !m->destination[0])
			spec_complain(r, "mounts[].destination", "is missing");
		if (mount_options_refused(m) || json_array_size(json_object_get(o, "uidMappings")) ||
		    json_array_size(json_object_get(o, "gidMappings")))
			spec_complain(r, "mounts[].options:",
				      "id-mapped mounts (idmap, ridmap, uidMappings) are not supported");
		s->nmounts++;
	}
}

static void parse_document(struct spec_reader *r, struct spec *s)
{
	const json_t *root = spec_get(r, s->json, "root", "root", JSON_OBJECT);
	const json_t *process = spec_get(r, s->json, "process", "process", JSON_OBJECT);

	s->oci_version = spec_get_str(r, s->json, "ociVersion", "ociVersion");
	if (!s->oci_version)
		spec_complain(r, "ociVersion", "is missing");
	else if (strncmp(s->oci_version, "1.", 2) != 0)
		spec_complain(r, "ociVersion", "is not 1.x");
	if (!root)
		spec_complain(r, "root", "is missing");
	s->root_path = spec_get_str(r, root, "path", "root.path");
	if (root && (!s->root_path || !s->root_path[0]))
		spec_complain(r, "root.path", "is missing");
	s->root_readonly = spec_get_bool(r, root, "readonly", "root.readonly");
	s->hostname = spec_get_str(r, s->json, "hostname", "hostname");
	if (s->hostname && strlen(s->hostname) > 64)
		spec_complain(r, "hostname", "is longer than 64 bytes");
	s->domainname = spec_get_str(r, s->json, "domainname", "domainname");
	if (s->domainname && strlen(s->domainname) > 64)
		spec_complain(r, "domainname", "is longer than 64 bytes");
	if (process)
		spec_parse_process_fields(r, process, &s->process);
	else
		spec_complain(r, "process", "is missing");
	parse_mounts(r, s->json, s);
	spec_parse_linux(r, s);
	spec_parse_hooks(r, spec_get(r, s->json, "hooks", "hooks", JSON_OBJECT), &s->hooks);
	s->annotations = json_object_get(s->json, "annotations");
}

typedef void (*parse_fn)(struct spec_reader *r, struct spec *s);

static struct spec *parse_with(const char *text, size_t len, const char *name,
			       parse_fn fn, char **ret_why)
{
	struct spec_reader r = { .file = name };
	struct spec *s;
	json_t *json = spec_json_parse(text, len, name, ret_why);

	if (!json)
		return NULL;
	s = kzalloc(sizeof(*s));
	s->json = json;
	if (json_is_object(json))
		fn(&r, s);
	else
		spec_complain(&r, "the document", "is not an object");
	if (r.why) {
		*ret_why = r.why;
		spec_free(s);
		return NULL;
	}
	return s;
}

struct spec *spec_parse(const char *text, size_t len, const char *name, char **ret_why)
{
	return parse_with(text, len, name, parse_document, ret_why);
}

static void parse_process_document(struct spec_reader *r, struct spec *s)
{
	spec_parse_process_fields(r, s->json, &s->process);
}

struct spec *spec_parse_process(const char *text, size_t len, const char *name,
				char **ret_why)
{
	return parse_with(text, len, name, parse_process_document, ret_why);
}

struct spec *spec_load(const char *bundle, char **ret_why)
{
	AUTO_FREE char *path = kasprintf("%s/config.json", bundle);
	size_t len;
	AUTO_FREE char *text = spec_json_read(path, &len, ret_why);

	return text ? spec_parse(text, len, path, ret_why) : NULL;
}

void spec_annotate(struct spec *s, const char *name, const char *value)
{
	if (!s->annotations) {
		json_object_set_new(s->json, "annotations", json_object());
		s->annotations = json_object_get(s->json, "annotations");
	}
	json_object_set_new(s->annotations, name, json_string(value));
}

void spec_free(struct spec *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->nmounts; i++)
		free(s->mounts[i].options);
	free(s->mounts);
	spec_free_process_fields(&s->process);
	spec_free_linux(s);
	spec_hooks_fini(&s->hooks);
	json_decref(s->json);
	free(s);
}
