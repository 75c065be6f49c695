// SPDX-License-Identifier: Apache-2.0
/*
 * Magic links of a process: exe, cwd, root, ns/; and its mount tables, which belong to its root.
 *
 * exe jumps to the file itself, so it works after the program was deleted; ns links open a file
 * that setns(2) takes.
 */
#include <stdio.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "sentry/fs/proc/proc_priv.h"
#include "sentry/kernel/nsfile.h"
#include "sentry/mm/mm.h"
#include "sentry/vfs/vfs_state.h"

static char *path_text(struct path *p)
{
	struct task *t = current_task();
	struct path root;
	char *s;

	if (!t) {
		path_put(p);
		return err_ptr(-ENOENT);
	}
	root = fsctx_root(t->fs);
	s = path_to_string(p, &root);
	path_put(&root);
	path_put(p);
	return s;
}

int proc_exe_follow(struct pfs_inode *pi, struct task *caller, struct path *ret)
{
	AUTO_TASK struct task *t = proc_task_access(pi, false);
	struct file *exe;
	struct mm *mm;

	(void)caller;
	if (is_err(t))
		return (int)ptr_err(t);
	mm = task_mm_get(t);
	if (!mm)
		return -ENOENT;
	exe = mm_exe(mm);
	mm_put(mm);
	if (!exe)
		return -ENOENT;
	*ret = exe->path;
	path_get(ret);
	file_put(exe);
	return 0;
}

static int fs_path(struct pfs_inode *pi, struct path (*get)(struct fsctx *fs), struct path *ret)
{
	AUTO_TASK struct task *t = proc_task_access(pi, false);
	struct fsctx *fs;

	if (is_err(t))
		return (int)ptr_err(t);
	fs = task_fs_get(t);
	if (!fs)
		return -ENOENT;
	*ret = get(fs);
	fsctx_put(fs);
	return 0;
}

int proc_cwd_follow(struct pfs_inode *pi, struct task *t, struct path *ret)
{
	(void)t;
	return fs_path(pi, fsctx_cwd, ret);
}

int proc_root_follow(struct pfs_inode *pi, struct task *t, struct path *ret)
{
	(void)t;
	return fs_path(pi, fsctx_root, ret);
}

static char *link_text(struct pfs_inode *pi,
		       int (*follow)(struct pfs_inode *pi, struct task *t, struct path *ret))
{
	struct path p = { 0 };
	int err = follow(pi, current_task(), &p);

	return err ? err_ptr(err) : path_text(&p);
}

char *proc_exe_readlink(struct pfs_inode *pi)
{
	return link_text(pi, proc_exe_follow);
}

char *proc_cwd_readlink(struct pfs_inode *pi)
{
	return link_text(pi, proc_cwd_follow);
}

char *proc_root_readlink(struct pfs_inode *pi)
{
	return link_text(pi, proc_root_follow);
}

/* ---- ns/ ---- */

static enum ns_kind ns_of(const struct pfs_inode *pi)
{
	return *(const enum ns_kind *)pi->node->data;
}

static void *ns_ref(struct pfs_inode *pi)
{
	AUTO_TASK struct task *t = proc_task_access(pi, false);
	void *ns;

	if (is_err(t))
		return err_ptr(ptr_err(t));
	ns = task_ns_ref(t, ns_of(pi));
	return ns ? ns : err_ptr(-ENOENT);
}

static char *ns_readlink(struct pfs_inode *pi)
{
	void *ns = ns_ref(pi);
	uint64_t inum;

	if (is_err(ns))
		return ns;
	inum = ns_inum(ns_of(pi), ns);
	ns_ref_put(ns_of(pi), ns);
	return kasprintf("%s:[%lu]", ns_kind_proper_name(ns_of(pi)), (unsigned long)inum);
}

static int ns_follow(struct pfs_inode *pi, struct task *t, struct path *ret)
{
	void *ns = ns_ref(pi);
	struct file *f;

	(void)t;
	if (is_err(ns))
		return (int)ptr_err(ns);
	f = ns_file_create(ns_of(pi), ns);
	if (is_err(f))
		return (int)ptr_err(f);
	*ret = f->path;
	path_get(ret);
	file_put(f);
	return 0;
}

static const enum ns_kind kinds[NS_KIND_COUNT] = {
	NS_MNT, NS_UTS, NS_IPC, NS_PID, NS_PID_FOR_CHILDREN, NS_USER, NS_NET, NS_CGROUP,
};

#define NS_LINK(n, k)                                                                    \
	{ .name = (n), .mode = S_IFLNK | 0777, .readlink = ns_readlink,                  \
	  .follow = ns_follow, .data = &kinds[k] }
const struct pfs_node proc_ns_nodes[] = {
	NS_LINK("cgroup", NS_CGROUP), NS_LINK("ipc", NS_IPC), NS_LINK("mnt", NS_MNT),
	NS_LINK("net", NS_NET), NS_LINK("pid", NS_PID),
	NS_LINK("pid_for_children", NS_PID_FOR_CHILDREN), NS_LINK("user", NS_USER),
	NS_LINK("uts", NS_UTS), PROC_END,
};

/* ---- mount tables ---- */

