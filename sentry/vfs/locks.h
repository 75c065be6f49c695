// SPDX-License-Identifier: Apache-2.0
/*
 * File locks (man 2 flock, 2 fcntl): flock, POSIX record locks, open file description locks, and the
 * refusal of leases.
 */
#ifndef SENTRY_VFS_LOCKS_H
#define SENTRY_VFS_LOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct task;
struct file;
struct inode;
struct pidns;
struct seqbuf;

struct l_flock { /* guest's struct flock */
	int16_t l_type, l_whence;
	int32_t pad0;
	int64_t l_start, l_len;
	int32_t l_pid, pad1;
};
_Static_assert(sizeof(struct l_flock) == 32, "struct flock is 32 bytes");

/* flock(2); @op as the call has it. May sleep. */
long locks_flock(struct task *t, struct file *f, int op);
/* F_GETLK, F_OFD_GETLK: fills @fl. */
long locks_getlk(struct task *t, struct file *f, struct l_flock *fl, bool ofd);
/* F_SETLK, F_SETLKW and their OFD forms. May sleep when @wait. */
long locks_setlk(struct task *t, struct file *f, const struct l_flock *fl, bool ofd, bool wait);
/* F_SETLEASE. Leases are refused: nobody could be told of an open by the host. */
long locks_setlease(struct task *t, struct file *f, int arg);
/* /proc/locks. */
void locks_show(struct seqbuf *out, struct pidns *ns);
void locks_inode_fini(struct inode *inode);
void locks_init(void);

#endif
