// SPDX-License-Identifier: Apache-2.0
/*
 * ioctls of terminals (man 2 ioctl_tty). Those on a master act on the slave's settings, as in Linux; what
 * has a direction (TCFLSH, TIOCOUTQ, TCXONC) is turned round for it.
 *
 * TIOCSTI is refused: EIO, what Linux says with dev.tty.legacy_tiocsti=0. Serial-line calls (TIOCMGET,
 * TIOCGSERIAL, ...) end in ENOTTY, EINVAL for the modem ones as Linux has it for ptys.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "sentry/fs/devpts/tty_priv.h"
#include "sentry/kernel/task.h"

#define N_TTY_LDISC 0

struct l_termios { /* struct termios of the kernel */
	uint32_t c_iflag, c_oflag, c_cflag, c_lflag;
	uint8_t c_line, c_cc[19];
};
_Static_assert(sizeof(struct l_termios) == 36, "struct termios is 36 bytes");

struct l_termio {
	uint16_t c_iflag, c_oflag, c_cflag, c_lflag;
	uint8_t c_line, c_cc[8], pad;
};
_Static_assert(sizeof(struct l_termio) == 18, "struct termio is 18 bytes");

static const struct {
	unsigned flag, speed;
} speeds[] = {
	{ B0, 0 },         { B50, 50 },       { B75, 75 },         { B110, 110 },
	{ B134, 134 },     { B150, 150 },     { B200, 200 },       { B300, 300 },
	{ B600, 600 },     { B1200, 1200 },   { B1800, 1800 },     { B2400, 2400 },
	{ B4800, 4800 },   { B9600, 9600 },   { B19200, 19200 },   { B38400, 38400 },
	{ B57600, 57600 }, { B115200, 115200 }, { B230400, 230400 }, { B460800, 460800 },
	{ B500000, 500000 }, { B576000, 576000 }, { B921600, 921600 }, { B1000000, 1000000 },
	{ B1152000, 1152000 }, { B1500000, 1500000 }, { B2000000, 2000000 },
	{ B2500000, 2500000 }, { B3000000, 3000000 }, { B3500000, 3500000 },
	{ B4000000, 4000000 },
};

static unsigned speed_of(unsigned flag, unsigned other)
{
	for (unsigned i = 0; i < ARRAY_SIZE(speeds); i++)
		if (speeds[i].flag == flag)
			return speeds[i].speed;
	return other; /* BOTHER */
}

static void fix_speeds(struct termios2 *n, const struct termios2 *old)
{
	unsigned in = (n->c_cflag >> IBSHIFT) & CBAUD;

	n->c_ospeed = speed_of(n->c_cflag & CBAUD, n->c_ospeed);
	n->c_ispeed = in == B0 ? n->c_ospeed : speed_of(in, n->c_ispeed);
	(void)old;
}

/* Does it use ^S and ^Q for flow control? Packet mode tells the master about changes. */
static bool flow_on(const struct termios2 *k)
{
	return (k->c_iflag & IXON) && k->c_cc[VSTOP] == 19 && k->c_cc[VSTART] == 17;
}

static void set_termios_locked(struct tty *tty, const struct termios2 *n)
{
	struct termios2 old = tty->termios;
	uint8_t status = 0;

	tty->termios = *n;
	tty->termios.c_line = N_TTY_LDISC;
	tty->termios.c_cflag = (n->c_cflag & ~(unsigned)(CSIZE | PARENB)) | CS8 | CREAD;
	fix_speeds(&tty->termios, &old);
	if (tty->packet) {
		if (flow_on(&old) != flow_on(&tty->termios))
			status |= flow_on(&tty->termios) ? TIOCPKT_DOSTOP : TIOCPKT_NOSTOP;
		if ((old.c_lflag | tty->termios.c_lflag) & EXTPROC)
			status |= TIOCPKT_IOCTL;
		if (status) {
			tty->pkt_status = (uint8_t)(
				(tty->pkt_status & ~(TIOCPKT_DOSTOP | TIOCPKT_NOSTOP)) | status);
			tty_wake_master(tty, EPOLLIN | EPOLLRDNORM | EPOLLPRI);
		}
	}
	n_tty_termios_changed(tty, &old);
}

