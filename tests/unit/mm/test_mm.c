// SPDX-License-Identifier: Apache-2.0
/*
 * Address spaces on a fake platform. The core is a differential test: random mmap, munmap, mprotect,
 * mremap, madvise, accesses and forks run both on sentry/mm and, in a window of its own address
 * space, on the host kernel, and must agree on results, faults and contents.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/mm/fake_plat.h"

#include "sentry/mm/mm_priv.h"

#define BASE 0x200000000000UL /* guest and host window */
#define PAGES 96

static sigjmp_buf fault_jmp;
static volatile sig_atomic_t fault_armed, fault_code;

static void on_fault(int sig, siginfo_t *si, void *uc)
{
	(void)uc;
	if (!fault_armed)
		_exit(99);
	fault_code = si->si_code;
	siglongjmp(fault_jmp, sig);
}

static int host_access(uint64_t addr, bool write, uint8_t *byte, int *ret_code)
{
	volatile uint8_t *p = (volatile uint8_t *)addr;
	int sig = sigsetjmp(fault_jmp, 1);

	if (sig) {
		fault_armed = 0;
		*ret_code = fault_code;
		return sig;
	}
	fault_armed = 1;
	if (write)
		*p = *byte;
	else
		*byte = *p;
	fault_armed = 0;
	return 0;
}

/* Every pma has the mapping in the stub that it promises, and nothing else is mapped there. */
static void check_stub(struct mm *mm)
{
	uint64_t in_pmas = 0, in_stub = 0;
	struct pma *p;

	for (p = pma_find_ge(mm, 0); p; p = pma_next(p)) {
		in_pmas += p->end - p->start;
		for (uint64_t a = p->start; a < p->end; a += PAGE_SIZE) {
			struct vma *v = vma_find(mm, a);
			struct fake_range *r = fake_find(mm->as, a);

			assert_non_null(v);
			assert_non_null(r);
			assert_ptr_equal(r->mf, p->mf);
			assert_int_equal(r->off + (a - r->start), p->off + (a - p->start));
			assert_int_equal(r->prot, pma_prot(v, p));
		}
	}
	for (struct fake_range *r = mm->as->ranges; r; r = r->next)
		in_stub += r->end - r->start;
	assert_int_equal(in_pmas, in_stub);
}

static uint32_t rnd_state;

static uint32_t rnd(uint32_t n)
{
	rnd_state = rnd_state * 1664525 + 1013904223;
	return (rnd_state >> 8) % n;
}

static int rnd_prot(void)
{
	static const int prots[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE,
				     PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC };

	return prots[rnd(ARRAY_SIZE(prots))];
}

static long host_ret(void *p)
{
	return p == MAP_FAILED ? -errno : (long)p;
}

static void rnd_range(uint64_t *a, uint64_t *len)
{
	*a = BASE + rnd(PAGES) * PAGE_SIZE;
	*len = (1 + rnd(12)) * PAGE_SIZE;
	if (*a + *len > BASE + PAGES * PAGE_SIZE)
		*len = BASE + PAGES * PAGE_SIZE - *a;
}

static void op_mmap(struct task *t)
{
	int prot = rnd_prot(), flags = MAP_FIXED | MAP_ANONYMOUS;
	uint64_t a, len;

	rnd_range(&a, &len);
	flags |= rnd(4) ? MAP_PRIVATE : MAP_SHARED;
	assert_int_equal(mm_mmap(t, gaddr(a), len, prot, flags, NULL, 0),
			 host_ret(mmap((void *)a, len, prot, flags, -1, 0)));
}

static void op_munmap(struct task *t)
{
	uint64_t a, len;

	rnd_range(&a, &len);
	assert_int_equal(mm_munmap(t, gaddr(a), len), munmap((void *)a, len) ? -errno : 0);
}

static void op_mprotect(struct task *t)
{
	int prot = rnd_prot();
	uint64_t a, len;

	rnd_range(&a, &len);
	assert_int_equal(mm_mprotect(t, gaddr(a), len, prot),
			 mprotect((void *)a, len, prot) ? -errno : 0);
}

static void op_madvise(struct task *t)
{
	static const int advice[] = { MADV_DONTNEED, MADV_DONTNEED, MADV_WILLNEED, MADV_NOHUGEPAGE };
	int adv = advice[rnd(ARRAY_SIZE(advice))];
	uint64_t a, len;

	rnd_range(&a, &len);
	assert_int_equal(mm_madvise(t, gaddr(a), len, adv),
			 madvise((void *)a, len, adv) ? -errno : 0);
}

