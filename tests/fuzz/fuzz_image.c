// SPDX-License-Identifier: Apache-2.0
/*
 * Readers of images: whatever the bytes, they are refused or read, within bounds. The first byte says which
 * reader gets the rest, since behind checksums no fuzzer gets far:
 *
 *   0 the file `state`    1 its description    2 the table of pages    3 objects, of types of our own
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "runtime/image_meta.h"
#include "sentry/mm/mfile.h"
#include "sentry/state/state_priv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MADE_MAX 4096

struct thing {
	struct thing *made; /* list of all, to free them */
	char name[16];
	char *note;
	void *data;
	size_t len;
	struct thing *next, *weak;
};

static struct thing *made;
static unsigned nmade;
static const struct state_type thing_type;

static void *thing_alloc(struct state *s)
{
	struct thing *t;

	if (++nmade > MADE_MAX) {
		state_fail(s, "enough");
		return NULL;
	}
	t = kzalloc(sizeof(*t));
	t->made = made;
	made = t;
	return t;
}

static void piece(void *arg, uint64_t at, uint64_t len, struct mfile *mf, uint64_t off)
{
	uint64_t want = *(uint64_t *)arg;

	if (at > want || len > want - at || !mf || (off | at | len) & 4095)
		abort();
}

static void thing_fields(struct state *s, void *obj)
{
	struct thing *t = obj;
	uint64_t len = 1 << 20;
	int64_t v = 1;
	bool b = false;

	if (state_version(s) > 1)
		state_pages_in(s, len, piece, &len);
	state_range_i64(s, &v, -1, 5);
	state_bool(s, &b);
	state_str(s, t->name, sizeof(t->name));
	state_heap_str(s, &t->note, 64);
	state_blob(s, &t->data, &t->len, 64);
	for (uint32_t n = state_count(s, 0, 100); n; n--)
		state_u8(s, &(uint8_t){ 0 });
	state_ref(s, &thing_type, &t->next);
	state_weak(s, &thing_type, &t->weak);
}

static const struct state_type thing_type = { .id = 1, .version = 2, .name = "thing", .alloc = thing_alloc,
					      .fields = thing_fields };

static const struct state_type *lookup(unsigned id)
{
	return id == 1 ? &thing_type : NULL;
}

static int page_file(void)
{
	int fd = memfd_create("pages", MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, 4 << 20))
		abort();
	return fd;
}

static void read_objects(const uint8_t *data, size_t size)
{
	static const uint8_t ids[1][PAGES_ID_LEN], table[4 + 8 + 28] = {
		1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0
	};
	char *why = NULL;
	int fd = page_file();
	struct state_pages *p = pages_loader(table, sizeof(table), &fd, 1, ids, &why);
	struct state *s;

	if (is_err(p))
		abort();
	s = state_loader(STATE_WAKE, p, data, size, lookup);
	if (state_load(s) < 0 && !state_why(s))
		abort();
	state_end(s);
	pages_release(p);
	while (made) {
		struct thing *t = made;

		made = t->made;
		free(t->note);
		free(t->data);
		free(t);
	}
	nmade = 0;
}

static void read_table(const uint8_t *data, size_t size)
{
	static const uint8_t ids[2][PAGES_ID_LEN] = { { 1 }, { 2 } };
	int fds[2] = { page_file(), page_file() };
	char *why = NULL;
	struct state_pages *p = pages_loader(data, size, fds, 2, ids, &why);

	if (is_err(p) && !why)
		abort();
	free(why);
	if (!is_err(p))
		pages_release(p);
}

static void read_meta(const uint8_t *data, size_t size)
{
	struct image_section s = { data, size };
	char *why = NULL;
	struct image_meta *m = image_meta_parse(&s, &why);

	if (!m && !why)
		abort();
	image_meta_free(m);
	free(why);
}

static void read_file(const uint8_t *data, size_t size)
{
	struct image img;
	char *why = NULL;

	if (image_parse(data, size, &img, &why) < 0 && !why)
		abort();
	free(why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const readers[])(const uint8_t *, size_t) = { read_file, read_meta, read_table,
								    read_objects };
	uint8_t *copy;

	if (size == 0)
		return 0;
	/* Of exactly that size, so that a sanitizer sees the first byte too far. */
	copy = malloc(size);
	if (!copy)
		abort();
	memcpy(copy, data + 1, size - 1);
	readers[data[0] % 4](copy, size - 1);
	free(copy);
	return 0;
}
