// SPDX-License-Identifier: Apache-2.0
/*
 * Terminals, as the rest of the sentry sees them (man 4 tty_ioctl, man 7 pty). Every terminal of a sandbox
 * is a pseudo terminal: struct tty is the pair, with the line discipline on the slave's side.
 */
#ifndef SENTRY_FS_DEVPTS_TTY_H
#define SENTRY_FS_DEVPTS_TTY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct tty;
struct task;
struct tgroup;
struct file;
struct container;
struct pid;

struct tty *tty_get(struct tty *tty);
/* Context: the last one must not be dropped with a lock of rank above RANK_TTY held. NULL is fine. */
void tty_put(struct tty *tty);

/* Session leader @tg exits: the foreground group of its terminal gets SIGHUP, nobody keeps it as
 * controlling terminal. For other processes: only drops tg->tty. Context: no locks. */
void tty_session_exit(struct tgroup *tg);
/* Makes @tty the controlling terminal of session leader @tg, its group the foreground one (spawn of a
 * container's process). No checks. Context: no locks. */
void tty_make_ctty(struct tty *tty, struct tgroup *tg);
/* setsid(2): @tg loses its controlling terminal. Context: tasks_mu held. Returns the reference that the
 * caller drops with tty_put() after unlocking. */
struct tty *tty_detach_locked(struct tgroup *tg);
/* Device number for /proc/PID/stat (0: none) and the foreground group. Context: tasks_mu held. */
dev_t tty_stat_locked(const struct tgroup *tg, struct pid **ret_pgrp);

void tty_set_winsize(struct tty *tty, unsigned rows, unsigned cols);
int tty_index(const struct tty *tty);

/* Which terminal /dev/console is for the processes of @c; NULL @tty: none any more. */
void console_bind(struct container *c, struct tty *tty);

/* Registers /dev/tty, /dev/console, /dev/ptmx and the pts devices. */
void tty_init(void);

#endif
