// SPDX-License-Identifier: Apache-2.0
/*
 * The tty layer's own view of a pty pair.
 *
 *   master write -> n_tty_receive() -> input buffer -> slave read
 *   slave write, echo -> output processing -> output ring -> master read
 *
 * Linux keeps two tty structures with flip buffers between them; here one struct with one buffer in each
 * direction does, because a pty has no hardware in the middle.
 *
 * Locks: tty.mu (RANK_TTY) > kernel.tasks_mu. Guest memory may be copied with tty.mu held.
 * Field key: (m) tty.mu   (T) kernel.tasks_mu   (c) const   (a) atomic
 */
#ifndef SENTRY_FS_DEVPTS_TTY_PRIV_H
#define SENTRY_FS_DEVPTS_TTY_PRIV_H

#include <asm/ioctls.h>
#include <asm/termbits.h>

#include "base/list.h"
#include "base/mutex.h"
#include "base/ref.h"
#include "sentry/fs/devpts/tty.h"
#include "sentry/kernel/waitq.h"
#include "sentry/vfs/vfs.h"

#define TTY_INPUT_SIZE 4096u    /* N_TTY_BUF_SIZE: limit of a canonical line */
#define TTY_OUT_SIZE 16384u     /* between slave and master */
#define TTY_OUT_RESERVE 2048u   /* of it: only echo may use the last part */
#define TTY_OUT_LDISC 4096u     /* part that TCOFLUSH can't take back: see tty_flush() */
#define PTS_MAJOR 136
#define TTYAUX_MAJOR 5

struct l_winsize {
	uint16_t ws_row, ws_col, ws_xpixel, ws_ypixel;
};
_Static_assert(sizeof(struct termios2) == 44, "termios2 is 44 bytes");

/* Input side of the line discipline. Positions run freely; index = position % TTY_INPUT_SIZE. */
struct n_tty {
	uint8_t buf[TTY_INPUT_SIZE];
	uint64_t delim[TTY_INPUT_SIZE / 64]; /* byte ends a line */
	uint64_t eof[TTY_INPUT_SIZE / 64];   /* ... and is an end-of-file mark, not data */
	uint32_t head, tail, canon_head;     /* [tail, canon_head): complete lines */
	bool lnext, erasing;
};

struct tty {
	struct ref ref;
	struct mutex mu;
	int index;                  /* (c) */
	struct super *sb;           /* (c) its devpts; reference */
	uid_t uid;                  /* (c) owner and mode of the new slave node */
	gid_t gid;
	uint32_t mode;
	int64_t ctime_ns;           /* (c) */

	struct termios2 termios;    /* (m) */
	struct l_winsize ws;        /* (m) */
	struct n_tty in;            /* (m) */
	uint8_t *out;               /* (m) ring of TTY_OUT_SIZE */
	uint32_t out_head, out_tail;/* (m) run freely */
	unsigned column, canon_column; /* (m) */
	bool stopped, tco_stopped;  /* (m) output held: by the STOP character; by TCOOFF */

	bool master_open;           /* (m) */
	bool other_closed;          /* (m) a slave was open, and the last one is gone */
	bool locked, exclusive;     /* (m) TIOCSPTLCK, TIOCEXCL */
	bool packet;                /* (m) TIOCPKT */
	uint8_t pkt_status;         /* (m) TIOCPKT_* to be told */
	unsigned slave_count;       /* (m) open slave files that aren't hung up */
	unsigned hangup_gen;        /* (m) files opened before the last change are hung up */
	struct list files;          /* (m) of tty_file.node: slaves */
	struct file *master;        /* (m) borrowed; NULL when closed */
	struct waitq slave_wq, master_wq;

	struct pid *pgrp, *session; /* (T) references */
};

/* f->priv of an open slave. */
struct tty_file {
	struct tty *tty;  /* reference */
	struct list node; /* (tty.mu) */
	struct file *file;
	unsigned gen;
};

static inline bool tty_l(const struct tty *tty, unsigned flag)
{
	return tty->termios.c_lflag & flag;
}

static inline bool tty_i(const struct tty *tty, unsigned flag)
{
	return tty->termios.c_iflag & flag;
}

static inline bool tty_o(const struct tty *tty, unsigned flag)
{
	return tty->termios.c_oflag & flag;
}

/* tty.c */
extern const struct file_ops tty_slave_fops;
struct tty *tty_alloc(void);
struct tty *tty_create(struct super *sb, int index);
int tty_open_slave(struct tty *tty, struct file *f, bool noctty);
bool tty_file_hung(const struct tty_file *tf);
void tty_wake_slave(struct tty *tty, uint32_t events);
void tty_wake_master(struct tty *tty, uint32_t events);
/* The pair behind a master or slave file; *ret_master says which. NULL: not a tty. */
struct tty *tty_of_file(struct file *f, bool *ret_master);

/* pty.c */
int pty_open_master(struct super *devpts, struct file *f, struct tty **ret);
extern const struct file_ops tty_master_fops;
bool pty_is_master(const struct file *f);
long pty_master_ioctl(struct task *t, struct tty *tty, struct file *f, unsigned cmd, uint64_t arg);

/* n_tty.c, n_tty_out.c: all with tty.mu held */
size_t n_tty_receive_room(const struct tty *tty);
/* Takes one byte from the master. *ret_sig: signal to send to the foreground group, or 0. */
void n_tty_receive_char(struct tty *tty, uint8_t c);
bool n_tty_input_available(const struct tty *tty, bool poll);
size_t n_tty_queued(const struct tty *tty); /* FIONREAD */
/* Moves input into @it; *ret_line: a whole line or an end-of-file mark was taken. */
ssize_t n_tty_copy_out(struct tty *tty, struct iter *it, bool *ret_line);
void n_tty_termios_changed(struct tty *tty, const struct termios2 *old);
void n_tty_flush_input(struct tty *tty);

size_t tty_out_used(const struct tty *tty);
size_t tty_out_room(const struct tty *tty); /* for slave writes */
void tty_out_raw(struct tty *tty, uint8_t c);
void tty_out_char(struct tty *tty, uint8_t c); /* with output processing */
size_t tty_out_write(struct tty *tty, const uint8_t *buf, size_t len);
void tty_echo_char(struct tty *tty, uint8_t c);
void tty_stop(struct tty *tty);
void tty_start(struct tty *tty);
bool tty_is_cntrl(uint8_t c);

/* tty_ioctl.c */
long tty_ioctl(struct task *t, struct file *f, unsigned cmd, uint64_t arg);

/* tty_jobctrl.c */
int tty_check_change(struct task *t, struct tty *tty, int sig);
void tty_open_ctty(struct task *t, struct tty *tty, const struct file *f);
void tty_hangup(struct tty *tty);
void tty_signal_fg(struct tty *tty, int sig);
long tty_jobctrl_ioctl(struct task *t, struct tty *tty, struct file *f, unsigned cmd, uint64_t arg);

/* devpts.c */
struct super *devpts_from_ptmx(struct task *t, struct file *f, struct mount **ret_mnt);
int devpts_new(struct super *sb, struct tty **ret);
void devpts_kill(struct tty *tty);
struct tty *devpts_get(struct super *sb, int index);
struct file *devpts_open_peer(struct task *t, struct tty *tty, struct file *master, unsigned flags);

#endif
