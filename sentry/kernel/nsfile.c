// SPDX-License-Identifier: Apache-2.0
/*
 * Files on namespaces (man 7 namespaces, 2 ioctl_ns): inode number = the namespace's number, so that
 * tools which compare st_ino of /proc/PID/ns/x see which processes are together.
 */
#include "sentry/kernel/nsfile.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_state.h"

#pragma weak ipcns_inum
#pragma weak ipcns_userns
#pragma weak netns_inum
#pragma weak netns_userns
#pragma weak mntns_userns

#define CGROUP_INIT_INUM 0xEFFFFFFBu

static const struct {
	const char *name, *proper;
	int flag;
} kinds[NS_KIND_COUNT] = {
	[NS_MNT] = { "mnt", "mnt", CLONE_NEWNS },
	[NS_UTS] = { "uts", "uts", CLONE_NEWUTS },
	[NS_IPC] = { "ipc", "ipc", CLONE_NEWIPC },
	[NS_PID] = { "pid", "pid", CLONE_NEWPID },
	[NS_PID_FOR_CHILDREN] = { "pid_for_children", "pid", CLONE_NEWPID },
	[NS_USER] = { "user", "user", CLONE_NEWUSER },
	[NS_NET] = { "net", "net", CLONE_NEWNET },
	[NS_CGROUP] = { "cgroup", "cgroup", CLONE_NEWCGROUP },
};

struct ns_file {
	struct inode inode;
	enum ns_kind kind;
	void *ns;
};

/* Stands for the initial cgroup namespace (nsproxy.cgroup == NULL). Never freed. */
static struct cgroupns init_cgroupns = {
	.ref = { REF_SATURATED },
	.userns = &init_userns,
	.inum = CGROUP_INIT_INUM,
};

const char *ns_kind_proper_name(enum ns_kind kind)
{
	return kinds[kind].proper;
}

static void *proxy_ns_ref(struct task *t, struct nsproxy *p, enum ns_kind kind)
{
	switch (kind) {
	case NS_MNT:
		return mntns_get(p->mnt);
	case NS_UTS:
		return utsns_get(p->uts);
	case NS_IPC:
		return ipcns_get(p->ipc);
	case NS_PID:
		return pidns_get(task_pidns(t));
	case NS_PID_FOR_CHILDREN:
		return pidns_get(p->pid_for_children);
	case NS_NET:
		return netns_get(p->net);
	case NS_CGROUP:
		return cgroupns_get(p->cgroup ? p->cgroup : &init_cgroupns);
	case NS_USER:
	case NS_KIND_COUNT:
		break;
	}
	return NULL;
}

void *task_ns_ref(struct task *t, enum ns_kind kind)
{
	struct nsproxy *p = task_ns_get(t);
	void *ret = NULL;

	if (!p)
		return NULL;
	if (kind == NS_USER) {
		struct cred *c = task_cred_get(t);

		ret = userns_get(c->userns);
		cred_put(c);
	} else {
		ret = proxy_ns_ref(t, p, kind);
	}
	nsproxy_put(p);
	return ret;
}

void ns_ref_put(enum ns_kind kind, void *ns)
{
	switch (kind) {
	case NS_MNT:
		mntns_put(ns);
		break;
	case NS_UTS:
		utsns_put(ns);
		break;
	case NS_IPC:
		ipcns_put(ns);
		break;
	case NS_PID:
	case NS_PID_FOR_CHILDREN:
		pidns_put(ns);
		break;
	case NS_USER:
		userns_put(ns);
		break;
	case NS_NET:
		netns_put(ns);
		break;
	case NS_CGROUP:
		cgroupns_put(ns);
		break;
	case NS_KIND_COUNT:
		break;
	}
}

uint64_t ns_inum(enum ns_kind kind, const void *ns)
{
	switch (kind) {
	case NS_MNT:
		/* mntns_inum() only reads, whatever its prototype says. */
		return mntns_inum((struct mntns *)(uintptr_t)ns);
	case NS_UTS:
		return ((const struct utsns *)ns)->inum;
	case NS_IPC:
		return ipcns_inum ? ipcns_inum(ns) : 0xEFFFFFFFu;
	case NS_PID:
	case NS_PID_FOR_CHILDREN:
		return ((const struct pidns *)ns)->inum;
	case NS_USER:
		return ((const struct userns *)ns)->inum;
	case NS_NET:
		return netns_inum ? netns_inum(ns) : 0xEFFFFFF9u;
	case NS_CGROUP:
		return ((const struct cgroupns *)ns)->inum;
	case NS_KIND_COUNT:
		break;
	}
	return 0;
}

static void ns_inode_destroy(struct inode *inode)
{
	struct ns_file *nf = container_of(inode, struct ns_file, inode);

	ns_ref_put(nf->kind, nf->ns);
	inode_fini(inode);
	free(nf);
}

static const struct inode_ops ns_inode_ops = {
	.destroy = ns_inode_destroy,
	.state = &state_inode_nsfs,
};

static struct ns_file *file_ns(struct file *f)
{
	return container_of(f->inode, struct ns_file, inode);
}

static void ns_release(struct file *f)
{
	(void)f; /* the inode holds everything */
}

static long install_ns(struct task *t, enum ns_kind kind, void *ns)
{
	struct file *f = ns_file_create(kind, ns);

	return is_err(f) ? ptr_err(f) : fd_install(t, f, O_CLOEXEC);
}

