// SPDX-License-Identifier: Apache-2.0
/*
 * The loop of a task's sentry thread: look at signals and stops, run the guest, serve what it did.
 *
 * Everything that wants a task's attention sets a flag of the task and calls task_interrupt(); the loop
 * looks at the flags after it has announced in_guest and before it enters the guest, so no request is
 * lost, and a request to a task that isn't in its guest costs no host call.
 */
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/mm/mm.h"
#include "sentry/mm/usermem.h"

static __thread struct task *current;

struct task *current_task(void)
{
	return current;
}

static bool needs_attention(const struct task *t)
{
	return atomic_load(&t->sigpending) || atomic_load(&t->interrupted) ||
	       atomic_load(&t->exiting);
}

static bool in_call(const struct task *t)
{
	return (int64_t)t->regs.orig_rax >= 0;
}

/* A result that only signal_deliver() may turn into what the guest sees. */
static bool is_restart_code(const struct task *t)
{
	int64_t r = (int64_t)t->regs.rax;

	return r <= -ERESTARTSYS && r >= -ERESTART_RESTARTBLOCK && r != -ENOIOCTLCMD;
}

/*
 * Host threads of loaded tasks are made when they are needed: one that sleeps in a call needs none. The first
 * of an address space also asks for those of the others, as only a running thread can make more.
 */
static struct plat_ctx *create_loaded_ctx(struct task *t)
{
	static pthread_mutex_t load_mu = PTHREAD_MUTEX_INITIALIZER; /* outermost; nothing waits under it */
	struct plat_ctx *ctx;
	struct task *i;
	unsigned others = 0;

	pthread_mutex_lock(&load_mu); /* host: futex */
	ctx = plat->ctx_create(mm_plat_as(t->mm));
	if (!is_err(ctx) && t->need_spare) {
		mutex_lock(&kernel.tasks_mu);
		list_for_each(i, &kernel.all_tasks, all_node) {
			others += i != t && i->mm == t->mm && i->need_spare;
			if (i->mm == t->mm)
				i->need_spare = false;
		}
		mutex_unlock(&kernel.tasks_mu);
		while (others--)
			if (plat->ctx_prepare_clone(ctx))
				log_error("no host thread for another thread of the image");
	}
	pthread_mutex_unlock(&load_mu);
	return ctx;
}

/* What can be done only on the task's own thread: its context, FP state, CLONE_CHILD_SETTID. False: it has to
 * die. */
static bool begin(struct task *t, bool loaded)
{
	struct plat_ctx *ctx;
	int tid = task_tid(t);

	ctx = loaded ? create_loaded_ctx(t) : plat->ctx_create(mm_plat_as(t->mm));
	if (is_err(ctx)) {
		log_error("task %d: no host thread: %s", tid,
			  strerror((int)-ptr_err(ctx)));
		return false;
	}
	mutex_lock(&t->mu);
	t->ctx = ctx;
	mutex_unlock(&t->mu);
	if (t->start_fp ? plat->ctx_set_fp(ctx, t->start_fp) : plat->ctx_init_fp(ctx)) {
		log_error("task %d: its FP state can't be loaded", tid);
		return false;
	}
	free(t->start_fp);
	t->start_fp = NULL;
	/* man 2 clone: errors are lost. */
	if (!gaddr_is_null(t->set_child_tid) && copyout_obj(t, t->set_child_tid, &tid))
		log_debug("task %d: CLONE_CHILD_SETTID: bad address", tid);
	t->set_child_tid = GADDR_NULL;
	return true;
}

/* @t can't run on the host any more: its process dies. Not when the task is ending anyway: a sibling in exec,
 * which ends this one alone, would die of it. */
static void lost_host(struct task *t)
{
	if (!atomic_load(&t->exiting))
		task_group_exit(t, SIGKILL);
}

static void ensure_ctx(struct task *t)
{
	if (unlikely(!t->ctx) && !begin(t, true))
		lost_host(t);
}

static void set_host_clock(struct task *t)
{
	clockid_t clk;
	AUTO_LOCK(&t->mu);

	if (pthread_getcpuclockid(pthread_self(), &clk) == 0) {
		t->host_cpu_clock = clk;
		t->host_clock_ok = true;
	}
}

/* Stops and signals. The interruption is taken back first: whoever asks from now on is seen by the next
 * round. */
static void attend(struct task *t)
{
	atomic_store(&t->interrupted, false);
	if (atomic_load(&t->exiting))
		return;
	freeze_point(t);
	ensure_ctx(t); /* for frames and tracers */
	if (unlikely(t->stop_parked))
		signal_stop_rejoin(t);
	if (ptrace_active(t))
		ptrace_pending_stops(t);
	signal_deliver(t, in_call(t));
	t->regs.orig_rax = (uint64_t)-1;
}

