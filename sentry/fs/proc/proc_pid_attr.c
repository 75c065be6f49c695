// SPDX-License-Identifier: Apache-2.0
/*
 * The small files of a process, many of them writable: comm, oom_*, the id maps, cgroup, timer slack,
 * wchan, syscall, children.
 *
 * There is no out-of-memory killer of ours: oom_score_adj is kept and shown, oom_score is computed from it
 * and the memory's share as Linux does.
 */
#include <linux/capability.h>
#include <string.h>

#include "sentry/fs/proc/proc_priv.h"
#include "sentry/mm/mm.h"
#include "sentry/time/posix_timer.h"

#define OOM_SCORE_ADJ_MIN (-1000)
#define OOM_SCORE_ADJ_MAX 1000
#define OOM_DISABLE (-17)
#define OOM_ADJUST_MAX 15

int proc_show_comm(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	char comm[TASK_COMM_LEN];

	if (!t)
		return -ESRCH;
	task_get_comm(t, comm);
	seq_printf(out, "%s\n", comm);
	return 0;
}

ssize_t proc_store_comm(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	AUTO_TASK struct task *target = proc_task(pi);
	char comm[TASK_COMM_LEN] = { 0 };

	if (!target)
		return -ESRCH;
	if (target->tg != t->tg)
		return -EINVAL;
	memcpy(comm, buf, MIN(len, sizeof(comm) - 1));
	task_set_comm(target, comm);
	return (ssize_t)len;
}

ssize_t proc_store_ignored(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	(void)t, (void)pi, (void)buf;
	return (ssize_t)len;
}

/* ---- oom ---- */

int proc_show_oom_score(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct mm_stat st = { 0 };
	struct mm *mm;
	long points;

	if (!t)
		return -ESRCH;
	mm = task_mm_get(t);
	if (mm) {
		mm_stat(mm, &st);
		mm_put(mm);
	}
	/* 0..1000 for the share of memory, raised to 0..2000 by the adjustment, shown as 2/3 of it */
	points = (long)(st.rss * 1000 / proc_mem_total()) + t->tg->oom_score_adj;
	points = (1000 + points) * 2 / 3;
	seq_printf(out, "%ld\n", mm && points > 0 ? points : 0);
	return 0;
}

int proc_show_oom_score_adj(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);

	if (!t)
		return -ESRCH;
	seq_printf(out, "%d\n", t->tg->oom_score_adj);
	return 0;
}

static ssize_t set_oom(struct task *t, struct pfs_inode *pi, int adj, size_t len)
{
	AUTO_TASK struct task *target = proc_task(pi);

	if (!target)
		return -ESRCH;
	if (adj < target->tg->oom_score_adj && !task_capable(t, CAP_SYS_RESOURCE))
		return -EACCES;
	target->tg->oom_score_adj = adj;
	return (ssize_t)len;
}

ssize_t proc_store_oom_score_adj(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	int64_t v;

	if (pfs_parse(buf, OOM_SCORE_ADJ_MIN, OOM_SCORE_ADJ_MAX, &v))
		return -EINVAL;
	return set_oom(t, pi, (int)v, len);
}

int proc_show_oom_adj(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	int adj;

	if (!t)
		return -ESRCH;
	adj = t->tg->oom_score_adj;
	adj = adj == OOM_SCORE_ADJ_MAX ? OOM_ADJUST_MAX : adj * -OOM_DISABLE / OOM_SCORE_ADJ_MAX;
	seq_printf(out, "%d\n", MIN(adj, OOM_ADJUST_MAX));
	return 0;
}

ssize_t proc_store_oom_adj(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	int64_t v;

	if (pfs_parse(buf, OOM_DISABLE, OOM_ADJUST_MAX, &v))
		return -EINVAL;
	v = v == OOM_ADJUST_MAX ? OOM_SCORE_ADJ_MAX : v * OOM_SCORE_ADJ_MAX / -OOM_DISABLE;
	return set_oom(t, pi, (int)v, len);
}

/* ---- state ---- */

int proc_show_cgroup(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);

	if (!t)
		return -ESRCH;
	seq_printf(out, "0::/\n");
	return 0;
}

int proc_show_syscall(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task_access(pi, true);

	if (is_err(t))
		return (int)ptr_err(t);
	if (t->state == TASK_RUNNING)
		seq_printf(out, "running\n");
	else
		seq_printf(out, "%ld 0x%lx 0x%lx 0x%lx 0x%lx 0x%lx 0x%lx 0x%lx 0x%lx\n",
			   t->in_syscall ? t->sysno : -1L, (unsigned long)t->regs.rdi,
			   (unsigned long)t->regs.rsi, (unsigned long)t->regs.rdx,
			   (unsigned long)t->regs.r10, (unsigned long)t->regs.r8,
			   (unsigned long)t->regs.r9, (unsigned long)t->regs.rsp,
			   (unsigned long)t->regs.rip);
	return 0;
}

