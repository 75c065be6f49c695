// SPDX-License-Identifier: Apache-2.0
/*
 * procfs: the super, the root directory, and the way from a number to a process.
 *
 * A mount shows the pid namespace of who mounted it. hidepid=0..2 and gid= are honoured: with 1 the content
 * of other users' directories is closed, with 2 they are invisible. subset=pid is accepted and shows
 * all.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/fs/dev/chrdev.h"
#include "sentry/fs/proc/proc_priv.h"
#include "sentry/kernel/sysv.h"
#include "sentry/vfs/locks.h"
#include "sentry/vfs/vfs_state.h"

#define PROC_SUPER_MAGIC 0x9fa0
#define PROC_ROOT_INO 1

int proc_show_data(struct pfs_inode *pi, struct seqbuf *out)
{
	const char *s = pi->node->data;

	seq_write(out, s, strlen(s));
	return 0;
}

int proc_show_empty(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi, (void)out;
	return 0;
}

/* ---- from inode to task ---- */

static void pid_ctx_get(void *ctx)
{
	pid_get(ctx);
}

static void pid_ctx_put(void *ctx)
{
	pid_put(ctx);
}

/* The task for a directory of a process (its leader) or thread. A process whose leader has exited is
 * still there through its group. Context: tasks_mu. */
static struct task *pid_task_locked(const struct pid *p)
{
	if (p->task)
		return p->task;
	return p->tgroup ? p->tgroup->leader : NULL;
}

struct task *proc_task(struct pfs_inode *pi)
{
	struct task *t;
	AUTO_LOCK(&kernel.tasks_mu);

	if (pi->ctx_ops != &proc_pid_ctx)
		return NULL;
	t = pid_task_locked(pi->ctx);
	return t ? task_get(t) : NULL;
}

struct task *proc_task_access(struct pfs_inode *pi, bool attach)
{
	struct task *target = proc_task(pi), *t = current_task();

	if (!target)
		return err_ptr(-ESRCH);
	if (t && target->tg != t->tg && task_may_access(t, target, attach)) {
		task_put(target);
		return err_ptr(-EACCES);
	}
	return target;
}

static bool pid_ctx_valid(struct pfs_inode *pi)
{
	AUTO_LOCK(&kernel.tasks_mu);
	return pid_task_locked(pi->ctx) != NULL;
}

/*
 * Owner of /proc/PID files: the process's effective ids, or root when it isn't dumpable (man 5 proc),
 * except for the directories that everybody may enter.
 */
static void pid_ctx_refresh(struct pfs_inode *pi)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct cred *c;
	struct mm *mm;
	bool root = false;

	if (!t)
		return;
	c = task_cred_get(t);
	mm = task_mm_get(t);
	if (mm && pi->inode.mode != (S_IFDIR | 0555))
		root = !mm_dumpable(mm);
	if (mm)
		mm_put(mm);
	pi->inode.uid = root ? 0 : c->euid;
	pi->inode.gid = root ? 0 : c->egid;
	cred_put(c);
}

const struct pfs_ctx_ops proc_pid_ctx = {
	.get = pid_ctx_get,
	.put = pid_ctx_put,
	.valid = pid_ctx_valid,
	.refresh = pid_ctx_refresh,
};

/* May the caller see @target's directory under hidepid=@level? */
static bool visible(struct pfs_inode *dir, struct task *target, int level)
{
	struct proc_super *ps = proc_super_of(dir);
	struct task *t = current_task();

	if (ps->hidepid < level || !t || target->tg == t->tg)
		return true;
	if (cred_in_group(task_cred(t), ps->gid))
		return true;
	return task_may_access(t, target, false) == 0;
}

static pid_t parse_pid(const char *name)
{
	char *end;
	long v;

	if (name[0] < '1' || name[0] > '9')
		return 0;
	v = strtol(name, &end, 10);
	return *end || v > PID_MAX_DEFAULT ? 0 : (pid_t)v;
}

