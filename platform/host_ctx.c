// SPDX-License-Identifier: Apache-2.0
/*
 * Contexts, as far as the platforms agree on them.
 *
 * Interrupts: state is CTX_INTR | CTX_IN_GUEST | CTX_KICKED. An interrupter sets INTR, and sends the
 * kick signal only when that finds IN_GUEST. A switch that finds INTR on entry doesn't enter. A kick
 * that comes late (the guest has left meanwhile) stops a later stay for nothing: it goes on.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/stats.h"
#include "platform/host_as.h"

#define CPUCLOCK_SCHED \
 2U /* man 3 clock_getcpuclockid: the kernel's encoding of (pid, kind) */

#define VSYSCALL_BASE 0xffffffffff600000ULL
#define VSYSCALL_SIZE 0x1000ULL

const struct host_ops *host_ops;

void ctx_leave(struct plat_ctx *ctx)
{
	struct plat_as *as = ctx->as;

	atomic_fetch_and(&ctx->state, ~(CTX_IN_GUEST | CTX_KICKED));
	if (unlikely(atomic_load(&as->waiters))) {
		mutex_lock(&as->mu);
		cond_broadcast(&as->left);
		mutex_unlock(&as->mu);
	}
}

bool ctx_enter(struct plat_ctx *ctx)
{
	if (likely(!(atomic_fetch_or(&ctx->state, CTX_IN_GUEST) & CTX_INTR)))
		return true;
	atomic_fetch_and(&ctx->state, ~CTX_INTR);
	ctx_leave(ctx);
	return false;
}

void ctx_send_kick(struct plat_ctx *ctx)
{
	/* host: tgkill */
	(void)HOST(TGKILL, syscall(SYS_tgkill, ctx->as->stub.pid, ctx->tid, KICK_SIGNAL));
}

/* Calls the thread back if it is in the guest and nobody has done so yet. The note must not be left on one
 * that is on its way out: it would hold off the kick that its next stay needs. */
void ctx_kick(struct plat_ctx *ctx)
{
	unsigned st = atomic_load(&ctx->state);

	do {
		if ((st & (CTX_IN_GUEST | CTX_KICKED)) != CTX_IN_GUEST)
			return;
	} while (!atomic_compare_exchange_weak(&ctx->state, &st, st | CTX_KICKED));
	ctx_send_kick(ctx);
}

void host_ctx_interrupt(struct plat_ctx *ctx)
{
	unsigned old = atomic_fetch_or(&ctx->state, CTX_INTR);

	if ((old & (CTX_IN_GUEST | CTX_INTR)) == CTX_IN_GUEST)
		ctx_kick(ctx);
}

bool ctx_apply_pending(struct plat_ctx *ctx)
{
	struct plat_as *as = ctx->as;
	bool ok = true;

	mutex_lock(&as->mu);
	if (atomic_load(&as->pending)) {
		ok = map_apply_locked(as, ctx);
		/* A kick that came meanwhile was spent on the stub's routine: the next one must count. An
		 * interruption stays one. */
		if (atomic_fetch_and(&ctx->state, ~CTX_KICKED) & CTX_INTR)
			ctx_kick(ctx);
	}
	mutex_unlock(&as->mu);
	return ok;
}

/* ---- events ---- */

/*
 * SIGSYS comes from the filter of the stub. Under ptrace guest calls never get that far, with one
 * exception: the host emulates a jump into the vsyscall page (gettimeofday, time, getcpu of old static
 * programs) at the page fault, asks the filter, and has returned to the caller by then. That is a system
 * call whose number is in siginfo.
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

enum plat_event host_signal_event(const siginfo_t *si, struct regs *r, struct plat_trap *trap)
{
	/* A code of 0 or below is kill(2) and friends: not the CPU, so not the guest's doing. */
	if (si->si_code <= 0)
		return PLAT_EVENT_COUNT;
	trap->signo = si->si_signo;
	trap->code = si->si_code;
	trap->addr = (uint64_t)(uintptr_t)si->si_addr;
	switch (si->si_signo) {
	case SIGSEGV:
		return si->si_code == SEGV_MAPERR || si->si_code == SEGV_ACCERR
			       ? PLAT_FAULT
			       : PLAT_EXCEPTION;
	case SIGBUS:
		return si->si_code == BUS_ADRALN ? PLAT_EXCEPTION : PLAT_FAULT;
	case SIGSYS:
		return on_sigsys(si, r, trap);
	case SIGILL:
	case SIGFPE:
	case SIGTRAP:
		return PLAT_EXCEPTION;
	}
	return PLAT_EVENT_COUNT;
}

/* What the guest gets for them natively, on return to user mode, is a general protection fault. */
enum plat_event host_bad_registers(struct plat_trap *trap)
{
	trap->signo = SIGSEGV;
	trap->code = SI_KERNEL;
	trap->addr = 0;
	return PLAT_EXCEPTION;
}

/* ---- time ---- */

uint64_t ctx_account_start(struct plat_ctx *ctx)
{
	uint64_t from = mono_ns();

	atomic_store_explicit(&ctx->entered_ns, from, memory_order_relaxed);
	return from;
}

uint64_t ctx_account(struct plat_ctx *ctx, uint64_t from)
{
	uint64_t now = mono_ns(), stay = now - from;
	uint64_t sum = atomic_load_explicit(&ctx->guest_ns, memory_order_relaxed);

	atomic_store_explicit(&ctx->guest_ns, sum + stay, memory_order_relaxed);
	atomic_store_explicit(&ctx->entered_ns, 0, memory_order_relaxed);
	pin_leave(ctx, stay, now);
	return now;
}

/*
 * The host lets us read the CPU clock of another process, but not that of one of its threads. As long
 * as an address space has had one thread, that clock is exact. Later a thread's time is how long it was
 * in the guest: more than the truth when threads wait for a CPU.
 */
uint64_t host_ctx_cpu_ns(struct plat_ctx *ctx)
{
	clockid_t clock =
		(clockid_t)(((unsigned)~ctx->as->stub.pid << 3) | CPUCLOCK_SCHED);
	uint64_t sum = atomic_load_explicit(&ctx->guest_ns, memory_order_relaxed);
	uint64_t from = atomic_load_explicit(&ctx->entered_ns, memory_order_relaxed);
	uint64_t last = atomic_load(&ctx->cpu_seen), ns;
	struct timespec ts;

	if (!atomic_load_explicit(&ctx->as->multi, memory_order_relaxed) &&
	    !HOST(CLOCK, clock_gettime(clock, &ts))) { /* host: clock_gettime */
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
