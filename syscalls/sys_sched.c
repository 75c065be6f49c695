// SPDX-License-Identifier: Apache-2.0
/*
 * Scheduling attributes: kept and shown as man 7 sched says, but the host's scheduler decides; real-time
 * policies are refused unless RLIMIT_RTPRIO or CAP_SYS_NICE allows them, and then only recorded.
 */
#include <linux/capability.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>

#include "base/cleanup.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/time/clock.h"
#include "syscalls/sys.h"

#ifndef SCHED_RESET_ON_FORK
# define SCHED_RESET_ON_FORK 0x40000000
#endif
#define SCHED_FLAG_RESET_ON_FORK 0x1
#define SCHED_DEADLINE_G 6
#define RT_PRIO_MAX      99
#define RR_INTERVAL_NS   100000000LL

DEFINE_AUTO(struct task, task_put)

static struct task *target_of(struct task *t, int pid)
{
	return pid ? task_find(t, pid) : task_get(t);
}

static bool is_rt(int policy)
{
	return policy == SCHED_FIFO || policy == SCHED_RR;
}

/* Same owner, or CAP_SYS_NICE over the target's user namespace. */
static bool may_change(struct task *t, struct task *target, bool *ret_cap)
{
	struct cred *tc = task_cred_get(target);
	bool same = t->cred->euid == tc->euid || t->cred->euid == tc->uid;

	*ret_cap = cred_capable_in(t->cred, tc->userns, CAP_SYS_NICE);
	cred_put(tc);
	return same || *ret_cap;
}

long sys_sched_yield(struct task *t, const struct sysargs *a)
{
	(void)t;
	(void)a;
	sched_yield(); /* host: sched_yield */
	return 0;
}

/* ---- policy ---- */

static long change_policy(struct task *t, int pid, int policy, int prio, const int *nice)
{
	AUTO(task_put) struct task *target = NULL;
	bool cap, reset;

	if (pid < 0)
		return -EINVAL;
	target = target_of(t, pid);
	if (!target)
		return -ESRCH;
	reset = policy == -1 ? target->sched_reset_on_fork : policy & SCHED_RESET_ON_FORK;
	policy = policy == -1 ? target->sched_policy : policy & ~SCHED_RESET_ON_FORK;
	if (!is_rt(policy) && policy != SCHED_OTHER && policy != SCHED_BATCH &&
	    policy != SCHED_IDLE)
		return policy == SCHED_DEADLINE_G ? -EPERM : -EINVAL;
	if (is_rt(policy) ? prio < 1 || prio > RT_PRIO_MAX : prio != 0)
		return -EINVAL;
	if (!may_change(t, target, &cap))
		return -EPERM;
	if (is_rt(policy) && !cap &&
	    (!task_rlimit(target, RLIMIT_RTPRIO) ||
	     (prio > target->sched_prio &&
	      (uint64_t)prio > task_rlimit(target, RLIMIT_RTPRIO))))
		return -EPERM;
	if (target->sched_reset_on_fork && !reset && !cap)
		return -EPERM; /* man 7 sched: only the privileged clear it */
	mutex_lock(&target->mu);
	target->sched_reset_on_fork = reset;
	target->sched_policy = policy;
	target->sched_prio = prio;
	if (nice)
		target->nice = *nice;
	mutex_unlock(&target->mu);
	return 0;
}

long sys_sched_setparam(struct task *t, const struct sysargs *a)
{
	int prio;

	if (gaddr_is_null(arg_gaddr(a, 1)))
		return -EINVAL;
	if (copyin_obj(t, &prio, arg_gaddr(a, 1)))
		return -EFAULT;
	return change_policy(t, arg_int(a, 0), -1, prio, NULL);
}

long sys_sched_setscheduler(struct task *t, const struct sysargs *a)
{
	int prio;

	if (arg_int(a, 1) < 0 || gaddr_is_null(arg_gaddr(a, 2)))
		return -EINVAL;
	if (copyin_obj(t, &prio, arg_gaddr(a, 2)))
		return -EFAULT;
	return change_policy(t, arg_int(a, 0), arg_int(a, 1), prio, NULL);
}

long sys_sched_getparam(struct task *t, const struct sysargs *a)
{
	AUTO(task_put) struct task *target = NULL;

	if (gaddr_is_null(arg_gaddr(a, 1)) || arg_int(a, 0) < 0)
		return -EINVAL;
	target = target_of(t, arg_int(a, 0));
	return target ? copyout_obj(t, arg_gaddr(a, 1), &target->sched_prio) : -ESRCH;
}

