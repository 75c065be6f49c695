// SPDX-License-Identifier: Apache-2.0
/*
 * The patched call sites of an address space: what is where, for the mm that installs them, and for
 * threads whose registers point into one.
 *
 * A site's plan and trampoline never change, and are kept until the address space goes, since a thread
 * may be in the trampoline at any time. What changes is whether its jump is in the text (live). A site whose
 * text has changed since gets another trampoline.
 *
 * Locks: sites.mu (RANK_PLATFORM), nothing below it but the decoder's, which is never taken with it held.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/size.h"
#include "base/stats.h"
#include "platform/trap/trap_sites.h"

#define HOT_SLOTS  128U
#define HOT_CALLS  16U   /* a site that trapped so often is worth it */
#define SITES_MAX  1024U /* of an address space; and of trampolines, twice as many */
#define AREAS_MAX  64U
#define UNDONE_MAX 3U    /* a site that was taken back so often is left alone */
#define ILLS_MAX   64U   /* and one that was jumped into so often */
#define AREA_PAGES (PATCH_AREA_SIZE / PAGE_SIZE)

struct area {
	uint64_t start; /* 0: gone */
	uint16_t fill[AREA_PAGES]; /* bytes of each page that are given out */
};

struct trap_sites {
	struct mutex mu;
	/* (m) all that were ever made, by slot; the present one of each address, by address */
	struct trap_site **by_slot, **by_addr;
	unsigned nslot, naddr, slot_cap, addr_cap;
	struct area *areas[AREAS_MAX]; /* (m) */
	unsigned nareas;
	_Atomic bool any; /* (a) there has been a live site: threads need their %gs */
	struct {
		uint64_t addr;
		unsigned calls;
	} hot[HOT_SLOTS]; /* (m) by address: calls that trapped */
};

bool sites_any(const struct plat_as *as)
{
	return as->sites && atomic_load_explicit(&as->sites->any, memory_order_relaxed);
}

/* ---- looking up ---- */

