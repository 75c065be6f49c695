// SPDX-License-Identifier: Apache-2.0
/* The directories of a process and of a thread: what is in them, and /proc/PID/task. */
#include <dirent.h>
#include <stdio.h>

#include "sentry/fs/proc/proc_priv.h"

/* Everything that both directories have. */
#define LINK(n, fn)                                                                      \
	{ .name = (n), .mode = S_IFLNK | 0777, .readlink = proc_##fn##_readlink,         \
	  .follow = proc_##fn##_follow }
#define FILE_RW(n, m, sh, st) { .name = (n), .mode = S_IFREG | (m), .show = (sh), .store = (st) }
#define FILE_M(n, m, sh) { .name = (n), .mode = S_IFREG | (m), .show = (sh) }
#define TEXT_RW(n, m, text)                                                              \
	{ .name = (n), .mode = S_IFREG | (m), .show = proc_show_data, .data = (text),    \
	  .store = proc_store_ignored }

// clang-format off
#define PID_COMMON                                                                       \
	PROC_DIR("attr", proc_attr_nodes),                                               \
	FILE_M("auxv", 0400, proc_show_auxv),                                            \
	PROC_FILE("cgroup", proc_show_cgroup),                                           \
	FILE_RW("clear_refs", 0200, NULL, proc_store_ignored),                           \
	PROC_FILE("cmdline", proc_show_cmdline),                                         \
	FILE_RW("comm", 0644, proc_show_comm, proc_store_comm),                          \
	LINK("cwd", cwd),                                                                \
	FILE_M("environ", 0400, proc_show_environ),                                      \
	LINK("exe", exe),                                                                \
	{ .name = "fd", .mode = S_IFDIR | 0500, .lookup = proc_fd_lookup,                \
	  .iterate = proc_fd_iterate, .permission = proc_fd_permission },                \
	{ .name = "fdinfo", .mode = S_IFDIR | 0555, .lookup = proc_fdinfo_lookup,        \
	  .iterate = proc_fd_iterate, .permission = proc_fd_permission },                \
	FILE_RW("gid_map", 0644, proc_show_gid_map, proc_store_gid_map),                 \
	FILE_M("io", 0400, proc_show_io),                                                \
	PROC_FILE("limits", proc_show_limits),                                           \
	TEXT_RW("loginuid", 0644, "4294967295"),                                         \
	PROC_FILE("maps", proc_show_maps),                                               \
	{ .name = "mem", .mode = S_IFREG | 0600, .fops = &proc_mem_fops,                 \
	  .open = proc_mem_open },                                                       \
	{ .name = "mountinfo", .mode = S_IFREG | 0444, .show = proc_show_mountinfo,      \
	  .fops = &proc_mountinfo_fops, .open = proc_mounts_open },                      \
	{ .name = "mounts", .mode = S_IFREG | 0444, .show = proc_show_mounts,            \
	  .fops = &proc_mountinfo_fops, .open = proc_mounts_open },                      \
	PROC_DIR("net", proc_net_nodes),                                                 \
	{ .name = "ns", .mode = S_IFDIR | 0511, .children = proc_ns_nodes },             \
	FILE_RW("oom_adj", 0644, proc_show_oom_adj, proc_store_oom_adj),                 \
	PROC_FILE("oom_score", proc_show_oom_score),                                     \
	FILE_RW("oom_score_adj", 0644, proc_show_oom_score_adj, proc_store_oom_score_adj), \
	{ .name = "pagemap", .mode = S_IFREG | 0400, .fops = &proc_pagemap_fops,         \
	  .open = proc_mem_open },                                                       \
	FILE_M("personality", 0400, proc_show_personality),                              \
	FILE_RW("projid_map", 0644, proc_show_uid_map, NULL),                            \
	LINK("root", root),                                                              \
	PROC_FILE("sched", proc_show_sched),                                             \
	PROC_FILE("schedstat", proc_show_schedstat),                                     \
	PROC_TEXT("sessionid", "4294967295"),                                            \
	FILE_RW("setgroups", 0644, proc_show_setgroups, proc_store_setgroups),           \
	PROC_FILE("smaps", proc_show_smaps),                                             \
	PROC_FILE("smaps_rollup", proc_show_smaps_rollup),                               \
	FILE_M("stack", 0400, proc_show_empty),                                          \
	PROC_FILE("stat", proc_show_stat),                                               \
	PROC_FILE("statm", proc_show_statm),                                             \
	PROC_FILE("status", proc_show_status),                                           \
	FILE_M("syscall", 0400, proc_show_syscall),                                      \
	FILE_RW("uid_map", 0644, proc_show_uid_map, proc_store_uid_map),                 \
	PROC_FILE("wchan", proc_show_wchan)
// clang-format on

static struct inode *task_lookup(struct pfs_inode *dir, const char *name);
static int task_iterate(struct pfs_inode *dir, struct dir_ctx *ctx, int64_t key);

static const struct pfs_node tgid_nodes[] = {
	PID_COMMON,
	TEXT_RW("coredump_filter", 0644, "00000033\n"),
	FILE_M("mountstats", 0400, proc_show_mountstats),
	{ .name = "task", .mode = S_IFDIR | 0555, .lookup = task_lookup, .iterate = task_iterate },
	FILE_RW("timerslack_ns", 0666, proc_show_timerslack, proc_store_timerslack),
	PROC_FILE("timers", proc_show_timers),
	PROC_END,
};

static const struct pfs_node tid_nodes[] = {
	PID_COMMON,
	PROC_FILE("children", proc_show_children),
	PROC_END,
};

const struct pfs_node proc_tgid_node = {
	.name = "pid",
	.mode = S_IFDIR | 0555,
	.children = tgid_nodes,
};

const struct pfs_node proc_tid_node = {
	.name = "tid",
	.mode = S_IFDIR | 0555,
	.children = tid_nodes,
};

/* Threads of the process are all those whose group is that of the directory's task. */
static struct inode *task_lookup(struct pfs_inode *dir, const char *name)
{
	AUTO_TASK struct task *t = proc_task(dir);
	struct inode *inode = NULL;
	bool member;
	int64_t nr;
	struct pid *p;

	if (!t || name[0] < '1' || name[0] > '9' || pfs_parse(name, 1, PID_MAX_DEFAULT, &nr))
		return NULL;
	p = pid_find(proc_pidns(dir), (pid_t)nr);
	if (!p)
		return NULL;
	mutex_lock(&kernel.tasks_mu);
	member = p->task ? p->task->tg == t->tg : p->tgroup == t->tg;
	mutex_unlock(&kernel.tasks_mu);
	if (member)
		inode = pfs_inode_create(dir, &proc_tid_node, name, &proc_pid_ctx, p, -nr);
	pid_put(p);
	return inode;
}

/* The lowest thread number >= @from of @tg, 0 at the end. */
static pid_t next_thread(struct tgroup *tg, struct pidns *ns, pid_t from)
{
	pid_t best = 0;
	struct task *t;
	AUTO_LOCK(&kernel.tasks_mu);

	list_for_each(t, &tg->threads, tg_node) {
		pid_t nr = pid_nr(t->pid, ns);

		if (nr >= from && (!best || nr < best))
			best = nr;
	}
	return best;
}

static int task_iterate(struct pfs_inode *dir, struct dir_ctx *ctx, int64_t key)
{
	AUTO_TASK struct task *t = proc_task(dir);
	pid_t nr = (pid_t)MAX(key, (int64_t)1);
	char name[16];

	if (!t)
		return -ENOENT;
	for (; (nr = next_thread(t->tg, proc_pidns(dir), nr)); nr++) {
		snprintf(name, sizeof(name), "%d", nr);
		if (!pfs_emit(dir, ctx, name, DT_DIR, nr))
			break;
	}
	return 0;
}
