// SPDX-License-Identifier: Apache-2.0
/*
 * Saving and loading namespaces (user, UTS, cgroup, pid), sets of them, pids, and credentials.
 *
 * The initial user and pid namespace exist before a load. Of each kind the first object of an image is the
 * initial one, since the kernel's record (kernel_state.c) names it first and is the first itself; that it
 * came out so is checked there.
 */
#include <string.h>

#include "base/alloc.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/kernel_state.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"
#include "sentry/state/state.h"

/* ---- user namespaces ---- */

static bool have_init_userns, have_init_pidns;

static void *userns_alloc(struct state *s)
{
	struct userns *ns;

	(void)s;
	if (!have_init_userns) {
		have_init_userns = true;
		return userns_get(&init_userns);
	}
	ns = kzalloc(sizeof(*ns));
	ref_init(&ns->ref);
	mutex_init(&ns->mu, RANK_NS);
	return ns;
}

static void id_map_fields(struct state *s, struct id_map *m)
{
	uint32_t n = state_count(s, m->n, USERNS_MAX_EXTENTS);

	if (state_loading(s)) {
		m->n = n;
		m->ext = n ? kcalloc(n, sizeof(*m->ext)) : NULL;
	}
	for (uint32_t i = 0; i < n; i++) {
		struct id_extent *e = &m->ext[i];

		state_u32(s, &e->first);
		state_u32(s, &e->lower_first);
		state_u32(s, &e->count);
		if (e->count > UINT32_MAX - e->first || e->count > UINT32_MAX - e->lower_first)
			state_fail(s, "a map of ids that wraps around");
	}
}

static void userns_fields(struct state *s, void *obj)
{
	struct userns *ns = obj;
	int64_t level = ns->level;

	state_ref(s, &state_userns, &ns->parent);
	state_range_i64(s, &level, 0, 64);
	ns->level = (int)level;
	state_u32(s, &ns->owner);
	state_u32(s, &ns->group);
	id_map_fields(s, &ns->uid_map);
	id_map_fields(s, &ns->gid_map);
	state_bool(s, &ns->setgroups_denied);
	state_u64(s, &ns->inum);
}

/* A level that is one more than the parent's also rules out circles. */
static void userns_finish(struct state *s, void *obj)
{
	struct userns *ns = obj;

	if (ns->level != (ns->parent ? ns->parent->level + 1 : 0) ||
	    (ns == &init_userns) != !ns->parent)
		state_fail(s, "user namespaces that aren't a tree");
}

static void *userns_get_obj(void *obj)
{
	return userns_get(obj);
}

static void userns_put_obj(void *obj)
{
	userns_put(obj);
}

const struct state_type state_userns = {
	.id = STATE_USERNS,
	.version = 1,
	.name = "user namespace",
	.alloc = userns_alloc,
	.fields = userns_fields,
	.finish = userns_finish,
	.get = userns_get_obj,
	.put = userns_put_obj,
};

/* ---- UTS ---- */

static void *uts_alloc(struct state *s)
{
	struct utsns *ns = kzalloc(sizeof(*ns));

	(void)s;
	ref_init(&ns->ref);
	mutex_init(&ns->mu, RANK_NS);
	return ns;
}

static void uts_fields(struct state *s, void *obj)
{
	struct utsns *ns = obj;

	state_str(s, ns->nodename, sizeof(ns->nodename));
	state_str(s, ns->domainname, sizeof(ns->domainname));
	state_ref(s, &state_userns, &ns->userns);
	state_u64(s, &ns->inum);
}

static void uts_finish(struct state *s, void *obj)
{
	struct utsns *ns = obj;

	if (!ns->userns)
		state_fail(s, "no owner");
}

static void *uts_get(void *obj)
{
	return utsns_get(obj);
}

static void uts_put(void *obj)
{
	utsns_put(obj);
}

const struct state_type state_utsns = {
	.id = STATE_UTSNS,
	.version = 1,
	.name = "UTS namespace",
	.alloc = uts_alloc,
	.fields = uts_fields,
	.finish = uts_finish,
	.get = uts_get,
	.put = uts_put,
};

