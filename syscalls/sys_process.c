// SPDX-License-Identifier: Apache-2.0
/* Processes: fork, clone, exec, exit, wait, process groups and sessions, pidfds. */
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "sentry/fs/proc/proc.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/kernel/signal_kill.h"
#include "sentry/mm/mm.h"
#include "sentry/vfs/vfs.h"
#include "syscalls/rusage.h"
#include "syscalls/sys.h"

#define PAGE_SIZE_G    4096u
#define ARG_STRING_MAX (32 * PAGE_SIZE_G) /* MAX_ARG_STRLEN */
#define ARG_TOTAL_MAX  (6u * 1024 * 1024) /* 3/4 of _STK_LIM, whatever RLIMIT_STACK says */
#define ARG_TOTAL_MIN  (32 * PAGE_SIZE_G)

/* ---- fork and friends ---- */

long sys_fork(struct task *t, const struct sysargs *a)
{
	struct clone_args c = { .exit_signal = SIGCHLD };

	(void)a;
	return task_clone(t, &c);
}

long sys_vfork(struct task *t, const struct sysargs *a)
{
	struct clone_args c = { .flags = CLONE_VFORK | CLONE_VM, .exit_signal = SIGCHLD };

	(void)a;
	return task_clone(t, &c);
}

long sys_clone(struct task *t, const struct sysargs *a)
{
	struct clone_args c = {
		.flags = arg_u32(a, 0) & ~(uint64_t)CSIGNAL,
		.exit_signal = arg_int(a, 0) & CSIGNAL,
		.stack = arg_gaddr(a, 1),
		.parent_tid = arg_gaddr(a, 2),
		.pidfd = arg_gaddr(a, 2),
		.child_tid = arg_gaddr(a, 3),
		.tls = arg_u64(a, 4),
	};

	return task_clone(t, &c);
}

struct l_clone_args {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
	uint64_t set_tid, set_tid_size, cgroup;
};
_Static_assert(sizeof(struct l_clone_args) == 88, "clone_args is 88 bytes");

#ifndef CLONE_CLEAR_SIGHAND
# define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
# define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#define CLONE3_FLAGS (0xffffffffULL & ~(uint64_t)CSIGNAL)

/* A struct that newer programs may have made longer: what we don't know must be zero (E2BIG). */
static int copyin_struct(struct task *t, void *dst, size_t ksize, gaddr_t src,
			 size_t usize)
{
	uint8_t rest[256];
	size_t done = ksize;
	int err;

	memset(dst, 0, ksize);
	err = copyin(t, dst, src, MIN(ksize, usize));
	while (!err && done < usize) {
		size_t n = MIN(usize - done, sizeof(rest));

		err = copyin(t, rest, gaddr_off(src, done), n);
		for (size_t i = 0; !err && i < n; i++)
			if (rest[i])
				err = -E2BIG;
		done += n;
	}
	return err;
}

static int clone3_check(const struct l_clone_args *u)
{
	if (u->set_tid_size > PIDNS_MAX_LEVEL || !u->set_tid != !u->set_tid_size)
		return -EINVAL;
	if ((u->exit_signal & ~(uint64_t)CSIGNAL) || u->exit_signal > NSIG_GUEST)
		return -EINVAL;
	if (u->flags & ~(CLONE3_FLAGS | CLONE_CLEAR_SIGHAND | CLONE_INTO_CGROUP))
		return -EINVAL;
	if (u->flags & CLONE_DETACHED)
		return -EINVAL;
	if ((u->flags & (CLONE_THREAD | CLONE_PARENT)) && u->exit_signal)
		return -EINVAL;
	if (!u->stack != !u->stack_size)
		return -EINVAL;
	if ((u->flags & CLONE_INTO_CGROUP) && u->cgroup > INT32_MAX)
		return -EINVAL;
	return 0;
}

