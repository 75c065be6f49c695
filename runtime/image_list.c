// SPDX-License-Identifier: Apache-2.0
/* Looking through a sandbox's images, and removing those that nobody needs; see image_store.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/log.h"
#include "runtime/image_store.h"

static json_t *describe(const struct statedir *s, const char *number, char **ret_why)
{
	AUTO_FREE char *path = kasprintf("%s/images/%s/state", s->path, number);
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct image_meta *m = NULL;
	json_t *json = NULL;
	struct image img;
	size_t len = 0;
	void *buf = fd < 0 ? err_ptr(-errno) : image_slurp(fd, &len);

	if (is_err(buf)) {
		*ret_why = kstrdup(strerror((int)-ptr_err(buf)));
		return NULL;
	}
	if (!image_parse(buf, len, &img, ret_why))
		m = image_meta_parse(&img.section[IMAGE_META], ret_why);
	if (m)
		json = json_incref(m->json);
	image_meta_free(m);
	free(buf);
	return json;
}

static unsigned long long disk_bytes(const struct statedir *s, const char *number)
{
	static const char *const files[] = { "state", "pages" };
	unsigned long long sum = 0;
	struct stat st;

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		AUTO_FREE char *path = kasprintf("%s/images/%s/%s", s->path, number, files[i]);

		if (stat(path, &st) == 0)
			sum += (unsigned long long)st.st_size;
	}
	return sum;
}

static void add_image(struct store_list *l, const struct statedir *s, const char *number)
{
	AUTO_FREE char *why = NULL;
	json_t *meta = describe(s, number, &why);
	const char *previous =
		json_string_value(json_object_get(json_object_get(meta, "extra"), "previous"));
	struct store_image *img;

	if (!meta) {
		log_warn("image %s of %s: %s", number, s->id, why);
		return;
	}
	l->v = krealloc_array(l->v, l->n + 1, sizeof(*l->v));
	img = &l->v[l->n++];
	*img = (struct store_image){ .names = kstrdup(""),
				     .previous = previous ? kstrdup(previous) : NULL,
				     .parents = json_incref(json_object_get(meta, "parents")),
				     .time = json_integer_value(json_object_get(meta, "time")),
				     .time_ns = json_integer_value(json_object_get(meta, "time_ns")),
				     .bytes = disk_bytes(s, number) };
	memcpy(img->number, number, sizeof(img->number));
	json_decref(meta);
}

static int by_time(const void *a, const void *b)
{
	const struct store_image *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return x->time_ns < y->time_ns ? -1 : x->time_ns > y->time_ns;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The entries of images/, sorted; heap. */
static char **entries(const struct statedir *s, unsigned *ret_n)
{
	AUTO_FREE char *path = store_path(s, "");
	DIR *d = opendir(path);
	struct dirent *e;
	char **names = NULL;

	*ret_n = 0;
	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		names = krealloc_array(names, *ret_n + 1, sizeof(*names));
		names[(*ret_n)++] = kstrdup(e->d_name);
	}
	if (d)
		closedir(d);
	if (names)
		qsort(names, *ret_n, sizeof(*names), by_name);
	return names;
}

static void add_name(struct store_list *l, const struct statedir *s, const char *name)
{
	AUTO_FREE char *path = store_path(s, name);
	char to[STORE_NUMBER_LEN + 1] = "";

	if (readlink(path, to, STORE_NUMBER_LEN) != STORE_NUMBER_LEN)
		return;
	for (unsigned i = 0; i < l->n; i++) {
		char *old = l->v[i].names;

		if (strcmp(l->v[i].number, to) != 0)
			continue;
		l->v[i].names = kasprintf("%s%s%s", old, *old ? " " : "", name);
		free(old);
	}
}

struct store_list *store_list(struct statedir *s)
{
	struct store_list *l = kzalloc(sizeof(*l));
	uint8_t id[IMAGE_ID_LEN];
	unsigned n;
	char **names = entries(s, &n);

	for (unsigned i = 0; i < n; i++)
		if (image_id_parse(names[i], id))
			add_image(l, s, names[i]);
	if (l->n)
		qsort(l->v, l->n, sizeof(*l->v), by_time);
	for (unsigned i = 0; i < n; i++) {
		if (!image_id_parse(names[i], id))
			add_name(l, s, names[i]);
		free(names[i]);
	}
	free(names);
	return l;
}

void store_list_free(struct store_list *l)
{
	if (!l)
		return;
	for (unsigned i = 0; i < l->n; i++) {
		free(l->v[i].names);
		free(l->v[i].previous);
		json_decref(l->v[i].parents);
	}
	free(l->v);
	free(l);
}

/* ---- removing ---- */

static bool is_parent(const struct store_image *of, const char *number)
{
	json_t *e;
	size_t i;

	json_array_foreach(of->parents, i, e)
		if (!strcmp(json_string_value(e) ?: "", number))
			return true;
	return false;
}

/* An image lists every one that it needs pages of, so there is nothing to follow. */
static bool needed(const struct store_list *l, unsigned at, const char *head)
{
	for (unsigned i = 0; i < l->n; i++) {
		bool root = l->v[i].names[0] || !strcmp(l->v[i].number, head);

		if (root && (i == at || is_parent(&l->v[i], l->v[at].number)))
			return true;
	}
	return false;
}

/* Out of the way of readers first: a directory with an image's name is a whole image. */
static bool remove_one(const struct statedir *s, const char *number)
{
	AUTO_FREE char *path = store_path(s, number);
	AUTO_FREE char *gone = kasprintf("%s/images/.%s.gone", s->path, number);
	AUTO_FREE char *state = kasprintf("%s/state", gone);
	AUTO_FREE char *pages = kasprintf("%s/pages", gone);

	return rename(path, gone) == 0 && unlink(state) == 0 && unlink(pages) == 0 && rmdir(gone) == 0;
}

unsigned store_prune(struct statedir *s, unsigned long long *ret_bytes)
{
	AUTO(store_list_free) struct store_list *l = store_list(s);
	json_t *lineage = store_lineage(s);
	const char *head = json_string_value(json_object_get(lineage, "head")) ?: "";
	unsigned n = 0;

	*ret_bytes = 0;
	for (unsigned i = 0; i < l->n; i++) {
		if (needed(l, i, head))
			continue;
		if (!remove_one(s, l->v[i].number)) {
			log_warn("cannot remove image %s of %s: %s", l->v[i].number, s->id, strerror(errno));
			continue;
		}
		*ret_bytes += l->v[i].bytes;
		n++;
	}
	json_decref(lineage);
	return n;
}
