// SPDX-License-Identifier: Apache-2.0
/*
 * Saving and loading object graphs: see state.h. The layout of what is written here is the section
 * "objects" of docs/image-format.md:
 *
 *   u32 number of objects, u32 number of roots, roots (u32 object each), then a record for each object:
 *   u16 type, u16 version, u32 number, u32 length of the fields, fields
 *
 * Numbers run from 1 without gaps, in the order in which objects were met; 0 is NULL.
 *
 * Saving keeps a table (address, type) -> number. The address alone won't do: a structure and its first
 * member have the same one. Weak pointers are known only at the end, so their places are patched then.
 *
 * Loading trusts nothing: a first walk checks the framing of all records and makes the empty objects, so
 * every number that a field may hold can be checked against the table, with its type.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/compiler.h"
#include "base/cursor.h"
#include "base/err.h"
#include "sentry/state/state_priv.h"

#define RECORD_HEAD 12 /* bytes before the fields */
#define BUF_FIRST (64U << 10)
#define QUEUE_FIRST 1024U
#define AHEAD 6U         /* objects */
#define AHEAD_BYTES 512U /* of one: most of what most of them save */

struct object {
	void *obj;
	const struct state_type *type;
};

/* A weak pointer written before we know whether its object is saved. */
struct patch {
	size_t at;
	void *obj;
	const struct state_type *type;
};

/* What the loader knows of an object. */
struct loaded {
	const struct state_type *type;
	void *obj;
	unsigned version;
	const uint8_t *fields;
	size_t len;
};

struct state {
	enum state_purpose purpose;
	bool loading;
	struct state_pages *pages;
	char *why;
	const struct state_type *type; /* of the object at hand */
	uint32_t number;               /* its number */
	unsigned version;

	/* saving */
	uint8_t *buf;
	size_t used, size;
	struct object *queue;   /* by number - 1 */
	uint32_t queued, queue_size;
	uint32_t *slots;        /* table of numbers by hash, linear probing; 0: empty */
	uint32_t nslots;        /* a power of two, at least twice `queued` */
	struct patch *patches;
	size_t npatches, patches_size;
	struct {
		const struct state_type *type;
		void *obj;
	} root[STATE_ROOTS_MAX];

	/* loading */
	state_lookup_fn lookup;
	struct cursor in;    /* the whole section at first, then an object's fields */
	struct loaded *objs; /* by number - 1 */

	uint32_t nobjs, nroots;
	uint32_t root_number[STATE_ROOTS_MAX];
};

/* ---- errors ---- */

/* Messages go to terminals and into JSON, and may quote what an image or a guest says. */
static void make_printable(char *msg)
{
	for (; *msg; msg++)
		if (*msg < ' ' || *msg > '~')
			*msg = '?';
}

void state_fail(struct state *s, const char *fmt, ...)
{
	char msg[512];
	va_list ap;

	if (s->why)
		return;
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	make_printable(msg);
	if (s->loading && s->type)
		s->why = kasprintf("%s (object %u, %s)", msg, s->number, s->type->name);
	else
		s->why = kstrdup(msg);
}

bool state_ok(const struct state *s)
{
	return !s->why;
}

const char *state_why(const struct state *s)
{
	return s->why;
}

bool state_loading(const struct state *s)
{
	return s->loading;
}

unsigned state_version(const struct state *s)
{
	return s->version;
}

enum state_purpose state_purpose(const struct state *s)
{
	return s->purpose;
}

uint32_t state_objects(const struct state *s)
{
	return s->loading ? s->nobjs : s->queued;
}

struct state_pages *state_pages_of(struct state *s)
{
	return s->pages;
}

/* ---- bytes ---- */

static void put(struct state *s, const void *p, size_t len)
{
	if (s->why || len == 0)
		return;
	while (s->size - s->used < len) {
		s->size = s->size ? s->size * 2 : BUF_FIRST;
		s->buf = krealloc_array(s->buf, s->size, 1);
	}
	memcpy(s->buf + s->used, p, len);
	s->used += len;
}

/* Zeroes once the load has failed, so that nobody acts on what wasn't read. */
static void take(struct state *s, void *p, size_t len)
{
	const void *from;

	if (len == 0)
		return; /* @p may be NULL */
	from = s->why ? NULL : pull_bytes(&s->in, len);
	if (from) {
		memcpy(p, from, len);
		return;
	}
	memset(p, 0, len);
	state_fail(s, "record too short");
}

