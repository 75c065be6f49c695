// SPDX-License-Identifier: Apache-2.0
/*
 * What the program loader needs of a new address space that no task runs in yet. All lengths and
 * addresses are multiples of pages. Results: 0 or -errno, or an address.
 */
#ifndef SENTRY_MM_MM_LOAD_H
#define SENTRY_MM_MM_LOAD_H

#include <stdint.h>

struct mm;
struct mfile;
struct task;
struct file;

/* Private mapping of @f (NULL: anonymous) at exactly @addr, replacing what is there. @t pays limits. */
int mm_load_map(struct mm *mm, struct task *t, uint64_t addr, uint64_t len, int prot,
		struct file *f, uint64_t off);
int mm_load_stack(struct mm *mm, uint64_t addr, uint64_t len, int prot);
/* Pages of an mfile of the sentry's, read-only for the guest: vDSO and its parameters. */
int mm_load_special(struct mm *mm, uint64_t addr, uint64_t len, int prot, struct mfile *mf,
		    uint64_t off, const char *name);
/* A free place of @len bytes in the mmap area. */
long mm_load_find(struct mm *mm, uint64_t len);
/* First of all: the top of the mmap area. Until mm_load_done(), nothing is flushed. */
void mm_load_set_base(struct mm *mm, uint64_t mmap_base);
void mm_load_done(struct mm *mm);

#endif
