// SPDX-License-Identifier: Apache-2.0
/*
 * Contexts of the trap platform. A host thread of a stub is either running guest code, or in the signal
 * handler of rt.S, where it waits for its turn: to go back to the guest, or to make another thread. When a context ends, its host thread stays in the handler, parked,
 * for the next thread of that address space; beyond PARKED_MAX of them it ends.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "platform/trap/trap_sites.h"

#ifndef HWCAP2_FSGSBASE
# define HWCAP2_FSGSBASE (1 << 1)
#endif

#define CS_COMPAT  0x23
#define PARKED_MAX 32 /* host threads of one address space that are kept for later */

static bool patching; /* (c) call sites can be patched here */

/* ---- life ---- */

static struct plat_as *trap_as_create(void)
{
	struct plat_as *as = host_as_create();

	if (is_err(as))
		return as;
	as->spares[0] = 0; /* slot 0: the first thread */
	as->reserved = 1;
	as->tids = kcalloc(1, sizeof(int));
	as->tids[0] = as->stub.pid;
	as->nslots = 1;
	if (patching)
		sites_create(as);
	procs_add(as);
	return as;
}

/*
 * Its pages go to others after this, and SIGKILL takes a while to reach a thread that computes, as one of
 * a hostile guest may do that seems to be waiting. So first the mapper takes them away.
 */
static void trap_as_destroy(struct plat_as *as)
{
	bool cleared;

	mutex_lock(&as->mu);
	cleared = map_clear_locked(as);
	mutex_unlock(&as->mu);
	as_kill(as);
	if (!cleared)
		procs_wait_gone(as);
	host_as_destroy(as);
}

static int take_spare(struct plat_as *as, int *ret_tid)
{
	int slot = -ESRCH;

	mutex_lock(&as->mu);
	if (as->nspare) {
		slot = as->spares[--as->nspare];
		*ret_tid = as->tids[slot];
		if (as->reserved)
			as->reserved--;
	}
	mutex_unlock(&as->mu);
	return slot;
}

static struct plat_ctx *trap_ctx_create(struct plat_as *as)
{
	int tid = 0, slot = take_spare(as, &tid);
	struct plat_ctx *ctx;
	bool ok = false;

	if (slot < 0)
		return err_ptr(slot);
	ctx = kzalloc(sizeof(*ctx));
	ctx->as = as;
	ctx->tid = tid;
	ctx->slot = (unsigned)slot;
	ctx->page = slot_page(as, ctx->slot);
	list_init(&ctx->link);
	/* A new thread may still be on its way; a parked one has handed over long ago, maybe by the shim. */
	if (page_wait(ctx, true)) {
		ctx->in_shim = READ_ONCE(ctx->page->kind) == KIND_SHIM;
		ok = shim_to_frame(ctx) && page_find_frame(ctx);
	}
	if (!ok) {
		free(ctx);
		return err_ptr(-ESRCH);
	}
	trap_set_answers(ctx, NULL, 0);
	pin_add(ctx);
	mutex_lock(&as->mu);
	list_add_tail(&as->ctxs, &ctx->link);
	if (++as->nctx > 1)
		as->multi = true;
	mutex_unlock(&as->mu);
	return ctx;
}

/* @slot has no thread any more, or only one that is about to exit. */
static void leave_slot_locked(struct plat_as *as, unsigned slot)
{
	mutex_assert_held(&as->mu);
	if (as->nleft == as->left_cap) {
		as->left_cap = as->left_cap ? as->left_cap * 2 : 16;
		as->left_slots = krealloc_array(as->left_slots, as->left_cap, sizeof(unsigned));
	}
	as->left_slots[as->nleft++] = slot;
}

static void trap_ctx_destroy(struct plat_ctx *ctx)
{
	struct plat_as *as;

	if (!ctx)
		return;
	as = ctx->as;
	pin_del(ctx);
	mutex_lock(&as->mu);
	as->nctx--;
	list_del(&ctx->link);
	if (ctx->slot == 0 || as->nspare < as->reserved + PARKED_MAX) {
		as_add_spare_locked(as, (int)ctx->slot);
	} else {
		if (shim_to_frame(ctx))
			page_exit(ctx);
		leave_slot_locked(as, ctx->slot);
	}
	mutex_unlock(&as->mu);
	free(ctx);
}

/* A slot for a new thread: one that was left, or the next; -EAGAIN: there is none. */
static int pick_slot_locked(struct plat_as *as)
{
	unsigned slot = atomic_load(&as->nslots);

	mutex_assert_held(&as->mu);
	if (as->nleft && page_reuse(slot_page(as, as->left_slots[0]))) {
		slot = as->left_slots[0];
		as->left_slots[0] = as->left_slots[--as->nleft];
		return (int)slot;
	}
	if (slot >= STUB_CTX_SLOTS)
		return -EAGAIN;
	as->tids = krealloc_array(as->tids, slot + 1, sizeof(int));
	as->tids[slot] = 0;
	page_fresh(slot_page(as, slot));
	atomic_store(&as->nslots, slot + 1);
	return (int)slot;
}

/* A new host thread. */
static int new_thread_locked(struct plat_ctx *self)
{
	struct plat_as *as = self->as;
	int slot = pick_slot_locked(as);
	int64_t res;

	if (slot < 0)
		return slot;
	WRITE_ONCE(self->page->arg, STUB_CTX + (uint64_t)slot * STUB_CTX_SIZE);
	if (!page_call(self, CMD_CLONE, true)) {
		as_kill(as);
		return -EAGAIN;
	}
	stat_inc(STAT_THREAD_MADE);
	res = (int64_t)READ_ONCE(self->page->res);
	if (res < 0 && res >= -4095) {
		atomic_store(&slot_page(as, (unsigned)slot)->turn, TURN_GONE); /* free at once */
		leave_slot_locked(as, (unsigned)slot);
		return (int)res;
	}
	/* A stub that lies must not make us signal somebody else's thread. */
	if (res <= 0 || res > INT32_MAX ||
	    HOST(TGKILL, syscall(SYS_tgkill, as->stub.pid, (int)res, 0))) /* host: tgkill */
		return -EAGAIN;
	as->tids[slot] = (int)res;
	as_add_spare_locked(as, slot);
	return 0;
}

