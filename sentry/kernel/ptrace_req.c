// SPDX-License-Identifier: Apache-2.0
/*
 * The requests of ptrace(2). Except for TRACEME, ATTACH, SEIZE, INTERRUPT and KILL, the tracee must be in a
 * trace stop; as long as tracee->ptrace->stopped holds, only its tracer (the caller) can end that, beside
 * a SIGKILL. A killed tracee no longer looks at its registers, so a race with that is harmless.
 */
#include <elf.h>
#include <errno.h>
#include <linux/ptrace.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/user.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/usermem.h"

#define OPTIONS_ALL \
 (0xffu | PTRACE_O_EXITKILL) /* TRACESYSGOOD .. TRACESECCOMP; SUSPEND_SECCOMP refused */
#define FXSAVE_SIZE         512
#define EFLAGS_USER         0x00050dd5u /* CF PF AF ZF SF TF DF OF NT AC RF */
#define AUDIT_ARCH_X86_64_G 0xc000003eu

/* ---- becoming a tracer ---- */

static long traceme(struct task *t)
{
	struct task *parent;
	AUTO_LOCK(&kernel.tasks_mu);

	if (t->ptrace)
		return -EPERM;
	parent = t->tg->parent_task;
	if (!parent && t->tg->parent)
		parent = t->tg->parent->leader;
	if (!parent)
		return -EPERM;
	ptrace_link_locked(parent, t, false, 0);
	return 0;
}

static long attach(struct task *t, struct task *target, bool seize, uint32_t options)
{
	long err;

	if (target->tg == t->tg)
		return -EPERM;
	err = task_may_access(t, target, true);
	if (err)
		return err;
	mutex_lock(&kernel.tasks_mu);
	if (target->ptrace || atomic_load(&target->exiting) ||
	    atomic_load(&target->state) >= TASK_ZOMBIE)
		err = -EPERM;
	else
		ptrace_link_locked(t, target, seize, options);
	mutex_unlock(&kernel.tasks_mu);
	if (err)
		return err;
	if (!seize)
		return signal_send_task(target, SIGSTOP, NULL);
	task_interrupt(target); /* one in a group-stop turns it into a trace stop */
	return 0;
}

/* ---- running again ---- */

static void resume_locked(struct task *c, int sig)
{
	c->ptrace_resume_sig = sig;
	c->ptrace->stopped = false;
	c->ptrace->listening = false;
	freeze_hand_over(c);
	task_wake_killable(c);
}

static long resume(struct task *c, int request, uint64_t sig)
{
	struct ptrace_state *pt;
	AUTO_LOCK(&kernel.tasks_mu);

	pt = c->ptrace;
	if (!pt || !pt->stopped)
		return -ESRCH;
	if (sig > NSIG_GUEST)
		return -EIO;
	pt->trace_syscalls = request == PTRACE_SYSCALL;
	pt->sysemu = request == PTRACE_SYSEMU || request == PTRACE_SYSEMU_SINGLESTEP;
	pt->singlestep =
		request == PTRACE_SINGLESTEP || request == PTRACE_SYSEMU_SINGLESTEP;
	resume_locked(c, (int)sig);
	return 0;
}

static long detach(struct task *c, uint64_t sig)
{
	AUTO_LOCK(&kernel.tasks_mu);

	if (!c->ptrace || !c->ptrace->stopped)
		return -ESRCH;
	if (sig > NSIG_GUEST)
		return -EIO;
	c->ptrace_resume_sig = (int)sig;
	ptrace_unlink_locked(c);
	return 0;
}

static long interrupt(struct task *c)
{
	mutex_lock(&kernel.tasks_mu);
	if (!c->ptrace || !c->ptrace->seized) {
		mutex_unlock(&kernel.tasks_mu);
		return -EIO;
	}
	c->ptrace->interrupt = true;
	if (c->ptrace->listening)
		resume_locked(c, 0); /* stops again at once, and reports that */
	mutex_unlock(&kernel.tasks_mu);
	task_interrupt(c);
	return 0;
}

