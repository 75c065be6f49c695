// SPDX-License-Identifier: Apache-2.0
/*
 * Stub processes of the trap platform: the parts of the context file that they share with us, and their
 * deaths.
 *
 * Nothing tells a sentry thread that waits for its stub that the stub has died: no ring will come. So one
 * thread waits for any child, marks the address space dead, and wakes whoever waits for its pages. It
 * alone reaps children (the host reuses process ids only then).
 *
 * An area of the context file belongs to one stub. Our mapping of an area is made once and kept; its
 * memory is given back when the stub is gone, since the next owner must not find registers of the
 * previous one in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "platform/trap/trap_sites.h"

static struct {
	struct mutex mu;
	struct cond buried;
	struct list live;    /* (m) of plat_as.live */
	int fd;              /* (c) the context file */
	unsigned narea;      /* (m) areas ever used */
	char **map;          /* (m) their mappings */
	unsigned *free;      /* (m) areas that nobody uses */
	unsigned nfree, cap; /* (m) */
} procs;

/* ---- areas ---- */

static int map_area_locked(unsigned area)
{
	void *p;

	if (area == STUB_CTX_AREAS)
		return -EAGAIN;
	if (area == procs.cap) {
		procs.cap = procs.cap ? procs.cap * 2 : 16;
		procs.map = krealloc_array(procs.map, procs.cap, sizeof(procs.map[0]));
		procs.free = krealloc_array(procs.free, procs.cap, sizeof(procs.free[0]));
	}
	/* host: mmap */
	p = mmap(NULL, STUB_CTX_AREA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, procs.fd,
		 (off_t)area * STUB_CTX_AREA);
	if (p == MAP_FAILED)
		return -errno;
	procs.map[area] = p;
	return 0;
}

int procs_prepare(struct host_stub *s, struct zyg_req *req)
{
	int err = 0;

	mutex_lock(&procs.mu);
	if (procs.nfree) {
		s->area = procs.free[--procs.nfree];
	} else {
		err = map_area_locked(procs.narea);
		if (!err)
			s->area = procs.narea++;
	}
	if (!err)
		s->pages = procs.map[s->area];
	mutex_unlock(&procs.mu);
	if (!err)
		page_fresh((struct trap_page *)(void *)s->pages); /* of the first thread */
	req->ctx_off = (uint64_t)s->area * STUB_CTX_AREA;
	return err;
}

void procs_drop(struct host_stub *s)
{
	/* host: fallocate. When it fails, the pages must be cleared by hand; they are few. */
	if (HOST(FALLOCATE, fallocate(procs.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				      (off_t)s->area * STUB_CTX_AREA, STUB_CTX_AREA)))
		memset(s->pages, 0, STUB_CTX_AREA);
	mutex_lock(&procs.mu);
	procs.free[procs.nfree++] = s->area;
	mutex_unlock(&procs.mu);
}

/* ---- deaths ---- */

static void mark_gone_locked(struct plat_as *as)
{
	unsigned n;

	atomic_store(&as->dead, true);
	n = atomic_load(&as->nslots);
	for (unsigned i = 0; i < n; i++)
		page_wake(slot_page(as, i));
	as->gone = true;
	cond_broadcast(&procs.buried);
}

/* Stubs are killed; one that ends in another way has met something that it can't go on with. */
static void tell_why(const siginfo_t *si)
{
	if (si->si_code == CLD_EXITED && si->si_status)
		log_error("stub %d: a mapping call failed: %s", si->si_pid, strerror(si->si_status));
	else if (si->si_code != CLD_EXITED && si->si_status != SIGKILL)
		log_warn("stub %d: killed by signal %d", si->si_pid, si->si_status);
}

static void child_died(int pid)
{
	struct plat_as *as;
	int st;

	mutex_lock(&procs.mu);
	list_for_each(as, &procs.live, live) {
		if (as->stub.pid == pid && !as->gone) {
			mark_gone_locked(as);
			break;
		}
	}
	/* A spare stub: pool_take() finds that out. */
	(void)waitpid(pid, &st, __WALL | WNOHANG); /* host: wait4 */
	mutex_unlock(&procs.mu);
}

static void *reaper(void *arg __unused)
{
	siginfo_t si;

	for (;;) {
		si.si_pid = 0;
		if (waitid(P_ALL, 0, &si, WEXITED | WNOWAIT | __WALL)) { /* host: waitid */
			if (errno == EINTR)
				continue;
			log_error("no children: the zygote is gone");
			return NULL;
		}
		tell_why(&si);
		child_died(si.si_pid);
	}
}

/* @as is complete and may be found by the reaper from here on. */
void procs_add(struct plat_as *as)
{
	mutex_lock(&procs.mu);
	list_add_tail(&procs.live, &as->live);
	/* Reaped before it was in the list? */
	if (kill(as->stub.pid, 0) && errno == ESRCH) /* host: kill */
		mark_gone_locked(as);
	mutex_unlock(&procs.mu);
}

static void wait_gone_locked(struct plat_as *as)
{
	while (!as->gone)
		cond_wait(&procs.buried, &procs.mu);
}

/* The process of @as, which was killed, has ended. */
void procs_wait_gone(struct plat_as *as)
{
	mutex_lock(&procs.mu);
	wait_gone_locked(as);
	mutex_unlock(&procs.mu);
}

void procs_bury(struct plat_as *as)
{
	mutex_lock(&procs.mu);
	wait_gone_locked(as);
	list_del(&as->live);
	mutex_unlock(&procs.mu);
	sites_destroy(as);
}

void procs_init(int ctx_fd)
{
	procs.fd = ctx_fd;
	mutex_init(&procs.mu, RANK_PLATFORM);
	cond_init(&procs.buried);
	list_init(&procs.live);
}

/* From here on children are the reaper's. */
int procs_start(void)
{
	return host_start_thread(reaper);
}
