// SPDX-License-Identifier: Apache-2.0
/* Pidfds (man 2 pidfd_open): a file that holds a struct pid, and is readable once the process has exited. */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "sentry/kernel/process.h"
#include "sentry/vfs/vfs.h"
#include "sentry/vfs/vfs_state.h"

static void pidfd_release(struct file *f)
{
	pid_put(f->priv);
}

static uint32_t pidfd_poll(struct file *f)
{
	struct pid *p = f->priv;
	AUTO_LOCK(&kernel.tasks_mu);

	if (!p->task && !p->tgroup)
		return EPOLLIN | EPOLLRDNORM | EPOLLHUP;
	return p->tgroup && p->tgroup->zombie ? EPOLLIN | EPOLLRDNORM : 0;
}

static struct waitq *pidfd_waitq(struct file *f)
{
	struct pid *p = f->priv;

	return &p->exit_wq;
}

static void pidfd_fdinfo(struct file *f, struct seqbuf *out)
{
	struct task *viewer = current_task();
	struct pid *p = f->priv;
	bool gone;

	mutex_lock(&kernel.tasks_mu);
	gone = !p->task && !p->tgroup;
	mutex_unlock(&kernel.tasks_mu);
	seq_printf(out, "Pid:\t%d\n",
		   gone     ? -1
		   : viewer ? pid_nr(p, task_pidns(viewer))
			    : p->nr[0]);
}

static const struct file_ops pidfd_fops = {
	.name = "pidfd",
	.release = pidfd_release,
	.poll = pidfd_poll,
	.waitq = pidfd_waitq,
	.show_fdinfo = pidfd_fdinfo,
	.state = &file_state_pidfd,
};

struct file *pidfd_create(struct pid *p, unsigned flags)
{
	struct file *f =
		file_create_anon(&pidfd_fops, pid_get(p), O_RDWR | flags, "[pidfd]");

	if (is_err(f))
		pid_put(p);
	return f;
}

struct pid *pidfd_pid(struct file *f)
{
	return f->ops == &pidfd_fops ? f->priv : NULL;
}

/* ---- saving ---- */

static void pidfd_fields(struct state *s, struct file *f)
{
	struct pid *p = state_loading(s) ? NULL : f->priv;

	state_ref(s, &state_pid, &p);
	f->priv = p;
	if (!p)
		state_fail(s, "pidfd of no process");
}

const struct file_state file_state_pidfd = {
	.id = FILE_PIDFD,
	.ops = &pidfd_fops,
	.fields = pidfd_fields,
};