/* ---- cgroup namespaces: an identity ---- */

static void *cgroupns_alloc(struct state *s)
{
	struct cgroupns *ns = kzalloc(sizeof(*ns));

	(void)s;
	ref_init(&ns->ref);
	return ns;
}

static void cgroupns_fields(struct state *s, void *obj)
{
	struct cgroupns *ns = obj;

	state_ref(s, &state_userns, &ns->userns);
	state_u64(s, &ns->inum);
}

static void cgroupns_finish(struct state *s, void *obj)
{
	struct cgroupns *ns = obj;

	if (!ns->userns)
		state_fail(s, "no owner");
}

static void *cgroupns_get_obj(void *obj)
{
	return cgroupns_get(obj);
}

static void cgroupns_put_obj(void *obj)
{
	cgroupns_put(obj);
}

const struct state_type state_cgroupns = {
	.id = STATE_CGROUPNS,
	.version = 1,
	.name = "cgroup namespace",
	.alloc = cgroupns_alloc,
	.fields = cgroupns_fields,
	.finish = cgroupns_finish,
	.get = cgroupns_get_obj,
	.put = cgroupns_put_obj,
};

/* ---- sets ---- */

static void *nsproxy_alloc(struct state *s)
{
	struct nsproxy *ns = kzalloc(sizeof(*ns));

	(void)s;
	ref_init(&ns->ref);
	return ns;
}

static void nsproxy_fields(struct state *s, void *obj)
{
	struct nsproxy *ns = obj;

	state_ref(s, &state_utsns, &ns->uts);
	state_ref(s, &state_ipcns, &ns->ipc);
	state_ref(s, &state_mntns, &ns->mnt);
	state_ref(s, &state_pidns, &ns->pid_for_children);
	state_ref(s, &state_netns, &ns->net);
	state_ref(s, &state_cgroupns, &ns->cgroup);
}

static void nsproxy_finish(struct state *s, void *obj)
{
	struct nsproxy *ns = obj;

	if (!ns->uts || !ns->ipc || !ns->mnt || !ns->pid_for_children || !ns->net)
		state_fail(s, "a namespace is missing");
}

static void *nsproxy_get_obj(void *obj)
{
	return nsproxy_get(obj);
}

static void nsproxy_put_obj(void *obj)
{
	nsproxy_put(obj);
}

const struct state_type state_nsproxy = {
	.id = STATE_NSPROXY,
	.version = 1,
	.name = "set of namespaces",
	.alloc = nsproxy_alloc,
	.fields = nsproxy_fields,
	.finish = nsproxy_finish,
	.get = nsproxy_get_obj,
	.put = nsproxy_put_obj,
};

/* ---- pid namespaces; who is in them comes with the pids and tasks ---- */

static void *pidns_alloc(struct state *s)
{
	(void)s;
	if (!have_init_pidns) {
		have_init_pidns = true;
		return pidns_get(kernel.init_pidns);
	}
	return pidns_create_empty();
}

static void pidns_fields(struct state *s, void *obj)
{
	struct pidns *ns = obj;
	int64_t level = ns->level, last = ns->last;

	state_ref(s, &state_pidns, &ns->parent);
	if (state_loading(s)) {
		userns_put(ns->userns); /* the initial one has one already */
		ns->userns = NULL;
	}
	state_ref(s, &state_userns, &ns->userns);
	state_range_i64(s, &level, 0, PIDNS_MAX_LEVEL);
	state_range_i64(s, &last, 0, PID_MAX_DEFAULT);
	ns->level = (int)level;
	ns->last = (pid_t)last;
	state_ptr(s, &state_task, &ns->init);
	state_bool(s, &ns->dead);
	state_u64(s, &ns->inum);
}

static void pidns_finish(struct state *s, void *obj)
{
	struct pidns *ns = obj;

	if (ns->level != (ns->parent ? ns->parent->level + 1 : 0) ||
	    (ns == kernel.init_pidns) != !ns->parent || !ns->userns)
		state_fail(s, "pid namespaces that aren't a tree");
}

