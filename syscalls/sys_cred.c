// SPDX-License-Identifier: Apache-2.0
/* Users, groups, capabilities: man 2 setuid, setresuid, setgroups, capget and their kin. */
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "syscalls/sys.h"

#define ID_NONE 0xffffffffu

static bool may_setuid(const struct cred *c)
{
	return cred_capable_in(c, c->userns, CAP_SETUID);
}

static bool may_setgid(const struct cred *c)
{
	return cred_capable_in(c, c->userns, CAP_SETGID);
}

long sys_getuid(struct task *t, const struct sysargs *a)
{
	(void)a;
	return (long)userns_show_uid(t->cred->userns, t->cred->uid);
}

long sys_geteuid(struct task *t, const struct sysargs *a)
{
	(void)a;
	return (long)userns_show_uid(t->cred->userns, t->cred->euid);
}

long sys_getgid(struct task *t, const struct sysargs *a)
{
	(void)a;
	return (long)userns_show_gid(t->cred->userns, t->cred->gid);
}

long sys_getegid(struct task *t, const struct sysargs *a)
{
	(void)a;
	return (long)userns_show_gid(t->cred->userns, t->cred->egid);
}

/* Installs @n, whose user ids have been changed: capabilities follow. */
static long commit_uid(struct task *t, struct cred *n)
{
	cred_fix_caps_after_uid(n, t->cred);
	cred_install(t, n);
	return 0;
}

long sys_setuid(struct task *t, const struct sysargs *a)
{
	const struct cred *o = t->cred;
	uid_t uid = userns_map_uid(o->userns, arg_u32(a, 0));
	struct cred *n;

	if (uid == ID_NONE)
		return -EINVAL;
	if (!may_setuid(o) && uid != o->uid && uid != o->suid)
		return -EPERM;
	n = cred_dup(o);
	if (may_setuid(o))
		n->uid = n->suid = uid;
	n->euid = n->fsuid = uid;
	return commit_uid(t, n);
}

long sys_setgid(struct task *t, const struct sysargs *a)
{
	const struct cred *o = t->cred;
	gid_t gid = userns_map_gid(o->userns, arg_u32(a, 0));
	struct cred *n;

	if (gid == ID_NONE)
		return -EINVAL;
	if (!may_setgid(o) && gid != o->gid && gid != o->sgid)
		return -EPERM;
	n = cred_dup(o);
	if (may_setgid(o))
		n->gid = n->sgid = gid;
	n->egid = n->fsgid = gid;
	cred_install(t, n);
	return 0;
}

/* An argument of -1 means "no change"; anything else must be mapped. */
static bool map_uid_arg(const struct cred *c, uint32_t arg, uid_t *ret)
{
	*ret = arg == ID_NONE ? ID_NONE : userns_map_uid(c->userns, arg);
	return arg == ID_NONE || *ret != ID_NONE;
}

static bool map_gid_arg(const struct cred *c, uint32_t arg, gid_t *ret)
{
	*ret = arg == ID_NONE ? ID_NONE : userns_map_gid(c->userns, arg);
	return arg == ID_NONE || *ret != ID_NONE;
}

long sys_setreuid(struct task *t, const struct sysargs *a)
{
	const struct cred *o = t->cred;
	struct cred *n;
	uid_t r, e;

	if (!map_uid_arg(o, arg_u32(a, 0), &r) || !map_uid_arg(o, arg_u32(a, 1), &e))
		return -EINVAL;
	if (!may_setuid(o)) {
		if (r != ID_NONE && r != o->uid && r != o->euid)
			return -EPERM;
		if (e != ID_NONE && e != o->uid && e != o->euid && e != o->suid)
			return -EPERM;
	}
	n = cred_dup(o);
	if (r != ID_NONE)
		n->uid = r;
	if (e != ID_NONE)
		n->euid = e;
	if (r != ID_NONE || (e != ID_NONE && e != o->uid))
		n->suid = n->euid;
	n->fsuid = n->euid;
	return commit_uid(t, n);
}

long sys_setregid(struct task *t, const struct sysargs *a)
{
	const struct cred *o = t->cred;
	struct cred *n;
	gid_t r, e;

	if (!map_gid_arg(o, arg_u32(a, 0), &r) || !map_gid_arg(o, arg_u32(a, 1), &e))
		return -EINVAL;
	if (!may_setgid(o)) {
		if (r != ID_NONE && r != o->gid && r != o->egid)
			return -EPERM;
		if (e != ID_NONE && e != o->gid && e != o->egid && e != o->sgid)
			return -EPERM;
	}
	n = cred_dup(o);
	if (r != ID_NONE)
		n->gid = r;
	if (e != ID_NONE)
		n->egid = e;
	if (r != ID_NONE || (e != ID_NONE && e != o->gid))
		n->sgid = n->egid;
	n->fsgid = n->egid;
	cred_install(t, n);
	return 0;
}

static bool one_of(uint32_t id, uint32_t a, uint32_t b, uint32_t c)
{
	return id == ID_NONE || id == a || id == b || id == c;
}