static long listen(struct task *c)
{
	AUTO_LOCK(&kernel.tasks_mu);

	if (!c->ptrace || !c->ptrace->seized || !c->ptrace->stopped ||
	    c->ptrace->stop_code >> 8 != PTRACE_EVENT_STOP)
		return -EIO;
	c->ptrace->listening = true;
	if (ptrace_group_changed_locked(c))
		task_wake_killable(c);
	return 0;
}

/* ---- registers ---- */

/* What a tracer may set: the guest stays in user mode, below the stub. */
static int check_regs(struct regs *r, const struct regs *old)
{
	if (r->fs_base >= GUEST_TASK_SIZE || r->gs_base >= GUEST_TASK_SIZE)
		return -EIO;
	r->cs = old->cs;
	r->ss = old->ss;
	r->ds = old->ds;
	r->es = old->es;
	r->fs = old->fs;
	r->gs = old->gs;
	r->eflags = (old->eflags & ~(uint64_t)EFLAGS_USER) | (r->eflags & EFLAGS_USER);
	return 0;
}

static int set_regs(struct task *c, struct regs *r)
{
	int err = check_regs(r, &c->regs);

	if (!err)
		c->regs = *r;
	return err;
}

static long peek_user(struct task *t, struct task *c, uint64_t addr, uint64_t data)
{
	uint64_t v = 0;

	if ((addr & 7) || addr > sizeof(struct user) - 8)
		return -EIO;
	if (addr < sizeof(struct regs))
		memcpy(&v, (const uint8_t *)&c->regs + addr, sizeof(v));
	return copyout_obj(t, gaddr(data), &v);
}

static long poke_user(struct task *c, uint64_t addr, uint64_t data)
{
	struct regs r = c->regs;

	if ((addr & 7) || addr > sizeof(struct user) - 8)
		return -EIO;
	if (addr < sizeof(r)) {
		memcpy((uint8_t *)&r + addr, &data, sizeof(data));
		return set_regs(c, &r);
	}
	/* No hardware breakpoints: debug registers can only be cleared. */
	return addr >= offsetof(struct user, u_debugreg) && !data ? 0 : -EIO;
}

struct l_iovec {
	uint64_t base, len;
};

static long regset(struct task *t, struct task *c, bool set, uint64_t type,
		   gaddr_t iov_addr)
{
	struct fpstate *fp = c->ptrace->fp;
	struct l_iovec iov;
	struct regs r = c->regs;
	size_t size;
	void *buf;
	int err;

	if (copyin_obj(t, &iov, iov_addr))
		return -EFAULT;
	switch (type) {
	case NT_PRSTATUS:
		buf = &r;
		size = sizeof(r);
		break;
	case NT_PRFPREG:
	case NT_X86_XSTATE:
		if (!fp || fp->size < FXSAVE_SIZE)
			return -EIO;
		buf = fp->data;
		size = type == NT_PRFPREG ? FXSAVE_SIZE : fp->size;
		break;
	default:
		return -EINVAL;
	}
	if (iov.len & 7)
		return -EINVAL;
	size = MIN(size, (size_t)iov.len);
	if (set && type == NT_X86_XSTATE && size != fp->size)
		return -EFAULT;
	err = set ? copyin(t, buf, gaddr(iov.base), size)
		  : copyout(t, gaddr(iov.base), buf, size);
	if (!err && set && type == NT_PRSTATUS)
		err = set_regs(c, &r);
	else if (!err && set)
		c->ptrace->fp_dirty = true;
	iov.len = size;
	return err ? err : copyout_obj(t, iov_addr, &iov);
}

static long fpregs(struct task *t, struct task *c, bool set, gaddr_t addr)
{
	struct fpstate *fp = c->ptrace->fp;

	if (!fp || fp->size < FXSAVE_SIZE)
		return -EIO;
	if (!set)
		return copyout(t, addr, fp->data, FXSAVE_SIZE);
	if (copyin(t, fp->data, addr, FXSAVE_SIZE))
		return -EFAULT;
	c->ptrace->fp_dirty = true;
	return 0;
}

