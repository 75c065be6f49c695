// SPDX-License-Identifier: Apache-2.0
/*
 * setitimer(2): ITIMER_REAL on a kernel timer, ITIMER_VIRTUAL and ITIMER_PROF on CPU time (cputimer.c). They
 * survive exec and aren't inherited by fork, so they hang on the thread group, made on first use.
 *
 * Lock order: init_mu; itimers.mu (RANK_TIMER) > timer queue. Signals are sent with neither held.
 */
#include "sentry/time/itimer.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "base/alloc.h"
#include "sentry/kernel/task.h"
#include "sentry/state/state.h"
#include "sentry/time/clock.h"
#include "sentry/time/cputimer.h"
#include "sentry/time/ktimer.h"

struct cpu_itimer {
	struct cputimer ct;
	int64_t interval_ns;
	int sig;
};

struct itimers {
	struct mutex mu;
	struct tgroup *tg;      /* borrowed: itimers_exit() comes before its end */
	struct ktimer real;
	int64_t deadline_ns;    /* (mu) 0: off */
	int64_t interval_ns;    /* (mu) */
	struct cpu_itimer cpu[CPUTIMER_KIND_COUNT];
};

static void real_fired(struct ktimer *kt)
{
	struct itimers *it = container_of(kt, struct itimers, real);
	struct l_siginfo info = { .si_signo = SIGALRM, .si_code = SI_KERNEL };
	int64_t now = clock_monotonic_ns();

	mutex_lock(&it->mu);
	if (!it->deadline_ns || now < it->deadline_ns) { /* changed meanwhile */
		mutex_unlock(&it->mu);
		return;
	}
	if (it->interval_ns) {
		/* missed periods are skipped: SIGALRM coalesces anyway */
		it->deadline_ns += it->interval_ns *
				   (1 + (now - it->deadline_ns) / it->interval_ns);
		ktimer_arm(kt, it->deadline_ns);
	} else {
		it->deadline_ns = 0;
	}
	mutex_unlock(&it->mu);
	(void)signal_send_tgroup(it->tg, SIGALRM, &info);
}

/* Context: cputimers.mu, which ranks below the signal locks. */
static int cpu_fired(struct cputimer *ct, struct tgroup *tg, int64_t now_ns)
{
	struct cpu_itimer *ci = container_of(ct, struct cpu_itimer, ct);

	(void)tg;
	if (ci->interval_ns)
		ct->expires_ns = now_ns + ci->interval_ns;
	else
		ct->expires_ns = INT64_MAX;
	return ci->sig;
}

static struct itimers *itimers_create(struct tgroup *tg)
{
	struct itimers *it = kzalloc(sizeof(*it));

	mutex_init(&it->mu, RANK_TIMER);
	it->tg = tg;
	ktimer_init(&it->real, CLOCK_MONOTONIC, real_fired);
	cputimer_init(&it->cpu[CPUTIMER_VIRT].ct, CPUTIMER_VIRT, NULL, cpu_fired);
	cputimer_init(&it->cpu[CPUTIMER_PROF].ct, CPUTIMER_PROF, NULL, cpu_fired);
	it->cpu[CPUTIMER_VIRT].sig = SIGVTALRM;
	it->cpu[CPUTIMER_PROF].sig = SIGPROF;
	return it;
}

/* NULL only if there are none and @create is false. */
static struct itimers *itimers_of(struct tgroup *tg, bool create)
{
	static pthread_mutex_t init_mu = PTHREAD_MUTEX_INITIALIZER;
	struct itimers *it = __atomic_load_n(&tg->itimers, __ATOMIC_ACQUIRE);

