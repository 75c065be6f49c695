// SPDX-License-Identifier: Apache-2.0
/*
 * Address spaces: one host process each. See platform.h for the contract of flushing; the protocol
 * between a flusher and threads that enter the guest is
 *
 *   flusher                          guest's sentry thread
 *   as.pending = true (queueing)     ctx.state |= IN_GUEST
 *   read ctx.state                   read as.pending
 *
 * with full barriers in between on both sides, so one of them always sees the other: either the
 * flusher sends a kick, or the thread applies the batch before it resumes the guest.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "platform/host_as.h"

struct plat_as *host_as_create(void)
{
	struct host_stub s;
	struct plat_as *as;
	int err = pool_take(&s);

	if (err)
		return err_ptr(err);
	as = kzalloc(sizeof(*as));
	as->stub = s;
	mutex_init(&as->mu, RANK_PLAT_AS);
	cond_init(&as->left);
	list_init(&as->ctxs);
	list_init(&as->reap);
	list_init(&as->live);
	as->spares = kcalloc(1, sizeof(int));
	as->spares[0] = s.pid;
	as->nspare = as->spare_cap = as->nthreads = 1;
	return as;
}

/* Ends the host process; it is waited for later. Any thread, as.mu or not. */
void as_kill(struct plat_as *as)
{
	if (!atomic_exchange(&as->dead, true))
		kill(as->stub.pid, SIGKILL); /* host: kill */
}

void host_as_destroy(struct plat_as *as)
{
	as_kill(as);
	pool_reap(as);
}

/* Calls the contexts that are in the guest back, once each. The number that are there. */
static unsigned kick_all_locked(struct plat_as *as)
{
	struct plat_ctx *ctx;
	unsigned n = 0;

	list_for_each(ctx, &as->ctxs, link) {
		unsigned st = atomic_load(&ctx->state);

		if (!(st & CTX_IN_GUEST))
			continue;
		n++;
		ctx_kick(ctx);
	}
	return n;
}

/*
 * Where a stub has a mapper, or with a context of the caller's own, the batch is simply done: the host makes the change for all
 * threads of the process at once. Without one, a thread that is in the guest must do it.
 * -EIO: the process is dead (no guest code runs in it any more, so the caller may go on).
 */
int host_as_flush(struct plat_as *as, struct plat_ctx *self)
{
	bool dead;

	mutex_lock(&as->mu);
	if (atomic_load(&as->pending) && (host_ops->own_mapper || (self && !self->reaped)))
		(void)map_apply_locked(as, self);
	while (atomic_load(&as->pending) && !atomic_load(&as->dead) &&
	       kick_all_locked(as)) {
		atomic_fetch_add(&as->waiters, 1);
		/* Somebody may have left between the kick and this: look again first. */
		if (kick_all_locked(as))
			cond_wait(&as->left, &as->mu);
		atomic_fetch_sub(&as->waiters, 1);
	}
	dead = atomic_load(&as->dead);
	mutex_unlock(&as->mu);
	return dead ? -EIO : 0;
}

void as_add_spare_locked(struct plat_as *as, int id)
{
	mutex_assert_held(&as->mu);
	if (as->nspare == as->spare_cap) {
		as->spare_cap = as->spare_cap ? as->spare_cap * 2 : 4;
		as->spares = krealloc_array(as->spares, as->spare_cap, sizeof(int));
	}
	as->spares[as->nspare++] = id;
}

uint64_t host_as_map_seq(struct plat_as *as)
{
	return atomic_load(&as->seq);
}

int host_as_host_pid(struct plat_as *as)
{
	return as->stub.pid;
}