void state_bytes(struct state *s, void *buf, size_t len)
{
	if (s->loading)
		take(s, buf, len);
	else
		put(s, buf, len);
}

/* Of constant length: what most of a save is, so the usual case is a few instructions. */
static inline void field(struct state *s, void *v, size_t len)
{
	if (likely(!s->loading && !s->why && s->size - s->used >= len)) {
		memcpy(s->buf + s->used, v, len);
		s->used += len;
		return;
	}
	state_bytes(s, v, len);
}

void state_u8(struct state *s, uint8_t *v)
{
	field(s, v, sizeof(*v));
}

void state_u16(struct state *s, uint16_t *v)
{
	field(s, v, sizeof(*v));
}

void state_u32(struct state *s, uint32_t *v)
{
	field(s, v, sizeof(*v));
}

void state_u64(struct state *s, uint64_t *v)
{
	field(s, v, sizeof(*v));
}

void state_i32(struct state *s, int32_t *v)
{
	field(s, v, sizeof(*v));
}

void state_i64(struct state *s, int64_t *v)
{
	field(s, v, sizeof(*v));
}

void state_mono(struct state *s, int64_t *ns)
{
	state_i64(s, ns);
}

void state_bool(struct state *s, bool *v)
{
	uint8_t b = s->loading ? 0 : *v;

	state_u8(s, &b);
	if (b > 1)
		state_fail(s, "neither true nor false: %u", b);
	*v = b == 1;
}

void state_range_i64(struct state *s, int64_t *v, int64_t min, int64_t max)
{
	state_i64(s, v);
	if (*v >= min && *v <= max)
		return;
	state_fail(s, "value %lld is not within %lld..%lld", (long long)*v, (long long)min,
		   (long long)max);
	*v = min;
}

uint32_t state_count(struct state *s, uint32_t n, uint32_t max)
{
	state_u32(s, &n);
	if (n > max) {
		state_fail(s, "count %u is more than %u", n, max);
		return 0;
	}
	return s->why ? 0 : n;
}

void state_str(struct state *s, char *buf, size_t size)
{
	uint32_t n = s->loading ? 0 : (uint32_t)strnlen(buf, size - 1);

	n = state_count(s, n, (uint32_t)size - 1);
	state_bytes(s, buf, n);
	if (!s->loading)
		return;
	buf[n] = 0;
	if (strlen(buf) != n)
		state_fail(s, "string with a NUL inside");
}

/* A length plus one, so that NULL and empty differ; *ret_n is the length. False: NULL, or it failed. */
static bool heap_head(struct state *s, const void *p, size_t len, size_t max, size_t *ret_n)
{
	uint64_t n = p ? (uint64_t)len + 1 : 0;

	state_u64(s, &n);
	if (n > (uint64_t)max + 1) {
		state_fail(s, "%llu bytes where at most %zu can be", (unsigned long long)n - 1, max);
		return false;
	}
	if (s->loading && n > s->in.left + 1) {
		state_fail(s, "record too short");
		return false;
	}
	*ret_n = n ? (size_t)n - 1 : 0;
	return n && !s->why;
}

void state_heap_str(struct state *s, char **p, size_t max)
{
	size_t n;

	if (s->loading)
		*p = NULL;
	if (!heap_head(s, *p, *p ? strlen(*p) : 0, max, &n))
		return;
	if (s->loading)
		*p = kzalloc(n + 1);
	state_bytes(s, *p, n);
	if (s->loading && strlen(*p) != n)
		state_fail(s, "string with a NUL inside");
}

void state_blob(struct state *s, void **p, size_t *len, size_t max)
{
	size_t n;

	if (s->loading) {
		*p = NULL;
		*len = 0;
	}
	if (!heap_head(s, *p, *len, max, &n))
		return;
	if (s->loading) {
		*p = kzalloc(n ? n : 1);
		*len = n;
	}
	state_bytes(s, *p, n);
}

/* ---- pointers, saving ---- */

