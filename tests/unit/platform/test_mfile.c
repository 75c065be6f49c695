// SPDX-License-Identifier: Apache-2.0
/* Memory files: random operations on the range allocator against a model with one count per page, and
 * what safecopy does when the ground gives way. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/size.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/safecopy.h"

#define PAGES 4096 /* of the model; allocations stay below by construction */

static int memfd_provider(int fds[2])
{
	char path[64];

	fds[0] = memfd_create("guest", MFD_CLOEXEC);
	if (fds[0] < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	fds[1] = open(path, O_RDONLY | O_CLOEXEC);
	return fds[1] < 0 ? -errno : 0;
}

static unsigned model[PAGES];
static unsigned seed = 12345;

static unsigned rnd(unsigned n)
{
	seed = seed * 1103515245 + 12345;
	return (seed >> 8) % n;
}

/* A random stretch of allocated pages, at most @max long; its length or 0. */
static unsigned pick(unsigned max, unsigned *ret_page)
{
	unsigned p = rnd(PAGES), n = 0;

	while (p + n < PAGES && n < max && model[p + n])
		n++;
	*ret_page = p;
	return n;
}

static void check_exclusive(struct mfile *mf)
{
	unsigned p, want = 0, n = pick(64, &p);

	while (want < n && model[p + want] == 1)
		want++;
	if (n)
		assert_int_equal(mfile_range_exclusive(mf, p * PAGE_SIZE, n * PAGE_SIZE),
				 want * PAGE_SIZE);
}

static void do_alloc(struct mfile *mf, unsigned n)
{
	uint64_t off;

	assert_int_equal(mfile_alloc(mf, n * PAGE_SIZE, &off), 0);
	if (off / PAGE_SIZE + n > PAGES) { /* the model is full */
		mfile_range_put(mf, off, n * PAGE_SIZE);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		uint64_t at = off + i * PAGE_SIZE, len = PAGE_SIZE;
		char *p = mfile_ptr(mf, at, &len);

		assert_int_equal(model[at / PAGE_SIZE]++, 0);
		assert_int_equal(*p, 0); /* freed memory comes back empty */
		*p = 1;
	}
}

static void test_runs(void **state __unused)
{
	struct mfile *mf = mfile_create("test");
	uint64_t live = 0;

	assert_false(is_err(mf));
	for (unsigned round = 0; round < 200000; round++) {
		unsigned p, n;

		switch (rnd(5)) {
		case 0:
			do_alloc(mf, 1 + rnd(32));
			break;
		case 1:
			n = pick(32, &p);
			if (n)
				mfile_range_get(mf, p * PAGE_SIZE, n * PAGE_SIZE);
			for (unsigned i = 0; i < n; i++)
				model[p + i]++;
			break;
		case 2:
		case 3:
			n = pick(64, &p);
			if (n)
				mfile_range_put(mf, p * PAGE_SIZE, n * PAGE_SIZE);
			for (unsigned i = 0; i < n; i++)
				model[p + i]--;
			break;
		case 4:
			check_exclusive(mf);
			break;
		}
	}
	for (unsigned i = 0; i < PAGES; i++)
		live += model[i] ? PAGE_SIZE : 0;
	assert_int_equal(mfile_total_reserved(), live);
	assert_int_equal(mfile_range_resident(mf, 0, PAGES * PAGE_SIZE), live);
	mfile_put(mf);
	assert_int_equal(mfile_total_reserved(), 0);
}

static void test_large(void **state __unused)
{
	struct mfile *mf = mfile_create("large");
	uint64_t a, b, len = UINT64_MAX;
	char *p;

	assert_int_equal(mfile_alloc(mf, 1UL << 40, &a), 0);
	assert_int_equal(mfile_alloc(mf, PAGE_SIZE, &b), 0);
	assert_int_equal(b, a + (1UL << 40)); /* adjacent */
	assert_true(mfile_alloc_at(mf, b + PAGE_SIZE, PAGE_SIZE));
	assert_false(mfile_alloc_at(mf, b, PAGE_SIZE));
	assert_int_equal(mfile_alloc(mf, 1UL << 46, &b), -ENOMEM);
	p = mfile_ptr(mf, a + MFILE_CHUNK_SIZE - 16, &len);
	assert_int_equal(len, 16);
	memset(p, 7, 16);
	assert_int_equal(mfile_range_resident(mf, a, 1UL << 40), PAGE_SIZE);
	mfile_range_discard(mf, a, 1UL << 40);
	assert_int_equal(mfile_range_resident(mf, a, 1UL << 40), 0);
	assert_int_equal(p[0], 0);
	mfile_put(mf);
}

static void test_safecopy(void **state __unused)
{
	static char buf[3 * PAGE_SIZE], back[3 * PAGE_SIZE];
	int fd = memfd_create("host", MFD_CLOEXEC);
	struct mfile *mf;
	uint64_t len = PAGE_SIZE * 4;
	uint32_t old;
	char *p;

	safecopy_init(); /* cmocka has put its own handlers there */
	assert_int_equal(ftruncate(fd, PAGE_SIZE), 0);
	mf = mfile_wrap_host(fd, true);
	p = mfile_ptr(mf, 0, &len);
	for (size_t i = 0; i < sizeof(buf); i++)
		buf[i] = (char)(i * 7);
	/* all small sizes, and a large one */
	for (size_t n = 0; n < 300; n++) {
		assert_int_equal(safecopy(p + n % 5, buf, n), 0);
		assert_int_equal(safecopy(back, p + n % 5, n), 0);
		assert_memory_equal(back, buf, n);
	}
	/* off the end of the file */
	assert_int_equal(safecopy(p, buf, 2 * PAGE_SIZE), PAGE_SIZE);
	assert_memory_equal(p, buf, PAGE_SIZE);
	assert_int_equal(safecopy(p + PAGE_SIZE - 8, buf, 24), 16);
	assert_int_equal(safecopy(back, p + PAGE_SIZE, 3), 3);
	assert_int_equal(safezero(p + 100, PAGE_SIZE), 100);
	assert_int_equal(safe_load32((uint32_t *)(p + PAGE_SIZE), &old), -EFAULT);
	assert_int_equal(safe_cmpxchg32((uint32_t *)(p + PAGE_SIZE), 0, 1, &old),
			 -EFAULT);
	assert_int_equal(safe_swap32((uint32_t *)(p + PAGE_SIZE), 0, &old), -EFAULT);
	*(uint32_t *)p = 5;
	assert_int_equal(safe_cmpxchg32((uint32_t *)p, 4, 6, &old), 0);
	assert_int_equal(old, 5);
	assert_int_equal(safe_cmpxchg32((uint32_t *)p, 5, 6, &old), 0);
	assert_int_equal(safe_swap32((uint32_t *)p, 9, &old), 0);
	assert_int_equal(old, 6);
	assert_int_equal(safe_load32((uint32_t *)p, &old), 0);
	assert_int_equal(old, 9);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(safecopy(back, p, 100), 100);
	mfile_put(mf);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_runs),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_safecopy),
	};

	mfile_set_provider(memfd_provider);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
