// SPDX-License-Identifier: Apache-2.0
/*
 * Contexts: a guest thread is a host thread of the stub, traced by the one sentry thread that drives
 * it (ptrace requests are accepted from the thread that seized only; waiting works from any).
 *
 * The hot path is ctx_switch: PTRACE_SETREGS, PTRACE_SYSEMU, wait4, PTRACE_GETREGS. What an event was
 * comes from the wait status; only faults and odd system calls cost a fifth request.
 *
 * Guest system calls stop before seccomp is looked at (man 2 ptrace, PTRACE_SYSEMU), and never
 * run. Real system calls happen only under PTRACE_CONT, when we make the thread run stub text.
 *
 * Interrupts: state is CTX_INTR | CTX_IN_GUEST | CTX_KICKED. An interrupter sets INTR, and sends the
 * kick signal only when that finds IN_GUEST. A switch that finds INTR on entry doesn't enter. A kick
 * that comes late (the guest has left meanwhile) stops a later stay for nothing: it goes on.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/ptrace.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "platform/ptrace/ptrace_priv.h"

#define TRACE_OPTIONS (PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXIT)

#define CPUCLOCK_SCHED \
 2U /* man 3 clock_getcpuclockid: the kernel's encoding of (pid, kind) */

#define PARK_TRIES 20000 /* of 50 us: a second on a machine that is badly overloaded */

#define VSYSCALL_BASE 0xffffffffff600000ULL
#define VSYSCALL_SIZE 0x1000ULL

/* What wait4 said, without the noise. */
enum stop {
	STOP_SYSCALL,
	STOP_SIGNAL, /* *ret_sig */
	STOP_OTHER,  /* group stop, PTRACE_INTERRUPT: nothing to tell */
	STOP_DEAD,
};

/* The raw call: glibc's wrapper looks at the request to treat PEEK specially. */
long pt_ptrace(int req, int tid, void *addr, void *data)
{
	return syscall(SYS_ptrace, req, tid, addr, data); /* host: ptrace */
}

/* ---- stopping ---- */

/*
 * A thread that is about to exit stops once more (PTRACE_O_TRACEEXIT), and is let go here: so we
 * learn of its end at once, while waiting for a leader would block until every other
 * thread of the process has been waited for.
 */
static enum stop wait_stop(struct plat_ctx *ctx, int *ret_sig)
{
	int st, event;
	pid_t r;

	do {
		r = (pid_t)syscall(SYS_wait4, ctx->tid, &st, __WALL,
				   NULL); /* host: wait4 */
	} while (unlikely(r < 0 && errno == EINTR));
	if (unlikely(r < 0) || !WIFSTOPPED(st)) {
		ctx->exiting = ctx->reaped = true;
		return STOP_DEAD;
	}
	if (likely(WSTOPSIG(st) == (SIGTRAP | 0x80)))
		return STOP_SYSCALL;
	event = st >> 16;
	if (event == PTRACE_EVENT_EXIT) {
		pt_ptrace(PTRACE_CONT, ctx->tid, NULL, NULL);
		ctx->exiting = true;
		return STOP_DEAD;
	}
	if (event)
		return STOP_OTHER;
	*ret_sig = WSTOPSIG(st);
	return STOP_SIGNAL;
}

/* The host thread didn't answer a request (ESRCH), so it was killed: sees it out, or it would wait for
 * us in its exit stop for ever. */
static void see_out(struct plat_ctx *ctx)
{
	int sig;

	as_kill(ctx->as);
	while (!ctx->exiting && wait_stop(ctx, &sig) != STOP_DEAD)
		pt_ptrace(PTRACE_CONT, ctx->tid, NULL, NULL);
}

