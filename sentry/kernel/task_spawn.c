// SPDX-License-Identifier: Apache-2.0
/*
 * Processes that come from outside: a container's first one, and those of "holdfast exec". They have no
 * parent in the sandbox, lead a session of their own, and are waited for with tgroup_wait_exit().
 */
#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/loader/loader.h"
#include "sentry/mm/mm.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"

#define DEFAULT_PATH     "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define DEFAULT_SLACK_NS 50000
#define MB               (1024 * 1024ULL)

static void default_rlimits(struct rlimit_g *r)
{
	for (int i = 0; i < RLIM_COUNT; i++)
		r[i] = (struct rlimit_g){ RLIM_INFINITY_G, RLIM_INFINITY_G };
	r[RLIMIT_STACK].cur = 8 * MB;
	r[RLIMIT_CORE].cur = 0;
	r[RLIMIT_NOFILE] = (struct rlimit_g){ 1024, 1024 * 1024 };
	r[RLIMIT_MEMLOCK] = (struct rlimit_g){ 8 * MB, 8 * MB };
	r[RLIMIT_SIGPENDING] = (struct rlimit_g){ 65536, 65536 };
	r[RLIMIT_MSGQUEUE] = (struct rlimit_g){ 819200, 819200 };
	r[RLIMIT_NICE] = (struct rlimit_g){ 0, 0 };
	r[RLIMIT_RTPRIO] = (struct rlimit_g){ 0, 0 };
}

static void set_attributes(struct task *t, struct tgroup *tg, const struct spawn_args *a)
{
	t->tg = tgroup_get(tg);
	t->cred = a->cred;
	t->files = a->files;
	t->fs = a->fs;
	t->ns = a->ns;
	t->sighand = sighand_create();
	t->exit_signal = SIGCHLD;
	t->start_ns = (uint64_t)clock_boottime_ns();
	t->cpumask = ~0ULL; /* whatever there is, also after `update` */
	t->timer_slack_ns = t->timer_slack_default_ns = DEFAULT_SLACK_NS;
	t->no_new_privs = a->no_new_privs;
	t->personality = a->personality;
	t->ioprio = a->ioprio;
	t->sched_policy = a->sched_policy;
	t->sched_prio = a->sched_prio;
	t->sched_reset_on_fork = a->sched_reset_on_fork;
	t->nice = a->nice;
	if (a->cpus & t->cpumask)
		t->cpumask &= a->cpus;
	if (a->seccomp) {
		t->seccomp = seccomp_get(a->seccomp);
		t->seccomp_mode = SECCOMP_MODE_FILTER;
	}
	tg->container = a->container;
	tg->oom_score_adj = a->oom_score_adj;
	if (a->rlim)
		memcpy(tg->rlim, a->rlim, sizeof(tg->rlim));
	else
		default_rlimits(tg->rlim);
	if (a->umask >= 0)
		(void)fsctx_set_umask(t->fs, (uint32_t)a->umask);
}

static int enter_cwd(struct task *t, const char *cwd)
{
	struct path p;
	int err;

	if (!cwd || !*cwd)
		return 0;
	err = path_lookup(t, AT_FDCWD_G, cwd, LOOKUP_FOLLOW | LOOKUP_DIRECTORY, &p);
	if (err)
		return err;
	fsctx_set_cwd(t->fs, &p);
	path_put(&p);
	return 0;
}

static const char *env_path(char **envp)
{
	for (; envp && *envp; envp++)
		if (strncmp(*envp, "PATH=", 5) == 0)
			return *envp + 5;
	return DEFAULT_PATH;
}

/* As execvp(3): EACCES is remembered, the search goes on. *ret_path: heap. */
static struct file *open_program(struct task *t, const struct spawn_args *a,
				 char **ret_path)
{
	const char *name = a->program ? a->program : a->argv[0], *dir, *end;
	long err = -ENOENT;

	if (!name || !*name)
		return err_ptr(-ENOENT);
	if (strchr(name, '/')) {
		*ret_path = kstrdup(name);
		return vfs_open_exec(t, AT_FDCWD_G, name, 0);
	}
	for (dir = env_path(a->envp); dir; dir = *end ? end + 1 : NULL) {
		struct file *f;
		char *path;

		end = strchrnul(dir, ':');
		path = end == dir ? kstrdup(name)
				  : kasprintf("%.*s/%s", (int)(end - dir), dir, name);
		f = vfs_open_exec(t, AT_FDCWD_G, path, 0);
		if (!is_err(f)) {
			*ret_path = path;
			return f;
		}
		free(path);
		if (ptr_err(f) == -EACCES)
			err = -EACCES;
	}
	return err_ptr(err);
}

static int load(struct task *t, const struct spawn_args *a)
{
	char *path = NULL;
	struct file *f = open_program(t, a, &path);
	struct exec_args ea;
	struct loaded l = { 0 };
	int err;

	if (is_err(f)) {
		free(path);
		return (int)ptr_err(f);
	}
	ea = (struct exec_args){
		.file = f, .path = path, .argv = a->argv, .envp = a->envp
	};
	err = loader_load(t, &ea, &l);
	if (!err) {
		struct cred *old = t->cred;

		t->mm = steal_ptr(&l.mm);
		t->regs = l.regs;
		t->regs.orig_rax = (uint64_t)-1;
		t->cred = steal_ptr(&l.cred);
		cred_put(old);
		task_set_comm(t, l.comm);
		loaded_fini(&l);
	}
	file_put(f);
	free(path);
	return err;
}

static int attach_spawned(struct task *t, struct tgroup *tg, const struct spawn_args *a)
{
	struct pidns *ns = t->pid->ns;
	AUTO_LOCK(&kernel.tasks_mu);

	if (ns->dead)
		return -ESRCH;
	if (a->new_pidns_init && ns->init)
		return -EBUSY;
	task_attach_locked(t, tg, true);
	tgroup_attach_locked(tg, NULL, NULL, tg->pid, tg->pid);
	if (!ns->init && (a->new_pidns_init || t->pid->nr[t->pid->level] == 1))
		ns->init = t;
	return 0;
}

static int build(struct task *t, struct tgroup *tg, const struct spawn_args *a)
{
	struct pid *p;
	int err;

	set_attributes(t, tg, a);
	if (atomic_load(&kernel.ntasks) >= kernel.limits.max_tasks)
		return -EAGAIN;
	p = pid_alloc(t->ns->pid_for_children, 0);
	if (is_err(p))
		return (int)ptr_err(p);
	t->pid = p;
	tg->pid = pid_get(p);
	err = enter_cwd(t, a->cwd);
	return err ? err : load(t, a);
}

struct task *task_spawn(const struct spawn_args *a)
{
	struct task *t = task_alloc();
	struct tgroup *tg = tgroup_alloc();
	int err = build(t, tg, a);

	if (!err)
		err = attach_spawned(t, tg, a);
	tgroup_put(tg);
	if (err) {
		task_discard(t);
		return err_ptr(err);
	}
	tg->did_exec = true;
	if (a->tty)
		tty_make_ctty(a->tty, tg);
	return t;
}
