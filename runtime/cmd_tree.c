// SPDX-License-Identifier: Apache-2.0
/* tree: which snapshots and branches came from which. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/cli.h"
#include "runtime/errno_text.h"
#include "runtime/image_store.h"

struct box {
	char *id;
	const char *status;
	json_t *lineage;
	struct store_list *images;
	bool drawn; /* two that were forked from each other's predecessors are each other's branch */
};

struct forest {
	struct box *v;
	unsigned n;
	const char *only; /* container, or NULL: all */
};

static const struct opt no_opts[] = { { 0 } };

static void add_box(const char *root, const char *id, void *arg)
{
	struct forest *f = arg;
	AUTO_FREE char *why = NULL;
	AUTO(statedir_close) struct statedir *s = statedir_open(root, id, &why);

	if (!s)
		return;
	f->v = krealloc_array(f->v, f->n + 1, sizeof(*f->v));
	f->v[f->n++] = (struct box){ .id = kstrdup(id),
				     .status = cli_status(s),
				     .lineage = store_lineage(s),
				     .images = store_list(s) };
}

static const char *from(const struct box *b, const char *key)
{
	return json_string_value(json_object_get(json_object_get(b->lineage, "from"), key));
}

static bool has_image(const struct box *b, const char *number)
{
	for (unsigned i = 0; number && i < b->images->n; i++)
		if (!strcmp(b->images->v[i].number, number))
			return true;
	return false;
}

/* Does @b belong below image @number (NULL: none that is still there) of @of? */
static bool is_branch(const struct box *b, const struct box *of, const char *number)
{
	const char *id = from(b, "id"), *image = from(b, "image");

	if (b->drawn || b == of || !id || strcmp(id, of->id) != 0)
		return false;
	if (!has_image(of, image))
		image = NULL;
	return number ? image && !strcmp(image, number) : !image;
}

static bool is_child(const struct box *b, const struct store_image *i, const char *number)
{
	const char *prev = has_image(b, i->previous) ? i->previous : NULL;

	return number ? prev && !strcmp(prev, number) : !prev;
}

static void draw_box(struct forest *f, struct box *b, const char *prefix, const char *own);

/* What came from image @number (NULL: from none) of @b: images, then branches. */
static void draw_children(struct forest *f, struct box *b, const char *number, const char *prefix)
{
	const char *head = json_string_value(json_object_get(b->lineage, "head")) ?: "";
	unsigned left = 0;

	for (unsigned i = 0; i < b->images->n; i++)
		left += is_child(b, &b->images->v[i], number);
	for (unsigned i = 0; i < f->n; i++)
		left += is_branch(&f->v[i], b, number);
	for (unsigned i = 0; i < b->images->n; i++) {
		const struct store_image *img = &b->images->v[i];
		AUTO_FREE char *when = store_time(img->time);
		AUTO_FREE char *deeper = NULL;

		if (!is_child(b, img, number))
			continue;
		printf("%s%s %s%.*s  %s, %llu KiB%s\n", prefix, --left ? "├─" : "└─", img->names,
		       img->names[0] ? 0 : 8, img->number, when, img->bytes / 1024,
		       !strcmp(img->number, head) ? "  *" : "");
		deeper = kasprintf("%s%s", prefix, left ? "│  " : "   ");
		draw_children(f, b, img->number, deeper);
	}
	for (unsigned i = 0; i < f->n; i++) {
		AUTO_FREE char *deeper = NULL;
		AUTO_FREE char *own = NULL;

		if (!is_branch(&f->v[i], b, number))
			continue;
		own = kasprintf("%s%s ", prefix, --left ? "├─" : "└─");
		deeper = kasprintf("%s%s", prefix, left ? "│  " : "   ");
		draw_box(f, &f->v[i], deeper, own);
	}
}

static void draw_box(struct forest *f, struct box *b, const char *prefix, const char *own)
{
	b->drawn = true;
	printf("%s%s (%s)\n", own, b->id, b->status);
	draw_children(f, b, NULL, prefix);
}

static bool has_origin(const struct forest *f, const struct box *b)
{
	const char *id = from(b, "id");

	for (unsigned i = 0; id && i < f->n; i++)
		if (&f->v[i] != b && !strcmp(f->v[i].id, id))
			return true;
	return false;
}

static int tree(int argc, char **argv)
{
	struct forest f = { .only = argc ? argv[0] : NULL };
	AUTO(statedir_close) struct statedir *s = f.only ? cli_open(f.only) : NULL;
	int r;

	if (f.only && !s)
		return 1;
	r = statedir_each(globals.root, add_box, &f);
	if (r)
		return cli_fail("cannot read %s: %s", globals.root, errno_text(-r));
	for (unsigned i = 0; i < f.n; i++)
		if (f.only ? !strcmp(f.v[i].id, f.only) : !has_origin(&f, &f.v[i]))
			draw_box(&f, &f.v[i], "", "");
	for (unsigned i = 0; i < f.n; i++) {
		if (!f.only && !f.v[i].drawn)
			draw_box(&f, &f.v[i], "", "");
		free(f.v[i].id);
		json_decref(f.v[i].lineage);
		store_list_free(f.v[i].images);
	}
	free(f.v);
	return 0;
}

const struct command cmd_tree = {
	.name = "tree",
	.synopsis = "[ID]",
	.summary = "draw which snapshots and branches came from which",
	.details =
		"  Each container with its status, and below it its images (names, or the first digits of the\n"
		"  number; time, size on disk; * is the one that the container goes on from, or was saved to\n"
		"  last), each below the one that the container had gone on from; and containers that were\n"
		"  forked from it, below the image that came before. With ID: of that container.",
	.opts = no_opts,
	.max_args = 1,
	.run = tree,
};
