// SPDX-License-Identifier: Apache-2.0
/*
 * Spare stubs. Making one costs the host a fork and two context switches; so one platform thread keeps
 * a few in stock, and fork and exec in the guest don't wait. The same thread waits for killed
 * stubs to be gone, since tearing down a large address space takes a while, too.
 *
 * Every stub has STUB_OPS_PAGES pages of one common memory file, through which it is told what to
 * map. It sees only its own pages, read-only, and holds no descriptor of the file.
 *
 * Locks: zyg_mu serialises requests to the zygote, pool.mu guards the lists. Neither is taken with the
 * other held.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "platform/host_as.h"
#include "sentry/mm/mfile.h"

static struct mutex zyg_mu;
static int zyg_fd = -1;     /* (c) */
static struct mfile *opsmf; /* (c) */

static struct {
	struct mutex mu;
	struct cond work;                  /* for the platform thread */
	struct host_stub spare[SPARE_STUBS]; /* (m) */
	unsigned nspare;                   /* (m) */
	bool failed;      /* (m) the zygote is gone or out of processes */
	struct list reap; /* (m) of plat_as.reap */
} pool;

uint64_t mono_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts); /* host: clock_gettime */
	return (uint64_t)ts.tv_sec * 1000000000U + (uint64_t)ts.tv_nsec;
}

static int zyg_send(const struct zyg_req *req, int fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} c;
	struct zyg_req copy = *req;
	struct iovec iov = { &copy, sizeof(copy) };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (fd >= 0) {
		memset(&c, 0, sizeof(c));
		m.msg_control = c.buf;
		m.msg_controllen = sizeof(c.buf);
		c.align.cmsg_len = CMSG_LEN(sizeof(int));
		c.align.cmsg_level = SOL_SOCKET;
		c.align.cmsg_type = SCM_RIGHTS;
		memcpy(CMSG_DATA(&c.align), &fd, sizeof(fd));
	}
	do {
		n = HOST(SEND, sendmsg(zyg_fd, &m, MSG_NOSIGNAL)); /* host: sendmsg */
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* *ret_fd is the descriptor that came with the answer, or -1. */
static int zyg_recv(struct zyg_rep *rep, int *ret_fd)
{
	union {
		char buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} c;
	struct iovec iov = { rep, sizeof(*rep) };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = c.buf,
			    .msg_controllen = sizeof(c.buf) };
	const struct cmsghdr *h;
	ssize_t n;

	*ret_fd = -1;
	do {
		n = HOST(RECV, recvmsg(zyg_fd, &m, MSG_CMSG_CLOEXEC)); /* host: recvmsg */
	} while (n < 0 && errno == EINTR);
	if (n != sizeof(*rep))
		return n < 0 ? -errno : -EPIPE;
	h = CMSG_FIRSTHDR(&m);
	if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS &&
	    h->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(h), sizeof(int));
	return 0;
}

static int zyg_call(const struct zyg_req *req, int fd, struct zyg_rep *rep, int *ret_fd)
{
	int err;

	mutex_lock(&zyg_mu);
	err = zyg_send(req, fd);
	if (!err)
		err = zyg_recv(rep, ret_fd);
	mutex_unlock(&zyg_mu);
	return err;
}

static void free_stub_memory(struct host_stub *s)
{
	mfile_range_put(opsmf, s->ops_off, STUB_OPS_SIZE);
	if (host_ops->stub_drop)
		host_ops->stub_drop(s);
}

static void drop_stub(struct host_stub *s)
{
	close(s->sock); /* host: close */
	free_stub_memory(s);
}

void pool_discard(struct host_stub *s)
{
	(void)kill(s->pid, SIGKILL); /* host: kill */
	pool_wait_gone(s->pid);
	drop_stub(s);
}

int pool_make(struct host_stub *ret)
{
	struct zyg_req req = { .kind = ZYG_MAKE };
	uint64_t len = STUB_OPS_SIZE;
	struct zyg_rep rep;
	int err, fd;

	err = mfile_alloc(opsmf, STUB_OPS_SIZE, &ret->ops_off);
	if (err)
		return err;
	/* We write to them without a net. */
	err = mfile_commit(opsmf, ret->ops_off, STUB_OPS_SIZE);
	if (err) {
		mfile_range_put(opsmf, ret->ops_off, STUB_OPS_SIZE);
		return err;
	}
	/* Pages of one stub never straddle a chunk: the chunk size is a multiple. */
	ret->ops = mfile_ptr(opsmf, ret->ops_off, &len);
	req.ops_off = ret->ops_off;
	err = ret->ops ? 0 : -ENOMEM;
	if (!err) {
		ret->ctl = (struct stub_ctl *)(void *)(ret->ops + OP_MAX);
		*ret->ctl = (struct stub_ctl){ 0 };
		ret->batches = 0;
	}
	if (!err && host_ops->stub_prepare)
		err = host_ops->stub_prepare(ret, &req);
	if (err) {
		mfile_range_put(opsmf, ret->ops_off, STUB_OPS_SIZE);
		return err;
	}
	stat_inc(STAT_STUB_MADE);
	err = zyg_call(&req, -1, &rep, &fd);
	if (!err && rep.res < 0)
		err = rep.res;
	if (!err && fd < 0) {
		/* Made, but no descriptor of ours was left for its socket. */
		(void)kill(rep.res, SIGKILL);            /* host: kill */
		(void)waitpid(rep.res, NULL, __WALL);    /* host: wait4 */
		err = -EAGAIN;
	}
	if (err) {
		free_stub_memory(ret);
		return err;
	}
	ret->pid = rep.res;
	ret->sock = fd;
	err = host_ops->stub_ready ? host_ops->stub_ready(ret) : 0;
	if (err)
		pool_discard(ret);
	return err;
}

