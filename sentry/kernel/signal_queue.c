// SPDX-License-Identifier: Apache-2.0
/*
 * Queues of pending signals, sighands, and who pays for queued entries.
 *
 * A standard signal is pending once at most; a real-time signal queues as often as it is sent, up to
 * RLIMIT_SIGPENDING entries for each real user (man 2 setrlimit). An entry is needed only for the siginfo:
 * a standard signal whose entry can't be had is still delivered, with an empty one.
 *
 * Sighands are type-stable: a freed one goes to a free list and its mutex stays valid. So a sender may
 * lock what it has read from tgroup.sighand and check afterwards whether that is still the one.
 *
 * Lock order: sighand.mu > users.mu (RANK_NS); free_mu (RANK_NS) is a leaf.
 */
#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/signal_priv.h"
#include "sentry/time/posix_timer.h"

/* uthash is used on keys of ours only; its malloc failure aborts, as kzalloc would. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wcast-qual"
#include <uthash.h>

struct sig_user {
	uid_t uid;
	unsigned queued;
	UT_hash_handle hh;
};

static struct {
	pthread_mutex_t mu; /* leaf below sighand.mu; statically initialised, hence no rank */
	struct sig_user *table;
} users = { .mu = PTHREAD_MUTEX_INITIALIZER };

static struct sig_user *user_find(uid_t uid)
{
	struct sig_user *u = NULL;

	HASH_FIND(hh, users.table, &uid, sizeof(uid), u);
	return u;
}

static void user_insert(struct sig_user *u)
{
	HASH_ADD(hh, users.table, uid, sizeof(u->uid), u);
}

static void user_remove(struct sig_user *u)
{
	HASH_DEL(users.table, u);
	free(u);
}
#pragma GCC diagnostic pop

/* One more entry for @uid unless it has @limit already. */
static bool user_charge(uid_t uid, uint64_t limit)
{
	struct sig_user *u;
	bool ok = true;

	pthread_mutex_lock(&users.mu); /* host: futex */
	u = user_find(uid);
	if (u && u->queued >= limit) {
		ok = false;
	} else if (!u && limit == 0) {
		ok = false;
	} else {
		if (!u) {
			u = kzalloc(sizeof(*u));
			u->uid = uid;
			user_insert(u);
		}
		u->queued++;
	}
	pthread_mutex_unlock(&users.mu);
	return ok;
}

static void user_uncharge(uid_t uid)
{
	struct sig_user *u;

	pthread_mutex_lock(&users.mu); /* host: futex */
	u = user_find(uid);
	if (u && --u->queued == 0)
		user_remove(u);
	pthread_mutex_unlock(&users.mu);
}

unsigned signal_queued_count(struct task *t)
{
	struct cred *c = task_cred_get(t);
	struct sig_user *u;
	unsigned n;

	pthread_mutex_lock(&users.mu); /* host: futex */
	u = user_find(c->uid);
	n = u ? u->queued : 0;
	pthread_mutex_unlock(&users.mu);
	cred_put(c);
	return n;
}

int sigqueue_charge(struct task *t, struct sigqueue_entry *e)
{
	struct cred *c = task_cred_get(t);

	if (!user_charge(c->uid, task_rlimit(t, RLIMIT_SIGPENDING))) {
		cred_put(c);
		return -EAGAIN;
	}
	e->charged = c;
	return 0;
}

void sigqueue_charge_loaded(struct sigqueue_entry *e)
{
	(void)user_charge(e->charged->uid, UINT64_MAX); /* no limit: can't fail */
}

void sigqueue_uncharge(struct sigqueue_entry *e)
{
	if (!e->charged)
		return;
	user_uncharge(e->charged->uid);
	cred_put(e->charged);
	e->charged = NULL;
}

struct sigqueue_entry *sigqueue_alloc(struct task *t, int sig, bool override_limit)
{
	struct cred *c = task_cred_get(t);
	struct sigqueue_entry *e;

	(void)sig;
	if (!user_charge(c->uid, override_limit ? UINT64_MAX
						: task_rlimit(t, RLIMIT_SIGPENDING))) {
		cred_put(c);
		return NULL;
	}
	e = kzalloc(sizeof(*e));
	list_init(&e->node);
	e->charged = c;
	return e;
}

/* Entries of timers belong to their timers. */
void sigqueue_free(struct sigqueue_entry *e)
{
	if (e->timer)
		return;
	sigqueue_uncharge(e);
	free(e);
}

void sigpending_init(struct sigpending *p)
{
	p->set = 0;
	list_init(&p->queue);
}

void sigpending_remove(struct sigpending *p, sigset_g mask)
{
	struct sigqueue_entry *e, *tmp;

	if (!(p->set & mask))
		return;
	p->set &= ~mask;
	list_for_each_safe(e, tmp, &p->queue, node) {
		if (mask & SIGBIT(e->info.si_signo)) {
			list_del(&e->node);
			sigqueue_free(e);
		}
	}
}

void sigpending_flush(struct sigpending *p)
{
	sigpending_remove(p, ~0ULL);
}

