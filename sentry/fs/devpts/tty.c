// SPDX-License-Identifier: Apache-2.0
/*
 * Terminals: life of a pty pair, and the slave's file operations.
 *
 * A slave file is hung up when the master closes or at vhangup: from then on it reads end of file, and
 * everything else is EIO, for ever. That is a generation count compared at
 * each operation; a sleeper is woken and compares again.
 *
 * Lock order: tty.mu > inode.mu > mm > tasks_mu > waitq. References: the master's file, each slave file, each
 * thread group that has it as controlling terminal, and the pts slot while the master is open (borrowed,
 * cleared by devpts_kill).
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sysmacros.h>

#include "base/alloc.h"
#include "sentry/fs/dev/chrdev.h"
#include "sentry/fs/devpts/tty_priv.h"
#include "sentry/kernel/freeze.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/task.h"
#include "sentry/time/clock.h"
#include "sentry/vfs/vfs_state.h"

#define TTY_WRITE_CHUNK 1024

static const uint8_t init_cc[19] = {
	[VINTR] = 3,    [VQUIT] = 28,     [VERASE] = 127, [VKILL] = 21,   [VEOF] = 4,
	[VMIN] = 1,     [VSTART] = 17,    [VSTOP] = 19,   [VSUSP] = 26,   [VREPRINT] = 18,
	[VDISCARD] = 15, [VWERASE] = 23, [VLNEXT] = 22,
};

struct tty *tty_alloc(void)
{
	struct tty *tty = kzalloc(sizeof(*tty));

	ref_init(&tty->ref);
	mutex_init(&tty->mu, RANK_TTY);
	waitq_init(&tty->slave_wq);
	waitq_init(&tty->master_wq);
	list_init(&tty->files);
	tty->out = kzalloc(TTY_OUT_SIZE);
	return tty;
}

struct tty *tty_create(struct super *sb, int index)
{
	struct tty *tty = tty_alloc();

	tty->index = index;
	tty->sb = super_get(sb);
	tty->locked = true;
	tty->master_open = true;
	tty->ctime_ns = clock_realtime_ns();
	tty->termios.c_iflag = ICRNL | IXON;
	tty->termios.c_oflag = OPOST | ONLCR;
	tty->termios.c_cflag = B38400 | CS8 | CREAD;
	tty->termios.c_lflag = ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN;
	tty->termios.c_ispeed = tty->termios.c_ospeed = 38400;
	memcpy(tty->termios.c_cc, init_cc, sizeof(init_cc));
	return tty;
}

struct tty *tty_get(struct tty *tty)
{
	ref_get(&tty->ref);
	return tty;
}

void tty_put(struct tty *tty)
{
	if (!tty || !ref_put(&tty->ref))
		return;
	pid_put(tty->pgrp);
	pid_put(tty->session);
	super_put(tty->sb);
	waitq_fini(&tty->slave_wq);
	waitq_fini(&tty->master_wq);
	mutex_fini(&tty->mu);
	free(tty->out);
	free(tty);
}

int tty_index(const struct tty *tty)
{
	return tty->index;
}

void tty_wake_slave(struct tty *tty, uint32_t events)
{
	struct tty_file *tf;

	waitq_wake(&tty->slave_wq, events);
	list_for_each(tf, &tty->files, node)
		file_fasync(tf->file, events);
}

void tty_wake_master(struct tty *tty, uint32_t events)
{
	waitq_wake(&tty->master_wq, events);
	if (tty->master)
		file_fasync(tty->master, events);
}

/* Context: tty.mu held, or a racy look (a hang-up is seen at the next operation). */
bool tty_file_hung(const struct tty_file *tf)
{
	return READ_ONCE(tf->tty->hangup_gen) != tf->gen;
}

/* ---- slave file ---- */

/* Waits for input. 0: look again; -errno. @deadline: VTIME. */
static long slave_wait_input(struct task *t, struct tty_file *tf, int64_t deadline)
{
	struct tty *tty = tf->tty;

	return wait_event(t, &tty->slave_wq, EPOLLIN | EPOLLHUP, deadline, ({
				  mutex_lock(&tty->mu);
				  bool ready = n_tty_input_available(tty, false) ||
					       tty_file_hung(tf) || !tty->master_open;
				  mutex_unlock(&tty->mu);
				  ready;
			  }));
}