/* Calls @show with the mount namespace and root of the process. */
static int with_mounts(struct pfs_inode *pi, struct seqbuf *out,
		       void (*show)(struct mntns *ns, const struct path *root, struct seqbuf *out))
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct nsproxy *ns = t ? task_ns_get(t) : NULL;
	struct fsctx *fs = t ? task_fs_get(t) : NULL;
	int err = -EINVAL;

	if (ns && fs) {
		struct path root = fsctx_root(fs);

		show(ns->mnt, &root, out);
		path_put(&root);
		err = 0;
	}
	if (fs)
		fsctx_put(fs);
	if (ns)
		nsproxy_put(ns);
	return t ? err : -ESRCH;
}

int proc_show_mountinfo(struct pfs_inode *pi, struct seqbuf *out)
{
	return with_mounts(pi, out, mntns_show_mountinfo);
}

int proc_show_mounts(struct pfs_inode *pi, struct seqbuf *out)
{
	return with_mounts(pi, out, mntns_show_mounts);
}

/* "device SRC mounted on DIR with fstype TYPE", from the lines of mounts. */
static void show_mountstats(struct mntns *ns, const struct path *root, struct seqbuf *out)
{
	struct seqbuf m;
	char *p, *end;

	seq_init(&m);
	mntns_show_mounts(ns, root, &m);
	seq_putc(&m, '\0');
	for (p = m.buf; *p; p = end + 1) {
		char src[256], dir[256], type[64];

		end = p;
		while (*end && *end != '\n')
			end++;
		if (sscanf(p, "%255s %255s %63s", src, dir, type) == 3)
			seq_printf(out, "device %s mounted on %s with fstype %s\n", src, dir, type);
		if (!*end)
			break;
	}
	seq_fini(&m);
}

int proc_show_mountstats(struct pfs_inode *pi, struct seqbuf *out)
{
	return with_mounts(pi, out, show_mountstats);
}

/*
 * An open mount table tells changes of the tree by EPOLLERR|EPOLLPRI, once each (man 5 proc_pid_mounts). The
 * watch is embedded behind the usual text state of the file.
 */
struct mounts_watch {
	struct waiter w;
	struct mntns *ns; /* reference */
	_Atomic bool changed;
	struct pfs_file *text;
};

static void mounts_changed(struct waiter *w, uint32_t events)
{
	(void)events;
	container_of(w, struct mounts_watch, w)->changed = true;
}

static void mounts_watch(struct mounts_watch *mw)
{
	mw->w.mask = ~0u;
	mw->w.wake = mounts_changed;
	waitq_add(mntns_waitq(mw->ns), &mw->w);
}

int proc_mounts_open(struct pfs_inode *pi, struct file *f)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct nsproxy *ns = t ? task_ns_get(t) : NULL;
	struct mounts_watch *mw;

	if (!ns)
		return t ? -EINVAL : -ESRCH;
	mw = kzalloc(sizeof(*mw));
	mw->text = pfs_file_create();
	mw->ns = mntns_get(ns->mnt);
	nsproxy_put(ns);
	mounts_watch(mw);
	f->priv = mw;
	return 0;
}

static void mounts_release(struct file *f)
{
	struct mounts_watch *mw = f->priv;

	waitq_remove(mntns_waitq(mw->ns), &mw->w);
	mntns_put(mw->ns);
	pfs_text_free(mw->text);
	free(mw);
}

static ssize_t mounts_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	(void)t;
	return pfs_text_read(pfs_of(f->inode), ((struct mounts_watch *)f->priv)->text, it, pos);
}

static uint32_t mounts_poll(struct file *f)
{
	struct mounts_watch *mw = f->priv;
	uint32_t ev = EPOLLIN | EPOLLRDNORM;

	if (atomic_exchange(&mw->changed, false))
		ev |= EPOLLERR | EPOLLPRI;
	return ev;
}

static struct waitq *mounts_waitq(struct file *f)
{
	return mntns_waitq(((struct mounts_watch *)f->priv)->ns);
}

const struct file_ops proc_mountinfo_fops = {
	.name = "mounts",
	.release = mounts_release,
	.read = mounts_read,
	.llseek = pfs_file_llseek,
	.poll = mounts_poll,
	.waitq = mounts_waitq,
	.state = &file_state_proc_mounts,
};

/* ---- saving ---- */

static void mounts_fields(struct state *s, struct file *f)
{
	struct mounts_watch *mw = state_loading(s) ? kzalloc(sizeof(*mw)) : f->priv;
	bool changed = mw->changed;

	f->priv = mw;
	state_ref(s, &state_mntns, &mw->ns);
	state_bool(s, &changed);
	pfs_text_fields(s, &mw->text);
	if (!state_loading(s))
		return;
	mw->changed = changed;
	if (mw->ns)
		mounts_watch(mw);
	else
		state_fail(s, "mount table of no namespace");
}

static void mounts_finish(struct state *s, struct file *f)
{
	if (file_state_on(s, f, &state_inode_pfs) && !S_ISREG(f->inode->mode))
		state_fail(s, "mount table of what is none");
}

const struct file_state file_state_proc_mounts = {
	.id = FILE_PROC_MOUNTS,
	.ops = &proc_mountinfo_fops,
	.fields = mounts_fields,
	.finish = mounts_finish,
};
