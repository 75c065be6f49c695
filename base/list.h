// SPDX-License-Identifier: Apache-2.0
/* Intrusive circular doubly linked list. A node that is in no list points to itself. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(name) { &(name), &(name) }

static inline void list_init(struct list *l)
{
	l->next = l;
	l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_between(struct list *n, struct list *prev, struct list *next)
{
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

static inline void list_add(struct list *head, struct list *n)
{
	list_insert_between(n, head, head->next);
}

static inline void list_add_tail(struct list *head, struct list *n)
{
	list_insert_between(n, head->prev, head);
}

/* Removes @n and leaves it pointing to itself, so that a second list_del is harmless. */
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

/* Moves all of @from to the end of @to; @from is empty afterwards. */
static inline void list_splice_tail(struct list *to, struct list *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_first(head, type, member) list_entry((head)->next, type, member)
#define list_last(head, type, member) list_entry((head)->prev, type, member)
#define list_next(pos, member) list_entry((pos)->member.next, __typeof__(*(pos)), member)

#define list_for_each(pos, head, member)                                                 \
	for (pos = list_first(head, __typeof__(*(pos)), member); &(pos)->member != (head);     \
	     pos = list_next(pos, member))

/* Like list_for_each, but the body may remove @pos. */
#define list_for_each_safe(pos, tmp, head, member)                                       \
	for (pos = list_first(head, __typeof__(*(pos)), member), tmp = list_next(pos, member); \
	     &(pos)->member != (head); pos = tmp, tmp = list_next(tmp, member))

#endif