bool ctx_run_stub(struct plat_ctx *ctx, unsigned routine, struct regs *r)
{
	int sig = 0;

	ctx->cur_valid = false;
	r->rip = STUB_BASE + routine;
	r->cs = GUEST_CS;
	r->ss = GUEST_SS;
	r->eflags = 0x202;
	r->orig_rax = (uint64_t)-1;
	if (pt_ptrace(PTRACE_SETREGS, ctx->tid, NULL, r))
		return false;
	do {
		if (pt_ptrace(PTRACE_CONT, ctx->tid, NULL, NULL))
			return false;
		switch (wait_stop(ctx, &sig)) {
		case STOP_SIGNAL:
			break;
		case STOP_OTHER:
			sig = 0;
			break;
		case STOP_SYSCALL:
		case STOP_DEAD:
			return false;
		}
		/* Kicks and signals from outside are swallowed; ours is the int3. */
	} while (sig != SIGTRAP && sig != SIGSEGV && sig != SIGBUS && sig != SIGILL &&
		 sig != SIGSYS && sig != SIGFPE);
	if (pt_ptrace(PTRACE_GETREGS, ctx->tid, NULL, r))
		return false;
	if (sig != SIGTRAP || r->rip != STUB_BASE + RT_STOP + 1) {
		log_warn("stub %d: signal %d at 0x%lx in stub text", ctx->as->stub.pid,
			 sig, (unsigned long)r->rip);
		return false;
	}
	return true;
}

/* ---- life ---- */

/* Takes a parked host thread of @as. */
static int take_spare(struct plat_as *as)
{
	int tid = -ESRCH;

	mutex_lock(&as->mu);
	if (as->nspare)
		tid = as->spares[--as->nspare];
	mutex_unlock(&as->mu);
	return tid;
}

static bool is_parked(const struct regs *r)
{
	uint64_t at = r->rip - STUB_BASE;

	return at < RT_FIRST_PARK || (at >= RT_FIRST_READY && at < STUB_RT_SIZE);
}

/*
 * Seizes the host thread and stops it where it waits for us. A stub straight from the zygote may still
 * be on its way there (the pool normally gives it the time): let it run on. False: errno tells.
 */
static bool seize(struct plat_ctx *ctx)
{
	struct timespec ts = { .tv_nsec = 50000 };
	struct regs r;
	int sig;

	errno = 0;
	if (pt_ptrace(PTRACE_SEIZE, ctx->tid, NULL, (void *)(uintptr_t)TRACE_OPTIONS)) {
		ctx->exiting = true; /* at least for us: there won't be any stop */
		return false;
	}
	for (int i = 0; i < PARK_TRIES; i++) {
		if (pt_ptrace(PTRACE_INTERRUPT, ctx->tid, NULL, NULL) ||
		    wait_stop(ctx, &sig) == STOP_DEAD ||
		    pt_ptrace(PTRACE_GETREGS, ctx->tid, NULL, &r))
			return false;
		if (is_parked(&r))
			return true;
		if (pt_ptrace(PTRACE_CONT, ctx->tid, NULL, NULL))
			return false;
		nanosleep(&ts, NULL); /* host: clock_nanosleep */
	}
	return false;
}

static struct plat_ctx *pt_ctx_create(struct plat_as *as)
{
	int tid = take_spare(as);
	struct plat_ctx *ctx;

	if (tid < 0)
		return err_ptr(tid);
	ctx = kzalloc(sizeof(*ctx));
	ctx->as = as;
	ctx->tid = tid;
	list_init(&ctx->link);
	if (!seize(ctx)) {
		int err = errno ? -errno : -ESRCH;

		log_warn("can't trace stub %d: %s", tid, strerror(-err));
		see_out(ctx);
		free(ctx);
		return err_ptr(err);
	}
	pin_add(ctx);
	mutex_lock(&as->mu);
	list_add_tail(&as->ctxs, &ctx->link);
	if (++as->nctx > 1)
		as->multi = true;
	mutex_unlock(&as->mu);
	return ctx;
}

/* Lets the host thread of a context that isn't the last one end, and waits for it. */
static void end_thread(struct plat_ctx *ctx)
{
	struct regs r = { .rip = STUB_BASE + RT_EXIT,
			  .cs = GUEST_CS,
			  .ss = GUEST_SS,
			  .eflags = 0x202,
			  .orig_rax = (uint64_t)-1 };
	int sig;

	if (!ctx->exiting && !atomic_load(&ctx->as->dead)) {
		pt_ptrace(PTRACE_SETREGS, ctx->tid, NULL, &r);
		pt_ptrace(PTRACE_CONT, ctx->tid, NULL, NULL);
	}
	while (!ctx->exiting && wait_stop(ctx, &sig) != STOP_DEAD)
		pt_ptrace(PTRACE_CONT, ctx->tid, NULL, NULL);
	/* The leader can't be waited for before all others are gone: the pool's thread does it. */
	if (ctx->tid != ctx->as->stub.pid) {
		while (!ctx->reaped)
			wait_stop(ctx, &sig);
	}
}

