// SPDX-License-Identifier: Apache-2.0
/*
 * The container's namespaces. All of them are the guest kernel's own, listed in the spec or not, since a
 * guest has nothing of the host to share; the host's network namespace that the spec names is the
 * sentry's (runtime/launch.c). Containers of a pod share the guest kernel's: what their spec doesn't want new is
 * their sandbox's.
 *
 * With uidMappings the first process is in a user namespace of the guest, and the sentry's initial ids
 * ("kuids") are the host's: files below the rootfs belong on the host to whom the mapping says.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "runtime/container.h"
#include "sentry/kernel/kernel.h"
#include "sentry/kernel/ns.h"

static struct id_extent *extents(const struct spec_id_map *m, unsigned n)
{
	struct id_extent *e = kcalloc(n + 1, sizeof(*e));

	for (unsigned i = 0; i < n; i++)
		e[i] = (struct id_extent){ m[i].container, m[i].host, m[i].size };
	return e;
}

struct userns *container_userns(const struct container *c)
{
	const struct boot *b = c->boot;
	const struct spec *s = b->spec;

	if (c->sandbox && s->namespaces[NAMESPACE_USER].path)
		return userns_get(c->sandbox->userns);
	/* A plain user's files have one owner, whatever the mapping is (see launch.c). */
	if (!s->nuid_map || !s->ngid_map || !json_is_true(json_object_get(b->json, "idmap")))
		return userns_get(&init_userns);
	AUTO_FREE struct id_extent *u = extents(s->uid_map, s->nuid_map);
	AUTO_FREE struct id_extent *g = extents(s->gid_map, s->ngid_map);

	return userns_create_mapped(u, s->nuid_map, g, s->ngid_map);
}

/* Of a container that joins a sandbox: those that its spec wants new; all others are the sandbox's. */
static bool is_new(const struct container *c, enum spec_namespace_kind kind)
{
	const struct spec_namespace *n = &c->boot->spec->namespaces[kind];

	return !c->sandbox || (n->listed && !n->path);
}

static struct utsns *make_uts(const struct container *c)
{
	const struct spec *s = c->boot->spec;
	const char *domain = s->domainname, *host = s->hostname;

	if (!domain)
		domain = json_string_value(json_object_get(s->sysctl, "kernel.domainname"));
	/* Without a UTS namespace in the spec the name is the host's. */
	if (!host)
		host = json_string_value(json_object_get(c->boot->json, "nodename"));
	return utsns_create(host ? host : "holdfast", domain ? domain : "(none)", c->userns);
}

/* That of another container of the pod: the one that the launcher has found behind the spec's path. */
static struct pidns *join_pidns(struct container *c)
{
	const char *of = json_string_value(json_object_get(c->boot->json, "pidns"));
	struct container *m;
	AUTO_LOCK(&c->sandbox->mu);

	list_for_each(m, &c->sandbox->members, member)
		if (of && m->init && !strcmp(m->boot->id, of))
			return pidns_get(m->ns->pid_for_children);
	return pidns_get(c->sandbox->ns->pid_for_children);
}

/* The first container has the sentry's own, so that its end is everybody's and it sees everybody. */
static struct pidns *make_pidns(struct container *c)
{
	if (!c->sandbox)
		return pidns_get(kernel.init_pidns);
	c->shares_pidns = !is_new(c, NAMESPACE_PID);
	return c->shares_pidns ? join_pidns(c) : pidns_create(kernel.init_pidns, c->userns);
}

struct nsproxy *container_namespaces(struct container *c, struct mntns *mnt)
{
	const struct nsproxy *pod = c->sandbox ? c->sandbox->ns : NULL;
	struct utsns *uts = is_new(c, NAMESPACE_UTS) ? make_uts(c) : utsns_get(pod->uts);
	struct ipcns *ipc = is_new(c, NAMESPACE_IPC) ? ipcns_create(c->userns) : ipcns_get(pod->ipc);
	struct netns *net = is_new(c, NAMESPACE_NET) ? netns_create(c->userns) : netns_get(pod->net);
	struct nsproxy *ns = nsproxy_create(uts, ipc, mnt, make_pidns(c), net);

	if (pod)
		ns->cgroup = is_new(c, NAMESPACE_CGROUP) ? cgroupns_create(c->userns) :
							   cgroupns_get(pod->cgroup);
	return ns;
}

uid_t container_kuid(const struct container *c, uid_t uid)
{
	return userns_map_uid(c->userns, uid);
}

gid_t container_kgid(const struct container *c, gid_t gid)
{
	return userns_map_gid(c->userns, gid);
}