/* /proc/N: any thread's number opens its own view of the process, listed or not, as in Linux. */
static struct inode *proc_root_lookup(struct pfs_inode *dir, const char *name)
{
	pid_t nr = parse_pid(name);
	struct inode *inode = NULL;
	struct task *target = NULL;
	struct pid *p;

	if (!nr)
		return NULL;
	p = pid_find(proc_pidns(dir), nr);
	if (!p)
		return NULL;
	mutex_lock(&kernel.tasks_mu);
	target = pid_task_locked(p);
	if (target)
		task_get(target);
	mutex_unlock(&kernel.tasks_mu);
	if (target && visible(dir, target, 2))
		inode = pfs_inode_create(dir, &proc_tgid_node, name, &proc_pid_ctx, p, nr);
	if (target)
		task_put(target);
	pid_put(p);
	return inode;
}

static struct task *leader_of(const struct pid *p)
{
	AUTO_LOCK(&kernel.tasks_mu);
	return p->tgroup && p->tgroup->leader ? task_get(p->tgroup->leader) : NULL;
}

static int proc_root_iterate(struct pfs_inode *dir, struct dir_ctx *ctx, int64_t key)
{
	struct pidns *ns = proc_pidns(dir);
	struct pid *p;
	bool more = true;

	for (pid_t nr = (pid_t)MAX(key, (int64_t)1); more && (p = pid_next(ns, nr)); pid_put(p)) {
		struct task *t = leader_of(p);
		char name[16];

		nr = pid_nr(p, ns);
		if (t && visible(dir, t, 2)) {
			snprintf(name, sizeof(name), "%d", nr);
			more = pfs_emit(dir, ctx, name, DT_DIR, nr);
		}
		if (t)
			task_put(t);
		nr++;
	}
	return 0;
}

struct pid *proc_dir_pid(struct file *f)
{
	if (!f->inode || !f->inode->sb || f->inode->sb->magic != PROC_SUPER_MAGIC)
		return NULL;
	return pfs_of(f->inode)->node == &proc_tgid_node ? pfs_of(f->inode)->ctx : NULL;
}

/* ---- /proc/self and the like ---- */

static pid_t self_nr(struct pfs_inode *pi, bool thread)
{
	struct task *t = current_task();

	return t ? pid_nr(thread ? t->pid : t->tg->pid, proc_pidns(pi)) : 0;
}

static char *self_readlink(struct pfs_inode *pi)
{
	pid_t nr = self_nr(pi, false);

	return nr ? kasprintf("%d", nr) : err_ptr(-ENOENT);
}

static char *thread_self_readlink(struct pfs_inode *pi)
{
	pid_t nr = self_nr(pi, false);

	return nr ? kasprintf("%d/task/%d", nr, self_nr(pi, true)) : err_ptr(-ENOENT);
}

static int show_filesystems(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	fs_show_filesystems(out);
	return 0;
}

static int show_devices(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	chrdev_show_devices(out);
	return 0;
}

static int show_locks(struct pfs_inode *pi, struct seqbuf *out)
{
	locks_show(out, proc_pidns(pi));
	return 0;
}

/* SysV tables, of the reader's IPC namespace. */
static int show_sysv(struct seqbuf *out, void (*show)(struct ipcns *ns, struct seqbuf *out))
{
	struct task *t = current_task();

	if (t && t->ns)
		show(t->ns->ipc, out);
	return 0;
}

static int show_sysv_shm(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	return show_sysv(out, sysv_show_shm);
}

static int show_sysv_sem(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	return show_sysv(out, sysv_show_sem);
}

static int show_sysv_msg(struct pfs_inode *pi, struct seqbuf *out)
{
	(void)pi;
	return show_sysv(out, sysv_show_msg);
}

static const struct pfs_node sysvipc_nodes[] = {
	PROC_FILE("msg", show_sysv_msg),
	PROC_FILE("sem", show_sysv_sem),
	PROC_FILE("shm", show_sysv_shm),
	PROC_END,
};

