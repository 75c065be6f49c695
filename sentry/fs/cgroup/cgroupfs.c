// SPDX-License-Identifier: Apache-2.0
/*
 * A cgroup2 hierarchy of one group, as a container with a private cgroup namespace sees it. It tells the
 * sandbox's limits, so that runtimes (Java, Go, node) size themselves by them, and the members.
 *
 * Left out: child groups and changes of limits. mkdir is EPERM; writing a pid of one's own to cgroup.procs
 * succeeds, as it is there already.
 */
#include "sentry/fs/cgroup/cgroupfs.h"

#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/proc/proc.h"
#include "sentry/fs/proc/proc_priv.h"
#include "sentry/fs/pseudo/pseudofs.h"
#include "sentry/kernel/oom.h"
#include "sentry/state/state.h"
#include "sentry/time/clock.h"

#define CGROUP2_SUPER_MAGIC 0x63677270
#define CPU_PERIOD_US 100000UL

static int show_procs(struct pfs_inode *pi, struct seqbuf *out)
{
	struct task *me = current_task();
	struct pidns *ns = me ? task_pidns(me) : kernel.init_pidns;
	bool threads = pi->node->data != NULL;
	struct pid *p;

	for (pid_t nr = 1; (p = pid_next(ns, nr)); pid_put(p)) {
		nr = pid_nr(p, ns);
		if (threads ? READ_ONCE(p->task) != NULL : READ_ONCE(p->tgroup) != NULL)
			seq_printf(out, "%d\n", nr);
		nr++;
	}
	return 0;
}

static ssize_t store_procs(struct task *t, struct pfs_inode *pi, char *buf, size_t len)
{
	struct pid *p;
	int64_t nr;

	(void)pi;
	if (pfs_parse(buf, 0, PID_MAX_DEFAULT, &nr))
		return -EINVAL;
	if (nr) {
		p = pid_find(task_pidns(t), (pid_t)nr);
		if (!p)
			return -ESRCH;
		pid_put(p);
	}
	return (ssize_t)len;
}

static int show_limit(struct seqbuf *out, uint64_t v)
{
	if (v)
		seq_printf(out, "%lu\n", (unsigned long)v);
	else
		seq_printf(out, "max\n");
	return 0;
}

static int show_memory_max(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	return show_limit(out, kernel.limits.max_memory);
}

static int show_memory_current(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	seq_printf(out, "%lu\n", (unsigned long)(proc_mem_total() - proc_mem_free()));
	return 0;
}

static int show_memory_events(struct pfs_inode *pi, struct seqbuf *out)
{
	unsigned long kills = (unsigned long)oom_kills();

	(void)pi;
	seq_printf(out, "low 0\nhigh 0\nmax %lu\noom %lu\noom_kill %lu\noom_group_kill 0\n", kills, kills,
		   kills);
	return 0;
}

static int show_memory_stat(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	seq_printf(out, "anon %lu\nfile 0\nkernel 0\nshmem 0\ninactive_file 0\nactive_file 0\n"
			"pgfault 0\npgmajfault 0\n",
		   (unsigned long)(proc_mem_total() - proc_mem_free()));
	return 0;
}

static int show_cpu_max(struct pfs_inode *pi, struct seqbuf *out)
{
	unsigned long quota = kernel.limits.cpu_quota_us, period = kernel.limits.cpu_period_us;

	(void)pi;
	if (quota)
		seq_printf(out, "%lu %lu\n", quota, period);
	else
		seq_printf(out, "max %lu\n", period ? period : CPU_PERIOD_US);
	return 0;
}

static int show_cpu_stat(struct pfs_inode *pi, struct seqbuf *out)
{
	uint64_t user, sys;

	(void)pi;
	proc_cpu_total(&user, &sys);
	seq_printf(out, "usage_usec %lu\nuser_usec %lu\nsystem_usec %lu\nnr_periods 0\n"
			"nr_throttled 0\nthrottled_usec 0\n",
		   (unsigned long)((user + sys) / 1000), (unsigned long)(user / 1000),
		   (unsigned long)(sys / 1000));
	return 0;
}