/* ---- memory ---- */

static long peek_data(struct task *t, struct task *c, uint64_t addr, uint64_t data)
{
	struct mm *mm = task_mm_get(c);
	uint64_t v = 0;
	ssize_t n = mm ? mm_read(mm, gaddr(addr), &v, sizeof(v), true) : -EIO;

	if (mm)
		mm_put(mm);
	return n == (ssize_t)sizeof(v) ? copyout_obj(t, gaddr(data), &v) : -EIO;
}

static long poke_data(struct task *c, uint64_t addr, uint64_t data)
{
	struct mm *mm = task_mm_get(c);
	ssize_t n = mm ? mm_write(mm, gaddr(addr), &data, sizeof(data), true) : -EIO;

	if (mm)
		mm_put(mm);
	return n == (ssize_t)sizeof(data) ? 0 : -EIO;
}

/* ---- about the stop ---- */

static long siginfo(struct task *t, struct task *c, bool set, gaddr_t addr)
{
	struct l_siginfo info;
	bool have;

	if (set && copyin_obj(t, &info, addr))
		return -EFAULT;
	mutex_lock(&kernel.tasks_mu);
	have = c->ptrace && c->ptrace->stopped && c->ptrace->info;
	if (have && set)
		*c->ptrace->info = info;
	else if (have)
		info = *c->ptrace->info;
	mutex_unlock(&kernel.tasks_mu);
	if (!have)
		return -EINVAL;
	return set ? 0 : copyout_obj(t, addr, &info);
}

static long sig_mask(struct task *t, struct task *c, bool set, uint64_t size,
		     gaddr_t addr)
{
	sigset_g m;

	if (size != sizeof(m))
		return -EINVAL;
	if (!set) {
		m = c->has_saved_blocked ? c->saved_blocked : c->blocked;
		return copyout_obj(t, addr, &m);
	}
	if (copyin_obj(t, &m, addr))
		return -EFAULT;
	mutex_lock(&c->sighand->mu);
	c->blocked = m & ~SIGSET_UNBLOCKABLE;
	signal_recalc_locked(c);
	mutex_unlock(&c->sighand->mu);
	return 0;
}

struct l_syscall_info {
	uint8_t op, pad[3];
	uint32_t arch;
	uint64_t ip, sp;
	union {
		struct {
			uint64_t nr, args[6];
			uint32_t ret_data;
		} entry;
		struct {
			int64_t rval;
			uint8_t is_error;
		} exit;
	};
};
_Static_assert(sizeof(struct l_syscall_info) == 88, "ptrace_syscall_info is 88 bytes");

static long syscall_info(struct task *t, struct task *c, uint64_t size, gaddr_t addr)
{
	const struct regs *r = &c->regs;
	struct l_syscall_info s = { .arch = AUDIT_ARCH_X86_64_G,
				    .ip = r->rip,
				    .sp = r->rsp };
	size_t len = offsetof(struct l_syscall_info, entry);

	switch (c->ptrace->sysstop) {
	case PT_SYS_ENTRY:
	case PT_SYS_SECCOMP:
		s.op = c->ptrace->sysstop == PT_SYS_ENTRY ? PTRACE_SYSCALL_INFO_ENTRY
							  : PTRACE_SYSCALL_INFO_SECCOMP;
		s.entry.nr = r->orig_rax;
		memcpy(s.entry.args,
		       (uint64_t[]){ r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9 }, 48);
		len += 56;
		if (c->ptrace->sysstop == PT_SYS_SECCOMP) {
			s.entry.ret_data = (uint32_t)c->ptrace->eventmsg;
			len += sizeof(uint32_t);
		}
		break;
	case PT_SYS_EXIT:
		s.op = PTRACE_SYSCALL_INFO_EXIT;
		s.exit.rval = (int64_t)r->rax;
		s.exit.is_error = (int64_t)r->rax < 0 && (int64_t)r->rax >= -MAX_ERRNO;
		len += 9;
		break;
	case PT_SYS_NONE:
		break;
	}
	if (copyout(t, addr, &s, MIN((size_t)size, len)))
		return -EFAULT;
	return (long)len;
}

