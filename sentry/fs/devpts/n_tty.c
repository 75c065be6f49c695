// SPDX-License-Identifier: Apache-2.0
/*
 * N_TTY, input side: what the master writes becomes lines, signals, echo (man 3 termios).
 *
 * A canonical line may be 4095 bytes; what comes beyond is dropped with a bell (IMAXBEL), while its newline
 * always finds room. Raw input that finds no room stays with the master, whose write blocks.
 *
 * Left out: INPCK, IGNPAR and IGNBRK have nothing to act on, as no byte of a pty has a parity error or
 * a break. All functions: tty.mu held.
 */
#include <ctype.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "sentry/fs/devpts/tty_priv.h"

#define AT(pos) ((pos) % TTY_INPUT_SIZE)

static bool bit_test(const uint64_t *map, uint32_t pos)
{
	return map[AT(pos) / 64] >> (AT(pos) % 64) & 1;
}

static void bit_set(uint64_t *map, uint32_t pos, bool on)
{
	uint64_t b = 1ULL << (AT(pos) % 64);

	if (on)
		map[AT(pos) / 64] |= b;
	else
		map[AT(pos) / 64] &= ~b;
}

static uint8_t cc(const struct tty *tty, int i)
{
	return tty->termios.c_cc[i];
}

/* Is @c the control character @i? A value of 0 means disabled. */
static bool is_cc(const struct tty *tty, uint8_t c, int i)
{
	return cc(tty, i) != 0 && cc(tty, i) == c;
}

/* Byte in the middle of a UTF-8 character. */
static bool is_continuation(const struct tty *tty, uint8_t c)
{
	return tty_i(tty, IUTF8) && (c & 0xc0) == 0x80;
}

static size_t used(const struct tty *tty)
{
	return tty->in.head - tty->in.tail;
}

/* Bytes that the master may write now without being blocked. */
size_t n_tty_receive_room(const struct tty *tty)
{
	size_t room;

	/* A line without an end must never block its own newline: the rest is dropped with a bell. */
	if (tty_l(tty, ICANON) && tty->in.canon_head == tty->in.tail)
		return TTY_INPUT_SIZE;
	if (used(tty) >= TTY_INPUT_SIZE - 1)
		return 0;
	room = TTY_INPUT_SIZE - 1 - used(tty);
	if (tty_i(tty, PARMRK))
		room /= 2; /* \377 is stored twice */
	return room;
}

static void put(struct tty *tty, uint8_t c)
{
	struct n_tty *in = &tty->in;

	in->buf[AT(in->head)] = c;
	bit_set(in->delim, in->head, false);
	bit_set(in->eof, in->head, false);
	in->head++;
}

static void commit_line(struct tty *tty, uint8_t c, bool eof)
{
	struct n_tty *in = &tty->in;

	put(tty, c);
	bit_set(in->delim, in->head - 1, true);
	bit_set(in->eof, in->head - 1, eof);
	in->canon_head = in->head;
	tty_wake_slave(tty, EPOLLIN | EPOLLRDNORM);
}

static void finish_erasing(struct tty *tty)
{
	if (tty->in.erasing) {
		tty_out_raw(tty, '/');
		tty->in.erasing = false;
	}
}

static void echo_str(struct tty *tty, const char *s)
{
	for (; *s; s++)
		tty_out_char(tty, (uint8_t)*s);
}

/* Columns that a tab just erased took: those of the line before it decide. */
static void echo_erase_tab(struct tty *tty)
{
	struct n_tty *in = &tty->in;
	unsigned cols = 0, n;
	bool after_tab = false;

	for (uint32_t p = in->head; p != in->canon_head;) {
		uint8_t c = in->buf[AT(--p)];

		if (c == '\t') {
			after_tab = true;
			break;
		}
		if (tty_is_cntrl(c))
			cols += tty_l(tty, ECHOCTL) ? 2 : 0;
		else if (!is_continuation(tty, c))
			cols++;
	}
	if (!after_tab)
		cols += tty->canon_column;
	for (n = 8 - (cols & 7); n; n--) {
		tty_out_raw(tty, '\b');
		if (tty->column)
			tty->column--;
	}
}

