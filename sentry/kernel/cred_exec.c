// SPDX-License-Identifier: Apache-2.0
/*
 * Credentials across execve(2): setuid and setgid files, file capabilities, the ambient set, AT_SECURE
 * (man 7 capabilities, "Transformation of capabilities during execve()").
 */
#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/err.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/loader/loader.h"
#include "sentry/vfs/vfs.h"

struct file_caps {
	capset_t permitted, inheritable;
	bool effective, present;
};

/* Contents of the security.capability attribute, all revisions. */
struct l_vfs_caps {
	uint32_t magic_etc;
	uint32_t data[4]; /* permitted, inheritable, permitted (high), inheritable (high) */
	uint32_t rootid;
};
_Static_assert(sizeof(struct l_vfs_caps) == 24, "vfs_ns_cap_data is 24 bytes");

/* The caps count only if @rootid is root of our user namespace or of one above. */
static bool root_owns_ns(const struct userns *ns, uid_t rootid)
{
	for (; ns; ns = ns->parent)
		if (userns_show_uid_strict(ns, rootid) == 0)
			return true;
	return false;
}

static void file_caps_read(struct inode *inode, const struct userns *ns,
			   struct file_caps *ret)
{
	struct l_vfs_caps v = { 0 };
	uid_t rootid = 0;
	ssize_t n;

	memset(ret, 0, sizeof(*ret));
	if (!inode->ops->getxattr)
		return;
	n = inode->ops->getxattr(inode, "security.capability", &v, sizeof(v));
	if (n < (ssize_t)sizeof(v.magic_etc))
		return;
	switch (v.magic_etc & VFS_CAP_REVISION_MASK) {
	case VFS_CAP_REVISION_1:
		if (n != XATTR_CAPS_SZ_1)
			return;
		v.data[2] = v.data[3] = 0;
		break;
	case VFS_CAP_REVISION_2:
		if (n != XATTR_CAPS_SZ_2)
			return;
		break;
	case VFS_CAP_REVISION_3:
		if (n != XATTR_CAPS_SZ_3)
			return;
		rootid = v.rootid;
		break;
	default:
		return;
	}
	if (!root_owns_ns(ns, rootid))
		return;
	ret->permitted = (v.data[0] | (capset_t)v.data[2] << 32) & CAP_FULL_SET;
	ret->inheritable = (v.data[1] | (capset_t)v.data[3] << 32) & CAP_FULL_SET;
	ret->effective = v.magic_etc & VFS_CAP_FLAGS_EFFECTIVE;
	ret->present = true;
}

static void apply_setid(struct cred *n, const struct inode *inode)
{
	uint32_t mode = READ_ONCE(inode->mode);

	if (userns_show_uid_strict(n->userns, inode->uid) == (uid_t)-1 ||
	    userns_show_gid_strict(n->userns, inode->gid) == (gid_t)-1)
		return;
	if (mode & S_ISUID)
		n->euid = inode->uid;
	if ((mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
		n->egid = inode->gid;
}

/* A tracer without CAP_SYS_PTRACE over us must not get hold of a program with more rights. */
static bool traced_by_unprivileged(struct task *t, const struct userns *ns)
{
	bool ret = false;
	struct cred *tc;
	AUTO_LOCK(&kernel.tasks_mu);

	if (t->tracer) {
		tc = task_cred_get(t->tracer);
		ret = !cred_capable_in(tc, ns, CAP_SYS_PTRACE);
		cred_put(tc);
	}
	return ret;
}

/* Permitted set of the new program, before ambient is added. -EPERM: a file wants capabilities that the
 * bounding set withholds, and isn't written to cope (its effective bit is set). */
static int new_permitted(struct cred *n, const struct cred *old,
			 const struct file_caps *fc, bool *effective)
{
	uid_t root = userns_map_uid(n->userns, 0);

	n->permitted = 0;
	*effective = fc->present && fc->effective;
	if (fc->present) {
		n->permitted = (n->bounding & fc->permitted) |
			       (n->inheritable & fc->inheritable);
		if ((fc->permitted & ~n->permitted) && *effective)
			return -EPERM;
	}
	if (n->securebits & SECBIT_NOROOT)
		return 0;
	/* A set-user-ID-root program with file capabilities gets only those. */
	if (fc->present && (fc->permitted | fc->inheritable) && n->euid == root &&
	    n->uid != root)
		return 0;
	if (n->euid == root || n->uid == root)
		n->permitted = old->bounding | old->inheritable;
	if (n->euid == root)
		*effective = true;
	return 0;
}

int exec_prepare_cred(struct task *t, struct file *f, struct cred **ret, bool *ret_secure)
{
	const struct cred *old = t->cred;
	struct cred *n = cred_dup(old);
	struct file_caps fc = { 0 };
	bool effective = false, setid, has_fcap, gained;
	bool suid_ok = f->path.mnt && !(mount_flags(f->path.mnt) & MS_NOSUID);
	uid_t root = userns_map_uid(n->userns, 0);
	int err;

	if (suid_ok) {
		file_caps_read(f->inode, n->userns, &fc);
		if (!t->no_new_privs)
			apply_setid(n, f->inode);
	}
	has_fcap = fc.present && (fc.permitted | fc.inheritable);
	err = new_permitted(n, old, &fc, &effective);
	if (err) {
		cred_put(n);
		return err;
	}
	setid = n->euid != old->uid || n->egid != old->gid;
	gained = n->permitted & ~old->permitted;
	if ((setid || gained) &&
	    (t->no_new_privs || traced_by_unprivileged(t, n->userns))) {
		if (t->no_new_privs || !cred_capable_in(old, n->userns, CAP_SETUID)) {
			n->euid = n->uid;
			n->egid = n->gid;
		}
		n->permitted &= old->permitted;
	}
	n->suid = n->fsuid = n->euid;
	n->sgid = n->fsgid = n->egid;
	if (has_fcap || setid)
		n->ambient = 0;
	n->permitted |= n->ambient;
	n->effective = effective ? n->permitted : n->ambient;
	n->securebits &= ~(uint32_t)SECBIT_KEEP_CAPS;
	*ret = n;
	*ret_secure = setid || (n->uid != root &&
				(effective || (n->permitted & ~n->ambient) != 0));
	return 0;
}