/* man 2 clone: set_tid needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE over each namespace it names. */
static int copyin_set_tid(struct task *t, const struct l_clone_args *u, pid_t *tids)
{
	struct pidns *ns = t->ns->pid_for_children;
	size_t n = (size_t)u->set_tid_size;

	if (n > (size_t)ns->level + 1)
		return -EINVAL;
	if (copyin(t, tids, gaddr(u->set_tid), n * sizeof(*tids)))
		return -EFAULT;
	for (size_t i = 0; i < n; i++, ns = ns->parent) {
		if (tids[i] < 1 || tids[i] >= PID_MAX_DEFAULT)
			return -EINVAL;
		if (tids[i] != 1 && !ns->init)
			return -EINVAL;
		if (!cred_capable_in(t->cred, ns->userns,
				     40 /* CAP_CHECKPOINT_RESTORE */) &&
		    !cred_capable_in(t->cred, ns->userns, 21 /* CAP_SYS_ADMIN */))
			return -EPERM;
	}
	return 0;
}

long sys_clone3(struct task *t, const struct sysargs *a)
{
	struct l_clone_args u;
	pid_t tids[PIDNS_MAX_LEVEL + 1];
	struct clone_args c;
	size_t size = arg_size(a, 1);
	int err;

	if (size > 4096)
		return -E2BIG;
	if (size < 64)
		return -EINVAL;
	err = copyin_struct(t, &u, sizeof(u), arg_gaddr(a, 0), size);
	if (!err)
		err = clone3_check(&u);
	if (!err && u.set_tid_size)
		err = copyin_set_tid(t, &u, tids);
	if (err)
		return err;
	c = (struct clone_args){
		.flags = u.flags,
		.exit_signal = (int)u.exit_signal,
		.stack = gaddr(u.stack),
		.stack_size = u.stack_size,
		.parent_tid = gaddr(u.parent_tid),
		.child_tid = gaddr(u.child_tid),
		.pidfd = gaddr(u.pidfd),
		.tls = u.tls,
		.set_tid = tids,
		.set_tid_size = (unsigned)u.set_tid_size,
		.cgroup_fd = (int)u.cgroup,
	};
	return task_clone(t, &c);
}

/* ---- exec ---- */

static void strv_free(char **v)
{
	for (char **p = v; p && *p; p++)
		free(*p);
	free(v);
}

/* Copies one string in; its size with NUL counts against *budget. */
static int copyin_arg(struct task *t, uint64_t addr, size_t *budget, char *buf,
		      char **ret)
{
	ssize_t n = copyin_str(t, buf, gaddr(addr), ARG_STRING_MAX, -E2BIG);

	if (n < 0)
		return (int)n;
	if ((size_t)n + 1 + sizeof(uint64_t) > *budget)
		return -E2BIG;
	*budget -= (size_t)n + 1 + sizeof(uint64_t);
	*ret = kstrndup(buf, (size_t)n);
	return 0;
}

/* A NULL-terminated vector of strings; NULL stands for an empty one, as in Linux. */
static int copyin_strv(struct task *t, gaddr_t src, size_t *budget, char *buf,
		       char ***ret)
{
	size_t n = 0, size = 16;
	char **v = kcalloc(size, sizeof(*v));
	int err = 0;

	while (!gaddr_is_null(src)) {
		uint64_t addr;

		err = copyin_obj(t, &addr, gaddr_off(src, n * sizeof(addr)));
		if (err || !addr)
			break;
		if (n + 2 > size) {
			size *= 2;
			v = krealloc_array(v, size, sizeof(*v));
		}
		err = copyin_arg(t, addr, budget, buf, &v[n]);
		if (err)
			break;
		n++;
		v[n] = NULL;
	}
	v[n] = NULL;
	if (err) {
		strv_free(v);
		return err;
	}
	*ret = v;
	return 0;
}

