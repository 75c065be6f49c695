// SPDX-License-Identifier: Apache-2.0
/* Saving and loading object graphs, with types of its own: cycles, families, weak pointers, references,
 * and records that lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "sentry/state/state_priv.h"

struct leaf {
	int refs;
	char name[16];
	char *note;
	void *data;
	size_t len;
};

struct node {
	int refs;
	uint8_t kind;
	int64_t value;
	bool flag;
	struct node *next;  /* owning */
	struct node *back;  /* weak */
	struct leaf *leaf;  /* owning */
	void *any;          /* node or leaf, owning */
	bool finished;
};

static unsigned finish_order[8], nfinished;
extern const struct state_type node_type, leaf_type;

static void *leaf_alloc(struct state *s)
{
	struct leaf *l = kzalloc(sizeof(*l));

	(void)s;
	l->refs = 1;
	return l;
}

static void leaf_fields(struct state *s, void *obj)
{
	struct leaf *l = obj;

	state_str(s, l->name, sizeof(l->name));
	state_heap_str(s, &l->note, 100);
	state_blob(s, &l->data, &l->len, 100);
}

static void leaf_finish(struct state *s, void *obj)
{
	(void)s, (void)obj;
	finish_order[nfinished++] = 1;
}

static void *leaf_get(void *obj)
{
	((struct leaf *)obj)->refs++;
	return obj;
}

static void leaf_put(void *obj)
{
	struct leaf *l = obj;

	if (--l->refs)
		return;
	free(l->note);
	free(l->data);
	free(l);
}

const struct state_type leaf_type = { .id = 2, .version = 1, .name = "leaf", .alloc = leaf_alloc,
				      .fields = leaf_fields, .finish = leaf_finish, .get = leaf_get,
				      .put = leaf_put, .phase = 1 };

/* Which type is behind an `any` pointer: told by the test. */
static bool any_is_leaf;

static const struct state_type *any_type(const void *obj)
{
	(void)obj;
	return any_is_leaf ? &leaf_type : &node_type;
}

static const struct state_type *const any_types[] = { &leaf_type, &node_type, NULL };
static const struct state_class any_class = { "anything", any_type, any_types };

static void *node_alloc(struct state *s)
{
	struct node *n = kzalloc(sizeof(*n));

	(void)s;
	n->refs = 1;
	return n;
}

static void node_fields(struct state *s, void *obj)
{
	struct node *n = obj;
	int64_t kind = n->kind;

	state_range_i64(s, &kind, 1, 3);
	n->kind = (uint8_t)kind;
	state_i64(s, &n->value);
	state_bool(s, &n->flag);
	state_ref(s, &node_type, &n->next);
	state_weak(s, &node_type, &n->back);
	state_ref(s, &leaf_type, &n->leaf);
	state_ref_in(s, &any_class, &n->any);
}

static void node_finish(struct state *s, void *obj)
{
	(void)s;
	((struct node *)obj)->finished = true;
	finish_order[nfinished++] = 0;
}

static void *node_get(void *obj)
{
	((struct node *)obj)->refs++;
	return obj;
}

static void node_put(void *obj)
{
	((struct node *)obj)->refs--;
}

const struct state_type node_type = { .id = 1, .version = 2, .name = "node", .alloc = node_alloc,
				      .fields = node_fields, .finish = node_finish, .get = node_get,
				      .put = node_put };

static const struct state_type *lookup(unsigned id)
{
	return id == 1 ? &node_type : id == 2 ? &leaf_type : NULL;
}

/* a -> b -> a, both with one leaf; b's back points to a, a's to something that isn't saved. */
static struct node a, b, stranger;
static struct leaf l;

static void build(void)
{
	static char note[] = "n", data[] = { 0, 1, 2 };

	a = (struct node){ .kind = 1, .value = -5, .flag = true, .next = &b, .back = &stranger,
			   .leaf = &l, .any = &l };
	b = (struct node){ .kind = 3, .value = INT64_MAX, .next = &a, .back = &a, .leaf = &l };
	l = (struct leaf){ .name = "leaf", .note = note, .data = data, .len = 3 };
	any_is_leaf = true;
}

static uint8_t *save(size_t *ret_len)
{
	struct state *s = state_saver(STATE_WAKE, NULL);
	const void *buf;
	uint8_t *copy;

	build();
	state_add_root(s, &node_type, &a);
	assert_int_equal(state_save(s, &buf, ret_len), 0);
	assert_int_equal(state_objects(s), 3);
	copy = kzalloc(*ret_len);
	memcpy(copy, buf, *ret_len);
	state_end(s);
	return copy;
}

static void free_nodes(struct node *x)
{
	struct node *y = x->next;

	for (int i = 0; i < 2; i++)
		leaf_put(x->leaf);
	leaf_put(y->leaf);
	free(y);
	free(x);
}

