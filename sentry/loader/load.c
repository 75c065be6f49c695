// SPDX-License-Identifier: Apache-2.0
/*
 * execve's loading half: from an opened file to a complete new address space (see loader.h). Nothing of
 * the caller changes until all of it has worked, so unlike in Linux there is no point of no return
 * in here: a bad file is an error code, never a killed process.
 *
 * Address layout as on Linux x86-64 (arch/x86/mm/mmap.c, fs/binfmt_elf.c):
 *
 *   GUEST_TASK_SIZE - random  stack, growing down
 *   below the stack's gap     mmap area, top-down: interpreter, vDSO, libraries
 *   0x5555_5555_4000 + random position-independent programs with an interpreter, brk behind
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/kernel/kernel.h"
#include "sentry/loader/loader_priv.h"
#include "sentry/mm/mfile.h"
#include "sentry/mm/mm_load.h"
#include "sentry/time/clock.h"

#define PIE_BASE 0x555555554000ULL     /* ELF_ET_DYN_BASE: two thirds of the address space */
#define STACK_RANDOM_PAGES 0x3fffffULL /* up to 16 GiB */
#define MMAP_RANDOM_BITS 28
#define BRK_RANDOM (32ULL << 20)
#define STACK_GAP_MIN (128ULL << 20)
#define STACK_GAP_PAD ((STACK_RANDOM_PAGES << PAGE_SHIFT) + (256ULL << PAGE_SHIFT))

struct load {
	struct program prog;
	struct mm *mm;
	struct elf_plan *plan, *iplan;
	struct file *interp;
	struct image image, iimage;
	struct mm_layout layout;
	struct cred *cred;
	bool secure, randomize;
	uint64_t vdso, stack_top, sp;
};

static uint64_t random_below(const struct load *l, uint64_t n)
{
	uint64_t v;

	if (!l->randomize)
		return 0;
	kernel_random(&v, sizeof(v));
	return v % n;
}

static uint64_t random_pages(const struct load *l, unsigned bits)
{
	return random_below(l, 1ULL << bits) << PAGE_SHIFT;
}

/* PT_INTERP: the dynamic linker's file. 0 also when there is none. */
static int open_interp(struct load *l)
{
	uint64_t len = l->plan->interp_len;
	AUTO_FREE char *path = NULL;
	struct elf_plan *ip;
	char head[BINPRM_BUF_SIZE];
	struct file *f;
	ssize_t n;
	int r;

	if (len == 0)
		return 0;
	path = kzalloc(len + 1);
	n = file_kread(l->prog.task, l->prog.file, path, len, (int64_t)l->plan->interp_off);
	if (n < 0)
		return (int)n;
	if ((uint64_t)n != len || path[len - 1] != '\0')
		return -ENOEXEC;
	f = vfs_open_exec(l->prog.task, AT_FDCWD_G, path, 0);
	if (is_err(f))
		return (int)ptr_err(f);
	l->interp = f;
	n = file_kread(l->prog.task, f, head, sizeof(head), 0);
	if (n < 0)
		return (int)n;
	ip = l->iplan = kzalloc(sizeof(*ip));
	r = image_read_plan(l->prog.task, f, head, (size_t)n, ip);
	/* The interpreter's own PT_INTERP is ignored. */
	return r == -ENOEXEC ? -ELIBBAD : r;
}

static void choose_layout(struct load *l)
{
	uint64_t rlim = task_rlimit(l->prog.task, RLIMIT_STACK), gap = rlim;
	uint64_t max = GUEST_TASK_SIZE / 6 * 5;

	l->stack_top = GUEST_TASK_SIZE;
	l->stack_top -= random_below(l, STACK_RANDOM_PAGES + 1) << PAGE_SHIFT;
	if (gap > UINT64_MAX - STACK_GAP_PAD)
		gap = max;
	else
		gap += STACK_GAP_PAD;
	gap = gap < STACK_GAP_MIN ? STACK_GAP_MIN : gap;
	gap = gap > max ? max : gap;
	mm_load_set_base(l->mm,
			 page_down(GUEST_TASK_SIZE - gap - random_pages(l, MMAP_RANDOM_BITS)));
}