/* The slot in which its number is, or would be. The table is made for the pause: nothing is allocated per object. */
static uint32_t *slot_of(const struct state *s, const struct state_type *type, const void *obj)
{
	uint64_t h = ((uint64_t)(uintptr_t)obj ^ (uint64_t)type->id << 48) * 0x9e3779b97f4a7c15ULL;
	uint32_t i = (uint32_t)(h >> 32) & (s->nslots - 1);

	for (uint32_t n; (n = s->slots[i]); i = (i + 1) & (s->nslots - 1))
		if (s->queue[n - 1].obj == obj && s->queue[n - 1].type == type)
			break;
	return &s->slots[i];
}

static void grow(struct state *s)
{
	free(s->slots);
	s->queue_size = s->queue_size ? s->queue_size * 2 : QUEUE_FIRST;
	s->queue = krealloc_array(s->queue, s->queue_size, sizeof(*s->queue));
	s->nslots = 2 * s->queue_size;
	s->slots = kcalloc(s->nslots, sizeof(*s->slots));
	for (uint32_t i = 0; i < s->queued; i++)
		*slot_of(s, s->queue[i].type, s->queue[i].obj) = i + 1;
}

/* The number of an object, which is queued when it is met for the first time. */
static uint32_t number_of(struct state *s, const struct state_type *type, void *obj)
{
	uint32_t *slot;

	if (!obj || s->why)
		return 0;
	if (s->queued == s->queue_size)
		grow(s);
	slot = slot_of(s, type, obj);
	if (*slot)
		return *slot;
	if (s->queued == STATE_OBJECTS_MAX) {
		state_fail(s, "more than %u objects", STATE_OBJECTS_MAX);
		return 0;
	}
	s->queue[s->queued++] = (struct object){ obj, type };
	*slot = s->queued;
	return *slot;
}

static void save_ptr(struct state *s, const struct state_type *type, void *obj)
{
	uint32_t n = number_of(s, type, obj);

	put(s, &n, sizeof(n));
}

static void save_weak(struct state *s, const struct state_type *type, void *obj)
{
	uint32_t none = 0;

	if (obj) {
		if (s->npatches == s->patches_size) {
			s->patches_size = s->patches_size ? s->patches_size * 2 : 256;
			s->patches = krealloc_array(s->patches, s->patches_size,
						    sizeof(struct patch));
		}
		s->patches[s->npatches++] = (struct patch){ s->used, obj, type };
	}
	put(s, &none, sizeof(none));
}

static const struct state_type *type_in(struct state *s, const struct state_class *cls, const void *obj)
{
	const struct state_type *t = obj ? cls->type_of(obj) : NULL;

	if (obj && !t)
		state_fail(s, "%s: a kind of %s that can't be saved",
			   s->type ? s->type->name : "root", cls->name);
	return t;
}

/* ---- pointers, loading ---- */

static struct loaded *load_number(struct state *s)
{
	uint32_t n = 0;

	take(s, &n, sizeof(n));
	if (n > s->nobjs) {
		state_fail(s, "there is no object %u", n);
		n = 0;
	}
	return n && !s->why ? &s->objs[n - 1] : NULL;
}

static void *load_ptr(struct state *s, const struct state_type *type)
{
	struct loaded *l = load_number(s);

	if (!l)
		return NULL;
	if (l->type->id == type->id)
		return l->obj;
	state_fail(s, "a %s where a %s should be", l->type->name, type->name);
	return NULL;
}

static void *load_in(struct state *s, const struct state_class *cls, const struct state_type **ret_type)
{
	struct loaded *l = load_number(s);

	if (!l)
		return NULL;
	for (const struct state_type *const *t = cls->types; *t; t++) {
		if ((*t)->id != l->type->id)
			continue;
		*ret_type = l->type;
		return l->obj;
	}
	state_fail(s, "a %s where a kind of %s should be", l->type->name, cls->name);
	return NULL;
}

/* ---- pointers ---- */

/* @pp is a `T **`; C has no type for "pointer to any pointer". */
static void *deref(void *pp)
{
	void *p;

	memcpy(&p, pp, sizeof(p));
	return p;
}

static void assign(void *pp, void *p)
{
	memcpy(pp, &p, sizeof(p));
}

void state_ref(struct state *s, const struct state_type *type, void *pp)
{
	void *p;

	if (!s->loading) {
		save_ptr(s, type, deref(pp));
		return;
	}
	p = load_ptr(s, type);
	if (p && type->get)
		type->get(p);
	assign(pp, p);
}

