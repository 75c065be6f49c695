// SPDX-License-Identifier: Apache-2.0
/*
 * Extended attributes. Only of files and directories (others would have to be opened),
 * and only of the names that a container has a use for: user.*, trusted.* but overlayfs's
 * own, security.capability. ACLs (system.*) and the host's labels are none of the guest's
 * business.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/alloc.h"
#include "gofer/priv.h"

static bool has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static bool xattr_allowed(const char *name)
{
	if (has_prefix(name, "trusted."))
		return !has_prefix(name, "trusted.overlay.");
	return has_prefix(name, "user.") || strcmp(name, "security.capability") == 0;
}

/* Node, attribute name, and a descriptor for f*xattr (which refuse O_PATH ones). */
static int xattr_open(struct req *r, char name[GOFER_XATTR_NAME_MAX + 1], bool change)
{
	int err;
	struct node *n = pull_node(r, &err);

	if (!n)
		return err;
	if (name) {
		pull_str(r->in, name, GOFER_XATTR_NAME_MAX + 1);
		if (!cursor_ok(r->in))
			return -EINVAL;
		if (!xattr_allowed(name))
			return -EOPNOTSUPP;
	}
	if (change && node_readonly(r->g, n))
		return -EROFS;
	int fd = node_open(r->g, n, O_RDONLY);
	return fd == -ENXIO ? -EOPNOTSUPP : fd;
}

int op_getxattr(struct req *r)
{
	char name[GOFER_XATTR_NAME_MAX + 1];
	AUTO_CLOSE int fd = xattr_open(r, name, false);

	if (fd < 0)
		return fd;
	if (!cursor_done(r->in))
		return -EINVAL;
	AUTO_FREE char *buf = kzalloc(GOFER_XATTR_SIZE_MAX);
	ssize_t n = fgetxattr(fd, name, buf, GOFER_XATTR_SIZE_MAX); /* host: fgetxattr */
	if (n < 0)
		return errno == ERANGE ? -E2BIG : -errno;
	push_u32(r->out, (uint32_t)n);
	push_bytes(r->out, buf, (size_t)n);
	return 0;
}

int op_setxattr(struct req *r)
{
	char name[GOFER_XATTR_NAME_MAX + 1];
	AUTO_CLOSE int fd = xattr_open(r, name, true);
	uint32_t flags = pull_u32(r->in), size = pull_u32(r->in);

	if (fd < 0)
		return fd;
	if (size > GOFER_XATTR_SIZE_MAX)
		return -E2BIG;
	const void *value = pull_bytes(r->in, size);
	if (!cursor_done(r->in) || (flags & ~(unsigned)(XATTR_CREATE | XATTR_REPLACE)))
		return -EINVAL;
	if (fsetxattr(fd, name, size ? value : "", size, (int)flags) < 0) /* host: fsetxattr */
		return -errno;
	return 0;
}

int op_listxattr(struct req *r)
{
	AUTO_CLOSE int fd = xattr_open(r, NULL, false);

	if (fd < 0)
		return fd;
	if (!cursor_done(r->in))
		return -EINVAL;
	AUTO_FREE char *buf = kzalloc(GOFER_XATTR_SIZE_MAX + 1);
	ssize_t n = flistxattr(fd, buf, GOFER_XATTR_SIZE_MAX); /* host: flistxattr */
	if (n < 0)
		return errno == ERANGE ? -E2BIG : -errno;
	size_t kept = 0;
	for (size_t at = 0; at < (size_t)n;) {
		size_t len = strlen(buf + at) + 1;

		if (xattr_allowed(buf + at)) {
			memmove(buf + kept, buf + at, len);
			kept += len;
		}
		at += len;
	}
	push_u32(r->out, (uint32_t)kept);
	push_bytes(r->out, buf, kept);
	return 0;
}

int op_removexattr(struct req *r)
{
	char name[GOFER_XATTR_NAME_MAX + 1];
	AUTO_CLOSE int fd = xattr_open(r, name, true);

	if (fd < 0)
		return fd;
	if (!cursor_done(r->in))
		return -EINVAL;
	return fremovexattr(fd, name) < 0 ? -errno : 0; /* host: fremovexattr */
}