	if (it || !create)
		return it;
	pthread_mutex_lock(&init_mu); /* host: futex */
	it = tg->itimers;
	if (!it) {
		it = itimers_create(tg);
		__atomic_store_n(&tg->itimers, it, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&init_mu);
	return it;
}

static int64_t remaining(int64_t deadline, int64_t now)
{
	/* an expiry that is due but hasn't fired isn't reported as disarmed */
	return deadline > now ? deadline - now : 1000;
}

static enum cputimer_kind kind_of(int which)
{
	return which == ITIMER_VIRTUAL ? CPUTIMER_VIRT : CPUTIMER_PROF;
}

void itimer_get(struct tgroup *tg, int which, struct itimer_value *ret)
{
	struct itimers *it = itimers_of(tg, false);

	memset(ret, 0, sizeof(*ret));
	if (!it)
		return;
	if (which == ITIMER_REAL) {
		AUTO_LOCK(&it->mu);

		if (it->deadline_ns)
			ret->value_ns = remaining(it->deadline_ns, clock_monotonic_ns());
		ret->interval_ns = it->interval_ns;
		return;
	}
	struct cpu_itimer *ci = &it->cpu[kind_of(which)];
	int64_t expires = cputimer_get(tg, &ci->ct);

	ret->interval_ns = ci->interval_ns;
	if (expires != INT64_MAX)
		ret->value_ns = remaining(expires, tgroup_cpu_ns(tg, ci->ct.kind));
}

void itimer_set(struct tgroup *tg, int which, const struct itimer_value *new,
		struct itimer_value *ret_old)
{
	struct itimers *it = itimers_of(tg, new->value_ns != 0);

	itimer_get(tg, which, ret_old);
	if (!it)
		return;
	if (which == ITIMER_REAL) {
		AUTO_LOCK(&it->mu);

		it->interval_ns = new->interval_ns;
		if (new->value_ns) {
			it->deadline_ns = deadline_after(clock_monotonic_ns(), new->value_ns);
			ktimer_arm(&it->real, it->deadline_ns);
		} else {
			it->deadline_ns = 0;
			ktimer_disarm(&it->real);
		}
		return;
	}
	struct cpu_itimer *ci = &it->cpu[kind_of(which)];

	cputimer_set(tg, &ci->ct, INT64_MAX);
	ci->interval_ns = new->interval_ns;
	if (new->value_ns)
		cputimer_set(tg, &ci->ct,
			     deadline_after(tgroup_cpu_ns(tg, ci->ct.kind), new->value_ns));
}

void itimers_exit(struct tgroup *tg)
{
	struct itimers *it = tg->itimers;

	if (!it)
		return;
	mutex_lock(&it->mu);
	it->deadline_ns = 0;
	mutex_unlock(&it->mu);
	ktimer_cancel(&it->real);
	cputimer_remove(tg, &it->cpu[CPUTIMER_VIRT].ct);
	cputimer_remove(tg, &it->cpu[CPUTIMER_PROF].ct);
	__atomic_store_n(&tg->itimers, NULL, __ATOMIC_RELEASE);
	mutex_fini(&it->mu);
	free(it);
}

/* ---- saving and loading ---- */

void itimers_fields(struct state *s, struct tgroup *tg)
{
	struct itimers *it = tg->itimers;
	bool any = it != NULL;

	state_bool(s, &any);
	if (!any)
		return;
	if (state_loading(s))
		it = tg->itimers = itimers_create(tg);
	state_range_i64(s, &it->deadline_ns, 0, INT64_MAX);
	state_range_i64(s, &it->interval_ns, 0, INT64_MAX);
	for (int k = 0; k < CPUTIMER_KIND_COUNT; k++) {
		state_range_i64(s, &it->cpu[k].ct.expires_ns, 0, INT64_MAX);
		state_range_i64(s, &it->cpu[k].interval_ns, 0, INT64_MAX);
	}
}

void itimers_resume(struct tgroup *tg)
{
	struct itimers *it = tg->itimers;

	if (!it)
		return;
	if (it->deadline_ns)
		ktimer_arm(&it->real, it->deadline_ns);
	for (int k = 0; k < CPUTIMER_KIND_COUNT; k++)
		if (it->cpu[k].ct.expires_ns != INT64_MAX)
			cputimer_set(tg, &it->cpu[k].ct, it->cpu[k].ct.expires_ns);
}
