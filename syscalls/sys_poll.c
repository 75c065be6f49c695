// SPDX-License-Identifier: Apache-2.0
/*
 * poll, ppoll, select, pselect6 (man 2 poll, 2 select).
 *
 * poll restarts through the restart block, so that its deadline stays; the others return
 * -ERESTARTNOHAND and write the remaining time back, as Linux does.
 */
#include "syscalls/sys_poll.h"

#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/personality.h>

#include "base/alloc.h"
#include "sentry/kernel/freeze.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/poll.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/sys.h"

struct l_pollfd {
	int32_t fd;
	int16_t events, revents;
};
_Static_assert(sizeof(struct l_pollfd) == 8, "struct pollfd is 8 bytes");

#define SELECT_MAX_FDS (1 << 20)

/* ---------------------------------------------------------------- temporary signal mask */

long temp_mask_begin(struct task *t, gaddr_t sigmask, size_t size)
{
	sigset_g set;

	if (gaddr_is_null(sigmask))
		return 0;
	if (size != sizeof(set))
		return -EINVAL;
	if (copyin_obj(t, &set, sigmask))
		return -EFAULT;
	signal_set_temp_mask(t, set & ~SIGSET_UNBLOCKABLE);
	return 0;
}

void temp_mask_end(struct task *t, gaddr_t sigmask, long ret)
{
	bool interrupted = ret == -ERESTARTNOHAND || ret == -EINTR || ret == -ERESTARTSYS;

	if (!gaddr_is_null(sigmask) && !interrupted)
		signal_restore_temp_mask(t);
}

/* ---------------------------------------------------------------- poll */

/* Fills @ents from @fds. Number of entries that are answered already (POLLNVAL). */
static long poll_open(struct task *t, struct l_pollfd *fds, struct poll_ent *ents, unsigned n)
{
	long bad = 0;

	for (unsigned i = 0; i < n; i++) {
		struct poll_ent *e = &ents[i];

		*e = (struct poll_ent){ .events = (uint16_t)fds[i].events };
		if (fds[i].fd < 0)
			continue;
		e->file = fd_get(t, fds[i].fd);
		if (!e->file) {
			e->revents = POLLNVAL;
			bad++;
		}
	}
	return bad;
}

static int poll_writeback(struct task *t, gaddr_t ufds, const struct poll_ent *ents, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int16_t rev = (int16_t)ents[i].revents;
		uint64_t off = i * sizeof(struct l_pollfd) + offsetof(struct l_pollfd, revents);

		if (copyout_obj(t, gaddr_off(ufds, off), &rev))
			return -EFAULT;
	}
	return 0;
}

/* Number of ready descriptors, or -ERESTARTSYS, -EINVAL, -EFAULT, -ENOMEM. */
static long do_poll(struct task *t, gaddr_t ufds, uint64_t nfds, int64_t deadline_ns)
{
	struct poll_ent few[POLL_STACK_ENTRIES], *ents = few;
	struct l_pollfd few_fds[POLL_STACK_ENTRIES], *fds = few_fds;
	void AUTO_FREE *heap = NULL;
	unsigned n;
	long r;

	if (nfds > task_rlimit(t, RLIMIT_NOFILE) || nfds > SELECT_MAX_FDS)
		return -EINVAL;
	n = (unsigned)nfds;
	if (n > POLL_STACK_ENTRIES) {
		heap = kmalloc_guest(n * (sizeof(*ents) + sizeof(*fds)));
		if (!heap)
			return -ENOMEM;
		ents = heap;
		fds = (struct l_pollfd *)(void *)(ents + n);
	}
	if (n && copyin(t, fds, ufds, n * sizeof(*fds)))
		return -EFAULT;
	r = poll_wait(t, ents, n, poll_open(t, fds, ents, n), deadline_ns);
	if (poll_writeback(t, ufds, ents, n))
		r = -EFAULT;
	poll_put(ents, n);
	return r;
}

static long poll_restartable(struct task *t, gaddr_t fds, uint64_t nfds, int64_t deadline_ns)
{
	long r = do_poll(t, fds, nfds, deadline_ns);

	if (r != -ERESTARTSYS)
		return r;
	t->restart.kind = RESTART_POLL;
	t->restart.poll.fds = fds;
	t->restart.poll.nfds = nfds;
	t->restart.poll.deadline_ns = deadline_ns;
	return -ERESTART_RESTARTBLOCK;
}

long poll_restart(struct task *t)
{
	return poll_restartable(t, t->restart.poll.fds, t->restart.poll.nfds,
				t->restart.poll.deadline_ns);
}

long sys_poll(struct task *t, const struct sysargs *a)
{
	int ms = arg_int(a, 2);
	int64_t deadline = DEADLINE_NONE;

	if (ms == 0)
		deadline = 0;
	else if (ms > 0)
		deadline = task_call_deadline(
			t, deadline_after(clock_monotonic_ns(), ms * 1000000LL));
	return poll_restartable(t, arg_gaddr(a, 0), arg_u32(a, 1), deadline);
}