enum termios_form { FORM_TERMIOS, FORM_TERMIOS2, FORM_TERMIO };

static long get_termios(struct task *t, struct tty *tty, enum termios_form form, gaddr_t arg)
{
	struct termios2 k;
	struct l_termio o = { 0 };

	mutex_lock(&tty->mu);
	k = tty->termios;
	mutex_unlock(&tty->mu);
	switch (form) {
	case FORM_TERMIOS:
		return copyout(t, arg, &k, sizeof(struct l_termios));
	case FORM_TERMIOS2:
		return copyout_obj(t, arg, &k);
	case FORM_TERMIO:
		o.c_iflag = (uint16_t)k.c_iflag;
		o.c_oflag = (uint16_t)k.c_oflag;
		o.c_cflag = (uint16_t)k.c_cflag;
		o.c_lflag = (uint16_t)k.c_lflag;
		o.c_line = k.c_line;
		memcpy(o.c_cc, k.c_cc, sizeof(o.c_cc));
		return copyout_obj(t, arg, &o);
	}
	return -EINVAL;
}

static long read_termios(struct task *t, enum termios_form form, gaddr_t arg, struct termios2 *k)
{
	struct l_termio o;

	switch (form) {
	case FORM_TERMIOS:
		return copyin(t, k, arg, sizeof(struct l_termios));
	case FORM_TERMIOS2:
		return copyin_obj(t, k, arg);
	case FORM_TERMIO:
		if (copyin_obj(t, &o, arg))
			return -EFAULT;
		k->c_iflag = (k->c_iflag & 0xffff0000u) | o.c_iflag;
		k->c_oflag = (k->c_oflag & 0xffff0000u) | o.c_oflag;
		k->c_cflag = (k->c_cflag & 0xffff0000u) | o.c_cflag;
		k->c_lflag = (k->c_lflag & 0xffff0000u) | o.c_lflag;
		memcpy(k->c_cc, o.c_cc, sizeof(o.c_cc));
		return 0;
	}
	return -EINVAL;
}

/* Nothing to drain before the change: what was written is the master's already. */
static long set_termios(struct task *t, struct tty *tty, bool master, enum termios_form form,
			bool flush, gaddr_t arg)
{
	struct termios2 k;
	long err = master ? 0 : tty_check_change(t, tty, SIGTTOU);

	if (err)
		return err;
	mutex_lock(&tty->mu);
	k = tty->termios;
	mutex_unlock(&tty->mu);
	err = read_termios(t, form, arg, &k);
	if (err)
		return err;
	mutex_lock(&tty->mu);
	if (flush)
		n_tty_flush_input(tty);
	set_termios_locked(tty, &k);
	mutex_unlock(&tty->mu);
	return 0;
}

static long termios_ioctl(struct task *t, struct tty *tty, bool master, unsigned cmd, gaddr_t arg)
{
	switch (cmd) {
	case TCGETS:
		return get_termios(t, tty, FORM_TERMIOS, arg);
	case TCGETS2:
		return get_termios(t, tty, FORM_TERMIOS2, arg);
	case TCGETA:
		return get_termios(t, tty, FORM_TERMIO, arg);
	case TCSETS:
	case TCSETSW:
		return set_termios(t, tty, master, FORM_TERMIOS, false, arg);
	case TCSETSF:
		return set_termios(t, tty, master, FORM_TERMIOS, true, arg);
	case TCSETS2:
	case TCSETSW2:
		return set_termios(t, tty, master, FORM_TERMIOS2, false, arg);
	case TCSETSF2:
		return set_termios(t, tty, master, FORM_TERMIOS2, true, arg);
	case TCSETA:
	case TCSETAW:
		return set_termios(t, tty, master, FORM_TERMIO, false, arg);
	case TCSETAF:
		return set_termios(t, tty, master, FORM_TERMIO, true, arg);
	default:
		return -ENOIOCTLCMD;
	}
}

