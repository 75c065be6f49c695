// SPDX-License-Identifier: Apache-2.0
/* man 2 prctl, arch_prctl, personality. */
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <string.h>

#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/mm/mm.h"
#include "syscalls/sys.h"

#ifndef PR_SET_MDWE
# define PR_SET_MDWE 65
# define PR_GET_MDWE 66
#endif
#ifndef PR_SET_MEMORY_MERGE
# define PR_SET_MEMORY_MERGE 67
# define PR_GET_MEMORY_MERGE 68
#endif
#ifndef PR_GET_AUXV
# define PR_GET_AUXV 0x41555856
#endif

#define SECBITS_ALL (SECURE_ALL_BITS | SECURE_ALL_LOCKS)

static long set_name(struct task *t, uint64_t addr)
{
	char name[TASK_COMM_LEN] = { 0 };
	ssize_t n = copyin_str(t, name, gaddr(addr), sizeof(name) - 1, -E2BIG);

	if (n == -EFAULT)
		return n;
	name[TASK_COMM_LEN - 1] = 0;
	task_set_comm(t, name);
	return 0;
}

static long get_name(struct task *t, uint64_t addr)
{
	char name[TASK_COMM_LEN];

	task_get_comm(t, name);
	return copyout(t, gaddr(addr), name, sizeof(name));
}

static long put_int(struct task *t, uint64_t addr, int v)
{
	return copyout_obj(t, gaddr(addr), &v);
}

/* ---- capabilities and securebits ---- */

static long capbset_drop(struct task *t, uint64_t cap)
{
	struct cred *n;

	if (!cred_capable_in(t->cred, t->cred->userns, CAP_SETPCAP))
		return -EPERM;
	if (cap > CAP_LAST_CAP)
		return -EINVAL;
	n = cred_dup(t->cred);
	n->bounding &= ~CAP_BIT(cap);
	cred_install(t, n);
	return 0;
}

/* Locked bits stay, locks only grow, and all of it needs CAP_SETPCAP. */
static long set_securebits(struct task *t, uint64_t bits)
{
	uint32_t old = t->cred->securebits;
	struct cred *n;

	if (((old & SECURE_ALL_LOCKS) >> 1) & (old ^ bits))
		return -EPERM;
	if ((old & SECURE_ALL_LOCKS & ~bits) || (bits & ~(uint64_t)SECBITS_ALL))
		return -EPERM;
	if (!cred_capable_in(t->cred, t->cred->userns, CAP_SETPCAP))
		return -EPERM;
	n = cred_dup(t->cred);
	n->securebits = (uint32_t)bits;
	cred_install(t, n);
	return 0;
}

static long set_keepcaps(struct task *t, uint64_t on)
{
	struct cred *n;

	if (on > 1)
		return -EINVAL;
	if (t->cred->securebits & SECBIT_KEEP_CAPS_LOCKED)
		return -EPERM;
	n = cred_dup(t->cred);
	if (on)
		n->securebits |= SECBIT_KEEP_CAPS;
	else
		n->securebits &= ~(uint32_t)SECBIT_KEEP_CAPS;
	cred_install(t, n);
	return 0;
}

static long cap_ambient(struct task *t, uint64_t op, uint64_t cap, uint64_t a4,
			uint64_t a5)
{
	const struct cred *o = t->cred;
	struct cred *n;

	if (op == PR_CAP_AMBIENT_CLEAR_ALL) {
		if (cap || a4 || a5)
			return -EINVAL;
		n = cred_dup(o);
		n->ambient = 0;
		cred_install(t, n);
		return 0;
	}
	if (a4 || a5 || cap > CAP_LAST_CAP)
		return -EINVAL;
	if (op == PR_CAP_AMBIENT_IS_SET)
		return !!(o->ambient & CAP_BIT(cap));
	if (op != PR_CAP_AMBIENT_RAISE && op != PR_CAP_AMBIENT_LOWER)
		return -EINVAL;
	if (op == PR_CAP_AMBIENT_RAISE &&
	    (!(o->permitted & CAP_BIT(cap)) || !(o->inheritable & CAP_BIT(cap)) ||
	     (o->securebits & SECBIT_NO_CAP_AMBIENT_RAISE)))
		return -EPERM;
	n = cred_dup(o);
	if (op == PR_CAP_AMBIENT_RAISE)
		n->ambient |= CAP_BIT(cap);
	else
		n->ambient &= ~CAP_BIT(cap);
	cred_install(t, n);
	return 0;
}

/* ---- the rest ---- */