long sys_setresuid(struct task *t, const struct sysargs *a)
{
	const struct cred *o = t->cred;
	struct cred *n;
	uid_t r, e, s;

	if (!map_uid_arg(o, arg_u32(a, 0), &r) || !map_uid_arg(o, arg_u32(a, 1), &e) ||
	    !map_uid_arg(o, arg_u32(a, 2), &s))
		return -EINVAL;
	if (!may_setuid(o) && (!one_of(r, o->uid, o->euid, o->suid) ||
			       !one_of(e, o->uid, o->euid, o->suid) ||
			       !one_of(s, o->uid, o->euid, o->suid)))
		return -EPERM;
	n = cred_dup(o);
	if (r != ID_NONE)
		n->uid = r;
	if (e != ID_NONE)
		n->euid = e;
	if (s != ID_NONE)
		n->suid = s;
	n->fsuid = n->euid;
	return commit_uid(t, n);
}

long sys_setresgid(struct task *t, const struct sysargs *a)
{
	const struct cred *o = t->cred;
	struct cred *n;
	gid_t r, e, s;

	if (!map_gid_arg(o, arg_u32(a, 0), &r) || !map_gid_arg(o, arg_u32(a, 1), &e) ||
	    !map_gid_arg(o, arg_u32(a, 2), &s))
		return -EINVAL;
	if (!may_setgid(o) && (!one_of(r, o->gid, o->egid, o->sgid) ||
			       !one_of(e, o->gid, o->egid, o->sgid) ||
			       !one_of(s, o->gid, o->egid, o->sgid)))
		return -EPERM;
	n = cred_dup(o);
	if (r != ID_NONE)
		n->gid = r;
	if (e != ID_NONE)
		n->egid = e;
	if (s != ID_NONE)
		n->sgid = s;
	n->fsgid = n->egid;
	cred_install(t, n);
	return 0;
}

static long put3(struct task *t, const struct sysargs *a, const uint32_t v[3])
{
	for (int i = 0; i < 3; i++)
		if (copyout(t, arg_gaddr(a, i), &v[i], sizeof(v[i])))
			return -EFAULT;
	return 0;
}

long sys_getresuid(struct task *t, const struct sysargs *a)
{
	const struct cred *c = t->cred;
	uint32_t v[3] = { userns_show_uid(c->userns, c->uid),
			  userns_show_uid(c->userns, c->euid),
			  userns_show_uid(c->userns, c->suid) };

	return put3(t, a, v);
}

long sys_getresgid(struct task *t, const struct sysargs *a)
{
	const struct cred *c = t->cred;
	uint32_t v[3] = { userns_show_gid(c->userns, c->gid),
			  userns_show_gid(c->userns, c->egid),
			  userns_show_gid(c->userns, c->sgid) };

	return put3(t, a, v);
}

/* man 2 setfsuid: never fails, returns the old value. Leaving fsuid 0 drops the file capabilities. */
long sys_setfsuid(struct task *t, const struct sysargs *a)
{
	const capset_t fs_caps =
		CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_MKNOD) | CAP_BIT(CAP_DAC_OVERRIDE) |
		CAP_BIT(CAP_DAC_READ_SEARCH) | CAP_BIT(CAP_FOWNER) | CAP_BIT(CAP_FSETID) |
		CAP_BIT(CAP_LINUX_IMMUTABLE) | CAP_BIT(CAP_MAC_OVERRIDE);
	const struct cred *o = t->cred;
	uid_t uid = userns_map_uid(o->userns, arg_u32(a, 0));
	uid_t root = userns_map_uid(o->userns, 0);
	long old = (long)userns_show_uid(o->userns, o->fsuid);
	struct cred *n;

	if (uid == ID_NONE || uid == o->fsuid)
		return old;
	if (uid != o->uid && uid != o->euid && uid != o->suid && !may_setuid(o))
		return old;
	n = cred_dup(o);
	n->fsuid = uid;
	if (!(n->securebits & SECBIT_NO_SETUID_FIXUP)) {
		if (o->fsuid == root && uid != root)
			n->effective &= ~fs_caps;
		if (o->fsuid != root && uid == root)
			n->effective |= n->permitted & fs_caps;
	}
	cred_install(t, n);
	return old;
}

long sys_setfsgid(struct task *t, const struct sysargs *a)
{
	const struct cred *o = t->cred;
	gid_t gid = userns_map_gid(o->userns, arg_u32(a, 0));
	long old = (long)userns_show_gid(o->userns, o->fsgid);
	struct cred *n;

	if (gid == ID_NONE || gid == o->fsgid)
		return old;
	if (gid != o->gid && gid != o->egid && gid != o->sgid && !may_setgid(o))
		return old;
	n = cred_dup(o);
	n->fsgid = gid;
	cred_install(t, n);
	return old;
}

/* ---- supplementary groups ---- */

long sys_getgroups(struct task *t, const struct sysargs *a)
{
	const struct cred *c = t->cred;
	int size = arg_int(a, 0);

	if (size < 0)
		return -EINVAL;
	if (!size)
		return (long)c->ngroups;
	if (c->ngroups > (unsigned)size)
		return -EINVAL;
	for (unsigned i = 0; i < c->ngroups; i++) {
		gid_t g = userns_show_gid(c->userns, c->groups[i]);

		if (copyout_obj(t, gaddr_off(arg_gaddr(a, 1), i * sizeof(g)), &g))
			return -EFAULT;
	}
	return (long)c->ngroups;
}

