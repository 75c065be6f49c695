// SPDX-License-Identifier: Apache-2.0
/*
 * devpts (man 4 pts): each mount is an instance with numbers of its own and a ptmx node.
 *
 * Options: uid=, gid=, mode=, ptmxmode=, max=, newinstance (always so). A slave's node exists while its
 * master is open; nobody can create or remove names here.
 *
 * Lock: devpts.mu (RANK_FS) guards the slots; a slot borrows its tty, which is removed before the master
 * drops its reference.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/alloc.h"
#include "sentry/fs/dev/chrdev.h"
#include "sentry/fs/devpts/devpts.h"
#include "sentry/fs/devpts/devpts_priv.h"
#include "sentry/fs/devpts/tty_priv.h"
#include "sentry/kernel/task.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs_state.h"

#define DEVPTS_MAGIC 0x1cd1

static void node_destroy(struct inode *inode)
{
	inode_fini(inode);
	free(inode);
}

static int node_open(struct inode *inode, struct file *f)
{
	return chrdev_open(inode, f);
}

const struct inode_ops devpts_node_iops = {
	.destroy = node_destroy,
	.open = node_open,
	.state = &state_inode_devpts,
};

static struct inode *make_node(struct devpts *dp, uint64_t ino, uint32_t mode, dev_t rdev,
			       uid_t uid, gid_t gid)
{
	struct inode *inode = kzalloc(sizeof(*inode));

	inode_init(inode, &dp->sb, &devpts_node_iops, NULL, ino, S_IFCHR | mode, uid, gid);
	inode->rdev = rdev;
	return inode;
}

/* ptmx: made anew when the dcache has forgotten it, as an inode kept here would keep the super alive. */
static struct inode *make_ptmx(struct devpts *dp)
{
	return make_node(dp, PTMX_INO, dp->ptmxmode, makedev(TTYAUX_MAJOR, 2), dp->owner,
			 dp->group);
}

/* "0".."4095" without leading zeroes, else -1. */
static int parse_index(const char *name)
{
	char *end;
	long v;

	if (name[0] < '0' || name[0] > '9' || (name[0] == '0' && name[1]))
		return -1;
	v = strtol(name, &end, 10);
	return *end || v >= DEVPTS_MAX ? -1 : (int)v;
}

static struct inode *root_lookup(struct inode *dir, const char *name)
{
	struct devpts *dp = devpts_of(dir->sb);
	int i;

	if (strcmp(name, "ptmx") == 0)
		return make_ptmx(dp);
	i = parse_index(name);
	if (i < 0)
		return NULL;
	AUTO_LOCK(&dp->mu);
	return dp->node[i] ? inode_get(dp->node[i]) : NULL;
}

static int root_revalidate(struct inode *dir, const char *name, struct inode *inode)
{
	struct devpts *dp = devpts_of(dir->sb);
	int i = parse_index(name);

	if (i < 0)
		return inode != NULL;
	AUTO_LOCK(&dp->mu);
	return inode && dp->node[i] == inode;
}

static struct inode *no_create(struct inode *dir, const char *name, uint32_t mode, uid_t uid,
			       gid_t gid)
{
	(void)dir, (void)name, (void)mode, (void)uid, (void)gid;
	return err_ptr(-EACCES);
}

const struct inode_ops devpts_root_iops = {
	.destroy = node_destroy,
	.lookup = root_lookup,
	.create = no_create,
	.mkdir = no_create,
	.revalidate = root_revalidate,
	.state = &state_inode_devpts,
};

static bool emit_slaves(struct devpts *dp, struct dir_ctx *ctx, int64_t *pos)
{
	for (int i = (int)*pos - 3; i < DEVPTS_MAX; i++) {
		char name[16];
		int n = snprintf(name, sizeof(name), "%d", i);
		bool used;

		mutex_lock(&dp->mu);
		used = dp->slot[i] != NULL;
		mutex_unlock(&dp->mu);
		if (used && !ctx->emit(ctx, name, (size_t)n, (uint64_t)(SLAVE_INO + i), DT_CHR,
				       i + 4))
			return false;
		*pos = i + 4;
	}
	return true;
}