void state_ptr(struct state *s, const struct state_type *type, void *pp)
{
	if (s->loading)
		assign(pp, load_ptr(s, type));
	else
		save_ptr(s, type, deref(pp));
}

void state_weak(struct state *s, const struct state_type *type, void *pp)
{
	if (s->loading)
		assign(pp, load_ptr(s, type));
	else
		save_weak(s, type, deref(pp));
}

void state_ref_in(struct state *s, const struct state_class *cls, void *pp)
{
	const struct state_type *type = NULL;
	void *p;

	if (!s->loading) {
		p = deref(pp);
		type = type_in(s, cls, p);
		save_ptr(s, type, type ? p : NULL);
		return;
	}
	p = load_in(s, cls, &type);
	if (p && type->get)
		type->get(p);
	assign(pp, p);
}

void state_ptr_in(struct state *s, const struct state_class *cls, void *pp)
{
	const struct state_type *type = NULL;
	void *p;

	if (s->loading) {
		assign(pp, load_in(s, cls, &type));
		return;
	}
	p = deref(pp);
	type = type_in(s, cls, p);
	save_ptr(s, type, type ? p : NULL);
}

void state_weak_in(struct state *s, const struct state_class *cls, void *pp)
{
	const struct state_type *type = NULL;
	void *p;

	if (s->loading) {
		assign(pp, load_in(s, cls, &type));
		return;
	}
	p = deref(pp);
	type = p ? cls->type_of(p) : NULL; /* what can't be saved isn't */
	save_weak(s, type, type ? p : NULL);
}

/* ---- saving ---- */

struct state *state_saver(enum state_purpose purpose, struct state_pages *pages)
{
	struct state *s = kzalloc(sizeof(*s));

	s->purpose = purpose;
	s->pages = pages;
	return s;
}

void state_add_root(struct state *s, const struct state_type *type, void *obj)
{
	if (s->nroots == STATE_ROOTS_MAX) {
		state_fail(s, "too many roots");
		return;
	}
	s->root[s->nroots].type = type;
	s->root[s->nroots].obj = obj;
	s->root_number[s->nroots++] = number_of(s, type, obj);
}

static void poke_u32(struct state *s, size_t at, uint32_t v)
{
	memcpy(s->buf + at, &v, sizeof(v));
}

static void save_object(struct state *s, uint32_t number)
{
	struct object o = s->queue[number - 1];
	const struct state_type *t = o.type;
	size_t head = s->used;
	uint32_t len = 0;
	uint16_t id = t->id, version = t->version;

	put(s, &id, sizeof(id));
	put(s, &version, sizeof(version));
	put(s, &number, sizeof(number));
	put(s, &len, sizeof(len));
	s->type = t;
	s->number = number;
	s->version = t->version;
	t->fields(s, o.obj);
	s->type = NULL;
	if (s->why)
		return;
	if (s->used - head - RECORD_HEAD > STATE_RECORD_MAX) {
		state_fail(s, "%s: too much to save in one object", t->name);
		return;
	}
	poke_u32(s, head + 8, (uint32_t)(s->used - head - RECORD_HEAD));
}

/* Objects are all over the heap; asking for those ahead saves waiting for memory once for each. */
static void fetch_ahead(const struct state *s, uint32_t i)
{
	const char *obj;

	if (s->queued - i <= AHEAD)
		return;
	obj = s->queue[i + AHEAD].obj;
	for (unsigned at = 0; at < AHEAD_BYTES; at += 64)
		__builtin_prefetch(obj + at);
}

int state_save(struct state *s, const void **ret_buf, size_t *ret_len)
{
	put(s, &s->queued, sizeof(s->queued)); /* known at the end */
	put(s, &s->nroots, sizeof(s->nroots));
	put(s, s->root_number, s->nroots * sizeof(s->root_number[0]));
	for (uint32_t i = 0; i < s->queued && !s->why; i++) {
		fetch_ahead(s, i);
		save_object(s, i + 1);
	}
	if (s->why)
		return -1;
	poke_u32(s, 0, s->queued);
	for (size_t i = 0; i < s->npatches; i++) {
		if (s->queued)
			poke_u32(s, s->patches[i].at, *slot_of(s, s->patches[i].type, s->patches[i].obj));
	}
	*ret_buf = s->buf;
	*ret_len = s->used;
	return 0;
}

/* ---- loading ---- */

