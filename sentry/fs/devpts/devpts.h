// SPDX-License-Identifier: Apache-2.0
/* devpts: the directory of pty slaves (man 4 pts). */
#ifndef SENTRY_FS_DEVPTS_DEVPTS_H
#define SENTRY_FS_DEVPTS_DEVPTS_H

struct super;
struct file;
struct tty;

/* Registers devpts. tty_init() registers the devices. */
void devpts_init(void);

/*
 * A new pty for a container's console. *ret_master is for a service thread (its operations never block with
 * a NULL task), *ret_slave is open and unlocked, *ret_tty a reference to the pair. 0 or -errno (-ENOSPC).
 */
int console_create(struct super *devpts, struct file **ret_master, struct file **ret_slave,
		   struct tty **ret_tty);

#endif
