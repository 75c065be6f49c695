// SPDX-License-Identifier: Apache-2.0
/*
 * Freezing and pausing: two gates, one for tasks and one for service threads. Each counts who is inside.
 * Closing a gate is a flag; whoever wants in counts itself first and looks at the flag then, whoever closes
 * sets the flag first and looks at the count then (all seq_cst), so nobody slips through. An open gate
 * costs one atomic operation, and a task passes it only when it starts, is interrupted, or sleeps in a
 * place of its own (job-control stop, vfork, a tracer's stop).
 *
 * Tasks get to the gate by themselves: they are interrupted as for a signal, the call that they sleep in
 * unwinds with a restart code, and the loop parks them before it decides about signals and restarts. A
 * task that is being killed passes a closed gate, as others may wait for its end; it is not let through once
 * the freeze has settled, when nobody is left who could wait.
 *
 * Lock order: world.mu (RANK_FREEZE) is a leaf. tasks_mu is taken with it not held.
 */
#include "sentry/kernel/freeze.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/mutex.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ptrace.h"
#include "sentry/kernel/task.h"

/* Long calls finish first (a fork of gigabytes, an image being loaded); beyond that something is wrong. */
#define FREEZE_TIMEOUT_NS 10000000000LL
#define SYSCALL_INSN_LEN 2

struct gate {
	_Atomic bool closed;
	_Atomic unsigned inside;
};

static struct {
	struct mutex mu;
	struct cond opened;   /* for service threads; tasks are woken one by one */
	struct cond emptied;  /* (mu) somebody was the last to leave a closed gate */
	struct gate tasks, services;
	_Atomic unsigned fp_wanted; /* tasks that have not given their FP state yet */
	_Atomic bool settled; /* frozen for good: not even the dying run */
	bool paused, frozen;  /* (mu) why the gates are closed */
	char culprit[48];     /* (mu) */
} world;

void freeze_init(void)
{
	mutex_init(&world.mu, RANK_FREEZE);
	cond_init(&world.opened);
	cond_init(&world.emptied);
}

static void leave(struct gate *g)
{
	if (atomic_fetch_sub(&g->inside, 1) != 1 || !atomic_load(&g->closed))
		return;
	mutex_lock(&world.mu);
	cond_broadcast(&world.emptied);
	mutex_unlock(&world.mu);
}

/* ---- service threads ---- */

void world_enter(void)
{
	struct gate *g = &world.services;

	for (;;) {
		atomic_fetch_add(&g->inside, 1);
		if (likely(!atomic_load(&g->closed)))
			return;
		leave(g);
		mutex_lock(&world.mu);
		while (atomic_load(&g->closed))
			cond_wait(&world.opened, &world.mu);
		mutex_unlock(&world.mu);
	}
}

void world_leave(void)
{
	leave(&world.services);
}

/* ---- tasks ---- */

static void fp_given(void)
{
	if (atomic_fetch_sub(&world.fp_wanted, 1) != 1)
		return;
	mutex_lock(&world.mu);
	cond_broadcast(&world.emptied);
	mutex_unlock(&world.mu);
}

void freeze_give_fp(struct task *t)
{
	struct fpstate *fp;

	if (likely(!atomic_load(&t->freeze.want_fp)))
		return;
	fp = t->freeze.fp ? t->freeze.fp : kzalloc(sizeof(*fp));
	fp->size = 0;
	if (t->ctx && plat->ctx_get_fp(t->ctx, fp))
		fp->size = 0; /* its process has died */
	t->freeze.fp = fp;
	if (atomic_exchange(&t->freeze.want_fp, false))
		fp_given();
}

static bool may_run(struct task *t)
{
	return !atomic_load(&world.tasks.closed) ||
	       (!atomic_load(&world.settled) && signal_fatal_pending(t));
}

void freeze_task_begins(void)
{
	atomic_fetch_add(&world.tasks.inside, 1);
}

void freeze_task_ends(struct task *t)
{
	if (atomic_exchange(&t->freeze.want_fp, false))
		fp_given();
	free(t->freeze.fp);
	t->freeze.fp = NULL;
	leave(&world.tasks);
}

void freeze_safe_begin(void)
{
	leave(&world.tasks);
}

void freeze_safe_end(struct task *t)
{
	int state = atomic_load(&t->state);

	for (;;) {
		if (atomic_exchange(&t->freeze.counted, false))
			break;
		atomic_fetch_add(&world.tasks.inside, 1);
		if (likely(may_run(t)))
			break;
		freeze_give_fp(t);
		leave(&world.tasks);
		task_sleep_prepare(t);
		if (!may_run(t))
			task_sleep_unmasked(t, state == TASK_RUNNING ? TASK_SLEEPING : state);
	}
	atomic_store(&t->state, state);
}