struct read_rule {
	size_t min;       /* return when so many bytes are there */
	int64_t deadline; /* of the first byte */
	int64_t gap;      /* between bytes, 0: none */
	bool poll;        /* MIN = TIME = 0: never wait */
};

/* VMIN and VTIME of man 3 termios. Context: tty.mu held. */
static struct read_rule read_rule(struct task *t, const struct tty *tty)
{
	struct read_rule r = { .min = 1, .deadline = DEADLINE_NONE };
	int64_t time = tty->termios.c_cc[VTIME] * (NSEC_PER_SEC / 10);

	if (tty_l(tty, ICANON))
		return r;
	if (tty->termios.c_cc[VMIN]) {
		r.min = tty->termios.c_cc[VMIN];
		r.gap = time;
	} else if (time) {
		r.deadline = clock_monotonic_ns() + time;
		if (t)
			r.deadline = task_call_deadline(t, r.deadline);
	} else {
		r.poll = true;
	}
	return r;
}

/* One look at the input. Bytes moved (0: none there), -errno; *ret_done: return now. */
static ssize_t slave_read_once(struct tty_file *tf, struct iter *it, bool *ret_done)
{
	struct tty *tty = tf->tty;
	AUTO_LOCK(&tty->mu);
	ssize_t n;
	bool line;

	if (!n_tty_input_available(tty, false)) {
		if (!tty->master_open)
			return -EIO;
		*ret_done = tty_file_hung(tf);
		return 0;
	}
	n = n_tty_copy_out(tty, it, &line);
	*ret_done = line || (tty_l(tty, ICANON) && n > 0);
	if (n > 0 || line)
		tty_wake_master(tty, EPOLLOUT | EPOLLWRNORM);
	return n;
}

static ssize_t slave_read_loop(struct task *t, struct file *f, struct iter *it, struct read_rule r)
{
	struct tty_file *tf = f->priv;
	size_t want = MIN(r.min, it->left), done = 0;
	bool stop = false;

	for (;;) {
		ssize_t n = slave_read_once(tf, it, &stop);
		long w;

		if (n < 0)
			return done ? (ssize_t)done : n;
		done += (size_t)n;
		if (stop || done >= want || !it->left || (n == 0 && r.poll))
			return (ssize_t)done;
		if (n && r.gap)
			r.deadline = clock_monotonic_ns() + r.gap;
		if (!t || (f->flags & O_NONBLOCK))
			return done ? (ssize_t)done : -EAGAIN;
		w = slave_wait_input(t, tf, r.deadline);
		if (w == -ETIMEDOUT)
			return (ssize_t)done;
		if (w < 0)
			return done ? (ssize_t)done : w;
	}
}

static ssize_t slave_read(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct tty_file *tf = f->priv;
	struct tty *tty = tf->tty;
	struct read_rule r;
	int err;

	(void)pos;
	if (tty_file_hung(tf) || !it->left)
		return 0;
	err = tty_check_change(t, tty, SIGTTIN);
	if (err)
		return err;
	mutex_lock(&tty->mu);
	r = read_rule(t, tty);
	mutex_unlock(&tty->mu);
	return slave_read_loop(t, f, it, r);
}

static bool slave_writable(struct tty_file *tf)
{
	AUTO_LOCK(&tf->tty->mu);
	return tty_out_room(tf->tty) >= 8 || tty_file_hung(tf) || !tf->tty->master_open;
}

/* Bytes of @buf taken, 0: no room, -EIO. */
static ssize_t slave_write_once(struct tty_file *tf, const uint8_t *buf, size_t len)
{
	struct tty *tty = tf->tty;
	AUTO_LOCK(&tty->mu);
	size_t n;

	if (tty_file_hung(tf) || !tty->master_open)
		return -EIO;
	n = tty_out_write(tty, buf, len);
	if (n)
		tty_wake_master(tty, EPOLLIN | EPOLLRDNORM);
	return (ssize_t)n;
}