static int root_iterate(struct file *f, struct dir_ctx *ctx, int64_t *pos)
{
	static const struct {
		const char *name;
		uint64_t ino;
		unsigned type;
	} fixed[] = { { ".", ROOT_INO, DT_DIR }, { "..", ROOT_INO, DT_DIR },
		      { "ptmx", PTMX_INO, DT_CHR } };

	if (*pos < 0)
		return -EINVAL;
	while (*pos < 3) {
		if (!ctx->emit(ctx, fixed[*pos].name, strlen(fixed[*pos].name), fixed[*pos].ino,
			       fixed[*pos].type, *pos + 1))
			return 0;
		(*pos)++;
	}
	emit_slaves(devpts_of(f->inode->sb), ctx, pos);
	return 0;
}

const struct file_ops devpts_root_fops = {
	.name = "devpts",
	.llseek = generic_llseek,
	.iterate = root_iterate,
	.state = &file_state_devpts_root,
};

/* ---- slots ---- */

/* A pair with the lowest free number. *ret: reference. -ENOSPC. */
int devpts_new(struct super *sb, struct tty **ret)
{
	struct devpts *dp = devpts_of(sb);
	struct task *t = current_task();
	uid_t uid = t ? task_cred(t)->fsuid : 0;
	gid_t gid = t ? task_cred(t)->fsgid : 0;
	struct inode *node;
	struct tty *tty;
	int i;

	mutex_lock(&dp->mu);
	for (i = 0; i < dp->max && dp->slot[i]; i++)
		;
	if (i == dp->max) {
		mutex_unlock(&dp->mu);
		return -ENOSPC;
	}
	tty = tty_create(sb, i);
	node = make_node(dp, (uint64_t)(SLAVE_INO + i), dp->mode, makedev(PTS_MAJOR, (unsigned)i),
			 dp->set_uid ? dp->uid : uid, dp->set_gid ? dp->gid : gid);
	dp->slot[i] = tty;
	dp->node[i] = node;
	mutex_unlock(&dp->mu);
	*ret = tty;
	return 0;
}

/* The master of @tty closes: number and node are free again. */
void devpts_kill(struct tty *tty)
{
	struct devpts *dp = devpts_of(tty->sb);
	struct inode *node;
	char name[16];

	mutex_lock(&dp->mu);
	dp->slot[tty->index] = NULL;
	node = steal_ptr(&dp->node[tty->index]);
	mutex_unlock(&dp->mu);
	snprintf(name, sizeof(name), "%d", tty->index);
	if (tty->sb->root)
		dentry_invalidate(tty->sb->root, name);
	node->nlink = 0;
	inode_put(node);
}

struct tty *devpts_get(struct super *sb, int index)
{
	struct devpts *dp = devpts_of(sb);

	if (index < 0 || index >= DEVPTS_MAX)
		return NULL;
	AUTO_LOCK(&dp->mu);
	return dp->slot[index] ? tty_get(dp->slot[index]) : NULL;
}

/* ---- from ptmx to the instance ---- */

static bool is_devpts(struct super *sb)
{
	return sb && sb->magic == DEVPTS_MAGIC;
}

/* Where the slaves of the ptmx node @f are: its own file system, or "pts" beside it. *ret: references. */
static int find_pts_dir(struct task *t, struct file *f, struct path *ret)
{
	struct path dir = { 0 }, root;
	int err;

	if (!f->path.mnt || !f->path.dentry)
		return -ENODEV;
	if (is_devpts(mount_super(f->path.mnt))) {
		ret->mnt = f->path.mnt;
		ret->dentry = mount_super(f->path.mnt)->root;
		path_get(ret);
		return 0;
	}
	if (!t)
		return -ENODEV;
	dir.mnt = f->path.mnt;
	dir.dentry = f->path.dentry;
	path_get(&dir);
	dentry_put(dir.dentry);
	dir.dentry = dentry_parent(f->path.dentry);
	root = fsctx_root(t->fs);
	err = path_lookup_from(t, task_cred(t), &root, &dir, "pts", LOOKUP_FOLLOW | LOOKUP_DIRECTORY,
			       ret);
	path_put(&root);
	path_put(&dir);
	if (!err && !is_devpts(mount_super(ret->mnt))) {
		path_put(ret);
		err = -ENODEV;
	}
	return err;
}

