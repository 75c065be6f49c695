// SPDX-License-Identifier: Apache-2.0
/*
 * User namespaces (man 7 user_namespaces): id maps, their writing, translation.
 *
 * All ids inside the sentry are those of the initial namespace. A map's lower ids are translated through
 * the parent's map when it is written, so that translation is one step, whatever the depth.
 *
 * Maps are written once: the extents are filled in before map.n becomes nonzero (release), so readers
 * need no lock. Writers take ns->mu (RANK_NS).
 */
#include <ctype.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "sentry/kernel/ns.h"
#include "sentry/kernel/process.h"

#define USERNS_MAX_LEVEL 33
#define OVERFLOW_ID      65534u
#define ID_NONE          0xffffffffu

struct userns init_userns = {
	.ref = { 1 }, .inum = 0xEFFFFFFDu, /* PROC_USER_INIT_INO */
};

struct userns *userns_get(struct userns *ns)
{
	ref_get(&ns->ref);
	return ns;
}

void userns_put(struct userns *ns)
{
	while (ns && ref_put(&ns->ref)) {
		struct userns *parent = ns->parent;

		free(ns->uid_map.ext);
		free(ns->gid_map.ext);
		mutex_fini(&ns->mu);
		free(ns);
		ns = parent;
	}
}

static unsigned map_len(const struct id_map *m)
{
	return __atomic_load_n(&m->n, __ATOMIC_ACQUIRE);
}

static uint32_t map_down(const struct userns *ns, const struct id_map *m, uint32_t id)
{
	unsigned n = map_len(m);

	if (!ns->parent)
		return id;
	for (unsigned i = 0; i < n; i++)
		if (id >= m->ext[i].first && id - m->ext[i].first < m->ext[i].count)
			return m->ext[i].lower_first + (id - m->ext[i].first);
	return ID_NONE;
}

static uint32_t map_up(const struct userns *ns, const struct id_map *m, uint32_t kid)
{
	unsigned n = map_len(m);

	if (!ns->parent)
		return kid;
	for (unsigned i = 0; i < n; i++)
		if (kid >= m->ext[i].lower_first &&
		    kid - m->ext[i].lower_first < m->ext[i].count)
			return m->ext[i].first + (kid - m->ext[i].lower_first);
	return ID_NONE;
}

uid_t userns_map_uid(const struct userns *ns, uid_t guest_uid)
{
	return map_down(ns, &ns->uid_map, guest_uid);
}

gid_t userns_map_gid(const struct userns *ns, gid_t guest_gid)
{
	return map_down(ns, &ns->gid_map, guest_gid);
}

uid_t userns_show_uid_strict(const struct userns *ns, uid_t kuid)
{
	return map_up(ns, &ns->uid_map, kuid);
}

gid_t userns_show_gid_strict(const struct userns *ns, gid_t kgid)
{
	return map_up(ns, &ns->gid_map, kgid);
}

uid_t userns_show_uid(const struct userns *ns, uid_t kuid)
{
	uint32_t id = map_up(ns, &ns->uid_map, kuid);

	return id == ID_NONE ? OVERFLOW_ID : id;
}

gid_t userns_show_gid(const struct userns *ns, gid_t kgid)
{
	uint32_t id = map_up(ns, &ns->gid_map, kgid);

	return id == ID_NONE ? OVERFLOW_ID : id;
}

bool userns_is_ancestor(const struct userns *anc, const struct userns *ns)
{
	for (; ns; ns = ns->parent)
		if (ns == anc)
			return true;
	return false;
}

bool userns_setgroups_allowed(struct userns *ns)
{
	AUTO_LOCK(&ns->mu);

	return !ns->parent || (ns->gid_map.n != 0 && !ns->setgroups_denied);
}

struct userns *userns_create(const struct cred *c)
{
	struct userns *parent = c->userns, *ns;

	if (parent->level + 1 >= USERNS_MAX_LEVEL)
		return err_ptr(-ENOSPC);
	/* The creator must be somebody in its own namespace. */
	if (userns_show_uid_strict(parent, c->euid) == ID_NONE ||
	    userns_show_gid_strict(parent, c->egid) == ID_NONE)
		return err_ptr(-EPERM);
	ns = kzalloc(sizeof(*ns));
	ref_init(&ns->ref);
	mutex_init(&ns->mu, RANK_NS);
	ns->parent = userns_get(parent);
	ns->level = parent->level + 1;
	ns->owner = c->euid;
	ns->group = c->egid;
	mutex_lock(&parent->mu);
	ns->setgroups_denied = parent->setgroups_denied;
	mutex_unlock(&parent->mu);
	ns->inum = ns_next_inum();
	return ns;
}

static void set_map(struct id_map *m, const struct id_extent *ext, unsigned n)
{
	m->ext = kcalloc(n, sizeof(*ext));
	memcpy(m->ext, ext, n * sizeof(*ext));
	m->n = n;
}

struct userns *userns_create_mapped(const struct id_extent *uids, unsigned nuids,
				    const struct id_extent *gids, unsigned ngids)
{
	struct userns *ns = kzalloc(sizeof(*ns));

	ref_init(&ns->ref);
	mutex_init(&ns->mu, RANK_NS);
	ns->parent = userns_get(&init_userns);
	ns->level = 1;
	set_map(&ns->uid_map, uids, nuids);
	set_map(&ns->gid_map, gids, ngids);
	ns->inum = ns_next_inum();
	return ns;
}