static ssize_t slave_write(struct task *t, struct file *f, struct iter *it, int64_t *pos)
{
	struct tty_file *tf = f->priv;
	uint8_t buf[TTY_WRITE_CHUNK];
	size_t done = task_call_progress(t);
	int err;

	(void)pos;
	iter_advance(it, done);
	if (tty_file_hung(tf))
		return done ? (ssize_t)done : -EIO;
	if (READ_ONCE(tf->tty->termios.c_lflag) & TOSTOP) {
		err = tty_check_change(t, tf->tty, SIGTTOU);
		if (err)
			return err;
	}
	while (it->left) {
		ssize_t n = iter_copy_from(it, buf, MIN(it->left, sizeof(buf)));
		ssize_t w;
		long e;

		if (n < 0)
			return done ? (ssize_t)done : n;
		w = slave_write_once(tf, buf, (size_t)n);
		if (w < n)
			iter_revert(it, (size_t)(n - MAX(w, (ssize_t)0)));
		if (w < 0)
			return done ? (ssize_t)done : w;
		done += (size_t)w;
		if (w == n)
			continue;
		if (!t || (f->flags & O_NONBLOCK))
			return done ? (ssize_t)done : -EAGAIN;
		e = wait_event(t, &tf->tty->slave_wq, EPOLLOUT | EPOLLHUP, DEADLINE_NONE,
			       slave_writable(tf));
		if (e < 0)
			return done ? task_call_partial(t, (ssize_t)done) : e;
	}
	return (ssize_t)done;
}

static uint32_t slave_poll(struct file *f)
{
	struct tty_file *tf = f->priv;
	struct tty *tty = tf->tty;
	AUTO_LOCK(&tty->mu);
	uint32_t ev = 0;

	if (tty_file_hung(tf))
		return EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLRDNORM | EPOLLWRNORM;
	if (n_tty_input_available(tty, true))
		ev |= EPOLLIN | EPOLLRDNORM;
	if (!tty->master_open)
		ev |= EPOLLHUP;
	if (tty_out_room(tty) >= 8)
		ev |= EPOLLOUT | EPOLLWRNORM;
	return ev;
}

static struct waitq *slave_waitq(struct file *f)
{
	return &((struct tty_file *)f->priv)->tty->slave_wq;
}

static void slave_release(struct file *f)
{
	struct tty_file *tf = f->priv;
	struct tty *tty = tf->tty;

	mutex_lock(&tty->mu);
	list_del(&tf->node);
	if (!tty_file_hung(tf) && --tty->slave_count == 0) {
		tty->other_closed = true;
		tty->exclusive = false;
		tty_wake_master(tty, EPOLLIN | EPOLLRDNORM | EPOLLHUP);
	}
	mutex_unlock(&tty->mu);
	free(tf);
	tty_put(tty);
}

static long slave_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg)
{
	return tty_ioctl(t, f, cmd, arg);
}

const struct file_ops tty_slave_fops = {
	.name = "tty",
	.release = slave_release,
	.read = slave_read,
	.write = slave_write,
	.poll = slave_poll,
	.waitq = slave_waitq,
	.ioctl = slave_ioctl,
	.state = &file_state_tty_slave,
};

struct tty *tty_of_file(struct file *f, bool *ret_master)
{
	*ret_master = pty_is_master(f);
	if (*ret_master)
		return f->priv;
	return f->ops == &tty_slave_fops ? ((struct tty_file *)f->priv)->tty : NULL;
}

/* Sets up @f as a slave of @tty. -EIO: locked or without master, -EBUSY: exclusive. */
int tty_open_slave(struct tty *tty, struct file *f, bool noctty)
{
	struct task *t = current_task();
	struct tty_file *tf;

	mutex_lock(&tty->mu);
	if (!tty->master_open || tty->locked) {
		mutex_unlock(&tty->mu);
		return -EIO;
	}
	if (tty->exclusive && t && !task_capable(t, CAP_SYS_ADMIN)) {
		mutex_unlock(&tty->mu);
		return -EBUSY;
	}
	tf = kzalloc(sizeof(*tf));
	tf->tty = tty_get(tty);
	tf->file = f;
	tf->gen = tty->hangup_gen;
	list_add_tail(&tty->files, &tf->node);
	tty->slave_count++;
	tty->other_closed = false;
	mutex_unlock(&tty->mu);
	f->priv = tf;
	f->ops = &tty_slave_fops;
	f->fmode |= FMODE_STREAM;
	if (t && !noctty)
		tty_open_ctty(t, tty, f);
	return 0;
}

