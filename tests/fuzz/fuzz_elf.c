// SPDX-License-Identifier: Apache-2.0
/* ELF and program headers: whatever the bytes, a plan that is accepted keeps its promises (elf.h). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "platform/platform.h"
#include "sentry/loader/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct elf_head h;
	struct elf_plan p;
	size_t bytes;

	if (size < ELF_HEADER_SIZE || elf_parse_head(data, ELF_HEADER_SIZE, &h))
		return 0;
	/* The corpus keeps the program headers right behind the header, wherever phoff says they are. */
	bytes = (size_t)h.phnum * ELF_PHDR_SIZE;
	if (bytes > ELF_PHDRS_MAX || bytes > size - ELF_HEADER_SIZE)
		return 0;
	if (elf_parse_phdrs(data + ELF_HEADER_SIZE, bytes, &h, &p))
		return 0;
	if (p.nseg > ELF_SEGMENTS_MAX || p.start > p.end || !page_aligned(p.start) ||
	    !page_aligned(p.end) || p.end > GUEST_TASK_SIZE || p.align < PAGE_SIZE ||
	    (p.align & (p.align - 1)))
		abort();
	for (unsigned i = 0; i < p.nseg; i++) {
		const struct elf_seg *s = &p.seg[i];

		if (s->filesz > s->memsz || s->vaddr + s->memsz < s->vaddr || s->vaddr < p.start ||
		    s->vaddr + s->memsz > p.end || ((s->vaddr ^ s->off) & (PAGE_SIZE - 1)))
			abort();
	}
	return 0;
}
