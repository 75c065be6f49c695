// SPDX-License-Identifier: Apache-2.0
/*
 * Saving inodes: the part that all kinds share, and the list of kinds. Each kind's own type is beside its
 * file system. Counts of writers aren't saved: open files make them again (file_state.c).
 */
#include "sentry/vfs/vfs_state.h"

#include "sentry/vfs/vfs_priv.h"

static const struct state_type *type_of(const void *obj)
{
	return ((const struct inode *)obj)->ops->state;
}

static const struct state_type *const types[] = {
	&state_inode_tmpfs,  &state_inode_gofer,  &state_inode_pfs,    &state_inode_devpts,
	&state_inode_mqueue, &state_inode_mqroot, &state_inode_pseudo, &state_inode_anon,
	&state_inode_nsfs,   &state_inode_hostfd, NULL,
};

const struct state_class state_inode_class = {
	.name = "inode",
	.type_of = type_of,
	.types = types,
};

void *inode_state_get(void *inode)
{
	return inode_get(inode);
}

void inode_state_put(void *inode)
{
	inode_put(inode);
}

void inode_state_fields(struct state *s, struct inode *inode)
{
	uint64_t rdev = inode->rdev, size = atomic_load(&inode->size);

	state_u64(s, &inode->ino);
	state_u32(s, &inode->mode);
	state_u32(s, &inode->nlink);
	state_u32(s, &inode->uid);
	state_u32(s, &inode->gid);
	state_u64(s, &rdev);
	state_u64(s, &size);
	state_u64(s, &inode->blocks);
	state_u32(s, &inode->blksize);
	state_i64(s, &inode->atime_ns);
	state_i64(s, &inode->mtime_ns);
	state_i64(s, &inode->ctime_ns);
	state_i64(s, &inode->btime_ns);
	state_u64(s, &inode->version);
	if (state_loading(s)) {
		if (size > INT64_MAX)
			state_fail(s, "file of %llu bytes", (unsigned long long)size);
		inode->rdev = (dev_t)rdev;
		atomic_store(&inode->size, size);
	}
	locks_state_fields(s, inode);
	dnotify_state_fields(s, inode);
	pipe_state_fields(s, inode);
}

/* ---- the one inode of anonymous files ---- */

static void *anon_alloc(struct state *s)
{
	(void)s;
	return anon_inode_get();
}

static void anon_fields(struct state *s, void *obj)
{
	inode_state_fields(s, obj);
}

const struct state_type state_inode_anon = {
	.id = STATE_INODE_ANON,
	.version = 1,
	.name = "anonymous inode",
	.alloc = anon_alloc,
	.fields = anon_fields,
	.get = inode_state_get,
	.put = inode_state_put,
	.phase = 2,
};
