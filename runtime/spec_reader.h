// SPDX-License-Identifier: Apache-2.0
/*
 * Reading config.json: typed access to fields, which carries the first complaint along, so that the
 * parsers (runtime/spec*.c) read as lists of fields. Every message names the field by its path.
 */
#ifndef RUNTIME_SPEC_READER_H
#define RUNTIME_SPEC_READER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct spec;
struct spec_process;
struct spec_hooks;

struct spec_reader {
	const char *file;
	char *why; /* heap; first complaint */
};

/* "FILE: FIELD WHAT", unless there was a complaint before. */
void spec_complain(struct spec_reader *r, const char *field, const char *what);
/* Each: the value of @key in @o (which may be NULL), a complaint naming @field when its type is another. An
 * absent one is NULL, false, @dflt, or an empty vector. Strings are borrowed, vectors the caller's. */
const json_t *spec_get(struct spec_reader *r, const json_t *o, const char *key, const char *field,
		       json_type type);
const char *spec_get_str(struct spec_reader *r, const json_t *o, const char *key, const char *field);
bool spec_get_bool(struct spec_reader *r, const json_t *o, const char *key, const char *field);
int64_t spec_get_int(struct spec_reader *r, const json_t *o, const char *key, const char *field,
		     int64_t min, int64_t max, int64_t dflt);
/* NULL-terminated. */
const char **spec_get_strv(struct spec_reader *r, const json_t *o, const char *key, const char *field,
			   unsigned *ret_n);

/* The parsers, each in the file of its name. */
void spec_parse_process_fields(struct spec_reader *r, const json_t *p, struct spec_process *ret);
void spec_free_process_fields(struct spec_process *p);
void spec_parse_linux(struct spec_reader *r, struct spec *s);
void spec_free_linux(struct spec *s);
void spec_parse_namespaces(struct spec_reader *r, const json_t *l, struct spec *s);
void spec_parse_mappings(struct spec_reader *r, const json_t *l, struct spec *s);
void spec_parse_sched(struct spec_reader *r, const json_t *p, struct spec_process *ret);
void spec_parse_hooks(struct spec_reader *r, const json_t *hooks, struct spec_hooks *ret);

#endif