/* NS_GET_USERNS: the owner, which must be the caller's own user namespace or below. */
static long get_owner(struct task *t, struct ns_file *nf)
{
	struct userns *u = NULL;

	switch (nf->kind) {
	case NS_USER:
		u = ((struct userns *)nf->ns)->parent;
		break;
	case NS_UTS:
		u = ((struct utsns *)nf->ns)->userns;
		break;
	case NS_PID:
	case NS_PID_FOR_CHILDREN:
		u = ((struct pidns *)nf->ns)->userns;
		break;
	case NS_CGROUP:
		u = ((struct cgroupns *)nf->ns)->userns;
		break;
	case NS_IPC:
		u = ipcns_userns ? ipcns_userns(nf->ns) : &init_userns;
		break;
	case NS_NET:
		u = netns_userns ? netns_userns(nf->ns) : &init_userns;
		break;
	case NS_MNT:
		u = mntns_userns ? mntns_userns(nf->ns) : &init_userns;
		break;
	case NS_KIND_COUNT:
		break;
	}
	if (!u || !userns_is_ancestor(t->cred->userns, u))
		return -EPERM;
	return install_ns(t, NS_USER, userns_get(u));
}

static long get_parent(struct task *t, struct ns_file *nf)
{
	if (nf->kind == NS_USER) {
		struct userns *u = ((struct userns *)nf->ns)->parent;

		if (!u || !userns_is_ancestor(t->cred->userns, u))
			return -EPERM;
		return install_ns(t, NS_USER, userns_get(u));
	}
	if (nf->kind == NS_PID || nf->kind == NS_PID_FOR_CHILDREN) {
		struct pidns *p = ((struct pidns *)nf->ns)->parent;

		if (!p || p->level < task_pidns(t)->level)
			return -EPERM;
		return install_ns(t, NS_PID, pidns_get(p));
	}
	return -EINVAL;
}

static long ns_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg)
{
	struct ns_file *nf = file_ns(f);
	uid_t uid;

	switch (cmd) {
	case NS_GET_USERNS:
		return get_owner(t, nf);
	case NS_GET_PARENT:
		return get_parent(t, nf);
	case NS_GET_NSTYPE:
		return kinds[nf->kind].flag;
	case NS_GET_OWNER_UID:
		if (nf->kind != NS_USER)
			return -EINVAL;
		uid = userns_show_uid(t->cred->userns, ((struct userns *)nf->ns)->owner);
		return copyout_obj(t, gaddr(arg), &uid);
	default:
		return -ENOTTY;
	}
}

static const struct file_ops ns_fops = {
	.name = "ns",
	.release = ns_release,
	.ioctl = ns_ioctl,
	.state = &file_state_ns,
};

struct file *ns_file_create(enum ns_kind kind, void *ns)
{
	struct ns_file *nf = kzalloc(sizeof(*nf));
	char name[48];

	nf->kind = kind;
	nf->ns = ns;
	inode_init(&nf->inode, NULL, &ns_inode_ops, &ns_fops, ns_inum(kind, ns),
		   S_IFREG | 0444, 0, 0);
	snprintf(name, sizeof(name), "%s:[%llu]", kinds[kind].proper,
		 (unsigned long long)ns_inum(kind, ns));
	return file_create_pseudo(&nf->inode, &ns_fops, NULL, O_RDONLY, name);
}

bool ns_file_get(struct file *f, enum ns_kind *ret_kind, void **ret_ns)
{
	struct ns_file *nf;

	if (f->ops != &ns_fops)
		return false;
	nf = file_ns(f);
	*ret_kind = nf->kind;
	*ret_ns = nf->ns;
	return true;
}

/* ---- saving ---- */

static const struct state_type *ns_type(enum ns_kind kind)
{
	static const struct state_type *const ns_types[NS_KIND_COUNT] = {
		[NS_MNT] = &state_mntns,
		[NS_UTS] = &state_utsns,
		[NS_IPC] = &state_ipcns,
		[NS_PID] = &state_pidns,
		[NS_PID_FOR_CHILDREN] = &state_pidns,
		[NS_USER] = &state_userns,
		[NS_NET] = &state_netns,
		[NS_CGROUP] = &state_cgroupns,
	};

	return ns_types[kind];
}

static void *nsfs_alloc(struct state *s)
{
	struct ns_file *nf = kzalloc(sizeof(*nf));

	(void)s;
	inode_init(&nf->inode, NULL, &ns_inode_ops, &ns_fops, 0, S_IFREG | 0444, 0, 0);
	return &nf->inode;
}

static void nsfs_fields(struct state *s, void *obj)
{
	struct ns_file *nf = container_of((struct inode *)obj, struct ns_file, inode);
	int64_t kind = nf->kind;
	void *ns = nf->ns == &init_cgroupns ? NULL : nf->ns;

	inode_state_fields(s, &nf->inode);
	state_range_i64(s, &kind, 0, NS_KIND_COUNT - 1);
	nf->kind = (enum ns_kind)kind;
	state_ref(s, ns_type(nf->kind), &ns);
	if (!state_loading(s))
		return;
	nf->ns = !ns && nf->kind == NS_CGROUP ? &init_cgroupns : ns;
	if (!nf->ns || !S_ISREG(nf->inode.mode))
		state_fail(s, "file of no namespace");
}

const struct state_type state_inode_nsfs = {
	.id = STATE_INODE_NSFS,
	.version = 1,
	.name = "inode of a namespace",
	.alloc = nsfs_alloc,
	.fields = nsfs_fields,
	.get = inode_state_get,
	.put = inode_state_put,
	.phase = 2,
};

static void ns_file_finish(struct state *s, struct file *f)
{
	(void)file_state_on(s, f, &state_inode_nsfs);
}

const struct file_state file_state_ns = {
	.id = FILE_NS,
	.ops = &ns_fops,
	.finish = ns_file_finish,
};