static long set_subreaper(struct task *t, uint64_t on)
{
	AUTO_LOCK(&kernel.tasks_mu);

	t->tg->child_subreaper = on != 0;
	return 0;
}

static long get_auxv(struct task *t, uint64_t addr, uint64_t len)
{
	uint64_t auxv[64];
	unsigned n = mm_auxv(t->mm, auxv, 64);

	n = MIN(n, 64u);
	if (copyout(t, gaddr(addr), auxv, MIN(len, (uint64_t)n * sizeof(uint64_t))))
		return -EFAULT;
	return (long)(n * sizeof(uint64_t));
}

static long set_vma(const struct sysargs *a)
{
	/* Names of anonymous memory are accepted and not shown. */
	if (arg_u64(a, 1) != PR_SET_VMA_ANON_NAME)
		return -EINVAL;
	return arg_u64(a, 2) & 4095 ? -EINVAL : 0;
}

static long do_seccomp(struct task *t, uint64_t mode, uint64_t filter)
{
	if (mode == SECCOMP_MODE_STRICT)
		return seccomp_set_strict(t);
	if (mode == SECCOMP_MODE_FILTER)
		return seccomp_set_filter(t, 0, gaddr(filter));
	return -EINVAL;
}

static long set_timerslack(struct task *t, uint64_t ns)
{
	t->timer_slack_ns = ns > 0 && (int64_t)ns > 0 ? ns : t->timer_slack_default_ns;
	return 0;
}

static long mce_kill(const struct sysargs *a)
{
	uint64_t op = arg_u64(a, 1), v = arg_u64(a, 2);

	if (arg_u64(a, 3) || arg_u64(a, 4))
		return -EINVAL;
	if (op == PR_MCE_KILL_CLEAR)
		return v ? -EINVAL : 0;
	return op == PR_MCE_KILL_SET && v <= PR_MCE_KILL_DEFAULT ? 0 : -EINVAL;
}

/* Calls that set or read something of the process or thread. -ENOIOCTLCMD: not one of these. */
static long prctl_process(struct task *t, int op, const struct sysargs *a)
{
	uint64_t a2 = arg_u64(a, 1), a3 = arg_u64(a, 2), a4 = arg_u64(a, 3),
		 a5 = arg_u64(a, 4);

	switch (op) {
	case PR_SET_PDEATHSIG:
		if (a2 > NSIG_GUEST)
			return -EINVAL;
		t->pdeath_signal = (int)a2;
		return 0;
	case PR_GET_PDEATHSIG:
		return put_int(t, a2, t->pdeath_signal);
	case PR_GET_DUMPABLE:
		return mm_get_dumpable(t->mm);
	case PR_SET_DUMPABLE:
		if (a2 > 1)
			return -EINVAL;
		mm_set_dumpable(t->mm, (int)a2);
		return 0;
	case PR_SET_NAME:
		return set_name(t, a2);
	case PR_GET_NAME:
		return get_name(t, a2);
	case PR_SET_TIMERSLACK:
		return set_timerslack(t, a2);
	case PR_GET_TIMERSLACK:
		return (long)MIN(t->timer_slack_ns, (uint64_t)INT64_MAX);
	case PR_SET_CHILD_SUBREAPER:
		return set_subreaper(t, a2);
	case PR_GET_CHILD_SUBREAPER:
		return put_int(t, a2, t->tg->child_subreaper);
	case PR_SET_NO_NEW_PRIVS:
		if (a2 != 1 || a3 || a4 || a5)
			return -EINVAL;
		t->no_new_privs = true;
		return 0;
	case PR_GET_NO_NEW_PRIVS:
		return a2 || a3 || a4 || a5 ? -EINVAL : t->no_new_privs;
	case PR_SET_SECCOMP:
		return do_seccomp(t, a2, a3);
	case PR_GET_SECCOMP:
		return t->seccomp_mode;
	case PR_GET_TID_ADDRESS:
		return -EINVAL; /* CONFIG_CHECKPOINT_RESTORE=n */
	case PR_GET_AUXV:
		return a4 || a5 ? -EINVAL : get_auxv(t, a2, a3);
	default:
		return -ENOIOCTLCMD;
	}
}

