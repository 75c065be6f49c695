// SPDX-License-Identifier: Apache-2.0
/* Namespaces of a task: an immutable-by-convention set that clone/unshare/setns replace as a whole. */
#ifndef SENTRY_KERNEL_NS_H
#define SENTRY_KERNEL_NS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/mutex.h"
#include "base/ref.h"

struct task;
struct mntns;
struct pidns;
struct ipcns;
struct netns;
struct cred;

#define UTS_LEN 65
struct utsns {
	struct ref ref;
	struct mutex mu;
	char nodename[UTS_LEN], domainname[UTS_LEN]; /* (m) */
	struct userns *userns;
	uint64_t inum;
};

#define USERNS_MAX_EXTENTS 340
struct id_extent {
	uint32_t first, lower_first, count;
};
struct id_map {
	unsigned n; /* 0: not written yet */
	struct id_extent *ext; /* lower ids are kernel ids (already translated) */
};

/* man 7 user_namespaces */
struct userns {
	struct ref ref;
	struct mutex mu;        /* maps: written once */
	struct userns *parent;  /* NULL: initial */
	int level;
	uid_t owner;            /* kuid of the creator */
	gid_t group;
	struct id_map uid_map, gid_map;
	bool setgroups_denied;
	uint64_t inum;
};

struct nsproxy {
	struct ref ref;
	struct utsns *uts;
	struct ipcns *ipc;
	struct mntns *mnt;
	struct pidns *pid_for_children;
	struct netns *net;
	struct cgroupns *cgroup; /* an identity only (kernel/nsproxy.c); NULL stands for the initial one */
};

struct cgroupns {
	struct ref ref;
	struct userns *userns;
	uint64_t inum;
};
struct cgroupns *cgroupns_create(struct userns *userns);
struct cgroupns *cgroupns_get(struct cgroupns *ns); /* NULL passes */
void cgroupns_put(struct cgroupns *ns);

/* A set for the first process: every reference is taken over; cgroup namespace initial. */
struct nsproxy *nsproxy_create(struct utsns *uts, struct ipcns *ipc, struct mntns *mnt,
			       struct pidns *pid, struct netns *net);

struct nsproxy *nsproxy_get(struct nsproxy *ns);
void nsproxy_put(struct nsproxy *ns);
/* A copy in which the namespaces named by CLONE_NEW* @flags are fresh. err_ptr on failure. */
struct nsproxy *nsproxy_copy(struct task *t, const struct nsproxy *old, uint64_t flags,
			     struct userns *userns);

struct utsns *utsns_create(const char *hostname, const char *domainname, struct userns *userns);
struct utsns *utsns_get(struct utsns *ns);
void utsns_put(struct utsns *ns);
struct userns *userns_get(struct userns *ns);
void userns_put(struct userns *ns);
extern struct userns init_userns;
/* unshare(2), clone(2): a child of @c's namespace owned by @c. err_ptr: -EPERM (ids not mapped),
 * -ENOSPC (too deep). */
struct userns *userns_create(const struct cred *c);
/* One from outside (a container's), owned by root, with its maps: extents are copied. */
struct userns *userns_create_mapped(const struct id_extent *uids, unsigned nuids,
				    const struct id_extent *gids, unsigned ngids);
/* Writes uid_map (@gid false) or gid_map of @ns with @opener's credentials; @text as the guest wrote it.
 * 0, -EINVAL, -EPERM. */
int userns_write_map(struct task *opener, struct userns *ns, bool gid, const char *text, size_t len);
/* "allow" or "deny" to /proc/PID/setgroups. */
int userns_write_setgroups(struct task *opener, struct userns *ns, const char *text, size_t len);
/* The same or an ancestor? */
bool userns_is_ancestor(const struct userns *anc, const struct userns *ns);
/* Ids with no bounds on the shown side: (uid_t)-1 when not mapped. */
uid_t userns_show_uid_strict(const struct userns *ns, uid_t kuid);
gid_t userns_show_gid_strict(const struct userns *ns, gid_t kgid);
bool userns_setgroups_allowed(struct userns *ns);

/* SysV IPC and POSIX mqueue ids live in one of these (kernel/sysv_*.c). */
struct ipcns *ipcns_create(struct userns *userns);
struct ipcns *ipcns_get(struct ipcns *ns);
void ipcns_put(struct ipcns *ns);

/* Network namespaces (socket/netns.c): abstract unix names, loopback, counters. */
struct netns *netns_create(struct userns *userns);
struct netns *netns_get(struct netns *ns);
void netns_put(struct netns *ns);

/* Of the namespaces whose structs are private to their owners: number and owning user namespace
 * (borrowed). Each is defined beside its namespace; kernel/nsfile.c lives without them (weak). */
uint64_t ipcns_inum(const struct ipcns *ns);
struct userns *ipcns_userns(const struct ipcns *ns);
uint64_t netns_inum(const struct netns *ns);
struct userns *netns_userns(const struct netns *ns);
struct userns *mntns_userns(const struct mntns *ns);

/* A fresh number for /proc/PID/ns. */
uint64_t ns_next_inum(void);
/* Saving and loading: the number that would be given out next. */
uint64_t ns_inum_next_is(void);
void ns_set_next_inum(uint64_t inum);

#endif
