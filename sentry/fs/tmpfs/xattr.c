// SPDX-License-Identifier: Apache-2.0
/*
 * Extended attributes (man 7 xattr): a short list. What the image has is read in when
 * somebody first asks. Capability checks (trusted.*, security.*) and the rule that user.*
 * is for files and directories only are the VFS's. ACLs (system.posix_acl_*) are refused
 * cleanly: EOPNOTSUPP.
 */
#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/alloc.h"
#include "sentry/fs/tmpfs/priv.h"
#include "sentry/kernel/kmem.h"

static bool name_ok(const char *name)
{
	return strncmp(name, "user.", 5) == 0 || strncmp(name, "trusted.", 8) == 0 ||
	       strncmp(name, "security.", 9) == 0;
}

static struct tm_xattr **find(struct tm_inode *ti, const char *name)
{
	struct tm_xattr **p = &ti->xattrs;

	while (*p && strcmp((*p)->name, name) != 0)
		p = &(*p)->next;
	return p;
}

static size_t xattr_heap(const struct tm_xattr *x)
{
	return sizeof(*x) + strlen(x->name) + 1 + x->size;
}

void tm_xattr_add(struct tm_inode *ti, const char *name, const void *value, size_t size)
{
	struct tm_xattr *x = kzalloc(sizeof(*x));

	x->name = kstrdup(name);
	x->value = kzalloc(size ? size : 1);
	if (size)
		memcpy(x->value, value, size);
	x->size = size;
	kmem_add(xattr_heap(x));
	*find(ti, name) = x; /* at the end */
}

static void drop(struct tm_xattr **p)
{
	struct tm_xattr *x = *p;

	*p = x->next;
	kmem_uncharge(xattr_heap(x));
	free(x->name);
	free(x->value);
	free(x);
}

void tm_xattrs_free(struct tm_inode *ti)
{
	while (ti->xattrs)
		drop(&ti->xattrs);
}

/* Brings the lower's attributes in. Only files and directories have any that the gofer
 * can read. */
static int load(struct tm_inode *ti)
{
	if (ti->xattrs_loaded)
		return 0;
	if (!ti->dir && !ti->file) {
		ti->xattrs_loaded = true;
		return 0;
	}
	AUTO_FREE char *names = kzalloc(GOFER_XATTR_SIZE_MAX + 1);
	ssize_t n = lower_listxattr(ti->lower, names, GOFER_XATTR_SIZE_MAX);
	if (n < 0 && n != -EOPNOTSUPP)
		return (int)n;
	for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1) {
		AUTO_FREE char *value = kzalloc(GOFER_XATTR_SIZE_MAX);
		ssize_t size = lower_getxattr(ti->lower, names + at, value, GOFER_XATTR_SIZE_MAX);

		if (size >= 0 && *find(ti, names + at) == NULL)
			tm_xattr_add(ti, names + at, value, (size_t)size);
	}
	ti->xattrs_loaded = true;
	return 0;
}

/* The VFS holds no lock for reading, so take our own. */
ssize_t tm_getxattr(struct inode *inode, const char *name, void *buf, size_t size)
{
	struct tm_inode *ti = TM(inode);

	if (!name_ok(name))
		return -EOPNOTSUPP;
	/* Nothing was ever set: a racy look is enough (asked for at each exec and write).
	 * */
	if (ti->xattrs_loaded && !ti->xattrs)
		return -ENODATA;
	AUTO_LOCK(&ti->xattr_mu);
	int err = load(ti);
	if (err)
		return err;
	struct tm_xattr *x = *find(ti, name);
	if (!x)
		return -ENODATA;
	if (size && size < x->size)
		return -ERANGE;
	if (size)
		memcpy(buf, x->value, x->size);
	return (ssize_t)x->size;
}

static size_t total_size(const struct tm_inode *ti)
{
	size_t n = 0;

	for (const struct tm_xattr *x = ti->xattrs; x; x = x->next)
		n += strlen(x->name) + 1 + x->size;
	return n;
}

int tm_setxattr(struct inode *inode, const char *name, const void *buf, size_t size, int flags)
{
	struct tm_inode *ti = TM(inode);

	if (!name_ok(name))
		return -EOPNOTSUPP;
	AUTO_LOCK(&ti->xattr_mu);
	int err = load(ti);
	if (err)
		return err;
	struct tm_xattr **p = find(ti, name);
	if (*p && (flags & XATTR_CREATE))
		return -EEXIST;
	if (!*p && (flags & XATTR_REPLACE))
		return -ENODATA;
	if (total_size(ti) + strlen(name) + 1 + size > TM_XATTR_TOTAL_MAX || kmem_full())
		return -ENOSPC;
	if (*p)
		drop(p);
	tm_xattr_add(ti, name, buf, size);
	inode_touch(inode, 0);
	return 0;
}

ssize_t tm_listxattr(struct inode *inode, char *buf, size_t size)
{
	struct tm_inode *ti = TM(inode);
	size_t n = 0;

	if (ti->xattrs_loaded && !ti->xattrs)
		return 0;
	AUTO_LOCK(&ti->xattr_mu);
	int err = load(ti);
	if (err)
		return err;
	for (const struct tm_xattr *x = ti->xattrs; x; x = x->next) {
		size_t len = strlen(x->name) + 1;

		if (size) {
			if (n + len > size)
				return -ERANGE;
			memcpy(buf + n, x->name, len);
		}
		n += len;
	}
	return (ssize_t)n;
}

int tm_removexattr(struct inode *inode, const char *name)
{
	struct tm_inode *ti = TM(inode);

	if (!name_ok(name))
		return -EOPNOTSUPP;
	if (ti->xattrs_loaded && !ti->xattrs)
		return -ENODATA;
	AUTO_LOCK(&ti->xattr_mu);
	int err = load(ti);
	if (err)
		return err;
	struct tm_xattr **p = find(ti, name);
	if (!*p)
		return -ENODATA;
	drop(p);
	inode_touch(inode, 0);
	return 0;
}