static void *pidns_get_obj(void *obj)
{
	return pidns_get(obj);
}

static void pidns_put_obj(void *obj)
{
	pidns_put(obj);
}

const struct state_type state_pidns = {
	.id = STATE_PIDNS,
	.version = 1,
	.name = "pid namespace",
	.alloc = pidns_alloc,
	.fields = pidns_fields,
	.finish = pidns_finish,
	.get = pidns_get_obj,
	.put = pidns_put_obj,
};

/* ---- pids; their uses come with the tasks ---- */

static void *pid_alloc_obj(struct state *s)
{
	(void)s;
	return pid_create_empty(PIDNS_MAX_LEVEL);
}

static void pid_fields(struct state *s, void *obj)
{
	struct pid *p = obj;
	int64_t level = p->level;

	state_ref(s, &state_pidns, &p->ns);
	state_range_i64(s, &level, 0, PIDNS_MAX_LEVEL);
	p->level = (int)level;
	for (int l = 0; l <= p->level; l++) {
		int64_t nr = p->nr[l];

		state_range_i64(s, &nr, 1, PID_MAX_DEFAULT - 1);
		p->nr[l] = (pid_t)nr;
	}
}

static void pid_finish(struct state *s, void *obj)
{
	if (pid_insert_loaded(obj))
		state_fail(s, "a number twice, or not of its namespace");
}

static void *pid_get_obj(void *obj)
{
	return pid_get(obj);
}

static void pid_put_obj(void *obj)
{
	pid_put(obj);
}

const struct state_type state_pid = {
	.id = STATE_PID,
	.version = 1,
	.name = "pid",
	.alloc = pid_alloc_obj,
	.fields = pid_fields,
	.finish = pid_finish,
	.get = pid_get_obj,
	.put = pid_put_obj,
};

/* ---- credentials ---- */

static void *cred_alloc(struct state *s)
{
	struct cred *c = kzalloc(sizeof(*c));

	(void)s;
	ref_init(&c->ref);
	return c;
}

static void groups_fields(struct state *s, struct cred *c)
{
	uint32_t n = state_count(s, c->ngroups, NGROUPS_LIMIT);

	if (state_loading(s)) {
		c->ngroups = n;
		c->groups = n ? kcalloc(n, sizeof(gid_t)) : NULL;
	}
	for (uint32_t i = 0; i < n; i++) {
		state_u32(s, &c->groups[i]);
		if (i && c->groups[i] < c->groups[i - 1])
			state_fail(s, "groups that aren't sorted");
	}
}

static void cred_fields(struct state *s, void *obj)
{
	struct cred *c = obj;
	uid_t *uids[] = { &c->uid, &c->euid, &c->suid, &c->fsuid };
	gid_t *gids[] = { &c->gid, &c->egid, &c->sgid, &c->fsgid };
	capset_t *caps[] = { &c->permitted, &c->effective, &c->inheritable, &c->bounding,
			     &c->ambient };

	for (unsigned i = 0; i < ARRAY_SIZE(uids); i++) {
		state_u32(s, uids[i]);
		state_u32(s, gids[i]);
	}
	groups_fields(s, c);
	for (unsigned i = 0; i < ARRAY_SIZE(caps); i++) {
		state_u64(s, caps[i]);
		if (*caps[i] & ~CAP_FULL_SET)
			state_fail(s, "a capability that doesn't exist");
	}
	state_u32(s, &c->securebits);
	state_ref(s, &state_userns, &c->userns);
}

static void cred_finish(struct state *s, void *obj)
{
	struct cred *c = obj;

	if (!c->userns || (c->effective & ~c->permitted))
		state_fail(s, "credentials that can't be");
}

static void *cred_get_obj(void *obj)
{
	return cred_get(obj);
}

static void cred_put_obj(void *obj)
{
	cred_put(obj);
}

const struct state_type state_cred = {
	.id = STATE_CRED,
	.version = 1,
	.name = "credentials",
	.alloc = cred_alloc,
	.fields = cred_fields,
	.finish = cred_finish,
	.get = cred_get_obj,
	.put = cred_put_obj,
};
