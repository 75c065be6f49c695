// SPDX-License-Identifier: Apache-2.0
/*
 * Credentials: immutable and reference counted; a change makes a copy and swaps the pointer, so a
 * reader needs no lock for its own and only a reference for another's (man 7 credentials, 7
 * capabilities). All ids are those of the initial user namespace ("kuid"); user namespaces translate at
 * the guest boundary.
 */
#ifndef SENTRY_KERNEL_CRED_H
#define SENTRY_KERNEL_CRED_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/ref.h"

struct task;
struct inode;
struct userns;

typedef uint64_t capset_t;
#define CAP_BIT(c) (1ULL << (c))
#define CAP_FULL_SET ((CAP_BIT(40) << 1) - 1) /* up to CAP_CHECKPOINT_RESTORE */
#define NGROUPS_LIMIT 65536

struct cred {
	struct ref ref;
	uid_t uid, euid, suid, fsuid;
	gid_t gid, egid, sgid, fsgid;
	unsigned ngroups;
	gid_t *groups; /* sorted */
	capset_t permitted, effective, inheritable, bounding, ambient;
	uint32_t securebits;
	struct userns *userns; /* reference */
};

struct cred *cred_get(struct cred *c);
void cred_put(struct cred *c);
DEFINE_AUTO(struct cred, cred_put)
/* A private copy to change and then cred_install(); cred_put() drops it unused. */
struct cred *cred_dup(const struct cred *c);
/* root with @caps in the initial user namespace. */
struct cred *cred_create_root(capset_t caps);

/* Credentials of the calling task: borrowed, valid until the task itself changes them. */
const struct cred *task_cred(const struct task *t);
/* Of any task: a reference. */
struct cred *task_cred_get(struct task *t);
/* Replaces the caller's own credentials (takes over the reference). */
void cred_install(struct task *t, struct cred *c);

bool cred_in_group(const struct cred *c, gid_t gid); /* fsgid or supplementary */
/* Does @c have @cap with respect to @ns (its owner or an ancestor)? */
bool cred_capable_in(const struct cred *c, const struct userns *ns, int cap);
/* In the initial user namespace. */
bool cred_capable(const struct cred *c, int cap);
bool task_capable(const struct task *t, int cap);
/* Over an inode: capable and the inode's ids are mapped in the caller's user namespace. */
bool cred_capable_inode(const struct cred *c, const struct inode *inode, int cap);

/* May the caller look into (@attach false) or control (true) @target? PTRACE_MODE_* of man 2 ptrace.
 * 0, -EPERM. */
int task_may_access(struct task *t, struct task *target, bool attach);

/* User namespaces: guest-visible ids of @ns to kernel ids and back; (uid_t)-1 when not mapped. */
uid_t userns_map_uid(const struct userns *ns, uid_t guest_uid);
gid_t userns_map_gid(const struct userns *ns, gid_t guest_gid);
uid_t userns_show_uid(const struct userns *ns, uid_t kuid); /* overflow id 65534 when unmapped */
gid_t userns_show_gid(const struct userns *ns, gid_t kgid);

#endif
