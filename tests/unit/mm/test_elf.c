// SPDX-License-Identifier: Apache-2.0
/* The ELF header parser: accepts what linkers make, refuses what wraps, overlaps or lies. */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/size.h"
#include "platform/platform.h"
#include "sentry/loader/elf.h"

struct sample {
	Elf64_Ehdr eh;
	Elf64_Phdr ph[3];
};

static struct sample good(void)
{
	struct sample s = { 0 };

	memcpy(s.eh.e_ident, ELFMAG, SELFMAG);
	s.eh.e_ident[EI_CLASS] = ELFCLASS64;
	s.eh.e_ident[EI_DATA] = ELFDATA2LSB;
	s.eh.e_type = ET_DYN;
	s.eh.e_machine = EM_X86_64;
	s.eh.e_entry = 0x1040;
	s.eh.e_phoff = sizeof(Elf64_Ehdr);
	s.eh.e_phentsize = sizeof(Elf64_Phdr);
	s.eh.e_phnum = 3;
	s.ph[0] = (Elf64_Phdr){ .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_filesz = 0x2000,
				.p_memsz = 0x2000, .p_align = PAGE_SIZE };
	s.ph[1] = (Elf64_Phdr){ .p_type = PT_LOAD, .p_flags = PF_R | PF_W, .p_offset = 0x2100,
				.p_vaddr = 0x3100, .p_filesz = 0x100, .p_memsz = 0x5000,
				.p_align = 0x200000 };
	s.ph[2] = (Elf64_Phdr){ .p_type = PT_INTERP, .p_offset = 0x300, .p_filesz = 28 };
	return s;
}

static int parse(const struct sample *s, struct elf_plan *p)
{
	struct elf_head h;
	int r = elf_parse_head(&s->eh, sizeof(s->eh), &h);

	return r < 0 ? r : elf_parse_phdrs(s->ph, sizeof(s->ph), &h, p);
}

static void good_file_gives_plan(void **state)
{
	struct sample s = good();
	static struct elf_plan p;

	(void)state;
	assert_int_equal(parse(&s, &p), 0);
	assert_true(p.head.dyn);
	assert_int_equal(p.nseg, 2);
	assert_int_equal(p.start, 0);
	assert_int_equal(p.end, 0x9000);
	assert_int_equal(p.align, 0x200000);
	assert_int_equal(p.phdr_vaddr, 64);
	assert_int_equal(p.interp_len, 28);
	assert_int_equal(p.seg[1].prot, PROT_READ | PROT_WRITE);
	assert_false(p.exec_stack);
}

static void bad_files_are_refused(void **state)
{
	static struct elf_plan p;
	struct sample s;

	(void)state;
#define REFUSED(change)                                                                  \
	do {                                                                             \
		s = good();                                                              \
		change;                                                                  \
		assert_int_equal(parse(&s, &p), -ENOEXEC);                               \
	} while (0)
	REFUSED(s.eh.e_ident[0] = 0);
	REFUSED(s.eh.e_ident[EI_CLASS] = ELFCLASS32);
	REFUSED(s.eh.e_machine = EM_AARCH64);
	REFUSED(s.eh.e_type = ET_REL);
	REFUSED(s.eh.e_phentsize = 32);
	REFUSED(s.eh.e_phnum = 0);
	REFUSED(s.eh.e_phnum = 4); /* more than the buffer holds */
	REFUSED(s.eh.e_phnum = 2000);
	REFUSED(s.eh.e_phoff = UINT64_MAX - 8);
	REFUSED(s.eh.e_entry = GUEST_TASK_SIZE);
	REFUSED(s.ph[0].p_filesz = 0x3000);                     /* larger than memsz */
	REFUSED(s.ph[1].p_vaddr = 0x1100);                      /* overlaps */
	REFUSED(s.ph[1].p_vaddr = 0x3200);                      /* not congruent */
	REFUSED(s.ph[1].p_memsz = UINT64_MAX - 0x3000);         /* wraps */
	REFUSED(s.ph[1].p_offset = UINT64_MAX - 0xfff + 0x100); /* wraps */
	REFUSED(s.ph[2].p_filesz = 5000);
	REFUSED(s.ph[2].p_filesz = 1);
	REFUSED(s.ph[0].p_type = s.ph[1].p_type = PT_NULL);
	s = good();
	for (size_t n = 0; n < sizeof(s.eh); n++) {
		struct elf_head h;

		assert_int_equal(elf_parse_head(&s.eh, n, &h), -ENOEXEC);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_file_gives_plan),
		cmocka_unit_test(bad_files_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
