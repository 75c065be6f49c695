// SPDX-License-Identifier: Apache-2.0
/* procfs (man 5 proc). */
#ifndef SENTRY_FS_PROC_PROC_H
#define SENTRY_FS_PROC_PROC_H

#include <stdbool.h>
#include <stdint.h>

struct file;
struct pid;
struct pidns;
struct super;

/* Registers proc. */
void proc_init(void);

/* One that shows @ns. err_ptr: -EINVAL (options). */
struct super *proc_create_super(struct pidns *ns, const char *source, unsigned long flags, const char *data);

/* The process whose /proc/PID directory @f is, for pidfd_send_signal(2) and friends: borrowed from @f, or
 * NULL. */
struct pid *proc_dir_pid(struct file *f);

/* Sets "net.ipv4.ip_forward" or "net/ipv4/ip_forward" from outside. 0, -ENOENT: there is none, -EROFS: it is
 * fixed, -EINVAL. */
int proc_sysctl_set(const char *name, const char *value);

/* RAM of the sandbox in bytes. */
uint64_t proc_mem_total(void);
/* What is left of it. */
uint64_t proc_mem_free(void);

#endif