static const struct pfs_node tty_nodes[] = {
	PROC_TEXT("drivers", "/dev/tty             /dev/tty        5       0 system:/dev/tty\n"
			     "/dev/console         /dev/console    5       1 system:console\n"
			     "/dev/ptmx            /dev/ptmx       5       2 system\n"
			     "pty_slave            /dev/pts      136 0-1048575 pty:slave\n"),
	PROC_TEXT("ldiscs", "n_tty       0\n"),
	PROC_END,
};

static const struct pfs_node root_nodes[] = {
	PROC_TEXT("buddyinfo", ""),
	PROC_TEXT("cmdline", "BOOT_IMAGE=holdfast\n"),
	PROC_TEXT("consoles", ""),
	PROC_FILE("config.gz", proc_show_config),
	PROC_FILE("cpuinfo", proc_show_cpuinfo),
	PROC_TEXT("crypto", ""),
	PROC_FILE("devices", show_devices),
	PROC_TEXT("diskstats", ""),
	PROC_TEXT("dma", ""),
	PROC_TEXT("execdomains", "0-0\tLinux           \t[kernel]\n"),
	PROC_FILE("filesystems", show_filesystems),
	PROC_DIR("holdfast", proc_holdfast_nodes),
	PROC_FILE("interrupts", proc_show_interrupts),
	PROC_TEXT("iomem", ""),
	PROC_TEXT("ioports", ""),
	PROC_TEXT("kallsyms", ""),
	PROC_FILE("key-users", proc_show_key_users),
	PROC_TEXT("keys", ""),
	PROC_FILE("loadavg", proc_show_loadavg),
	PROC_FILE("locks", show_locks),
	PROC_FILE("meminfo", proc_show_meminfo),
	PROC_TEXT("misc", ""),
	PROC_TEXT("modules", ""),
	{ .name = "mounts", .mode = S_IFLNK | 0777, .data = "self/mounts" },
	{ .name = "net", .mode = S_IFLNK | 0777, .data = "self/net" },
	PROC_TEXT("partitions", "major minor  #blocks  name\n\n"),
	{ .name = "self", .mode = S_IFLNK | 0777, .readlink = self_readlink },
	PROC_FILE("softirqs", proc_show_softirqs),
	PROC_FILE("stat", proc_show_global_stat),
	PROC_TEXT("swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
	PROC_DIR("sys", proc_sys_nodes),
	PROC_DIR("sysvipc", sysvipc_nodes),
	{ .name = "thread-self", .mode = S_IFLNK | 0777, .readlink = thread_self_readlink },
	PROC_DIR("tty", tty_nodes),
	PROC_FILE("uptime", proc_show_uptime),
	PROC_FILE("version", proc_show_version),
	PROC_FILE("vmstat", proc_show_vmstat),
	PROC_TEXT("zoneinfo", ""),
	PROC_END,
};

static const struct pfs_node root_node = {
	.name = "",
	.mode = S_IFDIR | 0555,
	.children = root_nodes,
	.lookup = proc_root_lookup,
	.iterate = proc_root_iterate,
};

/* ---- mounting ---- */

static void proc_destroy(struct super *sb)
{
	struct proc_super *ps = container_of(sb, struct proc_super, sb);

	super_fini(sb);
	pidns_put(ps->ns);
	free(ps);
}

static int parse_hidepid(const char *v, int *ret)
{
	static const char *const names[] = { "off", "noaccess", "invisible" };

	for (int i = 0; i < 3; i++) {
		if (strcmp(v, names[i]) == 0 || (v[0] == '0' + i && !v[1])) {
			*ret = i;
			return 0;
		}
	}
	if (strcmp(v, "ptraceable") == 0 || strcmp(v, "4") == 0) {
		*ret = 2;
		return 0;
	}
	return -EINVAL;
}

static int parse_options(struct proc_super *ps, const char *data)
{
	AUTO_FREE char *copy = kstrdup(data ? data : "");
	char *save = NULL;
	int64_t v;

	for (char *o = strtok_r(copy, ",", &save); o; o = strtok_r(NULL, ",", &save)) {
		if (strncmp(o, "hidepid=", 8) == 0) {
			if (parse_hidepid(o + 8, &ps->hidepid))
				return -EINVAL;
		} else if (strncmp(o, "gid=", 4) == 0) {
			if (pfs_parse(o + 4, 0, UINT32_MAX - 1L, &v))
				return -EINVAL;
			ps->gid = (gid_t)v;
		} else if (strcmp(o, "subset=pid") != 0) {
			return -EINVAL;
		}
	}
	return 0;
}

static int proc_remount(struct super *sb, unsigned long flags, const char *data)
{
	int err = parse_options(container_of(sb, struct proc_super, sb), data);

	if (!err)
		sb->flags = flags;
	return err;
}

static void proc_show_options(struct super *sb, struct seqbuf *out)
{
	static const char *const names[] = { "", ",hidepid=noaccess", ",hidepid=invisible" };
	struct proc_super *ps = container_of(sb, struct proc_super, sb);

	if (ps->gid)
		seq_printf(out, ",gid=%u", ps->gid);
	seq_printf(out, "%s", names[ps->hidepid]);
}

static const struct super_ops proc_sops = {
	.destroy = proc_destroy,
	.statfs = pfs_statfs,
	.remount = proc_remount,
	.show_options = proc_show_options,
	.state = &state_super_proc,
};

static struct super *proc_mount(struct task *t, const char *source, unsigned long flags,
				const char *data);

static struct fs_type proc_type = {
	.name = "proc",
	.nodev = true,
	.userns_ok = true,
	.mount = proc_mount,
};

struct super *proc_create_super(struct pidns *ns, const char *source, unsigned long flags, const char *data)
{
	struct proc_super *ps = kzalloc(sizeof(*ps));
	int err;

	super_init(&ps->sb, &proc_sops, &proc_type, PROC_SUPER_MAGIC, flags);
	ps->sb.source = kstrdup(source ? source : "proc");
	ps->ns = pidns_get(ns);
	err = parse_options(ps, data);
	if (err) {
		super_put(&ps->sb);
		return err_ptr(err);
	}
	pfs_set_root(&ps->sb, &root_node, PROC_ROOT_INO);
	return &ps->sb;
}

static struct super *proc_mount(struct task *t, const char *source, unsigned long flags,
				const char *data)
{
	return proc_create_super(t ? task_pidns(t) : kernel.init_pidns, source, flags, data);
}

/* ---- saving ---- */

#define PID_TABLE(n, nd)                                                                 \
	{                                                                                \
		.name = (n), .node = (nd), .super = &state_super_proc,                   \
		.ctx_ops = &proc_pid_ctx, .ctx = &state_pid                              \
	}
static const struct pfs_root saved_roots[] = {
	{ .name = "proc", .node = &root_node, .super = &state_super_proc },
	PID_TABLE("pid", &proc_tgid_node),
	PID_TABLE("tid", &proc_tid_node),
	PID_TABLE("fd", &proc_fd_node),
	PID_TABLE("fdinfo", &proc_fdinfo_node),
};

static void *proc_super_alloc(struct state *s)
{
	struct proc_super *ps = kzalloc(sizeof(*ps));

	(void)s;
	super_init(&ps->sb, &proc_sops, &proc_type, PROC_SUPER_MAGIC, 0);
	return &ps->sb;
}

static void proc_super_fields(struct state *s, void *obj)
{
	struct proc_super *ps = container_of((struct super *)obj, struct proc_super, sb);
	int64_t hidepid = ps->hidepid;

	super_state_fields(s, &ps->sb);
	state_ref(s, &state_pidns, &ps->ns);
	state_range_i64(s, &hidepid, 0, 2);
	state_u32(s, &ps->gid);
	ps->hidepid = (int)hidepid;
	if (!ps->ns)
		state_fail(s, "proc of no namespace");
}

const struct state_type state_super_proc = {
	.id = STATE_SUPER_PROC,
	.version = 1,
	.name = "proc",
	.alloc = proc_super_alloc,
	.fields = proc_super_fields,
	.get = super_state_get,
	.put = super_state_put,
	.phase = 1,
};

void proc_init(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(saved_roots); i++)
		pfs_register(&saved_roots[i]);
	proc_mem_init();
	fs_register(&proc_type);
}