/* Index of the first with key > @v. */
static unsigned upper(struct trap_site *const *a, unsigned n, uint64_t v, bool slots)
{
	unsigned lo = 0, hi = n;

	while (lo < hi) {
		unsigned mid = (lo + hi) / 2;

		if ((slots ? a[mid]->slot : a[mid]->plan.addr) <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct trap_site *find_addr_locked(const struct trap_sites *ss, uint64_t addr)
{
	unsigned i = upper(ss->by_addr, ss->naddr, addr, false);

	return i ? ss->by_addr[i - 1] : NULL;
}

struct trap_site *sites_by_slot(struct plat_as *as, uint64_t rip)
{
	struct trap_sites *ss = as->sites;
	struct trap_site *s = NULL;
	unsigned i;

	if (!sites_any(as))
		return NULL;
	mutex_lock(&ss->mu);
	i = upper(ss->by_slot, ss->nslot, rip, true);
	while (i && atomic_load(&ss->by_slot[i - 1]->lost))
		i--;
	if (i && ss->by_slot[i - 1]->slot && rip - ss->by_slot[i - 1]->slot <= ss->by_slot[i - 1]->plan.tail)
		s = ss->by_slot[i - 1];
	mutex_unlock(&ss->mu);
	return s;
}

struct trap_site *sites_by_text(struct plat_as *as, uint64_t rip)
{
	struct trap_sites *ss = as->sites;
	struct trap_site *s;

	if (!sites_any(as))
		return NULL;
	mutex_lock(&ss->mu);
	s = find_addr_locked(ss, rip);
	if (s && (rip - s->plan.addr >= PATCH_JMP_LEN || !s->slot))
		s = NULL;
	mutex_unlock(&ss->mu);
	return s;
}

uint64_t sites_resume(struct plat_as *as, uint64_t rip)
{
	struct trap_site *s = sites_by_text(as, rip);
	int off;

	if (!s || rip == s->plan.addr || !atomic_load(&s->live))
		return rip;
	/* Another thread's patch may not be in force yet: the trampoline may have no bytes, and the text may be
	 * either. If it is patched the thread comes back with SIGILL. */
	if (atomic_load(&as->pending))
		return rip;
	off = patch_to_slot(&s->plan, (unsigned)(rip - s->plan.addr));
	return off < 0 ? rip : s->slot + (unsigned)off;
}

bool sites_note_call(struct plat_as *as, uint64_t addr)
{
	struct trap_sites *ss = as->sites;
	struct trap_site *s;
	unsigned i = (unsigned)(addr ^ addr >> 7) % HOT_SLOTS;
	bool hot = false;

	if (!ss)
		return false;
	mutex_lock(&ss->mu);
	if (ss->hot[i].addr != addr) {
		ss->hot[i].addr = addr;
		ss->hot[i].calls = 0;
	}
	if (++ss->hot[i].calls >= HOT_CALLS) {
		ss->hot[i].calls = 0;
		s = find_addr_locked(ss, addr);
		hot = ss->naddr < SITES_MAX;
		if (s && s->plan.addr == addr)
			hot = !s->refused && !atomic_load(&s->live);
	}
	mutex_unlock(&ss->mu);
	return hot;
}

bool sites_note_ill(struct plat_as *as, struct trap_site *s)
{
	bool enough;

	mutex_lock(&as->sites->mu);
	enough = ++s->ills > ILLS_MAX;
	mutex_unlock(&as->sites->mu);
	return enough;
}

/* ---- changing ---- */

static void insert(struct trap_site ***arr, unsigned *n, unsigned *cap, struct trap_site *s,
		   bool slots)
{
	unsigned i = upper(*arr, *n, slots ? s->slot : s->plan.addr, slots);

	if (*n == *cap) {
		*cap = *cap ? *cap * 2 : 16;
		*arr = krealloc_array(*arr, *cap, sizeof(**arr));
	}
	memmove(*arr + i + 1, *arr + i, (*n - i) * sizeof(**arr));
	(*arr)[i] = s;
	(*n)++;
}

/* Takes over @s: it becomes the one of its address. */
static void publish_locked(struct trap_sites *ss, struct trap_site *s)
{
	unsigned i = upper(ss->by_addr, ss->naddr, s->plan.addr, false);

	insert(&ss->by_slot, &ss->nslot, &ss->slot_cap, s, true);
	if (i && ss->by_addr[i - 1]->plan.addr == s->plan.addr) {
		s->undone = ss->by_addr[i - 1]->undone;
		ss->by_addr[i - 1] = s;
	} else {
		insert(&ss->by_addr, &ss->naddr, &ss->addr_cap, s, false);
	}
}

/* A place for @p in one of the areas, with its contents. */
static int place_locked(struct trap_sites *ss, struct patch_plan *p, struct plat_patch *ret)
{
	for (unsigned i = 0; i < ss->nareas; i++) {
		struct area *a = ss->areas[i];
		uint64_t end = a->start + PATCH_AREA_SIZE, at = a->start;
		int len;

		while (a->start && (at = patch_next_slot(p->addr, at, end))) {
			uint16_t *fill = &a->fill[(at - a->start) / PAGE_SIZE];
			unsigned off = (unsigned)(at % PAGE_SIZE);

			if (off < *fill || off + SLOT_MAX > PAGE_SIZE) {
				at++;
				continue;
			}
			len = patch_emit(p, at, STUB_BASE + RT_SHIM, ret->slot_text);
			if (len < 0)
				break; /* as it will be nearby */
			*fill = (uint16_t)(off + (unsigned)len);
			ret->slot = at;
			ret->slot_len = (unsigned)len;
			return 0;
		}
	}
	return -ENOSPC;
}

static struct trap_site *site_new(const struct patch_plan *p, uint64_t slot)
{
	struct trap_site *s = kzalloc(sizeof(*s));

	s->plan = *p;
	s->slot = slot;
	return s;
}

static bool area_exists_locked(const struct trap_sites *ss, uint64_t slot)
{
	for (unsigned i = 0; i < ss->nareas; i++) {
		if (ss->areas[i]->start && slot - ss->areas[i]->start < PATCH_AREA_SIZE)
			return true;
	}
	return false;
}

/* The trampoline from when the site was live before will do, if its text is what it was. */
static bool reuse_locked(struct trap_sites *ss, const struct trap_site *s,
			 const struct patch_plan *p, struct plat_patch *ret)
{
	struct patch_plan old;

	if (!s->slot || atomic_load(&s->lost) || !area_exists_locked(ss, s->slot))
		return false;
	old = s->plan;
	old.tail = 0;
	for (unsigned i = 0; i < old.n; i++)
		old.insn[i].moved = 0;
	if (memcmp(&old, p, sizeof(old)) != 0)
		return false;
	ret->slot = s->slot;
	ret->slot_len = 0;
	return true;
}

static int prepare_locked(struct trap_sites *ss, struct patch_plan *p, struct plat_patch *ret)
{
	struct trap_site *s = find_addr_locked(ss, p->addr);
	const struct trap_site *o;
	int r;

	if (s && s->plan.addr != p->addr)
		s = NULL;
	if (s && (s->refused || atomic_load(&s->live) || s->undone >= UNDONE_MAX))
		return -EOPNOTSUPP;
	/* Sites mustn't overlap: the instructions behind one would jump into another. */
	o = find_addr_locked(ss, p->addr - 1);
	if (o && o->plan.addr + o->plan.len > p->addr)
		return -EOPNOTSUPP;
	o = find_addr_locked(ss, p->addr + p->len - 1);
	if (o && o->plan.addr > p->addr)
		return -EOPNOTSUPP;
	if (s && reuse_locked(ss, s, p, ret))
		return 0;
	if ((!s && ss->naddr >= SITES_MAX) || ss->nslot >= 2 * SITES_MAX)
		return -EOPNOTSUPP;
	r = place_locked(ss, p, ret);
	if (!r)
		publish_locked(ss, site_new(p, ret->slot));
	return r;
}

static int sites_prepare(struct plat_as *as, uint64_t addr, const uint8_t *text, unsigned n,
			 struct plat_patch *ret)
{
	struct trap_sites *ss = as->sites;
	struct patch_plan p;
	int r;

	memset(&p, 0, sizeof(p)); /* compared as a whole */
	r = patch_plan(addr, text, n, &p);
	if (r)
		return r;
	memset(ret, 0, sizeof(*ret));
	mutex_lock(&ss->mu);
	r = prepare_locked(ss, &p, ret);
	mutex_unlock(&ss->mu);
	if (r)
		return r;
	ret->addr = addr;
	patch_jump(addr, ret->slot, ret->text);
	return 0;
}

static void sites_refuse(struct plat_as *as, uint64_t addr)
{
	struct trap_sites *ss = as->sites;
	struct patch_plan p = { .addr = addr };
	struct trap_site *s;

	_Static_assert(sizeof(*s) <= PLAT_SITE_HEAP, "what the mm is charged");
	_Static_assert(3 * SITES_MAX <= PLAT_SITES_MAX, "2 with a trampoline, 1 without");
	stat_inc(STAT_SITE_REFUSED);
	mutex_lock(&ss->mu);
	s = find_addr_locked(ss, addr);
	if (s && s->plan.addr == addr) {
		s->refused = true;
	} else if (ss->naddr < SITES_MAX) {
		s = site_new(&p, 0);
		s->refused = true;
		publish_locked(ss, s);
	}
	mutex_unlock(&ss->mu);
}

static void sites_add_area(struct plat_as *as, uint64_t start)
{
	struct trap_sites *ss = as->sites;
	struct area *a = kzalloc(sizeof(*a));

	_Static_assert(sizeof(*a) <= PLAT_AREA_HEAP, "what the mm is charged");
	a->start = start;
	mutex_lock(&ss->mu);
	/* Until now threads could be told from what was there where they are. */
	for (unsigned i = upper(ss->by_slot, ss->nslot, start - 1, true);
	     i < ss->nslot && ss->by_slot[i]->slot - start < PATCH_AREA_SIZE; i++)
		atomic_store(&ss->by_slot[i]->lost, true);
	ss->areas[ss->nareas++] = a;
	mutex_unlock(&ss->mu);
}

static bool sites_area_window(struct plat_as *as, uint64_t addr, unsigned i, uint64_t *ret_lo,
			      uint64_t *ret_hi)
{
	return as->sites->nareas < AREAS_MAX && patch_area_window(addr, i, ret_lo, ret_hi);
}

static void sites_commit(struct plat_as *as, const struct plat_patch *p)
{
	struct trap_sites *ss = as->sites;
	struct trap_site *s;

	mutex_lock(&ss->mu);
	s = find_addr_locked(ss, p->addr);
	atomic_store(&s->live, true);
	atomic_store(&ss->any, true);
	stat_inc(STAT_SITE_PATCHED);
	mutex_unlock(&ss->mu);
}

/* ---- taking back ---- */

static bool overlaps(uint64_t a, uint64_t alen, uint64_t start, uint64_t end)
{
	return a < end && start < a + alen;
}

static bool area_overlaps_locked(const struct trap_sites *ss, uint64_t start, uint64_t end)
{
	for (unsigned i = 0; i < ss->nareas; i++) {
		if (ss->areas[i]->start &&
		    overlaps(ss->areas[i]->start, PATCH_AREA_SIZE, start, end))
			return true;
	}
	return false;
}

static bool sites_next(struct plat_as *as, uint64_t start, uint64_t end, struct plat_patch *ret)
{
	struct trap_sites *ss = as->sites;
	bool found = false, areas;
	unsigned i;

	if (!sites_any(as))
		return false;
	mutex_lock(&ss->mu);
	/* Unless it is about trampolines, only sites of that text are of interest. */
	areas = area_overlaps_locked(ss, start, end);
	i = areas ? 0 : upper(ss->by_addr, ss->naddr, start > 8 ? start - 8 : 0, false);
	for (; i < ss->naddr && !found && (areas || ss->by_addr[i]->plan.addr < end); i++) {
		const struct trap_site *s = ss->by_addr[i];

		if (!atomic_load(&s->live))
			continue;
		if (!overlaps(s->plan.addr, PATCH_JMP_LEN, start, end) &&
		    !overlaps(s->slot, SLOT_MAX, start, end))
			continue;
		ret->addr = s->plan.addr;
		ret->slot = s->slot;
		memcpy(ret->text, s->plan.orig, PATCH_JMP_LEN);
		found = true;
	}
	mutex_unlock(&ss->mu);
	return found;
}

static void sites_drop(struct plat_as *as, uint64_t addr, enum plat_drop why)
{
	struct trap_sites *ss = as->sites;
	struct trap_site *s;

	mutex_lock(&ss->mu);
	s = find_addr_locked(ss, addr);
	if (s && s->plan.addr == addr && atomic_exchange(&s->live, false)) {
		atomic_store(&s->gone_seq, atomic_load(&as->seq));
		if (why == PLAT_DROP_UNDONE)
			s->undone++;
		else if (why == PLAT_DROP_REFUSED)
			s->refused = true;
	}
	mutex_unlock(&ss->mu);
}

/* No trampoline is put there any more. */
static void sites_drop_areas(struct plat_as *as, uint64_t start, uint64_t end)
{
	struct trap_sites *ss = as->sites;

	if (!sites_any(as))
		return;
	mutex_lock(&ss->mu);
	for (unsigned i = 0; i < ss->nareas; i++) {
		if (ss->areas[i]->start &&
		    overlaps(ss->areas[i]->start, PATCH_AREA_SIZE, start, end))
			ss->areas[i]->start = 0;
	}
	mutex_unlock(&ss->mu);
}

/* ---- life ---- */

void sites_create(struct plat_as *as)
{
	as->sites = kzalloc(sizeof(*as->sites));
	mutex_init(&as->sites->mu, RANK_PLATFORM);
}

void sites_destroy(struct plat_as *as)
{
	struct trap_sites *ss = as->sites;

	if (!ss)
		return;
	for (unsigned i = 0; i < ss->nslot; i++)
		free(ss->by_slot[i]);
	for (unsigned i = 0; i < ss->nareas; i++)
		free(ss->areas[i]);
	free(ss->by_slot);
	free(ss->by_addr);
	mutex_fini(&ss->mu);
	free(ss);
	as->sites = NULL;
}

/* The child has the parent's text, patches and trampolines. It is nobody's yet. */
static void sites_fork(struct plat_as *child, struct plat_as *parent)
{
	struct trap_sites *to = child->sites, *from = parent->sites;

	if (!sites_any(parent))
		return;
	mutex_lock(&from->mu);
	for (unsigned i = 0; i < from->naddr; i++) {
		const struct trap_site *s = from->by_addr[i];
		struct trap_site *n = site_new(&s->plan, s->slot);

		n->refused = s->refused;
		n->undone = s->undone;
		atomic_store(&n->lost, atomic_load(&s->lost));
		atomic_store(&n->live, atomic_load(&s->live));
		publish_locked(to, n);
	}
	for (unsigned i = 0; i < from->nareas; i++) {
		to->areas[i] = kzalloc(sizeof(struct area));
		*to->areas[i] = *from->areas[i];
	}
	to->nareas = from->nareas;
	atomic_store(&to->any, atomic_load(&from->any));
	memcpy(to->hot, from->hot, sizeof(to->hot));
	mutex_unlock(&from->mu);
}

const struct plat_patch_ops trap_patch_ops = {
	.prepare = sites_prepare,
	.refuse = sites_refuse,
	.area_window = sites_area_window,
	.add_area = sites_add_area,
	.commit = sites_commit,
	.next = sites_next,
	.drop = sites_drop,
	.drop_areas = sites_drop_areas,
	.fork = sites_fork,
};
