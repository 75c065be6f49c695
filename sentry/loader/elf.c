// SPDX-License-Identifier: Apache-2.0
/*
 * Parser of ELF64 x86-64 headers (man 5 elf). Stricter than Linux in what only a broken or hostile file
 * does (segments out of order or overlapping, sizes that wrap): ENOEXEC, before anything of the
 * caller has changed. Linux finds some of these only after the point of no return and kills.
 */
#include "sentry/loader/elf.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cursor.h"
#include "base/gaddr.h"
#include "base/size.h"
#include "platform/platform.h"

#define ELF_ALIGN_MAX (1UL << 30)

int elf_parse_head(const void *buf, size_t len, struct elf_head *ret)
{
	struct cursor c;
	const uint8_t *ident;
	struct elf_head h;
	uint16_t type, machine, phentsize;

	if (len < ELF_HEADER_SIZE)
		return -ENOEXEC;
	cursor_init(&c, buf, len);
	ident = pull_bytes(&c, EI_NIDENT);
	type = pull_u16(&c);
	machine = pull_u16(&c);
	(void)pull_u32(&c); /* e_version: Linux doesn't look either */
	h.entry = pull_u64(&c);
	h.phoff = pull_u64(&c);
	(void)pull_u64(&c); /* e_shoff */
	(void)pull_u32(&c); /* e_flags */
	(void)pull_u16(&c); /* e_ehsize */
	phentsize = pull_u16(&c);
	h.phnum = pull_u16(&c);
	if (!cursor_ok(&c) || !ident || memcmp(ident, ELFMAG, SELFMAG) != 0)
		return -ENOEXEC;
	if (ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != ELFDATA2LSB ||
	    machine != EM_X86_64 || (type != ET_EXEC && type != ET_DYN))
		return -ENOEXEC;
	if (phentsize != ELF_PHDR_SIZE || h.phnum == 0 ||
	    h.phnum * ELF_PHDR_SIZE > ELF_PHDRS_MAX)
		return -ENOEXEC;
	if (h.phoff > INT64_MAX - ELF_PHDRS_MAX)
		return -ENOEXEC;
	h.dyn = type == ET_DYN;
	*ret = h;
	return 0;
}

static int add_segment(struct elf_plan *p, const struct elf_seg *s)
{
	const struct elf_seg *prev = p->nseg ? &p->seg[p->nseg - 1] : NULL;

	if (s->memsz == 0)
		return 0;
	if (p->nseg == ELF_SEGMENTS_MAX || s->filesz > s->memsz)
		return -ENOEXEC;
	if (s->memsz > GUEST_TASK_SIZE || s->vaddr > GUEST_TASK_SIZE - s->memsz)
		return -ENOEXEC;
	if (s->off > INT64_MAX - PAGE_SIZE || s->filesz > INT64_MAX - PAGE_SIZE - s->off)
		return -ENOEXEC;
	if (((s->vaddr ^ s->off) & ~PAGE_MASK) && s->filesz)
		return -ENOEXEC;
	if (prev && s->vaddr < prev->vaddr + prev->memsz)
		return -ENOEXEC;
	if (!prev)
		p->start = page_down(s->vaddr);
	p->end = page_up(s->vaddr + s->memsz);
	p->seg[p->nseg++] = *s;
	return 0;
}

static int segment_prot(uint32_t flags)
{
	return (flags & PF_R ? PROT_READ : 0) | (flags & PF_W ? PROT_WRITE : 0) |
	       (flags & PF_X ? PROT_EXEC : 0);
}

static int add_phdr(struct elf_plan *p, struct cursor *c)
{
	uint32_t type = pull_u32(c), flags = pull_u32(c);
	struct elf_seg s = { .prot = segment_prot(flags) };
	uint64_t align;

	s.off = pull_u64(c);
	s.vaddr = pull_u64(c);
	(void)pull_u64(c); /* p_paddr */
	s.filesz = pull_u64(c);
	s.memsz = pull_u64(c);
	align = pull_u64(c);
	if (!cursor_ok(c))
		return -ENOEXEC;
	switch (type) {
	case PT_LOAD:
		/* A silly alignment is ignored, as in Linux's maximum_alignment(). */
		if (align > p->align && (align & (align - 1)) == 0 && align <= ELF_ALIGN_MAX)
			p->align = align;
		return add_segment(p, &s);
	case PT_INTERP:
		if (p->interp_len)
			return 0; /* only the first counts */
		if (s.filesz < 2 || s.filesz > 4096 || s.off > INT64_MAX - s.filesz)
			return -ENOEXEC;
		p->interp_off = s.off;
		p->interp_len = s.filesz;
		return 0;
	case PT_GNU_STACK:
		p->exec_stack = flags & PF_X;
		return 0;
	case PT_PHDR:
	default: /* PT_TLS, PT_NOTE, PT_GNU_PROPERTY ...: the program's own business */
		return 0;
	}
}

/* Where the program headers are in memory: inside the segment that maps their place in the file. */
static uint64_t phdr_vaddr(const struct elf_plan *p)
{
	for (unsigned i = 0; i < p->nseg; i++) {
		const struct elf_seg *s = &p->seg[i];

		if (s->off <= p->head.phoff && p->head.phoff - s->off < s->filesz)
			return p->head.phoff - s->off + s->vaddr;
	}
	return 0;
}

int elf_parse_phdrs(const void *buf, size_t len, const struct elf_head *h, struct elf_plan *ret)
{
	struct cursor c;
	int r;

	memset(ret, 0, sizeof(*ret));
	ret->head = *h;
	ret->align = PAGE_SIZE;
	cursor_init(&c, buf, len);
	for (unsigned i = 0; i < h->phnum; i++) {
		r = add_phdr(ret, &c);
		if (r < 0)
			return r;
	}
	if (ret->nseg == 0 || h->entry >= GUEST_TASK_SIZE)
		return -ENOEXEC;
	ret->phdr_vaddr = phdr_vaddr(ret);
	return 0;
}