/*
 * The last context takes the process with it, and is kept in the list for the pool's thread to wait
 * for: nobody has to stand by while the host tears an address space down.
 */
static void pt_ctx_destroy(struct plat_ctx *ctx)
{
	struct plat_as *as;
	bool last;

	if (!ctx)
		return;
	as = ctx->as;
	pin_del(ctx);
	mutex_lock(&as->mu);
	last = as->nctx == 1 && as->nspare == 0;
	as->nctx--;
	if (!last)
		list_del(&ctx->link);
	mutex_unlock(&as->mu);
	if (last) {
		/* No exit stop: nobody would answer it. */
		if (!ctx->exiting && pt_ptrace(PTRACE_SETOPTIONS, ctx->tid, NULL,
					       (void *)(uintptr_t)PTRACE_O_EXITKILL))
			see_out(ctx);
		as_kill(as);
		return;
	}
	end_thread(ctx);
	mutex_lock(&as->mu);
	as->nthreads--;
	mutex_unlock(&as->mu);
	free(ctx);
}

static void add_spare_locked(struct plat_as *as, int tid)
{
	mutex_assert_held(&as->mu);
	if (as->nspare == as->spare_cap) {
		as->spare_cap = as->spare_cap ? as->spare_cap * 2 : 4;
		as->spares = krealloc_array(as->spares, as->spare_cap, sizeof(int));
	}
	as->spares[as->nspare++] = tid;
	as->nthreads++;
}

/* The new thread inherits the FP state of this one, as clone(2) has it. */
static int pt_ctx_prepare_clone(struct plat_ctx *self)
{
	struct plat_as *as = self->as;
	struct regs r = { 0 };
	int tid, err = 0;

	mutex_lock(&as->mu);
	if (as->nthreads >= AS_THREADS_MAX) {
		err = -EAGAIN;
	} else if (!ctx_run_stub(self, RT_CLONE, &r)) {
		as_kill(as);
		err = -EAGAIN;
	} else if ((int64_t)r.rax <= 0) {
		err = r.rax ? (int)r.rax : -EAGAIN;
	} else {
		/* A stub that lies must not make us seize somebody else's thread. */
		tid = (int)r.rax;
		if (r.rax > INT32_MAX ||
		    syscall(SYS_tgkill, as->stub.pid, tid, 0)) /* host: tgkill */
			err = -EAGAIN;
		else
			add_spare_locked(as, tid);
	}
	mutex_unlock(&as->mu);
	return err;
}

/* ---- switch ---- */

static void leave_guest(struct plat_ctx *ctx)
{
	struct plat_as *as = ctx->as;

	atomic_fetch_and(&ctx->state, ~(CTX_IN_GUEST | CTX_KICKED));
	if (unlikely(atomic_load(&as->waiters))) {
		mutex_lock(&as->mu);
		cond_broadcast(&as->left);
		mutex_unlock(&as->mu);
	}
}

/* Enters the guest's state: false when an interrupt is due first. */
static bool enter_guest(struct plat_ctx *ctx)
{
	if (likely(!(atomic_fetch_or(&ctx->state, CTX_IN_GUEST) & CTX_INTR)))
		return true;
	atomic_fetch_and(&ctx->state, ~CTX_INTR);
	leave_guest(ctx);
	return false;
}

/* True when the registers are of a call that can only come from the 64-bit SYSCALL instruction. Others
 * may look like it, if they set rcx and r11 so; then they get what they ask for. */
static bool plain_syscall(const struct regs *r)
{
	return r->rcx == r->rip && r->r11 == r->eflags && r->cs == GUEST_CS;
}

static bool is_compat(const struct plat_ctx *ctx, const struct regs *r)
{
	struct ptrace_syscall_info si = { 0 };

	if (r->cs != GUEST_CS)
		return true;
	if (pt_ptrace(PTRACE_GET_SYSCALL_INFO, ctx->tid, (void *)sizeof(si), &si) <= 0)
		return true;
	return si.arch != AUDIT_ARCH_X86_64;
}

/*
 * SIGSYS comes from the filter of the stub. Guest calls never get that far, with one exception: the
 * host emulates a jump into the vsyscall page (gettimeofday, time, getcpu of old static programs) at
 * the page fault, asks the filter, and has returned to the caller by then. That is a system call
 * whose number is in siginfo.
 */