/* The handler; again after a freeze has parked the task in the middle. */
static void make_call(struct task *t)
{
	for (;;) {
		task_syscall_entry(t);
		t->freeze.redo = false;
		if (likely(!atomic_load(&t->freeze.asked)))
			return;
		freeze_point(t);
		if (!freeze_redo(t))
			return;
		t->regs.rax = (uint64_t)-ENOSYS;
	}
}

static void end_call(struct task *t)
{
	if (unlikely(t->freeze.progress))
		freeze_settle_progress(t);
	ptrace_syscall_exit(t);
	t->in_syscall = false; /* saved from here on: what is left is the business of signals */
	if (unlikely(needs_attention(t) || t->has_saved_blocked || is_restart_code(t)))
		attend(t);
	t->regs.orig_rax = (uint64_t)-1;
}

static void serve_call(struct task *t, const struct plat_trap *trap)
{
	if (unlikely(trap->compat)) {
		/* As a kernel without IA32 emulation: int 0x80 is a bad instruction. */
		t->regs.orig_rax = (uint64_t)-1;
		signal_force_fault(t, SIGSEGV, SI_KERNEL, 0);
		return;
	}
	if (unlikely(trap->hot_call))
		mm_patch_call(t, gaddr(trap->hot_call));
	t->in_syscall = true;
	t->sysno = (long)t->regs.orig_rax;
	t->regs.rax = (uint64_t)-ENOSYS;
	if (ptrace_syscall_enter(t) && (likely(!t->seccomp_mode) || seccomp_check(t)))
		make_call(t);
	end_call(t);
}

static void close_call(struct task *t)
{
	t->regs.orig_rax = (uint64_t)-1;
	t->in_syscall = false;
}

/* A task of an image that is stopped for its tracer: goes on behind that. */
static void resume_traced(struct task *t)
{
	struct ptrace_rejoin r = *t->rejoin;
	int sig;

	ensure_ctx(t);
	sig = ptrace_rejoin_stop(t, t->rejoin);
	r.info = t->rejoin->info; /* the tracer may have set another */
	free(t->rejoin);
	t->rejoin = NULL;
	if (r.kind == PT_STOP_SYSCALL && r.sysstop == PT_SYS_ENTRY) {
		t->sysno = (long)t->regs.orig_rax;
		if (!r.sysemu && in_call(t) && !atomic_load(&t->exiting) &&
		    (!t->seccomp_mode || seccomp_check(t)))
			make_call(t);
		end_call(t);
		return;
	}
	if (r.kind == PT_STOP_SIGNAL)
		signal_deliver_allowed(t, in_call(t), sig, &r.info);
	else if (in_call(t))
		attend(t);
	close_call(t);
}

/* A task of an image goes on with the call that the freeze has ended. */
static void resume_call(struct task *t)
{
	if (t->vfork_nr)
		task_wait_vfork(t);
	else if (!t->stop_parked && freeze_redo(t))
		make_call(t);
	end_call(t);
}

static void serve_fault(struct task *t, const struct plat_trap *trap)
{
	int code = 0, sig = mm_handle_fault(t, trap, &code);

	t->usage.minflt++;
	if (sig)
		signal_force_fault(t, sig, code, trap->addr);
}

/*
 * Who one is doesn't change between two calls, so the platform may answer that without us; not when somebody
 * wants to see each call. In another user namespace the ids do change, when its map is written.
 */
static void keep_answers(struct task *t)
{
	uint8_t want = ptrace_active(t) || t->seccomp_mode || kernel.strace ? ANSWERS_NONE
									    : ANSWERS_KEPT;
	const struct cred *c = t->cred;
	struct plat_answer a[] = {
		{ SYS_getpid, (uint32_t)task_tgid(t) }, { SYS_gettid, (uint32_t)task_tid(t) },
		{ SYS_getuid, c->uid },                 { SYS_geteuid, c->euid },
		{ SYS_getgid, c->gid },                 { SYS_getegid, c->egid },
	};
	unsigned n = c->userns == &init_userns ? ARRAY_SIZE(a) : 2;

	t->answers = want;
	if (plat->ctx_set_answers)
		plat->ctx_set_answers(t->ctx, a, want == ANSWERS_KEPT ? n : 0);
}

static bool answers_differ(const struct task *t)
{
	bool watched = ptrace_active(t) || t->seccomp_mode;

	return t->answers == ANSWERS_STALE || (watched && t->answers == ANSWERS_KEPT) ||
	       (!watched && t->answers == ANSWERS_NONE && !kernel.strace);
}

