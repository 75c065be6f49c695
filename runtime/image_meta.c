// SPDX-License-Identifier: Apache-2.0
/* See image_meta.h. */
#include "runtime/image_meta.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "runtime/cli.h"
#include "runtime/container.h"

/* ---- numbers ---- */

void image_id_hex(const uint8_t id[IMAGE_ID_LEN], char buf[2 * IMAGE_ID_LEN + 1])
{
	for (int i = 0; i < IMAGE_ID_LEN; i++)
		snprintf(buf + 2 * i, 3, "%02x", id[i]);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool image_id_parse(const char *hex, uint8_t id[IMAGE_ID_LEN])
{
	if (!hex || strlen(hex) != 2 * IMAGE_ID_LEN)
		return false;
	for (int i = 0; i < IMAGE_ID_LEN; i++) {
		int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return false;
		id[i] = (uint8_t)(hi << 4 | lo);
	}
	return true;
}

/* ---- making ---- */

static json_t *hex_list(const uint8_t (*ids)[IMAGE_ID_LEN], unsigned n)
{
	json_t *list = json_array();
	char hex[2 * IMAGE_ID_LEN + 1];

	for (unsigned i = 0; i < n; i++) {
		image_id_hex(ids[i], hex);
		json_array_append_new(list, json_string(hex));
	}
	return list;
}

/* Where the host's files are in the guest: what a restoring sandbox must have as well. */
static json_t *attach_points(const struct boot *b)
{
	json_t *list = json_array(), *e;
	size_t i;

	json_array_foreach(json_object_get(b->json, "attach"), i, e) {
		json_int_t mount = json_integer_value(json_object_get(e, "mount"));

		json_array_append_new(list,
				      json_string(mount < 0 ? "/" : b->spec->mounts[mount].destination));
	}
	return list;
}

json_t *image_meta_make(const struct boot *boot, enum state_purpose purpose, const struct state_pages *p,
			const struct pages_written *w, json_t *extra)
{
	const uint8_t (*ids)[IMAGE_ID_LEN];
	unsigned n = pages_parents(p, &ids);
	char cpu[CPU_NAMES_MAX], sum[17];
	struct timespec now;

	cpu_features(cpu, sizeof(cpu));
	snprintf(sum, sizeof(sum), "%016llx", (unsigned long long)w->checksum);
	clock_gettime(CLOCK_REALTIME, &now); /* host: clock_gettime */
	return json_pack("{s:s, s:s, s:s, s:I, s:i, s:s, s:o, s:{s:I, s:s}, s:o, s:O, s:O*, s:O*}",
			 "holdfast", HOLDFAST_VERSION, "purpose",
			 purpose == STATE_FORK ? "fork" : "wake", "container", boot->id, "time",
			 (json_int_t)now.tv_sec, "time_ns", (int)now.tv_nsec, "cpu", cpu, "parents",
			 hex_list(ids, n), "pages", "bytes", (json_int_t)w->bytes, "xxh3", sum, "attach",
			 attach_points(boot), "config", boot->spec->json, "overlay",
			 json_object_get(boot->json, "overlay"), "extra", extra);
}

/* ---- reading ---- */

static bool parse_parents(struct image_meta *m)
{
	json_t *list = json_object_get(m->json, "parents"), *e;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > PAGES_PARENTS_MAX)
		return false;
	json_array_foreach(list, i, e)
		if (!image_id_parse(json_string_value(e), m->parents[m->nparents++]))
			return false;
	return true;
}

bool image_meta_plain(const json_t *v)
{
	const char *s = json_string_value(v);

	while (s && *s >= ' ' && *s <= '~')
		s++;
	return s && !*s;
}

static bool parse_fields(struct image_meta *m)
{
	const char *purpose = json_string_value(json_object_get(m->json, "purpose"));
	json_t *pages = json_object_get(m->json, "pages");
	const char *sum = json_string_value(json_object_get(pages, "xxh3"));

	json_t *overlay = json_object_get(m->json, "overlay");

	if (!purpose || !sum || !image_meta_plain(json_object_get(m->json, "cpu")) ||
	    (overlay && !image_meta_plain(overlay)) ||
	    !json_is_string(json_object_get(m->json, "holdfast")) ||
	    !json_is_array(json_object_get(m->json, "attach")) ||
	    json_integer_value(json_object_get(pages, "bytes")) < 0)
		return false;
	m->purpose = !strcmp(purpose, "fork") ? STATE_FORK : STATE_WAKE;
	m->page_bytes = (uint64_t)json_integer_value(json_object_get(pages, "bytes"));
	m->page_sum = strtoull(sum, NULL, 16);
	return parse_parents(m);
}

struct image_meta *image_meta_parse(const struct image_section *s, char **ret_why)
{
	struct image_meta *m = kzalloc(sizeof(*m));

	m->json = json_loadb(s->buf, s->len, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(m->json) && parse_fields(m))
		return m;
	*ret_why = kstrdup("its description is malformed");
	image_meta_free(m);
	return NULL;
}

void image_meta_free(struct image_meta *m)
{
	if (!m)
		return;
	json_decref(m->json);
	free(m);
}

unsigned *image_meta_attaches(const struct image_meta *m, const struct boot *b, unsigned *ret_n, char **ret_why)
{
	json_t *want = json_object_get(m->json, "attach"), *have = attach_points(b), *w, *h;
	size_t n = json_array_size(want), i, k;
	unsigned *v = kcalloc(n ? n : 1, sizeof(*v));

	json_array_foreach(want, i, w) {
		v[i] = UINT_MAX;
		json_array_foreach(have, k, h)
			if (json_equal(w, h))
				v[i] = (unsigned)k;
		if (v[i] == UINT_MAX && !*ret_why)
			*ret_why = kasprintf("the image was made with a bind mount on %s, and config.json has none",
					     image_meta_plain(w) ? json_string_value(w) : "?");
	}
	json_decref(have);
	*ret_n = (unsigned)n;
	if (!*ret_why)
		return v;
	free(v);
	return NULL;
}

int image_meta_check(const struct image_meta *m, const struct boot *b, char **ret_why)
{
	char lacking[CPU_NAMES_MAX];
	const char *overlay = json_string_value(json_object_get(m->json, "overlay"));
	const char *ours = json_string_value(json_object_get(b->json, "overlay"));

	if (cpu_lacking(json_string_value(json_object_get(m->json, "cpu")), lacking, sizeof(lacking))) {
		*ret_why = kasprintf("this CPU lacks what its programs may be using: %s", lacking);
		return -1;
	}
	if (overlay && ours && strcmp(overlay, ours) != 0) {
		*ret_why = kasprintf("it was made with --overlay %s", overlay);
		return -1;
	}
	return 0;
}