void pool_keep(const struct host_stub *s)
{
	mutex_lock(&pool.mu);
	pool.spare[pool.nspare++] = *s;
	mutex_unlock(&pool.mu);
}

int pool_ops_fd(void)
{
	return mfile_rofd(opsmf);
}

void pool_wait_gone(int tid)
{
	int st;

	for (;;) {
		pid_t r = waitpid(tid, &st, __WALL); /* host: wait4 */

		if (r == tid && !WIFSTOPPED(st))
			return;
		if (r < 0 && errno != EINTR)
			return; /* ECHILD: reaped already */
	}
}

static void reap_one(struct plat_as *as)
{
	host_ops->bury(as);
	drop_stub(&as->stub);
	map_drop_ops(as);
	free(as->spares);
	free(as->tids);
	free(as->left_slots);
	cond_fini(&as->left);
	mutex_fini(&as->mu);
	free(as);
}

/* Sleeps until there is something to make or to bury. */
static void *pool_thread(void *arg __unused)
{
	mutex_lock(&pool.mu);
	for (;;) {
		if (!list_empty(&pool.reap)) {
			struct plat_as *as = list_first(&pool.reap, struct plat_as, reap);

			list_del(&as->reap);
			mutex_unlock(&pool.mu);
			reap_one(as);
			mutex_lock(&pool.mu);
		} else if (pool.nspare < SPARE_STUBS && !pool.failed) {
			struct host_stub s;
			int err;

			mutex_unlock(&pool.mu);
			err = pool_make(&s);
			mutex_lock(&pool.mu);
			if (err)
				pool.failed =
					true; /* as_create tries for itself and reports */
			else
				pool.spare[pool.nspare++] = s;
		} else {
			cond_wait(&pool.work, &pool.mu);
		}
	}
	return NULL;
}

/* Nobody takes from the pool while it grows by the platform thread alone, so it can't overflow. */
static bool pool_pop(struct host_stub *ret)
{
	bool got = false;

	mutex_lock(&pool.mu);
	if (pool.nspare) {
		*ret = pool.spare[0];
		memmove(&pool.spare[0], &pool.spare[1],
			--pool.nspare * sizeof(pool.spare[0]));
		got = true;
	}
	pool.failed = false;
	cond_signal(&pool.work);
	mutex_unlock(&pool.mu);
	return got;
}

/* A stub that runs, from the pool or fresh. 0 or -errno. Context: may hold mm.mu. */
int pool_take(struct host_stub *ret)
{
	int st, err;

	while (pool_pop(ret)) {
		if (waitpid(ret->pid, &st, __WALL | WNOHANG) == 0) /* host: wait4 */
			return 0;
		drop_stub(ret); /* somebody outside killed it */
	}
	err = pool_make(ret);
	if (err)
		log_warn("can't make a stub process: %s", strerror(-err));
	return err;
}

void pool_reap(struct plat_as *as)
{
	mutex_lock(&pool.mu);
	list_add_tail(&pool.reap, &as->reap);
	cond_signal(&pool.work);
	mutex_unlock(&pool.mu);
}

int host_start_thread(void *(*fn)(void *))
{
	pthread_attr_t a;
	sigset_t all, old;
	pthread_t t;
	int err;

	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&a, 128 << 10);
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* host: rt_sigprocmask */
	err = pthread_create(&t, &a, fn, NULL);   /* host: clone3 */
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&a);
	return -err;
}

int pool_init(const struct plat_boot *boot)
{
	struct zyg_req req = { .kind = ZYG_HELLO };
	struct zyg_rep rep;
	int err, fd;

	if (opsmf) /* a platform that was tried before */
		return 0;
	zyg_fd = boot->zygote_fd;
	mutex_init(&zyg_mu, RANK_PLATFORM);
	mutex_init(&pool.mu, RANK_PLATFORM);
	cond_init(&pool.work);
	list_init(&pool.reap);
	opsmf = mfile_create("stub-ops");
	if (is_err(opsmf))
		return (int)ptr_err(opsmf);
	err = zyg_call(&req, mfile_rofd(opsmf), &rep, &fd);
	if (!err && (rep.flags & ZYG_F_VDSO_LEFT))
		log_info("the host seals its vDSO: stubs keep it, outside of guest addresses");
	return err;
}

int pool_set_contexts(int fd)
{
	struct zyg_req req = { .kind = fd >= 0 ? ZYG_TRAP : ZYG_PLAIN };
	struct zyg_rep rep;
	int none, err = zyg_call(&req, fd, &rep, &none);

	return err ? err : rep.res;
}

int pool_start(void)
{
	return host_start_thread(pool_thread);
}