static void run_guest(struct task *t)
{
	struct plat_trap trap;
	enum plat_event ev;

	ensure_ctx(t);
	if (ptrace_active(t))
		ptrace_prepare_run(t);
	if (unlikely(answers_differ(t)))
		keep_answers(t);
	atomic_store(&t->in_guest, true); /* seq_cst: before the flags are read */
	if (unlikely(needs_attention(t))) {
		atomic_store(&t->in_guest, false);
		return;
	}
	ev = plat->ctx_switch(t->ctx, &t->regs, &trap);
	atomic_store_explicit(&t->in_guest, false, memory_order_release);
	if (likely(ev == PLAT_SYSCALL)) {
		serve_call(t, &trap);
		return;
	}
	t->regs.orig_rax = (uint64_t)-1;
	switch (ev) {
	case PLAT_FAULT:
		serve_fault(t, &trap);
		break;
	case PLAT_EXCEPTION:
		signal_force_fault(t, trap.signo, trap.code, trap.addr);
		break;
	case PLAT_DEAD:
		log_debug("task %d: host process is gone", task_tid(t));
		lost_host(t);
		break;
	case PLAT_INTERRUPTED:
		if (unlikely(trap.unpatch))
			mm_unpatch_call(t, gaddr(trap.unpatch));
		break;
	case PLAT_SYSCALL:
	case PLAT_EVENT_COUNT:
		break;
	}
}

static void idle_check(void)
{
	bool idle;

	mutex_lock(&kernel.tasks_mu);
	idle = kernel.init_pidns->ntasks == 0;
	mutex_unlock(&kernel.tasks_mu);
	if (idle && kernel_on_idle)
		kernel_on_idle();
}

void *task_main(void *arg)
{
	struct task *t = arg;

	current = t;
	atomic_store(&t->state, TASK_RUNNING);
	set_host_clock(t);
	freeze_point(t);
	if (t->loaded) {
		t->loaded = false;
		if (t->rejoin)
			resume_traced(t);
		else if (t->in_syscall)
			resume_call(t);
		else if (in_call(t))
			attend(t); /* its tracer has been told already */
	} else if (!begin(t, false)) {
		lost_host(t);
	}
	while (!atomic_load(&t->exiting)) {
		if (needs_attention(t))
			attend(t);
		else
			run_guest(t);
	}
	task_do_exit(t);
	current = NULL;
	idle_check();
	freeze_task_ends(t);
	task_put(t);
	return NULL;
}

/* Faults of the sentry's own stay unblocked (safecopy); all else is for the main thread. */
static void init_attr(pthread_attr_t *attr)
{
	sigset_t set;

	sigfillset(&set);
	sigdelset(&set, SIGSEGV);
	sigdelset(&set, SIGBUS);
	sigdelset(&set, SIGFPE);
	sigdelset(&set, SIGILL);
	sigdelset(&set, SIGTRAP);
	pthread_attr_init(attr);
	pthread_attr_setdetachstate(attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(attr, TASK_STACK_SIZE);
	pthread_attr_setsigmask_np(attr, &set);
}

int task_start_thread(struct task *t)
{
	pthread_attr_t attr;
	int err;

	init_attr(&attr);
	task_get(t); /* the thread's own reference */
	freeze_task_begins();
	err = pthread_create(&t->thread, &attr, task_main, t);
	pthread_attr_destroy(&attr);
	if (err) {
		freeze_task_ends(t);
		task_put(t);
		return -EAGAIN;
	}
	return 0;
}

void task_start(struct task *t)
{
	if (task_start_thread(t) == 0)
		return;
	log_error("can't start a thread for the first process");
	task_group_exit(t, SIGKILL);
	task_do_exit(t);
}

/* ---- sleeping for somebody who answers only to SIGKILL ---- */

void task_wake_killable(struct task *t)
{
	atomic_fetch_add(&t->kill_word, 1);
	(void)HOST(FUTEX, syscall(SYS_futex, &t->kill_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL,
				  0)); /* host: futex */
}

static long wait_word(struct task *t, bool (*done)(struct task *t), bool killable)
{
	long r = 0;

	atomic_store(&t->kill_waiting, true);
	freeze_safe_begin();
	for (;;) {
		uint32_t v = atomic_load(&t->kill_word);

		freeze_give_fp(t);
		if (done(t))
			break;
		if (killable && signal_fatal_pending(t)) {
			r = -EINTR;
			break;
		}
		(void)HOST(FUTEX, syscall(SYS_futex, &t->kill_word, FUTEX_WAIT_PRIVATE, v, NULL,
					  NULL, 0)); /* host: futex */
	}
	freeze_safe_end(t);
	atomic_store(&t->kill_waiting, false);
	return r;
}

long task_wait_killable(struct task *t, bool (*done)(struct task *t))
{
	return wait_word(t, done, true);
}

/* For a task that is exiting already: @done itself looks for SIGKILL. */
void task_wait_done(struct task *t, bool (*done)(struct task *t))
{
	(void)wait_word(t, done, false);
}