static long exec_with(struct task *t, int dirfd, const char *path, gaddr_t argv,
		      gaddr_t envp, int flags)
{
	size_t budget =
		(size_t)MIN(task_rlimit(t, RLIMIT_STACK) / 4, (uint64_t)ARG_TOTAL_MAX);
	struct exec_args ea = { .path = path };
	AUTO_FREE char *buf = NULL, *fdpath = NULL;
	AUTO_FILE struct file *f = NULL;
	long err;

	budget = MAX(budget, (size_t)ARG_TOTAL_MIN);
	f = vfs_open_exec(t, dirfd, path, (unsigned)flags);
	if (is_err(f))
		return ptr_err(f);
	if (path[0] != '/' && dirfd != AT_FDCWD_G) {
		fdpath = path[0] ? kasprintf("/dev/fd/%d/%s", dirfd, path)
				 : kasprintf("/dev/fd/%d", dirfd);
		ea.path = fdpath;
	}
	buf = kzalloc(ARG_STRING_MAX);
	err = copyin_strv(t, envp, &budget, buf, &ea.envp);
	if (err)
		return err;
	err = copyin_strv(t, argv, &budget, buf, &ea.argv);
	if (!err && !ea.argv[0]) {
		/* Linux 5.18: an empty argv becomes { "" }. */
		ea.argv[0] = kstrdup("");
		ea.argv[1] = NULL;
	}
	ea.file = f;
	if (!err)
		err = task_exec(t, &ea);
	strv_free(ea.envp);
	strv_free(ea.argv);
	return err;
}

long sys_execve(struct task *t, const struct sysargs *a)
{
	AUTO_FREE char *path = NULL;
	ssize_t n = copyin_path(t, arg_gaddr(a, 0), &path);

	return n < 0 ? n
		     : exec_with(t, AT_FDCWD_G, path, arg_gaddr(a, 1), arg_gaddr(a, 2),
				 0);
}