long sys_sched_getscheduler(struct task *t, const struct sysargs *a)
{
	AUTO(task_put) struct task *target = NULL;

	if (arg_int(a, 0) < 0)
		return -EINVAL;
	target = target_of(t, arg_int(a, 0));
	if (!target)
		return -ESRCH;
	return target->sched_policy |
	       (target->sched_reset_on_fork ? SCHED_RESET_ON_FORK : 0);
}

static long prio_bound(int policy, int rt)
{
	if (is_rt(policy))
		return rt;
	if (policy == SCHED_OTHER || policy == SCHED_BATCH || policy == SCHED_IDLE ||
	    policy == SCHED_DEADLINE_G)
		return 0;
	return -EINVAL;
}

long sys_sched_get_priority_max(struct task *t, const struct sysargs *a)
{
	(void)t;
	return prio_bound(arg_int(a, 0), RT_PRIO_MAX);
}

long sys_sched_get_priority_min(struct task *t, const struct sysargs *a)
{
	(void)t;
	return prio_bound(arg_int(a, 0), 1);
}

long sys_sched_rr_get_interval(struct task *t, const struct sysargs *a)
{
	AUTO(task_put) struct task *target = NULL;
	struct l_timespec ts;

	if (arg_int(a, 0) < 0)
		return -EINVAL;
	target = target_of(t, arg_int(a, 0));
	if (!target)
		return -ESRCH;
	ts = ns_to_timespec(target->sched_policy == SCHED_FIFO ? 0 : RR_INTERVAL_NS);
	return copyout_obj(t, arg_gaddr(a, 1), &ts);
}

struct l_sched_attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
	uint32_t util_min, util_max;
};
_Static_assert(sizeof(struct l_sched_attr) == 56, "sched_attr is 56 bytes");
#define SCHED_ATTR_MIN 48

long sys_sched_setattr(struct task *t, const struct sysargs *a)
{
	struct l_sched_attr s = { 0 };
	uint32_t size;
	int policy;

	if (gaddr_is_null(arg_gaddr(a, 1)) || arg_int(a, 0) < 0 || arg_u32(a, 2))
		return -EINVAL;
	if (copyin_obj(t, &size, arg_gaddr(a, 1)))
		return -EFAULT;
	if (!size)
		size = SCHED_ATTR_MIN;
	if (size < SCHED_ATTR_MIN || size > 4096)
		return -E2BIG;
	if (copyin(t, &s, arg_gaddr(a, 1), MIN((size_t)size, sizeof(s))))
		return -EFAULT;
	if ((int32_t)s.policy < 0 || (s.flags & ~0x7fULL))
		return -EINVAL;
	s.nice = s.nice < -20 ? -20 : s.nice > 19 ? 19 : s.nice;
	if (s.nice < 0 && !task_capable(t, CAP_SYS_NICE))
		return -EPERM;
	policy = (int)s.policy;
	if (s.flags & SCHED_FLAG_RESET_ON_FORK)
		policy |= SCHED_RESET_ON_FORK;
	return change_policy(t, arg_int(a, 0), s.flags & 0x8 ? -1 : policy,
			     (int)s.priority, is_rt((int)s.policy) ? NULL : &s.nice);
}

long sys_sched_getattr(struct task *t, const struct sysargs *a)
{
	AUTO(task_put) struct task *target = NULL;
	struct l_sched_attr s = { 0 };
	uint32_t size = arg_u32(a, 2);

	if (gaddr_is_null(arg_gaddr(a, 1)) || arg_int(a, 0) < 0 ||
	    size < SCHED_ATTR_MIN || size > 4096 || arg_u32(a, 3))
		return -EINVAL;
	target = target_of(t, arg_int(a, 0));
	if (!target)
		return -ESRCH;
	s.size = MIN(size, (uint32_t)sizeof(s));
	s.policy = (uint32_t)target->sched_policy;
	s.flags = target->sched_reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0;
	s.nice = is_rt(target->sched_policy) ? 0 : target->nice;
	s.priority = (uint32_t)target->sched_prio;
	return copyout(t, arg_gaddr(a, 1), &s, s.size);
}

/* ---- affinity ---- */

static uint64_t all_cpus(void)
{
	return kernel.limits.ncpus >= 64 ? ~0ULL : (1ULL << kernel.limits.ncpus) - 1;
}

