// SPDX-License-Identifier: Apache-2.0
/*
 * /proc/PID/fd and fdinfo (man 5 proc_pid_fd): one magic link for each open descriptor.
 *
 * Opening a link opens the file's inode anew; what can't be opened that way (sockets: ENXIO) is decided
 * by the inode. The link's mode shows how the descriptor is open.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/alloc.h"
#include "sentry/fs/proc/proc_priv.h"

/* The file behind an inode of ours: reference, NULL when it was closed; err_ptr. */
static struct file *fd_file(struct pfs_inode *pi, bool check)
{
	AUTO_TASK struct task *t = check ? proc_task_access(pi, false) : proc_task(pi);
	struct files *files;
	struct file *f;

	if (is_err(t))
		return err_ptr(ptr_err(t));
	files = t ? task_files_get(t) : NULL;
	if (!files)
		return NULL;
	f = files_lookup(files, (int)pi->num);
	files_put(files);
	return f;
}

static char *fd_readlink(struct pfs_inode *pi)
{
	AUTO_FILE struct file *f = fd_file(pi, true);
	struct task *t = current_task();
	struct path root = { 0 };
	char *s;

	if (is_err(f))
		return err_ptr(ptr_err(f));
	if (!f || !t)
		return err_ptr(-ENOENT);
	root = fsctx_root(t->fs);
	s = file_path_string(f, &root);
	path_put(&root);
	return s;
}

static int fd_follow(struct pfs_inode *pi, struct task *t, struct path *ret)
{
	AUTO_FILE struct file *f = fd_file(pi, true);

	(void)t;
	if (is_err(f))
		return (int)ptr_err(f);
	if (!f)
		return -ENOENT;
	*ret = f->path;
	path_get(ret);
	return 0;
}

static bool fd_valid(struct pfs_inode *pi)
{
	AUTO_FILE struct file *f = fd_file(pi, false);
	uint32_t mode = S_IFLNK | 0100;

	if (!f || is_err(f))
		return false;
	if (S_ISLNK(pi->inode.mode)) {
		/* The number may have been given to another file: its mode follows. */
		mode |= (f->fmode & (FMODE_READ | FMODE_PATH)) ? 0400 : 0u;
		mode |= (f->fmode & FMODE_WRITE) ? 0200 : 0u;
		pi->inode.mode = mode;
		pi->inode.size = 64;
	}
	return true;
}

const struct pfs_node proc_fd_node = {
	.name = "fd",
	.mode = S_IFLNK | 0700,
	.readlink = fd_readlink,
	.follow = fd_follow,
	.valid = fd_valid,
};

static int show_fdinfo(struct pfs_inode *pi, struct seqbuf *out)
{
	AUTO_TASK struct task *t = proc_task(pi);
	AUTO_FILE struct file *f = fd_file(pi, true);
	unsigned flags;

	if (!t)
		return -ESRCH;
	if (is_err(f))
		return (int)ptr_err(f);
	if (!f)
		return -ENOENT;
	flags = f->flags;
	if (current_task() && current_task()->tg == t->tg &&
	    fd_get_cloexec(current_task(), (int)pi->num) > 0)
		flags |= O_CLOEXEC;
	seq_printf(out, "pos:\t%ld\nflags:\t0%o\nmnt_id:\t%d\nino:\t%lu\n", (long)f->pos, flags,
		   f->path.mnt ? mount_id(f->path.mnt) : 0, (unsigned long)f->inode->ino);
	if (f->ops->show_fdinfo)
		f->ops->show_fdinfo(f, out);
	return 0;
}

const struct pfs_node proc_fdinfo_node = {
	.name = "fdinfo",
	.mode = S_IFREG | 0400,
	.show = show_fdinfo,
	.valid = fd_valid,
};

static struct inode *lookup(struct pfs_inode *dir, const char *name, const struct pfs_node *node)
{
	struct inode *inode;
	int64_t fd;

	if (name[0] < '0' || name[0] > '9' || (name[0] == '0' && name[1]) ||
	    pfs_parse(name, 0, INT32_MAX, &fd))
		return NULL;
	inode = pfs_inode_create(dir, node, name, NULL, NULL, fd);
	if (!fd_valid(pfs_of(inode))) {
		inode_put(inode);
		return NULL;
	}
	return inode;
}

struct inode *proc_fd_lookup(struct pfs_inode *dir, const char *name)
{
	return lookup(dir, name, &proc_fd_node);
}

struct inode *proc_fdinfo_lookup(struct pfs_inode *dir, const char *name)
{
	return lookup(dir, name, &proc_fdinfo_node);
}

int proc_fd_iterate(struct pfs_inode *dir, struct dir_ctx *ctx, int64_t key)
{
	AUTO_TASK struct task *t = proc_task(dir);
	struct files *files = t ? task_files_get(t) : NULL;
	unsigned type = dir->node->lookup == proc_fd_lookup ? DT_LNK : DT_REG;
	char name[16];

	if (!t)
		return -ENOENT;
	for (int fd = (int)key; files && (fd = files_next(files, fd)) >= 0; fd++) {
		snprintf(name, sizeof(name), "%d", fd);
		if (!pfs_emit(dir, ctx, name, type, fd))
			break;
	}
	if (files)
		files_put(files);
	return 0;
}

/* A process may always look at its own descriptors, whatever its ids have become. */
int proc_fd_permission(struct pfs_inode *pi, const struct cred *c, int mask)
{
	AUTO_TASK struct task *t = proc_task(pi);
	struct task *me = current_task();

	(void)c, (void)mask;
	if (t && me && t->tg == me->tg)
		return 0;
	if (t && me && task_may_access(me, t, false))
		return -EACCES;
	return PFS_PERM_MODE;
}