/* A place in the mmap area for a relocatable image, as a bias. */
static long find_bias(struct mm *mm, const struct elf_plan *p)
{
	uint64_t len = p->end - p->start, align = p->align;
	long a = mm_load_find(mm, len + (align > PAGE_SIZE ? align : 0));
	uint64_t base;

	if (a < 0)
		return a;
	base = ((uint64_t)a + align - 1) & ~(align - 1);
	return (long)(base - (p->start & ~(align - 1)));
}

static int map_main(struct load *l)
{
	const struct elf_plan *p = l->plan;
	uint64_t bias = 0;

	if (p->head.dyn && l->interp) {
		bias = PIE_BASE + random_pages(l, MMAP_RANDOM_BITS);
		bias = (bias & ~(p->align - 1)) - p->start;
	} else if (p->head.dyn) {
		long b = find_bias(l->mm, p);

		if (b < 0)
			return (int)b;
		bias = (uint64_t)b;
	}
	if (p->head.dyn && (p->end > GUEST_TASK_SIZE / 4 || p->start > GUEST_TASK_SIZE / 4))
		return -ENOEXEC;
	return image_map(l->mm, l->prog.task, l->prog.file, p, bias, &l->image);
}

static int map_interp(struct load *l)
{
	long bias = 0;

	if (!l->interp)
		return 0;
	if (l->iplan->head.dyn) {
		bias = find_bias(l->mm, l->iplan);
		if (bias < 0)
			return (int)bias;
	}
	return image_map(l->mm, l->prog.task, l->interp, l->iplan, (uint64_t)bias, &l->iimage);
}

/* The parameters' page and right above it the vDSO. */
static int map_vdso(struct load *l)
{
	uint64_t off, len, vvar_off;
	struct mfile *mf = vdso_mfile(&off, &len), *vvar = clock_vvar_mfile(&vvar_off);
	long a;
	int r;

	if (!mf || !vvar)
		return 0;
	len = page_up(len);
	a = mm_load_find(l->mm, len + PAGE_SIZE);
	if (a < 0)
		return (int)a;
	r = mm_load_special(l->mm, (uint64_t)a, PAGE_SIZE, PROT_READ, vvar, vvar_off, "[vvar]");
	if (r < 0)
		return r;
	l->vdso = (uint64_t)a + PAGE_SIZE;
	l->layout.vdso = gaddr(l->vdso);
	return mm_load_special(l->mm, l->vdso, len, PROT_READ | PROT_EXEC, mf, off, "[vdso]");
}

static void set_layout(struct load *l)
{
	uint64_t brk = page_up(l->image.end_bss);

	/* A static PIE (or a linker run by hand) sits in the mmap area, where a heap can't grow. */
	if (l->plan->head.dyn && !l->interp)
		brk = PIE_BASE;
	brk = page_up(brk + random_below(l, BRK_RANDOM));
	l->layout.start_code = gaddr(l->image.start_code);
	l->layout.end_code = gaddr(l->image.end_code);
	l->layout.start_data = gaddr(l->image.start_data);
	l->layout.end_data = gaddr(l->image.end_data);
	l->layout.start_brk = gaddr(brk);
	l->layout.brk = gaddr(brk);
}

static int build(struct load *l)
{
	struct stack_info si = { .image = &l->image };
	int r;

	l->mm = mm_create();
	if (is_err(l->mm)) {
		r = (int)ptr_err(l->mm);
		l->mm = NULL;
		return r;
	}
	choose_layout(l);
	r = map_main(l);
	if (r == 0)
		r = map_interp(l);
	if (r == 0)
		r = map_vdso(l);
	if (r < 0)
		return r;
	set_layout(l);
	si.top = l->stack_top;
	si.prot = PROT_READ | PROT_WRITE | (l->plan->exec_stack ? PROT_EXEC : 0);
	si.interp_base = l->interp ? l->iimage.bias : 0;
	si.phnum = l->plan->head.phnum;
	si.vdso = l->vdso;
	si.secure = l->secure;
	si.randomize = l->randomize;
	si.cred = l->cred;
	r = stack_build(l->mm, &l->prog, &si, &l->layout, &l->sp);
	if (r < 0)
		return r;
	mm_set_layout(l->mm, &l->layout);
	mm_set_exe(l->mm, l->prog.file);
	/* Credentials changed, or the file isn't readable: others may not look inside. */
	mm_set_dumpable(l->mm, l->secure || inode_permission(l->prog.file->inode, l->cred,
							      MAY_READ) < 0
					       ? 0
					       : 1);
	mm_load_done(l->mm);
	return 0;
}

