// SPDX-License-Identifier: Apache-2.0
/* Guest files over descriptors that the sandbox was given at its start (stdio). */
#ifndef SENTRY_FS_HOSTFD_HOSTFD_H
#define SENTRY_FS_HOSTFD_HOSTFD_H

struct file;

/* Starts the watcher. Once, before the seccomp filter; SIGPIPE is ignored from then on. */
void hostfd_init(void);

/*
 * A guest file over @hostfd, which it owns from now on (also on failure). @flags: O_* of the guest's
 * side (access mode, O_APPEND ...). Its O_NONBLOCK is the guest's own: the host description, which
 * others share, is never changed. err_ptr(-errno of fstat).
 */
struct file *hostfd_create_file(int hostfd, unsigned flags);

/*
 * Which one it is, for a saved state: descriptor number @slot of the sandbox's session number @group. A
 * session that comes back has descriptors of whoever brings it back.
 */
void hostfd_label(struct file *f, unsigned group, unsigned slot);
/*
 * Loading: asks for the descriptor that stands for @slot of @group in the new sandbox, which is taken over; -1:
 * there is none, and the guest's file becomes like /dev/null. Without a function there are none at all. To be
 * set before the load.
 */
typedef int (*hostfd_restore_fn)(unsigned group, unsigned slot);
void hostfd_set_restore(hostfd_restore_fn fn);

#endif