static int gid_cmp(const void *x, const void *y)
{
	gid_t a = *(const gid_t *)x, b = *(const gid_t *)y;

	return a < b ? -1 : a > b;
}

long sys_setgroups(struct task *t, const struct sysargs *a)
{
	const struct cred *o = t->cred;
	unsigned n = arg_u32(a, 0);
	gid_t *g = NULL;
	struct cred *c;

	if (!may_setgid(o) || !userns_setgroups_allowed(o->userns))
		return -EPERM;
	if (n > NGROUPS_LIMIT)
		return -EINVAL;
	if (n) {
		g = kcalloc(n, sizeof(*g));
		if (copyin(t, g, arg_gaddr(a, 1), n * sizeof(*g))) {
			free(g);
			return -EFAULT;
		}
	}
	for (unsigned i = 0; i < n; i++) {
		g[i] = userns_map_gid(o->userns, g[i]);
		if (g[i] == ID_NONE) {
			free(g);
			return -EINVAL;
		}
	}
	if (n)
		qsort(g, n, sizeof(*g), gid_cmp);
	c = cred_dup(o);
	free(c->groups);
	c->groups = g;
	c->ngroups = n;
	cred_install(t, c);
	return 0;
}

/* ---- capabilities ---- */

struct l_cap_header {
	uint32_t version;
	int32_t pid;
};
struct l_cap_data {
	uint32_t effective, permitted, inheritable;
};

/* Number of struct l_cap_data for the version; 0 (and the right version written back) if unknown. */
static int cap_header(struct task *t, gaddr_t addr, struct l_cap_header *h,
		      unsigned *ret_words)
{
	uint32_t v3 = _LINUX_CAPABILITY_VERSION_3;

	if (copyin_obj(t, h, addr))
		return -EFAULT;
	switch (h->version) {
	case _LINUX_CAPABILITY_VERSION_1:
		*ret_words = 1;
		return 0;
	case _LINUX_CAPABILITY_VERSION_2:
	case _LINUX_CAPABILITY_VERSION_3:
		*ret_words = 2;
		return 0;
	default:
		return copyout_obj(t, addr, &v3) ? -EFAULT : -EINVAL;
	}
}

long sys_capget(struct task *t, const struct sysargs *a)
{
	struct l_cap_data d[2];
	struct l_cap_header h;
	struct task *target;
	struct cred *c;
	unsigned words;
	int err = cap_header(t, arg_gaddr(a, 0), &h, &words);

	/* A probe for the version passes no data and an unknown version. */
	if (gaddr_is_null(arg_gaddr(a, 1)))
		return err == -EINVAL ? 0 : err;
	if (err)
		return err;
	if (h.pid < 0)
		return -EINVAL;
	target = h.pid ? task_find(t, h.pid) : task_get(t);
	if (!target)
		return -ESRCH;
	c = task_cred_get(target);
	task_put(target);
	for (unsigned i = 0; i < 2; i++)
		d[i] = (struct l_cap_data){ (uint32_t)(c->effective >> (32 * i)),
					    (uint32_t)(c->permitted >> (32 * i)),
					    (uint32_t)(c->inheritable >> (32 * i)) };
	cred_put(c);
	return copyout(t, arg_gaddr(a, 1), d, words * sizeof(d[0]));
}

long sys_capset(struct task *t, const struct sysargs *a)
{
	const struct cred *o = t->cred;
	struct l_cap_data d[2] = { 0 };
	capset_t e = 0, p = 0, i = 0;
	struct l_cap_header h;
	unsigned words;
	struct cred *n;
	int err = cap_header(t, arg_gaddr(a, 0), &h, &words);

	if (err)
		return err;
	if (h.pid && h.pid != task_tid(t))
		return -EPERM;
	if (copyin(t, d, arg_gaddr(a, 1), words * sizeof(d[0])))
		return -EFAULT;
	for (unsigned k = 0; k < 2; k++) {
		e |= (capset_t)d[k].effective << (32 * k);
		p |= (capset_t)d[k].permitted << (32 * k);
		i |= (capset_t)d[k].inheritable << (32 * k);
	}
	e &= CAP_FULL_SET;
	p &= CAP_FULL_SET;
	i &= CAP_FULL_SET;
	/* man 2 capset: the rules for each set. */
	if (!cred_capable_in(o, o->userns, CAP_SETPCAP) &&
	    (i & ~(o->inheritable | o->permitted)))
		return -EPERM;
	if (i & ~(o->inheritable | o->bounding))
		return -EPERM;
	if (p & ~o->permitted)
		return -EPERM;
	if (e & ~p)
		return -EPERM;
	n = cred_dup(o);
	n->effective = e;
	n->permitted = p;
	n->inheritable = i;
	n->ambient &= p & i;
	cred_install(t, n);
	return 0;
}
