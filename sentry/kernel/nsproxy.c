// SPDX-License-Identifier: Apache-2.0
/*
 * Sets of namespaces: clone(2) with CLONE_NEW*, unshare(2), setns(2) (man 7 namespaces). UTS and cgroup
 * namespaces live here as well, being little more than their number.
 *
 * A struct nsproxy may be shared by any number of tasks and is never changed: every operation makes a
 * new one and swaps it in under task.mu. The user namespace is part of the credentials, as in Linux. Time
 * namespaces aren't there (EINVAL, as a kernel without CONFIG_TIME_NS).
 */
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/nsfile.h"
#include "sentry/kernel/process.h"
#include "sentry/vfs/vfs.h"

#pragma weak ipcns_userns
#pragma weak netns_userns
#pragma weak mntns_userns

#define CLONE_NEW_ALL                                                       \
 (CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET | \
  CLONE_NEWCGROUP)

/* Numbers that Linux gives to dynamic namespaces begin here (PROC_DYNAMIC_FIRST). */
static _Atomic uint64_t next_inum = 0xF0000000u;

uint64_t ns_next_inum(void)
{
	return atomic_fetch_add(&next_inum, 1);
}

uint64_t ns_inum_next_is(void)
{
	return atomic_load(&next_inum);
}

void ns_set_next_inum(uint64_t inum)
{
	atomic_store(&next_inum, inum);
}

/* ---- UTS and cgroup namespaces ---- */

struct utsns *utsns_create(const char *hostname, const char *domainname,
			   struct userns *userns)
{
	struct utsns *ns = kzalloc(sizeof(*ns));

	ref_init(&ns->ref);
	mutex_init(&ns->mu, RANK_NS);
	strncpy(ns->nodename, hostname, UTS_LEN - 1);
	strncpy(ns->domainname, domainname, UTS_LEN - 1);
	ns->userns = userns_get(userns);
	ns->inum = ns_next_inum();
	return ns;
}

static struct utsns *utsns_dup(struct utsns *old, struct userns *userns)
{
	char host[UTS_LEN], dom[UTS_LEN];

	mutex_lock(&old->mu);
	memcpy(host, old->nodename, UTS_LEN);
	memcpy(dom, old->domainname, UTS_LEN);
	mutex_unlock(&old->mu);
	return utsns_create(host, dom, userns);
}

struct utsns *utsns_get(struct utsns *ns)
{
	ref_get(&ns->ref);
	return ns;
}

void utsns_put(struct utsns *ns)
{
	if (!ns || !ref_put(&ns->ref))
		return;
	userns_put(ns->userns);
	mutex_fini(&ns->mu);
	free(ns);
}

struct cgroupns *cgroupns_create(struct userns *userns)
{
	struct cgroupns *ns = kzalloc(sizeof(*ns));

	ref_init(&ns->ref);
	ns->userns = userns_get(userns);
	ns->inum = ns_next_inum();
	return ns;
}

struct cgroupns *cgroupns_get(struct cgroupns *ns)
{
	if (ns)
		ref_get(&ns->ref);
	return ns;
}

void cgroupns_put(struct cgroupns *ns)
{
	if (!ns || !ref_put(&ns->ref))
		return;
	userns_put(ns->userns);
	free(ns);
}

/* ---- sets ---- */

struct nsproxy *nsproxy_create(struct utsns *uts, struct ipcns *ipc, struct mntns *mnt,
			       struct pidns *pid, struct netns *net)
{
	struct nsproxy *ns = kzalloc(sizeof(*ns));

	ref_init(&ns->ref);
	ns->uts = uts;
	ns->ipc = ipc;
	ns->mnt = mnt;
	ns->pid_for_children = pid;
	ns->net = net;
	return ns;
}

struct nsproxy *nsproxy_get(struct nsproxy *ns)
{
	ref_get(&ns->ref);
	return ns;
}

void nsproxy_put(struct nsproxy *ns)
{
	if (!ns || !ref_put(&ns->ref))
		return;
	if (ns->uts)
		utsns_put(ns->uts);
	if (ns->ipc)
		ipcns_put(ns->ipc);
	if (ns->mnt)
		mntns_put(ns->mnt);
	if (ns->pid_for_children)
		pidns_put(ns->pid_for_children);
	if (ns->net)
		netns_put(ns->net);
	cgroupns_put(ns->cgroup);
	free(ns);
}

