// SPDX-License-Identifier: Apache-2.0
/*
 * A task without a guest, and "mini", a directory tree in memory, to run the VFS core on by itself.
 * Included by the one test that uses it.
 */
#ifndef TESTS_UNIT_VFS_MINI_H
#define TESTS_UNIT_VFS_MINI_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include "base/alloc.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/task.h"
#include "sentry/mm/mfile.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs.h"

struct mini {
	struct inode inode;
	char *target;
	struct list entries;
};
struct mini_entry {
	struct list node;
	char *name;
	struct inode *inode; /* reference */
};
static const struct inode_ops mini_ops;
static const struct file_ops mini_fops = { .name = "mini", .llseek = generic_llseek };

static struct mini *mini_of(struct inode *i)
{
	return container_of(i, struct mini, inode);
}

static struct mini_entry *find(struct inode *dir, const char *name)
{
	struct mini_entry *e;

	list_for_each(e, &mini_of(dir)->entries, node)
		if (strcmp(e->name, name) == 0)
			return e;
	return NULL;
}

static struct inode *new_inode(struct super *sb, uint32_t mode)
{
	struct mini *m = kzalloc(sizeof(*m));

	inode_init(&m->inode, sb, &mini_ops, &mini_fops, inode_next_ino(), mode, 0, 0);
	list_init(&m->entries);
	return &m->inode;
}

static void add(struct inode *dir, const char *name, struct inode *inode)
{
	struct mini_entry *e = kzalloc(sizeof(*e));

	e->name = kstrdup(name);
	e->inode = inode_get(inode);
	list_add_tail(&mini_of(dir)->entries, &e->node);
}

static void del(struct inode *dir, const char *name)
{
	struct mini_entry *e = find(dir, name);

	list_del(&e->node);
	inode_put(e->inode);
	free(e->name);
	free(e);
}

static void m_destroy(struct inode *i)
{
	while (!list_empty(&mini_of(i)->entries))
		del(i, list_first(&mini_of(i)->entries, struct mini_entry, node)->name);
	free(mini_of(i)->target);
	inode_fini(i);
	free(mini_of(i));
}
static struct inode *m_lookup(struct inode *dir, const char *name)
{
	struct mini_entry *e = find(dir, name);

	return e ? inode_get(e->inode) : NULL;
}
static struct inode *m_create(struct inode *dir, const char *name, uint32_t mode, uid_t u, gid_t g)
{
	struct inode *i = new_inode(dir->sb, mode);

	(void)u;
	(void)g;
	add(dir, name, i);
	return i;
}
static struct inode *m_symlink(struct inode *dir, const char *name, const char *target, uid_t u, gid_t g)
{
	struct inode *i = m_create(dir, name, S_IFLNK | 0777, u, g);

	mini_of(i)->target = kstrdup(target);
	return i;
}
static int m_link(struct inode *dir, const char *name, struct inode *i)
{
	add(dir, name, i);
	i->nlink++;
	return 0;
}
static int m_unlink(struct inode *dir, const char *name, struct inode *i)
{
	i->nlink--;
	del(dir, name);
	return 0;
}
static int m_rmdir(struct inode *dir, const char *name, struct inode *i)
{
	if (!list_empty(&mini_of(i)->entries))
		return -ENOTEMPTY;
	return m_unlink(dir, name, i);
}
static int m_rename(struct inode *od, const char *on, struct inode *i, struct inode *nd, const char *nn,
		    struct inode *victim, unsigned flags)
{
	if (victim && (flags & 2)) {
		struct mini_entry *a = find(od, on), *b = find(nd, nn);

		a->inode = victim;
		b->inode = i;
		return 0;
	}
	if (victim && !list_empty(&mini_of(victim)->entries))
		return -ENOTEMPTY;
	if (victim)
		m_unlink(nd, nn, victim);
	add(nd, nn, i);
	del(od, on);
	return 0;
}
static char *m_readlink(struct inode *i)
{
	return kstrdup(mini_of(i)->target);
}

static const struct inode_ops mini_ops = {
	.destroy = m_destroy, .lookup = m_lookup, .create = m_create, .mkdir = m_create,
	.symlink = m_symlink, .link = m_link, .unlink = m_unlink, .rmdir = m_rmdir,
	.rename = m_rename, .readlink = m_readlink,
};

static void m_super_destroy(struct super *sb)
{
	super_fini(sb);
	free(sb);
}

static const struct super_ops m_super_ops = { .destroy = m_super_destroy };
static struct super *m_mount(struct task *t, const char *s, unsigned long flags, const char *d);
static struct fs_type mini_type = { .name = "mini", .nodev = true, .mount = m_mount };

static struct super *m_mount(struct task *t, const char *s, unsigned long flags, const char *d)
{
	struct super *sb = kzalloc(sizeof(*sb));

	(void)t;
	(void)s;
	(void)d;
	super_init(sb, &m_super_ops, &mini_type, 0x1234, flags);
	sb->root = dentry_create_root(new_inode(sb, S_IFDIR | 0755));
	return sb;
}

static int memfd_provider(int fds[2])
{
	char name[64];

	fds[0] = memfd_create("test", MFD_CLOEXEC);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fds[0]);
	fds[1] = open(name, O_RDONLY | O_CLOEXEC);
	return fds[0] < 0 || fds[1] < 0 ? -errno : 0;
}

static struct task *test_task(void)
{
	static const struct kernel_limits limits = { .max_tasks = 100, .ncpus = 1 };
	struct task *t = kzalloc(sizeof(*t));
	struct super *sb;

	mfile_set_provider(memfd_provider);
	kernel_init(&limits);
	clock_init();
	vfs_init();
	fs_register(&mini_type);
	ref_init(&t->ref);
	mutex_init(&t->mu, RANK_TASK);
	t->cred = cred_create_root(CAP_FULL_SET);
	t->tg = kzalloc(sizeof(*t->tg));
	mutex_init(&t->tg->rlim_mu, RANK_TASK);
	for (int i = 0; i < RLIM_COUNT; i++)
		t->tg->rlim[i] = (struct rlimit_g){ RLIM_INFINITY_G, RLIM_INFINITY_G };
	t->tg->rlim[RLIMIT_NOFILE].cur = 1024;
	t->pid = t->tg->pid = pid_alloc(kernel.init_pidns, 0);
	t->pid->task = t;
	t->ns = kzalloc(sizeof(*t->ns));
	t->files = files_create();
	sb = m_mount(NULL, NULL, 0, NULL);
	t->ns->mnt = mntns_create(sb, 0, &init_userns);
	super_put(sb);
	struct path root = mntns_root(t->ns->mnt);
	t->fs = fsctx_create(&root, &root, 022);
	path_put(&root);
	return t;
}

static int64_t host_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

#endif