/*
 * The host keeps anonymous vmas apart that were moved (their page offsets differ) where we merge, and
 * refuses to move across them. So a range of ours is moved page by page on the host; growing and
 * DONTUNMAP are tried with single pages.
 */
static void op_mremap(struct task *t)
{
	int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
	uint64_t a, len, to, nlen;
	struct vma *v;

	rnd_range(&a, &len);
	rnd_range(&to, &nlen);
	v = vma_find(t->mm, a);
	if (!v)
		return;
	if (rnd(2)) {
		len = MIN(len, v->end - a);
		if (to + len > BASE + PAGES * PAGE_SIZE || (to < a + len && a < to + len))
			return;
		assert_int_equal(mm_mremap(t, gaddr(a), len, len, flags, gaddr(to)), to);
		for (uint64_t i = 0; i < len; i += PAGE_SIZE)
			assert_ptr_equal(mremap((void *)(a + i), PAGE_SIZE, PAGE_SIZE, flags,
						(void *)(to + i)),
					 (void *)(to + i));
		return;
	}
	/* Growing shared anonymous memory gives pages past its end: SIGBUS on both, but skip the rest. */
	if (rnd(2) || vma_shared(v))
		nlen = PAGE_SIZE;
	if (nlen == PAGE_SIZE && !vma_shared(v) && rnd(2))
		flags |= MREMAP_DONTUNMAP;
	assert_int_equal(mm_mremap(t, gaddr(a), PAGE_SIZE, nlen, flags, gaddr(to)),
			 host_ret(mremap((void *)a, PAGE_SIZE, nlen, flags, (void *)to)));
}

static void op_access(struct task *t)
{
	uint64_t a = BASE + rnd(PAGES) * PAGE_SIZE + rnd(PAGE_SIZE);
	uint8_t g = (uint8_t)rnd(256), h = g;
	bool write = rnd(3) != 0;
	int gc = 0, hc = 0;

	assert_int_equal(guest_access(t, a, write, &g, &gc), host_access(a, write, &h, &hc));
	assert_int_equal(gc, hc);
	assert_int_equal(g, h);
}

static void op_copyout(struct task *t)
{
	uint64_t a = BASE + rnd(PAGES) * PAGE_SIZE + rnd(PAGE_SIZE);
	uint8_t buf[3] = { 1, 2, 3 };
	struct vma *v = vma_find(t->mm, a), *w = vma_find(t->mm, a + 2);
	bool ok = v && w && (v->prot & PROT_WRITE) && (w->prot & PROT_WRITE);

	if (!ok)
		return;
	assert_int_equal(copyout(t, gaddr(a), buf, 3), 0);
	memcpy((void *)a, buf, 3);
}

static void compare_all(struct task *t)
{
	for (int i = 0; i < PAGES; i++) {
		uint64_t a = BASE + (uint64_t)i * PAGE_SIZE;
		uint8_t g[PAGE_SIZE];
		uint8_t b = 0;
		int code, sig = host_access(a, false, &b, &code);

		assert_int_equal(copyin(t, g, gaddr(a), sizeof(g)), sig ? -EFAULT : 0);
		if (!sig)
			assert_memory_equal(g, (void *)a, sizeof(g));
	}
}

/* Forks, lets the child scribble, and keeps up to three children alive across more operations. */
static struct task *children[3];
static uint8_t snapshots[3][PAGES * PAGE_SIZE];

/* What a child has in its private pages, as it was at fork plus its own writes. */
static void snapshot(struct task *c, uint8_t *snap, bool compare)
{
	static uint8_t page[PAGE_SIZE];

	for (uint64_t i = 0; i < PAGES; i++) {
		uint64_t a = BASE + i * PAGE_SIZE;
		struct vma *v = vma_find(c->mm, a);

		if (!v || vma_shared(v) || v->prot == PROT_NONE)
			continue;
		assert_int_equal(copyin(c, page, gaddr(a), PAGE_SIZE), 0);
		if (compare)
			assert_memory_equal(page, snap + i * PAGE_SIZE, PAGE_SIZE);
		else
			memcpy(snap + i * PAGE_SIZE, page, PAGE_SIZE);
	}
}

