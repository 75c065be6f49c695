// SPDX-License-Identifier: Apache-2.0
/*
 * Program loading (man 2 execve, man 5 elf): turns an opened executable into a new address space with
 * stack, auxiliary vector and first registers. Scripts and PT_INTERP are resolved here. Hostile files
 * give ENOEXEC (or whatever Linux gives) before anything of the caller has changed.
 */
#ifndef SENTRY_LOADER_LOADER_H
#define SENTRY_LOADER_LOADER_H

#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs.h"

struct loaded {
	struct mm *mm;       /* new address space, one use taken for the task */
	struct regs regs;    /* first registers */
	struct file *exe;    /* the binary itself (the interpreter for scripts); reference */
	struct cred *cred;   /* credentials after setuid/setgid/file capabilities; reference */
	bool secure;         /* AT_SECURE */
	char comm[TASK_COMM_LEN];
};

/* 0 or -errno: E2BIG (arguments, strings limit as Linux: 1/4 of RLIMIT_STACK, 128 KiB a string), ENOEXEC,
 * EACCES, ELOOP (interpreter nesting), ELIBBAD, ENOMEM. On failure *ret is untouched. */
int loader_load(struct task *t, const struct exec_args *a, struct loaded *ret);
void loaded_fini(struct loaded *l);

/* kernel/task_exec.c: credentials that running @f gives @t. *ret_secure: AT_SECURE. */
int exec_prepare_cred(struct task *t, struct file *f, struct cred **ret, bool *ret_secure);

/* The vDSO image (sentry/loader/vdso.c): *ret_len bytes at *ret_off of the returned mfile (borrowed). The
 * page(s) of parameters come from clock_vvar_mfile() and must be mapped right below the image. */
struct mfile *vdso_mfile(uint64_t *ret_off, uint64_t *ret_len);
void vdso_init(void);

#endif
