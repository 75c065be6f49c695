// SPDX-License-Identifier: Apache-2.0
/*
 * The container's namespaces. All of them are the guest kernel's own, listed in the spec or not, since a
 * guest has nothing of the host to share; the host's network namespace that the spec names is the
 * sentry's (runtime/launch.c).
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

struct userns *container_userns(const struct boot *b)
{
	const struct spec *s = b->spec;

	/* A plain user's files have one owner, whatever the mapping is (see launch.c). */
	if (!s->nuid_map || !s->ngid_map || !json_is_true(json_object_get(b->json, "idmap")))
		return userns_get(&init_userns);
	AUTO_FREE struct id_extent *u = extents(s->uid_map, s->nuid_map);
	AUTO_FREE struct id_extent *g = extents(s->gid_map, s->ngid_map);

	return userns_create_mapped(u, s->nuid_map, g, s->ngid_map);
}

struct nsproxy *container_namespaces(struct container *c, struct mntns *mnt)
{
	const struct spec *s = c->boot->spec;
	const char *domain = s->domainname, *host = s->hostname;
	struct utsns *uts;

	if (!domain)
		domain = json_string_value(json_object_get(s->sysctl, "kernel.domainname"));
	/* Without a UTS namespace in the spec the name is the host's. */
	if (!host)
		host = json_string_value(json_object_get(c->boot->json, "nodename"));
	uts = utsns_create(host ? host : "holdfast", domain ? domain : "(none)", c->userns);
	return nsproxy_create(uts, ipcns_create(c->userns), mnt, pidns_get(kernel.init_pidns),
			      netns_create(c->userns));
}

uid_t container_kuid(const struct container *c, uid_t uid)
{
	return userns_map_uid(c->userns, uid);
}

gid_t container_kgid(const struct container *c, gid_t gid)
{
	return userns_map_gid(c->userns, gid);
}