struct state *state_loader(enum state_purpose purpose, struct state_pages *pages, const void *buf,
			   size_t len, state_lookup_fn lookup)
{
	struct state *s = kzalloc(sizeof(*s));

	s->purpose = purpose;
	s->pages = pages;
	s->loading = true;
	s->lookup = lookup ? lookup : state_type_find;
	cursor_init(&s->in, buf, len);
	return s;
}

/* Counts and roots. */
static void load_head(struct state *s)
{
	take(s, &s->nobjs, sizeof(s->nobjs));
	take(s, &s->nroots, sizeof(s->nroots));
	if (s->nobjs > STATE_OBJECTS_MAX || s->nobjs > s->in.left / RECORD_HEAD ||
	    s->nroots > STATE_ROOTS_MAX)
		state_fail(s, "impossible number of objects");
	if (s->why) {
		s->nobjs = s->nroots = 0;
		return;
	}
	for (uint32_t i = 0; i < s->nroots; i++) {
		take(s, &s->root_number[i], sizeof(uint32_t));
		if (s->root_number[i] > s->nobjs)
			state_fail(s, "there is no object %u", s->root_number[i]);
	}
}

static void load_record(struct state *s, uint32_t i)
{
	uint16_t id = pull_u16(&s->in), version = pull_u16(&s->in);
	uint32_t number = pull_u32(&s->in), len = pull_u32(&s->in);
	struct loaded *l = &s->objs[i];

	l->fields = pull_bytes(&s->in, len);
	l->len = len;
	l->version = version;
	l->type = s->lookup(id);
	if (!cursor_ok(&s->in) || len > STATE_RECORD_MAX || number != i + 1)
		state_fail(s, "record %u is damaged", i + 1);
	else if (!l->type)
		state_fail(s, "objects of type %u are unknown to this version", id);
	else if (version == 0 || version > l->type->version)
		state_fail(s, "%s objects of version %u: this holdfast knows %u", l->type->name,
			   version, l->type->version);
}

static void enter_object(struct state *s, uint32_t i)
{
	struct loaded *l = &s->objs[i];

	s->type = l->type;
	s->number = i + 1;
	s->version = l->version;
	cursor_init(&s->in, l->fields, l->len);
}

static void load_fields(struct state *s, uint32_t i)
{
	enter_object(s, i);
	s->type->fields(s, s->objs[i].obj);
	if (!s->why && s->in.left)
		state_fail(s, "%zu bytes too many", s->in.left);
}

int state_load(struct state *s)
{
	load_head(s);
	if (s->nobjs)
		s->objs = kcalloc(s->nobjs, sizeof(struct loaded));
	for (uint32_t i = 0; i < s->nobjs && !s->why; i++)
		load_record(s, i);
	if (!s->why && s->in.left)
		state_fail(s, "data after the last object");
	for (uint32_t i = 0; i < s->nobjs && !s->why; i++) {
		enter_object(s, i);
		s->objs[i].obj = s->type->alloc(s);
		if (!s->objs[i].obj)
			state_fail(s, "cannot be made");
	}
	for (uint32_t i = 0; i < s->nobjs && !s->why; i++)
		load_fields(s, i);
	for (unsigned phase = 0; phase < STATE_PHASES; phase++) {
		for (uint32_t i = 0; i < s->nobjs && !s->why; i++) {
			if (s->objs[i].type->phase != phase || !s->objs[i].type->finish)
				continue;
			enter_object(s, i);
			s->type->finish(s, s->objs[i].obj);
		}
	}
	s->type = NULL;
	return s->why ? -1 : 0;
}

void *state_root(struct state *s, unsigned i, const struct state_type *type)
{
	uint32_t n = i < s->nroots ? s->root_number[i] : 0;

	if (!n || s->why || s->objs[n - 1].type->id != type->id)
		return NULL;
	return s->objs[n - 1].obj;
}

/* ---- the end ---- */

static void end_saving(struct state *s)
{
	free(s->queue);
	free(s->slots);
	free(s->patches);
	free(s->buf);
}

void state_end(struct state *s)
{
	if (!s)
		return;
	if (s->loading) {
		for (uint32_t i = 0; i < s->nobjs && !s->why; i++)
			if (s->objs[i].type->put)
				s->objs[i].type->put(s->objs[i].obj);
		free(s->objs);
	} else {
		end_saving(s);
	}
	free(s->why);
	free(s);
}