/* ---- writing maps ---- */

static bool ranges_overlap(uint32_t a, uint32_t na, uint32_t b, uint32_t nb)
{
	return a <= b + (nb - 1) && b <= a + (na - 1);
}

/* "first lower count" lines. The number of extents or -EINVAL. */
static int parse_map(char *text, struct id_extent *ext)
{
	unsigned n = 0;
	char *line, *save = NULL;

	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		uint32_t v[3];
		char *p = line;

		if (n == USERNS_MAX_EXTENTS)
			return -EINVAL;
		for (int i = 0; i < 3; i++) {
			unsigned long x;
			char *end;

			while (*p == ' ' || *p == '\t')
				p++;
			if (!isdigit((unsigned char)*p))
				return -EINVAL;
			x = strtoul(p, &end, 10);
			if (x > UINT32_MAX || (*end && !isspace((unsigned char)*end)))
				return -EINVAL;
			v[i] = (uint32_t)x;
			p = end;
		}
		while (isspace((unsigned char)*p))
			p++;
		if (*p || v[0] == ID_NONE || v[1] == ID_NONE || !v[2] ||
		    v[0] + v[2] <= v[0] || v[1] + v[2] <= v[1])
			return -EINVAL;
		for (unsigned i = 0; i < n; i++)
			if (ranges_overlap(ext[i].first, ext[i].count, v[0], v[2]) ||
			    ranges_overlap(ext[i].lower_first, ext[i].count, v[1], v[2]))
				return -EINVAL;
		ext[n++] = (struct id_extent){ v[0], v[1], v[2] };
	}
	return n ? (int)n : -EINVAL;
}

/* May @c write this map? (man 7 user_namespaces, "Defining user and group ID mappings".) */
static bool map_permitted(const struct cred *c, const struct userns *ns, bool gid,
			  const struct id_extent *ext, int n)
{
	int cap = gid ? CAP_SETGID : CAP_SETUID;

	if (n == 1 && ext[0].count == 1 && ns->owner == c->euid) {
		/* An unprivileged creator may map exactly itself. */
		if (!gid && userns_map_uid(ns->parent, ext[0].lower_first) == c->euid)
			return true;
		if (gid && ns->setgroups_denied &&
		    userns_map_gid(ns->parent, ext[0].lower_first) == c->egid)
			return true;
	}
	return cred_capable_in(c, ns->parent, cap);
}

/* Lower ids to kernel ids: each extent must lie in one extent of the parent. */
static bool translate_lower(const struct userns *parent, const struct id_map *pm,
			    struct id_extent *ext, int n)
{
	for (int i = 0; i < n; i++) {
		uint32_t first = map_down(parent, pm, ext[i].lower_first);
		uint32_t last =
			map_down(parent, pm, ext[i].lower_first + (ext[i].count - 1));

		if (first == ID_NONE || last == ID_NONE ||
		    last - first != ext[i].count - 1)
			return false;
		ext[i].lower_first = first;
	}
	return true;
}

int userns_write_map(struct task *opener, struct userns *ns, bool gid, const char *text,
		     size_t len)
{
	struct id_extent *ext;
	const struct cred *c = opener->cred;
	struct id_map *m = gid ? &ns->gid_map : &ns->uid_map;
	char *copy;
	int n, ret;

	if (!ns->parent)
		return -EPERM;
	if (c->userns != ns && c->userns != ns->parent)
		return -EPERM;
	if (len >= 4096)
		return -EINVAL;
	copy = kstrndup(text, len);
	ext = kcalloc(USERNS_MAX_EXTENTS, sizeof(*ext));
	mutex_lock(&ns->mu);
	ret = -EPERM;
	if (m->n || !cred_capable_in(c, ns, CAP_SYS_ADMIN))
		goto out;
	n = parse_map(copy, ext);
	ret = n;
	if (n < 0)
		goto out;
	ret = -EPERM;
	if (!map_permitted(c, ns, gid, ext, n) ||
	    !translate_lower(ns->parent,
			     gid ? &ns->parent->gid_map : &ns->parent->uid_map, ext, n))
		goto out;
	m->ext = steal_ptr(&ext);
	__atomic_store_n(&m->n, (unsigned)n, __ATOMIC_RELEASE);
	ret = 0;
out:
	mutex_unlock(&ns->mu);
	free(ext);
	free(copy);
	return ret;
}

int userns_write_setgroups(struct task *opener, struct userns *ns, const char *text,
			   size_t len)
{
	bool deny;

	while (len && isspace((unsigned char)text[len - 1]))
		len--;
	if (len == 4 && memcmp(text, "deny", 4) == 0)
		deny = true;
	else if (len == 5 && memcmp(text, "allow", 5) == 0)
		deny = false;
	else
		return -EINVAL;
	if (!cred_capable_in(opener->cred, ns, CAP_SYS_ADMIN))
		return -EPERM;

	AUTO_LOCK(&ns->mu);
	/* Denying is possible only before the gid map exists; allowing never again after a denial. */
	if (deny ? (ns->gid_map.n || !ns->parent) : ns->setgroups_denied)
		return -EPERM;
	ns->setgroups_denied = deny;
	return 0;
}