/* ---------------------------------------------------------------- timeouts that come back */

struct timeout {
	gaddr_t uaddr; /* null: wait for ever */
	bool timeval;
	int64_t deadline_ns;
};

static long timeout_in(struct task *t, struct timeout *to)
{
	struct l_timespec ts;
	struct l_timeval tv;
	int64_t rel;

	to->deadline_ns = DEADLINE_NONE;
	if (gaddr_is_null(to->uaddr))
		return 0;
	if (to->timeval) {
		if (copyin_obj(t, &tv, to->uaddr))
			return -EFAULT;
		/* select takes microseconds beyond a second */
		if (tv.tv_sec < 0 || tv.tv_usec < 0)
			return -EINVAL;
		if (__builtin_add_overflow(tv.tv_sec, tv.tv_usec / 1000000, &ts.tv_sec))
			ts.tv_sec = INT64_MAX;
		ts.tv_nsec = tv.tv_usec % 1000000 * 1000;
	} else {
		if (copyin_obj(t, &ts, to->uaddr))
			return -EFAULT;
	}
	if (!timespec_valid(&ts))
		return -EINVAL;
	rel = timespec_to_ns(&ts);
	if (rel)
		to->deadline_ns = task_call_deadline(t, deadline_after(clock_monotonic_ns(), rel));
	else
		to->deadline_ns = 0;
	return 0;
}

/* Writes what is left. If that fails an interrupted call can't be restarted with the right timeout. */
static long timeout_out(struct task *t, const struct timeout *to, long ret)
{
	int64_t left = 0;
	int err;

	if (ret == -ERESTARTSYS)
		ret = -ERESTARTNOHAND;
	if (gaddr_is_null(to->uaddr) || (t->personality & STICKY_TIMEOUTS))
		return ret == -ERESTARTNOHAND && (t->personality & STICKY_TIMEOUTS) ? -EINTR : ret;
	if (to->deadline_ns)
		left = MAX(to->deadline_ns - clock_monotonic_ns(), (int64_t)0);
	if (to->timeval) {
		struct l_timeval tv = ns_to_timeval(left);

		err = copyout_obj(t, to->uaddr, &tv);
	} else {
		struct l_timespec ts = ns_to_timespec(left);

		err = copyout_obj(t, to->uaddr, &ts);
	}
	return err && ret == -ERESTARTNOHAND ? -EINTR : ret;
}

long sys_ppoll(struct task *t, const struct sysargs *a)
{
	struct timeout to = { .uaddr = arg_gaddr(a, 2) };
	gaddr_t mask = arg_gaddr(a, 3);
	long r = timeout_in(t, &to);

	if (r == 0)
		r = temp_mask_begin(t, mask, arg_size(a, 4));
	if (r)
		return r;
	r = do_poll(t, arg_gaddr(a, 0), arg_u32(a, 1), to.deadline_ns);
	r = timeout_out(t, &to, r);
	temp_mask_end(t, mask, r);
	return r;
}

/* ---------------------------------------------------------------- select */

#define SEL_IN (EPOLLRDNORM | EPOLLRDBAND | EPOLLIN | EPOLLHUP | EPOLLERR)
#define SEL_OUT (EPOLLWRBAND | EPOLLWRNORM | EPOLLOUT | EPOLLERR)
#define SEL_EX EPOLLPRI

static const uint32_t sel_events[3] = { SEL_IN, SEL_OUT, SEL_EX };

struct sel {
	unsigned nfds, words;
	gaddr_t uset[3];
	uint64_t *set[3]; /* as given, then as answered; NULL if not given */
	struct poll_ent *ents;
	int *fds;
	unsigned n;
};

static bool sel_test(const struct sel *s, int which, unsigned fd)
{
	return s->set[which] && (s->set[which][fd / 64] >> (fd % 64) & 1);
}

static int sel_copyin(struct task *t, struct sel *s, uint64_t *mem)
{
	for (int i = 0; i < 3; i++) {
		if (gaddr_is_null(s->uset[i]))
			continue;
		s->set[i] = mem + (size_t)i * s->words;
		if (s->words && copyin(t, s->set[i], s->uset[i], s->words * sizeof(uint64_t)))
			return -EFAULT;
	}
	return 0;
}

static unsigned sel_count(const struct sel *s)
{
	unsigned n = 0;

	for (unsigned w = 0; w < s->words; w++) {
		uint64_t any = 0;

		for (int i = 0; i < 3; i++)
			any |= s->set[i] ? s->set[i][w] : 0;
		n += (unsigned)__builtin_popcountll(any);
	}
	return n;
}

