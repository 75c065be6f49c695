// SPDX-License-Identifier: Apache-2.0
/*
 * Bind mounts. Each is a file system over an attach point of a gofer, with the inodes that the sentry knows of it. What the
 * kernel keeps with an inode (a bound socket, a FIFO's pipe, locks, futexes, watches) is found only by who has
 * the same one. So containers of a pod that bind the same directory share one file system: the first that binds it
 * for writing brings it, with a gofer that outlives the container for as long as others use it.
 *
 * Left out: who had bound it read-only before. Such a gofer may not write, and nobody is given one that may for a
 * mount that may not.
 */
#include <errno.h>
#include <sys/mount.h>

#include "base/alloc.h"
#include "base/err.h"
#include "runtime/container.h"
#include "runtime/pod.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/fs/gofer/gofer.h"

struct bind {
	struct list node;
	struct super *sb; /* reference */
	uint64_t dev, ino; /* of its root, on the host */
};

static struct container *pod_of(struct container *c)
{
	return c->sandbox ? c->sandbox : c;
}

static struct super *find_in(const struct container *c, const struct gofer_attr *root)
{
	struct bind *b;

	list_for_each(b, &c->binds, node)
		if (b->dev == root->dev && b->ino == root->ino)
			return super_get(b->sb);
	return NULL;
}

/* A reference, or NULL. */
static struct super *find_shared(struct container *c, const struct gofer_attr *root)
{
	struct container *pod = pod_of(c), *m;
	struct super *sb;
	AUTO_LOCK(&pod->mu);

	sb = find_in(pod, root);
	list_for_each(m, &pod->members, member)
		if (!sb)
			sb = find_in(m, root);
	return sb;
}

static void remember(struct container *c, struct super *sb, const struct gofer_attr *root)
{
	struct bind *b = kzalloc(sizeof(*b));
	AUTO_LOCK(&pod_of(c)->mu);

	*b = (struct bind){ .sb = super_get(sb), .dev = root->dev, .ino = root->ino };
	list_add_tail(&c->binds, &b->node);
}

/* What the launcher says of mount @index, or NULL. */
static const json_t *find_attach(const struct container *c, unsigned index)
{
	const json_t *o;
	size_t i;

	json_array_foreach(json_object_get(c->boot->json, "attach"), i, o)
		if (json_integer_value(json_object_get(o, "mount")) == (json_int_t)index)
			return o;
	return NULL;
}

struct super *container_bind_super(struct container *c, unsigned index, bool readonly, bool *ret_file)
{
	const struct spec *s = c->boot->spec;
	const json_t *o = find_attach(c, index);
	bool volume = json_is_true(json_object_get(o, "volume"));
	struct gofer_client *gofer = volume ? c->volumes : c->gofer;
	json_int_t attach = json_integer_value(json_object_get(o, "index"));
	struct gofer_attr root;
	struct super *sb;

	if (!o || !gofer || attach < 0 || attach >= (json_int_t)gofer_nattach(gofer))
		return err_ptr(-ENOENT);
	*ret_file = json_is_true(json_object_get(o, "file"));
	(void)gofer_root(gofer, (unsigned)attach, &root);
	sb = *ret_file ? NULL : find_shared(c, &root);
	if (sb)
		return sb;
	readonly = readonly && !pod_holds(s, index);
	sb = gofer_create_super(gofer, (unsigned)attach, readonly ? MS_RDONLY : 0, *ret_file);
	if (is_err(sb))
		return sb;
	if (s->mounts[index].source)
		sb->shown_root = kstrdup(s->mounts[index].source);
	if (!readonly && !*ret_file && (volume || pod_holds(s, index)))
		remember(c, sb, &root);
	return sb;
}

void container_volumes_fini(struct container *c)
{
	struct container *pod = pod_of(c);
	struct list mine = LIST_INIT(mine);

	mutex_lock(&pod->mu);
	while (!list_empty(&c->binds)) {
		struct bind *b = list_first(&c->binds, struct bind, node);

		list_del(&b->node);
		list_add_tail(&mine, &b->node);
	}
	mutex_unlock(&pod->mu);
	while (!list_empty(&mine)) {
		struct bind *b = list_first(&mine, struct bind, node);

		list_del(&b->node);
		super_put(b->sb);
		free(b);
	}
}