static enum plat_event on_sigsys(const siginfo_t *si, struct regs *r,
				 struct plat_trap *trap)
{
	uint64_t from = (uint64_t)(uintptr_t)si->si_call_addr;

	if (from - VSYSCALL_BASE < VSYSCALL_SIZE) {
		r->orig_rax = (uint64_t)(unsigned)si->si_syscall;
		return PLAT_SYSCALL;
	}
	trap->signo = SIGSEGV;
	trap->code = SEGV_MAPERR;
	trap->addr = r->rip;
	return PLAT_FAULT;
}

/* A signal stop. PLAT_EVENT_COUNT: nothing of the guest's, go on. */
static enum plat_event on_signal(struct plat_ctx *ctx, int sig, struct regs *r,
				 struct plat_trap *trap)
{
	siginfo_t si;

	if (sig == KICK_SIGNAL)
		return PLAT_EVENT_COUNT;
	if (pt_ptrace(PTRACE_GETSIGINFO, ctx->tid, NULL, &si))
		return PLAT_EVENT_COUNT;
	/* A code of 0 or below is kill(2) and friends: not the CPU, so not the guest's doing. */
	if (si.si_code <= 0)
		return PLAT_EVENT_COUNT;
	trap->signo = sig;
	trap->code = si.si_code;
	trap->addr = (uint64_t)(uintptr_t)si.si_addr;
	switch (sig) {
	case SIGSEGV:
		return si.si_code == SEGV_MAPERR || si.si_code == SEGV_ACCERR
			       ? PLAT_FAULT
			       : PLAT_EXCEPTION;
	case SIGBUS:
		return si.si_code == BUS_ADRALN ? PLAT_EXCEPTION : PLAT_FAULT;
	case SIGSYS:
		return on_sigsys(&si, r, trap);
	case SIGILL:
	case SIGFPE:
	case SIGTRAP:
		return PLAT_EXCEPTION;
	}
	return PLAT_EVENT_COUNT;
}

/* Registers that the CPU or the host refuses (a segment, a base): what the guest gets for it natively,
 * on return to user mode, is a general protection fault. */
static enum plat_event bad_registers(struct plat_trap *trap)
{
	trap->signo = SIGSEGV;
	trap->code = SI_KERNEL;
	trap->addr = 0;
	return PLAT_EXCEPTION;
}

static void account(struct plat_ctx *ctx, uint64_t from)
{
	uint64_t now = mono_ns(), stay = now - from;
	uint64_t sum = atomic_load_explicit(&ctx->guest_ns, memory_order_relaxed);

	atomic_store_explicit(&ctx->guest_ns, sum + stay, memory_order_relaxed);
	atomic_store_explicit(&ctx->entered_ns, 0, memory_order_relaxed);
	pin_leave(ctx, stay, now);
}

/* One stay in the guest. PLAT_EVENT_COUNT: came back for nothing, *r is where it was. */
static enum plat_event run_once(struct plat_ctx *ctx, struct regs *r,
				struct plat_trap *trap)
{
	uint64_t from;
	enum stop stop;
	int sig;

	/* Outside a call, whatever it was: or the host would restart it if rax looked like that. */
	r->orig_rax = (uint64_t)-1;
	if (!ctx->cur_valid || memcmp(r, &ctx->cur, sizeof(*r))) {
		if (unlikely(pt_ptrace(PTRACE_SETREGS, ctx->tid, NULL, r)))
			return errno == ESRCH ? PLAT_DEAD : bad_registers(trap);
	}
	ctx->cur_valid = false;
	pin_enter(ctx);
	from = mono_ns();
	atomic_store_explicit(&ctx->entered_ns, from, memory_order_relaxed);
	if (unlikely(pt_ptrace(PTRACE_SYSEMU, ctx->tid, NULL, NULL)))
		return PLAT_DEAD;
	stop = wait_stop(ctx, &sig);
	account(ctx, from);
	if (unlikely(stop == STOP_DEAD))
		return PLAT_DEAD;
	if (unlikely(pt_ptrace(PTRACE_GETREGS, ctx->tid, NULL, r)))
		return PLAT_DEAD;
	ctx->cur = *r;
	ctx->cur_valid = true;
	if (likely(stop == STOP_SYSCALL)) {
		trap->compat = !plain_syscall(r) && is_compat(ctx, r);
		return PLAT_SYSCALL;
	}
	return stop == STOP_SIGNAL ? on_signal(ctx, sig, r, trap) : PLAT_EVENT_COUNT;
}

