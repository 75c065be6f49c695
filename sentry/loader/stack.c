// SPDX-License-Identifier: Apache-2.0
/*
 * The first stack of a program: strings, auxiliary vector, environment, arguments (fs/exec.c
 * copy_strings(), fs/binfmt_elf.c create_elf_tables(); the psABI's "Initial Process Stack"). From the
 * top down: a null word, the file name, environment strings, argument strings, random slack, platform
 * name, 16 random bytes, then (aligned to 16) auxv, envp, argv, argc.
 *
 * It is put together in one buffer and written to the guest at once.
 */
#include <elf.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/size.h"
#include "sentry/kernel/kernel.h"
#include "sentry/loader/loader_priv.h"
#include "sentry/mm/mm_load.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

#define STACK_EXTRA (128UL << 10)      /* mapped below the first stack pointer */
#define ARG_MAX_G (128UL << 10)        /* always allowed, whatever RLIMIT_STACK */
#define ARG_CEILING (6UL << 20)        /* never more, whatever RLIMIT_STACK: 3/4 of _STK_LIM */
#define AUXV_WORDS 48
#define MINSIGSTKSZ_FALLBACK 3632
#define CLK_TCK_G 100

static size_t strings_size(char **v, unsigned n)
{
	size_t sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += strlen(v[i]) + 1;
	return sum;
}

static bool too_long(char **v, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (strlen(v[i]) >= MAX_ARG_STRLEN_G)
			return true;
	return false;
}

int stack_check_args(const struct program *p)
{
	uint64_t limit = MIN(task_rlimit(p->task, RLIMIT_STACK) / 4, ARG_CEILING), ptrs, size;

	limit = MAX(limit, ARG_MAX_G);
	if (too_long(p->argv, p->argc) || too_long(p->envp, p->envc))
		return -E2BIG;
	ptrs = (MAX(p->argc, 1U) + (uint64_t)p->envc) * sizeof(uint64_t);
	size = strings_size(p->argv, p->argc) + strings_size(p->envp, p->envc) +
	       strlen(p->path) + 1;
	return ptrs >= limit || size > limit - ptrs ? -E2BIG : 0;
}

/* The stack under construction: buf[0..size) ends at address top; sp moves down. */
struct builder {
	char *buf;
	size_t size;
	uint64_t top, sp;
};

static void *at(struct builder *b, uint64_t addr)
{
	return b->buf + (b->size - (b->top - addr));
}

static uint64_t push(struct builder *b, const void *data, size_t len)
{
	b->sp -= len;
	if (b->top - b->sp > b->size)
		panic("program stack larger than computed");
	memcpy(at(b, b->sp), data, len);
	return b->sp;
}

/* Pushes strings so that v[0] is lowest; returns its address. */
static uint64_t push_strings(struct builder *b, char **v, unsigned n)
{
	for (unsigned i = n; i-- > 0;)
		push(b, v[i], strlen(v[i]) + 1);
	return b->sp;
}

static unsigned add_aux(uint64_t *auxv, unsigned n, uint64_t key, uint64_t value)
{
	auxv[n] = key;
	auxv[n + 1] = value;
	return n + 2;
}

static unsigned fill_auxv(uint64_t *auxv, const struct stack_info *si, uint64_t random,
			  uint64_t platform, uint64_t execfn)
{
	uint64_t minsig = getauxval(AT_MINSIGSTKSZ);
	const struct cred *c = si->cred;
	unsigned n = 0;

	if (si->vdso)
		n = add_aux(auxv, n, AT_SYSINFO_EHDR, si->vdso);
	n = add_aux(auxv, n, AT_MINSIGSTKSZ, minsig ? minsig : MINSIGSTKSZ_FALLBACK);
	n = add_aux(auxv, n, AT_HWCAP, getauxval(AT_HWCAP)); /* CPUID.1:EDX */
	n = add_aux(auxv, n, AT_PAGESZ, PAGE_SIZE);
	n = add_aux(auxv, n, AT_CLKTCK, CLK_TCK_G);
	n = add_aux(auxv, n, AT_PHDR, si->image->phdr);
	n = add_aux(auxv, n, AT_PHENT, ELF_PHDR_SIZE);
	n = add_aux(auxv, n, AT_PHNUM, si->phnum);
	n = add_aux(auxv, n, AT_BASE, si->interp_base);
	n = add_aux(auxv, n, AT_FLAGS, 0);
	n = add_aux(auxv, n, AT_ENTRY, si->image->entry);
	n = add_aux(auxv, n, AT_UID, userns_show_uid(c->userns, c->uid));
	n = add_aux(auxv, n, AT_EUID, userns_show_uid(c->userns, c->euid));
	n = add_aux(auxv, n, AT_GID, userns_show_gid(c->userns, c->gid));
	n = add_aux(auxv, n, AT_EGID, userns_show_gid(c->userns, c->egid));
	n = add_aux(auxv, n, AT_SECURE, si->secure);
	n = add_aux(auxv, n, AT_RANDOM, random);
	n = add_aux(auxv, n, AT_HWCAP2, getauxval(AT_HWCAP2));
	n = add_aux(auxv, n, AT_EXECFN, execfn);
	n = add_aux(auxv, n, AT_PLATFORM, platform);
	return add_aux(auxv, n, AT_NULL, 0);
}