/* New mount namespace for @t, whose fsctx (its own, unshared) is moved into the copy. */
static struct mntns *copy_mnt(struct task *t, struct mntns *old, struct userns *userns)
{
	struct path root = fsctx_root(t->fs), cwd = fsctx_cwd(t->fs);
	struct mntns *mnt = mntns_clone(old, userns, &root, &cwd);

	if (!is_err(mnt)) {
		fsctx_set_root(t->fs, &root);
		fsctx_set_cwd(t->fs, &cwd);
	}
	path_put(&root);
	path_put(&cwd);
	return mnt;
}

/* On failure the half-built set is dropped by the caller's nsproxy_put(). 0 or -errno. */
static int copy_parts(struct task *t, const struct nsproxy *old, uint64_t flags,
		      struct userns *userns, struct nsproxy *n)
{
	void *p;

	p = flags & CLONE_NEWUTS ? utsns_dup(old->uts, userns) : utsns_get(old->uts);
	n->uts = p;
	p = flags & CLONE_NEWIPC ? ipcns_create(userns) : ipcns_get(old->ipc);
	if (is_err(p))
		return (int)ptr_err(p);
	n->ipc = p;
	p = flags & CLONE_NEWPID ? pidns_create(old->pid_for_children, userns)
				 : pidns_get(old->pid_for_children);
	if (is_err(p))
		return (int)ptr_err(p);
	n->pid_for_children = p;
	p = flags & CLONE_NEWNET ? netns_create(userns) : netns_get(old->net);
	if (is_err(p))
		return (int)ptr_err(p);
	n->net = p;
	n->cgroup = flags & CLONE_NEWCGROUP ? cgroupns_create(userns)
					    : cgroupns_get(old->cgroup);
	p = flags & CLONE_NEWNS ? copy_mnt(t, old->mnt, userns) : mntns_get(old->mnt);
	if (is_err(p))
		return (int)ptr_err(p);
	n->mnt = p;
	return 0;
}

/*
 * A set with fresh namespaces for CLONE_NEW* @flags, owned by @userns. @t is whose fsctx is fitted to a
 * new mount namespace: the caller of unshare, the child of clone. Permission is the caller's business.
 */
struct nsproxy *nsproxy_copy(struct task *t, const struct nsproxy *old, uint64_t flags,
			     struct userns *userns)
{
	struct nsproxy *n = kzalloc(sizeof(*n));
	int err;

	ref_init(&n->ref);
	err = copy_parts(t, old, flags, userns, n);
	if (err) {
		nsproxy_put(n);
		return err_ptr(err);
	}
	return n;
}

void task_set_nsproxy(struct task *t, struct nsproxy *ns)
{
	struct nsproxy *old;

	mutex_lock(&t->mu);
	old = t->ns;
	t->ns = ns;
	mutex_unlock(&t->mu);
	nsproxy_put(old);
}

/* Being the creator, or having joined: all capabilities, no securebits, nothing inherited
 * (man 7 user_namespaces). */
void cred_enter_userns(struct cred *c, struct userns *ns)
{
	userns_put(c->userns);
	c->userns = ns;
	c->securebits = 0;
	c->inheritable = 0;
	c->permitted = CAP_FULL_SET;
	c->effective = CAP_FULL_SET;
	c->bounding = CAP_FULL_SET;
	c->ambient = 0;
}

/* ---- unshare(2) ---- */

#define UNSHARE_FLAGS                                                                \
 (CLONE_THREAD | CLONE_FS | CLONE_SIGHAND | CLONE_VM | CLONE_FILES | CLONE_SYSVSEM | \
  CLONE_NEWUSER | CLONE_NEW_ALL)

static bool single_threaded(struct task *t)
{
	AUTO_LOCK(&kernel.tasks_mu);

	return t->tg->nthreads == 1;
}

static int unshare_check(struct task *t, uint64_t *flags)
{
	uint64_t f = *flags;

	if (f & ~(uint64_t)UNSHARE_FLAGS)
		return -EINVAL;
	if (f & CLONE_NEWUSER)
		f |= CLONE_THREAD | CLONE_FS;
	if (f & CLONE_VM)
		f |= CLONE_SIGHAND;
	if (f & CLONE_SIGHAND)
		f |= CLONE_THREAD;
	if (f & CLONE_NEWNS)
		f |= CLONE_FS;
	if ((f & CLONE_THREAD) && !single_threaded(t))
		return -EINVAL;
	/* Shared with another process by CLONE_SIGHAND or CLONE_VM: can't be undone. */
	if ((f & CLONE_SIGHAND) && ref_count(&t->sighand->ref) > 1)
		return -EINVAL;
	*flags = f;
	return 0;
}

