// SPDX-License-Identifier: Apache-2.0
/* Encoding of the structures of the gofer protocol; used by both sides. */
#include "gofer/wire.h"

#include <string.h>

void gofer_push_attr(struct writer *w, const struct gofer_attr *a)
{
	push_u64(w, a->dev);
	push_u64(w, a->ino);
	push_u64(w, a->rdev);
	push_u64(w, a->size);
	push_u64(w, a->blocks);
	push_u32(w, a->mode);
	push_u32(w, a->nlink);
	push_u32(w, a->uid);
	push_u32(w, a->gid);
	push_u32(w, a->blksize);
	push_u64(w, (uint64_t)a->atime_ns);
	push_u64(w, (uint64_t)a->mtime_ns);
	push_u64(w, (uint64_t)a->ctime_ns);
	push_u64(w, (uint64_t)a->btime_ns);
}

void gofer_pull_attr(struct cursor *c, struct gofer_attr *a)
{
	a->dev = pull_u64(c);
	a->ino = pull_u64(c);
	a->rdev = pull_u64(c);
	a->size = pull_u64(c);
	a->blocks = pull_u64(c);
	a->mode = pull_u32(c);
	a->nlink = pull_u32(c);
	a->uid = pull_u32(c);
	a->gid = pull_u32(c);
	a->blksize = pull_u32(c);
	a->atime_ns = (int64_t)pull_u64(c);
	a->mtime_ns = (int64_t)pull_u64(c);
	a->ctime_ns = (int64_t)pull_u64(c);
	a->btime_ns = (int64_t)pull_u64(c);
}

void gofer_push_setattr(struct writer *w, const struct gofer_setattr *a)
{
	push_u32(w, a->valid);
	push_u32(w, a->mode);
	push_u32(w, a->uid);
	push_u32(w, a->gid);
	push_u64(w, a->size);
	push_u64(w, (uint64_t)a->atime_ns);
	push_u64(w, (uint64_t)a->mtime_ns);
}

void gofer_pull_setattr(struct cursor *c, struct gofer_setattr *a)
{
	a->valid = pull_u32(c);
	a->mode = pull_u32(c);
	a->uid = pull_u32(c);
	a->gid = pull_u32(c);
	a->size = pull_u64(c);
	a->atime_ns = (int64_t)pull_u64(c);
	a->mtime_ns = (int64_t)pull_u64(c);
}

void gofer_push_statfs(struct writer *w, const struct gofer_statfs *s)
{
	push_u64(w, s->bsize);
	push_u64(w, s->blocks);
	push_u64(w, s->bfree);
	push_u64(w, s->bavail);
	push_u64(w, s->files);
	push_u64(w, s->ffree);
	push_u64(w, s->namelen);
	push_u64(w, s->frsize);
}

void gofer_pull_statfs(struct cursor *c, struct gofer_statfs *s)
{
	s->bsize = pull_u64(c);
	s->blocks = pull_u64(c);
	s->bfree = pull_u64(c);
	s->bavail = pull_u64(c);
	s->files = pull_u64(c);
	s->ffree = pull_u64(c);
	s->namelen = pull_u64(c);
	s->frsize = pull_u64(c);
}

bool gofer_name_ok(const char *name)
{
	size_t len = strnlen(name, GOFER_NAME_MAX + 1);

	if (len == 0 || len > GOFER_NAME_MAX || memchr(name, '/', len))
		return false;
	return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}