static void op_fork(struct task *t)
{
	uint32_t n = rnd(3);
	struct task **slot = &children[n];

	if (*slot) {
		check_stub((*slot)->mm);
		snapshot(*slot, snapshots[n], true);
		mm_unuse((*slot)->mm);
		fake_task_free(*slot);
		*slot = NULL;
		return;
	}
	struct mm *mm = mm_fork(t->mm, NULL);

	assert_false(is_err(mm));
	*slot = fake_task(mm);
	check_stub(mm);
	snapshot(*slot, snapshots[n], false);
	for (int i = 0; i < 20; i++) {
		uint64_t a = BASE + rnd(PAGES) * PAGE_SIZE + rnd(PAGE_SIZE);
		struct vma *v = vma_find(mm, a);
		uint8_t b = 0xee, parent = 0, after = 0;
		int code;

		if (!v || vma_shared(v) || !(v->prot & PROT_WRITE))
			continue;
		assert_int_equal(copyin(t, &parent, gaddr(a), 1), 0);
		assert_int_equal(guest_access(*slot, a, true, &b, &code), 0);
		assert_int_equal(copyin(t, &after, gaddr(a), 1), 0);
		assert_int_equal(parent, after);
		assert_int_equal(copyin(*slot, &after, gaddr(a), 1), 0);
		assert_int_equal(after, 0xee);
		snapshots[n][a - BASE] = 0xee;
	}
}

static void run_random(uint32_t seed)
{
	void (*const ops[])(struct task *) = { op_mmap,	 op_mmap,  op_munmap, op_mprotect,
					       op_madvise, op_mremap, op_fork,	op_access,
					       op_access,	 op_access, op_copyout, op_access };
	struct task *t = fake_task(mm_create());

	rnd_state = seed;
	munmap((void *)BASE, PAGES * PAGE_SIZE);
	for (int i = 0; i < 600; i++) {
		ops[rnd(ARRAY_SIZE(ops))](t);
		if (i % 32 == 0) {
			check_stub(t->mm);
			compare_all(t);
		}
	}
	compare_all(t);
	for (int i = 0; i < 3; i++) {
		if (!children[i])
			continue;
		mm_unuse(children[i]->mm);
		fake_task_free(children[i]);
		children[i] = NULL;
	}
	mm_unuse(t->mm);
	fake_task_free(t);
	munmap((void *)BASE, PAGES * PAGE_SIZE);
}

static void random_operations_agree_with_host(void **state)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER }, old[2];
	const char *n = getenv("MM_SEEDS");
	int seeds = n ? atoi(n) : 60;

	(void)state;
	/* safecopy's own handler comes back afterwards; inside it the copies of this test don't fault. */
	sigaction(SIGSEGV, &sa, &old[0]);
	sigaction(SIGBUS, &sa, &old[1]);
	for (int s = 1; s <= seeds; s++)
		run_random((uint32_t)s * 2654435761u);
	sigaction(SIGSEGV, &old[0], NULL);
	sigaction(SIGBUS, &old[1], NULL);
}

static void anonymous_neighbours_merge_into_one_host_mapping(void **state)
{
	struct task *t = fake_task(mm_create());
	struct mm_stat st;
	unsigned n = 0;

	(void)state;
	for (int i = 0; i < 100; i++)
		assert_true(mm_mmap(t, GADDR_NULL, 8 * PAGE_SIZE, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, NULL, 0) > 0);
	mm_stat(t->mm, &st);
	assert_int_equal(st.map_count, 1);
	assert_int_equal(st.total_vm, 800 * PAGE_SIZE);
	for (struct pma *p = pma_find_ge(t->mm, 0); p; p = pma_next(p))
		n++;
	assert_int_equal(n, 1);
	mm_unuse(t->mm);
	fake_task_free(t);
}

