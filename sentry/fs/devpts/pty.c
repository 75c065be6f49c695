// SPDX-License-Identifier: Apache-2.0
/*
 * The master side of a pty (man 7 pty, man 2 ioctl_tty: TIOCPKT and the pts calls).
 *
 * The master has no line discipline of its own: it reads what the slave wrote as it comes. After the last
 * slave has closed, reads fail with EIO once the data is drained, until a slave is opened again.
 *
 * Lock order: as in tty.c.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>

#include "sentry/fs/devpts/devpts.h"
#include "sentry/fs/devpts/tty_priv.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/task.h"
#include "sentry/vfs/vfs_state.h"

#define MASTER_WRITE_CHUNK 512

static bool master_readable(const struct tty *tty)
{
	return tty_out_used(tty) || (tty->packet && tty->pkt_status) || tty->other_closed;
}

static ssize_t copy_out_ring(struct tty *tty, struct iter *it)
{
	size_t left = MIN(it->left, tty_out_used(tty)), done = 0;

	while (left) {
		uint32_t at = tty->out_tail % TTY_OUT_SIZE;
		size_t n = MIN(left, (size_t)(TTY_OUT_SIZE - at));
		ssize_t r = iter_copy_to(it, tty->out + at, n);

		if (r < 0)
			return done ? (ssize_t)done : r;
		tty->out_tail += (uint32_t)r;
		done += (size_t)r;
		left -= (size_t)r;
		if ((size_t)r < n)
			break;
	}
	return (ssize_t)done;
}

/* What a master read finds now. -EAGAIN: nothing. */
static ssize_t master_read_once(struct tty *tty, struct iter *it)
{
	AUTO_LOCK(&tty->mu);
	uint8_t status = TIOCPKT_DATA;
	ssize_t n;

	if (tty->packet && tty->pkt_status) {
		n = iter_copy_to(it, &tty->pkt_status, 1);
		if (n == 1)
			tty->pkt_status = 0;
		return n;
	}
	if (!tty_out_used(tty))
		return tty->other_closed ? -EIO : -EAGAIN;
	if (tty->packet) {
		n = iter_copy_to(it, &status, 1);
		if (n < 0)
			return n;
	}
	n = copy_out_ring(tty, it);
	if (n > 0 && tty_out_room(tty) >= 8)
		tty_wake_slave(tty, EPOLLOUT | EPOLLWRNORM);
	return n >= 0 && tty->packet ? n + 1 : n;
}

static bool master_wait_read(struct tty *tty)
{
	AUTO_LOCK(&tty->mu);
	return master_readable(tty);
}

static ssize_t master_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct tty *tty = f->priv;
	ssize_t n;
	long w;

	(void)pos;
	if (!it->left)
		return 0;
	for (;;) {
		n = master_read_once(tty, it);
		if (n != -EAGAIN || !t || (f->flags & O_NONBLOCK))
			return n;
		w = wait_event(t, &tty->master_wq, EPOLLIN | EPOLLPRI | EPOLLHUP, DEADLINE_NONE,
			       master_wait_read(tty));
		if (w < 0)
			return w;
	}
}

/* Feeds @buf to the line discipline as far as there is room. */
static size_t master_write_once(struct tty *tty, const uint8_t *buf, size_t len)
{
	AUTO_LOCK(&tty->mu);
	uint32_t echoed = tty->out_head;
	size_t i = 0;

	while (i < len && n_tty_receive_room(tty) > 0)
		n_tty_receive_char(tty, buf[i++]);
	if (tty->out_head != echoed)
		tty_wake_master(tty, EPOLLIN | EPOLLRDNORM);
	return i;
}

static bool master_wait_write(struct tty *tty)
{
	AUTO_LOCK(&tty->mu);
	return n_tty_receive_room(tty) > 0;
}

static ssize_t master_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct tty *tty = f->priv;
	uint8_t buf[MASTER_WRITE_CHUNK];
	size_t done = task_call_progress(t);
	long e;

	(void)pos;
	iter_advance(it, done);
	while (it->left) {
		ssize_t n = iter_copy_from(it, buf, MIN(it->left, sizeof(buf)));
		size_t w;

		if (n < 0)
			return done ? (ssize_t)done : n;
		w = master_write_once(tty, buf, (size_t)n);
		done += w;
		if (w == (size_t)n)
			continue;
		iter_revert(it, (size_t)n - w);
		if (!t || (f->flags & O_NONBLOCK))
			return done ? (ssize_t)done : -EAGAIN;
		e = wait_event(t, &tty->master_wq, EPOLLOUT, DEADLINE_NONE,
			       master_wait_write(tty));
		if (e < 0)
			return done ? task_call_partial(t, (ssize_t)done) : e;
	}
	return (ssize_t)done;
}