static void set_winsize(struct tty *tty, const struct l_winsize *ws)
{
	bool same;

	mutex_lock(&tty->mu);
	same = memcmp(&tty->ws, ws, sizeof(*ws)) == 0;
	tty->ws = *ws;
	mutex_unlock(&tty->mu);
	if (!same)
		tty_signal_fg(tty, SIGWINCH);
}

void tty_set_winsize(struct tty *tty, unsigned rows, unsigned cols)
{
	struct l_winsize ws = { .ws_row = (uint16_t)rows, .ws_col = (uint16_t)cols };

	set_winsize(tty, &ws);
}

/*
 * TCFLSH. Of the output, what lies in the first TTY_OUT_LDISC bytes has "arrived" and can't be flushed by the
 * writer (in Linux it is in the master's own buffer by then); the reader can flush all of it.
 */
static long tty_flush(struct tty *tty, bool master, int queue)
{
	AUTO_LOCK(&tty->mu);
	bool in = queue == TCIFLUSH || queue == TCIOFLUSH;
	bool out = queue == TCOFLUSH || queue == TCIOFLUSH;

	if (!in && !out)
		return -EINVAL;
	if (master) {
		if (in)
			tty->out_tail = tty->out_head;
		if (out)
			n_tty_flush_input(tty);
	} else {
		if (in)
			n_tty_flush_input(tty);
		if (out && tty_out_used(tty) > TTY_OUT_LDISC)
			tty->out_head = tty->out_tail + TTY_OUT_LDISC;
		if (out && tty->packet) {
			tty->pkt_status |= TIOCPKT_FLUSHWRITE;
			tty_wake_master(tty, EPOLLIN | EPOLLRDNORM | EPOLLPRI);
		}
	}
	tty_wake_slave(tty, EPOLLOUT | EPOLLWRNORM);
	return 0;
}

static void send_flow_char(struct tty *tty, bool master, int index)
{
	uint8_t c = tty->termios.c_cc[index];

	if (!c)
		return;
	if (master) {
		n_tty_receive_char(tty, c);
	} else {
		tty_out_raw(tty, c);
		tty_wake_master(tty, EPOLLIN | EPOLLRDNORM);
	}
}

static long tty_flow(struct tty *tty, bool master, int action)
{
	AUTO_LOCK(&tty->mu);

	switch (action) {
	case TCOOFF:
		if (!tty->tco_stopped) {
			tty->tco_stopped = true;
			tty_stop(tty);
		}
		return 0;
	case TCOON:
		if (tty->tco_stopped) {
			tty->tco_stopped = false;
			tty_start(tty);
		}
		return 0;
	case TCIOFF:
		send_flow_char(tty, master, VSTOP);
		return 0;
	case TCION:
		send_flow_char(tty, master, VSTART);
		return 0;
	default:
		return -EINVAL;
	}
}

static long change_ioctl(struct task *t, struct tty *tty, bool master, unsigned cmd, uint64_t arg)
{
	long err = master ? 0 : tty_check_change(t, tty, SIGTTOU);

	if (err)
		return err;
	switch (cmd) {
	case TCFLSH:
		return tty_flush(tty, master, (int)arg);
	case TCXONC:
		return tty_flow(tty, master, (int)arg);
	default: /* TCSBRK, TCSBRKP: drained already, and a pty has no break */
		return 0;
	}
}

/* Bytes waiting: @in for the caller to read, else written and not yet taken by the other side. */
static long queued_ioctl(struct task *t, struct tty *tty, bool master, bool in, gaddr_t arg)
{
	int n;

	mutex_lock(&tty->mu);
	if (in)
		n = (int)(master ? tty_out_used(tty) : n_tty_queued(tty));
	else
		n = 0; /* a pty's bytes are on the other side at once */
	mutex_unlock(&tty->mu);
	return copyout_obj(t, arg, &n);
}