static void reservation_of_terabytes_costs_nothing(void **state)
{
	struct task *t = fake_task(mm_create());
	uint64_t before = mfile_total_reserved();
	uint8_t b = 7;
	int code;
	long a;

	(void)state;
	a = mm_mmap(t, GADDR_NULL, 8UL << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		    NULL, 0);
	assert_true(a > 0);
	assert_int_equal(mfile_total_reserved(), before);
	assert_int_equal(mm_mprotect(t, gaddr((uint64_t)a), 64 << 20, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(guest_access(t, (uint64_t)a + 12345, true, &b, &code), 0);
	/* Accessible giants are backed in windows. */
	a = mm_mmap(t, GADDR_NULL, 14UL << 40, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, NULL, 0);
	assert_true(a > 0);
	assert_int_equal(guest_access(t, (uint64_t)a + (9UL << 40), true, &b, &code), 0);
	assert_true(mfile_total_reserved() < before + (4UL << 30));
	mm_unuse(t->mm);
	fake_task_free(t);
}

static void fork_reuses_pages_in_place_after_child_has_gone(void **state)
{
	struct task *t = fake_task(mm_create()), *c;
	uint8_t b = 1;
	int code;
	long a;

	(void)state;
	a = mm_mmap(t, GADDR_NULL, 512 * PAGE_SIZE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, NULL, 0);
	assert_int_equal(guest_access(t, (uint64_t)a, true, &b, &code), 0);
	c = fake_task(mm_fork(t->mm, NULL));
	mm_unuse(c->mm);
	fake_task_free(c);
	unsigned maps = t->mm->as->maps, protects = t->mm->as->protects;
	for (int i = 0; i < 512; i++)
		assert_int_equal(guest_access(t, (uint64_t)a + (uint64_t)i * PAGE_SIZE, true, &b, &code),
				 0);
	assert_int_equal(t->mm->as->maps, maps);
	assert_int_equal(t->mm->as->protects, protects + 1);
	mm_unuse(t->mm);
	fake_task_free(t);
}

static void heap_grows_as_one_mapping(void **state)
{
	struct task *t = fake_task(mm_create());
	struct mm_layout l = { .start_brk = gaddr(0x10000000), .brk = gaddr(0x10000000) };
	unsigned n = 0;

	(void)state;
	mm_set_layout(t->mm, &l);
	assert_int_equal(mm_brk(t, GADDR_NULL), 0x10000000);
	for (uint64_t b = 0x10000000; b < 0x10400000; b += 33 * PAGE_SIZE)
		assert_int_equal(mm_brk(t, gaddr(b)), b);
	assert_int_equal(mm_brk(t, gaddr(0x10000123)), 0x10000123);
	assert_int_equal(mm_brk(t, gaddr(0x0fffffff)), 0x10000123);
	assert_int_equal(t->mm->map_count, 1);
	for (struct pma *p = pma_find_ge(t->mm, 0); p; p = pma_next(p))
		n++;
	assert_int_equal(n, 1);
	mm_unuse(t->mm);
	fake_task_free(t);
}

static void stack_grows_to_its_limit(void **state)
{
	struct task *t = fake_task(mm_create());
	uint64_t top = 0x7ff000000000;
	uint8_t b = 5;
	int code = 0;
	long a;

	(void)state;
	a = mm_mmap(t, gaddr(top - 4 * PAGE_SIZE), 4 * PAGE_SIZE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, NULL, 0);
	assert_true(a > 0);
	assert_int_equal(guest_access(t, top - (1 << 20), true, &b, &code), 0);
	assert_int_equal(guest_access(t, top - (8 << 20), true, &b, &code), 0);
	assert_int_equal(guest_access(t, top - (8 << 20) - 1, true, &b, &code), SIGSEGV);
	assert_int_equal(code, SEGV_MAPERR);
	mm_unuse(t->mm);
	fake_task_free(t);
}

static void limits_refuse(void **state)
{
	struct task *t = fake_task(mm_create());
	int rw = PROT_READ | PROT_WRITE, anon = MAP_PRIVATE | MAP_ANONYMOUS;

	(void)state;
	assert_int_equal(mm_mmap(t, GADDR_NULL, 0, rw, anon, NULL, 0), -EINVAL);
	assert_int_equal(mm_mmap(t, GADDR_NULL, UINT64_MAX, rw, anon, NULL, 0), -ENOMEM);
	assert_int_equal(mm_mmap(t, GADDR_NULL, 1UL << 46, rw, anon, NULL, 0), -ENOMEM);
	assert_int_equal(mm_mmap(t, gaddr(0x1000), PAGE_SIZE, rw, anon | MAP_FIXED, NULL, 0), -EPERM);
	assert_int_equal(mm_mmap(t, gaddr(GUEST_TASK_SIZE), PAGE_SIZE, rw, anon | MAP_FIXED, NULL, 0),
			 -ENOMEM);
	assert_int_equal(mm_mmap(t, GADDR_NULL, PAGE_SIZE, rw, MAP_ANONYMOUS, NULL, 0), -EINVAL);
	t->tg->rlim[RLIMIT_AS].cur = 1 << 20;
	assert_int_equal(mm_mmap(t, GADDR_NULL, 2 << 20, rw, anon, NULL, 0), -ENOMEM);
	assert_true(mm_mmap(t, GADDR_NULL, 1 << 20, rw, anon, NULL, 0) > 0);
	mm_unuse(t->mm);
	fake_task_free(t);
}

static int setup(void **state)
{
	(void)state;
	fake_init();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(anonymous_neighbours_merge_into_one_host_mapping),
		cmocka_unit_test(reservation_of_terabytes_costs_nothing),
		cmocka_unit_test(fork_reuses_pages_in_place_after_child_has_gone),
		cmocka_unit_test(heap_grows_as_one_mapping),
		cmocka_unit_test(stack_grows_to_its_limit),
		cmocka_unit_test(limits_refuse),
		cmocka_unit_test(random_operations_agree_with_host),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