static int show_cpuset(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	if (kernel.limits.ncpus > 1)
		seq_printf(out, "0-%u\n", kernel.limits.ncpus - 1);
	else
		seq_printf(out, "0\n");
	return 0;
}

static int show_pids_max(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	return show_limit(out, kernel.limits.max_tasks);
}

static int show_pids_current(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	seq_printf(out, "%u\n", kernel.ntasks);
	return 0;
}

static int show_text(struct pfs_inode *pi, struct seqbuf *out)
{
	const char *s = pi->node->data;

	seq_write(out, s, strlen(s));
	return 0;
}

#define TEXT(n, text) { .name = (n), .mode = S_IFREG | 0444, .show = show_text, .data = (text) }
#define FILE_SHOW(n, fn) { .name = (n), .mode = S_IFREG | 0444, .show = (fn) }

static const struct pfs_node root_nodes[] = {
	TEXT("cgroup.controllers", "cpuset cpu memory pids\n"),
	TEXT("cgroup.events", "populated 1\nfrozen 0\n"),
	TEXT("cgroup.freeze", "0\n"),
	TEXT("cgroup.max.depth", "max\n"),
	TEXT("cgroup.max.descendants", "max\n"),
	{ .name = "cgroup.procs", .mode = S_IFREG | 0644, .show = show_procs, .store = store_procs },
	TEXT("cgroup.stat", "nr_descendants 0\nnr_dying_descendants 0\n"),
	TEXT("cgroup.subtree_control", ""),
	{ .name = "cgroup.threads", .mode = S_IFREG | 0644, .show = show_procs,
	  .store = store_procs, .data = "threads" },
	TEXT("cgroup.type", "domain\n"),
	FILE_SHOW("cpu.max", show_cpu_max),
	FILE_SHOW("cpu.stat", show_cpu_stat),
	TEXT("cpu.weight", "100\n"),
	FILE_SHOW("cpuset.cpus", show_cpuset),
	FILE_SHOW("cpuset.cpus.effective", show_cpuset),
	TEXT("cpuset.mems", "0\n"),
	TEXT("cpuset.mems.effective", "0\n"),
	FILE_SHOW("memory.current", show_memory_current),
	FILE_SHOW("memory.events", show_memory_events),
	TEXT("memory.high", "max\n"),
	TEXT("memory.low", "0\n"),
	FILE_SHOW("memory.max", show_memory_max),
	TEXT("memory.min", "0\n"),
	FILE_SHOW("memory.stat", show_memory_stat),
	TEXT("memory.swap.current", "0\n"),
	TEXT("memory.swap.max", "0\n"),
	FILE_SHOW("pids.current", show_pids_current),
	FILE_SHOW("pids.max", show_pids_max),
	{ .name = NULL },
};

static const struct pfs_node root_node = {
	.name = "",
	.mode = S_IFDIR | 0555,
	.children = root_nodes,
};

static struct super *cgroup_mount(struct task *t, const char *source, unsigned long flags,
				  const char *data);

static struct fs_type cgroup_type = {
	.name = "cgroup2",
	.nodev = true,
	.userns_ok = true,
	.mount = cgroup_mount,
};

static struct super *cgroup_mount(struct task *t, const char *source, unsigned long flags,
				  const char *data)
{
	struct super *sb = kzalloc(sizeof(*sb));

	(void)t, (void)data;
	super_init(sb, &pfs_super_ops, &cgroup_type, CGROUP2_SUPER_MAGIC, flags);
	sb->source = kstrdup(source ? source : "cgroup");
	pfs_set_root(sb, &root_node, 1);
	return sb;
}

static const struct pfs_root saved_root = {
	.name = "cgroup",
	.node = &root_node,
	.super = &state_super_pfs,
};

void cgroupfs_init(void)
{
	pfs_register(&saved_root);
	fs_register(&cgroup_type);
}
