// SPDX-License-Identifier: Apache-2.0
/* Reading what image_export.c writes, from anybody: see image_flatten.h. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "runtime/archive.h"
#include "runtime/image_flatten.h"

#define COPY_BLOCK (1u << 20)
#define ABOUT_MAX 65536

/* Copies the next file, @name, to @fd; its XXH3 in *ret_sum. */
static int copy_file(struct archive_in *a, const char *name, uint64_t max, int fd, uint64_t *ret_size,
		     uint64_t *ret_sum, char **ret_why)
{
	AUTO_FREE char *buf = kzalloc(COPY_BLOCK);
	XXH3_state_t *sum = XXH3_createState();
	uint64_t at = 0;
	int r = archive_next(a, name, ret_size, ret_why);

	if (!r && *ret_size > max) {
		*ret_why = kasprintf("its file %s is too large", name);
		r = -1;
	}
	if (!sum || XXH3_64bits_reset(sum) != XXH_OK) {
		*ret_why = *ret_why ?: kstrdup("no memory");
		r = -1;
	}
	while (!r && at < *ret_size) {
		size_t n = (size_t)MIN(*ret_size - at, (uint64_t)COPY_BLOCK);

		r = archive_read(a, buf, n, ret_why);
		if (!r && write(fd, buf, n) != (ssize_t)n) {
			*ret_why = kasprintf("cannot write %s: %s", name, strerror(errno));
			r = -1;
		}
		if (!r)
			(void)XXH3_64bits_update(sum, buf, n); /* fails for NULL only */
		at += n;
	}
	*ret_sum = sum ? XXH3_64bits_digest(sum) : 0;
	XXH3_freeState(sum);
	return r;
}

/* Refuses early what this machine can't run. */
static int check_about(struct archive_in *a, char **ret_why)
{
	char lacking[CPU_NAMES_MAX];
	AUTO_FREE char *buf = kzalloc(ABOUT_MAX);
	uint64_t size;
	json_t *j, *cpu;
	int r = 0;

	if (archive_next(a, "about.json", &size, ret_why))
		return -1;
	if (size > ABOUT_MAX) {
		*ret_why = kstrdup("its file about.json is too large");
		return -1;
	}
	if (archive_read(a, buf, (size_t)size, ret_why))
		return -1;
	j = json_loadb(buf, (size_t)size, JSON_REJECT_DUPLICATES, NULL);
	cpu = json_object_get(j, "cpu");
	if (json_integer_value(json_object_get(j, "export")) != 1 || !image_meta_plain(cpu)) {
		*ret_why = kstrdup("it is of a format that this holdfast does not read");
		r = -1;
	} else if (cpu_lacking(json_string_value(cpu), lacking, sizeof(lacking))) {
		*ret_why = kasprintf("this CPU lacks what its programs may be using: %s", lacking);
		r = -1;
	}
	json_decref(j);
	return r;
}

/* What restore checks before it starts anything, except for bind mounts. */
static struct image_meta *check_image(const struct image_draft *d, uint64_t bytes, uint64_t sum, 
				      char hex[2 * IMAGE_ID_LEN + 1], char **ret_why)
{
	char lacking[CPU_NAMES_MAX];
	size_t len = 0;
	void *slurped = lseek(d->state, 0, SEEK_SET) < 0 ? err_ptr(-errno) : image_slurp(d->state, &len);
	AUTO_FREE void *buf = is_err(slurped) ? NULL : slurped;
	struct image_meta *m;
	struct image img;

	if (!buf) {
		*ret_why = kstrdup(strerror((int)-ptr_err(slurped)));
		return NULL;
	}
	if (image_parse(buf, len, &img, ret_why))
		return NULL;
	m = image_meta_parse(&img.section[IMAGE_META], ret_why);
	if (!m)
		return NULL;
	if (m->nparents || m->page_bytes != bytes || m->page_sum != sum)
		*ret_why = kstrdup("its pages are not those that its description names");
	else if (cpu_lacking(json_string_value(json_object_get(m->json, "cpu")), lacking, sizeof(lacking)))
		*ret_why = kasprintf("this CPU lacks what its programs may be using: %s", lacking);
	image_id_hex(img.id, hex);
	if (!*ret_why)
		return m;
	image_meta_free(m);
	return NULL;
}

static struct image_meta *receive(struct archive_in *a, const struct image_draft *d, const char *want,
				  char hex[2 * IMAGE_ID_LEN + 1], char **ret_why)
{
	char digest[SHA256_HEX_LEN + 1];
	uint64_t bytes, state_bytes, sum, ignored;

	if (check_about(a, ret_why) ||
	    copy_file(a, "pages", INT64_MAX, d->pages, &bytes, &sum, ret_why) ||
	    copy_file(a, "state", IMAGE_STATE_MAX, d->state, &state_bytes, &ignored, ret_why) ||
	    archive_end(a, digest, ret_why))
		return NULL;
	if (want && strcmp(want, digest) != 0) {
		*ret_why = kstrdup("it has not the digest that the layout names");
		return NULL;
	}
	return check_image(d, bytes, sum, hex, ret_why);
}

int image_import(int fd, const char *want, const char *dir, char **number, json_t **ret_meta, char **ret_why)
{
	AUTO(archive_close) struct archive_in *a = archive_open(fd);
	AUTO_FREE char *place = kasprintf("%s/new", dir);
	char hex[2 * IMAGE_ID_LEN + 1];
	struct image_meta *m = NULL;
	struct image_draft d;

	if (image_draft_open(&d, place, ret_why))
		return -1;
	m = receive(a, &d, want, hex, ret_why);
	if (m) {
		free(d.path);
		d.path = kasprintf("%s/%s", dir, hex);
		if (!image_draft_publish(&d, ret_why)) {
			*number = kstrdup(hex);
			*ret_meta = json_incref(m->json);
		}
		image_meta_free(m);
	}
	image_draft_close(&d);
	return *number ? 0 : -1;
}
