// SPDX-License-Identifier: Apache-2.0
/*
 * Does the platform work here? A host may refuse one of the calls that stubs make (a filter of whoever
 * started us, a sealed mapping where contexts go) or answer them in ways of its own. So the first stub must
 * show everything that later ones rely on before the platform is taken: the filters' installation, a refused call
 * that comes back as a signal on the shared stack, and a descriptor that the mapper receives and
 * maps. It is then the first of the pool, so it costs next to nothing.
 *
 * Runs before any thread of the platform does, and leaves nothing behind when it fails.
 */
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "platform/trap/trap_priv.h"

#define TRIES   100000 /* looks at a stub that starts ... */
#define PAUSE   100000 /* ... in ns: 10 s in all */
#define SOME_VA 0x10000

static bool is_dead(const struct host_stub *s)
{
	siginfo_t si = { 0 };

	/* host: waitid. It stays a zombie. */
	return waitid(P_PID, (id_t)s->pid, &si, WEXITED | WNOHANG | WNOWAIT | __WALL) || si.si_pid;
}

/* Its first thread hands over by making a call that isn't allowed. */
static int first_trap(const struct host_stub *s)
{
	const struct timespec pause = { .tv_nsec = PAUSE };
	const struct trap_page *p = (const void *)s->pages;
	const struct trap_frame *f;
	uint64_t off;

	for (unsigned i = 0; atomic_load(&p->turn) != TURN_SENTRY; i++) {
		if (i == TRIES || is_dead(s))
			return -EPERM;
		nanosleep(&pause, NULL); /* host: clock_nanosleep */
	}
	off = READ_ONCE(p->frame) - STUB_CTX;
	if (off < STUB_CTX_PAGE || off > STUB_CTX_SIZE - sizeof(*f))
		return -EPROTO;
	f = (const void *)(s->pages + off);
	return f->info.si_signo == SIGSYS && f->info.si_syscall == SYS_getpid ? 0 : -EPROTO;
}

static int try_mapper(struct host_stub *s)
{
	const struct stub_op ops[] = {
		{ .nr = OP_RECV_FD },
		{ .nr = SYS_mmap,
		  .a = { SOME_VA, STUB_OPS_SIZE, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
			 STUB_FIRST_MAPFD, s->ops_off } },
		{ .nr = SYS_munmap, .a = { SOME_VA, STUB_OPS_SIZE } },
		{ .nr = SYS_close, .a = { STUB_FIRST_MAPFD } },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(ops); i++)
		s->ops[i] = ops[i];
	if (!host_send_fd(s, pool_ops_fd()))
		return -EIO;
	return mapper_run(s, ARRAY_SIZE(ops)) ? 0 : -EPROTO;
}

/* 0, or -errno: guests can't be run this way here. */
int trap_probe(void)
{
	struct host_stub s = { 0 };
	int err = pool_make(&s);

	if (err)
		return err;
	err = first_trap(&s);
	if (!err)
		err = try_mapper(&s);
	if (err)
		pool_discard(&s);
	else
		pool_keep(&s);
	return err;
}
