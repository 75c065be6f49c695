// SPDX-License-Identifier: Apache-2.0
/*
 * What becomes of real call sites (bytes as compilers and C libraries emit them), and that what is put
 * there keeps its promises: undefined bytes, relocated targets, a way back for each address.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/size.h"
#include "platform/stub/layout.h"
#include "platform/trap/trap_patch.h"

#define AT   0x7f1234567000UL
#define SHIM (STUB_BASE + RT_SHIM)

static int plan_at(uint64_t at, const char *bytes, unsigned n, struct patch_plan *p)
{
	memset(p, 0, sizeof(*p));
	return patch_plan(at, (const uint8_t *)bytes, n, p);
}

#define PLAN(p, bytes) plan_at(AT, (bytes), sizeof(bytes) - 1, (p))

/* A slot that @p may have, and what is there. */
static int emit(struct patch_plan *p, uint64_t *ret_slot, uint8_t buf[SLOT_MAX])
{
	uint64_t lo, hi;

	for (unsigned i = 0; patch_area_window(p->addr, i, &lo, &hi); i++) {
		uint64_t slot = lo < hi ? patch_next_slot(p->addr, lo, lo + PATCH_AREA_SIZE) : 0;

		if (!slot)
			continue;
		*ret_slot = slot;
		return patch_emit(p, slot, SHIM, buf);
	}
	return -ENOSPC;
}

static int32_t rel_at(const uint8_t *b)
{
	int32_t d;

	memcpy(&d, b, sizeof(d));
	return d;
}

static void real_sites(void **state __attribute__((unused)))
{
	static const struct {
		const char *bytes;
		unsigned n, len; /* len 0: refused */
	} t[] = {
#define T(b, len) { b, sizeof(b) - 1, len }
		T("\x0f\x05\x48\x3d\x01\xf0\xff\xff\x73\x01\xc3", 8),     /* glibc syscall() */
		T("\x0f\x05\x48\x3d\x00\xf0\xff\xff\x77\x53\xc3", 8),     /* glibc read() */
		T("\x0f\x05\x57\x48\x3d\x01\xf0\xff\xff", 9),             /* glibc vfork() */
		T("\x0f\x05\x89\xc2\x48\x89\xd8", 7),
		T("\x0f\x05\xc3\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00", 13), /* musl, then nops */
		T("\x0f\x05\xc3\x90\x90", 5),
		T("\x0f\x05\xc3\xcc\xcc\xcc\xcc", 5),                     /* Go, then int3 */
		T("\x0f\x05\x48\x3d\x01\xf0\xff\xff\x76\x20", 8),         /* Go rawVforkSyscall */
		T("\x0f\x05\x89\x44\x24\x18\xc3", 6),                     /* Go: movl %eax, 24(%rsp) */
		T("\x0f\x05\x85\xc0\x78\x05\xc3", 6),                     /* test; js */
		T("\x0f\x05\x76\x10\x48\x89\xc7", 7),
		T("\x0f\x05\xeb\x10\x90", 5),
		T("\x0f\x05\x0f\x84\x00\x01\x00\x00", 8),
		T("\x0f\x05\xff\xe0\x90", 5),                             /* jmp *%rax; nop */
		T("\x0f\x05\x48\x8b\x15\x10\x00\x00\x00", 9),
		T("\x0f\x05\xc3\x55\x48\x89\xe5", 0),                     /* another function */
		T("\x0f\x05\xeb\x10\x55\x55", 0),
		T("\x0f\x05\xe8\x00\x00\x00\x00", 0),                     /* call */
		T("\x0f\x05\xff\xd0\x90", 0),                             /* call *%rax */
		T("\x0f\x05\xe2\x10\x90\x90", 0),                         /* loop */
		T("\x0f\x05\xe3\x10\x90\x90", 0),                         /* jrcxz */
		T("\x0f\x05\x0f\x05\x90\x90", 0),                         /* syscall again */
		T("\x0f\x05\xcd\x80\x90\x90", 0),                         /* int 0x80 */
		T("\x0f\x05\x9d\x90\x90\x90", 0),                         /* popfq: single-steps? */
		T("\x0f\x05\xc7\xf8\x00\x00\x00\x00", 0),                 /* xbegin */
		T("\x0f\x05\x66\xe9\x00\x00\x00\x00", 0),                 /* jmp, as it never is */
		T("\x0f\x05\x06\x90\x90\x90", 0),                         /* no instruction */
		T("\x0f\x05\x48\x3d\x01\xf0", 0),                         /* cut off */
		T("\x0f\x05\x90\x90", 0),
		T("\x0f\x34\x90\x90\x90\x90", 0),                         /* sysenter */
	};
	struct patch_plan p;
	uint8_t buf[SLOT_MAX];
	uint64_t slot;

	for (unsigned i = 0; i < ARRAY_SIZE(t); i++) {
		int r = plan_at(AT, t[i].bytes, t[i].n, &p);

		if ((r == 0) != (t[i].len != 0) || (r == 0 && p.len != t[i].len))
			fail_msg("case %u: %d, length %u, expected %u", i, r, p.len, t[i].len);
		if (r == 0)
			assert_true(emit(&p, &slot, buf) > SLOT_AFTER);
	}
}