/* The instance in which opening ptmx through @f makes a pair: reference, or err_ptr. */
struct super *devpts_from_ptmx(struct task *t, struct file *f, struct mount **ret_mnt)
{
	struct path p = { 0 };
	struct super *sb;
	int err;

	if (f->inode->sb && is_devpts(f->inode->sb))
		return super_get(f->inode->sb);
	err = find_pts_dir(t, f, &p);
	if (err)
		return err_ptr(err);
	*ret_mnt = NULL;
	sb = super_get(mount_super(p.mnt));
	path_put(&p);
	return sb;
}

/* TIOCGPTPEER: opens the slave of @master without looking at paths. */
struct file *devpts_open_peer(struct task *t, struct tty *tty, struct file *master, unsigned flags)
{
	struct path dir = { 0 }, p = { 0 };
	struct file *f;
	char name[16];
	int err;

	if (flags & ~(unsigned)(O_ACCMODE | O_NOCTTY | O_NONBLOCK | O_CLOEXEC | O_LARGEFILE))
		return err_ptr(-EINVAL);
	err = find_pts_dir(t, master, &dir);
	if (err)
		return err_ptr(err);
	snprintf(name, sizeof(name), "%d", tty->index);
	p.dentry = dentry_lookup(dir.dentry, name);
	if (is_err(p.dentry)) {
		path_put(&dir);
		return err_ptr(ptr_err(p.dentry));
	}
	if (!dentry_inode(p.dentry)) {
		dentry_put(p.dentry);
		path_put(&dir);
		return err_ptr(-EIO);
	}
	p.mnt = dir.mnt; /* dir's reference on the mount moves to p */
	dentry_put(dir.dentry);
	f = file_open_path(t, &p, flags & ~(unsigned)O_CLOEXEC, task_cred(t));
	path_put(&p);
	return f;
}

int console_create(struct super *devpts, struct file **ret_master, struct file **ret_slave,
		   struct tty **ret_tty)
{
	struct devpts *dp = devpts_of(devpts);
	struct file *m, *s;
	struct tty *tty;
	char name[16];
	int err;

	m = file_create_pseudo(make_ptmx(dp), &devpts_root_fops, NULL, O_RDWR, "ptmx");
	if (is_err(m))
		return (int)ptr_err(m);
	err = pty_open_master(devpts, m, &tty);
	if (err) {
		file_put(m);
		return err;
	}
	tty->locked = false;
	snprintf(name, sizeof(name), "/dev/pts/%d", tty->index);
	s = file_create_pseudo(inode_get(dp->node[tty->index]), &devpts_root_fops, NULL, O_RDWR, name);
	err = is_err(s) ? (int)ptr_err(s) : tty_open_slave(tty, s, true);
	if (err) {
		if (!is_err(s))
			file_put(s);
		file_put(m);
		return err;
	}
	*ret_master = m;
	*ret_slave = s;
	*ret_tty = tty_get(tty);
	return 0;
}

/* ---- mounting ---- */

static int parse_number(const char *v, int base, long max, long *ret)
{
	char *end;

	*ret = strtol(v, &end, base);
	return !*v || *end || *ret < 0 || *ret > max ? -EINVAL : 0;
}