static void echo_erased(struct tty *tty, uint8_t c, uint32_t pos, uint32_t n, bool one)
{
	struct n_tty *in = &tty->in;

	if (tty_l(tty, ECHOPRT)) {
		if (!in->erasing) {
			tty_out_raw(tty, '\\');
			in->erasing = true;
		}
		tty_echo_char(tty, c);
		for (uint32_t i = 1; i < n; i++)
			tty_out_raw(tty, in->buf[AT(pos + i)]);
	} else if (one && !tty_l(tty, ECHOE)) {
		tty_echo_char(tty, cc(tty, VERASE));
	} else if (c == '\t') {
		echo_erase_tab(tty);
	} else {
		if (tty_is_cntrl(c) && tty_l(tty, ECHOCTL))
			echo_str(tty, "\b \b");
		if (!tty_is_cntrl(c) || tty_l(tty, ECHOCTL))
			echo_str(tty, "\b \b");
	}
}

/* Start of the character that ends at head, or head itself when it isn't whole in the line. */
static uint32_t last_char(const struct tty *tty)
{
	const struct n_tty *in = &tty->in;
	uint32_t p = in->head;

	do {
		p--;
	} while (is_continuation(tty, in->buf[AT(p)]) && p != in->canon_head);
	return is_continuation(tty, in->buf[AT(p)]) ? in->head : p;
}

/* VERASE, VWERASE or VKILL was typed. */
static void erase(struct tty *tty, int what)
{
	struct n_tty *in = &tty->in;
	bool echo = tty_l(tty, ECHO), seen_word = false;

	if (in->head == in->canon_head)
		return;
	if (what == VKILL) {
		if (!echo) {
			in->head = in->canon_head;
			return;
		}
		if (!tty_l(tty, ECHOK) || !tty_l(tty, ECHOKE) || !tty_l(tty, ECHOE)) {
			in->head = in->canon_head;
			finish_erasing(tty);
			tty_echo_char(tty, cc(tty, VKILL));
			if (tty_l(tty, ECHOK))
				tty_out_char(tty, '\n');
			return;
		}
	}
	while (in->head != in->canon_head) {
		uint32_t p = last_char(tty), n = in->head - p;
		uint8_t c = in->buf[AT(p)];

		if (!n)
			break;
		if (what == VWERASE) {
			if (isalnum(c) || c == '_' || c >= 0x80)
				seen_word = true;
			else if (seen_word)
				break;
		}
		in->head = p;
		if (echo)
			echo_erased(tty, c, p, n, what == VERASE);
		if (what == VERASE)
			break;
	}
	if (in->head == in->canon_head && echo)
		finish_erasing(tty);
}

static void reprint(struct tty *tty, uint8_t c)
{
	struct n_tty *in = &tty->in;

	finish_erasing(tty);
	tty_echo_char(tty, c);
	tty_out_char(tty, '\n');
	for (uint32_t p = in->canon_head; p != in->head; p++)
		tty_echo_char(tty, in->buf[AT(p)]);
}

static void isig(struct tty *tty, int sig, uint8_t c)
{
	if (!tty_l(tty, NOFLSH)) {
		n_tty_flush_input(tty);
		tty->out_tail = tty->out_head;
		if (tty->packet)
			tty->pkt_status |= TIOCPKT_FLUSHWRITE;
	}
	if (tty_i(tty, IXON) && tty->stopped)
		tty_start(tty);
	if (tty_l(tty, ECHO))
		tty_echo_char(tty, c);
	tty_signal_fg(tty, sig);
}

static bool receive_signal_char(struct tty *tty, uint8_t c)
{
	int sig;

	if (!tty_l(tty, ISIG))
		return false;
	if (is_cc(tty, c, VINTR))
		sig = SIGINT;
	else if (is_cc(tty, c, VQUIT))
		sig = SIGQUIT;
	else if (is_cc(tty, c, VSUSP))
		sig = SIGTSTP;
	else
		return false;
	isig(tty, sig, c);
	return true;
}

static bool receive_flow_char(struct tty *tty, uint8_t c)
{
	if (!tty_i(tty, IXON))
		return false;
	if (is_cc(tty, c, VSTART)) {
		tty_start(tty);
		return true;
	}
	if (is_cc(tty, c, VSTOP)) {
		tty_stop(tty);
		return true;
	}
	return false;
}

