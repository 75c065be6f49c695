// SPDX-License-Identifier: Apache-2.0
/* From a guest's system call to its handler. */
#include "syscalls/sys.h"

#include "base/compiler.h"
#include "base/stats.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ptrace.h"

struct row {
	sys_fn fn; /* NULL: ENOSYS */
	const char *name;
};

/* Two rows of one number are a build error (-Woverride-init). */
static const struct row rows[SYSCALL_MAX] = {
#define SYSCALL(nr, n, kinds) [nr] = { .fn = sys_##n, .name = #n },
#define NOSYS(nr, n) [nr] = { .fn = NULL, .name = #n },
#include "syscalls/table.def"
#undef SYSCALL
#undef NOSYS
};

/* Calls served while somebody watched (base/stats.h). */
static _Atomic uint64_t counts[SYSCALL_MAX];

uint64_t syscall_count(long nr)
{
	return nr < 0 || nr >= SYSCALL_MAX ? 0 : atomic_load(&counts[nr]);
}

const char *syscall_name(long nr)
{
	if (nr < 0 || nr >= SYSCALL_MAX)
		return NULL;
	return rows[nr].name;
}

/*
 * Serves the call that t->regs describes; the result goes to regs.rax. x32 numbers answer ENOSYS, as
 * a kernel built without CONFIG_X86_X32.
 */
static void dispatch(struct task *t)
{
	long nr = (long)t->regs.orig_rax;
	struct sysargs a = { { t->regs.rdi, t->regs.rsi, t->regs.rdx, t->regs.r10, t->regs.r8,
			       t->regs.r9 } };
	sys_fn fn = nr >= 0 && nr < SYSCALL_MAX ? rows[nr].fn : NULL;
	long ret = -ENOSYS;

	t->sysno = nr;
	if (stats_on() && fn)
		atomic_fetch_add_explicit(&counts[nr], 1, memory_order_relaxed);
	if (fn)
		ret = fn(t, &a);
	t->regs.rax = (uint64_t)ret;
	if (unlikely(kernel.strace))
		strace_call(t, nr, &a, ret);
}

void syscalls_init(void)
{
	task_syscall_entry = dispatch;
}
