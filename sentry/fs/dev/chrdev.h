// SPDX-License-Identifier: Apache-2.0
/*
 * Character devices by number (man 4 null, random, tty, ...). A device node is an inode of any file
 * system whose rdev names a driver; the file system's ->open sends S_ISCHR inodes here.
 *
 * The registry is filled at start-up and never changes afterwards, so it is read without a lock.
 */
#ifndef SENTRY_FS_DEV_CHRDEV_H
#define SENTRY_FS_DEV_CHRDEV_H

struct inode;
struct file;
struct seqbuf;
struct tty;
struct container;

/* Fills @f->ops and @f->priv. 0 or -errno. */
typedef int (*chrdev_open_fn)(struct inode *inode, struct file *f);

/* Minors [minor_first, minor_first + n) of @major. 0, -EBUSY (overlaps), -ENOSPC. Start-up only. */
int chrdev_register(unsigned major, unsigned minor_first, unsigned n, chrdev_open_fn open);
/* The name under which /proc/devices lists @major. Start-up only. */
void chrdev_set_name(unsigned major, const char *name);
/* Opens the device that @inode->rdev names. -ENXIO when there is none. */
int chrdev_open(struct inode *inode, struct file *f);
void chrdev_show_devices(struct seqbuf *out); /* /proc/devices */

/* Registers null, zero, full, random, urandom and kmsg. */
void dev_init(void);
void kmsg_init(void);
/* Adds a line to the guest's kernel log. */
void kmsg_add(int prio, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Registers the file system type devtmpfs. */
void fs_dev_init(void);

#endif