/* Takes a reference on each file named. 0 or -EBADF. */
static int sel_open(struct task *t, struct sel *s)
{
	for (unsigned fd = 0; fd < s->nfds; fd++) {
		uint32_t events = 0;

		if (fd % 64 == 0) { /* skip empty words */
			unsigned w = fd / 64;

			if (!((s->set[0] ? s->set[0][w] : 0) | (s->set[1] ? s->set[1][w] : 0) |
			      (s->set[2] ? s->set[2][w] : 0))) {
				fd += 63;
				continue;
			}
		}
		for (int i = 0; i < 3; i++)
			if (sel_test(s, i, fd))
				events |= sel_events[i];
		if (!events)
			continue;
		s->ents[s->n] = (struct poll_ent){ .file = fd_get(t, (int)fd), .events = events };
		if (!s->ents[s->n].file)
			return -EBADF;
		s->fds[s->n++] = (int)fd;
	}
	return 0;
}

/* Turns revents into the answer sets. Number of bits set. */
static long sel_answer(struct sel *s)
{
	long bits = 0;

	for (unsigned k = 0; k < s->n; k++) {
		unsigned fd = (unsigned)s->fds[k];

		for (int i = 0; i < 3; i++) {
			if (!sel_test(s, i, fd))
				continue;
			if (s->ents[k].revents & sel_events[i])
				bits++;
			else
				s->set[i][fd / 64] &= ~(1ULL << (fd % 64));
		}
	}
	return bits;
}

/* EPOLLERR and EPOLLHUP alone may not be what a set asked for (only exceptfds, say): such an entry isn't
 * ready, and mustn't end the wait. They are masked by asking again with the right events. */
static long sel_wait(struct task *t, struct sel *s, int64_t deadline_ns)
{
	long r, bits = 0;

	r = poll_wait(t, s->ents, s->n, 0, deadline_ns);
	if (r < 0)
		return r;
	for (unsigned k = 0; k < s->n; k++)
		bits += (s->ents[k].revents & s->ents[k].events) != 0;
	if (r == 0 || bits || deadline_ns == 0)
		return 0;
	/* Only hang-ups nobody asked about: drop these files from the set and wait on. */
	for (unsigned k = 0; k < s->n; k++) {
		if (s->ents[k].revents && s->ents[k].file) {
			file_put(s->ents[k].file);
			s->ents[k].file = NULL;
			s->ents[k].revents = 0;
		}
	}
	return sel_wait(t, s, deadline_ns);
}

static long do_select(struct task *t, int nfds, const gaddr_t usets[3], int64_t deadline_ns)
{
	struct sel s = { 0 };
	uint64_t few[3 * 16];
	void AUTO_FREE *sets_heap = NULL;
	void AUTO_FREE *ents_heap = NULL;
	uint64_t *mem = few;
	unsigned n;
	long r, bits;

	if (nfds < 0)
		return -EINVAL;
	s.nfds = (unsigned)MIN(nfds, SELECT_MAX_FDS);
	s.words = (s.nfds + 63) / 64;
	memcpy(s.uset, usets, sizeof(s.uset));
	if (s.words > 16) {
		sets_heap = kmalloc_guest(3UL * s.words * sizeof(uint64_t));
		if (!sets_heap)
			return -ENOMEM;
		mem = sets_heap;
	}
	if (sel_copyin(t, &s, mem))
		return -EFAULT;
	n = sel_count(&s);
	ents_heap = kmalloc_guest(n * (sizeof(struct poll_ent) + sizeof(int)) + 1);
	if (!ents_heap)
		return -ENOMEM;
	s.ents = ents_heap;
	s.fds = (int *)(void *)(s.ents + n);
	r = sel_open(t, &s);
	if (r == 0)
		r = sel_wait(t, &s, deadline_ns);
	bits = r == 0 ? sel_answer(&s) : 0;
	poll_put(s.ents, s.n);
	if (r < 0)
		return r;
	for (int i = 0; i < 3; i++)
		if (s.set[i] && s.words &&
		    copyout(t, s.uset[i], s.set[i], s.words * sizeof(uint64_t)))
			return -EFAULT;
	return bits;
}

long sys_select(struct task *t, const struct sysargs *a)
{
	const gaddr_t sets[3] = { arg_gaddr(a, 1), arg_gaddr(a, 2), arg_gaddr(a, 3) };
	struct timeout to = { .uaddr = arg_gaddr(a, 4), .timeval = true };
	long r = timeout_in(t, &to);

	if (r)
		return r;
	r = do_select(t, arg_int(a, 0), sets, to.deadline_ns);
	return timeout_out(t, &to, r);
}

long sys_pselect6(struct task *t, const struct sysargs *a)
{
	const gaddr_t sets[3] = { arg_gaddr(a, 1), arg_gaddr(a, 2), arg_gaddr(a, 3) };
	struct timeout to = { .uaddr = arg_gaddr(a, 4) };
	struct {
		uint64_t addr, size;
	} sig = { 0, 0 };
	long r;

	if (a->v[5] && copyin_obj(t, &sig, arg_gaddr(a, 5)))
		return -EFAULT;
	r = timeout_in(t, &to);
	if (r == 0)
		r = temp_mask_begin(t, gaddr(sig.addr), sig.size);
	if (r)
		return r;
	r = do_select(t, arg_int(a, 0), sets, to.deadline_ns);
	r = timeout_out(t, &to, r);
	temp_mask_end(t, gaddr(sig.addr), r);
	return r;
}
