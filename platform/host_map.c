// SPDX-License-Identifier: Apache-2.0
/*
 * What a stub has mapped. Requests are queued here, neighbours merged, and carried out by one of the
 * stub's own threads (platform/stub/mapper.S), which reads raw system calls from the STUB_OPS pages: one
 * hand-over for up to OP_MAX of them.
 *
 * A stub gets the descriptors of memory files over its socket when they are first needed, and keeps
 * the STUB_MAPFDS least recently used; a mapping doesn't need its descriptor any more. We know the
 * number of each without being told: the kernel takes the lowest free one, and slots are only
 * freed to be filled again at once. Each batch that sends a descriptor maps with it, so one that didn't
 * arrive makes the batch fail.
 *
 * A mapping that can't be made (ENOMEM: vm.max_map_count, memory of page tables) leaves the stub in a
 * state that we don't know. The process is killed then: PLAT_DEAD.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "base/stats.h"
#include "platform/host_as.h"
#include "sentry/mm/mfile.h"

#ifndef MADV_POPULATE_READ
# define MADV_POPULATE_READ  22
# define MADV_POPULATE_WRITE 23
#endif

#define OPS_PER_MAP 3 /* close, receive, mmap */
#define PROT_ALL    (PROT_READ | PROT_WRITE | PROT_EXEC)

static bool range_ok(uint64_t addr, uint64_t len)
{
	return len && page_aligned(addr | len) && len <= GUEST_TASK_SIZE &&
	       addr <= GUEST_TASK_SIZE - len;
}

/* ---- queue ---- */

/* True when @n went into @last, the end of the queue. */
static bool merge(struct map_op *last, const struct map_op *n)
{
	if (last->kind != n->kind || last->prot != n->prot || last->mf != n->mf ||
	    last->writable != n->writable)
		return false;
	if (last->addr + last->len == n->addr &&
	    (!n->mf || last->off + last->len == n->off)) {
		last->len += n->len;
		return true;
	}
	if (n->addr + n->len == last->addr && (!n->mf || n->off + n->len == last->off)) {
		last->addr = n->addr;
		last->off = n->off;
		last->len += n->len;
		return true;
	}
	return false;
}

static int enqueue(struct plat_as *as, const struct map_op *op)
{
	if (!range_ok(op->addr, op->len))
		return -EINVAL;
	mutex_lock(&as->mu);
	if (!as->nops || !merge(&as->ops[as->nops - 1], op)) {
		if (as->nops == as->ops_cap) {
			as->ops_cap = as->ops_cap ? as->ops_cap * 2 : 16;
			as->ops =
				krealloc_array(as->ops, as->ops_cap, sizeof(as->ops[0]));
		}
		as->ops[as->nops] = *op;
		if (op->mf)
			mfile_get(op->mf);
		as->nops++;
	}
	atomic_store(&as->pending, true);
	mutex_unlock(&as->mu);
	return 0;
}

int host_as_map(struct plat_as *as, gaddr_t addr, uint64_t len, int prot, struct mfile *mf,
	      uint64_t off, bool writable_fd)
{
	struct map_op op = { .kind = MAP_OP_MAP,
			     .addr = addr.va,
			     .len = len,
			     .prot = prot & PROT_ALL,
			     .mf = mf,
			     .off = off,
			     .writable = writable_fd };

	if (!page_aligned(off) || (writable_fd ? mfile_rwfd(mf) : mfile_rofd(mf)) < 0)
		return -EINVAL;
	if (!writable_fd && (prot & PROT_WRITE))
		return -EACCES;
	return enqueue(as, &op);
}

int host_as_unmap(struct plat_as *as, gaddr_t addr, uint64_t len)
{
	struct map_op op = { .kind = MAP_OP_UNMAP, .addr = addr.va, .len = len };

	return enqueue(as, &op);
}

int host_as_protect(struct plat_as *as, gaddr_t addr, uint64_t len, int prot)
{
	struct map_op op = { .kind = MAP_OP_PROTECT,
			     .addr = addr.va,
			     .len = len,
			     .prot = prot & PROT_ALL };

	return enqueue(as, &op);
}

void host_as_populate(struct plat_as *as, gaddr_t addr, uint64_t len, bool write)
{
	struct map_op op = { .kind = MAP_OP_POPULATE,
			     .addr = addr.va,
			     .len = len,
			     .prot = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ };

	(void)enqueue(as, &op); /* a hint */
}

void map_drop_ops(struct plat_as *as)
{
	for (unsigned i = 0; i < as->nops; i++)
		mfile_put(as->ops[i].mf);
	free(as->ops);
	as->ops = NULL;
	as->nops = as->ops_cap = 0;
	atomic_store(&as->pending, false);
}

/* ---- descriptors ---- */

bool host_send_fd(const struct host_stub *s, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} c;
	char byte = 0;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = c.buf,
			    .msg_controllen = sizeof(c.buf) };

	memset(&c, 0, sizeof(c));
	c.align.cmsg_len = CMSG_LEN(sizeof(int));
	c.align.cmsg_level = SOL_SOCKET;
	c.align.cmsg_type = SCM_RIGHTS;
	memcpy(CMSG_DATA(&c.align), &fd, sizeof(fd));
	/* The socket is drained by every batch, so only a stub that plays games fills it. */
	return HOST(SEND, sendmsg(s->sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT)) == 1; /* host: sendmsg */
}