static void unshare_fs(struct task *t)
{
	struct fsctx *n = fsctx_dup(t->fs), *old;

	mutex_lock(&t->mu);
	old = t->fs;
	t->fs = n;
	mutex_unlock(&t->mu);
	fsctx_put(old);
}

long ns_unshare(struct task *t, uint64_t flags)
{
	struct cred *c = NULL;
	const struct cred *eff = t->cred;
	struct nsproxy *ns = NULL;
	int err = unshare_check(t, &flags);

	if (err)
		return err;
	if (flags & CLONE_NEWUSER) {
		struct userns *u = userns_create(t->cred);

		if (is_err(u))
			return ptr_err(u);
		c = cred_dup(t->cred);
		cred_enter_userns(c, u);
		eff = c;
	}
	if ((flags & CLONE_NEW_ALL) &&
	    !cred_capable_in(eff, eff->userns, CAP_SYS_ADMIN)) {
		cred_put(c);
		return -EPERM;
	}
	if (flags & CLONE_FS)
		unshare_fs(t);
	if (flags & CLONE_NEW_ALL) {
		ns = nsproxy_copy(t, t->ns, flags & CLONE_NEW_ALL, eff->userns);
		if (is_err(ns)) {
			cred_put(c);
			return ptr_err(ns);
		}
	}
	if (flags & CLONE_FILES) {
		err = files_unshare(t);
		if (err) {
			nsproxy_put(ns);
			cred_put(c);
			return err;
		}
	}
	if ((flags & (CLONE_SYSVSEM | CLONE_NEWIPC)) && sem_undo_exit)
		sem_undo_exit(t);
	if (ns)
		task_set_nsproxy(t, ns);
	if (c)
		cred_install(t, c);
	return 0;
}

/* ---- setns(2) ---- */

static const int kind_flag[NS_KIND_COUNT] = {
	[NS_MNT] = CLONE_NEWNS,    [NS_UTS] = CLONE_NEWUTS,
	[NS_IPC] = CLONE_NEWIPC,   [NS_PID] = CLONE_NEWPID,
	[NS_NET] = CLONE_NEWNET,   [NS_PID_FOR_CHILDREN] = CLONE_NEWPID,
	[NS_USER] = CLONE_NEWUSER, [NS_CGROUP] = CLONE_NEWCGROUP,
};

/* What is to be joined: at most one of each kind, borrowed. */
struct ns_join {
	void *ns[NS_KIND_COUNT];
};

static int join_check_pid(struct task *t, struct pidns *ns)
{
	for (struct pidns *n = ns; n; n = n->parent)
		if (n == task_pidns(t))
			return 0;
	return -EINVAL; /* only own and below */
}

static struct userns *ns_owner(enum ns_kind kind, void *ns)
{
	switch (kind) {
	case NS_UTS:
		return ((struct utsns *)ns)->userns;
	case NS_PID:
	case NS_PID_FOR_CHILDREN:
		return ((struct pidns *)ns)->userns;
	case NS_CGROUP:
		return ((struct cgroupns *)ns)->userns;
	case NS_USER:
		return ns;
	case NS_IPC:
		return ipcns_userns ? ipcns_userns(ns) : &init_userns;
	case NS_NET:
		return netns_userns ? netns_userns(ns) : &init_userns;
	case NS_MNT:
		return mntns_userns ? mntns_userns(ns) : &init_userns;
	case NS_KIND_COUNT:
		break;
	}
	return &init_userns;
}

/* @c: the credentials after joining the user namespace, if one is among the set. */
static int join_check(struct task *t, const struct cred *c, const struct ns_join *j)
{
	for (int k = 0; k < NS_KIND_COUNT; k++) {
		void *ns = j->ns[k];

		if (!ns)
			continue;
		if (k == NS_USER) {
			if (ns == t->cred->userns || !single_threaded(t))
				return -EINVAL;
			if (!cred_capable_in(t->cred, ns, CAP_SYS_ADMIN))
				return -EPERM;
			continue;
		}
		if (!cred_capable_in(c, ns_owner((enum ns_kind)k, ns), CAP_SYS_ADMIN) ||
		    !cred_capable_in(c, c->userns, CAP_SYS_ADMIN))
			return -EPERM;
		if (k == NS_MNT && !cred_capable_in(c, c->userns, CAP_SYS_CHROOT))
			return -EPERM;
		if (k == NS_PID || k == NS_PID_FOR_CHILDREN) {
			int err = join_check_pid(t, ns);

			if (err)
				return err;
		}
	}
	return 0;
}