/* Stores a byte; canonical overflow rings the bell. */
static void store(struct tty *tty, uint8_t c)
{
	if (used(tty) >= TTY_INPUT_SIZE - 1) {
		if (tty_i(tty, IMAXBEL))
			tty_out_raw(tty, '\a');
		return;
	}
	put(tty, c);
}

static void echo_and_store(struct tty *tty, uint8_t c)
{
	bool full = used(tty) >= TTY_INPUT_SIZE - 1;

	if (tty_l(tty, ECHO) && !full) {
		finish_erasing(tty);
		if (c == '\n') {
			tty_out_char(tty, '\n');
		} else {
			if (tty->in.canon_head == tty->in.head)
				tty->canon_column = tty->column;
			tty_echo_char(tty, c);
		}
	}
	if (c == 0xff && tty_i(tty, PARMRK) && !full)
		put(tty, c);
	store(tty, c);
	if (!tty_l(tty, ICANON))
		tty_wake_slave(tty, EPOLLIN | EPOLLRDNORM);
}

/* Editing characters of a canonical line; true: consumed. */
static bool receive_edit_char(struct tty *tty, uint8_t c)
{
	bool iexten = tty_l(tty, IEXTEN);

	if (is_cc(tty, c, VERASE)) {
		erase(tty, VERASE);
	} else if (is_cc(tty, c, VKILL)) {
		erase(tty, VKILL);
	} else if (iexten && is_cc(tty, c, VWERASE)) {
		erase(tty, VWERASE);
	} else if (iexten && is_cc(tty, c, VLNEXT)) {
		tty->in.lnext = true;
		if (tty_l(tty, ECHO)) {
			finish_erasing(tty);
			if (tty_l(tty, ECHOCTL)) {
				tty_out_raw(tty, '^');
				tty_out_raw(tty, '\b');
			}
		}
	} else if (iexten && tty_l(tty, ECHO) && is_cc(tty, c, VREPRINT)) {
		reprint(tty, c);
	} else {
		return false;
	}
	return true;
}

/* Characters that end a canonical line; true: consumed. */
static bool receive_end_char(struct tty *tty, uint8_t c)
{
	if (c == '\n') {
		if (tty_l(tty, ECHO) || tty_l(tty, ECHONL))
			tty_out_char(tty, '\n');
		commit_line(tty, c, false);
	} else if (is_cc(tty, c, VEOF)) {
		commit_line(tty, 0, true);
	} else if (is_cc(tty, c, VEOL) || (tty_l(tty, IEXTEN) && is_cc(tty, c, VEOL2))) {
		if (tty_l(tty, ECHO)) {
			if (tty->in.canon_head == tty->in.head)
				tty->canon_column = tty->column;
			tty_echo_char(tty, c);
		}
		commit_line(tty, c, false);
	} else {
		return false;
	}
	finish_erasing(tty);
	return true;
}

/* Takes one byte that the master wrote. The caller has checked n_tty_receive_room(). */
void n_tty_receive_char(struct tty *tty, uint8_t c)
{
	if (tty_i(tty, ISTRIP))
		c &= 0x7f;
	if (tty_i(tty, IUCLC) && tty_l(tty, IEXTEN))
		c = (uint8_t)tolower(c);
	if (tty_l(tty, EXTPROC)) {
		store(tty, c);
		if (tty_l(tty, ICANON) && c == '\n' && tty->in.head != tty->in.canon_head) {
			bit_set(tty->in.delim, tty->in.head - 1, true);
			tty->in.canon_head = tty->in.head;
		}
		tty_wake_slave(tty, EPOLLIN | EPOLLRDNORM);
		return;
	}
	if (tty->in.lnext) {
		tty->in.lnext = false;
		echo_and_store(tty, c);
		return;
	}
	if (receive_flow_char(tty, c) || receive_signal_char(tty, c))
		return;
	if (tty->stopped && !tty->tco_stopped && tty_i(tty, IXON) && tty_i(tty, IXANY))
		tty_start(tty);
	if (c == '\r') {
		if (tty_i(tty, IGNCR))
			return;
		if (tty_i(tty, ICRNL))
			c = '\n';
	} else if (c == '\n' && tty_i(tty, INLCR)) {
		c = '\r';
	}
	if (tty_l(tty, ICANON) && (receive_edit_char(tty, c) || receive_end_char(tty, c)))
		return;
	echo_and_store(tty, c);
}