static long excl_ioctl(struct task *t, struct tty *tty, unsigned cmd, gaddr_t arg)
{
	int v;

	mutex_lock(&tty->mu);
	if (cmd != TIOCGEXCL)
		tty->exclusive = cmd == TIOCEXCL;
	v = tty->exclusive;
	mutex_unlock(&tty->mu);
	return cmd == TIOCGEXCL ? copyout_obj(t, arg, &v) : 0;
}

static long ldisc_ioctl(struct task *t, unsigned cmd, gaddr_t arg)
{
	int v = N_TTY_LDISC;

	if (cmd == TIOCGETD)
		return copyout_obj(t, arg, &v);
	if (copyin_obj(t, &v, arg))
		return -EFAULT;
	return v == N_TTY_LDISC ? 0 : -EINVAL;
}

static long vhangup_ioctl(struct task *t, struct tty *tty)
{
	if (!task_capable(t, CAP_SYS_ADMIN))
		return -EPERM;
	tty_hangup(tty);
	return 0;
}

static long winsize_ioctl(struct task *t, struct tty *tty, unsigned cmd, gaddr_t arg)
{
	struct l_winsize ws;

	if (cmd == TIOCSWINSZ) {
		if (copyin_obj(t, &ws, arg))
			return -EFAULT;
		set_winsize(tty, &ws);
		return 0;
	}
	mutex_lock(&tty->mu);
	ws = tty->ws;
	mutex_unlock(&tty->mu);
	return copyout_obj(t, arg, &ws);
}

static long common_ioctl(struct task *t, struct tty *tty, bool master, unsigned cmd, uint64_t arg)
{
	switch (cmd) {
	case TCFLSH:
	case TCXONC:
	case TCSBRK:
	case TCSBRKP:
		return change_ioctl(t, tty, master, cmd, arg);
	case TIOCSBRK:
	case TIOCCBRK:
		return 0;
	case TIOCGWINSZ:
	case TIOCSWINSZ:
		return winsize_ioctl(t, tty, cmd, gaddr(arg));
	case TIOCINQ: /* FIONREAD */
		return queued_ioctl(t, tty, master, true, gaddr(arg));
	case TIOCOUTQ:
		return queued_ioctl(t, tty, master, false, gaddr(arg));
	case TIOCEXCL:
	case TIOCNXCL:
	case TIOCGEXCL:
		return excl_ioctl(t, tty, cmd, gaddr(arg));
	case TIOCSETD:
	case TIOCGETD:
		return ldisc_ioctl(t, cmd, gaddr(arg));
	case TIOCVHANGUP:
		return vhangup_ioctl(t, tty);
	case TIOCSTI:
		return -EIO;
	case TIOCMGET:
	case TIOCMSET:
	case TIOCMBIS:
	case TIOCMBIC:
		return -ENOTTY;
	default:
		return -ENOIOCTLCMD;
	}
}

/* ioctl(2) on either side. */
long tty_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg)
{
	bool master;
	struct tty *tty = tty_of_file(f, &master);
	long r;

	if (!tty)
		return -ENOIOCTLCMD;
	if (!master && tty_file_hung(f->priv))
		return cmd == TIOCSPGRP ? -ENOTTY : -EIO;
	if (master) {
		r = pty_master_ioctl(t, tty, f, cmd, arg);
		if (r != -ENOIOCTLCMD)
			return r;
	}
	r = termios_ioctl(t, tty, master, cmd, gaddr(arg));
	if (r == -ENOIOCTLCMD)
		r = tty_jobctrl_ioctl(t, tty, f, cmd, arg);
	if (r == -ENOIOCTLCMD)
		r = common_ioctl(t, tty, master, cmd, arg);
	return r;
}
