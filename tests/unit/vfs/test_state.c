// SPDX-License-Identifier: Apache-2.0
/*
 * Every kind of file, inode, super and socket can be saved: whoever adds one says how (vfs_state.h), or this
 * names it. The tables of operations are static all over the tree, so they are found in the source text.
 */
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "sentry/vfs/vfs_state.h"

/* Supers that are never saved themselves: made once at start, like the inodes on them (super_state.c). */
static const char *const exempt[] = { "pseudo_super_ops" };

static const char *const kinds[] = {
	"struct file_ops ",
	"struct inode_ops ",
	"struct super_ops ",
	"struct proto_ops ",
};

static unsigned found, missing;

static bool is_exempt(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(exempt); i++)
		if (strcmp(exempt[i], name) == 0)
			return true;
	return false;
}

/* A definition "struct file_ops NAME = { ... };" that begins behind the kind's name at @at. */
static void look_at(const char *path, const char *kind, const char *at)
{
	char name[64];
	const char *end;
	int n = 0;

	if (sscanf(at, "%63[a-zA-Z0-9_] = {%n", name, &n) != 1 || !n)
		return;
	end = strstr(at, "};");
	assert_non_null(end);
	found++;
	if (memmem(at, (size_t)(end - at), ".state = ", 9) || is_exempt(name))
		return;
	missing++;
	print_error("%s: %s%s says nothing of how it is saved (.state)\n", path, kind, name);
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	size_t len = strlen(path);
	FILE *f;
	char *text;

	(void)ftw;
	if (type != FTW_F || len < 2 || strcmp(path + len - 2, ".c") != 0)
		return 0;
	f = fopen(path, "r");
	assert_non_null(f);
	text = kzalloc((size_t)st->st_size + 1);
	assert_int_equal(fread(text, 1, (size_t)st->st_size, f), st->st_size);
	fclose(f);
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		for (char *p = text; (p = strstr(p, kinds[i])); p++)
			look_at(path, kinds[i], p + strlen(kinds[i]));
	free(text);
	return 0;
}

static void every_kind_is_saved(void **state)
{
	(void)state;
	found = missing = 0;
	assert_int_equal(nftw("sentry", visit, 16, FTW_PHYS), 0);
	assert_true(found > 40); /* else this looks in the wrong place */
	assert_int_equal(missing, 0);
}

/* Numbers are unique, and lead back to the operations that name them. */
static void file_kinds_are_listed(void **state)
{
#define POINTER(name) &file_state_##name,
	static const struct file_state *const all[] = { FILE_STATES(POINTER) };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		assert_non_null(all[i]);
		assert_int_not_equal(all[i]->id, FILE_NONE);
		assert_ptr_equal(all[i]->ops->state, all[i]);
		for (size_t k = 0; k < i; k++)
			assert_int_not_equal(all[i]->id, all[k]->id);
	}
}

/* Each type that can stand behind a pointer to a family is a type that the loader knows. */
static void families_are_known(void **state)
{
	static const struct state_class *const classes[] = { &state_super_class, &state_inode_class,
							     &state_socket_class };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		assert_non_null(classes[i]->types[0]);
		for (const struct state_type *const *t = classes[i]->types; *t; t++) {
			assert_non_null((*t)->alloc);
			assert_non_null((*t)->fields);
			assert_true((*t)->version > 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_kind_is_saved),
		cmocka_unit_test(file_kinds_are_listed),
		cmocka_unit_test(families_are_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
