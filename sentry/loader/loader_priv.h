// SPDX-License-Identifier: Apache-2.0
/* Inside of the program loader: shared by load.c, image.c, script.c and stack.c. */
#ifndef SENTRY_LOADER_LOADER_PRIV_H
#define SENTRY_LOADER_LOADER_PRIV_H

#include "sentry/loader/elf.h"
#include "sentry/loader/loader.h"

#define BINPRM_BUF_SIZE 256  /* what exec looks at to tell formats apart */
#define SCRIPT_DEPTH_MAX 5   /* rewrites of the interpreter: one more is ELOOP */
#define MAX_ARG_STRLEN_G (32 * 4096UL)

/* The program being loaded; argv and file change while scripts are resolved. */
struct program {
	struct task *task;
	struct file *file;     /* reference */
	char **argv;           /* heap array of heap strings, NULL terminated */
	unsigned argc;
	char **envp;           /* borrowed */
	unsigned envc;
	const char *path;      /* borrowed: AT_EXECFN, and what a script's interpreter is told */
	char head[BINPRM_BUF_SIZE];
	size_t head_len;
};

/* An ELF image in place. */
struct image {
	uint64_t bias, entry, phdr;
	uint64_t start_code, end_code, start_data, end_data, end_bss;
};

/* image.c */
int image_read_plan(struct task *t, struct file *f, const void *head, size_t head_len,
		    struct elf_plan *ret);
/* Maps the segments with @bias added to their addresses. */
int image_map(struct mm *mm, struct task *t, struct file *f, const struct elf_plan *p,
	      uint64_t bias, struct image *ret);

/* script.c: follows "#!" lines until p->file is no script. 0 or -errno. */
int script_resolve(struct program *p);
int program_read_head(struct program *p);

/* stack.c */
struct stack_info {
	uint64_t top;                /* highest address of the stack, page aligned */
	int prot;
	const struct image *image;
	uint64_t interp_base;        /* AT_BASE; 0: none */
	unsigned phnum;
	uint64_t vdso;
	bool secure, randomize;
	const struct cred *cred;
};
/* -E2BIG when arguments and environment are too large for the limits. No side effects. */
int stack_check_args(const struct program *p);
/* Maps the stack and fills it; the layout's stack, argument and environment fields, and the auxv of
 * @mm are set. *ret_sp: the first stack pointer. */
int stack_build(struct mm *mm, const struct program *p, const struct stack_info *si,
		struct mm_layout *layout, uint64_t *ret_sp);

#endif
