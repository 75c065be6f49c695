// SPDX-License-Identifier: Apache-2.0
/*
 * A platform without guests: applies the mapping calls of sentry/mm to a table of pages, and lets a test
 * play a guest that reads and writes through that table, with faults going to mm_handle_fault().
 */
#ifndef TESTS_UNIT_MM_FAKE_PLAT_H
#define TESTS_UNIT_MM_FAKE_PLAT_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uthash.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "platform/platform.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/safecopy.h"
#include "sentry/mm/usermem.h"

struct fake_range {
	uint64_t start, end, off;
	struct mfile *mf;
	int prot;
	bool writable_fd;
	struct fake_range *next;
};

struct plat_as {
	struct fake_range *ranges; /* sorted */
	uint64_t seq;
	bool pending;
	unsigned maps, unmaps, protects;
};

static struct fake_range *fake_find(struct plat_as *as, uint64_t a)
{
	for (struct fake_range *r = as->ranges; r; r = r->next)
		if (r->start <= a && a < r->end)
			return r;
	return NULL;
}

static void fake_split(struct plat_as *as, uint64_t a)
{
	struct fake_range *r = fake_find(as, a), *n;

	if (!r || r->start == a)
		return;
	n = kzalloc(sizeof(*n));
	*n = *r;
	mfile_get(n->mf);
	n->start = a;
	n->off += a - r->start;
	r->end = a;
	r->next = n;
}

static void fake_cut(struct plat_as *as, uint64_t start, uint64_t end)
{
	fake_split(as, start);
	fake_split(as, end);
	for (struct fake_range **pp = &as->ranges; *pp;) {
		struct fake_range *r = *pp;

		if (r->start < start || r->start >= end) {
			pp = &r->next;
			continue;
		}
		*pp = r->next;
		mfile_put(r->mf);
		free(r);
	}
}

static int fake_map(struct plat_as *as, gaddr_t addr, uint64_t len, int prot, struct mfile *mf,
		    uint64_t off, bool writable_fd)
{
	struct fake_range *n = kzalloc(sizeof(*n)), **pp = &as->ranges;

	if (!page_aligned(addr.va | len | off) || len == 0)
		panic("bad as_map");
	if ((prot & PROT_WRITE) && !writable_fd)
		panic("writable mapping through a read-only descriptor");
	fake_cut(as, addr.va, addr.va + len);
	while (*pp && (*pp)->start < addr.va)
		pp = &(*pp)->next;
	*n = (struct fake_range){ addr.va, addr.va + len, off, mfile_get(mf), prot, writable_fd, *pp };
	*pp = n;
	as->maps++;
	as->pending = true;
	return 0;
}

static int fake_unmap(struct plat_as *as, gaddr_t addr, uint64_t len)
{
	fake_cut(as, addr.va, addr.va + len);
	as->unmaps++;
	as->pending = true;
	return 0;
}

static int fake_protect(struct plat_as *as, gaddr_t addr, uint64_t len, int prot)
{
	uint64_t a = addr.va, end = addr.va + len;

	fake_split(as, a);
	fake_split(as, end);
	while (a < end) {
		struct fake_range *r = fake_find(as, a);

		if (!r)
			panic("as_protect over a hole at %lx", a);
		if ((prot & PROT_WRITE) && !r->writable_fd)
			panic("as_protect makes a read-only descriptor writable");
		r->prot = prot;
		a = r->end;
	}
	as->protects++;
	as->pending = true;
	return 0;
}

static struct plat_as *fake_as_create(void)
{
	return kzalloc(sizeof(struct plat_as));
}

static void fake_as_destroy(struct plat_as *as)
{
	fake_cut(as, 0, UINT64_MAX);
	free(as);
}

static void fake_populate(struct plat_as *as, gaddr_t addr, uint64_t len, bool write)
{
	(void)as;
	(void)addr;
	(void)len;
	(void)write;
}

/* Calls take effect at once here; the counter moves as if they were applied before a resume. */
static void fake_apply(struct plat_as *as)
{
	if (as->pending)
		as->seq++;
	as->pending = false;
}

static int fake_flush(struct plat_as *as, struct plat_ctx *self)
{
	(void)self;
	fake_apply(as);
	return 0;
}

static uint64_t fake_seq(struct plat_as *as)
{
	return as->seq;
}

static const struct platform fake_platform = {
	.name = "fake",
	.as_create = fake_as_create,
	.as_destroy = fake_as_destroy,
	.as_map = fake_map,
	.as_unmap = fake_unmap,
	.as_protect = fake_protect,
	.as_populate = fake_populate,
	.as_flush = fake_flush,
	.as_map_seq = fake_seq,
};

static int fake_memfd(int fds[2])
{
	char path[64];

	fds[0] = memfd_create("mm", MFD_CLOEXEC);
	if (fds[0] < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	fds[1] = open(path, O_RDONLY | O_CLOEXEC);
	return fds[1] < 0 ? -errno : 0;
}

static inline void fake_init(void)
{
	static bool done;

	if (done)
		return;
	done = true;
	plat = &fake_platform;
	mfile_set_provider(fake_memfd);
	safecopy_init();
}

static inline struct task *fake_task(struct mm *mm)
{
	struct task *t = kzalloc(sizeof(*t));

	t->mm = mm;
	t->tg = kzalloc(sizeof(*t->tg));
	mutex_init(&t->mu, RANK_TASK);
	mutex_init(&t->tg->rlim_mu, RANK_TASK);
	for (int i = 0; i < RLIM_COUNT; i++)
		t->tg->rlim[i] = (struct rlimit_g){ RLIM_INFINITY_G, RLIM_INFINITY_G };
	t->tg->rlim[RLIMIT_STACK].cur = 8 << 20;
	t->tg->rlim[RLIMIT_MEMLOCK].cur = 8 << 20;
	t->cred = kzalloc(sizeof(*t->cred));
	return t;
}

static inline void fake_task_free(struct task *t)
{
	mutex_fini(&t->mu);
	mutex_fini(&t->tg->rlim_mu);
	free(t->tg);
	free(t->cred);
	free(t);
}

/* A guest's access of one byte. 0, or the signal with its code in *ret_code. */
static inline int guest_access(struct task *t, uint64_t addr, bool write, uint8_t *byte, int *ret_code)
{
	for (int i = 0; i < 64; i++) {
		struct plat_as *as = mm_plat_as(t->mm);
		struct fake_range *r = fake_find(as, addr);
		struct plat_trap trap = { .addr = addr, .signo = SIGSEGV };
		int sig;

		fake_apply(as);
		trap.map_seq = as->seq;

		if (r && (r->prot & (write ? PROT_WRITE : PROT_READ | PROT_EXEC | PROT_WRITE))) {
			uint64_t n = 1;

			if (write) {
				uint8_t *p = mfile_ptr(r->mf, r->off + (addr - r->start), &n);

				if (safecopy(p, byte, 1) == 0)
					return 0;
			} else {
				const uint8_t *p =
					mfile_cptr(r->mf, r->off + (addr - r->start), &n);

				if (safecopy(byte, p, 1) == 0)
					return 0;
			}
			trap.signo = SIGBUS;
		}
		sig = mm_handle_fault(t, &trap, ret_code);
		if (sig)
			return sig;
	}
	panic("a fault at %lx never ends", addr);
}

#endif