long sys_execveat(struct task *t, const struct sysargs *a)
{
	AUTO_FREE char *path = NULL;
	int flags = arg_int(a, 4);
	ssize_t n;

	if (flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
		return -EINVAL;
	n = copyin_path(t, arg_gaddr(a, 1), &path);
	if (n < 0)
		return n;
	return exec_with(t, arg_int(a, 0), path, arg_gaddr(a, 2), arg_gaddr(a, 3), flags);
}

/* ---- exit and wait ---- */

long sys_exit(struct task *t, const struct sysargs *a)
{
	task_exit_thread(t, (arg_int(a, 0) & 0xff) << 8);
	return 0;
}

long sys_exit_group(struct task *t, const struct sysargs *a)
{
	task_group_exit(t, (arg_int(a, 0) & 0xff) << 8);
	return 0;
}

static long do_wait(struct task *t, struct wait_opts *o, struct wait_result *r)
{
	long ret = task_wait(t, o, r);

	pid_put(o->pid);
	return ret;
}

long sys_wait4(struct task *t, const struct sysargs *a)
{
	int pid = arg_int(a, 0), options = arg_int(a, 2);
	struct wait_opts o = { .type = P_ALL, .options = options | WEXITED };
	struct wait_result r;
	struct l_rusage ru;
	long ret;

	if ((unsigned)options &
	    ~(WNOHANG | WUNTRACED | WCONTINUED | (unsigned)__WNOTHREAD |
	      (unsigned)__WCLONE | (unsigned)__WALL))
		return -EINVAL;
	if (pid == INT32_MIN)
		return -ESRCH;
	if (pid != -1) {
		o.type = pid > 0 ? P_PID : P_PGID;
		if (pid == 0) {
			mutex_lock(&kernel.tasks_mu);
			o.pid = pid_get(t->tg->pgrp);
			mutex_unlock(&kernel.tasks_mu);
		} else {
			o.pid = pid_find(task_pidns(t), pid > 0 ? pid : -pid);
		}
		if (!o.pid)
			return -ECHILD;
	}
	ret = do_wait(t, &o, &r);
	if (ret <= 0)
		return ret;
	if (!gaddr_is_null(arg_gaddr(a, 1)) && copyout_obj(t, arg_gaddr(a, 1), &r.status))
		return -EFAULT;
	if (!gaddr_is_null(arg_gaddr(a, 3))) {
		usage_to_rusage(&r.usage, &ru);
		if (copyout_obj(t, arg_gaddr(a, 3), &ru))
			return -EFAULT;
	}
	return ret;
}

/* The pid that waitid's first two arguments name. *ret NULL for P_ALL. */
static int waitid_pid(struct task *t, int type, int id, struct wait_opts *o)
{
	switch (type) {
	case P_ALL:
		break;
	case P_PID:
		if (id <= 0)
			return -EINVAL;
		o->pid = pid_find(task_pidns(t), id);
		break;
	case P_PGID:
		if (id < 0)
			return -EINVAL;
		if (id) {
			o->pid = pid_find(task_pidns(t), id);
		} else {
			mutex_lock(&kernel.tasks_mu);
			o->pid = pid_get(t->tg->pgrp);
			mutex_unlock(&kernel.tasks_mu);
		}
		break;
	case P_PIDFD: {
		AUTO_FILE struct file *f = id < 0 ? NULL : fd_get(t, id);
		struct pid *p = f ? pidfd_pid(f) : NULL;

		if (id < 0)
			return -EINVAL;
		if (!p)
			return -EBADF;
		o->pid = pid_get(p);
		o->nohang_pidfd = atomic_load(&f->flags) & O_NONBLOCK;
		o->type = P_PID;
		return 0;
	}
	default:
		return -EINVAL;
	}
	o->type = type;
	return type != P_ALL && !o->pid ? -ECHILD : 0;
}

long sys_waitid(struct task *t, const struct sysargs *a)
{
	int options = arg_int(a, 3);
	struct wait_opts o = { .options = options };
	struct l_siginfo info = { 0 };
	struct wait_result r = { 0 };
	struct l_rusage ru;
	long ret;

	if ((unsigned)options &
	    ~(WNOHANG | WNOWAIT | WEXITED | WSTOPPED | WCONTINUED |
	      (unsigned)__WNOTHREAD | (unsigned)__WCLONE | (unsigned)__WALL))
		return -EINVAL;
	if (!(options & (WEXITED | WSTOPPED | WCONTINUED)))
		return -EINVAL;
	ret = waitid_pid(t, arg_int(a, 0), arg_int(a, 1), &o);
	if (ret)
		return ret;
	ret = do_wait(t, &o, &r);
	if (ret < 0)
		return ret;
	if (ret > 0) {
		info.si_signo = SIGCHLD;
		info.si_code = r.code;
		info.chld.pid = r.pid;
		info.chld.uid = r.uid;
		info.chld.status = r.cld_status;
		if (!gaddr_is_null(arg_gaddr(a, 4))) {
			usage_to_rusage(&r.usage, &ru);
			if (copyout_obj(t, arg_gaddr(a, 4), &ru))
				return -EFAULT;
		}
	}
	/* The kernel writes the fields, not the 128 bytes. */
	if (!gaddr_is_null(arg_gaddr(a, 2)) && copyout(t, arg_gaddr(a, 2), &info, 28))
		return -EFAULT;
	return 0;
}

/* ---- numbers ---- */

long sys_getpid(struct task *t, const struct sysargs *a)
{
	(void)a;
	return task_tgid(t);
}

long sys_gettid(struct task *t, const struct sysargs *a)
{
	(void)a;
	return task_tid(t);
}

long sys_getppid(struct task *t, const struct sysargs *a)
{
	AUTO_LOCK(&kernel.tasks_mu);

	(void)a;
	return t->tg->parent ? tgroup_pid_for(t->tg->parent, t) : 0;
}

long sys_set_tid_address(struct task *t, const struct sysargs *a)
{
	t->clear_child_tid = arg_gaddr(a, 0);
	return task_tid(t);
}

long sys_setpgid(struct task *t, const struct sysargs *a)
{
	return session_setpgid(t, arg_int(a, 0), arg_int(a, 1));
}

long sys_getpgid(struct task *t, const struct sysargs *a)
{
	return session_getpgid(t, arg_int(a, 0));
}

long sys_getpgrp(struct task *t, const struct sysargs *a)
{
	(void)a;
	return session_getpgid(t, 0);
}

long sys_setsid(struct task *t, const struct sysargs *a)
{
	(void)a;
	return session_setsid(t);
}

long sys_getsid(struct task *t, const struct sysargs *a)
{
	return session_getsid(t, arg_int(a, 0));
}

/* ---- pidfds ---- */

#ifndef PIDFD_THREAD
# define PIDFD_THREAD O_EXCL
#endif

long sys_pidfd_open(struct task *t, const struct sysargs *a)
{
	unsigned flags = arg_u32(a, 1);
	struct file *f;
	struct pid *p;
	bool ok;

	if ((flags & ~(unsigned)(O_NONBLOCK | PIDFD_THREAD)) || arg_int(a, 0) <= 0)
		return -EINVAL;
	p = pid_find(task_pidns(t), arg_int(a, 0));
	if (!p)
		return -ESRCH;
	mutex_lock(&kernel.tasks_mu);
	ok = p->tgroup || ((flags & PIDFD_THREAD) && p->task);
	mutex_unlock(&kernel.tasks_mu);
	if (!ok) {
		pid_put(p);
		return -EINVAL; /* 6.12: the number of a thread, or of a group only */
	}
	f = pidfd_create(p, flags & O_NONBLOCK);
	pid_put(p);
	return is_err(f) ? ptr_err(f) : fd_install(t, f, O_CLOEXEC);
}

/*
 * The process's leader, or the thread, behind a pidfd, or with @procdir behind a /proc/PID directory too.
 * err_ptr(-EBADF, -ESRCH).
 */
static struct task *pidfd_task(struct task *t, int fd, bool procdir)
{
	AUTO_FILE struct file *f = fd_get(t, fd);
	struct pid *p = f ? pidfd_pid(f) : NULL;
	struct task *target;

	if (f && !p && procdir)
		p = proc_dir_pid(f);
	if (!p)
		return err_ptr(-EBADF);
	mutex_lock(&kernel.tasks_mu);
	target = p->task ? task_get(p->task) : NULL;
	mutex_unlock(&kernel.tasks_mu);
	return target ? target : err_ptr(-ESRCH);
}

long sys_pidfd_getfd(struct task *t, const struct sysargs *a)
{
	struct task *target;
	struct files *files;
	struct file *f;
	long ret;

	if (arg_u32(a, 2))
		return -EINVAL;
	target = pidfd_task(t, arg_int(a, 0), false);
	if (is_err(target))
		return ptr_err(target);
	ret = task_may_access(t, target, true);
	files = ret ? NULL : task_files_get(target);
	task_put(target);
	if (!files)
		return ret ? ret : -ESRCH;
	f = files_lookup(files, arg_int(a, 1));
	files_put(files);
	return f ? fd_install(t, f, O_CLOEXEC) : -EBADF;
}

long sys_pidfd_send_signal(struct task *t, const struct sysargs *a)
{
	int sig = arg_int(a, 1);
	struct l_siginfo info;
	struct task *target;
	long ret;

	if (arg_u32(a, 3))
		return -EINVAL;
	target = pidfd_task(t, arg_int(a, 0), true);
	if (is_err(target))
		return ptr_err(target);
	ret = sig < 0 || sig > NSIG_GUEST ? -EINVAL : 0;
	if (!ret && !gaddr_is_null(arg_gaddr(a, 2))) {
		ret = copyin_obj(t, &info, arg_gaddr(a, 2));
		if (!ret && info.si_signo != sig)
			ret = -EINVAL;
		/* Only to oneself may one pretend to be the kernel or kill(2). */
		if (!ret && target->tg != t->tg &&
		    (info.si_code >= 0 || info.si_code == SI_TKILL))
			ret = -EPERM;
	} else if (!ret) {
		siginfo_user(&info, t, sig, SI_USER);
	}
	if (!ret)
		ret = signal_may_send(t, target, sig);
	if (!ret && sig)
		ret = signal_send_tgroup(target->tg, sig, &info);
	task_put(target);
	return ret;
}

/* The memory goes at exit anyway; we only say whether the call would have been right. */
long sys_process_mrelease(struct task *t, const struct sysargs *a)
{
	struct task *target;
	long ret = 0;

	if (arg_u32(a, 1))
		return -EINVAL;
	target = pidfd_task(t, arg_int(a, 0), false);
	if (is_err(target))
		return ptr_err(target);
	if (!target->tg->group_exit && !atomic_load(&target->exiting) &&
	    !signal_fatal_pending(target))
		ret = -EINVAL;
	task_put(target);
	return ret;
}

/* ---- odds and ends ---- */

long sys_vhangup(struct task *t, const struct sysargs *a)
{
	(void)a;
	/* Linux hangs up the caller's terminal; getty is its only user, and not in a container. */
	return task_capable(t, 26 /* CAP_SYS_TTY_CONFIG */) ? 0 : -EPERM;
}

/* A total order of pointers that tells nothing about where they point: keyed by a random number. */
static long kcmp_order(const void *x, const void *y)
{
	static uint64_t key;
	uint64_t a, b;

	if (!__atomic_load_n(&key, __ATOMIC_RELAXED)) {
		kernel_random(&a, sizeof(a));
		__atomic_store_n(&key, a | 1, __ATOMIC_RELAXED);
	}
	a = ((uint64_t)(uintptr_t)x ^ key) * (key | 1);
	b = ((uint64_t)(uintptr_t)y ^ key) * (key | 1);
	return a == b ? 0 : a < b ? 1 : 2;
}

static long kcmp_files(struct task *x, struct task *y, uint64_t fd1, uint64_t fd2)
{
	struct files *fx = task_files_get(x), *fy = task_files_get(y);
	struct file *a = fx && fd1 <= INT32_MAX ? files_lookup(fx, (int)fd1) : NULL;
	struct file *b = fy && fd2 <= INT32_MAX ? files_lookup(fy, (int)fd2) : NULL;
	long ret = a && b ? kcmp_order(a, b) : -EBADF;

	if (a)
		file_put(a);
	if (b)
		file_put(b);
	if (fx)
		files_put(fx);
	if (fy)
		files_put(fy);
	return ret;
}

long sys_kcmp(struct task *t, const struct sysargs *a)
{
	struct task *x = task_find(t, arg_int(a, 0)), *y = task_find(t, arg_int(a, 1));
	long ret = -ESRCH;

	if (x && y) {
		ret = task_may_access(t, x, false);
		if (!ret)
			ret = task_may_access(t, y, false);
	}
	if (!ret) {
		switch (arg_int(a, 2)) {
		case KCMP_FILE:
			ret = kcmp_files(x, y, arg_u64(a, 3), arg_u64(a, 4));
			break;
		case KCMP_VM:
			ret = kcmp_order(x->mm, y->mm);
			break;
		case KCMP_FILES:
			ret = kcmp_order(x->files, y->files);
			break;
		case KCMP_FS:
			ret = kcmp_order(x->fs, y->fs);
			break;
		case KCMP_SIGHAND:
			ret = kcmp_order(x->sighand, y->sighand);
			break;
		case KCMP_IO:
			ret = 0; /* nobody has an I/O context, so they are the same */
			break;
		case KCMP_SYSVSEM:
			ret = kcmp_order(x->sem_undo, y->sem_undo);
			break;
		case KCMP_EPOLL_TFD:
			ret = -EOPNOTSUPP;
			break;
		default:
			ret = -EINVAL;
		}
	}
	task_put(x);
	task_put(y);
	return ret;
}
