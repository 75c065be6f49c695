// SPDX-License-Identifier: Apache-2.0
/* snapshot, snapshots, rollback, prune: images in a container's store that people name. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "runtime/cli.h"
#include "runtime/errno_text.h"
#include "runtime/image_store.h"
#include "runtime/park.h"

static const char *format;
static bool remove_names;

static const struct opt no_opts[] = { { 0 } };

static int locked(struct statedir *s, int (*fn)(struct statedir *s, const char *arg), const char *arg)
{
	int r = store_lock(s);

	if (r)
		return cli_fail("cannot lock %s: %s", s->path, errno_text(-r));
	r = fn(s, arg);
	store_unlock(s);
	return r;
}

/* ---- snapshot ---- */

/* The first of s1, s2 ... that is free; heap. */
static char *free_name(struct statedir *s)
{
	for (unsigned i = 1;; i++) {
		char *name = kasprintf("s%u", i);
		AUTO_FREE char *why = NULL;
		AUTO_FREE char *number = store_find(s, name, &why);

		if (!number)
			return name;
		free(name);
	}
}

static int take(struct statedir *s, const char *name)
{
	AUTO_FREE char *own = name ? NULL : free_name(s);
	AUTO_FREE char *why = NULL;
	AUTO_FREE char *number = NULL;
	unsigned long long bytes;

	name = name ?: own;
	if (store_check_name(name))
		return cli_fail("%s: '%s'", store_check_name(name), name);
	number = park_image(s);
	if (!number)
		return 1;
	if (store_name(s, name, number, &why))
		return cli_fail("%s", why);
	(void)store_prune(s, &bytes); /* what this one stands for now */
	printf("%s\n", name);
	return 0;
}

static int snapshot(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);

	return s ? locked(s, take, argc > 1 ? argv[1] : NULL) : 1;
}

const struct command cmd_snapshot = {
	.name = "snapshot",
	.synopsis = "ID [NAME]",
	.summary = "save a container under a name, to come back to; it goes on",
	.details =
		"  Writes an image of running or suspended container ID below the state directory and prints\n"
		"  its name: NAME, which is moved here if another snapshot had it, or s1, s2 ... The container\n"
		"  stands still for some milliseconds, whatever its size, and only what changed since its\n"
		"  last image is written.",
	.examples = "  holdfast snapshot agent before && holdfast exec agent rm -rf /src\n"
		    "  holdfast rollback agent before",
	.opts = no_opts,
	.min_args = 1,
	.max_args = 2,
	.run = snapshot,
};

/* ---- snapshots ---- */

static json_t *image_json(const struct store_image *i)
{
	AUTO_FREE char *when = store_time(i->time);

	return json_pack("{s:s, s:s, s:s, s:I, s:s*, s:O}", "number", i->number, "names", i->names, "time", when,
			 "bytes", (json_int_t)i->bytes, "previous", i->previous, "parents", i->parents);
}

static int list_snapshots(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);
	AUTO(store_list_free) struct store_list *l = s ? store_list(s) : NULL;
	bool json = format && !strcmp(format, "json");
	json_t *all = json_array();

	(void)argc;
	if (format && !json && strcmp(format, "table") != 0)
		return cli_fail("unknown format '%s'", format);
	if (!s)
		return 1;
	if (!json)
		printf("%-24s %-12s %-22s %10s\n", "NAME", "IMAGE", "TIME", "KIB");
	for (unsigned i = 0; i < l->n; i++) {
		AUTO_FREE char *when = store_time(l->v[i].time);

		json_array_append_new(all, image_json(&l->v[i]));
		if (!json)
			printf("%-24s %-12.12s %-22s %10llu\n", l->v[i].names[0] ? l->v[i].names : "-",
			       l->v[i].number, when, l->v[i].bytes / 1024);
	}
	if (json) {
		json_dumpf(all, stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(all);
	return 0;
}

static const struct opt list_opts[] = {
	{ "format", 'f', OPT_STR, &format, "FORMAT", "table (default) or json" },
	{ 0 },
};

const struct command cmd_snapshots = {
	.name = "snapshots",
	.synopsis = "[options] ID",
	.summary = "list a container's images",
	.details = "  Oldest first. Those without a name are kept because the container goes on from them, or\n"
		   "  because later ones need their pages.",
	.opts = list_opts,
	.min_args = 1,
	.max_args = 1,
	.run = list_snapshots,
};

/* ---- rollback ---- */

static int go_back(struct statedir *s, const char *ref)
{
	AUTO_FREE char *why = NULL;
	AUTO_FREE char *number = store_find(s, ref, &why);

	return number ? park_wake(s, number) : cli_fail("%s", why);
}

static int rollback(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = cli_open(argv[0]);

	(void)argc;
	return s ? locked(s, go_back, argv[1]) : 1;
}

const struct command cmd_rollback = {
	.name = "rollback",
	.synopsis = "ID NAME",
	.summary = "take a container back to a snapshot",
	.details =
		"  Ends what container ID is doing and lets it go on from snapshot NAME (or an image's number,\n"
		"  or the first 8 digits of it), also when it is suspended or has ended. What happened since\n"
		"  is lost unless there is a snapshot of it. The snapshot stays.",
	.opts = no_opts,
	.min_args = 2,
	.max_args = 2,
	.run = rollback,
};

/* ---- prune ---- */

static int prune_one(struct statedir *s, const char *arg)
{
	unsigned long long bytes;
	unsigned n = store_prune(s, &bytes);

	(void)arg;
	if (n)
		printf("%s: %u images, %llu KiB\n", s->id, n, bytes / 1024);
	return 0;
}

static void prune_each(const char *root, const char *id, void *arg)
{
	AUTO_FREE char *why = NULL;
	AUTO(statedir_close) struct statedir *s = statedir_open(root, id, &why);

	if (s && locked(s, prune_one, NULL))
		*(int *)arg = 1;
}

static int unname(struct statedir *s, const char *name)
{
	AUTO_FREE char *why = NULL;

	return store_unname(s, name, &why) ? cli_fail("%s", why) : 0;
}

static int prune(int argc, char **argv)
{
	AUTO(statedir_close) struct statedir *s = argc ? cli_open(argv[0]) : NULL;
	int r = 0;

	if (argc && !s)
		return 1;
	if (!s) {
		int e = statedir_each(globals.root, prune_each, &r);

		return e ? cli_fail("cannot read %s: %s", globals.root, errno_text(-e)) : r;
	}
	if (argc > 1 && !remove_names)
		return cli_fail("prune: give --remove to remove named snapshots");
	for (int i = 1; i < argc && !r; i++)
		r = locked(s, unname, argv[i]);
	return r ? r : locked(s, prune_one, NULL);
}

static const struct opt prune_opts[] = {
	{ "remove", 0, OPT_FLAG, &remove_names, NULL, "first take the names NAME... away" },
	{ 0 },
};

const struct command cmd_prune = {
	.name = "prune",
	.synopsis = "[options] [ID [NAME...]]",
	.summary = "remove images that nobody needs",
	.details =
		"  Of container ID, or of all: images without a name that the container does not go on from and\n"
		"  that hold no pages of one that stays. With --remove, snapshots NAME... lose their names\n"
		"  first; one that others need pages of stays until those go.",
	.examples = "  holdfast prune --remove agent before",
	.opts = prune_opts,
	.max_args = -1,
	.run = prune,
};