static void join_mnt(struct task *t, struct mntns *mnt)
{
	struct path root = mntns_root(mnt);

	unshare_fs(t);
	fsctx_set_root(t->fs, &root);
	fsctx_set_cwd(t->fs, &root);
	path_put(&root);
}

static void join_commit(struct task *t, struct cred *c, const struct ns_join *j)
{
	struct nsproxy *n = nsproxy_copy(t, t->ns, 0, NULL);
	void *const *ns = j->ns;

	if (ns[NS_UTS]) {
		utsns_put(n->uts);
		n->uts = utsns_get(ns[NS_UTS]);
	}
	if (ns[NS_IPC]) {
		ipcns_put(n->ipc);
		n->ipc = ipcns_get(ns[NS_IPC]);
		if (sem_undo_exit)
			sem_undo_exit(t);
	}
	if (ns[NS_NET]) {
		netns_put(n->net);
		n->net = netns_get(ns[NS_NET]);
	}
	if (ns[NS_CGROUP]) {
		cgroupns_put(n->cgroup);
		n->cgroup = cgroupns_get(ns[NS_CGROUP]);
	}
	if (ns[NS_PID] || ns[NS_PID_FOR_CHILDREN]) {
		pidns_put(n->pid_for_children);
		n->pid_for_children =
			pidns_get(ns[NS_PID] ? ns[NS_PID] : ns[NS_PID_FOR_CHILDREN]);
	}
	if (ns[NS_MNT]) {
		mntns_put(n->mnt);
		n->mnt = mntns_get(ns[NS_MNT]);
		join_mnt(t, ns[NS_MNT]);
	}
	task_set_nsproxy(t, n);
	if (c)
		cred_install(t, c);
}

static long join(struct task *t, const struct ns_join *j)
{
	struct cred *c = NULL;
	int err;

	if (j->ns[NS_USER]) {
		c = cred_dup(t->cred);
		cred_enter_userns(c, userns_get(j->ns[NS_USER]));
	}
	err = join_check(t, c ? c : t->cred, j);
	if (err) {
		cred_put(c);
		return err;
	}
	join_commit(t, c, j);
	return 0;
}

/* setns on a pidfd: all namespaces of that process that @flags name, or none. */
static long join_pidfd(struct task *t, struct pid *pid, int flags)
{
	struct ns_join j = { 0 };
	struct task *target;
	long ret;

	if (!flags || (flags & ~(CLONE_NEW_ALL | CLONE_NEWUSER)))
		return -EINVAL;
	mutex_lock(&kernel.tasks_mu);
	target = pid->task ? task_get(pid->task) : NULL;
	mutex_unlock(&kernel.tasks_mu);
	if (!target)
		return -ESRCH;
	ret = task_may_access(t, target, false);
	for (int k = 0; !ret && k < NS_KIND_COUNT; k++) {
		if (!(flags & kind_flag[k]) || k == NS_PID_FOR_CHILDREN)
			continue;
		j.ns[k] = task_ns_ref(target, (enum ns_kind)k);
		if (!j.ns[k])
			ret = -ESRCH;
		/* Already there: nothing to join, and no EINVAL for the user namespace. */
		if (k == NS_USER && j.ns[k] == t->cred->userns) {
			ns_ref_put(NS_USER, j.ns[k]);
			j.ns[k] = NULL;
			ret = -EINVAL;
		}
	}
	if (!ret)
		ret = join(t, &j);
	for (int k = 0; k < NS_KIND_COUNT; k++)
		if (j.ns[k])
			ns_ref_put((enum ns_kind)k, j.ns[k]);
	task_put(target);
	return ret;
}

long ns_setns(struct task *t, int fd, int flags)
{
	AUTO_FILE struct file *f = fd_get(t, fd);
	struct ns_join j = { 0 };
	enum ns_kind kind;
	struct pid *pid;
	void *ns;

	if (!f)
		return -EBADF;
	if (ns_file_get(f, &kind, &ns)) {
		if (flags && flags != kind_flag[kind])
			return -EINVAL;
		j.ns[kind] = ns;
		return join(t, &j);
	}
	pid = pidfd_pid(f);
	return pid ? join_pidfd(t, pid, flags) : -EINVAL;
}