static long prctl_caps(struct task *t, int op, const struct sysargs *a)
{
	uint64_t a2 = arg_u64(a, 1);

	switch (op) {
	case PR_GET_KEEPCAPS:
		return !!(t->cred->securebits & SECBIT_KEEP_CAPS);
	case PR_SET_KEEPCAPS:
		return set_keepcaps(t, a2);
	case PR_CAPBSET_READ:
		return a2 > CAP_LAST_CAP ? -EINVAL : !!(t->cred->bounding & CAP_BIT(a2));
	case PR_CAPBSET_DROP:
		return capbset_drop(t, a2);
	case PR_GET_SECUREBITS:
		return (long)t->cred->securebits;
	case PR_SET_SECUREBITS:
		return set_securebits(t, a2);
	case PR_CAP_AMBIENT:
		return cap_ambient(t, a2, arg_u64(a, 2), arg_u64(a, 3), arg_u64(a, 4));
	default:
		return -ENOIOCTLCMD;
	}
}

/* What has no effect here: defaults can be read and set again. */
static long prctl_machine(struct task *t, int op, const struct sysargs *a)
{
	uint64_t a2 = arg_u64(a, 1);
	bool rest = arg_u64(a, 2) || arg_u64(a, 3) || arg_u64(a, 4);

	switch (op) {
	case PR_GET_TIMING:
		return PR_TIMING_STATISTICAL;
	case PR_SET_TIMING:
		return a2 == PR_TIMING_STATISTICAL ? 0 : -EINVAL;
	case PR_GET_TSC:
		return put_int(t, a2, PR_TSC_ENABLE);
	case PR_SET_TSC:
		return a2 == PR_TSC_ENABLE ? 0 : -EINVAL;
	case PR_MCE_KILL:
		return mce_kill(a);
	case PR_MCE_KILL_GET:
		return a2 || rest ? -EINVAL : PR_MCE_KILL_DEFAULT;
	case PR_SET_THP_DISABLE:
		return rest ? -EINVAL : 0;
	case PR_GET_THP_DISABLE:
		return a2 || rest ? -EINVAL : 0;
	case PR_SET_VMA:
		return set_vma(a);
	case PR_GET_SPECULATION_CTRL:
	case PR_SET_SPECULATION_CTRL:
		return op == PR_GET_SPECULATION_CTRL && rest ? -EINVAL : -ENODEV;
	case PR_SET_IO_FLUSHER:
	case PR_GET_IO_FLUSHER:
		return task_capable(t, CAP_SYS_RESOURCE) ? -EINVAL : -EPERM;
	case PR_SET_MM:
		return task_capable(t, CAP_SYS_RESOURCE) ? -EINVAL : -EPERM;
	case PR_SET_PTRACER:
		return -EINVAL; /* no Yama */
	case PR_GET_MDWE:
		return a2 || rest ? -EINVAL : 0;
	case PR_SET_MEMORY_MERGE:
	case PR_GET_MEMORY_MERGE:
	case PR_SET_MDWE:
	default:
		return -EINVAL;
	}
}

long sys_prctl(struct task *t, const struct sysargs *a)
{
	int op = arg_int(a, 0);
	long r = prctl_process(t, op, a);

	if (r == -ENOIOCTLCMD)
		r = prctl_caps(t, op, a);
	if (r == -ENOIOCTLCMD)
		r = prctl_machine(t, op, a);
	return r;
}

#define ARCH_SET_GS    0x1001
#define ARCH_SET_FS    0x1002
#define ARCH_GET_FS    0x1003
#define ARCH_GET_GS    0x1004
#define ARCH_GET_CPUID 0x1011
#define ARCH_SET_CPUID 0x1012

long sys_arch_prctl(struct task *t, const struct sysargs *a)
{
	uint64_t addr = arg_u64(a, 1);

	switch (arg_int(a, 0)) {
	case ARCH_SET_FS:
	case ARCH_SET_GS:
		if (addr >= GUEST_TASK_SIZE)
			return -EPERM;
		if (arg_int(a, 0) == ARCH_SET_FS) {
			t->regs.fs_base = addr;
			t->regs.fs = 0;
		} else {
			t->regs.gs_base = addr;
			t->regs.gs = 0;
		}
		return 0;
	case ARCH_GET_FS:
		return copyout_obj(t, gaddr(addr), &t->regs.fs_base);
	case ARCH_GET_GS:
		return copyout_obj(t, gaddr(addr), &t->regs.gs_base);
	case ARCH_GET_CPUID:
		return 1;
	case ARCH_SET_CPUID:
		return -ENODEV;
	default:
		/* XCOMP permissions (AMX) and tagged addresses: as a CPU without them. */
		return -EINVAL;
	}
}

long sys_personality(struct task *t, const struct sysargs *a)
{
	uint32_t old = t->personality;

	if (arg_u32(a, 0) != 0xffffffffu)
		t->personality = arg_u32(a, 0);
	return (long)old;
}