/* ---- device nodes ---- */

/* /dev/tty: the caller's controlling terminal. */
static int devtty_open(struct inode *inode, struct file *f)
{
	struct task *t = current_task();
	struct tty *tty = NULL;
	int err;

	(void)inode;
	if (t) {
		mutex_lock(&kernel.tasks_mu);
		if (t->tg->tty)
			tty = tty_get(t->tg->tty);
		mutex_unlock(&kernel.tasks_mu);
	}
	if (!tty)
		return -ENXIO;
	err = tty_open_slave(tty, f, true);
	tty_put(tty);
	return err;
}

/* Consoles of containers: few, so a list. */
struct console {
	struct list node;
	struct container *container;
	struct tty *tty; /* reference */
};
static struct list consoles = LIST_INIT(consoles);
static struct mutex consoles_mu;

void console_bind(struct container *c, struct tty *tty)
{
	struct console *pos, *tmp, *old = NULL;

	mutex_lock(&consoles_mu);
	list_for_each_safe(pos, tmp, &consoles, node) {
		if (pos->container == c) {
			list_del(&pos->node);
			old = pos;
		}
	}
	if (tty) {
		pos = kzalloc(sizeof(*pos));
		pos->container = c;
		pos->tty = tty_get(tty);
		list_add(&consoles, &pos->node);
	}
	mutex_unlock(&consoles_mu);
	if (old) {
		tty_put(old->tty);
		free(old);
	}
}

/* /dev/console: the terminal that the container was started on. Never becomes a controlling one. */
static int console_open(struct inode *inode, struct file *f)
{
	struct task *t = current_task();
	struct tty *tty = NULL;
	struct console *pos;
	int err;

	(void)inode;
	mutex_lock(&consoles_mu);
	list_for_each(pos, &consoles, node)
		if (t && pos->container == t->tg->container)
			tty = tty_get(pos->tty);
	mutex_unlock(&consoles_mu);
	if (!tty)
		return -ENODEV;
	err = tty_open_slave(tty, f, true);
	tty_put(tty);
	return err;
}

/* A slave through a node made by mknod: the devpts that the node's directory is on decides, and outside of
 * devpts there is none, as in Linux. */
static int pts_open(struct inode *inode, struct file *f)
{
	struct tty *tty;
	int err;

	if (!inode->sb || strcmp(inode->sb->type->name, "devpts") != 0)
		return -EIO;
	tty = devpts_get(inode->sb, (int)minor(inode->rdev));
	if (!tty)
		return -EIO;
	err = tty_open_slave(tty, f, f->flags & O_NOCTTY);
	tty_put(tty);
	return err;
}

static int ptmx_open(struct inode *inode, struct file *f)
{
	struct mount *mnt = NULL;
	struct super *sb;
	struct tty *tty;
	int err;

	(void)inode;
	sb = devpts_from_ptmx(current_task(), f, &mnt);
	if (is_err(sb))
		return (int)ptr_err(sb);
	err = pty_open_master(sb, f, &tty);
	super_put(sb);
	return err;
}

void tty_init(void)
{
	int err = 0;

	mutex_init(&consoles_mu, RANK_NS);
	err |= chrdev_register(TTYAUX_MAJOR, 0, 1, devtty_open);
	err |= chrdev_register(TTYAUX_MAJOR, 1, 1, console_open);
	err |= chrdev_register(TTYAUX_MAJOR, 2, 1, ptmx_open);
	err |= chrdev_register(PTS_MAJOR, 0, 1u << 20, pts_open);
	if (err)
		panic("tty: device numbers are taken");
	chrdev_set_name(TTYAUX_MAJOR, "/dev/tty");
	chrdev_set_name(TTYAUX_MAJOR, "/dev/console");
	chrdev_set_name(TTYAUX_MAJOR, "/dev/ptmx");
	chrdev_set_name(PTS_MAJOR, "pts");
}
