// SPDX-License-Identifier: Apache-2.0
/*
 * Inside of saving and loading: what drives a struct state. Used by state.c, pages.c, image.c and the unit
 * test; types only need state.h.
 */
#ifndef SENTRY_STATE_STATE_PRIV_H
#define SENTRY_STATE_STATE_PRIV_H

#include "sentry/state/state.h"

#define STATE_RECORD_MAX (64U << 20) /* bytes of one object's fields */
#define STATE_OBJECTS_MAX (8U << 20)
#define STATE_ROOTS_MAX 16

struct state_pages; /* pages.c */

/* The type with this number, or NULL. Replaceable for tests. */
const struct state_type *state_type_find(unsigned id);
typedef const struct state_type *(*state_lookup_fn)(unsigned id);

/* ---- saving ---- */

struct state *state_saver(enum state_purpose purpose, struct state_pages *pages);
/* An object that the loader shall ask for by its place in the order of these calls. */
void state_add_root(struct state *s, const struct state_type *type, void *obj);
/* Writes everything that the roots lead to. The bytes are borrowed from @s. 0, or -1: state_why(). */
int state_save(struct state *s, const void **ret_buf, size_t *ret_len);

/* ---- loading ---- */

/* @buf must stay until state_end(). @lookup: NULL for state_type_find. */
struct state *state_loader(enum state_purpose purpose, struct state_pages *pages, const void *buf,
			   size_t len, state_lookup_fn lookup);
/* All three passes. 0, or -1: state_why(); what was made so far is then leaked on purpose: the process ends. */
int state_load(struct state *s);
/* Root @i, which has to be of @type; borrowed until state_end(). NULL: it isn't. */
void *state_root(struct state *s, unsigned i, const struct state_type *type);

/* ---- both ---- */

/* Why it failed; NULL if it didn't. */
const char *state_why(const struct state *s);
/* Objects written or read. */
uint32_t state_objects(const struct state *s);
struct state_pages *state_pages_of(struct state *s);
/* After a load: drops the load's own references. NULL is fine. */
void state_end(struct state *s);

#endif