struct batch {
	struct plat_as *as;
	unsigned n;
};

static void emit(struct batch *b, uint32_t nr, uint32_t flags, uint64_t a0, uint64_t a1,
		 uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5)
{
	struct stub_op op = { nr, flags, { a0, a1, a2, a3, a4, a5 }, 0 };

	b->as->stub.ops[b->n++] = op;
}

/* The stub's descriptor for @op's file; what has to be done to get it there goes into the batch.
 * -errno when it can't be sent. */
static int map_fd(struct batch *b, const struct map_op *op)
{
	struct plat_as *as = b->as;
	uint64_t id = mfile_id(op->mf);
	unsigned slot = 0;

	for (unsigned i = 0; i < STUB_MAPFDS; i++) {
		struct map_fd *f = &as->fds[i];

		if (f->mf_id == id && f->writable == op->writable) {
			f->used = ++as->fd_clock;
			return (int)(STUB_FIRST_MAPFD + i);
		}
		if (!f->mf_id) { /* slots fill from below: the rest is empty, too */
			slot = i;
			break;
		}
		if (f->used < as->fds[slot].used)
			slot = i;
	}
	if (as->fds[slot].mf_id)
		emit(b, SYS_close, OP_OPTIONAL, STUB_FIRST_MAPFD + slot, 0, 0, 0, 0, 0);
	if (!host_send_fd(&as->stub, op->writable ? mfile_rwfd(op->mf) : mfile_rofd(op->mf)))
		return -EIO;
	emit(b, OP_RECV_FD, 0, 0, 0, 0, 0, 0, 0);
	as->fds[slot] = (struct map_fd){ id, op->writable, ++as->fd_clock };
	return (int)(STUB_FIRST_MAPFD + slot);
}

/* ---- carrying out ---- */

static bool emit_op(struct batch *b, const struct map_op *op)
{
	int fd;

	switch (op->kind) {
	case MAP_OP_MAP:
		fd = map_fd(b, op);
		if (fd < 0)
			return false;
		emit(b, SYS_mmap, 0, op->addr, op->len, (uint64_t)op->prot,
		     MAP_SHARED | MAP_FIXED | MAP_NORESERVE, (uint64_t)fd, op->off);
		break;
	case MAP_OP_UNMAP:
		emit(b, SYS_munmap, 0, op->addr, op->len, 0, 0, 0, 0);
		break;
	case MAP_OP_PROTECT:
		emit(b, SYS_mprotect, 0, op->addr, op->len, (uint64_t)op->prot, 0, 0, 0);
		break;
	case MAP_OP_POPULATE:
		emit(b, SYS_madvise, OP_OPTIONAL, op->addr, op->len, (uint64_t)op->prot,
		     0, 0, 0);
		break;
	}
	return true;
}

/* Takes all mappings away at once, queued ones included. False: the process is dead. For own_mapper. */
bool map_clear_locked(struct plat_as *as)
{
	struct batch b = { as, 0 };

	mutex_assert_held(&as->mu);
	map_drop_ops(as);
	if (atomic_load(&as->dead))
		return false;
	emit(&b, SYS_munmap, 0, 0, GUEST_TASK_SIZE, 0, 0, 0, 0);
	return host_ops->run_ops(as, NULL, b.n);
}

/* Runs what is in the ops pages. */
static bool run_batch(struct batch *b, struct plat_ctx *ctx)
{
	bool ok = host_ops->run_ops(b->as, ctx, b->n);

	stat_inc(STAT_MAP_BATCH);
	stat_add(STAT_MAP_OP, b->n);
	b->n = 0;
	return ok;
}

void host_log_failed_op(const struct plat_as *as, uint64_t at, int err)
{
	const struct stub_op *op = &as->stub.ops[MIN(at, (uint64_t)OP_MAX - 1)];

	log_error("stub %d: mapping call %u at 0x%lx+0x%lx failed: %s", as->stub.pid, op->nr,
		  (unsigned long)op->a[0], (unsigned long)op->a[1], strerror(err));
}

/* On any failure the address space is in an unknown state: it is killed. */
bool map_apply_locked(struct plat_as *as, struct plat_ctx *ctx)
{
	struct batch b = { as, 0 };
	bool ok = !atomic_load(&as->dead);

	mutex_assert_held(&as->mu);
	for (unsigned i = 0; ok && i < as->nops; i++) {
		if (b.n + OPS_PER_MAP > OP_MAX)
			ok = run_batch(&b, ctx);
		if (ok)
			ok = emit_op(&b, &as->ops[i]);
	}
	if (ok && b.n)
		ok = run_batch(&b, ctx);
	for (unsigned i = 0; i < as->nops; i++)
		mfile_put(as->ops[i].mf);
	as->nops = 0;
	atomic_store(&as->pending, false);
	atomic_fetch_add(&as->seq, 1);
	if (!ok)
		as_kill(as);
	if (atomic_load(&as->waiters))
		cond_broadcast(&as->left);
	return ok;
}