/* What @t may run on of the CPUs that there are now: all of them if its own are gone, as in Linux. */
static uint64_t allowed_cpus(const struct task *t)
{
	uint64_t mask = t->cpumask & all_cpus();

	return mask ? mask : all_cpus();
}

long sys_sched_setaffinity(struct task *t, const struct sysargs *a)
{
	AUTO(task_put) struct task *target = NULL;
	uint64_t mask = 0;
	bool cap;

	if (copyin(t, &mask, arg_gaddr(a, 2), MIN((size_t)arg_u32(a, 1), sizeof(mask))))
		return -EFAULT;
	target = target_of(t, arg_int(a, 0));
	if (!target)
		return -ESRCH;
	if (!may_change(t, target, &cap))
		return -EPERM;
	mask &= all_cpus();
	if (!mask)
		return -EINVAL;
	mutex_lock(&target->mu);
	target->cpumask = mask == all_cpus() ? ~0ULL : mask;
	mutex_unlock(&target->mu);
	return 0;
}

long sys_sched_getaffinity(struct task *t, const struct sysargs *a)
{
	AUTO(task_put) struct task *target = NULL;
	uint32_t len = arg_u32(a, 1);
	uint64_t mask;

	if ((uint64_t)len * 8 < kernel.limits.ncpus || (len & (sizeof(mask) - 1)))
		return -EINVAL;
	target = target_of(t, arg_int(a, 0));
	if (!target)
		return -ESRCH;
	mask = allowed_cpus(target);
	return copyout_obj(t, arg_gaddr(a, 2), &mask) ? -EFAULT : (long)sizeof(mask);
}

long sys_getcpu(struct task *t, const struct sysargs *a)
{
	uint32_t cpu = (uint32_t)__builtin_ctzll(allowed_cpus(t)), node = 0;
	int host = sched_getcpu();

	/* The host's number where it is one of ours, so that per-cpu data spreads. */
	if (host >= 0 && host < 64 && (allowed_cpus(t) >> host & 1))
		cpu = (uint32_t)host;
	if (!gaddr_is_null(arg_gaddr(a, 0)) && copyout_obj(t, arg_gaddr(a, 0), &cpu))
		return -EFAULT;
	if (!gaddr_is_null(arg_gaddr(a, 1)) && copyout_obj(t, arg_gaddr(a, 1), &node))
		return -EFAULT;
	return 0;
}

/* ---- nice and I/O priority: both by process, group or user ---- */

struct who {
	int which;       /* PRIO_* */
	struct pid *pid; /* reference, or NULL with PRIO_USER */
	uid_t uid;
};

/* @base: PRIO_PROCESS's value in this call's numbering (ioprio counts from 1). */
static int who_init(struct task *t, int which, int id, struct who *w)
{
	*w = (struct who){ .which = which };
	switch (which) {
	case PRIO_PROCESS:
		w->pid = id ? pid_find(task_pidns(t), id) : pid_get(t->pid);
		return w->pid ? 0 : -ESRCH;
	case PRIO_PGRP:
		mutex_lock(&kernel.tasks_mu);
		w->pid = id ? NULL : pid_get(t->tg->pgrp);
		mutex_unlock(&kernel.tasks_mu);
		if (id)
			w->pid = pid_find(task_pidns(t), id);
		return w->pid ? 0 : -ESRCH;
	case PRIO_USER:
		w->uid = id ? userns_map_uid(t->cred->userns, (uid_t)id) : t->cred->uid;
		return w->uid == (uid_t)-1 ? -EINVAL : 0;
	default:
		return -EINVAL;
	}
}

static bool who_matches(const struct who *w, struct task *i)
{
	bool r;

	if (w->which == PRIO_PROCESS)
		return i->pid == w->pid;
	if (w->which == PRIO_PGRP)
		return i->tg->pgrp == w->pid;
	mutex_lock(&i->mu);
	r = i->cred->uid == w->uid;
	mutex_unlock(&i->mu);
	return r;
}

static long set_nice(struct task *t, struct task *target, int nice)
{
	struct cred *tc = task_cred_get(target);
	bool own = t->cred->euid == tc->uid || t->cred->euid == tc->euid;
	bool cap = cred_capable_in(t->cred, tc->userns, CAP_SYS_NICE);

	cred_put(tc);
	if (!own && !cap)
		return -EPERM;
	/* man 2 getrlimit, RLIMIT_NICE: the ceiling is 20 - limit. */
	if (nice < target->nice && !cap &&
	    20 - nice > (int64_t)MIN(task_rlimit(target, RLIMIT_NICE), 40ULL))
		return -EACCES;
	mutex_lock(&target->mu);
	target->nice = nice;
	mutex_unlock(&target->mu);
	return 0;
}

