// SPDX-License-Identifier: Apache-2.0
/*
 * System call handlers: one signature, arguments through typed accessors. A handler fetches, refuses
 * unknown flags, copies in once, checks the copy, acts through sentry/, copies out. It takes no
 * locks. Files are named for the area: syscalls/sys_<area>.c.
 */
#ifndef SYSCALLS_SYS_H
#define SYSCALLS_SYS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/gaddr.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/usermem.h"

struct sysargs {
	uint64_t v[6];
};

static inline int arg_int(const struct sysargs *a, int i)
{
	return (int)(uint32_t)a->v[i];
}

static inline uint32_t arg_u32(const struct sysargs *a, int i)
{
	return (uint32_t)a->v[i];
}

static inline uint64_t arg_u64(const struct sysargs *a, int i)
{
	return a->v[i];
}

static inline int64_t arg_s64(const struct sysargs *a, int i)
{
	return (int64_t)a->v[i];
}

static inline size_t arg_size(const struct sysargs *a, int i)
{
	return (size_t)a->v[i];
}

static inline gaddr_t arg_gaddr(const struct sysargs *a, int i)
{
	return gaddr(a->v[i]);
}

typedef long (*sys_fn)(struct task *t, const struct sysargs *a);

#define SYSCALL(nr, name, kinds) long sys_##name(struct task *t, const struct sysargs *a);
#define NOSYS(nr, name)
#include "syscalls/table.def"
#undef SYSCALL
#undef NOSYS

/* Installs the dispatcher as task_syscall_entry. */
void syscalls_init(void);

#define SYSCALL_MAX 512
/* Name of a call, NULL when there is none of that number. */
const char *syscall_name(long nr);
/* How often it was served while counters were on (base/stats.h). */
uint64_t syscall_count(long nr);

/* --strace: one decoded line for each call, after it returned. */
void strace_call(struct task *t, long nr, const struct sysargs *a, long ret);

#endif
