// SPDX-License-Identifier: Apache-2.0
/*
 * Stopping the world for saving. A frozen sandbox has every task at the top of its loop (sentry thread
 * parked, guest registers in task.regs, blocked calls unwound into restart codes and restart blocks), its
 * timers stopped, and no service thread inside guest objects.
 *
 * A service thread (timers, console relays, control server, gofer notifications) brackets its work on
 * guest objects with world_enter() and world_leave(), which cost one uncontended atomic while nobody freezes.
 *
 * A guest doesn't notice: what a freeze interrupts is made again, with the deadline that it had
 * (task_call_deadline()), and fails with EINTR only if a signal's handler has run meanwhile.
 */
#ifndef SENTRY_KERNEL_FREEZE_H
#define SENTRY_KERNEL_FREEZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct task;

/* Once, by kernel_init(). */
void freeze_init(void);

/* 0, -EBUSY (somebody else has frozen it), -ETIMEDOUT with everything running again. Context: a service
 * thread that is not inside; no locks. */
int kernel_freeze(void);
void kernel_thaw(void);
/* A sandbox that is being loaded begins frozen. Context: nothing of the guest runs. */
void freeze_from_start(void);
/* For messages after -ETIMEDOUT: a task that didn't stop, as "12 (gdb)"; "" if it was a service thread. */
const char *kernel_freeze_culprit(void);

/* Between these a service thread may touch guest objects. world_enter() waits while frozen. Not nested;
 * no waiting for the guest inside. */
void world_enter(void);
void world_leave(void);

/* ---- the task's side: kernel/task_run.c and what sleeps for long without looking at signals ---- */

/* task loop: parks the calling task while the sandbox is frozen or paused. Context: no locks. */
void freeze_point(struct task *t);
/* The thread of a task is about to be made, or couldn't be, or has ended. */
void freeze_task_begins(void);
void freeze_task_ends(struct task *t);
/* FP state for the image, if the freezer wants it: by the task itself, as only its thread may ask for it. */
void freeze_give_fp(struct task *t);
/* The call that @t has just made was ended by a freeze, and it was parked: may it be made again at once? If
 * not, it is as if the call had been interrupted in the ordinary way. */
bool freeze_redo(struct task *t);
/*
 * Between these the calling task sleeps in a state that is all in its struct, and touches nothing: it
 * counts as parked. The end waits while the sandbox is frozen or paused. No locks.
 */
void freeze_safe_begin(void);
void freeze_safe_end(struct task *t);
/*
 * Whoever ends the sleep of @t for good and knows that it isn't in its struct what follows (a tracer: its
 * tracee's call is made yet, or has been) lets it count as running at once: no freeze finds it in between.
 * freeze_safe_end() takes that over; freeze_take_over() gives it back if that had ended before. Context: the
 * caller is a task, and counts itself.
 */
void freeze_hand_over(struct task *t);
void freeze_take_over(struct task *t);

/*
 * The deadline of the call being served, @ns as just computed from its relative timeout: when the call is
 * made again after a freeze, the one it had the first time.
 */
int64_t task_call_deadline(struct task *t, int64_t ns);

/*
 * A write, or a read of all that was asked for (MSG_WAITALL), that a freeze has ended in the middle isn't cut short by it:
 * it goes on where it was. progress: the
 * bytes to skip at its beginning, 0 in an ordinary call. partial: what the handler returns when it was
 * interrupted after @done bytes: that, or a restart code if the call goes on later. @t may be NULL.
 */
size_t task_call_progress(struct task *t);
ssize_t task_call_partial(struct task *t, ssize_t done);
/* The call is over: it can't have moved less than that. */
void freeze_settle_progress(struct task *t);

/*
 * pause and resume of the OCI runtime: tasks park as for a freeze, service threads run on; guest time goes
 * on. SIGKILL still works. 0, -EALREADY when it is so already, or -ETIMEDOUT (pause: nothing changed).
 */
int kernel_pause(void);
int kernel_resume(void);
bool kernel_paused(void);

#endif
