// SPDX-License-Identifier: Apache-2.0
/*
 * ELF images in an address space: reads headers, maps segments (as Linux's elf_map, set_brk and
 * padzero), clears what follows the file's data in its last page.
 */
#include <string.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/loader/loader_priv.h"
#include "sentry/mm/mm_load.h"

int image_read_plan(struct task *t, struct file *f, const void *head, size_t head_len,
		    struct elf_plan *ret)
{
	struct elf_head h;
	AUTO_FREE void *phdrs = NULL;
	size_t len;
	ssize_t n;
	int r = elf_parse_head(head, head_len, &h);

	if (r < 0)
		return r;
	len = (size_t)h.phnum * ELF_PHDR_SIZE;
	/* Usually they follow the header, in what was read already. */
	if (h.phoff <= head_len && len <= head_len - h.phoff)
		return elf_parse_phdrs((const char *)head + h.phoff, len, &h, ret);
	phdrs = kzalloc(len); /* at most 64 KiB */
	n = file_kread(t, f, phdrs, len, (int64_t)h.phoff);
	if (n < 0)
		return (int)n;
	if ((size_t)n != len)
		return -ENOEXEC;
	return elf_parse_phdrs(phdrs, len, &h, ret);
}

/* Zeroes from the end of the file's data to the end of that page. */
static int pad_zero(struct mm *mm, uint64_t addr, int prot)
{
	static const char zeros[PAGE_SIZE];
	uint64_t n = page_up(addr) - addr;
	ssize_t r;

	if (n == 0)
		return 0;
	r = mm_write(mm, gaddr(addr), zeros, n, true);
	/* Linux ignores the failure where the segment isn't writable. */
	return r == (ssize_t)n || !(prot & PROT_WRITE) ? 0 : -ENOEXEC;
}

static int map_segment(struct mm *mm, struct task *t, struct file *f, const struct elf_seg *s,
		       uint64_t bias)
{
	uint64_t va = s->vaddr + bias, start = page_down(va);
	uint64_t file_end = page_up(va + s->filesz), end = page_up(va + s->memsz);
	int r;

	if (s->filesz == 0)
		return mm_load_map(mm, t, start, end - start, s->prot, NULL, 0);
	r = mm_load_map(mm, t, start, file_end - start, s->prot, f, page_down(s->off));
	if (r < 0 || s->memsz == s->filesz)
		return r;
	r = pad_zero(mm, va + s->filesz, s->prot);
	if (r == 0 && end > file_end)
		r = mm_load_map(mm, t, file_end, end - file_end, s->prot, NULL, 0);
	return r;
}

static void note_segment(struct image *im, const struct elf_seg *s, uint64_t bias)
{
	uint64_t start = s->vaddr + bias, end = start + s->filesz;

	if ((s->prot & PROT_EXEC) && (!im->start_code || start < im->start_code))
		im->start_code = start;
	if ((s->prot & PROT_EXEC) && end > im->end_code)
		im->end_code = end;
	if (start > im->start_data)
		im->start_data = start;
	if (end > im->end_data)
		im->end_data = end;
	if (start + s->memsz > im->end_bss)
		im->end_bss = start + s->memsz;
}

int image_map(struct mm *mm, struct task *t, struct file *f, const struct elf_plan *p,
	      uint64_t bias, struct image *ret)
{
	struct image im = { .bias = bias, .entry = p->head.entry + bias };

	for (unsigned i = 0; i < p->nseg; i++) {
		int r = map_segment(mm, t, f, &p->seg[i], bias);

		if (r < 0)
			return r;
		note_segment(&im, &p->seg[i], bias);
	}
	im.phdr = p->phdr_vaddr ? p->phdr_vaddr + bias : 0;
	*ret = im;
	return 0;
}