static void set_comm(char comm[TASK_COMM_LEN], const char *path)
{
	const char *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	memset(comm, 0, TASK_COMM_LEN);
	memcpy(comm, base, strnlen(base, TASK_COMM_LEN - 1));
}

static void fill_result(struct load *l, struct loaded *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->mm = steal_ptr(&l->mm);
	ret->exe = steal_ptr(&l->prog.file);
	ret->cred = steal_ptr(&l->cred);
	ret->secure = l->secure;
	ret->regs.rip = l->interp ? l->iimage.entry : l->image.entry;
	ret->regs.rsp = l->sp;
	ret->regs.cs = GUEST_CS;
	ret->regs.ss = GUEST_SS;
	ret->regs.eflags = 0x200; /* interrupts on */
	ret->regs.orig_rax = UINT64_MAX;
	set_comm(ret->comm, l->prog.path);
}

/* Copies argv, since scripts rewrite it. An empty one gets "" (Linux since 5.18: a program without
 * argv[0] was an attack vector). */
static void program_init(struct program *p, struct task *t, const struct exec_args *a)
{
	unsigned n = 0;

	p->task = t;
	p->file = file_get(a->file);
	p->path = a->path;
	while (a->argv[n])
		n++;
	p->argc = n ? n : 1;
	p->argv = kcalloc(p->argc + 1UL, sizeof(char *));
	for (unsigned i = 0; i < n; i++)
		p->argv[i] = kstrdup(a->argv[i]);
	if (n == 0)
		p->argv[0] = kstrdup("");
	p->envp = a->envp;
	while (a->envp[p->envc])
		p->envc++;
}

static void load_fini(struct load *l)
{
	for (unsigned i = 0; i < l->prog.argc; i++)
		free(l->prog.argv[i]);
	free(l->prog.argv);
	if (l->prog.file)
		file_put(l->prog.file);
	if (l->interp)
		file_put(l->interp);
	mm_unuse(l->mm);
	cred_put(l->cred);
	free(l->plan);
	free(l->iplan);
}

static int load(struct load *l)
{
	struct program *p = &l->prog;
	int r = stack_check_args(p);

	if (r == 0)
		r = script_resolve(p);
	if (r == 0)
		r = stack_check_args(p);
	if (r < 0)
		return r;
	l->plan = kzalloc(sizeof(*l->plan));
	r = image_read_plan(p->task, p->file, p->head, p->head_len, l->plan);
	if (r < 0)
		return r;
	if (!p->file->inode->vmobj && !p->file->ops->mmap)
		return -ENOEXEC;
	r = open_interp(l);
	if (r == 0)
		r = exec_prepare_cred(p->task, p->file, &l->cred, &l->secure);
	return r < 0 ? r : build(l);
}

int loader_load(struct task *t, const struct exec_args *a, struct loaded *ret)
{
	struct load *l = kzalloc(sizeof(*l));
	int r;

	program_init(&l->prog, t, a);
	l->randomize = !(t->personality & ADDR_NO_RANDOMIZE);
	r = load(l);
	if (r == 0)
		fill_result(l, ret);
	load_fini(l);
	free(l);
	return r;
}

void loaded_fini(struct loaded *l)
{
	mm_unuse(l->mm);
	if (l->exe)
		file_put(l->exe);
	cred_put(l->cred);
	memset(l, 0, sizeof(*l));
}
