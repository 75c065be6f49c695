// SPDX-License-Identifier: Apache-2.0
/*
 * What /proc shows of an address space: maps, smaps, sizes.
 *
 * Names of files need VFS locks, which come before mm.mu; so the vmas are copied with references
 * first and printed after the lock is gone.
 *
 * Residency comes from the mfiles (SEEK_DATA). What a guest has touched of a mapped host file isn't
 * known to us; such mappings count with at most HOST_FILE_RSS each.
 */
#include "sentry/mm/mm_priv.h"

#include <string.h>
#include <sys/sysmacros.h>

#include "base/alloc.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/shmem.h"
#include "sentry/vfs/vfs.h"

#define HOST_FILE_RSS (64UL << 10)
#define MAPS_NAME_COLUMN 73
#define FILES_MAX 8

struct shown {
	struct vma v;         /* copy; file and name are ours */
	const char *label;    /* "[heap]" and so on */
	uint64_t ino;         /* of a shared segment without a file */
	uint64_t rss, anon;
};

static uint64_t pma_rss(const struct pma *p, uint64_t a, uint64_t b)
{
	if (mfile_is_host(p->mf) && !mfile_is_image(p->mf))
		return MIN(b - a, HOST_FILE_RSS);
	return mfile_range_resident(p->mf, p->off + (a - p->start), b - a);
}

static void vma_rss(struct mm *mm, const struct vma *v, uint64_t *rss, uint64_t *anon)
{
	struct pma *p;

	*rss = *anon = 0;
	for (p = pma_find_ge(mm, v->start); p && p->start < v->end; p = pma_next(p)) {
		uint64_t n = pma_rss(p, MAX(p->start, v->start), MIN(p->end, v->end));

		*rss += n;
		if (p->flags & PMA_COUNTED)
			*anon += n;
	}
}

static const char *label(const struct mm *mm, const struct vma *v)
{
	const struct mm_layout *l = &mm->layout;

	if (v->obj || v->name)
		return NULL;
	if (v->start <= l->brk.va && v->end >= l->start_brk.va && l->brk.va > l->start_brk.va)
		return "[heap]";
	if (v->start <= l->start_stack.va && v->end >= l->start_stack.va)
		return "[stack]";
	return NULL;
}

static struct shown *snapshot(struct mm *mm, bool rss, unsigned *ret_n)
{
	struct shown *s;
	struct vma *v;
	unsigned n = 0;

	mm_read_lock(mm);
	s = kcalloc(mm->map_count + 1UL, sizeof(*s));
	for_each_vma(v, mm) {
		struct shown *e = &s[n++];

		e->v = *v;
		if (v->file)
			file_get(v->file);
		if (v->name)
			e->v.name = kstrdup(v->name);
		e->label = label(mm, v);
		if (v->obj && vm_object_is_shmem(v->obj))
			e->ino = shmem_object_ino(v->obj);
		if (rss)
			vma_rss(mm, v, &e->rss, &e->anon);
	}
	mm_read_unlock(mm);
	*ret_n = n;
	return s;
}

static void pad_to(struct seqbuf *out, size_t line_start, size_t column)
{
	do
		seq_putc(out, ' ');
	while (out->len - line_start < column);
}

static void show_line(const struct shown *s, const struct path *root, struct seqbuf *out)
{
	const struct vma *v = &s->v;
	const struct inode *inode = v->file ? v->file->inode : NULL;
	dev_t dev = inode && inode->sb ? inode->sb->dev : 0;
	size_t start = out->len;

	if (s->ino)
		dev = makedev(0, 1); /* the kernel's internal tmpfs */
	seq_printf(out, "%08lx-%08lx %c%c%c%c %08lx %02x:%02x %lu", v->start, v->end,
		   v->prot & PROT_READ ? 'r' : '-', v->prot & PROT_WRITE ? 'w' : '-',
		   v->prot & PROT_EXEC ? 'x' : '-', vma_shared(v) ? 's' : 'p',
		   v->obj ? v->off : 0, major(dev), minor(dev), inode ? inode->ino : s->ino);
	if (v->name || s->label) {
		pad_to(out, start, MAPS_NAME_COLUMN);
		seq_printf(out, "%s", v->name ? v->name : s->label);
	} else if (v->file) {
		char *path = file_path_string(v->file, root);

		if (!is_err(path)) {
			pad_to(out, start, MAPS_NAME_COLUMN);
			seq_escape(out, path, "\n");
			free(path);
		}
	} else {
		seq_putc(out, ' ');
	}
	seq_putc(out, '\n');
}

static void show_flags(const struct vma *v, struct seqbuf *out)
{
	static const struct {
		uint32_t flag;
		const char *name;
	} names[] = {
		{ VMF_SHARED, "sh" },	  { VMF_MAYREAD, "mr" },    { VMF_MAYWRITE, "mw" },
		{ VMF_MAYEXEC, "me" },	  { VMF_GROWSDOWN, "gd" },  { VMF_LOCKED, "lo" },
		{ VMF_SEQREAD, "sr" },	  { VMF_RANDREAD, "rr" },   { VMF_DONTFORK, "dc" },
		{ VMF_NORESERVE, "nr" },  { VMF_WIPEONFORK, "wf" }, { VMF_DONTDUMP, "dd" },
		{ VMF_HUGEPAGE, "hg" },	  { VMF_NOHUGEPAGE, "nh" }, { VMF_MERGEABLE, "mg" },
	};

	seq_printf(out, "VmFlags: %s%s%s", v->prot & PROT_READ ? "rd " : "",
		   v->prot & PROT_WRITE ? "wr " : "", v->prot & PROT_EXEC ? "ex " : "");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (v->flags & names[i].flag)
			seq_printf(out, "%s ", names[i].name);
	seq_putc(out, '\n');
}