int proc_show_wchan(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);

	if (!t)
		return -ESRCH;
	seq_printf(out, "0");
	return 0;
}

int proc_show_personality(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task_access(pi, true);

	if (is_err(t))
		return (int)ptr_err(t);
	seq_printf(out, "%08x\n", t->personality);
	return 0;
}

int proc_show_timerslack(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task_access(pi, true);

	if (is_err(t))
		return (int)ptr_err(t);
	seq_printf(out, "%lu\n", (unsigned long)t->timer_slack_ns);
	return 0;
}

ssize_t proc_store_timerslack(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	AUTO_TASK struct task *target = proc_task(pi);
	int64_t v;

	if (!target)
		return -ESRCH;
	if (target != t && !task_capable(t, CAP_SYS_NICE))
		return -EPERM;
	if (pfs_parse(buf, 0, INT64_MAX, &v))
		return -EINVAL;
	target->timer_slack_ns = v ? (uint64_t)v : target->timer_slack_default_ns;
	return (ssize_t)len;
}

int proc_show_timers(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task_access(pi, true);

	if (is_err(t))
		return (int)ptr_err(t);
	if (current_task())
		posix_timers_show(current_task(), t->tg, out);
	return 0;
}

/* Children whose parent is this very thread. */
int proc_show_children(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct tgroup *c;

	if (!t)
		return -ESRCH;
	AUTO_LOCK(&kernel.tasks_mu);
	list_for_each(c, &t->tg->children, sibling)
		if (c->parent_task == t || (!c->parent_task && t == t->tg->leader))
			seq_printf(out, "%d ", pid_nr(c->pid, proc_pidns(pi)));
	return 0;
}

/* ---- user namespace ---- */

static struct userns *userns_of(struct pfs_inode *pi)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct userns *ns;
	struct cred *c;

	if (!t)
		return NULL;
	c = task_cred_get(t);
	ns = userns_get(c->userns);
	cred_put(c);
	return ns;
}

/* As the reader's namespace shows the lower ids; its own map in terms of its parent. */
static int show_map(struct pfs_inode *pi, struct seqbuf *out, bool gid)
{
	struct userns *ns = userns_of(pi), *as = &init_userns;
	struct task *t = current_task();
	const struct id_map *m;

	if (!ns)
		return -ESRCH;
	if (t)
		as = task_cred(t)->userns;
	if (as == ns && ns->parent)
		as = ns->parent;
	m = gid ? &ns->gid_map : &ns->uid_map;
	if (!ns->parent && !m->n)
		seq_printf(out, "%10u %10u %10u\n", 0u, 0u, UINT32_MAX);
	for (unsigned i = 0; i < m->n; i++) {
		uint32_t low = m->ext[i].lower_first;

		low = gid ? userns_show_gid_strict(as, low) : userns_show_uid_strict(as, low);
		seq_printf(out, "%10u %10u %10u\n", m->ext[i].first, low, m->ext[i].count);
	}
	userns_put(ns);
	return 0;
}

int proc_show_uid_map(struct pfs_inode *pi, struct seqbuf *out)
{
	return show_map(pi, out, false);
}

int proc_show_gid_map(struct pfs_inode *pi, struct seqbuf *out)
{
	return show_map(pi, out, true);
}

static ssize_t store_map(struct task *t, struct pfs_inode *pi, char *buf, size_t len, bool gid)
{
	struct userns *ns = userns_of(pi);
	int err;

	if (!ns)
		return -ESRCH;
	err = userns_write_map(t, ns, gid, buf, len);
	userns_put(ns);
	return err ? err : (ssize_t)len;
}

ssize_t proc_store_uid_map(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	return store_map(t, pi, buf, len, false);
}

ssize_t proc_store_gid_map(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	return store_map(t, pi, buf, len, true);
}

int proc_show_setgroups(struct pfs_inode *pi, struct seqbuf *out)
{
	struct userns *ns = userns_of(pi);

	if (!ns)
		return -ESRCH;
	seq_printf(out, "%s\n", ns->setgroups_denied ? "deny" : "allow");
	userns_put(ns);
	return 0;
}

ssize_t proc_store_setgroups(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	struct userns *ns = userns_of(pi);
	int err;

	if (!ns)
		return -ESRCH;
	err = userns_write_setgroups(t, ns, buf, len);
	userns_put(ns);
	return err ? err : (ssize_t)len;
}

/* ---- attr/: no security module is there to ask ---- */

static int show_no_label(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi, (void)out;
	return -EINVAL;
}

static ssize_t store_no_label(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	(void)t, (void)pi, (void)buf, (void)len;
	return -EINVAL;
}

#define ATTR(n, m) { .name = (n), .mode = S_IFREG | (m), .show = show_no_label, .store = store_no_label }
const struct pfs_node proc_attr_nodes[] = {
	ATTR("current", 0666), ATTR("exec", 0666), ATTR("fscreate", 0666), ATTR("keycreate", 0666),
	ATTR("prev", 0444), ATTR("sockcreate", 0666), PROC_END,
};
