// SPDX-License-Identifier: Apache-2.0
/*
 * Open file descriptions: allocation, the last close, ownership for SIGIO, polling.
 */
#include "sentry/vfs/vfs.h"

#include "base/alloc.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/notify.h"
#include "sentry/vfs/vfs_priv.h"

#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>

static _Atomic unsigned nfiles;

/* A file with nothing but flags and credentials. err_ptr(-ENFILE) at the sandbox's limit. */
struct file *file_alloc(unsigned flags, const struct cred *c)
{
	unsigned max = kernel.limits.max_files;

	if (atomic_fetch_add(&nfiles, 1) >= max && max) {
		atomic_fetch_sub(&nfiles, 1);
		return err_ptr(-ENFILE);
	}
	struct file *f = kzalloc(sizeof(*f));
	ref_init(&f->ref);
	atomic_init(&f->flags, flags & ~(unsigned)(O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC | O_CLOEXEC));
	mutex_init(&f->pos_mu, RANK_FILE_POS);
	mutex_init(&f->own_mu, RANK_TASK);
	mutex_init(&f->ep_mu, RANK_WAITQ);
	list_init(&f->ep_items);
	list_init(&f->fasync_node);
	if (c)
		f->cred = cred_get((struct cred *)(uintptr_t)c);
	return f;
}

struct file *file_get(struct file *f)
{
	ref_get(&f->ref);
	return f;
}

static void file_destroy(struct file *f)
{
	if (f->path.dentry && !(f->fmode & FMODE_PATH) && f->ops)
		notify_file(f, f->fmode & FMODE_WRITE ? IN_CLOSE_WRITE : IN_CLOSE_NOWRITE);
	if (!list_empty(&f->ep_items) && epoll_file_released)
		epoll_file_released(f);
	if (f->inode)
		locks_file_released(f);
	if (f->ops && f->ops->release && !(f->fmode & FMODE_PATH))
		f->ops->release(f);
	if (f->wrote)
		atomic_fetch_sub(&f->inode->writecount, 1);
	if (f->fmode & FMODE_EXEC)
		atomic_fetch_add(&f->inode->writecount, 1);
	struct inode *inode = f->inode;
	path_put(&f->path);
	inode_put(inode);
	pid_put(f->fown.pid);
	if (f->cred)
		cred_put(f->cred);
	mutex_fini(&f->pos_mu);
	mutex_fini(&f->own_mu);
	mutex_fini(&f->ep_mu);
	free(f);
	atomic_fetch_sub(&nfiles, 1);
}

void file_put(struct file *f)
{
	if (f && ref_put(&f->ref))
		file_destroy(f);
}

uint32_t file_poll(struct file *f)
{
	if (f->ops->poll)
		return f->ops->poll(f);
	return EPOLLIN | EPOLLOUT | EPOLLRDNORM | EPOLLWRNORM;
}

struct waitq *file_waitq(struct file *f)
{
	return f->ops->waitq ? f->ops->waitq(f) : NULL;
}

char *file_path_string(struct file *f, const struct path *root)
{
	if (!f->path.mnt && f->path.dentry && !f->path.dentry->parent)
		return kstrdup(f->path.dentry->name);
	return path_to_string(&f->path, root);
}

/* ---------------------------------------------------------------- SIGIO */

/* May @f's owner settings signal @target? The rule of sigio_perm(): ids of whoever called F_SETOWN. */
static bool sigio_allowed(const struct fown *own, struct task *target)
{
	struct cred *c = task_cred_get(target);
	bool ok = own->euid == 0 || own->euid == c->suid || own->euid == c->uid ||
		  own->uid == c->suid || own->uid == c->uid;

	cred_put(c);
	return ok;
}

static int code_of(uint32_t events)
{
	static const struct {
		uint32_t events;
		int code;
	} codes[] = {
		{ EPOLLIN, POLL_IN },   { EPOLLOUT, POLL_OUT }, { EPOLLERR, POLL_ERR },
		{ EPOLLPRI, POLL_PRI }, { EPOLLHUP, POLL_HUP },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(codes); i++)
		if (events & codes[i].events)
			return codes[i].code;
	return POLL_IN;
}

/* si_band as Linux has it for each si_code (its band_table), whatever the event was in detail. */
static void fill_siginfo(struct l_siginfo *info, const struct fown *own, int code)
{
	static const uint32_t bands[] = {
		[POLL_IN] = EPOLLIN | EPOLLRDNORM,
		[POLL_OUT] = EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND,
		[POLL_MSG] = EPOLLIN | EPOLLRDNORM | EPOLLMSG,
		[POLL_ERR] = EPOLLERR,
		[POLL_PRI] = EPOLLPRI | EPOLLRDBAND,
		[POLL_HUP] = EPOLLHUP | EPOLLERR,
	};

	*info = (struct l_siginfo){ .si_signo = own->sig ? own->sig : SIGIO, .si_code = code };
	info->poll.band = bands[code];
	info->poll.fd = own->fd;
}

static void sigio_task(const struct fown *own, struct task *target, int code)
{
	struct l_siginfo info;

	if (!target || !sigio_allowed(own, target))
		return;
	fill_siginfo(&info, own, code);
	/* Without F_SETSIG there is no siginfo beyond SI_KERNEL. */
	const struct l_siginfo *ip = own->sig ? &info : NULL;
	if (own->type == F_OWNER_TID)
		signal_send_task(target, info.si_signo, ip);
	else
		signal_send_tgroup(target->tg, info.si_signo, ip);
}

static void sigio_pgrp(const struct fown *own, int code)
{
	struct tgroup *tg;

	list_for_each(tg, &own->pid->pgrp, pgrp_node)
		sigio_task(own, tg->leader, code);
}

/* Signals @f's owner: @code is a POLL_*, @fd what si_fd shall say, -1 for the O_ASYNC setter's. */
void file_sigio(struct file *f, int fd, int code)
{
	struct fown own;

	mutex_lock(&f->own_mu);
	own = f->fown;
	if (fd >= 0)
		own.fd = fd;
	if (own.pid)
		pid_get(own.pid);
	mutex_unlock(&f->own_mu);
	if (!own.pid)
		return;
	mutex_lock(&kernel.tasks_mu);
	if (own.type == F_OWNER_PGRP)
		sigio_pgrp(&own, code);
	else if (own.type == F_OWNER_TID)
		sigio_task(&own, own.pid->task, code);
	else if (own.pid->tgroup)
		sigio_task(&own, own.pid->tgroup->leader, code);
	mutex_unlock(&kernel.tasks_mu);
	pid_put(own.pid);
}

void file_fasync(struct file *f, uint32_t events)
{
	if (likely(!(atomic_load_explicit(&f->flags, memory_order_relaxed) & O_ASYNC)))
		return;
	file_sigio(f, -1, code_of(events));
}
