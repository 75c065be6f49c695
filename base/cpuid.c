// SPDX-License-Identifier: Apache-2.0
/*
 * See cpuid.h. Leaves that were asked for are kept in the order of asking, published by their number, so readers
 * take no lock; one that finds no place any more is asked each time.
 */
#include "base/cpuid.h"

#include <cpuid.h>
#include <pthread.h>
#include <string.h>

#define LEAVES_MAX 48 /* the components of 0xd are most of them */

struct leaf {
	uint32_t leaf, sub, r[4];
	bool there;
};

static struct {
	pthread_mutex_t mu; /* of writers; nothing is taken or called within */
	_Atomic unsigned n;
	struct leaf v[LEAVES_MAX];
} known = { .mu = PTHREAD_MUTEX_INITIALIZER };

static const struct leaf *find(uint32_t leaf, uint32_t sub)
{
	for (unsigned i = 0; i < known.n; i++)
		if (known.v[i].leaf == leaf && known.v[i].sub == sub)
			return &known.v[i];
	return NULL;
}

/* The highest leaf of the range that @leaf is in (0 and up; 0x80000000 and up). */
static uint32_t highest(uint32_t leaf)
{
	uint32_t r[4] = { 0 };

	if (leaf & 0x7fffffff)
		(void)cpuid(leaf & 0x80000000, 0, r); /* there on each CPU */
	else
		__cpuid(leaf, r[EAX], r[EBX], r[ECX], r[EDX]);
	return r[EAX];
}

static struct leaf ask(uint32_t leaf, uint32_t sub)
{
	struct leaf l = { .leaf = leaf, .sub = sub, .there = leaf <= highest(leaf) };

	if (l.there)
		__cpuid_count(leaf, sub, l.r[EAX], l.r[EBX], l.r[ECX], l.r[EDX]);
	return l;
}

bool cpuid(uint32_t leaf, uint32_t sub, uint32_t r[4])
{
	const struct leaf *l = find(leaf, sub);
	struct leaf new;

	if (!l) {
		l = &new;
		new = ask(leaf, sub);
		pthread_mutex_lock(&known.mu);
		if (known.n < LEAVES_MAX && !find(leaf, sub)) {
			known.v[known.n] = new;
			known.n++;
		}
		pthread_mutex_unlock(&known.mu);
	}
	memcpy(r, l->r, sizeof(l->r));
	return l->there;
}

bool cpuid_bit(uint32_t leaf, uint32_t sub, enum cpuid_reg reg, unsigned bit)
{
	uint32_t r[4];

	return cpuid(leaf, sub, r) && (r[reg] >> bit & 1);
}