static int trap_prepare_clone(struct plat_ctx *self)
{
	struct plat_as *as = self->as;
	int err = 0;

	if (!shim_to_frame(self))
		return -ESRCH;
	mutex_lock(&as->mu);
	if (as->nspare <= as->reserved)
		err = new_thread_locked(self);
	if (!err)
		as->reserved++;
	mutex_unlock(&as->mu);
	return err;
}

/* ---- switch ---- */

static bool canonical(uint64_t addr)
{
	return (int64_t)(addr << 16) >> 16 == (int64_t)addr;
}

/* What the way back to user mode would choke on. */
static bool regs_ok(const struct regs *r)
{
	return (r->cs == GUEST_CS || r->cs == CS_COMPAT) && r->ss <= UINT16_MAX &&
	       canonical(r->rip) && r->fs_base < STUB_TASK_END && r->gs_base < STUB_TASK_END;
}

/* One stay in the guest. PLAT_EVENT_COUNT: came back for nothing, *r is where it was. */
static enum plat_event run_once(struct plat_ctx *ctx, struct regs *r, struct plat_trap *trap)
{
	uint64_t from;
	bool ok;

	if (unlikely(!regs_ok(r)))
		return host_bad_registers(trap);
	if (!ctx->in_shim || !shim_answer(ctx, r)) {
		if (unlikely(!shim_to_frame(ctx)))
			return PLAT_DEAD;
		page_store_regs(ctx, r);
	}
	from = ctx_account_start(ctx);
	pace_enter(ctx, from);
	ok = page_call(ctx, CMD_RESUME, false);
	pace_leave(ctx, from, ctx_account(ctx, from));
	if (unlikely(!ok))
		return PLAT_DEAD;
	if (READ_ONCE(ctx->page->kind) == KIND_SHIM)
		return shim_load(ctx, r, trap);
	return page_find_frame(ctx) ? page_load_event(ctx, r, trap) : PLAT_DEAD;
}

static enum plat_event trap_ctx_switch(struct plat_ctx *ctx, struct regs *r, struct plat_trap *trap)
{
	struct plat_as *as = ctx->as;
	enum plat_event ev;

	memset(trap, 0, sizeof(*trap));
	do {
		if (unlikely(shim_steps_into(ctx, r, trap)) || !ctx_enter(ctx))
			return PLAT_INTERRUPTED;
		if (unlikely(atomic_load(&as->pending)) && !ctx_apply_pending(ctx)) {
			ctx_leave(ctx);
			return PLAT_DEAD;
		}
		trap->map_seq = atomic_load(&as->seq);
		ev = atomic_load_explicit(&as->dead, memory_order_relaxed)
			     ? PLAT_DEAD
			     : run_once(ctx, r, trap);
		ctx_leave(ctx);
	} while (unlikely(ev == PLAT_EVENT_COUNT));
	return ev;
}

/* ---- for the common part ---- */

static bool trap_run_ops(struct plat_as *as, struct plat_ctx *ctx __unused, unsigned n)
{
	mutex_assert_held(&as->mu);
	return mapper_run(&as->stub, n);
}

static const struct host_ops trap_host_ops = {
	.stub_prepare = procs_prepare,
	.stub_ready = mapper_ready,
	.stub_drop = procs_drop,
	.run_ops = trap_run_ops,
	.own_mapper = true,
	.bury = procs_bury,
};

static int trap_init(const struct plat_boot *boot)
{
	int err;

	/* The stub saves and loads the guest's thread pointers by itself. */
	if (!(getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE))
		return -ENOTSUP;
	host_ops = &trap_host_ops;
	/* The shim needs an instruction that moves bits without touching the flags. */
	patching = __builtin_cpu_supports("bmi2") && patch_decoder_init();
	pace_init();
	procs_init(boot->ctx_fd);
	err = pool_init(boot);
	if (err)
		return err;
	err = pool_set_contexts(boot->ctx_fd);
	if (!err)
		err = trap_probe();
	if (err) {
		(void)pool_set_contexts(-1); /* for whoever is tried next, and finds out */
		return err;
	}
	err = pin_init();
	if (!err)
		err = procs_start();
	return err ? err : pool_start();
}

const struct platform plat_trap = {
	.name = "trap",
	.runs_on = true,
	.init = trap_init,
	.as_create = trap_as_create,
	.as_destroy = trap_as_destroy,
	.as_kill = as_kill,
	.as_map = host_as_map,
	.as_unmap = host_as_unmap,
	.as_protect = host_as_protect,
	.as_populate = host_as_populate,
	.as_flush = host_as_flush,
	.as_map_seq = host_as_map_seq,
	.ctx_create = trap_ctx_create,
	.ctx_destroy = trap_ctx_destroy,
	.ctx_prepare_clone = trap_prepare_clone,
	.ctx_switch = trap_ctx_switch,
	.ctx_interrupt = host_ctx_interrupt,
	.ctx_get_fp = trap_get_fp,
	.ctx_set_fp = trap_set_fp,
	.ctx_init_fp = trap_init_fp,
	.ctx_cpu_ns = host_ctx_cpu_ns,
	.as_host_pid = host_as_host_pid,
	.ctx_set_answers = trap_set_answers,
	.patch = &trap_patch_ops,
};