static long set_options(struct task *c, uint64_t options)
{
	if (options & ~(uint64_t)OPTIONS_ALL)
		return -EINVAL;
	c->ptrace->options = (uint32_t)options;
	return 0;
}

/* Requests on a stopped tracee that leave it stopped. */
static long stopped_request(struct task *t, struct task *c, int req, uint64_t addr,
			    uint64_t data)
{
	struct regs r;

	switch (req) {
	case PTRACE_PEEKTEXT:
	case PTRACE_PEEKDATA:
		return peek_data(t, c, addr, data);
	case PTRACE_POKETEXT:
	case PTRACE_POKEDATA:
		return poke_data(c, addr, data);
	case PTRACE_PEEKUSR:
		return peek_user(t, c, addr, data);
	case PTRACE_POKEUSR:
		return poke_user(c, addr, data);
	case PTRACE_GETREGS:
		return copyout_obj(t, gaddr(data), &c->regs);
	case PTRACE_SETREGS:
		return copyin_obj(t, &r, gaddr(data)) ? -EFAULT : set_regs(c, &r);
	case PTRACE_GETFPREGS:
		return fpregs(t, c, false, gaddr(data));
	case PTRACE_SETFPREGS:
		return fpregs(t, c, true, gaddr(data));
	case PTRACE_GETREGSET:
		return regset(t, c, false, addr, gaddr(data));
	case PTRACE_SETREGSET:
		return regset(t, c, true, addr, gaddr(data));
	case PTRACE_GETSIGINFO:
		return siginfo(t, c, false, gaddr(data));
	case PTRACE_SETSIGINFO:
		return siginfo(t, c, true, gaddr(data));
	case PTRACE_GETSIGMASK:
		return sig_mask(t, c, false, addr, gaddr(data));
	case PTRACE_SETSIGMASK:
		return sig_mask(t, c, true, addr, gaddr(data));
	case PTRACE_GETEVENTMSG:
		return copyout_obj(t, gaddr(data), &c->ptrace->eventmsg);
	case PTRACE_SETOPTIONS:
	case PTRACE_OLDSETOPTIONS:
		return set_options(c, data);
	case PTRACE_GET_SYSCALL_INFO:
		return syscall_info(t, c, addr, gaddr(data));
	case PTRACE_LISTEN:
		return listen(c);
	case PTRACE_DETACH:
		return detach(c, data);
	case PTRACE_CONT:
	case PTRACE_SYSCALL:
	case PTRACE_SINGLESTEP:
	case PTRACE_SYSEMU:
	case PTRACE_SYSEMU_SINGLESTEP:
		return resume(c, req, data);
	default:
		return -EIO;
	}
}

static long request(struct task *t, struct task *c, int req, uint64_t addr, uint64_t data)
{
	bool mine, stopped;

	if (req == PTRACE_ATTACH)
		return attach(t, c, false, 0);
	if (req == PTRACE_SEIZE)
		return addr || (data & ~(uint64_t)OPTIONS_ALL)
			       ? -EIO
			       : attach(t, c, true, (uint32_t)data);
	mutex_lock(&kernel.tasks_mu);
	mine = c->tracer == t;
	stopped = mine && c->ptrace->stopped && !c->ptrace->listening;
	mutex_unlock(&kernel.tasks_mu);
	if (!mine)
		return -ESRCH;
	if (req == PTRACE_KILL)
		return signal_send_task(c, SIGKILL, NULL);
	if (req == PTRACE_INTERRUPT)
		return interrupt(c);
	return stopped ? stopped_request(t, c, req, addr, data) : -ESRCH;
}

long ptrace_call(struct task *t, int req, int pid, uint64_t addr, uint64_t data)
{
	struct task *c;
	long ret;

	if (req == PTRACE_TRACEME)
		return traceme(t);
	c = task_find(t, pid);
	if (!c)
		return -ESRCH;
	ret = request(t, c, req, addr, data);
	task_put(c);
	return ret;
}
