// SPDX-License-Identifier: Apache-2.0
/*
 * ELF headers of hostile files: pure functions from bytes to a plan, with no I/O (fuzzed by
 * tests/fuzz/fuzz_elf.c). Everything in a plan has been checked: nothing wraps, segments are in
 * order and don't overlap, their pages are congruent with their place in the file.
 */
#ifndef SENTRY_LOADER_ELF_H
#define SENTRY_LOADER_ELF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define ELF_HEADER_SIZE 64
#define ELF_PHDR_SIZE 56
#define ELF_PHDRS_MAX 65536 /* bytes, as in Linux's load_elf_phdrs() */
#define ELF_SEGMENTS_MAX 128 /* PT_LOAD; linkers make four to six */

struct elf_head {
	bool dyn;        /* ET_DYN */
	uint64_t entry;
	uint64_t phoff;
	unsigned phnum;
};

struct elf_seg {
	uint64_t vaddr, memsz, filesz, off;
	int prot; /* PROT_* */
};

struct elf_plan {
	struct elf_head head;
	unsigned nseg;
	struct elf_seg seg[ELF_SEGMENTS_MAX];
	uint64_t start, end;    /* page range of all segments, not relocated */
	uint64_t align;         /* largest p_align, a power of two, at least a page */
	uint64_t phdr_vaddr;    /* where the program headers are mapped; 0: not */
	uint64_t interp_off, interp_len; /* PT_INTERP in the file; len 0: none */
	bool exec_stack;
};

/* The ELF header in the first @len bytes of a file. -ENOEXEC: not an executable of ours. */
int __must_check elf_parse_head(const void *buf, size_t len, struct elf_head *ret);
/* The program headers, @h->phnum of them at @buf. -ENOEXEC. */
int __must_check elf_parse_phdrs(const void *buf, size_t len, const struct elf_head *h,
				 struct elf_plan *ret);

#endif
