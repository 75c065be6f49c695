// SPDX-License-Identifier: Apache-2.0
/*
 * Saving open file descriptions. What hangs on f->priv is the business of the kind of file (struct
 * file_state); which kind it is goes into the image by number.
 *
 * Counted again instead of saved: writers of an inode, the sandbox's open files, an epoll's watches.
 */
#include "sentry/vfs/vfs_state.h"

#include <fcntl.h>

#include "sentry/vfs/vfs_priv.h"

#define FMODE_ALL 63u

#define POINTER(name) &file_state_##name,
static const struct file_state *const file_states[] = { FILE_STATES(POINTER) };

static const struct file_state *find(uint16_t id)
{
	for (size_t i = 0; i < ARRAY_SIZE(file_states); i++)
		if (file_states[i]->id == id)
			return file_states[i];
	return NULL;
}

static void *file_state_alloc(struct state *s)
{
	struct file *f = file_alloc(0, NULL);

	(void)s;
	return is_err(f) ? NULL : f;
}

/* What kind of file it is. */
static const struct file_state *kind_fields(struct state *s, struct file *f)
{
	const struct file_state *fs = state_loading(s) ? NULL : f->ops->state;
	uint16_t id = fs ? fs->id : FILE_NONE;

	if (!state_loading(s) && !fs) {
		state_fail(s, "an open file of kind \"%s\" can't be saved", f->ops->name);
		return NULL;
	}
	state_u16(s, &id);
	if (!state_loading(s))
		return fs;
	fs = find(id);
	if (!fs)
		state_fail(s, "no kind of file has number %u", id);
	else
		f->ops = fs->ops;
	return fs;
}

static void fown_fields(struct state *s, struct fown *own)
{
	int64_t type = own->type, sig = own->sig;

	state_ref(s, &state_pid, &own->pid);
	state_range_i64(s, &type, F_OWNER_TID, F_OWNER_PGRP);
	state_range_i64(s, &sig, 0, 64);
	state_i32(s, &own->fd);
	state_u32(s, &own->uid);
	state_u32(s, &own->euid);
	own->type = (int)type;
	own->sig = (int)sig;
}

static void file_fields(struct state *s, void *obj)
{
	struct file *f = obj;
	const struct file_state *fs = kind_fields(s, f);
	uint32_t flags = atomic_load(&f->flags);
	bool killed = f->privs_killed;

	state_path(s, &f->path);
	state_ref_in(s, &state_inode_class, &f->inode);
	state_u32(s, &f->fmode);
	state_u32(s, &flags);
	state_i64(s, &f->pos);
	state_ref(s, &state_cred, &f->cred);
	fown_fields(s, &f->fown);
	state_bool(s, &f->wrote);
	state_bool(s, &killed);
	if (state_loading(s)) {
		atomic_store(&f->flags, flags);
		f->privs_killed = killed;
		if (f->fmode & ~FMODE_ALL)
			state_fail(s, "open mode 0x%x", f->fmode);
	}
	if (fs && fs->fields)
		fs->fields(s, f);
}

static void file_finish(struct state *s, void *obj)
{
	struct file *f = obj;
	bool opath = f->fmode & FMODE_PATH;

	if (!f->inode || !f->path.dentry || dentry_inode(f->path.dentry) != f->inode ||
	    opath != (f->ops == file_state_path.ops)) {
		state_fail(s, "file without its inode");
		return;
	}
	if (f->wrote)
		atomic_fetch_add(&f->inode->writecount, 1);
	if (f->fmode & FMODE_EXEC)
		atomic_fetch_sub(&f->inode->writecount, 1);
	if (f->ops->state->finish)
		f->ops->state->finish(s, f);
}

bool file_state_on(struct state *s, const struct file *f, const struct state_type *type)
{
	if (f->inode->ops->state == type)
		return true;
	state_fail(s, "a \"%s\" file on an inode of another kind", f->ops->name);
	return false;
}

static void *get(void *obj)
{
	return file_get(obj);
}

static void put(void *obj)
{
	file_put(obj);
}

const struct state_type state_file = {
	.id = STATE_FILE,
	.version = 1,
	.name = "file",
	.alloc = file_state_alloc,
	.fields = file_fields,
	.finish = file_finish,
	.get = get,
	.put = put,
	.phase = 4,
};