void freeze_hand_over(struct task *t)
{
	if (!atomic_exchange(&t->freeze.counted, true))
		atomic_fetch_add(&world.tasks.inside, 1);
}

void freeze_take_over(struct task *t)
{
	if (atomic_exchange(&t->freeze.counted, false))
		leave(&world.tasks);
}

static bool in_call(const struct task *t)
{
	return (int64_t)t->regs.orig_rax >= 0;
}

/*
 * A freeze has interrupted @t since it last was here. Calls that Linux never restarts have turned that into
 * EINTR: nothing but a handler that runs now may make it so.
 */
static void hide_interruption(struct task *t)
{
	int64_t r = (int64_t)t->regs.rax;

	if (!in_call(t))
		return;
	if (r == -EINTR || r == -ERESTART_RESTARTBLOCK) /* a redone call keeps its deadline */
		t->regs.rax = (uint64_t)-ERESTARTNOHAND;
	else if (r > -ERESTARTSYS || r < -ERESTART_RESTARTBLOCK || r == -ENOIOCTLCMD)
		return;
	t->freeze.redo = true;
}

void freeze_point(struct task *t)
{
	if (atomic_load(&t->freeze.asked) && atomic_exchange(&t->freeze.asked, false))
		hide_interruption(t);
	if (likely(!atomic_load(&world.tasks.closed)))
		return;
	freeze_safe_begin();
	freeze_safe_end(t);
}

static bool ptrace_wants(struct task *t)
{
	AUTO_LOCK(&kernel.tasks_mu);

	return t->ptrace && t->ptrace->interrupt;
}

/*
 * Done here and not by the guest's syscall instruction, so that it needs no host thread, and a tracer or a
 * filter sees one call. Signals decide as if the call had just been interrupted; one that only the call's own
 * mask has held back runs its handler first and finds the call still to be made.
 */
bool freeze_redo(struct task *t)
{
	struct regs *r = &t->regs;

	if (!t->freeze.redo || atomic_load(&t->exiting))
		return false;
	atomic_store(&t->interrupted, false);
	if (signal_pending(t) || (ptrace_active(t) && ptrace_wants(t))) {
		atomic_store(&t->interrupted, true);
		return false;
	}
	signal_restore_temp_mask(t);
	if (!signal_pending(t))
		return true;
	r->rip -= SYSCALL_INSN_LEN;
	r->rax = r->orig_rax;
	r->orig_rax = (uint64_t)-1;
	return false;
}

int64_t task_call_deadline(struct task *t, int64_t ns)
{
	if (unlikely(t->freeze.redo))
		t->freeze.redo = false; /* once: the call may wait again, for something else */
	else
		t->freeze.deadline_ns = ns;
	return t->freeze.deadline_ns;
}

/* Calls that are one transfer; what others do on top of one couldn't be made again. */
static bool may_go_on(long sysno)
{
	return sysno == SYS_write || sysno == SYS_writev || sysno == SYS_sendto ||
	       sysno == SYS_sendmsg || sysno == SYS_recvfrom || sysno == SYS_recvmsg;
}

size_t task_call_progress(struct task *t)
{
	size_t n = t ? t->freeze.progress : 0;

	if (unlikely(n))
		t->freeze.progress = 0; /* the handler's again */
	return n;
}

ssize_t task_call_partial(struct task *t, ssize_t done)
{
	if (done <= 0 || !t || !atomic_load(&t->freeze.asked) || signal_pending(t) ||
	    !may_go_on(t->sysno))
		return done;
	t->freeze.progress = (size_t)done;
	return -ERESTARTSYS;
}

void freeze_settle_progress(struct task *t)
{
	if ((int64_t)t->regs.rax < 0)
		t->regs.rax = t->freeze.progress;
	t->freeze.progress = 0;
	t->freeze.redo = false;
}

/* ---- who freezes ---- */

static int64_t host_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts); /* host: clock_gettime */
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* Without one there is no state in it (a fresh child begins with start_fp). */
static bool task_has_ctx(struct task *t)
{
	AUTO_LOCK(&t->mu);

	return t->ctx != NULL;
}

