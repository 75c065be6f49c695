// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of sentry/fs/proc/ share.
 *
 * An inode below /proc/PID or /proc/PID/task/TID has a struct pid as its ctx and looks the task up in it
 * each time, so a process that is gone gives ESRCH and nothing is kept alive but the number.
 */
#ifndef SENTRY_FS_PROC_PROC_PRIV_H
#define SENTRY_FS_PROC_PROC_PRIV_H

#include "sentry/fs/proc/proc.h"
#include "sentry/fs/pseudo/pseudofs.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/task.h"

struct proc_super {
	struct super sb;
	struct pidns *ns; /* reference */
	int hidepid;
	gid_t gid;
};

static inline struct proc_super *proc_super_of(struct pfs_inode *pi)
{
	return container_of(pi->inode.sb, struct proc_super, sb);
}

static inline struct pidns *proc_pidns(struct pfs_inode *pi)
{
	return proc_super_of(pi)->ns;
}

#define PROC_DIR(n, ch) { .name = (n), .mode = S_IFDIR | 0555, .children = (ch) }
#define PROC_FILE(n, fn) { .name = (n), .mode = S_IFREG | 0444, .show = (fn) }
#define PROC_TEXT(n, text) \
	{ .name = (n), .mode = S_IFREG | 0444, .show = proc_show_data, .data = (text) }
#define PROC_END { .name = NULL }

int proc_show_data(struct pfs_inode *pi, struct seqbuf *out); /* node->data */
int proc_show_empty(struct pfs_inode *pi, struct seqbuf *out);

/* ---- of a process ---- */
/* The task of the inode: reference, NULL when it is gone. */
struct task *proc_task(struct pfs_inode *pi);
static inline void cleanup_task_put(struct task **t)
{
	if (*t && !is_err(*t))
		task_put(*t);
}
#define AUTO_TASK __attribute__((cleanup(cleanup_task_put)))
/* The same after a check that the caller may look (@attach: control) into it: -ESRCH, -EACCES. */
struct task *proc_task_access(struct pfs_inode *pi, bool attach);
extern const struct pfs_ctx_ops proc_pid_ctx;
extern const struct pfs_node proc_tgid_node; /* /proc/PID */
extern const struct pfs_node proc_tid_node;  /* /proc/PID/task/TID */

/* proc_pid_stat.c */
int proc_show_stat(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_statm(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_status(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_limits(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_io(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_schedstat(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_sched(struct pfs_inode *pi, struct seqbuf *out);

/* proc_pid_mem.c */
int proc_show_maps(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_smaps(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_smaps_rollup(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_cmdline(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_environ(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_auxv(struct pfs_inode *pi, struct seqbuf *out);
extern const struct file_ops proc_mem_fops, proc_pagemap_fops;
int proc_mem_open(struct pfs_inode *pi, struct file *f);

/* proc_pid_attr.c: small readable and writable ones */
extern const struct pfs_node proc_attr_nodes[];
int proc_show_comm(struct pfs_inode *pi, struct seqbuf *out);
ssize_t proc_store_comm(struct task *t, struct pfs_inode *pi, char *buf, size_t len);
int proc_show_oom_score(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_oom_adj(struct pfs_inode *pi, struct seqbuf *out);
ssize_t proc_store_oom_adj(struct task *t, struct pfs_inode *pi, char *buf, size_t len);
int proc_show_oom_score_adj(struct pfs_inode *pi, struct seqbuf *out);
ssize_t proc_store_oom_score_adj(struct task *t, struct pfs_inode *pi, char *buf, size_t len);
int proc_show_cgroup(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_syscall(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_wchan(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_personality(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_timerslack(struct pfs_inode *pi, struct seqbuf *out);
ssize_t proc_store_timerslack(struct task *t, struct pfs_inode *pi, char *buf, size_t len);
ssize_t proc_store_ignored(struct task *t, struct pfs_inode *pi, char *buf, size_t len);
int proc_show_uid_map(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_gid_map(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_setgroups(struct pfs_inode *pi, struct seqbuf *out);
ssize_t proc_store_uid_map(struct task *t, struct pfs_inode *pi, char *buf, size_t len);
ssize_t proc_store_gid_map(struct task *t, struct pfs_inode *pi, char *buf, size_t len);
ssize_t proc_store_setgroups(struct task *t, struct pfs_inode *pi, char *buf, size_t len);
int proc_show_children(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_timers(struct pfs_inode *pi, struct seqbuf *out);

/* proc_fd.c */
extern const struct pfs_node proc_fd_node, proc_fdinfo_node;
struct inode *proc_fd_lookup(struct pfs_inode *dir, const char *name);
struct inode *proc_fdinfo_lookup(struct pfs_inode *dir, const char *name);
int proc_fd_iterate(struct pfs_inode *dir, struct dir_ctx *ctx, int64_t key);
int proc_fd_permission(struct pfs_inode *pi, const struct cred *c, int mask);

/* proc_links.c */
char *proc_exe_readlink(struct pfs_inode *pi);
int proc_exe_follow(struct pfs_inode *pi, struct task *t, struct path *ret);
char *proc_cwd_readlink(struct pfs_inode *pi);
int proc_cwd_follow(struct pfs_inode *pi, struct task *t, struct path *ret);
char *proc_root_readlink(struct pfs_inode *pi);
int proc_root_follow(struct pfs_inode *pi, struct task *t, struct path *ret);
extern const struct pfs_node proc_ns_nodes[];
extern const struct file_ops proc_mountinfo_fops;
int proc_mounts_open(struct pfs_inode *pi, struct file *f);
extern const struct pfs_node proc_holdfast_nodes[]; /* proc_holdfast.c */
int proc_show_mountinfo(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_mounts(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_mountstats(struct pfs_inode *pi, struct seqbuf *out);

/* proc_net.c, proc_sysctl.c, proc_root.c, proc_cpu.c */
extern const struct pfs_node proc_net_nodes[];
extern const struct pfs_node proc_sys_nodes[];
int proc_show_meminfo(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_cpuinfo(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_global_stat(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_loadavg(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_uptime(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_version(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_vmstat(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_interrupts(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_softirqs(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_key_users(struct pfs_inode *pi, struct seqbuf *out);
int proc_show_config(struct pfs_inode *pi, struct seqbuf *out);
/* Memory of the sandbox: limit (or the host's) and what is left, in bytes. */
void proc_mem_init(void); /* once, before the sentry is confined */
void proc_cpu_total(uint64_t *user_ns, uint64_t *sys_ns); /* of all processes */

#endif
