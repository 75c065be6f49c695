// SPDX-License-Identifier: Apache-2.0
/*
 * Namespaces as files: /proc/PID/ns/<name> (man 7 namespaces). procfs opens them with
 * ns_file_create(), setns(2) and ioctl NS_GET_* take them apart again with ns_file_get().
 */
#ifndef SENTRY_KERNEL_NSFILE_H
#define SENTRY_KERNEL_NSFILE_H

#include <stdbool.h>
#include <stdint.h>

struct file;
struct task;

enum ns_kind {
	NS_MNT,
	NS_UTS,
	NS_IPC,
	NS_PID,
	NS_PID_FOR_CHILDREN,
	NS_USER,
	NS_NET,
	NS_CGROUP,
	NS_KIND_COUNT
};

/* Word in the link's text ("pid" for pid_for_children, too): "pid:[4026531836]". */
const char *ns_kind_proper_name(enum ns_kind kind);

/* The namespace of @t (any task): a reference, NULL when it has exited. */
void *task_ns_ref(struct task *t, enum ns_kind kind);
void ns_ref_put(enum ns_kind kind, void *ns);
uint64_t ns_inum(enum ns_kind kind, const void *ns);

/* A file on @ns, whose st_ino is its number. Takes over the reference. err_ptr on failure. */
struct file *ns_file_create(enum ns_kind kind, void *ns);
/* False when @f isn't such a file. *ret_ns is borrowed from @f. */
bool ns_file_get(struct file *f, enum ns_kind *ret_kind, void **ret_ns);

#endif