static bool apply_pending(struct plat_ctx *ctx)
{
	struct plat_as *as = ctx->as;
	bool ok = true;

	mutex_lock(&as->mu);
	if (atomic_load(&as->pending))
		ok = map_apply_locked(as, ctx);
	mutex_unlock(&as->mu);
	return ok;
}

static enum plat_event pt_ctx_switch(struct plat_ctx *ctx, struct regs *r,
				     struct plat_trap *trap)
{
	struct plat_as *as = ctx->as;
	enum plat_event ev;

	memset(trap, 0, sizeof(*trap));
	do {
		if (!enter_guest(ctx))
			return PLAT_INTERRUPTED;
		if (unlikely(atomic_load(&as->pending)) && !apply_pending(ctx)) {
			leave_guest(ctx);
			see_out(ctx);
			return PLAT_DEAD;
		}
		trap->map_seq = atomic_load(&as->seq);
		ev = atomic_load_explicit(&as->dead, memory_order_relaxed)
			     ? PLAT_DEAD
			     : run_once(ctx, r, trap);
		leave_guest(ctx);
	} while (unlikely(ev == PLAT_EVENT_COUNT));
	if (unlikely(ev == PLAT_DEAD))
		see_out(ctx);
	return ev;
}

static void pt_ctx_interrupt(struct plat_ctx *ctx)
{
	unsigned old = atomic_fetch_or(&ctx->state, CTX_INTR);

	if ((old & (CTX_IN_GUEST | CTX_INTR)) != CTX_IN_GUEST)
		return;
	old = atomic_fetch_or(&ctx->state, CTX_KICKED);
	if ((old & (CTX_IN_GUEST | CTX_KICKED)) == CTX_IN_GUEST)
		syscall(SYS_tgkill, ctx->as->stub.pid, ctx->tid,
			KICK_SIGNAL); /* host: tgkill */
}

/* ---- time ---- */

/*
 * The host lets us read the CPU clock of another process, but not that of one of its threads. As long
 * as an address space has had one thread, that clock is exact. Later a thread's time is how long it was
 * in the guest: more than the truth when threads wait for a CPU.
 */
static uint64_t pt_ctx_cpu_ns(struct plat_ctx *ctx)
{
	clockid_t clock =
		(clockid_t)(((unsigned)~ctx->as->stub.pid << 3) | CPUCLOCK_SCHED);
	uint64_t sum = atomic_load_explicit(&ctx->guest_ns, memory_order_relaxed);
	uint64_t from = atomic_load_explicit(&ctx->entered_ns, memory_order_relaxed);
	uint64_t last = atomic_load(&ctx->cpu_seen), ns;
	struct timespec ts;

	if (!atomic_load_explicit(&ctx->as->multi, memory_order_relaxed) &&
	    !clock_gettime(clock, &ts)) { /* host: clock_gettime */
		ns = (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
	} else {
		uint64_t now = mono_ns();

		ns = from && from < now ? sum + (now - from) : sum;
	}
	/* Never back, whoever asks and whatever the method was. */
	while (last < ns && !atomic_compare_exchange_weak(&ctx->cpu_seen, &last, ns))
		;
	return last < ns ? ns : last;
}

static int pt_init(const struct plat_boot *boot)
{
	int err = pin_init();

	return err ? err : pool_init(boot);
}

const struct platform plat_ptrace = {
	.name = "ptrace",
	.init = pt_init,
	.as_create = pt_as_create,
	.as_destroy = pt_as_destroy,
	.as_map = pt_as_map,
	.as_unmap = pt_as_unmap,
	.as_protect = pt_as_protect,
	.as_populate = pt_as_populate,
	.as_flush = pt_as_flush,
	.as_map_seq = pt_as_map_seq,
	.ctx_create = pt_ctx_create,
	.ctx_destroy = pt_ctx_destroy,
	.ctx_prepare_clone = pt_ctx_prepare_clone,
	.ctx_switch = pt_ctx_switch,
	.ctx_interrupt = pt_ctx_interrupt,
	.ctx_get_fp = pt_get_fp,
	.ctx_set_fp = pt_set_fp,
	.ctx_init_fp = pt_init_fp,
	.ctx_cpu_ns = pt_ctx_cpu_ns,
	.as_host_pid = pt_as_host_pid,
};
