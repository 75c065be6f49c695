// SPDX-License-Identifier: Apache-2.0
/*
 * Credentials (man 7 credentials, 7 capabilities, 2 ptrace "access mode checking"). A struct cred never
 * changes once it is installed; the system calls in syscalls/sys_cred.c make a copy, change that, and
 * install it.
 */
#include "sentry/kernel/cred.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/err.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/mm/mm.h"
#include "sentry/vfs/vfs.h"

struct cred *cred_get(struct cred *c)
{
	ref_get(&c->ref);
	return c;
}

void cred_put(struct cred *c)
{
	if (!c || !ref_put(&c->ref))
		return;
	userns_put(c->userns);
	free(c->groups);
	free(c);
}

struct cred *cred_dup(const struct cred *c)
{
	struct cred *n = kzalloc(sizeof(*n));

	/* All but the count, which others change while we look. */
	memcpy((char *)n + sizeof(n->ref), (const char *)c + sizeof(c->ref),
	       sizeof(*n) - sizeof(n->ref));
	ref_init(&n->ref);
	userns_get(n->userns);
	n->groups = NULL;
	if (c->ngroups) {
		n->groups = kcalloc(c->ngroups, sizeof(gid_t));
		memcpy(n->groups, c->groups, c->ngroups * sizeof(gid_t));
	}
	return n;
}

/* Init-like: permitted, effective and bounding are @caps; nothing inheritable or ambient. */
struct cred *cred_create_root(capset_t caps)
{
	struct cred *c = kzalloc(sizeof(*c));

	ref_init(&c->ref);
	caps &= CAP_FULL_SET;
	c->permitted = caps;
	c->effective = caps;
	c->bounding = caps;
	c->userns = userns_get(&init_userns);
	return c;
}

const struct cred *task_cred(const struct task *t)
{
	return t->cred;
}

struct cred *task_cred_get(struct task *t)
{
	AUTO_LOCK(&t->mu);

	return cred_get(t->cred);
}

static bool ids_changed(const struct cred *a, const struct cred *b)
{
	return a->euid != b->euid || a->egid != b->egid || a->fsuid != b->fsuid ||
	       a->fsgid != b->fsgid;
}

/* Does @sub have no more power than @set? (cred_cap_issubset of Linux: a creator owns its children.) */
static bool caps_subset(const struct cred *set, const struct cred *sub)
{
	const struct userns *ns = sub->userns;

	if (set->userns == ns)
		return (sub->permitted & ~set->permitted) == 0;
	for (; ns->parent; ns = ns->parent)
		if (ns->parent == set->userns && ns->owner == set->euid)
			return true;
	return false;
}

/* Gained or changed identity makes the process undumpable and cancels the parent death signal
 * (man 2 prctl, PR_SET_DUMPABLE and PR_SET_PDEATHSIG). Context: no locks. */
void cred_install(struct task *t, struct cred *c)
{
	struct cred *old = t->cred;

	if (ids_changed(old, c) || !caps_subset(old, c)) {
		if (t->mm)
			mm_set_dumpable(t->mm, 0);
		t->pdeath_signal = 0;
	}
	mutex_lock(&t->mu);
	t->cred = c;
	mutex_unlock(&t->mu);
	t->answers = ANSWERS_STALE;
	cred_put(old);
}

static int gid_cmp(const void *a, const void *b)
{
	gid_t x = *(const gid_t *)a, y = *(const gid_t *)b;

	return x < y ? -1 : x > y;
}

bool cred_in_group(const struct cred *c, gid_t gid)
{
	if (c->fsgid == gid)
		return true;
	return c->ngroups && bsearch(&gid, c->groups, c->ngroups, sizeof(gid_t), gid_cmp);
}

/*
 * A capability in a namespace holds for all namespaces below it, and whoever created a namespace has all
 * capabilities in it while acting from its parent (man 7 user_namespaces).
 */
bool cred_capable_in(const struct cred *c, const struct userns *ns, int cap)
{
	for (; ns; ns = ns->parent) {
		if (ns == c->userns)
			return c->effective & CAP_BIT((unsigned)cap);
		if (ns->level <= c->userns->level)
			return false;
		if (ns->parent == c->userns && ns->owner == c->euid)
			return true;
	}
	return false;
}

bool cred_capable(const struct cred *c, int cap)
{
	return c->userns == &init_userns && (c->effective & CAP_BIT((unsigned)cap));
}

bool task_capable(const struct task *t, int cap)
{
	return cred_capable(t->cred, cap);
}

bool cred_capable_inode(const struct cred *c, const struct inode *inode, int cap)
{
	if (!(c->effective & CAP_BIT((unsigned)cap)))
		return false;
	if (c->userns == &init_userns)
		return true;
	return userns_show_uid_strict(c->userns, inode->uid) != (uid_t)-1 &&
	       userns_show_gid_strict(c->userns, inode->gid) != (gid_t)-1;
}

/* @attach: PTRACE_MODE_ATTACH_REALCREDS, else PTRACE_MODE_READ_FSCREDS. */
int task_may_access(struct task *t, struct task *target, bool attach)
{
	const struct cred *c = t->cred;
	struct cred *tc;
	struct mm *mm;
	uid_t uid = attach ? c->uid : c->fsuid;
	gid_t gid = attach ? c->gid : c->fsgid;
	capset_t caps = attach ? c->permitted : c->effective;
	bool cap, ok;

	if (t->tg == target->tg)
		return 0;
	tc = task_cred_get(target);
	cap = cred_capable_in(c, tc->userns, CAP_SYS_PTRACE);
	ok = cap || (uid == tc->euid && uid == tc->suid && uid == tc->uid &&
		     gid == tc->egid && gid == tc->sgid && gid == tc->gid);
	mm = task_mm_get(target);
	if (mm) {
		if (ok && !cap && mm_get_dumpable(mm) != 1)
			ok = false;
		mm_put(mm);
	}
	if (ok && !cap)
		ok = c->userns == tc->userns && (tc->permitted & ~caps) == 0;
	cred_put(tc);
	return ok ? 0 : -EPERM;
}

/*
 * What set*uid does to capabilities (man 7 capabilities, "Effect of user ID changes on capabilities"):
 * leaving root by all of uid, euid, suid drops permitted, effective and ambient (unless KEEPCAPS);
 * euid root -> other clears effective; other -> root sets it from permitted.
 */
void cred_fix_caps_after_uid(struct cred *new, const struct cred *old)
{
	uid_t root = userns_map_uid(new->userns, 0);
	bool was_root = old->uid == root || old->euid == root || old->suid == root;
	bool is_root = new->uid == root || new->euid == root || new->suid == root;

	if (new->securebits & SECBIT_NO_SETUID_FIXUP)
		return;
	if (was_root && !is_root) {
		if (!(new->securebits &SECBIT_KEEP_CAPS)) {
			new->permitted = 0;
			new->effective = 0;
		}
		new->ambient = 0;
	}
	if (old->euid == root && new->euid != root)
		new->effective = 0;
	if (old->euid != root && new->euid == root)
		new->effective = new->permitted;
}