void sigpending_detach(struct sigpending *p, struct sigqueue_entry *e)
{
	struct sigqueue_entry *i;

	list_del(&e->node);
	list_for_each(i, &p->queue, node)
		if (i->info.si_signo == e->info.si_signo)
			return;
	p->set &= ~SIGBIT(e->info.si_signo);
}

void sigpending_collect(struct sigpending *p, int sig, struct l_siginfo *info,
			struct posix_timer **timer)
{
	struct sigqueue_entry *e, *tmp, *first = NULL;
	bool more = false;

	*timer = NULL;
	list_for_each_safe(e, tmp, &p->queue, node) {
		if (e->info.si_signo != sig)
			continue;
		if (first) {
			more = true;
			break;
		}
		first = e;
	}
	if (!more)
		p->set &= ~SIGBIT(sig);
	if (!first) { /* sent without an entry: SIGKILL, or over the limit */
		memset(info, 0, sizeof(*info));
		info->si_signo = sig;
		info->si_code = SI_USER;
		return;
	}
	list_del(&first->node);
	*info = first->info;
	*timer = first->timer;
	sigqueue_free(first);
}

int sigset_next(sigset_g set, sigset_g blocked)
{
	set &= ~blocked;
	if (!set)
		return 0;
	if (set & SIGSET_SYNCHRONOUS)
		set &= SIGSET_SYNCHRONOUS;
	return __builtin_ctzll(set) + 1;
}

int signal_dequeue_locked(struct task *t, sigset_g mask, struct l_siginfo *ret)
{
	struct posix_timer *timer = NULL;
	struct sigpending *p = &t->pending;
	int sig = sigset_next(p->set, ~mask);

	if (!sig) {
		p = &t->tg->pending;
		sig = sigset_next(p->set, ~mask);
		if (!sig)
			return 0;
	}
	sigpending_collect(p, sig, ret, &timer);
	if (timer && !posix_timer_dequeued(timer, ret)) /* deleted meanwhile: a plain signal still */
		ret->timer.sys_private = 0;
	if (ret->si_code == SI_TIMER)
		ret->timer.sys_private = 0;
	return sig;
}

int signal_dequeue(struct task *t, sigset_g mask, struct l_siginfo *ret)
{
	struct sighand *sh = signal_lock(t);
	int sig;

	if (!sh)
		return 0;
	sig = signal_dequeue_locked(t, mask, ret);
	if (sig)
		signal_recalc_locked(t);
	signal_unlock(sh);
	return sig;
}

/* ---- sighands ---- */

static struct {
	pthread_mutex_t mu;
	struct sighand *head; /* linked through action[0].handler */
} free_sighands = { .mu = PTHREAD_MUTEX_INITIALIZER };

struct sighand *sighand_create(void)
{
	struct sighand *s;

	pthread_mutex_lock(&free_sighands.mu); /* host: futex */
	s = free_sighands.head;
	if (s)
		free_sighands.head = (struct sighand *)(uintptr_t)s->action[0].handler;
	pthread_mutex_unlock(&free_sighands.mu);
	if (!s) {
		s = kzalloc(sizeof(*s));
		mutex_init(&s->mu, RANK_SIGHAND);
	}
	memset(s->action, 0, sizeof(s->action));
	ref_init(&s->ref);
	return s;
}

struct sighand *sighand_dup(struct sighand *old)
{
	struct sighand *s = sighand_create();
	AUTO_LOCK(&old->mu);

	memcpy(s->action, old->action, sizeof(s->action));
	return s;
}

struct sighand *sighand_get(struct sighand *s)
{
	ref_get(&s->ref);
	return s;
}

void sighand_put(struct sighand *s)
{
	if (!s || !ref_put(&s->ref))
		return;
	pthread_mutex_lock(&free_sighands.mu); /* host: futex */
	s->action[0].handler = (uint64_t)(uintptr_t)free_sighands.head;
	free_sighands.head = s;
	pthread_mutex_unlock(&free_sighands.mu);
}

struct sighand *signal_lock(struct task *t)
{
	for (;;) {
		struct sighand *sh = __atomic_load_n(&t->sighand, __ATOMIC_ACQUIRE);

		if (!sh)
			return NULL;
		mutex_lock(&sh->mu);
		if (likely(sh == __atomic_load_n(&t->sighand, __ATOMIC_ACQUIRE)))
			return sh;
		mutex_unlock(&sh->mu);
	}
}

struct sighand *signal_lock_tgroup(struct tgroup *tg)
{
	for (;;) {
		struct sighand *sh = __atomic_load_n(&tg->sighand, __ATOMIC_ACQUIRE);

		if (!sh)
			return NULL;
		mutex_lock(&sh->mu);
		if (likely(sh == __atomic_load_n(&tg->sighand, __ATOMIC_ACQUIRE)))
			return sh;
		mutex_unlock(&sh->mu);
	}
}

void signal_unlock(struct sighand *sh)
{
	mutex_unlock(&sh->mu);
}