static void show_smaps(const struct shown *s, struct seqbuf *out)
{
	uint64_t kb = s->rss >> 10, anon = s->anon >> 10, file = kb - anon;
	bool shared = vma_shared(&s->v);

	seq_printf(out, "Size:           %8lu kB\nKernelPageSize:        4 kB\n"
			"MMUPageSize:           4 kB\n",
		   (s->v.end - s->v.start) >> 10);
	seq_printf(out, "Rss:            %8lu kB\nPss:            %8lu kB\n", kb, kb);
	seq_printf(out, "Pss_Dirty:      %8lu kB\n", anon);
	seq_printf(out, "Shared_Clean:   %8lu kB\nShared_Dirty:   %8lu kB\n",
		   shared ? 0 : file, shared ? file : 0UL);
	seq_printf(out, "Private_Clean:  %8lu kB\nPrivate_Dirty:  %8lu kB\n", 0UL, anon);
	seq_printf(out, "Referenced:     %8lu kB\nAnonymous:      %8lu kB\n", kb, anon);
	seq_printf(out, "KSM:            %8lu kB\nLazyFree:       %8lu kB\n", 0UL, 0UL);
	seq_printf(out, "AnonHugePages:  %8lu kB\nShmemPmdMapped: %8lu kB\n", 0UL, 0UL);
	seq_printf(out, "FilePmdMapped:  %8lu kB\nShared_Hugetlb: %8lu kB\n", 0UL, 0UL);
	seq_printf(out, "Private_Hugetlb: %7lu kB\nSwap:           %8lu kB\n", 0UL, 0UL);
	seq_printf(out, "SwapPss:        %8lu kB\nLocked:         %8lu kB\n", 0UL,
		   s->v.flags & VMF_LOCKED ? kb : 0UL);
	seq_printf(out, "THPeligible:           0\n");
	show_flags(&s->v, out);
}

void mm_show_maps(struct mm *mm, struct seqbuf *out, bool smaps)
{
	struct task *t = current_task();
	struct path root = { NULL, NULL };
	unsigned n;
	struct shown *s = snapshot(mm, smaps, &n);

	if (t && t->fs)
		root = fsctx_root(t->fs);
	for (unsigned i = 0; i < n; i++) {
		show_line(&s[i], root.dentry ? &root : NULL, out);
		if (smaps)
			show_smaps(&s[i], out);
		if (s[i].v.file)
			file_put(s[i].v.file);
		free(s[i].v.name);
	}
	free(s);
	if (root.dentry)
		path_put(&root);
}

static void add_rss(struct mm *mm, struct mm_stat *ret)
{
	struct vma *v;

	for_each_vma(v, mm) {
		uint64_t rss, anon;

		vma_rss(mm, v, &rss, &anon);
		ret->rss += rss;
		ret->rss_anon += anon;
		if (v->obj && vma_shared(v) && !v->file)
			ret->rss_shmem += rss - anon;
		else
			ret->rss_file += rss - anon;
	}
}

uint64_t mm_oom_weight(struct mm *mm)
{
	uint64_t sum;
	struct pma *p;

	mm_read_lock(mm);
	sum = mm->own ? mfile_held(mm->own) : 0;
	for (p = pma_find_ge(mm, 0); p; p = pma_next(p))
		if (p->mf != mm->own && !mfile_is_host(p->mf))
			sum += mfile_range_resident(p->mf, p->off, p->end - p->start);
	mm_read_unlock(mm);
	return sum;
}

static uint64_t raise_peak(struct mm *mm, uint64_t rss)
{
	uint64_t peak = atomic_load(&mm->peak_rss);

	while (rss > peak && !atomic_compare_exchange_weak(&mm->peak_rss, &peak, rss))
		;
	return MAX(rss, peak);
}

/* What is held of the memory files that private memory is from. Beyond FILES_MAX of them it is all that is mapped. */
static uint64_t private_rss(struct mm *mm)
{
	struct {
		struct mfile *mf;
		uint64_t mapped;
	} files[FILES_MAX];
	uint64_t sum = 0;
	unsigned n = 0, i = 0;

	for (struct pma *p = pma_find_ge(mm, 0); p; p = pma_next(p)) {
		if (!(p->flags & PMA_COUNTED)) {
			sum += pma_rss(p, p->start, p->end);
			continue;
		}
		for (i = 0; i < n && files[i].mf != p->mf; i++)
			;
		if (i == FILES_MAX) {
			sum += p->end - p->start;
			continue;
		}
		if (i == n) {
			files[n].mf = p->mf;
			files[n++].mapped = 0;
		}
		files[i].mapped += p->end - p->start;
	}
	for (i = 0; i < n; i++)
		sum += MIN(files[i].mapped, mfile_held(files[i].mf));
	return sum;
}

uint64_t mm_peak_rss(struct mm *mm)
{
	uint64_t rss = 0;

	if (atomic_load(&mm->users) == 1) {
		mm_read_lock(mm);
		rss = private_rss(mm);
		mm_read_unlock(mm);
	}
	return raise_peak(mm, rss);
}

void mm_stat(struct mm *mm, struct mm_stat *ret)
{

	memset(ret, 0, sizeof(*ret));
	mm_read_lock(mm);
	ret->total_vm = mm->total_vm;
	ret->data = mm->data_vm;
	ret->stack = mm->stack_vm;
	ret->exec = mm->exec_vm;
	ret->locked = mm->locked_vm;
	ret->peak_vm = mm->peak_vm;
	ret->map_count = mm->map_count;
	add_rss(mm, ret);
	mm_read_unlock(mm);
	ret->peak_rss = raise_peak(mm, ret->rss);
}