static uint32_t master_poll(struct file *f)
{
	struct tty *tty = f->priv;
	AUTO_LOCK(&tty->mu);
	uint32_t ev = 0;

	if (tty_out_used(tty))
		ev |= EPOLLIN | EPOLLRDNORM;
	if (tty->packet && tty->pkt_status)
		ev |= EPOLLIN | EPOLLRDNORM | EPOLLPRI;
	if (tty->other_closed)
		ev |= EPOLLHUP;
	if (n_tty_receive_room(tty) > 0)
		ev |= EPOLLOUT | EPOLLWRNORM;
	return ev;
}

static struct waitq *master_waitq(struct file *f)
{
	return &((struct tty *)f->priv)->master_wq;
}

/* The master closes: the slave is hung up for good and its node goes away. */
static void master_release(struct file *f)
{
	struct tty *tty = f->priv;

	devpts_kill(tty);
	mutex_lock(&tty->mu);
	tty->master = NULL;
	tty->master_open = false;
	tty_wake_slave(tty, EPOLLIN | EPOLLOUT | EPOLLHUP | EPOLLERR);
	mutex_unlock(&tty->mu);
	tty_hangup(tty);
	tty_put(tty);
}

static void set_packet(struct tty *tty, bool on)
{
	AUTO_LOCK(&tty->mu);

	if (on && !tty->packet)
		tty->pkt_status = 0;
	tty->packet = on;
}

/* The calls that only a master knows. -ENOIOCTLCMD: go on. */
long pty_master_ioctl(struct task *t, struct tty *tty, struct file *f, unsigned cmd, uint64_t arg)
{
	struct file *peer;
	int v;

	switch (cmd) {
	case TIOCSPTLCK:
		if (copyin_obj(t, &v, gaddr(arg)))
			return -EFAULT;
		mutex_lock(&tty->mu);
		tty->locked = v;
		mutex_unlock(&tty->mu);
		return 0;
	case TIOCGPTLCK:
		v = READ_ONCE(tty->locked);
		return copyout_obj(t, gaddr(arg), &v);
	case TIOCGPTN:
		return copyout_obj(t, gaddr(arg), &tty->index);
	case TIOCGPTPEER:
		peer = devpts_open_peer(t, tty, f, (unsigned)arg);
		if (is_err(peer))
			return ptr_err(peer);
		return fd_install(t, peer, (unsigned)arg & O_CLOEXEC);
	case TIOCPKT:
		if (copyin_obj(t, &v, gaddr(arg)))
			return -EFAULT;
		set_packet(tty, v);
		return 0;
	case TIOCGPKT:
		v = READ_ONCE(tty->packet);
		return copyout_obj(t, gaddr(arg), &v);
	case TIOCSIG:
		if (arg != SIGINT && arg != SIGQUIT && arg != SIGTSTP)
			return -EINVAL;
		tty_signal_fg(tty, (int)arg);
		return 0;
	default:
		return -ENOIOCTLCMD;
	}
}

static long master_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg)
{
	return tty_ioctl(t, f, cmd, arg);
}

static void master_show_fdinfo(struct file *f, struct seqbuf *out)
{
	seq_printf(out, "tty-index:\t%d\n", ((struct tty *)f->priv)->index);
}

const struct file_ops tty_master_fops = {
	.name = "ptmx",
	.release = master_release,
	.read = master_read,
	.write = master_write,
	.poll = master_poll,
	.waitq = master_waitq,
	.ioctl = master_ioctl,
	.show_fdinfo = master_show_fdinfo,
	.state = &file_state_tty_master,
};

bool pty_is_master(const struct file *f)
{
	return f->ops == &tty_master_fops;
}

/* Sets up @f as the master of a new pair of @devpts. *ret is borrowed from @f. -ENOSPC: max= reached. */
int pty_open_master(struct super *devpts, struct file *f, struct tty **ret)
{
	struct tty *tty;
	int err = devpts_new(devpts, &tty);

	if (err)
		return err;
	tty->master = f;
	f->priv = tty;
	f->ops = &tty_master_fops;
	f->fmode |= FMODE_STREAM;
	*ret = tty;
	return 0;
}