static void operands_follow(void **state __attribute__((unused)))
{
	struct patch_plan p;
	uint8_t buf[SLOT_MAX];
	uint64_t slot;
	int n;

	/* mov 0x10(%rip), %rdx */
	assert_int_equal(PLAN(&p, "\x0f\x05\x48\x8b\x15\x10\x00\x00\x00"), 0);
	n = emit(&p, &slot, buf);
	assert_int_equal(n, SLOT_AFTER + 7 + 5);
	assert_int_equal(slot + SLOT_AFTER + 7 + (uint64_t)(int64_t)rel_at(buf + SLOT_AFTER + 3),
			 AT + 9 + 0x10);
	assert_int_equal(slot + (unsigned)n + (uint64_t)(int64_t)rel_at(buf + n - 4), AT + 9);
	/* jbe .+0x10; mov %rax, %rdi */
	assert_int_equal(PLAN(&p, "\x0f\x05\x76\x10\x48\x89\xc7"), 0);
	n = emit(&p, &slot, buf);
	assert_int_equal(n, SLOT_AFTER + 6 + 3 + 5);
	assert_memory_equal(buf + SLOT_AFTER, "\x0f\x86", 2);
	assert_int_equal(slot + SLOT_AFTER + 6 + (uint64_t)(int64_t)rel_at(buf + SLOT_AFTER + 2),
			 AT + 4 + 0x10);
	/* The address that the shim's own answers show the guest. */
	assert_int_equal(slot + SLOT_OVER + 7 + (uint64_t)(int64_t)rel_at(buf + SLOT_OVER + 3),
			 AT + 2);
	/* Both ways. */
	assert_int_equal(patch_to_slot(&p, 2), SLOT_AFTER);
	assert_int_equal(patch_to_slot(&p, 4), SLOT_AFTER + 6);
	assert_int_equal(patch_to_slot(&p, 3), -1);
	assert_int_equal(patch_to_slot(&p, 1), -1);
	assert_int_equal(patch_to_site(&p, SLOT_AFTER), 2);
	assert_int_equal(patch_to_site(&p, SLOT_AFTER + 6), 4);
	assert_int_equal(patch_to_site(&p, SLOT_AFTER + 9), 7);
	assert_int_equal(patch_to_site(&p, SLOT_AFTER + 1), -1);
}

static sigjmp_buf back;

static void on_ill(int sig)
{
	siglongjmp(back, sig);
}

/* On this CPU: each byte that a displacement may have is no instruction, whatever follows. */
static void displacements_are_no_code(void **state __attribute__((unused)))
{
	uint8_t *page = mmap(NULL, PAGE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	static const uint64_t addrs[] = { 0x401000, AT, 0x555555556789, 0x7fffdfff1234 };
	uint8_t jmp[PATCH_JMP_LEN], seen[256] = { 0 };

	assert_ptr_not_equal(page, MAP_FAILED);
	signal(SIGILL, on_ill);
	for (unsigned a = 0; a < ARRAY_SIZE(addrs); a++) {
		uint64_t lo, hi, at, prev = 0;
		unsigned found = 0;

		for (unsigned i = 0; patch_area_window(addrs[a], i, &lo, &hi); i++) {
			if (lo >= hi)
				continue;
			found = 0;
			for (at = lo; (at = patch_next_slot(addrs[a], at, lo + PATCH_AREA_SIZE)); at++) {
				assert_true(at > prev || at >= lo);
				prev = at;
				patch_jump(addrs[a], at, jmp);
				assert_int_equal(jmp[0], 0xe9);
				assert_int_equal(addrs[a] + 5 + (uint64_t)(int64_t)rel_at(jmp + 1), at);
				for (unsigned b = 1; b < PATCH_JMP_LEN; b++)
					seen[jmp[b]] = 1;
				found++;
			}
			assert_true(found >= 18 * 18);
		}
		assert_true(found);
	}
	for (unsigned b = 0; b < 256; b++) {
		int sig;

		if (!seen[b])
			continue;
		memset(page, 0xc3, PAGE_SIZE);
		page[0] = (uint8_t)b;
		sig = sigsetjmp(back, 1);
		if (!sig) {
			((void (*)(void))(uintptr_t)page)();
			fail_msg("byte %02x is an instruction here", b);
		}
		assert_int_equal(sig, SIGILL);
	}
	munmap(page, PAGE_SIZE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(real_sites),
		cmocka_unit_test(operands_follow),
		cmocka_unit_test(displacements_are_no_code),
	};

	if (!patch_decoder_init())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
