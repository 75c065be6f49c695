// SPDX-License-Identifier: Apache-2.0
/* Resource limits and usage: man 2 getrlimit, getrusage, times. */
#include <linux/capability.h>
#include <string.h>
#include <sys/resource.h>

#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/mm/mm.h"
#include "sentry/time/clock.h"
#include "sentry/time/cputimer.h"
#include "syscalls/rusage.h"
#include "syscalls/sys.h"

#define NR_OPEN_MAX (1024 * 1024) /* fs.nr_open */
#define NS_PER_TICK (NSEC_PER_SEC / 100)

/* 0, -EINVAL, -EPERM. @old may be NULL. */
static long change_limit(struct task *t, struct tgroup *tg, unsigned res,
			 const struct rlimit_g *new, struct rlimit_g *old)
{
	struct rlimit_g *r;
	bool may = cred_capable_in(t->cred, &init_userns, CAP_SYS_RESOURCE);
	long err = 0;

	if (res >= RLIM_COUNT)
		return -EINVAL;
	if (new &&new->cur > new->max)
		return -EINVAL;
	if (new &&res == RLIMIT_NOFILE &&new->max > NR_OPEN_MAX)
		return -EPERM;
	mutex_lock(&tg->rlim_mu);
	r = &tg->rlim[res];
	if (old)
		*old = *r;
	if (new &&new->max > r->max && !may)
		err = -EPERM;
	else if (new)
		*r = *new;
	mutex_unlock(&tg->rlim_mu);
	if (!err && new &&res == RLIMIT_CPU)
		cputimer_rlimit_changed(tg);
	return err;
}

long sys_getrlimit(struct task *t, const struct sysargs *a)
{
	struct rlimit_g r;
	long err = change_limit(t, t->tg, arg_u32(a, 0), NULL, &r);

	return err ? err : copyout_obj(t, arg_gaddr(a, 1), &r);
}

long sys_setrlimit(struct task *t, const struct sysargs *a)
{
	struct rlimit_g r;

	if (copyin_obj(t, &r, arg_gaddr(a, 1)))
		return -EFAULT;
	return change_limit(t, t->tg, arg_u32(a, 0), &r, NULL);
}

/* man 2 prlimit: same real ids all over, or CAP_SYS_RESOURCE in the target's user namespace. */
static int may_prlimit(struct task *t, struct task *target)
{
	const struct cred *c = t->cred;
	struct cred *tc;
	bool ok;

	if (t->tg == target->tg)
		return 0;
	tc = task_cred_get(target);
	ok = (c->uid == tc->euid && c->uid == tc->suid && c->uid == tc->uid &&
	      c->gid == tc->egid && c->gid == tc->sgid && c->gid == tc->gid) ||
	     cred_capable_in(c, tc->userns, CAP_SYS_RESOURCE);
	cred_put(tc);
	return ok ? 0 : -EPERM;
}

long sys_prlimit64(struct task *t, const struct sysargs *a)
{
	struct rlimit_g new, old;
	bool set = !gaddr_is_null(arg_gaddr(a, 2)), get = !gaddr_is_null(arg_gaddr(a, 3));
	struct task *target;
	long err;

	if (arg_u32(a, 1) >= RLIM_COUNT)
		return -EINVAL;
	if (set && copyin_obj(t, &new, arg_gaddr(a, 2)))
		return -EFAULT;
	target = arg_int(a, 0) ? task_find(t, arg_int(a, 0)) : task_get(t);
	if (!target)
		return -ESRCH;
	err = may_prlimit(t, target);
	if (!err)
		err = change_limit(t, target->tg, arg_u32(a, 1), set ? &new : NULL, &old);
	task_put(target);
	if (!err && get && copyout_obj(t, arg_gaddr(a, 3), &old))
		err = -EFAULT;
	return err;
}

void usage_to_rusage(const struct task_usage *u, struct l_rusage *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->utime = ns_to_timeval((int64_t)u->utime_ns);
	ret->stime = ns_to_timeval((int64_t)u->stime_ns);
	ret->maxrss = (int64_t)u->maxrss_kb;
	ret->minflt = (int64_t)u->minflt;
	ret->majflt = (int64_t)u->majflt;
	ret->inblock = (int64_t)u->inblock;
	ret->oublock = (int64_t)u->oublock;
	ret->nvcsw = (int64_t)u->nvcsw;
	ret->nivcsw = (int64_t)u->nivcsw;
}

static void children_usage(struct tgroup *tg, struct task_usage *ret)
{
	AUTO_LOCK(&kernel.tasks_mu);

	*ret = tg->child_usage;
}

long sys_getrusage(struct task *t, const struct sysargs *a)
{
	struct task_usage u;
	struct mm_stat st;
	struct l_rusage ru;

	switch (arg_int(a, 0)) {
	case RUSAGE_SELF:
		tgroup_usage_get(t->tg, &u);
		break;
	case RUSAGE_CHILDREN:
		children_usage(t->tg, &u);
		break;
	case RUSAGE_THREAD:
		task_usage_get(t, &u);
		break;
	default:
		return -EINVAL;
	}
	if (arg_int(a, 0) != RUSAGE_CHILDREN) {
		mm_stat(t->mm, &st);
		u.maxrss_kb = MAX(u.maxrss_kb, st.peak_rss / 1024);
	}
	usage_to_rusage(&u, &ru);
	return copyout_obj(t, arg_gaddr(a, 1), &ru);
}

struct l_tms {
	int64_t utime, stime, cutime, cstime;
};

long sys_times(struct task *t, const struct sysargs *a)
{
	struct task_usage u, c;
	struct l_tms tms;

	if (!gaddr_is_null(arg_gaddr(a, 0))) {
		tgroup_usage_get(t->tg, &u);
		children_usage(t->tg, &c);
		tms = (struct l_tms){ (int64_t)u.utime_ns / NS_PER_TICK,
				      (int64_t)u.stime_ns / NS_PER_TICK,
				      (int64_t)c.utime_ns / NS_PER_TICK,
				      (int64_t)c.stime_ns / NS_PER_TICK };
		if (copyout_obj(t, arg_gaddr(a, 0), &tms))
			return -EFAULT;
	}
	return clock_boottime_ns() / NS_PER_TICK;
}
