// SPDX-License-Identifier: Apache-2.0
/* Typed access to fields of config.json; see spec_reader.h. */
#include "runtime/spec_reader.h"

#include <string.h>

#include "base/alloc.h"
#include "base/size.h"
#include "runtime/spec.h"

void spec_complain(struct spec_reader *r, const char *field, const char *what)
{
	if (!r->why)
		r->why = kasprintf("%s: %s %s", r->file, field, what);
}

const json_t *spec_get(struct spec_reader *r, const json_t *o, const char *key,
		       const char *field, json_type type)
{
	const json_t *v = json_object_get(o, key);

	if (!v || json_is_null(v))
		return NULL;
	if (json_typeof(v) == type)
		return v;
	if (type == JSON_TRUE && json_is_boolean(v))
		return v;
	spec_complain(r, field,
		      type == JSON_OBJECT    ? "is not an object"
		      : type == JSON_ARRAY   ? "is not an array"
		      : type == JSON_STRING  ? "is not a string"
		      : type == JSON_INTEGER ? "is not an integer"
					     : "is not a boolean");
	return NULL;
}

const char *spec_get_str(struct spec_reader *r, const json_t *o, const char *key,
			 const char *field)
{
	const json_t *v = spec_get(r, o, key, field, JSON_STRING);

	if (!v)
		return NULL;
	if (strlen(json_string_value(v)) != json_string_length(v)) {
		spec_complain(r, field, "contains a NUL byte");
		return NULL;
	}
	return json_string_value(v);
}

bool spec_get_bool(struct spec_reader *r, const json_t *o, const char *key,
		   const char *field)
{
	return json_is_true(spec_get(r, o, key, field, JSON_TRUE));
}

/* An integer within [min, max]; @dflt when absent. */
int64_t spec_get_int(struct spec_reader *r, const json_t *o, const char *key,
		     const char *field, int64_t min, int64_t max, int64_t dflt)
{
	const json_t *v = spec_get(r, o, key, field, JSON_INTEGER);
	int64_t n;

	if (!v)
		return dflt;
	n = json_integer_value(v);
	if (n < min || n > max) {
		spec_complain(r, field, "is out of range");
		return dflt;
	}
	return n;
}

/* An array of strings as a NULL-terminated heap vector. */
const char **spec_get_strv(struct spec_reader *r, const json_t *o, const char *key,
			   const char *field, unsigned *ret_n)
{
	const json_t *v = spec_get(r, o, key, field, JSON_ARRAY);
	size_t n = json_array_size(v);
	const char **out = kcalloc(n + 1, sizeof(*out));

	*ret_n = 0;
	if (n > SPEC_MAX_ITEMS * 16) {
		spec_complain(r, field, "has too many elements");
		return out;
	}
	for (size_t i = 0; i < n; i++) {
		const json_t *s = json_array_get(v, i);

		if (!json_is_string(s) ||
		    strlen(json_string_value(s)) != json_string_length(s)) {
			spec_complain(r, field,
				      "has an element that is not a plain string");
			return out;
		}
		out[i] = json_string_value(s);
	}
	*ret_n = (unsigned)n;
	return out;
}
