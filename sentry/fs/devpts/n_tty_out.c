// SPDX-License-Identifier: Apache-2.0
/*
 * N_TTY, output side: the ring from the slave to the master, output processing (OPOST), echo, flow
 * control. Echo may use the whole ring, slave writes leave a reserve to it; echo that finds no room
 * is dropped, as nobody can wait for it. All functions: tty.mu held.
 */
#include <ctype.h>
#include <string.h>
#include <sys/epoll.h>

#include "sentry/fs/devpts/tty_priv.h"

bool tty_is_cntrl(uint8_t c)
{
	return c < 0x20 || c == 0x7f;
}

size_t tty_out_used(const struct tty *tty)
{
	return tty->out_head - tty->out_tail;
}

size_t tty_out_room(const struct tty *tty)
{
	size_t n = tty_out_used(tty);

	if (tty->stopped || n >= TTY_OUT_SIZE - TTY_OUT_RESERVE)
		return 0;
	return TTY_OUT_SIZE - TTY_OUT_RESERVE - n;
}

void tty_out_raw(struct tty *tty, uint8_t c)
{
	if (tty_out_used(tty) < TTY_OUT_SIZE)
		tty->out[tty->out_head++ % TTY_OUT_SIZE] = c;
}

static void out_newline(struct tty *tty)
{
	if (tty_o(tty, ONLCR)) {
		tty_out_raw(tty, '\r');
		tty->column = 0;
	}
	if (tty_o(tty, ONLRET))
		tty->column = 0;
	tty->canon_column = tty->column;
	tty_out_raw(tty, '\n');
}

static void out_cr(struct tty *tty)
{
	if (tty_o(tty, ONOCR) && tty->column == 0)
		return;
	if (tty_o(tty, OCRNL)) {
		if (tty_o(tty, ONLRET))
			tty->column = tty->canon_column = 0;
		tty_out_raw(tty, '\n');
		return;
	}
	tty->column = tty->canon_column = 0;
	tty_out_raw(tty, '\r');
}

static void out_tab(struct tty *tty)
{
	unsigned n = 8 - (tty->column & 7);

	tty->column += n;
	if ((tty->termios.c_oflag & TABDLY) != XTABS) {
		tty_out_raw(tty, '\t');
		return;
	}
	while (n--)
		tty_out_raw(tty, ' ');
}

void tty_out_char(struct tty *tty, uint8_t c)
{
	if (!tty_o(tty, OPOST)) {
		tty_out_raw(tty, c);
		return;
	}
	switch (c) {
	case '\n':
		out_newline(tty);
		return;
	case '\r':
		out_cr(tty);
		return;
	case '\t':
		out_tab(tty);
		return;
	case '\b':
		if (tty->column)
			tty->column--;
		break;
	default:
		if (!tty_is_cntrl(c)) {
			if (tty_o(tty, OLCUC))
				c = (uint8_t)toupper(c);
			if (!(tty_i(tty, IUTF8) && (c & 0xc0) == 0x80))
				tty->column++;
		}
	}
	tty_out_raw(tty, c);
}

/* Takes as much of @buf as there is room for, whatever it expands to. Bytes taken. */
size_t tty_out_write(struct tty *tty, const uint8_t *buf, size_t len)
{
	size_t i = 0;

	if (!tty_o(tty, OPOST)) {
		len = MIN(len, tty_out_room(tty));
		while (i < len) {
			uint32_t at = tty->out_head % TTY_OUT_SIZE;
			size_t n = MIN(len - i, (size_t)(TTY_OUT_SIZE - at));

			memcpy(tty->out + at, buf + i, n);
			tty->out_head += (uint32_t)n;
			i += n;
		}
		return len;
	}
	/* 8: the most that one byte becomes (a tab) */
	while (i < len && tty_out_room(tty) >= 8)
		tty_out_char(tty, buf[i++]);
	return i;
}

void tty_echo_char(struct tty *tty, uint8_t c)
{
	if (tty_l(tty, ECHOCTL) && tty_is_cntrl(c) && c != '\t') {
		tty_out_raw(tty, '^');
		tty_out_raw(tty, c ^ 0x40);
		tty->column += 2;
	} else {
		tty_out_char(tty, c);
	}
}

static void pkt_event(struct tty *tty, uint8_t clear, uint8_t set)
{
	if (!tty->packet)
		return;
	tty->pkt_status = (uint8_t)((tty->pkt_status & ~clear) | set);
	tty_wake_master(tty, EPOLLIN | EPOLLRDNORM | EPOLLPRI);
}

void tty_stop(struct tty *tty)
{
	if (tty->stopped)
		return;
	tty->stopped = true;
	pkt_event(tty, TIOCPKT_START, TIOCPKT_STOP);
}

void tty_start(struct tty *tty)
{
	if (!tty->stopped || tty->tco_stopped)
		return;
	tty->stopped = false;
	pkt_event(tty, TIOCPKT_STOP, TIOCPKT_START);
	tty_wake_slave(tty, EPOLLOUT | EPOLLWRNORM);
}
