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
#include "base/stats.h"
#include "platform/ptrace/ptrace_priv.h"

#define TRACE_OPTIONS (PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXIT)

#define LEADER_OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXIT)

#define PARK_TRIES 20000 /* of 50 us: a second on a machine that is badly overloaded */

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
	return HOST(PTRACE, syscall(SYS_ptrace, req, tid, addr, data));
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

/*
 * Lets the host thread of a context that isn't the last one end, and waits for it. A leader can't be waited for
 * before all others are gone: the pool's thread does it. We may be gone ourselves before it has got through its
 * exit, and must not take the process along then.
 */
static void end_thread(struct plat_ctx *ctx)
{
	struct regs r = { .rip = STUB_BASE + RT_EXIT,
			  .cs = GUEST_CS,
			  .ss = GUEST_SS,
			  .eflags = 0x202,
			  .orig_rax = (uint64_t)-1 };
	int sig;

	if (!ctx->exiting && !atomic_load(&ctx->as->dead)) {
		if (ctx->tid == ctx->as->stub.pid)
			pt_ptrace(PTRACE_SETOPTIONS, ctx->tid, NULL, (void *)(uintptr_t)LEADER_OPTIONS);
		pt_ptrace(PTRACE_SETREGS, ctx->tid, NULL, &r);
		pt_ptrace(PTRACE_CONT, ctx->tid, NULL, NULL);
	}
	while (!ctx->exiting && wait_stop(ctx, &sig) != STOP_DEAD)
		pt_ptrace(PTRACE_CONT, ctx->tid, NULL, NULL);
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
	}
	if (!err) {
		as_add_spare_locked(as, (int)r.rax);
		as->nthreads++;
	}
	mutex_unlock(&as->mu);
	return err;
}

/* ---- switch ---- */

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

/* A signal stop. PLAT_EVENT_COUNT: nothing of the guest's, go on. */
static enum plat_event on_signal(struct plat_ctx *ctx, int sig, struct regs *r,
				 struct plat_trap *trap)
{
	siginfo_t si;

	if (sig == KICK_SIGNAL || pt_ptrace(PTRACE_GETSIGINFO, ctx->tid, NULL, &si))
		return PLAT_EVENT_COUNT;
	return host_signal_event(&si, r, trap);
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
			return errno == ESRCH ? PLAT_DEAD : host_bad_registers(trap);
	}
	ctx->cur_valid = false;
	pin_enter(ctx);
	from = ctx_account_start(ctx);
	if (unlikely(pt_ptrace(PTRACE_SYSEMU, ctx->tid, NULL, NULL)))
		return PLAT_DEAD;
	stop = wait_stop(ctx, &sig);
	ctx_account(ctx, from);
	if (unlikely(stop == STOP_DEAD))
		return PLAT_DEAD;
	if (unlikely(pt_ptrace(PTRACE_GETREGS, ctx->tid, NULL, r)))
		return PLAT_DEAD;
	ctx->cur = *r;
	ctx->cur_valid = true;
	if (likely(stop == STOP_SYSCALL)) {
		trap->compat = !plain_syscall(r) && is_compat(ctx, r);
		r->orig_rax = (uint64_t)(int64_t)(int32_t)r->orig_rax; /* as the host takes it */
		return PLAT_SYSCALL;
	}
	return stop == STOP_SIGNAL ? on_signal(ctx, sig, r, trap) : PLAT_EVENT_COUNT;
}

static enum plat_event pt_ctx_switch(struct plat_ctx *ctx, struct regs *r,
				     struct plat_trap *trap)
{
	struct plat_as *as = ctx->as;
	enum plat_event ev;

	memset(trap, 0, sizeof(*trap));
	do {
		if (!ctx_enter(ctx))
			return PLAT_INTERRUPTED;
		if (unlikely(atomic_load(&as->pending)) && !ctx_apply_pending(ctx)) {
			ctx_leave(ctx);
			see_out(ctx);
			return PLAT_DEAD;
		}
		trap->map_seq = atomic_load(&as->seq);
		ev = atomic_load_explicit(&as->dead, memory_order_relaxed)
			     ? PLAT_DEAD
			     : run_once(ctx, r, trap);
		ctx_leave(ctx);
	} while (unlikely(ev == PLAT_EVENT_COUNT));
	if (unlikely(ev == PLAT_DEAD))
		see_out(ctx);
	return ev;
}

/* ---- for the common part ---- */

static bool pt_run_ops(struct plat_as *as, struct plat_ctx *ctx, unsigned n)
{
	struct regs r = { .rbx = STUB_OPS,
			  .rbp = STUB_OPS + n * OP_SIZE,
			  .r13 = STUB_BASE + RT_STOP };

	if (!ctx_run_stub(ctx, RT_BATCH, &r))
		return false;
	if (r.rax)
		host_log_failed_op(as, (r.rbx - STUB_OPS) / OP_SIZE, (int)-(int64_t)r.rax);
	return r.rax == 0;
}

static void pt_bury(struct plat_as *as)
{
	struct plat_ctx *ctx, *tmp;

	/* Contexts that were the last of their process: killed, not waited for. */
	list_for_each_safe(ctx, tmp, &as->ctxs, link) {
		if (ctx->tid != as->stub.pid)
			pool_wait_gone(ctx->tid);
		list_del(&ctx->link);
		free(ctx);
	}
	pool_wait_gone(as->stub.pid);
}

static const struct host_ops pt_host_ops = {
	.run_ops = pt_run_ops,
	.bury = pt_bury,
};

static int pt_init(const struct plat_boot *boot)
{
	int err;

	host_ops = &pt_host_ops;
	close(boot->ctx_fd); /* host: close; the trap platform's */
	err = pool_init(boot);
	if (!err)
		err = pin_init();
	return err ? err : pool_start();
}

const struct platform plat_ptrace = {
	.name = "ptrace",
	.init = pt_init,
	.as_create = host_as_create,
	.as_destroy = host_as_destroy,
	.as_kill = as_kill,
	.as_map = host_as_map,
	.as_unmap = host_as_unmap,
	.as_protect = host_as_protect,
	.as_populate = host_as_populate,
	.as_flush = host_as_flush,
	.as_map_seq = host_as_map_seq,
	.ctx_create = pt_ctx_create,
	.ctx_destroy = pt_ctx_destroy,
	.ctx_prepare_clone = pt_ctx_prepare_clone,
	.ctx_switch = pt_ctx_switch,
	.ctx_interrupt = host_ctx_interrupt,
	.ctx_get_fp = pt_get_fp,
	.ctx_set_fp = pt_set_fp,
	.ctx_init_fp = pt_init_fp,
	.ctx_cpu_ns = host_ctx_cpu_ns,
	.as_host_pid = host_as_host_pid,
};