static void test_cycle(void **state)
{
	size_t len;
	uint8_t *buf = save(&len);
	struct state *s = state_loader(STATE_FORK, NULL, buf, len, lookup);
	struct node *x;

	(void)state;
	nfinished = 0;
	assert_int_equal(state_load(s), 0);
	assert_null(state_root(s, 0, &leaf_type));
	assert_null(state_root(s, 1, &node_type));
	x = state_root(s, 0, &node_type);
	assert_non_null(x);
	assert_int_equal(state_purpose(s), STATE_FORK);
	assert_int_equal(finish_order[0] + finish_order[1], 0); /* phases */
	assert_int_equal(finish_order[2], 1);
	assert_int_equal(x->value, -5);
	assert_true(x->flag && x->finished && x->next->finished);
	assert_ptr_equal(x->next->next, x);
	assert_null(x->back);
	assert_ptr_equal(x->next->back, x);
	assert_ptr_equal(x->leaf, x->next->leaf);
	assert_ptr_equal(x->any, x->leaf);
	assert_string_equal(x->leaf->name, "leaf");
	assert_string_equal(x->leaf->note, "n");
	assert_int_equal(x->leaf->len, 3);
	assert_int_equal(x->leaf->refs, 4);
	assert_int_equal(x->refs, 2); /* the load's own and b's */
	state_end(s);
	assert_int_equal(x->leaf->refs, 3);
	assert_int_equal(x->refs, 1);
	free_nodes(x);
	free(buf);
}

/* What a refused load had made: the process would end here; the test frees it for the leak checker. */
static void sweep_leaf(void *obj)
{
	struct leaf *x = obj;

	free(x->note);
	free(x->data);
	free(x);
}

#define MADE_MAX 64
static struct {
	void *obj;
	bool leaf;
} made[MADE_MAX];
static unsigned nmade;

static void *sweep_node_alloc(struct state *s)
{
	made[nmade].obj = node_alloc(s);
	return made[nmade++].obj;
}

static void *sweep_leaf_alloc(struct state *s)
{
	made[nmade].obj = leaf_alloc(s);
	made[nmade].leaf = true;
	return made[nmade++].obj;
}

static void sweep(void)
{
	while (nmade) {
		nmade--;
		if (made[nmade].leaf)
			sweep_leaf(made[nmade].obj);
		else
			free(made[nmade].obj);
		made[nmade].leaf = false;
	}
}

static struct state_type node_kept, leaf_kept;

static const struct state_type *lookup_kept(unsigned id)
{
	return id == 1 ? &node_kept : id == 2 ? &leaf_kept : NULL;
}

/* Loads through types of the same numbers that remember what they made. True if it was refused. */
static bool refused(const void *buf, size_t len, const char *want)
{
	struct state *s = state_loader(STATE_WAKE, NULL, buf, len, lookup_kept);
	bool ret;

	node_kept = node_type;
	node_kept.alloc = sweep_node_alloc;
	node_kept.put = NULL;
	leaf_kept = leaf_type;
	leaf_kept.alloc = sweep_leaf_alloc;
	leaf_kept.put = NULL;
	nmade = nfinished = 0;
	ret = state_load(s) < 0;
	if (want && (!ret || !strstr(state_why(s), want)))
		fail_msg("refused: %d, '%s' instead of '%s'", ret, ret ? state_why(s) : "", want);
	state_end(s);
	sweep();
	return ret;
}

static void test_truncated(void **state)
{
	size_t len;
	uint8_t *buf = save(&len);

	(void)state;
	for (size_t i = 0; i < len; i++) {
		/* A buffer of exactly that size, so that ASan sees any byte too far. */
		uint8_t *part = kzalloc(i ? i : 1);

		memcpy(part, buf, i);
		assert_true(refused(part, i, NULL));
		free(part);
	}
	free(buf);
}

/* No flipped bit does anything but change a value or have the load refused. */
static void test_flipped(void **state)
{
	size_t len;
	uint8_t *buf = save(&len);

	(void)state;
	for (size_t i = 0; i < len * 8; i++) {
		buf[i / 8] = (uint8_t)(buf[i / 8] ^ (1u << (i % 8)));
		(void)refused(buf, len, NULL);
		buf[i / 8] = (uint8_t)(buf[i / 8] ^ (1u << (i % 8)));
	}
	free(buf);
}

#define HEAD 12 /* counts and one root */

static void test_lies(void **state)
{
	size_t len;
	uint8_t *buf = save(&len);
	uint8_t *rec = buf + HEAD;

	(void)state;
	rec[2] = 3;
	assert_true(refused(buf, len, "version 3"));
	rec[2] = 0;
	assert_true(refused(buf, len, "version 0"));
	rec[2] = 2;
	rec[0] = 99;
	assert_true(refused(buf, len, "type 99"));
	rec[0] = 1;
	rec[12] = 4; /* kind */
	assert_true(refused(buf, len, "not within 1..3"));
	rec[12] = 1;
	rec[29] = 9; /* next */
	assert_true(refused(buf, len, "no object 9"));
	rec[29] = 3;
	assert_true(refused(buf, len, "a leaf where a node"));
	free(buf);
}

static void test_save_fails(void **state)
{
	struct state *s = state_saver(STATE_WAKE, NULL);
	const void *buf;
	size_t len;

	(void)state;
	build();
	a.kind = 9; /* out of its own range */
	state_add_root(s, &node_type, &a);
	assert_int_equal(state_save(s, &buf, &len), -1);
	assert_non_null(strstr(state_why(s), "not within"));
	state_end(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cycle),	   cmocka_unit_test(test_truncated),
		cmocka_unit_test(test_flipped),	   cmocka_unit_test(test_lies),
		cmocka_unit_test(test_save_fails),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
