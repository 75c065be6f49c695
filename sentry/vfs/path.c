// SPDX-License-Identifier: Apache-2.0
/* Paths as pairs of references, and as text. */
#include "base/alloc.h"

#include <string.h>

#include "sentry/vfs/vfs_priv.h"

struct path *path_get(struct path *p)
{
	if (p->mnt)
		mount_get(p->mnt);
	if (p->dentry)
		dentry_get(p->dentry);
	return p;
}

void path_put(struct path *p)
{
	struct mount *mnt = steal_ptr(&p->mnt);
	struct dentry *dentry = steal_ptr(&p->dentry);

	dentry_put(dentry);
	mount_put(mnt);
}

struct revbuf { /* text that grows to the front */
	char *buf;
	size_t size, start;
};

static void prepend(struct revbuf *b, const char *s, size_t n)
{
	if (b->start < n) {
		size_t used = b->size - b->start, size = (b->size + n) * 2;
		char *buf = kzalloc(size);

		if (used)
			memcpy(buf + size - used, b->buf + b->start, used);
		free(b->buf);
		*b = (struct revbuf){ buf, size, size - used };
	}
	b->start -= n;
	if (n)
		memcpy(b->buf + b->start, s, n);
}

/* Components from @p up to @root; false when @root isn't above. Context: dcache_mu. */
static bool prepend_path(struct revbuf *b, struct path p, const struct path *root)
{
	bool reached = false;

	for (;;) {
		if (root && path_equal(&p, root)) {
			reached = true;
			break;
		}
		if (p.mnt && p.dentry == p.mnt->root) {
			if (!p.mnt->parent) {
				reached = !root && p.mnt->ns;
				break;
			}
			p = (struct path){ p.mnt->parent, p.mnt->mountpoint };
			continue;
		}
		if (!p.dentry->parent)
			break;
		prepend(b, p.dentry->name, p.dentry->namelen);
		prepend(b, "/", 1);
		p.dentry = p.dentry->parent;
	}
	return reached;
}

char *path_string(const struct path *p, const struct path *root, bool *unreachable)
{
	struct revbuf b = { 0 };
	bool reached;

	prepend(&b, "", 1);
	mutex_lock(&dcache_mu);
	if (d_unlinked(p->dentry))
		prepend(&b, " (deleted)", 10);
	size_t before = b.size - b.start;
	if (!p->mnt && !p->dentry->parent) {
		prepend(&b, p->dentry->name, p->dentry->namelen);
		reached = true;
	} else {
		reached = prepend_path(&b, *p, root);
		if (b.size - b.start == before)
			prepend(&b, "/", 1);
	}
	mutex_unlock(&dcache_mu);
	if (unreachable)
		*unreachable = !reached;
	char *s = kstrdup(b.buf + b.start);
	free(b.buf);
	return s;
}

/* As d_path() of Linux, which shows a path outside @root from the root of its namespace; only
 * getcwd(2) says "(unreachable)". */
char *path_to_string(const struct path *p, const struct path *root)
{
	return path_string(p, root, NULL);
}