/* Addresses of consecutive strings, then NULL. */
static uint64_t *put_pointers(uint64_t *w, uint64_t addr, char **v, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		*w++ = addr;
		addr += strlen(v[i]) + 1;
	}
	*w++ = 0;
	return w;
}

/* Everything below the strings. The layout's argument and environment fields are set already. */
static void build_tables(struct builder *b, const struct program *p, const struct stack_info *si,
			 struct mm_layout *l, uint64_t execfn, uint64_t *auxv, unsigned *ret_n)
{
	uint64_t platform, random, *w;
	uint8_t bytes[16];
	uint16_t slack = 0;
	size_t words;

	if (si->randomize)
		kernel_random(&slack, sizeof(slack));
	b->sp = (b->sp - slack % 8192) & ~15ULL;
	platform = push(b, "x86_64", sizeof("x86_64"));
	kernel_random(bytes, sizeof(bytes));
	random = push(b, bytes, sizeof(bytes));
	*ret_n = fill_auxv(auxv, si, random, platform, execfn);
	words = 1 + p->argc + 1UL + p->envc + 1UL + *ret_n;
	b->sp = (b->sp - words * sizeof(uint64_t)) & ~15ULL;
	if (b->top - b->sp > b->size)
		panic("program stack larger than computed");
	w = at(b, b->sp);
	*w++ = p->argc;
	w = put_pointers(w, gaddr_u64(l->arg_start), p->argv, p->argc);
	w = put_pointers(w, gaddr_u64(l->env_start), p->envp, p->envc);
	memcpy(w, auxv, *ret_n * sizeof(*auxv));
}

int stack_build(struct mm *mm, const struct program *p, const struct stack_info *si,
		struct mm_layout *layout, uint64_t *ret_sp)
{
	struct builder b = { .top = si->top, .sp = si->top };
	uint64_t auxv[AUXV_WORDS], execfn, zero = 0, start;
	AUTO_FREE char *buf = NULL;
	unsigned nauxv;
	int r;

	b.size = sizeof(zero) + strlen(p->path) + 1 + strings_size(p->argv, p->argc) +
		 strings_size(p->envp, p->envc) + 8192 + 64 +
		 (p->argc + p->envc + 3UL + AUXV_WORDS) * sizeof(uint64_t);
	b.size = (b.size + 15) & ~15UL; /* so that words in it are aligned */
	buf = kmalloc_guest(b.size);
	if (!buf)
		return -ENOMEM;
	memset(buf, 0, b.size);
	b.buf = buf;
	push(&b, &zero, sizeof(zero));
	execfn = push(&b, p->path, strlen(p->path) + 1);
	layout->env_end = gaddr(execfn);
	layout->env_start = gaddr(push_strings(&b, p->envp, p->envc));
	layout->arg_end = layout->env_start;
	layout->arg_start = gaddr(push_strings(&b, p->argv, p->argc));
	build_tables(&b, p, si, layout, execfn, auxv, &nauxv);
	start = page_down(b.sp) - STACK_EXTRA;
	r = mm_load_stack(mm, start, si->top - start, si->prot);
	if (r < 0)
		return r;
	if (mm_write(mm, gaddr(b.sp), at(&b, b.sp), si->top - b.sp, true) !=
	    (ssize_t)(si->top - b.sp))
		return -ENOMEM;
	layout->start_stack = gaddr(b.sp);
	mm_set_auxv(mm, auxv, nauxv);
	*ret_sp = b.sp;
	return 0;
}