bool n_tty_input_available(const struct tty *tty, bool poll)
{
	size_t amount = 1;

	if (tty_l(tty, ICANON) && !tty_l(tty, EXTPROC))
		return tty->in.canon_head != tty->in.tail;
	if (poll && !cc(tty, VTIME) && cc(tty, VMIN))
		amount = cc(tty, VMIN);
	return used(tty) >= amount;
}

size_t n_tty_queued(const struct tty *tty)
{
	size_t n = 0;

	if (!tty_l(tty, ICANON))
		return used(tty);
	for (uint32_t p = tty->in.tail; p != tty->in.canon_head; p++)
		n += !bit_test(tty->in.eof, p);
	return n;
}

/* Bytes of the next line that fit into @max; *ret_end: the line ends there. */
static uint32_t line_length(const struct n_tty *in, size_t max, bool *ret_end)
{
	uint32_t p = in->tail;

	*ret_end = false;
	while (p != in->canon_head && p - in->tail < max) {
		if (bit_test(in->delim, p++)) {
			*ret_end = true;
			break;
		}
	}
	return p - in->tail;
}

static ssize_t copy_ring(struct n_tty *in, struct iter *it, uint32_t n)
{
	uint32_t done = 0;

	while (done < n) {
		uint32_t chunk = MIN(n - done, TTY_INPUT_SIZE - AT(in->tail));
		ssize_t r = iter_copy_to(it, in->buf + AT(in->tail), chunk);

		if (r < 0)
			return done ? (ssize_t)done : r;
		in->tail += (uint32_t)r;
		done += (uint32_t)r;
		if ((uint32_t)r < chunk)
			break;
	}
	return (ssize_t)done;
}

ssize_t n_tty_copy_out(struct tty *tty, struct iter *it, bool *ret_line)
{
	struct n_tty *in = &tty->in;
	bool end, eof;
	uint32_t n;
	ssize_t r;

	*ret_line = false;
	if (!tty_l(tty, ICANON) || tty_l(tty, EXTPROC)) {
		r = copy_ring(in, it, (uint32_t)MIN(it->left, used(tty)));
		/* Only EXTPROC has lines here: their end must not fall behind the reader. */
		if (in->canon_head - in->tail > TTY_INPUT_SIZE)
			in->canon_head = in->tail;
		return r;
	}
	n = line_length(in, it->left, &end);
	eof = end && bit_test(in->eof, in->tail + n - 1);
	r = copy_ring(in, it, eof ? n - 1 : n);
	if (r < 0 || (uint32_t)r < (eof ? n - 1 : n))
		return r;
	/* An end-of-file mark right behind a read that was filled exactly belongs to that read. */
	if (eof || (!end && in->tail != in->canon_head && bit_test(in->eof, in->tail))) {
		in->tail++;
		end = true;
	}
	*ret_line = end;
	return r;
}

void n_tty_flush_input(struct tty *tty)
{
	struct n_tty *in = &tty->in;

	in->tail = in->canon_head = in->head;
	in->lnext = in->erasing = false;
	if (tty->packet)
		tty->pkt_status |= TIOCPKT_FLUSHREAD;
	tty_wake_master(tty, EPOLLOUT | EPOLLWRNORM | (tty->packet ? EPOLLPRI | EPOLLIN : 0u));
}

/* Input that waits when canonical mode is switched: raw sees all, canonical takes it as one line. */
void n_tty_termios_changed(struct tty *tty, const struct termios2 *old)
{
	struct n_tty *in = &tty->in;

	if ((old->c_lflag ^ tty->termios.c_lflag) & (ICANON | EXTPROC)) {
		memset(in->delim, 0, sizeof(in->delim));
		if (!tty_l(tty, ICANON)) {
			/* marks stored as 0 would be read as data in raw mode, as in Linux */
			memset(in->eof, 0, sizeof(in->eof));
			in->canon_head = in->tail;
		} else if (used(tty)) {
			bit_set(in->delim, in->head - 1, true);
			in->canon_head = in->head;
		} else {
			in->canon_head = in->tail;
		}
		in->lnext = in->erasing = false;
	}
	if (!tty_i(tty, IXON) && (old->c_iflag & IXON) && !tty->tco_stopped)
		tty_start(tty);
	tty_wake_slave(tty, EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM);
	tty_wake_master(tty, EPOLLOUT | EPOLLWRNORM);
}