static int parse_option(struct devpts *dp, const char *o)
{
	long v = 0;

	if (strncmp(o, "uid=", 4) == 0) {
		if (parse_number(o + 4, 10, UINT32_MAX - 1L, &v))
			return -EINVAL;
		dp->uid = (uid_t)v;
		dp->set_uid = true;
	} else if (strncmp(o, "gid=", 4) == 0) {
		if (parse_number(o + 4, 10, UINT32_MAX - 1L, &v))
			return -EINVAL;
		dp->gid = (gid_t)v;
		dp->set_gid = true;
	} else if (strncmp(o, "mode=", 5) == 0) {
		if (parse_number(o + 5, 8, 07777, &v))
			return -EINVAL;
		dp->mode = (uint32_t)v & 0777;
	} else if (strncmp(o, "ptmxmode=", 9) == 0) {
		if (parse_number(o + 9, 8, 07777, &v))
			return -EINVAL;
		dp->ptmxmode = (uint32_t)v & 0777;
	} else if (strncmp(o, "max=", 4) == 0) {
		if (parse_number(o + 4, 10, 1 << 20, &v))
			return -EINVAL;
		dp->max = (int)MIN(v, (long)DEVPTS_MAX);
	} else if (strcmp(o, "newinstance") != 0) {
		return -EINVAL;
	}
	return 0;
}

static int parse_options(struct devpts *dp, const char *data)
{
	AUTO_FREE char *copy = kstrdup(data ? data : "");
	char *save = NULL;

	for (char *o = strtok_r(copy, ",", &save); o; o = strtok_r(NULL, ",", &save)) {
		int err = parse_option(dp, o);

		if (err)
			return err;
	}
	return 0;
}

static void devpts_destroy(struct super *sb)
{
	struct devpts *dp = devpts_of(sb);

	super_fini(sb);
	mutex_fini(&dp->mu);
	free(dp);
}

static int devpts_statfs(struct super *sb, struct statfs_g *ret)
{
	ret->f_type = (int64_t)sb->magic;
	ret->f_bsize = ret->f_frsize = 4096;
	ret->f_namelen = NAME_MAX_G;
	return 0;
}

static int devpts_remount(struct super *sb, unsigned long flags, const char *data)
{
	struct devpts *dp = devpts_of(sb);
	int err;

	mutex_lock(&dp->mu);
	err = parse_options(dp, data);
	mutex_unlock(&dp->mu);
	if (err)
		return err;
	dentry_invalidate(sb->root, "ptmx");
	sb->flags = flags;
	return 0;
}

static void devpts_show_options(struct super *sb, struct seqbuf *out)
{
	struct devpts *dp = devpts_of(sb);

	if (dp->set_uid)
		seq_printf(out, ",uid=%u", dp->uid);
	if (dp->set_gid)
		seq_printf(out, ",gid=%u", dp->gid);
	seq_printf(out, ",mode=%03o,ptmxmode=%03o", dp->mode, dp->ptmxmode);
	if (dp->max < DEVPTS_MAX)
		seq_printf(out, ",max=%d", dp->max);
}

const struct super_ops devpts_sops = {
	.destroy = devpts_destroy,
	.statfs = devpts_statfs,
	.remount = devpts_remount,
	.show_options = devpts_show_options,
	.state = &state_super_devpts,
};

static struct super *devpts_mount(struct task *t, const char *source, unsigned long flags,
				  const char *data);

static struct fs_type devpts_type = {
	.name = "devpts",
	.nodev = true,
	.userns_ok = true,
	.mount = devpts_mount,
};

static struct super *devpts_mount(struct task *t, const char *source, unsigned long flags,
				  const char *data)
{
	struct devpts *dp = kzalloc(sizeof(*dp));
	uid_t uid = t ? task_cred(t)->fsuid : 0;
	gid_t gid = t ? task_cred(t)->fsgid : 0;
	struct inode *root;
	int err;

	super_init(&dp->sb, &devpts_sops, &devpts_type, DEVPTS_MAGIC, flags);
	dp->sb.source = kstrdup(source ? source : "devpts");
	mutex_init(&dp->mu, RANK_FS);
	dp->mode = 0600;
	dp->max = DEVPTS_MAX;
	err = parse_options(dp, data);
	if (err) {
		super_put(&dp->sb);
		return err_ptr(err);
	}
	dp->owner = uid;
	dp->group = gid;
	root = kzalloc(sizeof(*root));
	inode_init(root, &dp->sb, &devpts_root_iops, &devpts_root_fops, ROOT_INO, S_IFDIR | 0755, uid, gid);
	root->nlink = 2;
	dp->sb.root = dentry_create_root(root);
	return &dp->sb;
}

void devpts_init(void)
{
	fs_register(&devpts_type);
}