long sys_setpriority(struct task *t, const struct sysargs *a)
{
	int nice = arg_int(a, 2);
	long ret = -ESRCH, err;
	struct task *i;
	struct who w;

	if (arg_int(a, 0) < PRIO_PROCESS || arg_int(a, 0) > PRIO_USER)
		return -EINVAL;
	err = who_init(t, arg_int(a, 0), arg_int(a, 1), &w);
	if (err)
		return -ESRCH;
	nice = nice < -20 ? -20 : nice > 19 ? 19 : nice;
	mutex_lock(&kernel.tasks_mu);
	list_for_each(i, &kernel.all_tasks, all_node) {
		if (!who_matches(&w, i))
			continue;
		err = set_nice(t, i, nice);
		if (err)
			ret = err;
		else if (ret == -ESRCH)
			ret = 0;
	}
	mutex_unlock(&kernel.tasks_mu);
	pid_put(w.pid);
	return ret;
}

long sys_getpriority(struct task *t, const struct sysargs *a)
{
	long ret = -ESRCH;
	struct task *i;
	struct who w;

	if (arg_int(a, 0) < PRIO_PROCESS || arg_int(a, 0) > PRIO_USER)
		return -EINVAL;
	if (who_init(t, arg_int(a, 0), arg_int(a, 1), &w))
		return -ESRCH;
	mutex_lock(&kernel.tasks_mu);
	list_for_each(i, &kernel.all_tasks, all_node)
		if (who_matches(&w, i))
			ret = MAX(
				ret,
				(long)(20 -
				       i->nice)); /* 40..1, so that no value is an error */
	mutex_unlock(&kernel.tasks_mu);
	pid_put(w.pid);
	return ret;
}

#define IOPRIO_CLASS_SHIFT 13

static int ioprio_check(struct task *t, uint32_t v)
{
	uint32_t class = v >> IOPRIO_CLASS_SHIFT, level = v & 7;

	switch (class) {
	case 0:
		return level ? -EINVAL : 0;
	case 1:
		return task_capable(t, CAP_SYS_ADMIN) || task_capable(t, CAP_SYS_NICE)
			       ? 0
			       : -EPERM;
	case 2:
	case 3:
		return 0;
	default:
		return -EINVAL;
	}
}

long sys_ioprio_set(struct task *t, const struct sysargs *a)
{
	long ret = -ESRCH;
	struct task *i;
	struct who w;
	bool cap;
	int err = ioprio_check(t, arg_u32(a, 2));

	if (err)
		return err;
	err = who_init(t, (int)(arg_u32(a, 0) - 1), arg_int(a, 1), &w);
	if (err)
		return err;
	mutex_lock(&kernel.tasks_mu);
	list_for_each(i, &kernel.all_tasks, all_node) {
		if (!who_matches(&w, i))
			continue;
		if (may_change(t, i, &cap)) {
			i->ioprio = arg_u32(a, 2);
			ret = ret == -EPERM ? ret : 0;
		} else {
			ret = -EPERM;
		}
	}
	mutex_unlock(&kernel.tasks_mu);
	pid_put(w.pid);
	return ret;
}

/* Unset means by the scheduling policy and the nice value (man 2 ioprio_set). */
static long effective_ioprio(const struct task *i)
{
	int class = is_rt(i->sched_policy) ? 1 : i->sched_policy == SCHED_IDLE ? 3 : 2;

	return i->ioprio >> IOPRIO_CLASS_SHIFT ? (long)i->ioprio :
						 class << IOPRIO_CLASS_SHIFT | (i->nice + 20) / 5;
}

long sys_ioprio_get(struct task *t, const struct sysargs *a)
{
	long ret = -ESRCH;
	struct task *i;
	struct who w;
	int err = who_init(t, (int)(arg_u32(a, 0) - 1), arg_int(a, 1), &w);

	if (err)
		return err;
	mutex_lock(&kernel.tasks_mu);
	list_for_each(i, &kernel.all_tasks, all_node) {
		/* one process: as it was set; of several the best that acts */
		long v = arg_int(a, 0) == 1 ? (long)i->ioprio : effective_ioprio(i);

		if (who_matches(&w, i) && (ret < 0 || v < ret))
			ret = v;
	}
	mutex_unlock(&kernel.tasks_mu);
	pid_put(w.pid);
	return ret;
}