/* Asks every task to come to the gate. New ones start there. */
static void call_tasks(bool fp)
{
	struct task *t;
	AUTO_LOCK(&kernel.tasks_mu);

	list_for_each(t, &kernel.all_tasks, all_node) {
		if (atomic_load(&t->state) >= TASK_ZOMBIE)
			continue;
		if (fp && task_has_ctx(t)) {
			atomic_fetch_add(&world.fp_wanted, 1);
			atomic_store(&t->freeze.want_fp, true);
		}
		atomic_store(&t->freeze.asked, true);
		task_interrupt(t);
	}
}

static void wake_tasks(void)
{
	struct task *t;
	AUTO_LOCK(&kernel.tasks_mu);

	list_for_each(t, &kernel.all_tasks, all_node)
		task_wake(t);
}

/* Some task that hasn't come: for the message only, so a guess suffices. */
static void find_culprit(void)
{
	char comm[TASK_COMM_LEN];
	struct task *t;

	world.culprit[0] = 0;
	mutex_lock(&kernel.tasks_mu);
	list_for_each(t, &kernel.all_tasks, all_node) {
		if (!atomic_load(&t->freeze.asked) || atomic_load(&t->state) != TASK_RUNNING)
			continue;
		task_get_comm(t, comm);
		(void)snprintf(world.culprit, sizeof(world.culprit), "%d (%s)",
			       pid_nr(t->pid, kernel.init_pidns), comm);
		break;
	}
	mutex_unlock(&kernel.tasks_mu);
}

const char *kernel_freeze_culprit(void)
{
	return world.culprit;
}

static bool wait_zero_locked(_Atomic unsigned *count, int64_t deadline)
{
	while (atomic_load(count))
		if (!cond_wait_until(&world.emptied, &world.mu, deadline))
			return atomic_load(count) == 0;
	return true;
}

/* A task that is killed by another one may be on its way out while the last other parks. */
static bool settle_locked(int64_t deadline)
{
	for (;;) {
		if (!wait_zero_locked(&world.tasks.inside, deadline) ||
		    !wait_zero_locked(&world.services.inside, deadline) ||
		    !wait_zero_locked(&world.fp_wanted, deadline))
			return false;
		atomic_store(&world.settled, true);
		if (!atomic_load(&world.tasks.inside) && !atomic_load(&world.services.inside))
			return true;
		atomic_store(&world.settled, false);
	}
}

static void open_locked(void)
{
	atomic_store(&world.settled, false);
	atomic_store(&world.services.closed, world.frozen);
	atomic_store(&world.tasks.closed, world.frozen || world.paused);
	cond_broadcast(&world.opened);
}

int kernel_freeze(void)
{
	bool ok;

	mutex_lock(&world.mu);
	if (world.frozen) {
		mutex_unlock(&world.mu);
		return -EBUSY;
	}
	world.frozen = true;
	atomic_store(&world.tasks.closed, true);
	atomic_store(&world.services.closed, true);
	mutex_unlock(&world.mu);
	call_tasks(true);
	mutex_lock(&world.mu);
	ok = settle_locked(host_now() + FREEZE_TIMEOUT_NS);
	mutex_unlock(&world.mu);
	if (ok)
		return 0;
	find_culprit();
	kernel_thaw();
	return -ETIMEDOUT;
}

void freeze_from_start(void)
{
	AUTO_LOCK(&world.mu);

	world.frozen = true;
	atomic_store(&world.tasks.closed, true);
	atomic_store(&world.services.closed, true);
	atomic_store(&world.settled, true);
}

void kernel_thaw(void)
{
	mutex_lock(&world.mu);
	world.frozen = false;
	open_locked();
	mutex_unlock(&world.mu);
	wake_tasks();
}

int kernel_pause(void)
{
	bool ok;

	mutex_lock(&world.mu);
	if (world.paused) {
		mutex_unlock(&world.mu);
		return -EALREADY;
	}
	world.paused = true;
	atomic_store(&world.tasks.closed, true);
	mutex_unlock(&world.mu);
	call_tasks(false);
	mutex_lock(&world.mu);
	ok = wait_zero_locked(&world.tasks.inside, host_now() + FREEZE_TIMEOUT_NS);
	mutex_unlock(&world.mu);
	if (ok)
		return 0;
	find_culprit();
	(void)kernel_resume(); /* can't fail: it is paused */
	return -ETIMEDOUT;
}

int kernel_resume(void)
{
	mutex_lock(&world.mu);
	if (!world.paused) {
		mutex_unlock(&world.mu);
		return -EALREADY;
	}
	world.paused = false;
	open_locked();
	mutex_unlock(&world.mu);
	wake_tasks();
	return 0;
}

bool kernel_paused(void)
{
	AUTO_LOCK(&world.mu);

	return world.paused;
}
